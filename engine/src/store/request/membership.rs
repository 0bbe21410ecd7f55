//! Membership, close, destroy and the rows of a whole owner (STORE-76..81).

use serde::{Deserialize, Serialize};

use crate::model::{
    AuthorityOwnerGeneration, LeaseRef, ObjectGeneration, ObjectKey, OperationId, SpotId, StoreVersion,
};

/// Fixes one row at one version.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AuthorityFence {
    /// The object.
    pub key: ObjectKey,
    /// Its incarnation.
    pub object_generation: ObjectGeneration,
    /// Its effective owner generation.
    pub owner_generation: AuthorityOwnerGeneration,
    /// The row's version.
    pub version: StoreVersion,
}

/// Moves an Actor between two Spots of its own node (STORE-76). Answers the row.
///
/// Fails with NotFound (`to`), Conflict, LeaseLost. A join inside one Spot makes no Store call (STORE-82).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ChangeMembership {
    /// The Actor.
    pub fence: AuthorityFence,
    /// Where it is.
    pub from: SpotId,
    /// Where it goes; another Spot.
    pub to: SpotId,
    /// The Join, the identity of the change.
    pub join: OperationId,
    /// The owner's lease.
    pub lease: LeaseRef,
}

/// Marks an object Closing (STORE-77). Answers the row, whose version `FinishClose` needs.
///
/// Fails with NotFound, Conflict(GenerationMismatch, OwnerMismatch, VersionMismatch, Moving, Closing,
/// MembersPresent, StateMismatch), LeaseLost.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BeginClose {
    /// The object.
    pub fence: AuthorityFence,
    /// The close operation.
    pub close: OperationId,
    /// The owner's lease.
    pub lease: LeaseRef,
}

/// Deletes the row of a Closing object and returns its slots (STORE-78). Fails with Conflict, LeaseLost.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FinishClose {
    /// The object at the version `BeginClose` returned.
    pub fence: AuthorityFence,
    /// The close operation.
    pub close: OperationId,
    /// The owner's lease.
    pub lease: LeaseRef,
}

/// Finishes the close of a dead owner, fencing its lease (STORE-79). Fails with Conflict, LeaseLost.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FinishStaleClose {
    /// The object.
    pub key: ObjectKey,
    /// Version of the row as read.
    pub version: StoreVersion,
    /// The caller's own lease.
    pub lease: LeaseRef,
}

/// Removes a batch of the caller's own rows at shutdown (STORE-80). Answers how many remain.
///
/// Fails with LeaseLost where the lease is not Active.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RemoveOwnerRows {
    /// The host's lease.
    pub lease: LeaseRef,
    /// Rows of this batch, 1..=1000.
    pub limit: u32,
}

/// Removes a batch of a dead owner's rows, fencing it: only on an operator's request (STORE-81, STORE-84).
///
/// Answers how many remain. Fails with Conflict(LeaseLive).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RetireOwner {
    /// The dead owner's lease.
    pub lease: LeaseRef,
    /// Rows of this batch, 1..=1000.
    pub limit: u32,
}
