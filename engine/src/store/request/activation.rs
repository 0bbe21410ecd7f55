//! Activation records of Instance Spots (STORE-104..107, STORE-115).

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::model::{
    ActivationId, AuthorityOwnerGeneration, LeaseRef, ObjectGeneration, Sha256Digest, SpotId,
};

/// Stores an immutable activation envelope, unlinked until a Reserve names it (STORE-104).
///
/// Fails with Conflict(DifferentContent), InvalidArgument.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PutActivation {
    /// Its identity.
    pub activation: ActivationId,
    /// At most 16 MiB.
    pub envelope: Bytes,
    /// Digest of the envelope.
    pub sha256: Sha256Digest,
    /// How long it stays while unlinked.
    pub retention: Duration,
}

/// Reads an activation record (STORE-105). Fails with NotFound, DataLost.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GetActivation {
    /// Its identity.
    pub activation: ActivationId,
}

/// Records inbox sequence or completion cursor; values only grow (STORE-106). Fails with Conflict, LeaseLost.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RecordActivationProgress {
    /// The Instance Spot that links the record.
    pub spot: SpotId,
    /// Its incarnation.
    pub object_generation: ObjectGeneration,
    /// Its owner generation.
    pub owner_generation: AuthorityOwnerGeneration,
    /// The record.
    pub activation: ActivationId,
    /// Inbox sequence of the first message.
    pub inbox_sequence: Option<u64>,
    /// Up to which inbox sequence handlers have completed.
    pub cursor: Option<u64>,
    /// The owner's lease.
    pub lease: LeaseRef,
}

/// Unlinks and deletes a record whose first message is completed (STORE-107). Fails with Conflict, LeaseLost.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClearActivation {
    /// The Instance Spot that links the record.
    pub spot: SpotId,
    /// Its incarnation.
    pub object_generation: ObjectGeneration,
    /// Its owner generation.
    pub owner_generation: AuthorityOwnerGeneration,
    /// The record.
    pub activation: ActivationId,
    /// The owner's lease.
    pub lease: LeaseRef,
}
