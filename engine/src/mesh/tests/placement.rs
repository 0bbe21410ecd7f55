//! NODE-50..53, NODE-56.

use std::collections::BTreeSet;

use super::*;
use crate::mesh::placement::draw_by_weight;
use crate::mesh::{Choice, ListedNode, Listing, choose};
use crate::model::{LeaseGeneration, LeaseRef, ObjectKind, OwnerId, RelocationPolicy, SpotKind, StableType};
use crate::store::TypeCapability;

const ACTOR: ObjectKind = ObjectKind::Actor;
const USER: ObjectKind = ObjectKind::Spot(SpotKind::User);

fn stable_type() -> StableType {
    StableType::new("player").unwrap()
}

fn server(name: &str, weight: i64, change: impl FnOnce(&mut Descriptor)) -> Descriptor {
    let mut found = descriptor(name, 1);
    found.placement_weight = Weight::new(weight).unwrap();
    found.capabilities = [ACTOR, USER]
        .into_iter()
        .map(|kind| TypeCapability {
            kind,
            stable_type: stable_type(),
            policy: RelocationPolicy::DisableRelocation,
            limit: 0,
            count: 0,
        })
        .collect();
    change(&mut found);
    found
}

fn lease() -> LeaseRef {
    let owner = OwnerId::new(1).unwrap();
    LeaseRef { owner, generation: LeaseGeneration::FIRST }
}

fn listing(descriptors: Vec<Descriptor>) -> Listing {
    let node = |descriptor: Descriptor| {
        (descriptor.rid.clone(), ListedNode { descriptor: Arc::new(descriptor), lease: lease() })
    };
    Listing { nodes: descriptors.into_iter().map(node).collect() }
}

/// The name chosen, or what was said instead.
fn chosen(listing: &Listing, kind: ObjectKind, draw: u64) -> String {
    name(choose(listing, kind, &stable_type(), |_, _| true, None, &BTreeSet::new(), draw))
}

fn name(choice: Choice<'_>) -> String {
    match choice {
        Choice::Node(node) => node.descriptor.rid.to_string(),
        Choice::NobodyHasType => "nobody has the type".to_owned(),
        Choice::NobodyFits => "nobody fits".to_owned(),
    }
}

#[test]
fn node_t12_capacity_applies_before_weight() {
    let heavy_and_full = server("full", 10_000, |d| (d.actors, d.actor_limit) = (5, 5));
    let light = server("light", 1, |d| (d.actors, d.actor_limit) = (4, 5));
    let nodes = listing(vec![heavy_and_full, light]);
    for draw in [0, u64::MAX / 2, u64::MAX] {
        assert_eq!(chosen(&nodes, ACTOR, draw), "light");
    }
    // The Actor limit says nothing about Spots.
    assert_eq!(chosen(&nodes, USER, 0), "full");
}

#[test]
fn weight_zero_takes_no_new_placement() {
    let nodes = listing(vec![server("zero", 0, |_| ()), server("some", 1, |_| ())]);
    for draw in [0, u64::MAX / 2, u64::MAX] {
        assert_eq!(chosen(&nodes, ACTOR, draw), "some");
    }
    assert_eq!(chosen(&listing(vec![server("zero", 0, |_| ())]), ACTOR, 0), "nobody fits");
}

#[test]
fn node_t33_candidates_that_are_all_full_fit_nobody() {
    let full: [fn(&mut Descriptor); 4] = [
        |d| (d.spots, d.spot_limit) = (7, 7),
        |d| (d.capabilities[1].count, d.capabilities[1].limit) = (3, 3),
        |d| d.pending_activations = d.pending_activation_limit,
        // Over the limit, as a projection may be.
        |d| (d.spots, d.spot_limit) = (9, 7),
    ];
    let nodes = listing(
        full.into_iter().enumerate().map(|(at, full)| server(&format!("n{at}"), 100, full)).collect(),
    );
    assert_eq!(chosen(&nodes, USER, 0), "nobody fits");
    // One slot free is enough, and 0 is no limit.
    assert_eq!(chosen(&listing(vec![server("a", 1, |d| (d.spots, d.spot_limit) = (6, 7))]), USER, 0), "a");
    assert_eq!(chosen(&listing(vec![server("a", 1, |d| d.spots = u32::MAX)]), USER, 0), "a");
}

#[test]
fn the_filters_come_in_the_order_of_node_50() {
    // Only a serving Object Server's registration counts for the type (NODE-56, CREATE-18).
    for state in [HostState::Preparing, HostState::Relocating, HostState::Relocated, HostState::Draining] {
        let nodes = listing(vec![server("a", 100, |d| d.host_state = state)]);
        assert_eq!(chosen(&nodes, ACTOR, 0), "nobody has the type");
    }
    let nodes = listing(vec![server("a", 100, |d| d.capabilities.truncate(1))]);
    assert_eq!(chosen(&nodes, USER, 0), "nobody has the type", "the kind is part of the registration");
    assert_eq!(chosen(&Listing::default(), ACTOR, 0), "nobody has the type");
    // Unreachable and refused nodes still register the type.
    let nodes = listing(vec![server("a", 100, |_| ()), server("b", 100, |_| ())]);
    let none = BTreeSet::new();
    let pick = |ready: fn(&Rid, LifecycleGeneration) -> bool, own: Option<&Rid>, excluded: &BTreeSet<_>| {
        name(choose(&nodes, ACTOR, &stable_type(), ready, own, excluded, 0))
    };
    assert_eq!(pick(|_, _| false, None, &none), "nobody fits");
    assert_eq!(pick(|_, _| false, Some(&rid("b")), &none), "b", "oneself needs no connection (NODE-53)");
    assert_eq!(pick(|name, _| *name == rid("b"), None, &none), "b");
    assert_eq!(pick(|_, lifecycle| lifecycle == life(2), None, &none), "nobody fits", "another lifecycle");
    assert_eq!(pick(|_, _| true, None, &BTreeSet::from([(rid("a"), life(1))])), "b");
    assert_eq!(pick(|_, _| true, None, &BTreeSet::from([(rid("a"), life(2))])), "a", "that lifecycle only");
    let both = BTreeSet::from([(rid("a"), life(1)), (rid("b"), life(1))]);
    assert_eq!(pick(|_, _| true, None, &both), "nobody fits");
}

#[test]
fn node_t33_weights_select_in_proportion_over_a_sum_beyond_32_bits() {
    let weights: [(u64, char); 3] = [(1 << 40, 'a'), (3 << 40, 'b'), (4 << 40, 'c')];
    let mut counts = BTreeMap::new();
    let rounds = 8_000u64;
    for round in 0..rounds {
        // Draws spread evenly over all 64 bits.
        let draw = round * (u64::MAX / rounds) + 12_345;
        *counts.entry(draw_by_weight(&weights, draw).unwrap()).or_insert(0u64) += 1;
    }
    assert_eq!(counts, BTreeMap::from([('a', 1_000), ('b', 3_000), ('c', 4_000)]));
    assert_eq!(draw_by_weight(&weights, 0), Some('a'));
    assert_eq!(draw_by_weight(&weights, u64::MAX), Some('c'));
    assert_eq!(draw_by_weight::<char>(&[], 5), None);
    assert_eq!(draw_by_weight(&[(0, 'a')], 5), None);
}

#[test]
fn node_t33_a_mesh_whose_weights_sum_beyond_32_bits_is_chosen_from_evenly() {
    // 440,000 nodes of weight 10,000: 4.4 * 10^9. They share one descriptor; the listing's key tells them apart.
    let descriptor = Arc::new(server("shared", 10_000, |_| ()));
    let count = 440_000u32;
    assert!(u64::from(count) * 10_000 > 1 << 32);
    let node = ListedNode { descriptor, lease: lease() };
    let key = |at: u32| Rid::new(at.to_be_bytes()).unwrap();
    let nodes = Listing { nodes: (0..count).map(|at| (key(at), node.clone())).collect() };
    let address = |at: u32| std::ptr::from_ref(&nodes.nodes[&key(at)]);
    for (draw, expected) in [(0, 0), (1 << 63, count / 2), (3 << 62, count / 4 * 3), (u64::MAX, count - 1)] {
        let none = BTreeSet::new();
        let choice = choose(&nodes, ACTOR, &stable_type(), |_, _| true, None, &none, draw);
        let Choice::Node(found) = choice else { panic!("{choice:?}") };
        assert_eq!(std::ptr::from_ref(found), address(expected), "draw {draw:#x}");
    }
}
