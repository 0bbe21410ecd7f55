//! Relocation of single objects and aggregates (STORE-85..95).

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::model::{
    AggregateGeneration, AggregateId, LeaseRef, NodeFence, ObjectGeneration, ObjectKey, OperationId,
    RelocationId, ReservationId, Sha256Digest, SpotId, StoreVersion,
};
use crate::store::record::OwnerFence;

/// Marks a row Preparing and reserves its bundle at the target (STORE-85). Answers the row.
///
/// The bundle is the row's own. Fails with NotFound, Conflict, CapacityExceeded, LeaseLost.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReserveRelocation {
    /// The object.
    pub key: ObjectKey,
    /// The move.
    pub relocation: RelocationId,
    /// The reservation at the target.
    pub reservation: ReservationId,
    /// Attempt, from 1.
    pub attempt: u32,
    /// The row's version.
    pub version: StoreVersion,
    /// The present owner.
    pub source: OwnerFence,
    /// The owner-to-be.
    pub target: NodeFence,
    /// Restore validity from now.
    pub validity: Duration,
    /// Lease of the caller, the source.
    pub lease: LeaseRef,
}

/// Phases a mark can be stepped to by [`MarkRelocation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MarkPhase {
    /// By the source.
    Captured,
    /// By the target, on Captured of the same attempt.
    Prepared,
}

/// Steps the phase of a mark (STORE-86). Answers the row. Fails with NotFound, Conflict, LeaseLost.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MarkRelocation {
    /// The object.
    pub key: ObjectKey,
    /// The move.
    pub relocation: RelocationId,
    /// Attempt.
    pub attempt: u32,
    /// The new phase.
    pub phase: MarkPhase,
    /// The row's version.
    pub version: StoreVersion,
    /// Lease of the source or the target.
    pub lease: LeaseRef,
}

/// Aborts a move that is not committed and releases the target's slots (STORE-87). Answers the row.
///
/// On an unmarked row the source replaces the version only, so that a late reservation cannot match.
/// Fails with NotFound, Conflict, LeaseLost.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AbortRelocation {
    /// The object.
    pub key: ObjectKey,
    /// The move.
    pub relocation: RelocationId,
    /// The row's version.
    pub version: StoreVersion,
    /// Lease of the source or the marked target.
    pub lease: LeaseRef,
}

/// Removes the mark of an ended move (STORE-88). Answers the row. Fails with NotFound, Conflict, LeaseLost.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClearRelocation {
    /// The object.
    pub key: ObjectKey,
    /// The move.
    pub relocation: RelocationId,
    /// The row's version.
    pub version: StoreVersion,
    /// The owner's lease.
    pub lease: LeaseRef,
}

/// The membership change of a Join that moves its Actor to another node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MembershipMove {
    /// Where the Actor is.
    pub from: SpotId,
    /// Where it goes: a Spot of the target.
    pub to: SpotId,
    /// The Join, kept as the row's last change.
    pub join: OperationId,
}

/// Makes the target the owner (STORE-89). Answers the row.
///
/// Fails with NotFound, Conflict, LeaseLost, GenerationExhausted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CommitRelocation {
    /// The object.
    pub key: ObjectKey,
    /// Its incarnation.
    pub object_generation: ObjectGeneration,
    /// The present owner.
    pub source: OwnerFence,
    /// The row's version.
    pub version: StoreVersion,
    /// The move.
    pub relocation: RelocationId,
    /// The attempt that was Prepared.
    pub attempt: u32,
    /// The target's lease.
    pub lease: LeaseRef,
    /// The Spot an Actor changes to; an Actor of an Entry Spot always names one.
    pub membership: Option<MembershipMove>,
}

/// Stores an immutable inventory chunk (STORE-90). Fails with Conflict(DifferentContent), InvalidArgument.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PutInventoryChunk {
    /// The move.
    pub aggregate: AggregateId,
    /// An encoded [`crate::store::InventoryChunk`] of at most 1 MiB.
    pub bytes: Bytes,
    /// Digest of the bytes.
    pub digest: Sha256Digest,
}

/// Reads an inventory chunk (STORE-91). Fails with NotFound, DataLost.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GetInventoryChunk {
    /// The move.
    pub aggregate: AggregateId,
    /// Digest of the chunk.
    pub digest: Sha256Digest,
}

/// Marks a SpotWide Spot Prepared and reserves the whole aggregate at the target (STORE-92).
///
/// Fails with NotFound (row or root), Conflict, CapacityExceeded, LeaseLost.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PrepareAggregate {
    /// The Spot.
    pub spot: SpotId,
    /// The aggregate move.
    pub aggregate: AggregateId,
    /// The Spot's generation: no member came or went since the inventory was taken.
    pub generation: AggregateGeneration,
    /// The move.
    pub relocation: RelocationId,
    /// Attempt, from 1.
    pub attempt: u32,
    /// The row's version.
    pub version: StoreVersion,
    /// The present owner.
    pub source: OwnerFence,
    /// The owner-to-be.
    pub target: NodeFence,
    /// Digest of the root chunk.
    pub root: Sha256Digest,
    /// Participants: members + 1.
    pub count: u64,
    /// Digest of the whole inventory.
    pub digest: Sha256Digest,
    /// Restore validity from now.
    pub validity: Duration,
    /// The source's lease.
    pub lease: LeaseRef,
}

/// Makes the target the owner of the Spot and all its members in one step (STORE-93). Answers the row.
///
/// Fails with NotFound, Conflict, LeaseLost, GenerationExhausted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CommitAggregate {
    /// The Spot.
    pub spot: SpotId,
    /// The aggregate move.
    pub aggregate: AggregateId,
    /// The Spot's generation at prepare.
    pub generation: AggregateGeneration,
    /// The move.
    pub relocation: RelocationId,
    /// The prepared attempt.
    pub attempt: u32,
    /// The row's version.
    pub version: StoreVersion,
    /// The present owner.
    pub source: OwnerFence,
    /// Digest of the root chunk.
    pub root: Sha256Digest,
    /// Participants.
    pub count: u64,
    /// Digest of the whole inventory.
    pub digest: Sha256Digest,
    /// The target's lease.
    pub lease: LeaseRef,
}

/// Aborts a prepared aggregate move (STORE-94); otherwise as [`AbortRelocation`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AbortAggregate {
    /// The Spot.
    pub spot: SpotId,
    /// The move.
    pub relocation: RelocationId,
    /// The row's version.
    pub version: StoreVersion,
    /// Lease of the source or the marked target.
    pub lease: LeaseRef,
}

/// Makes the target the owner of a PerActor Spot, not of its members (STORE-95). Answers the row.
///
/// Fails with NotFound, Conflict, LeaseLost, GenerationExhausted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CommitSpotAuthority {
    /// The Spot.
    pub spot: SpotId,
    /// The move.
    pub relocation: RelocationId,
    /// The row's version.
    pub version: StoreVersion,
    /// The present owner.
    pub source: OwnerFence,
    /// The target's lease.
    pub lease: LeaseRef,
}
