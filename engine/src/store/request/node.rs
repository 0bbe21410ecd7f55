//! Node claims and descriptors (STORE-50..54).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::{LeaseRef, LifecycleGeneration, MeshName, ObjectRole, Rid, SpotId};
use crate::store::descriptor::{Descriptor, PageToken};
use crate::store::record::SpotType;

/// Limits of a node, fixed for its lifecycle; 0 is unlimited, up to 2^31−1 (STORE-16).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeLimits {
    /// Actors.
    pub actors: u32,
    /// User and Instance Spots.
    pub spots: u32,
    /// Spots of each type; a type not named here is unlimited.
    pub types: BTreeMap<SpotType, u32>,
}

/// Claims (MeshName, RID) and the Entry Spot id, hidden until published (STORE-50).
///
/// Takes over from a claim whose lease is dead, fencing that lease. Answers the claim's version.
/// Fails with Conflict(RidInUse, EntrySpotIdInUse), LeaseLost.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClaimNode {
    /// The RouteMesh.
    pub mesh: MeshName,
    /// The node.
    pub rid: Rid,
    /// Its lifecycle, the identity of the claim.
    pub lifecycle: LifecycleGeneration,
    /// What it is for objects.
    pub role: ObjectRole,
    /// Its limits.
    pub limits: NodeLimits,
    /// Entry Spot of an Object Server; `None` for other roles.
    pub entry_spot_id: Option<SpotId>,
    /// The host's lease.
    pub lease: LeaseRef,
}

/// Makes descriptor and Entry Spot visible (STORE-51). Answers the row's version.
///
/// Fails with NotFound (no claim), Conflict(LifecycleMismatch), LeaseLost, InvalidArgument.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PublishDescriptor {
    /// The descriptor; it names mesh, RID, lifecycle and revision, and agrees with the claim.
    pub descriptor: Arc<Descriptor>,
    /// The host's lease.
    pub lease: LeaseRef,
}

/// Replaces a published descriptor by one of a higher revision (STORE-52); a revision not higher is ignored.
///
/// Fails with NotFound, Conflict(LifecycleMismatch, ImmutableField), LeaseLost.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UpdateDescriptor {
    /// The descriptor.
    pub descriptor: Arc<Descriptor>,
    /// The host's lease.
    pub lease: LeaseRef,
}

/// Deletes descriptor, claim and Entry Spot identity together (STORE-53). Answers whether there was one.
///
/// Fails with Conflict(LifecycleMismatch) where another lifecycle or lease holds the claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RemoveDescriptor {
    /// The RouteMesh.
    pub mesh: MeshName,
    /// The node.
    pub rid: Rid,
    /// The lifecycle that claimed it.
    pub lifecycle: LifecycleGeneration,
    /// The lease it was claimed under.
    pub lease: LeaseRef,
}

/// Lists published descriptors, with lease views (STORE-54). Fails with ScanExpired.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ListDescriptors {
    /// Only this Mesh.
    pub mesh: Option<MeshName>,
    /// Where to go on.
    pub token: Option<PageToken>,
    /// Entries at most, 1..=1000.
    pub limit: u32,
}
