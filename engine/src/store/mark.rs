//! Marks of a Ready row and the inventory of an aggregate move (STORE-18, STORE-21).

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::error::StoreError;
use super::record::{Bundle, OwnerFence};
use crate::model::limits::{INVENTORY_LEAF_BYTES, INVENTORY_LEAF_ENTRIES};
use crate::model::{
    AggregateGeneration, AggregateId, NodeFence, ObjectGeneration, ObjectKey, OperationId, RelocationId,
    RelocationPolicy, ReservationId, Sha256Digest, StoreTime,
};

/// What is going on with a Ready row; the two exclude each other (STORE-21).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mark {
    /// It is being closed or destroyed by this operation.
    Closing(OperationId),
    /// It is being moved.
    Relocating(Box<RelocationMark>),
}

/// Phase of a relocation mark (STORE-21).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RelocationPhase {
    /// Target reserved.
    Preparing,
    /// The source captured the state of this attempt.
    Captured,
    /// The target holds the state of this attempt.
    Prepared,
    /// The target owns the object.
    Committed,
    /// The source owns the object and admits no work until the mark is cleared.
    Aborted,
}

/// A relocation mark with the reservation at its target.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RelocationMark {
    /// The move.
    pub relocation: RelocationId,
    /// Its reservation at the target; `None` for an aggregate, whose identity is the aggregate's.
    pub reservation: Option<ReservationId>,
    /// Attempt, starting at 1.
    pub attempt: u32,
    /// How far it is.
    pub phase: RelocationPhase,
    /// Owner when the mark was set.
    pub source: OwnerFence,
    /// Owner-to-be.
    pub target: NodeFence,
    /// Slots at the target; reserved until commit or abort.
    pub bundle: Bundle,
    /// End of Restore validity in Store time.
    pub valid_until: StoreTime,
    /// What an aggregate move was prepared with.
    pub aggregate: Option<PreparedAggregate>,
    /// Members per node while a PerActor Spot moves (STORE-102).
    pub move_counts: Option<MoveCounts>,
}

/// The prepared identity of an aggregate move; commit compares every field (STORE-93).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PreparedAggregate {
    /// The move.
    pub id: AggregateId,
    /// Generation of the Spot when it was prepared.
    pub generation: AggregateGeneration,
    /// Participants: the Spot and its members.
    pub count: u64,
    /// Digest of the inventory's root chunk.
    pub root: Sha256Digest,
    /// Digest of the whole inventory.
    pub digest: Sha256Digest,
}

/// Members of a moving PerActor Spot at either node; the sum is the member count (STORE-102).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MoveCounts {
    /// Still at the source.
    pub source: u64,
    /// Already at the target.
    pub target: u64,
}

/// One participant of an aggregate move (STORE-18).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct InventoryEntry {
    /// The participant; the order of keys is kind, then bytes.
    pub key: ObjectKey,
    /// Its incarnation.
    pub object_generation: ObjectGeneration,
    /// Its owner.
    pub owner: OwnerFence,
    /// What the move does with it.
    pub policy: RelocationPolicy,
}

/// A chunk of an inventory, at most 1,024 entries and 1 MiB encoded (STORE-18).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum InventoryChunk {
    /// Participants in strictly ascending key order.
    Leaf(Vec<InventoryEntry>),
    /// Digests of the chunks below, in order.
    Index(Vec<Sha256Digest>),
}

impl InventoryChunk {
    /// The canonical encoding.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        // Plain data with known lengths always encodes.
        Bytes::from(postcard::to_stdvec(self).unwrap_or_default())
    }

    /// Decodes and checks a chunk: form, order and both bounds of STORE-18.
    ///
    /// # Errors
    /// `InvalidArgument` saying what was expected and what was found.
    pub fn decode(bytes: &[u8]) -> Result<Self, StoreError> {
        let refuse = |text: String| Err(StoreError::InvalidArgument(format!("inventory chunk: {text}")));
        if bytes.len() > INVENTORY_LEAF_BYTES {
            return refuse(format!("expected at most {INVENTORY_LEAF_BYTES} bytes, found {}", bytes.len()));
        }
        let Ok((chunk, rest)) = postcard::take_from_bytes::<Self>(bytes) else {
            return refuse("not an encoded chunk".to_owned());
        };
        if !rest.is_empty() {
            return refuse(format!("{} bytes behind the end", rest.len()));
        }
        let entries = match &chunk {
            Self::Leaf(entries) => entries.len(),
            Self::Index(digests) => digests.len(),
        };
        if entries == 0 || entries > INVENTORY_LEAF_ENTRIES {
            return refuse(format!("expected 1..={INVENTORY_LEAF_ENTRIES} entries, found {entries}"));
        }
        if let Self::Leaf(entries) = &chunk
            && !entries.is_sorted_by(|a, b| a.key < b.key)
        {
            return refuse("expected strictly ascending keys".to_owned());
        }
        // Numbers have longer encodings too; with one form only, equal chunks have equal digests.
        if chunk.encode() != bytes {
            return refuse("not the canonical encoding".to_owned());
        }
        Ok(chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        ActorId, AuthorityOwnerGeneration, LeaseGeneration, LeaseRef, LifecycleGeneration, MeshName, OwnerId,
        Rid,
    };

    /// An entry whose texts are as long as they may be.
    fn longest(n: usize) -> InventoryEntry {
        let long = |n: usize| format!("{n:0>255}");
        let lease = LeaseRef {
            owner: OwnerId::new(u128::MAX).unwrap(),
            generation: LeaseGeneration::new((1 << 63) - 1).unwrap(),
        };
        let node = NodeFence {
            mesh: MeshName::new(long(0)).unwrap(),
            rid: Rid::new(long(0)).unwrap(),
            lifecycle: LifecycleGeneration::from_u64(u64::MAX).unwrap(),
            lease,
        };
        InventoryEntry {
            key: ObjectKey::Actor(ActorId::new(long(n)).unwrap()),
            object_generation: ObjectGeneration::new((1 << 63) - 1).unwrap(),
            owner: OwnerFence { node, generation: AuthorityOwnerGeneration::FIRST },
            policy: RelocationPolicy::PreserveState,
        }
    }

    #[test]
    fn err_t14_a_leaf_holds_1024_entries_and_never_more_than_a_mebibyte() {
        let leaf = |entries| InventoryChunk::Leaf((0..entries).map(longest).collect());
        // Even the longest 1,024 entries fit, so the count is what splits an inventory.
        let full = leaf(INVENTORY_LEAF_ENTRIES);
        assert!(full.encode().len() <= INVENTORY_LEAF_BYTES);
        assert_eq!(InventoryChunk::decode(&full.encode()), Ok(full));
        let refused =
            |bytes: &[u8]| matches!(InventoryChunk::decode(bytes), Err(StoreError::InvalidArgument(_)));
        assert!(refused(&leaf(INVENTORY_LEAF_ENTRIES + 1).encode()));
        let index = |entries| InventoryChunk::Index(vec![Sha256Digest::of(b""); entries]);
        assert!(InventoryChunk::decode(&index(INVENTORY_LEAF_ENTRIES).encode()).is_ok());
        assert!(refused(&index(INVENTORY_LEAF_ENTRIES + 1).encode()));
        assert!(refused(&vec![0; INVENTORY_LEAF_BYTES + 1]));
    }

    proptest::proptest! {
        #[test]
        fn a_decoder_takes_only_what_encodes_to_the_same_bytes(
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..64)
        ) {
            if let Ok(chunk) = InventoryChunk::decode(&bytes) {
                proptest::prop_assert_eq!(&chunk.encode()[..], &bytes[..]);
            }
        }
    }

    #[test]
    fn a_claimed_length_allocates_nothing_and_trailing_bytes_are_refused() {
        // A leaf that claims 2^63 entries and holds none.
        let claims = [0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
        assert!(InventoryChunk::decode(&claims).is_err());
        let mut trailing = InventoryChunk::Index(vec![Sha256Digest::of(b"")]).encode().to_vec();
        assert!(InventoryChunk::decode(&trailing).is_ok());
        trailing.push(0);
        assert!(InventoryChunk::decode(&trailing).is_err());
        // Variant 1, written with a byte more than needed.
        let mut longer = vec![0x81, 0x00];
        longer.extend_from_slice(&trailing[1..trailing.len() - 1]);
        assert!(InventoryChunk::decode(&longer).is_err());
    }
}
