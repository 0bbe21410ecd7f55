//! Creation (STORE-62..69).

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::model::{
    ContentId, ExecutionMode, LeaseRef, NodeFence, ObjectKey, ObjectKind, OperationIdentity, ReservationId,
    Sha256Digest, SpotId, StableType, StoreVersion,
};
use crate::store::record::{Bundle, CreationSource, ReservationFence, TerminalEnvelope};

/// Stores immutable creation content, unlinked until a Reserve names it (STORE-62).
///
/// Fails with Conflict(DifferentContent), InvalidArgument. A repeat may lengthen the retention.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PutCreationContent {
    /// Its identity.
    pub content: ContentId,
    /// At most 1 MiB.
    pub bytes: Bytes,
    /// Digest of the bytes.
    pub sha256: Sha256Digest,
    /// How long it stays while unlinked.
    pub retention: Duration,
}

/// Reads creation content (STORE-63). Fails with NotFound, DataLost.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GetCreationContent {
    /// Its identity.
    pub content: ContentId,
}

/// Makes a Creating row and reserves its bundle at the target (STORE-64). Answers the fence.
///
/// Fails with Conflict(Exists, TargetNotEligible, TerminalExists, DifferentContent), CapacityExceeded,
/// NotFound (content), LeaseLost, GenerationExhausted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reserve {
    /// The object.
    pub key: ObjectKey,
    /// Its kind; not an Entry Spot.
    pub kind: ObjectKind,
    /// Its type.
    pub stable_type: StableType,
    /// Execution mode, exactly for a User Spot.
    pub execution_mode: Option<ExecutionMode>,
    /// The chosen owner.
    pub target: NodeFence,
    /// The attempt, the identity of this request.
    pub reservation: ReservationId,
    /// The operation it serves.
    pub operation: OperationIdentity,
    /// Content of an Actor or User Spot, activation record of an Instance Spot.
    pub source: CreationSource,
    /// Time left of the operation; the Store turns it into `deadline_at` (STORE-73).
    pub remaining: Duration,
    /// Lease of the caller.
    pub lease: LeaseRef,
}

impl Reserve {
    /// The slots the object takes (STORE-15).
    #[must_use]
    pub fn bundle(&self) -> Bundle {
        Bundle::of(self.kind, &self.stable_type)
    }
}

/// Ends a reservation in a Ready object (STORE-65). Answers the row. Fails with Conflict, LeaseLost.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CommitCreated {
    /// The reservation.
    pub fence: ReservationFence,
    /// The target's lease.
    pub lease: LeaseRef,
    /// The answer to keep; absent exactly for an Instance Spot.
    pub envelope: Option<TerminalEnvelope>,
    /// The target's Entry Spot, exactly for an Actor.
    pub entry_spot_id: Option<SpotId>,
}

/// Ends a reservation the application declined (STORE-66). Fails with Conflict, LeaseLost.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CommitRejected {
    /// The reservation.
    pub fence: ReservationFence,
    /// The target's lease.
    pub lease: LeaseRef,
    /// The answer to keep.
    pub envelope: TerminalEnvelope,
}

/// Ends a reservation whose application code failed (STORE-67). Fails with Conflict, LeaseLost.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AbortFailed {
    /// The reservation.
    pub fence: ReservationFence,
    /// The target's lease.
    pub lease: LeaseRef,
    /// The answer to keep; absent exactly for an Instance Spot.
    pub envelope: Option<TerminalEnvelope>,
}

/// Withdraws a reservation whose factory certainly never started (STORE-68). Fails with Conflict, LeaseLost.
///
/// Answers success as well where the reservation's row is gone: absence is what it asks for (STORE-25).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AbortNotExecuted {
    /// The reservation.
    pub fence: ReservationFence,
    /// Lease of the coordinator or the target.
    pub lease: LeaseRef,
}

/// Cleans a reservation whose target is gone (STORE-69). Any host may; no terminal record is written.
///
/// Fails with Conflict(LeaseLive, VersionMismatch, StateMismatch), LeaseLost, Corrupt.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AbortRecovery {
    /// The object.
    pub key: ObjectKey,
    /// Version of the row as read.
    pub version: StoreVersion,
    /// The caller's own lease.
    pub lease: LeaseRef,
}
