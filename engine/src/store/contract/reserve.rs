//! Reservations: one transaction, one winner, exact capacity (STORE-64, STORE-70).

use futures::future::join_all;

use super::fixture::*;
use super::provider::{Capacity, Provider, Slots};
use crate::driver::LocationStoreExt;
use crate::model::{HostState, Weight};
use crate::store::*;

fn slots(active: u64, reserved: u64) -> Slots {
    Slots { active, reserved }
}

/// STORE-T2.
pub async fn reserve_makes_row_and_bundle_visible_together(provider: &impl Provider) {
    let world = World::new(provider);
    let limits = NodeLimits { types: [(spot_type(USER_SPOT), 1)].into(), ..unlimited() };
    let node = world.node("n", limits).await;
    let fence = world.reserve(&spot("zone-1"), USER_SPOT, &node).await;
    let row = world.row(&spot("zone-1")).await;
    assert_eq!(row.reservation_fence().as_ref(), Some(&fence));
    assert_eq!((row.allocation, &row.owner), (Allocation::Reserved, &node.fence));
    assert_eq!(row.bundle.spot, Some(spot_type(USER_SPOT)));
    let types = [(spot_type(USER_SPOT), slots(0, 1))].into();
    let one = Capacity { actors: slots(0, 0), spots: slots(0, 1), types };
    assert_eq!(world.capacity(&node).await, one);

    // The Spot slot fits, the type's slot does not: neither row nor any counter moves.
    let refused = world.reservation(&spot("zone-2"), USER_SPOT, &node).await;
    let source = refused.source;
    let error = world.err(refused).await;
    assert_eq!(error, StoreError::CapacityExceeded(Component::SpotType(spot_type(USER_SPOT))));
    world.assert_missing(&spot("zone-2")).await;
    assert_eq!(world.capacity(&node).await, one);
    // Nor was the content tied to the refused attempt: another one takes it.
    let other = world.node("other", unlimited()).await;
    let retry = Reserve { source, ..world.reservation(&spot("zone-2"), USER_SPOT, &other).await };
    world.ok(retry).await;
    provider.check().await;
}

/// STORE-T3.
pub async fn concurrent_reserves_of_one_key_have_one_winner(provider: &impl Provider) {
    let world = World::new(provider);
    let nodes = [world.node("a", unlimited()).await, world.node("b", unlimited()).await];
    let mut requests = Vec::new();
    for n in 0..16 {
        requests.push(world.reservation(&actor("hero"), ACTOR, &nodes[n % 2]).await);
    }
    let calls = requests.iter().map(|request| world.store.execute(request.clone()));
    let results = join_all(calls).await;
    let won: Vec<_> = results.iter().flatten().collect();
    assert_eq!(won.len(), 1, "found {results:?}");
    for lost in results.iter().filter_map(|result| result.as_ref().err()) {
        assert_eq!(lost.conflict_reason(), Some(ConflictReason::Exists), "found {lost:?}");
    }
    let mut reserved = 0;
    for node in &nodes {
        reserved += world.actors(node).await.1;
    }
    assert_eq!(reserved, 1);
    let row = world.row(&actor("hero")).await;
    assert_eq!(row.reservation_fence().as_ref(), Some(&*won[0].value));
    provider.check().await;
}

/// STORE-T4.
pub async fn concurrent_reserves_admit_exactly_the_limit(provider: &impl Provider) {
    let world = World::new(provider);
    let limits = NodeLimits { actors: 5, spots: 7, types: [(spot_type(USER_SPOT), 3)].into() };
    let limited = world.node("limited", limits).await;
    let open = world.node("open", unlimited()).await;
    let race = async |of, prefix: &str, node: &Node, count: usize| {
        let mut requests = Vec::new();
        for n in 0..count {
            let id = format!("{prefix}-{n}");
            let key = if of == ACTOR { actor(&id) } else { spot(&id) };
            requests.push(world.reservation(&key, of, node).await);
        }
        let results = join_all(requests.into_iter().map(|request| world.store.execute(request))).await;
        let refused: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).cloned().collect();
        (results.len() - refused.len(), refused)
    };
    let (won, refused) = race(ACTOR, "hero", &limited, 12).await;
    assert_eq!(won, 5);
    assert!(refused.iter().all(|error| *error == StoreError::CapacityExceeded(Component::Actors)));
    let (won, refused) = race(USER_SPOT, "zone", &limited, 12).await;
    assert_eq!(won, 3, "the type's own limit");
    let by_type = StoreError::CapacityExceeded(Component::SpotType(spot_type(USER_SPOT)));
    assert!(refused.iter().all(|error| *error == by_type), "found {refused:?}");
    let (won, refused) = race(INSTANCE_SPOT, "match", &limited, 12).await;
    assert_eq!(won, 4, "what the Spot limit leaves beside three User Spots");
    assert!(refused.iter().all(|error| *error == StoreError::CapacityExceeded(Component::Spots)));
    let types = [(spot_type(USER_SPOT), slots(0, 3)), (spot_type(INSTANCE_SPOT), slots(0, 4))].into();
    let full = Capacity { actors: slots(0, 5), spots: slots(0, 7), types };
    assert_eq!(world.capacity(&limited).await, full);
    let (won, _) = race(ACTOR, "free", &open, 40).await;
    assert_eq!(won, 40, "limit 0 refuses nobody");
    provider.check().await;
}

/// STORE-T9.
pub async fn weight_and_drain_after_reserve_do_not_stop_the_commit(provider: &impl Provider) {
    let world = World::new(provider);
    let mut node = world.node("n", unlimited()).await;
    let first = world.reserve(&actor("first"), ACTOR, &node).await;
    let second = world.reserve(&actor("second"), ACTOR, &node).await;
    world.update(&mut node, |descriptor| descriptor.placement_weight = Weight::new(0).expect("legal")).await;
    world.ok(commit(&first, &node)).await;
    // Weight steers the choice of the chooser, not the store.
    world.reserve(&actor("third"), ACTOR, &node).await;
    world.update(&mut node, |descriptor| descriptor.host_state = HostState::Draining).await;
    world.ok(commit(&second, &node)).await;
    let late = world.reservation(&actor("late"), ACTOR, &node).await;
    world.conflict(late, ConflictReason::TargetNotEligible).await;
    world.assert_missing(&actor("late")).await;
    assert_eq!(world.actors(&node).await, (2, 1));
    provider.check().await;
}

/// What else makes a target ineligible (STORE-64): every one of its conditions alone.
pub async fn reserve_refuses_a_target_that_is_not_what_it_was_taken_for(provider: &impl Provider) {
    let world = World::new(provider);
    let node = world.node("n", unlimited()).await;
    let client = world.lease().await;
    let valid = world.reservation(&actor("hero"), ACTOR, &node).await;
    let refused = |change: fn(&mut Reserve)| {
        let mut request = valid.clone();
        change(&mut request);
        request
    };
    let reason = ConflictReason::TargetNotEligible;
    world.conflict(refused(|r| r.stable_type = stable("unknown")), reason).await;
    world
        .conflict(refused(|r| r.target.rid = crate::model::Rid::new("nobody").expect("legal")), reason)
        .await;
    let lifecycle = world.lifecycle();
    let mut other = valid.clone();
    other.target.lifecycle = lifecycle;
    world.conflict(other, reason).await;
    let mut foreign = valid.clone();
    foreign.target.lease = client;
    world.conflict(foreign, reason).await;
    // Claimed but not published.
    let claim = world.claim("hidden", client, unlimited());
    world.ok(claim.clone()).await;
    world.conflict(Reserve { target: fence(&claim), ..valid.clone() }, reason).await;
    // A type is provided per kind.
    let mut other_kind = world.reservation(&spot("zone"), USER_SPOT, &node).await;
    other_kind.stable_type = stable(ACTOR.1);
    world.conflict(other_kind, reason).await;
    // A dead target, seen by a live coordinator.
    provider.advance(TTL).await;
    let coordinator = world.lease().await;
    world.conflict(Reserve { lease: coordinator, ..valid.clone() }, reason).await;
    assert_eq!(world.err(valid.clone()).await, StoreError::LeaseLost);
    world.renew(node.fence.lease).await;
    world.ok(valid).await;
    provider.check().await;
}

/// Content is checked before anything is reserved (STORE-64), and belongs to one reservation.
pub async fn reserve_needs_its_content(provider: &impl Provider) {
    let world = World::new(provider);
    let node = world.node("n", unlimited()).await;
    let valid = world.reservation(&actor("hero"), ACTOR, &node).await;
    let CreationSource::Content(content, sha256, size) = valid.source else { panic!("{valid:?}") };
    let absent = crate::model::ContentId::new(world.bits()).expect("not zero");
    let absent = Reserve { source: CreationSource::Content(absent, sha256, size), ..valid.clone() };
    assert_eq!(world.err(absent).await, StoreError::NotFound);
    let other = crate::model::Sha256Digest::of(b"other");
    let other = Reserve { source: CreationSource::Content(content, other, size), ..valid.clone() };
    world.conflict(other, ConflictReason::DifferentContent).await;
    let longer = Reserve { source: CreationSource::Content(content, sha256, size + 1), ..valid.clone() };
    world.conflict(longer, ConflictReason::DifferentContent).await;
    world.ok(valid.clone()).await;
    let second = Reserve { source: valid.source, ..world.reservation(&actor("second"), ACTOR, &node).await };
    world.conflict(second, ConflictReason::ReservationMismatch).await;
    assert_eq!(world.actors(&node).await, (0, 1));
    provider.check().await;
}
