//! The Store's records as plain ordered data.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use spotmesh::model::{
    ActivationId, AggregateGeneration, AggregateId, AuthorityOwnerGeneration, ContentId, ExecutionMode,
    LeaseRef, LifecycleGeneration, MeshName, NodeFence, ObjectGeneration, ObjectKey, ObjectKind, ObjectRole,
    OperationIdentity, OwnerId, ReservationId, Rid, Sha256Digest, SpotId, StableType, StoreTime,
    StoreVersion,
};
use spotmesh::store::{
    Aggregate, Bundle, Descriptor, LeaseState, LeaseView, Mark, NodeLimits, PendingCreation, ReadyObject,
    RelocationMark, TerminalRecord,
};

use crate::capacity::{Counters, NodeKey};
use crate::sequence::Sequences;
use crate::table::Table;

/// Everything one Store namespace holds.
///
/// Plain data: two stores with equal states answer alike for ever, which exploration and replay rely on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct State {
    pub(crate) sequences: Sequences,
    pub(crate) leases: Table<OwnerId, LeaseRow>,
    pub(crate) claims: Table<NodeName, Claim>,
    pub(crate) entries: Table<SpotId, EntrySpot>,
    pub(crate) counters: Table<NodeKey, Counters>,
    pub(crate) rows: Table<ObjectKey, Row>,
    pub(crate) contents: Table<ContentId, Blob>,
    pub(crate) activations: Table<ActivationId, ActivationRow>,
    pub(crate) terminals: Table<OperationIdentity, TerminalRecord>,
    /// Which operation's record an attempt ended in; one entry per record.
    pub(crate) ended: Table<ReservationId, OperationIdentity>,
    pub(crate) chunks: Table<(AggregateId, Sha256Digest), ChunkRow>,
    pub(crate) change_stamp: u64,
}

/// Name of a node in the namespace.
pub type NodeName = (MeshName, Rid);

/// An owner lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseRow {
    /// Owner and generation.
    pub lease: LeaseRef,
    /// Its state.
    pub state: LeaseState,
    /// End of its life.
    pub expires_at: StoreTime,
}

impl LeaseRow {
    pub(crate) fn view(&self) -> LeaseView {
        LeaseView { lease: self.lease, state: self.state, expires_at: self.expires_at }
    }
}

/// A node's claim with its descriptor once published.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Claim {
    /// Identity of the claim.
    pub lifecycle: LifecycleGeneration,
    /// What the node is for objects.
    pub role: ObjectRole,
    /// Its limits.
    pub limits: NodeLimits,
    /// Entry Spot of an Object Server.
    pub entry_spot_id: Option<SpotId>,
    /// The lease it was claimed under.
    pub lease: LeaseRef,
    /// Version of the claim.
    pub claim_version: StoreVersion,
    /// The descriptor, once visible.
    pub published: Option<Published>,
}

/// A published descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Published {
    /// The descriptor.
    pub descriptor: Arc<Descriptor>,
    /// Encoded bytes, kept so that listings bound their pages without encoding anything again.
    pub encoded_len: usize,
    /// Version of the publication.
    pub version: StoreVersion,
}

/// Identity of an Entry Spot; visible while its node's claim is published.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EntrySpot {
    /// The node it belongs to.
    pub node: NodeName,
    /// Its incarnation.
    pub object_generation: ObjectGeneration,
    /// Its owner generation.
    pub owner_generation: AuthorityOwnerGeneration,
}

/// An authority row.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Row {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its type.
    pub stable_type: StableType,
    /// Mode of a User Spot.
    pub execution_mode: Option<ExecutionMode>,
    /// Its incarnation.
    pub object_generation: ObjectGeneration,
    /// The row's own pair; a member of a SpotWide Spot follows the Spot instead (STORE-13).
    pub owner: NodeFence,
    /// Generation of that owner.
    pub owner_generation: AuthorityOwnerGeneration,
    /// Replaced by every change.
    pub version: StoreVersion,
    /// Creating or Ready.
    pub phase: Phase,
}

impl Row {
    /// Slots it takes at its owner.
    #[must_use]
    pub fn bundle(&self) -> Bundle {
        Bundle::of(self.kind, &self.stable_type)
    }

    /// What only a Ready row has.
    #[must_use]
    pub fn ready(&self) -> Option<&Ready> {
        match &self.phase {
            Phase::Ready(ready) => Some(ready),
            Phase::Creating(_) => None,
        }
    }

    pub(crate) fn ready_mut(&mut self) -> Option<&mut Ready> {
        match &mut self.phase {
            Phase::Ready(ready) => Some(ready),
            Phase::Creating(_) => None,
        }
    }

    /// The pending creation of a Creating row.
    #[must_use]
    pub fn pending(&self) -> Option<&PendingCreation> {
        match &self.phase {
            Phase::Creating(pending) => Some(pending),
            Phase::Ready(_) => None,
        }
    }

    /// Its mark.
    #[must_use]
    pub fn mark(&self) -> Option<&Mark> {
        self.ready().and_then(|ready| ready.object.mark.as_ref())
    }

    /// Its relocation mark.
    #[must_use]
    pub fn relocation(&self) -> Option<&RelocationMark> {
        match self.mark() {
            Some(Mark::Relocating(mark)) => Some(mark),
            _ => None,
        }
    }

    /// The Spot an Actor is a member of.
    #[must_use]
    pub fn spot(&self) -> Option<&SpotId> {
        match self.ready().map(|ready| &ready.member) {
            Some(Member::Entry(spot) | Member::User { spot, .. }) => Some(spot),
            _ => None,
        }
    }

    /// Members of a User Spot.
    #[must_use]
    pub fn members(&self) -> Option<&Members> {
        match self.ready().map(|ready| &ready.member) {
            Some(Member::Spot(members)) => Some(members),
            _ => None,
        }
    }
}

/// What a row is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// Reserved, not yet an object.
    Creating(PendingCreation),
    /// An object.
    Ready(Ready),
}

/// What only a Ready row has.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ready {
    /// Mark and identities kept for settlement.
    pub object: ReadyObject,
    /// Where it belongs, or what belongs to it.
    pub member: Member,
}

/// The membership side of a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Member {
    /// An Instance Spot.
    None,
    /// An Actor in an Entry Spot.
    Entry(SpotId),
    /// An Actor in a User Spot.
    User {
        /// The Spot.
        spot: SpotId,
        /// Its mode.
        mode: ExecutionMode,
        /// The Spot's owner generation at the join: a different one now means the aggregate moved since.
        joined_under: AuthorityOwnerGeneration,
    },
    /// A User Spot.
    Spot(Members),
}

/// Membership of a User Spot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Members {
    /// How many.
    pub count: u64,
    /// Steps with every change of membership.
    pub generation: AggregateGeneration,
    /// The last committed move as an aggregate.
    pub aggregate: Option<Aggregate>,
}

/// Immutable bytes with the reservation that holds them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Blob {
    /// The bytes; empty in a slice loaded without them.
    pub bytes: Bytes,
    /// How many bytes there are.
    pub size: u32,
    /// Their digest.
    pub sha256: Sha256Digest,
    /// Garbage past this while unlinked.
    pub retain_until: StoreTime,
    /// The reservation that holds them.
    pub linked: Option<ReservationId>,
}

/// An activation record.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ActivationRow {
    /// The envelope.
    pub blob: Blob,
    /// Inbox sequence of the first message.
    pub inbox_sequence: Option<u64>,
    /// Completed up to here.
    pub cursor: Option<u64>,
}

/// An inventory chunk.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ChunkRow {
    /// The encoded chunk; empty in a slice loaded without it.
    pub bytes: Bytes,
    /// Garbage past this while its aggregate does not move.
    pub retain_until: StoreTime,
}

impl Blob {
    /// Bytes nobody holds yet. Their length was checked, so it fits.
    pub(crate) fn unlinked(bytes: Bytes, sha256: Sha256Digest, retain_until: StoreTime) -> Self {
        let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        Self { bytes, size, sha256, retain_until, linked: None }
    }
}

impl State {
    /// An empty namespace.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn lease(&self, lease: LeaseRef) -> Option<&LeaseRow> {
        self.leases.get(&lease.owner).filter(|row| row.lease == lease)
    }

    pub(crate) fn is_live(&self, lease: LeaseRef, now: StoreTime) -> bool {
        self.lease(lease).is_some_and(|row| row.view().is_live(now))
    }

    /// The claim of exactly this lifecycle and lease.
    pub(crate) fn claim_of(&self, node: &NodeFence) -> Option<&Claim> {
        self.claims
            .get(&(node.mesh.clone(), node.rid.clone()))
            .filter(|claim| claim.lifecycle == node.lifecycle && claim.lease == node.lease)
    }

    /// The published descriptor of exactly this lifecycle and lease.
    pub(crate) fn published(&self, node: &NodeFence) -> Option<&Descriptor> {
        self.claim_of(node)?.published.as_ref().map(|published| &*published.descriptor)
    }

    /// Lifecycle published under a node's name.
    pub(crate) fn published_lifecycle(&self, node: &NodeFence) -> Option<LifecycleGeneration> {
        let claim = self.claims.get(&(node.mesh.clone(), node.rid.clone()))?;
        claim.published.as_ref().map(|_| claim.lifecycle)
    }

    /// Owner and owner generation that count for a row (STORE-13).
    pub(crate) fn effective<'s>(&'s self, row: &'s Row) -> (&'s NodeFence, AuthorityOwnerGeneration) {
        if let Some(Member::User { spot, mode: ExecutionMode::SpotWide, joined_under }) =
            row.ready().map(|ready| &ready.member)
            && let Some(spot) = self.rows.get(&ObjectKey::Spot(spot.clone()))
        {
            let moved = spot.owner_generation != *joined_under;
            return (&spot.owner, if moved { spot.owner_generation } else { row.owner_generation });
        }
        (&row.owner, row.owner_generation)
    }

    /// Takes over how far another state's sequences and change stamp are, so that an emptied namespace can be
    /// compared with one that never held anything.
    pub fn take_over_sequences(&mut self, from: &Self) {
        self.sequences = from.sequences;
        self.change_stamp = from.change_stamp;
    }

    /// Lets only `remaining` more values be issued of every sequence, for tests of STORE-10.
    pub fn leave_generations(&mut self, remaining: u64) {
        self.sequences.leave(remaining);
    }
}
