//! Where attempts go: capacity, weight, draining and the pending-activation limit (spec 04 §2, spec 02 §6).

mod scene;

use std::time::Duration;

use bytes::Bytes;
use scene::{Call, Policy, Scene, TIMEOUT, client, server};
use spotmesh::config::{HostConfig, NodeConfig, TypeRegistration};
use spotmesh::input::{CreateMode, TurnEnd};
use spotmesh::model::{ErrorKind, MeshName, ObjectKind, ObjectRole, RelocationPolicy, StableType};
use spotmesh::output::Answer;
use spotmesh::store::{StoreError, StoreRequest};

const C1: usize = 0;
const C2: usize = 1;
const A: usize = 2;
const B: usize = 3;

const SECOND: Duration = Duration::from_secs(1);

fn special(scene: &mut Scene, host: usize, id: &str, request: &str) -> Call {
    let request = Bytes::copy_from_slice(request.as_bytes());
    scene.create_as(host, id, CreateMode::GetOrCreate, "special", request, TIMEOUT)
}

fn owner(scene: &mut Scene, id: &str) -> spotmesh::model::Rid {
    scene.actor(id).expect("the object exists").owner.rid
}

#[test]
fn create_t13_capacity_comes_before_weight() {
    // `a` would be drawn 10,000 times as often as `b`, but is full.
    let full = server("a").types(&["counter", "special"]).actor_limit(1).weight(10_000);
    let mut scene = Scene::new(vec![client("c1"), client("c2"), full, server("b").weight(1)]);
    let call = special(&mut scene, C1, "s", "accept");
    scene.expect_created(call);
    // At once, on a listing that does not know yet: the Store refuses and the operation goes on (CREATE-18).
    let stale = scene.create(C1, "x0", "accept");
    scene.expect_created(stale);
    let refused = scene
        .store_uses(C1, "reserve")
        .iter()
        .filter(|it| matches!(it.result, Some(Err(StoreError::CapacityExceeded(_)))))
        .count();
    assert_eq!(refused, 1);
    assert_eq!(owner(&mut scene, "x0"), scene.node(B).rid);
    // However often weight speaks for the full node.
    for n in 1..20 {
        scene.advance(SECOND);
        let id = format!("x{n}");
        let call = scene.create(C1, &id, "accept");
        scene.expect_created(call);
        assert_eq!(owner(&mut scene, &id), scene.node(B).rid);
    }
    // A listing that shows the node full spares the Store the question.
    let refused = |scene: &Scene| {
        scene.store_uses(C1, "reserve").iter().filter(|it| matches!(it.result, Some(Err(_)))).count()
    };
    let before = refused(&scene);
    scene.advance(SECOND * 2);
    let call = scene.create(C1, "x20", "accept");
    scene.expect_created(call);
    assert_eq!(refused(&scene), before);
    assert_eq!(scene.used(A), (1, 0));
    assert!(scene.orders(C1, A) == 1, "nothing but the first creation was sent to the full node");
}

#[test]
fn create_t13_exhausted_candidates_end_in_unavailable() {
    let mut scene =
        Scene::new(vec![client("c1"), client("c2"), server("a").actor_limit(1), server("b").actor_limit(1)]);
    let calls: Vec<_> = ["x", "y", "z"].map(|id| scene.create(C1, id, "accept")).into();
    scene.expect_created(calls[0]);
    scene.expect_created(calls[1]);
    scene.expect_failed(calls[2], ErrorKind::Unavailable);
    assert_ne!(owner(&mut scene, "x"), owner(&mut scene, "y"));
    assert_eq!((scene.used(A), scene.used(B)), ((1, 0), (1, 0)));
    // The same once the listing shows it.
    scene.advance(SECOND * 7);
    let call = scene.create(C2, "z", "accept");
    scene.expect_failed(call, ErrorKind::Unavailable);
    // GetOrCreate of what is there looks at no capacity (CREATE-19).
    let call = scene.create(C2, "x", "accept");
    scene.expect_existing(call);
}

#[test]
fn create_t13_a_race_on_the_last_slot_admits_one() {
    for c1_first in [true, false] {
        let mut scene = Scene::new(vec![client("c1"), client("c2"), server("a").actor_limit(1)]);
        for host in [C1, C2] {
            scene.rule(host, "reserve", Policy::Hold, 1);
        }
        let calls = [scene.create(C1, "x", "accept"), scene.create(C2, "y", "accept")];
        assert_eq!(scene.held_calls(), [(C1, "reserve"), (C2, "reserve")]);
        let order = if c1_first { [C1, C2] } else { [C2, C1] };
        for host in order {
            scene.release_store(host, "reserve");
        }
        scene.expect_created(calls[order[0]]);
        scene.expect_failed(calls[order[1]], ErrorKind::Unavailable);
        assert_eq!(scene.used(A), (1, 0));
        assert_eq!(scene.factories("x").len() + scene.factories("y").len(), 1);
    }
}

#[test]
fn create_t14_weight_zero_after_reserve_lets_the_attempt_finish() {
    let mut scene = Scene::new(vec![client("c1"), client("c2"), server("a"), server("b").weight(0)]);
    let call = scene.create(C1, "x", "hold");
    scene.set_weight(A, 0);
    scene.set_weight(B, 100);
    scene.advance(SECOND * 2);
    scene.expect_no_answer(call);
    scene.end_turn("x", TurnEnd::Accepted { reply: None });
    scene.expect_created(call);
    // The object is not disturbed (CREATE-17), and new ones go elsewhere.
    let asked = scene.request(C2, "x", "hello");
    scene.expect_replied(asked, "re:hello");
    for n in 0..10 {
        let id = format!("y{n}");
        let call = scene.create(C1, &id, "accept");
        scene.expect_created(call);
        assert_eq!(owner(&mut scene, &id), scene.node(B).rid);
    }
}

#[test]
fn create_t14_weight_zero_between_reserve_and_order_lets_the_attempt_finish() {
    let mut scene = Scene::new(vec![client("c1"), client("c2"), server("a")]);
    scene.rule(C1, "reserve", Policy::HoldAnswer, 1);
    let call = scene.create(C1, "x", "accept");
    scene.set_weight(A, 0);
    scene.advance(SECOND * 2);
    scene.release_store(C1, "reserve");
    scene.expect_created(call);
    let call = scene.create(C1, "y", "accept");
    scene.expect_failed(call, ErrorKind::Unavailable);
}

#[test]
fn create_t14_a_draining_node_finishes_what_was_reserved_and_gets_no_more() {
    for before_order in [false, true] {
        let mut scene = Scene::new(vec![client("c1"), client("c2"), server("a")]);
        if before_order {
            scene.rule(C1, "reserve", Policy::HoldAnswer, 1);
        }
        let call = scene.create(C1, "x", "hold");
        // Something keeps the node from ending at once.
        let busy = scene.create(C2, "busy", "hold");
        let stopping = scene.shutdown(A, SECOND * 20);
        scene.advance(SECOND * 2);
        if before_order {
            scene.release_store(C1, "reserve");
        }
        let reserves = scene.all_store_uses("reserve").len();
        let refused = scene.create(C2, "y", "accept");
        scene.advance(SECOND);
        assert!(matches!(scene.expect_answer(refused), Answer::Failed(_)), "nobody serves");
        assert_eq!(scene.all_store_uses("reserve").len(), reserves, "a draining node is not even tried");
        assert_eq!(scene.factories("x").len(), 1, "before_order: {before_order}");
        scene.end_turn("x", TurnEnd::Accepted { reply: None });
        scene.expect_created(call);
        scene.end_turn("busy", TurnEnd::Accepted { reply: None });
        scene.expect_created(busy);
        scene.advance(SECOND * 21);
        assert!(matches!(scene.expect_answer(stopping), Answer::ShutDown { .. }));
        assert!(scene.factories("y").is_empty());
    }
}

/// The Store refuses a node that began to drain, whatever the listing said.
#[test]
fn create_t14_a_stale_listing_does_not_bring_a_draining_node_an_attempt() {
    let mut scene = Scene::new(vec![client("c1"), client("c2"), server("a"), server("b").weight(0)]);
    scene.rule(C1, "reserve", Policy::Hold, 1);
    let call = scene.create(C1, "x", "accept");
    assert!(matches!(&scene.all_store_uses("reserve")[0].request, StoreRequest::Reserve(reserve)
        if reserve.target == scene.fence(A)));
    // Something keeps `a` from ending at once.
    scene.create(C2, "busy", "hold");
    scene.set_weight(B, 100);
    scene.shutdown(A, SECOND * 20);
    scene.advance(SECOND * 2);
    scene.release_store(C1, "reserve");
    scene.advance(SECOND);
    scene.expect_created(call);
    assert_eq!(owner(&mut scene, "x"), scene.node(B).rid);
}

fn fill(scene: &mut Scene, count: usize) {
    for n in 0..count {
        special(scene, C1, &format!("s{n}"), "hold");
    }
    assert_eq!(scene.node(A).pending_activations as usize, count);
}

#[test]
fn create_t27_err_t10_node_t32_attempt_129_is_refused_and_goes_elsewhere() {
    let big = server("a").types(&["counter", "special"]).weight(10_000);
    let mut scene = Scene::new(vec![client("c1"), client("c2"), big, server("b").weight(1)]);
    fill(&mut scene, 128);
    let call = scene.create(C1, "x", "accept");
    scene.expect_created(call);
    assert_eq!(owner(&mut scene, "x"), scene.node(B).rid);
    // `a` was asked, refused, and its reservation was given back.
    assert_eq!(scene.orders(C1, A), 129);
    let given_back = scene.store_uses(C1, "abort(NotExecuted)");
    assert!(given_back.len() == 1 && matches!(given_back[0].result, Some(Ok(_))));
    assert_eq!(scene.used(A), (0, 128));
    assert_eq!(scene.node(A).pending_activations, 128);
}

#[test]
fn create_t27_attempt_129_ends_unavailable_when_there_is_no_other_node() {
    let mut scene = Scene::new(vec![client("c1"), client("c2"), server("a").types(&["counter", "special"])]);
    fill(&mut scene, 128);
    let call = scene.create(C1, "x", "accept");
    scene.expect_failed(call, ErrorKind::Unavailable);
    assert_eq!(scene.actor("x"), None);
    assert!(scene.factories("x").is_empty());
    assert_eq!(scene.used(A), (0, 128));
    // An attempt counts until it is settled; then there is room again.
    scene.end_turn("s0", TurnEnd::Declined { reply: None });
    assert_eq!(scene.node(A).pending_activations, 127);
    scene.advance(SECOND * 7);
    let call = scene.create(C1, "x", "accept");
    scene.expect_created(call);
}

#[test]
fn create_20_an_attempt_counts_until_its_commit_is_settled() {
    let mut scene = Scene::new(vec![client("c1"), client("c2"), server("a").pending_limit(1)]);
    scene.rule(A, "commit_created", Policy::HoldAnswer, 1);
    let first = scene.create(C1, "x", "accept");
    assert_eq!(scene.node(A).pending_activations, 1);
    let second = scene.create(C2, "y", "accept");
    scene.expect_failed(second, ErrorKind::Unavailable);
    scene.release_store(A, "commit_created");
    scene.expect_created(first);
    assert_eq!(scene.node(A).pending_activations, 0);
}

#[test]
fn node_t32_limits_are_checked_at_their_boundaries() {
    let with = |limit: u32| {
        let mut node = NodeConfig::new(MeshName::new("alpha").unwrap(), ObjectRole::Server);
        (node.actor_limit, node.spot_limit) = (limit, limit);
        node.types.push(TypeRegistration {
            kind: ObjectKind::Actor,
            stable_type: StableType::new("counter").unwrap(),
            policy: RelocationPolicy::PreserveState,
            limit,
        });
        HostConfig::new(vec![node]).check()
    };
    // -1 of any width ends up here as a number above 2^31-1.
    for limit in [-1_i32 as u32, 1 << 31] {
        assert_eq!(with(limit).unwrap_err().kind(), ErrorKind::Configuration);
    }
    for limit in [0, 1, (1 << 31) - 1] {
        assert_eq!(with(limit), Ok(()));
    }
    // 0 is unlimited: three hundred fit.
    let mut scene = Scene::new(vec![client("c1"), client("c2"), server("a").actor_limit(0)]);
    for n in 0..300 {
        let call = scene.create(C1, &format!("x{n}"), "accept");
        scene.expect_created(call);
    }
    assert_eq!(scene.used(A), (300, 0));
    // And the largest limit is no small one by mistake.
    let mut scene = Scene::new(vec![client("c1"), client("c2"), server("a").actor_limit((1 << 31) - 1)]);
    let call = scene.create(C1, "x", "accept");
    scene.expect_created(call);
}
