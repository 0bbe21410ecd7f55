//! Processes that die at every point of a creation (spec 04 §12, K1–K12). CREATE-153 is checked by the scene after
//! every step: counters equal rows, and no key stays Creating for a dead target.

mod scene;

use std::time::Duration;

use bytes::Bytes;
use scene::{Policy, Scene, client, server};
use spotmesh::input::TurnEnd;
use spotmesh::model::ErrorKind;
use spotmesh::model::limits::TERMINAL_RETENTION;
use spotmesh::store::{GetCreationContent, StoreError, StoreReply, StoreRequest};

const C1: usize = 0;
const C2: usize = 1;
const A: usize = 2;
const B: usize = 3;

const SECOND: Duration = Duration::from_secs(1);

/// Two callers, the target `a`, and `b` that gets nothing before [`open_b`].
fn cast() -> Scene {
    Scene::new(vec![client("c1"), client("c2"), server("a"), server("b").weight(0)])
}

fn open_b(scene: &mut Scene) {
    scene.set_weight(B, 100);
    scene.advance(SECOND);
}

fn accepted(reply: &'static str) -> TurnEnd {
    TurnEnd::Accepted { reply: Some(Bytes::from_static(reply.as_bytes())) }
}

fn declined(reply: &'static str) -> TurnEnd {
    TurnEnd::Declined { reply: Some(Bytes::from_static(reply.as_bytes())) }
}

fn content_is_stored(scene: &mut Scene) -> bool {
    let content = scene.all_store_uses("put_creation_content").first().map(|it| match &it.request {
        StoreRequest::PutCreationContent(put) => put.content,
        other => panic!("{other:?}"),
    });
    match scene.ask_store(GetCreationContent { content: content.expect("somebody put content") }) {
        Ok(StoreReply::Content(_)) => true,
        Err(StoreError::NotFound) => false,
        other => panic!("{other:?}"),
    }
}

#[test]
fn k01_coordinator_dies_before_content_was_stored() {
    let mut scene = cast();
    scene.rule(C1, "put_creation_content", Policy::Hold, 1);
    scene.create(C1, "x", "accept");
    assert_eq!(scene.held_calls(), [(C1, "put_creation_content")]);
    scene.kill(C1);
    scene.let_recovery_finish();
    assert_eq!(scene.actor("x"), None);
    assert!(!content_is_stored(&mut scene));
    assert!(scene.factories("x").is_empty() && scene.used(A) == (0, 0));
    let other = scene.create(C2, "x", "accept");
    scene.expect_created(other);
}

#[test]
fn k02_coordinator_dies_with_content_stored_and_no_reserve() {
    let mut scene = cast();
    scene.rule(C1, "reserve", Policy::Hold, 1);
    scene.create(C1, "x", "accept");
    scene.kill(C1);
    assert!(content_is_stored(&mut scene));
    scene.let_recovery_finish();
    assert_eq!(scene.actor("x"), None);
    // Swept once its retention, the deadline + 5 min, is over.
    scene.advance(SECOND * 30 + TERMINAL_RETENTION);
    assert!(!content_is_stored(&mut scene));
    assert!(scene.factories("x").is_empty() && scene.used(A) == (0, 0));
    let other = scene.create(C2, "x", "accept");
    scene.expect_created(other);
}

#[test]
fn k03_coordinator_dies_with_its_reserve_in_flight() {
    let mut scene = cast();
    scene.rule(C1, "reserve", Policy::LoseCall, 1);
    scene.create(C1, "x", "accept");
    scene.kill(C1);
    assert_eq!(scene.actor("x"), None);
    let other = scene.create(C2, "x", "accept other");
    assert_eq!(scene.expect_created(other).1, "re:accept other");
}

#[test]
fn create_t10_k03_coordinator_dies_after_reserve_and_the_target_adopts() {
    for hints in [true, false] {
        let mut scene = cast();
        scene.deliver_hints(hints);
        scene.rule(C1, "reserve", Policy::HoldAnswer, 1);
        scene.create(C1, "x", "accept adopted");
        scene.kill(C1);
        assert!(scene.is_creating("x"));
        assert_eq!(scene.orders(C1, A), 0);
        let waiter = scene.create(C2, "x", "accept waiter");
        scene.let_recovery_finish();
        let factories = scene.factories("x");
        assert!(factories.len() == 1 && &factories[0].input()[..] == b"accept adopted");
        assert_eq!(scene.expect_existing(waiter).object_generation, scene.generations("x")[0]);
        assert_eq!(scene.used(A), (1, 0));
    }
}

#[test]
fn create_t10_k03_coordinator_dies_after_reserve_and_the_target_aborts_past_the_deadline() {
    let mut scene = cast();
    scene.rule(C1, "reserve", Policy::HoldAnswer, 1);
    scene.create_within(C1, "x", "accept", SECOND * 2);
    scene.kill(C1);
    assert_eq!(scene.used(A), (0, 1));
    let waiter = scene.create(C2, "x", "accept waiter");
    scene.advance(SECOND * 3);
    // CREATE-92: past its deadline, but its target lives: nobody else touches it.
    assert!(scene.is_creating("x") && scene.factories("x").is_empty());
    scene.let_recovery_finish();
    assert!(scene.all_store_uses("abort(Recovery)").is_empty());
    let aborts = scene.store_uses(A, "abort(NotExecuted)");
    assert!(aborts.len() == 1 && matches!(aborts[0].result, Some(Ok(_))));
    assert_eq!(scene.expect_created(waiter).1, "re:accept waiter");
    assert_eq!(scene.factories("x").len(), 1, "the abandoned attempt ran no factory");

    // Without anybody who waits, the counters return to zero.
    let mut scene = cast();
    scene.rule(C1, "reserve", Policy::HoldAnswer, 1);
    scene.create_within(C1, "x", "accept", SECOND * 2);
    scene.kill(C1);
    scene.let_recovery_finish();
    assert_eq!((scene.actor("x"), scene.used(A)), (None, (0, 0)));
    assert!(scene.factories("x").is_empty() && scene.records() == 0);
}

#[test]
fn k04_coordinator_dies_after_the_order_and_the_target_completes_alone() {
    let mut scene = cast();
    scene.create(C1, "x", "hold");
    scene.kill(C1);
    scene.advance(SECOND * 3);
    scene.end_turn("x", accepted("for nobody"));
    assert!(scene.is_ready("x"));
    assert_eq!(scene.records(), 1, "the record is kept");
    assert_eq!(scene.used(A), (1, 0));
    // A restarted coordinator is a new source.
    scene.start(C1);
    scene.advance(SECOND * 3);
    let again = scene.create(C1, "x", "accept");
    scene.expect_existing(again);
    let asked = scene.request(C2, "x", "hello");
    scene.expect_replied(asked, "re:hello");
    // Or it competes.
    scene.create(C1, "y", "hold");
    scene.kill(C1);
    scene.end_turn("y", declined("for nobody"));
    scene.start(C1);
    scene.advance(SECOND * 3);
    let again = scene.create(C1, "y", "accept again");
    assert_eq!(scene.expect_created(again).1, "re:accept again");
}

#[test]
fn k05_a_losing_coordinator_dies_while_it_waits() {
    let mut scene = cast();
    let first = scene.create(C1, "x", "hold");
    scene.create(C2, "x", "accept loser");
    scene.advance(SECOND);
    scene.kill(C2);
    scene.let_recovery_finish();
    assert!(scene.is_creating("x"));
    scene.expect_no_answer(first);
    scene.end_turn("x", accepted("done"));
    assert_eq!(scene.expect_created(first).1, "done");
    assert!(
        scene.store_uses(C2, "reserve").is_empty() && scene.store_uses(C2, "put_creation_content").is_empty()
    );
    assert_eq!(scene.factories("x").len(), 1);
}

/// Where a target dies, and what is done first.
fn dies_before_its_commit(kill_at: &str, with_waiter: bool) {
    let mut scene = cast();
    let first = match kill_at {
        "verify" => {
            scene.rule(A, "read_creation", Policy::Hold, 1);
            scene.create_within(C1, "x", "accept", SECOND * 60)
        }
        "loading" => {
            scene.rule(A, "get_creation_content", Policy::Hold, 1);
            scene.create_within(C1, "x", "accept", SECOND * 60)
        }
        _ => scene.create_within(C1, "x", "hold", SECOND * 60),
    };
    let dead = scene.fence(A);
    if kill_at == "commit" {
        scene.rule(A, "commit_created", Policy::LoseCall, 1);
        scene.end_turn("x", accepted("lost"));
    }
    let ran = scene.factories("x").len();
    let waiter = with_waiter.then(|| scene.create_within(C2, "x", "accept waiter", SECOND * 60));
    assert!(scene.is_creating("x"));
    if !with_waiter {
        scene.drop_call(first);
    }
    open_b(&mut scene);
    scene.kill(A);
    scene.advance(SECOND * 8);
    assert!(scene.is_creating("x"), "{kill_at}: the lease has not run out yet");
    scene.let_recovery_finish();
    assert_eq!(scene.actors_of(&dead), (0, 0), "{kill_at}: the bundle is back");
    match waiter {
        Some(waiter) => {
            // Both compete, with their own requests; whoever won ran on `b` under a new generation.
            let winner = scene.factories("x").pop().expect("somebody won").clone();
            assert_eq!(winner.host, B);
            assert_eq!(scene.factories("x").len(), ran + 1, "{kill_at}");
            let generations = scene.generations("x");
            assert!(ran == 0 || generations[0] < generations[1]);
            if &winner.input()[..] == b"accept waiter" {
                assert_eq!(scene.expect_created(waiter).1, "re:accept waiter");
                scene.expect_existing(first);
            } else {
                if &winner.input()[..] == b"hold" {
                    scene.end_turn("x", accepted("second run"));
                }
                scene.expect_created(first);
                scene.expect_existing(waiter);
            }
            assert_eq!(scene.records(), 1, "{kill_at}: only of the new attempt");
        }
        None => {
            assert_eq!(scene.actor("x"), None, "{kill_at}: a scan cleaned it");
            assert_eq!(scene.records(), 0);
            let next = scene.create(C2, "x", "accept next");
            assert_eq!(scene.expect_created(next).1, "re:accept next");
        }
    }
}

#[test]
fn create_t9_host_t21_k06_target_dies_before_or_in_its_factory() {
    for kill_at in ["verify", "loading", "factory"] {
        for with_waiter in [true, false] {
            dies_before_its_commit(kill_at, with_waiter);
        }
    }
}

#[test]
fn k07_target_dies_with_its_callback_done_and_nothing_committed() {
    for with_waiter in [true, false] {
        dies_before_its_commit("commit", with_waiter);
    }
}

#[test]
fn k08_target_dies_with_its_commit_in_flight() {
    for applied in [false, true] {
        let mut scene = cast();
        scene.rule(A, "commit_created", Policy::Hold, 1);
        let first = scene.create_within(C1, "x", "accept", SECOND * 60);
        let dead = scene.fence(A);
        open_b(&mut scene);
        if applied {
            scene.apply_held(A, "commit_created").expect("it arrived before the process died");
        }
        // Either way: Ready, active and recorded together, or none of them.
        let active = scene.actors_of(&dead);
        assert_eq!((scene.is_ready("x"), active), (applied, if applied { (1, 0) } else { (0, 1) }));
        scene.kill(A);
        scene.let_recovery_finish();
        let object = scene.expect_created(first).0;
        if applied {
            assert_eq!(object.object_generation, scene.generations("x")[0]);
            assert_eq!((scene.factories("x").len(), scene.actors_of(&dead)), (1, (1, 0)));
        } else {
            assert_eq!(object.object_generation, scene.generations("x")[1]);
            assert_eq!((scene.factories("x").len(), scene.actors_of(&dead)), (2, (0, 0)));
        }
    }
}

#[test]
fn k09_target_dies_after_ready_before_it_opened_or_answered() {
    for hold in ["answer of the commit", "answer of the order"] {
        let mut scene = cast();
        if hold == "answer of the commit" {
            scene.rule(A, "commit_created", Policy::HoldAnswer, 1);
        } else {
            scene.hold_link(A, C1);
        }
        let first = scene.create_within(C1, "x", "accept", SECOND * 60);
        let dead = scene.fence(A);
        open_b(&mut scene);
        let row = scene.actor("x").expect("Ready");
        scene.kill(A);
        scene.let_recovery_finish();
        assert_eq!(scene.expect_created(first).1, "re:accept", "the re-send reads Created");
        assert_eq!(scene.actor("x").map(|it| (it.version, it.owner)), Some((row.version, row.owner)));
        assert_eq!(scene.actors_of(&dead), (1, 0));
        // The object is unavailable, and nobody makes another.
        let other = scene.create(C2, "x", "accept");
        scene.expect_failed(other, ErrorKind::Unavailable);
        let exclusive = scene.create_exclusive(C2, "x", "accept");
        scene.expect_failed(exclusive, ErrorKind::AlreadyExists);
        let asked = scene.request(C2, "x", "hello");
        scene.advance(SECOND * 6);
        scene.expect_failed(asked, ErrorKind::Unavailable);
        assert_eq!((scene.factories("x").len(), scene.handled("x").len()), (1, 0));
    }
}

#[test]
fn k10_target_dies_after_rejected_before_it_answered() {
    for name in ["commit_rejected", "link"] {
        let mut scene = cast();
        if name == "link" {
            scene.hold_link(A, C1);
        } else {
            scene.rule(A, name, Policy::HoldAnswer, 1);
        }
        let first = scene.create_within(C1, "x", "decline", SECOND * 60);
        open_b(&mut scene);
        scene.kill(A);
        assert_eq!(scene.actor("x"), None);
        // Others compete at once.
        let other = scene.create(C2, "x", "accept other");
        scene.advance(SECOND * 2);
        scene.let_recovery_finish();
        assert_eq!(scene.expect_created(other).1, "re:accept other");
        assert_eq!(scene.expect_rejected(first).1, "re:decline", "the re-send gets Rejected");
        assert_eq!(scene.factories("x").len(), 2);
    }
}

#[test]
fn k11_target_dies_after_failed_before_it_answered() {
    for request in ["fail", "panic"] {
        let mut scene = cast();
        scene.rule(A, "abort(Failed)", Policy::HoldAnswer, 1);
        let first = scene.create_within(C1, "x", request, SECOND * 60);
        open_b(&mut scene);
        scene.kill(A);
        assert_eq!(scene.actor("x"), None);
        let other = scene.create(C2, "x", "accept other");
        scene.let_recovery_finish();
        assert_eq!(scene.expect_created(other).1, "re:accept other");
        scene.expect_failed(first, ErrorKind::InternalFailure);
        assert_eq!(scene.factories("x").len(), 2);
    }
}

#[test]
fn k12_target_dies_after_it_decided_to_refuse() {
    let mut scene =
        Scene::new(vec![client("c1"), client("c2"), server("a").pending_limit(1), server("b").weight(0)]);
    scene.create(C2, "busy", "hold");
    scene.hold_link(A, C1);
    let call = scene.create_within(C1, "x", "accept", SECOND * 60);
    assert!(scene.held_on_link(A, C1).iter().any(|message| message.name() == "CreateAnswer"), "it refused");
    let dead = scene.fence(A);
    open_b(&mut scene);
    scene.kill(A);
    scene.let_recovery_finish();
    scene.expect_created(call);
    assert_eq!(scene.factories("x").len(), 1);
    assert_eq!(scene.factories("x")[0].host, B);
    assert_eq!(scene.actors_of(&dead), (0, 0));
}

#[test]
fn k12_target_dies_after_it_answered_that_the_reservation_is_gone() {
    let mut scene = cast();
    scene.rule(C1, "reserve", Policy::HoldAnswer, 1);
    let call = scene.create_within(C1, "x", "accept", SECOND * 60);
    // Somebody removes the reservation before the order is sent.
    let row = scene.actor("x").expect("Creating");
    let fence = row.reservation_fence().expect("Creating");
    let lease = scene.lease(A);
    scene.ask_store(spotmesh::store::AbortNotExecuted { fence, lease }).expect("the target may");
    scene.hold_link(A, C1);
    scene.release_store(C1, "reserve");
    assert!(scene.held_on_link(A, C1).iter().any(|message| message.name() == "CreateAnswer"));
    open_b(&mut scene);
    scene.kill(A);
    scene.let_recovery_finish();
    scene.expect_created(call);
    assert_eq!(scene.factories("x").len(), 1);
    assert_eq!(scene.factories("x")[0].host, B);
}
