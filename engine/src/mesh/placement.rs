//! Choosing the node for a new object (spec 02 §6, CREATE-16). Pure.

use std::collections::BTreeSet;

use super::discovery::{ListedNode, Listing};
use crate::model::{HostState, LifecycleGeneration, ObjectKind, ObjectRole, Rid, SpotKind, StableType};
use crate::store::{Descriptor, TypeCapability};

/// Result of a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice<'a> {
    /// Reserve here.
    Node(&'a ListedNode),
    /// No serving node registers the type at all: NotFound (NODE-56, CREATE-18).
    NobodyHasType,
    /// Nodes register the type, but none can be chosen: Unavailable.
    NobodyFits,
}

/// Chooses a node for one new object of `kind` and `stable_type` by the filters of NODE-50 in their order,
/// then by weight with `draw`, 64 random bits.
///
/// The listing holds nodes with a live lease only, which is filter 2. `own` is the choosing node, which needs
/// no connection to itself (NODE-53); `excluded` are lifecycles this operation was refused by (NODE-55).
pub(crate) fn choose<'a>(
    listing: &'a Listing,
    kind: ObjectKind,
    stable_type: &StableType,
    is_ready: impl Fn(&Rid, LifecycleGeneration) -> bool,
    own: Option<&Rid>,
    excluded: &BTreeSet<(Rid, LifecycleGeneration)>,
    draw: u64,
) -> Choice<'a> {
    let mut registered = false;
    let mut candidates = Vec::new();
    for (rid, node) in &listing.nodes {
        let descriptor = &*node.descriptor;
        if descriptor.host_state != HostState::Serving || descriptor.role != ObjectRole::Server {
            continue;
        }
        let Some(capability) = descriptor.capability(kind, stable_type) else { continue };
        registered = true;
        let reachable = own == Some(rid) || is_ready(rid, descriptor.lifecycle);
        let refused = excluded.contains(&(rid.clone(), descriptor.lifecycle));
        // Capacity before weight: no weight rescues a full node (NODE-51).
        if reachable && !refused && has_room(descriptor, capability) {
            candidates.push((u64::from(descriptor.placement_weight.get()), node));
        }
    }
    match draw_by_weight(&candidates, draw) {
        Some(node) => Choice::Node(node),
        None if registered => Choice::NobodyFits,
        None => Choice::NobodyHasType,
    }
}

/// Whether the published counts leave room for the object's bundle and for one more activation (NODE-42,
/// NODE-43, NODE-45). A projection: the Store's reservation decides (NODE-44).
fn has_room(descriptor: &Descriptor, capability: &TypeCapability) -> bool {
    let room = |count: u32, limit: u32| limit == 0 || count < limit;
    let bundle = match capability.kind {
        ObjectKind::Actor => room(descriptor.actors, descriptor.actor_limit),
        ObjectKind::Spot(SpotKind::User | SpotKind::Instance) => {
            room(descriptor.spots, descriptor.spot_limit) && room(capability.count, capability.limit)
        }
        // Counts against no limit (NODE-41); nobody places one (NODE-20).
        ObjectKind::Spot(SpotKind::Entry) => true,
    };
    bundle && descriptor.pending_activations < descriptor.pending_activation_limit
}

/// One of the candidates with a positive weight, in proportion to weight (NODE-52).
///
/// `draw` as a fraction of 2^64 picks a point of the sum: no modulo, so no bias beyond `sum / 2^64`.
pub(super) fn draw_by_weight<T: Copy>(candidates: &[(u64, T)], draw: u64) -> Option<T> {
    let sum: u128 = candidates.iter().map(|(weight, _)| u128::from(*weight)).sum();
    // A sum of weights up to 10,000 stays below 2^64 for any listing that fits a memory, so the product fits.
    let mut point = u128::from(draw).saturating_mul(sum) >> 64;
    for (weight, candidate) in candidates {
        let weight = u128::from(*weight);
        if point < weight {
            return Some(*candidate);
        }
        point -= weight;
    }
    None
}
