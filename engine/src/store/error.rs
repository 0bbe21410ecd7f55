//! The typed failures of a Store operation (STORE-22).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::record::{AuthorityView, SpotType};

/// Which precondition of an operation was false (table of STORE-22).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ConflictReason {
    /// A row, or the lease of this OwnerId, exists already.
    Exists,
    /// The row is not at the expected StoreVersion.
    VersionMismatch,
    /// The row is not in the needed state.
    StateMismatch,
    /// Another ObjectGeneration, AuthorityOwnerGeneration or AggregateGeneration stands in the row.
    GenerationMismatch,
    /// The row names another owner than the caller or the fence.
    OwnerMismatch,
    /// The target's lease, descriptor, state or types do not allow it to own the object.
    TargetNotEligible,
    /// The row carries another reservation, relocation or activation than the request.
    ReservationMismatch,
    /// This operation ended already: a terminal record of it exists.
    TerminalExists,
    /// The User Spot has members.
    MembersPresent,
    /// The row carries a relocation mark.
    Moving,
    /// The row is being closed by another operation.
    Closing,
    /// A live claim holds this (MeshName, RID).
    RidInUse,
    /// The Entry Spot id is taken.
    EntrySpotIdInUse,
    /// The node's lifecycle or lease is not the one stored.
    LifecycleMismatch,
    /// A part of the descriptor changed that is fixed for the lifecycle (STORE-47).
    ImmutableField,
    /// The identity is known with other content (STORE-25).
    DifferentContent,
    /// The lease that has to be dead is live.
    LeaseLive,
}

/// A limit of a node (STORE-15, STORE-16).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Component {
    /// Actors of the node.
    Actors,
    /// User and Instance Spots of the node.
    Spots,
    /// Spots of one (kind, stable type).
    SpotType(SpotType),
}

/// Why a Store operation did not return its output (STORE-22).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StoreError {
    /// A precondition was false; nothing changed.
    Conflict {
        /// Which one.
        reason: ConflictReason,
        /// The row as it stands, where there is one.
        current: Option<Box<AuthorityView>>,
    },
    /// The addressed record does not exist; nothing changed.
    NotFound,
    /// This limit has no room for the bundle; nothing changed.
    CapacityExceeded(Component),
    /// The caller's own lease is not live (for renew: no longer Active); nothing changed.
    LeaseLost,
    /// A sequence has no further value (STORE-10); nothing changed.
    GenerationExhausted,
    /// Size, range or form of the request, as expected and found; nothing changed.
    InvalidArgument(String),
    /// The request certainly never reached the Store.
    Unavailable,
    /// The request may or may not have been applied; settle it by re-issue (STORE-23, STORE-24).
    Indeterminate,
    /// The page token is no longer valid; start again at page one.
    ScanExpired,
    /// Stored bytes fail their hash.
    DataLost,
    /// A counter would go below zero or a record misses its counterpart; nothing changed.
    Corrupt(String),
}

impl StoreError {
    /// A conflict without a row to show.
    #[must_use]
    pub const fn conflict(reason: ConflictReason) -> Self {
        Self::Conflict { reason, current: None }
    }

    /// Whether the operation certainly changed nothing (column "Applied?" of STORE-22).
    ///
    /// Every failure but [`Self::Indeterminate`] says so.
    #[must_use]
    pub const fn is_certainly_not_applied(&self) -> bool {
        !matches!(self, Self::Indeterminate)
    }

    /// The reason of a conflict.
    #[must_use]
    pub const fn conflict_reason(&self) -> Option<ConflictReason> {
        match self {
            Self::Conflict { reason, .. } => Some(*reason),
            _ => None,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict { reason, current: None } => write!(f, "conflict: {reason:?}"),
            Self::Conflict { reason, current: Some(row) } => {
                write!(f, "conflict: {reason:?}, found {} at version {}", row.key, row.version)
            }
            Self::NotFound => f.write_str("not found"),
            Self::CapacityExceeded(component) => write!(f, "capacity exceeded: {component:?}"),
            Self::LeaseLost => f.write_str("the caller's owner lease is not live"),
            Self::GenerationExhausted => f.write_str("a generation sequence is exhausted"),
            Self::InvalidArgument(what) => write!(f, "invalid argument: {what}"),
            Self::Unavailable => f.write_str("the store was not reached"),
            Self::Indeterminate => f.write_str("unknown whether the request was applied"),
            Self::ScanExpired => f.write_str("page token no longer valid"),
            Self::DataLost => f.write_str("stored bytes fail their hash"),
            Self::Corrupt(what) => write!(f, "corrupt: {what}"),
        }
    }
}

impl std::error::Error for StoreError {}
