//! Reads, listings, scans and sweep (STORE-56..59, STORE-109..111).

use serde::{Deserialize, Serialize};

use crate::model::{LeaseRef, MeshName, ObjectKey, ObjectKind, OperationIdentity, SpotId, StableType};
use crate::store::descriptor::PageToken;

/// Reads one key (STORE-56).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReadAuthority {
    /// The object.
    pub key: ObjectKey,
}

/// Reads a key and an operation's terminal record in one observation (STORE-57). Fails with DataLost.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReadCreation {
    /// The object.
    pub key: ObjectKey,
    /// The operation.
    pub operation: OperationIdentity,
}

/// Reads a terminal record (STORE-58). Fails with NotFound, also past its retention, and DataLost.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReadTerminal {
    /// The operation.
    pub operation: OperationIdentity,
}

/// Lists rows of one kind (STORE-59). Fails with ScanExpired.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ListAuthorities {
    /// The kind.
    pub kind: ObjectKind,
    /// Only this type.
    pub stable_type: Option<StableType>,
    /// Only owners in this Mesh.
    pub mesh: Option<MeshName>,
    /// Only members of this Spot.
    pub spot: Option<SpotId>,
    /// Where to go on.
    pub token: Option<PageToken>,
    /// Rows at most, 1..=1000.
    pub limit: u32,
}

/// Creating rows whose target's lease is dead or lifecycle gone (STORE-109). Fails with ScanExpired.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ScanStaleCreating {
    /// Where to go on.
    pub token: Option<PageToken>,
    /// Rows at most, 1..=1000.
    pub limit: u32,
}

/// Closing rows whose owner's lease is dead or lifecycle gone (STORE-109). Fails with ScanExpired.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ScanStaleClosing {
    /// Where to go on.
    pub token: Option<PageToken>,
    /// Rows at most, 1..=1000.
    pub limit: u32,
}

/// Which rows of a host a scan shows (STORE-110).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OwnRowFilter {
    /// Creating rows the host is the target of.
    Creating,
    /// Ready rows it owns, with or without a mark.
    Ready,
    /// Rows whose relocation mark names it as target.
    MarkedTarget,
}

/// Rows of one host (STORE-110). Fails with ScanExpired.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ScanOwnRows {
    /// The host's lease.
    pub lease: LeaseRef,
    /// Which rows.
    pub filter: OwnRowFilter,
    /// Where to go on.
    pub token: Option<PageToken>,
    /// Rows at most, 1..=1000.
    pub limit: u32,
}

/// Deletes what is unlinked and past its retention (STORE-111). Answers how many records went.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sweep {
    /// Records at most, 1..=1000.
    pub limit: u32,
}
