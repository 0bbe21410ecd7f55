//! Owner lease (STORE-40..43).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::{LeaseRef, OwnerId};

/// Claims the owner lease of a host run (STORE-40). Repeating it for the Active lease returns the same grant.
///
/// Fails with Conflict(Exists) where the OwnerId was used and is no longer Active; GenerationExhausted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AcquireLease {
    /// The host run.
    pub owner: OwnerId,
    /// Life of the lease; above zero.
    pub ttl: Duration,
}

/// Extends the lease to `now + ttl`, never shortens it; works past expiry until fenced (STORE-36, STORE-41).
///
/// Fails with LeaseLost where the lease is not Active.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RenewLease {
    /// The lease.
    pub lease: LeaseRef,
    /// Life from now; above zero.
    pub ttl: Duration,
}

/// Gives a live lease up (STORE-42). Answers whether the lease is Released now; absent or dead is a no-op.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReleaseLease {
    /// The lease.
    pub lease: LeaseRef,
}

/// Reads a lease (STORE-43). Fails with NotFound.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReadLease {
    /// The lease.
    pub lease: LeaseRef,
}
