//! Operations that meet somebody else's attempt (spec 04 §6).

mod scene;

use std::time::Duration;

use bytes::Bytes;
use scene::{Policy, Scene, TIMEOUT, client, server};
use spotmesh::input::{CreateMode, TurnEnd};
use spotmesh::model::{ErrorKind, HostState};
use spotmesh::store::StoreError;

const C1: usize = 0;
const C2: usize = 1;
const C3: usize = 2;
const A: usize = 3;

/// Three callers and one node that owns.
fn cast() -> Scene {
    Scene::new(vec![client("c1"), client("c2"), client("c3"), server("a").types(&["counter", "other"])])
}

fn accepted(reply: &'static str) -> TurnEnd {
    TurnEnd::Accepted { reply: Some(Bytes::from_static(reply.as_bytes())) }
}

fn declined(reply: &'static str) -> TurnEnd {
    TurnEnd::Declined { reply: Some(Bytes::from_static(reply.as_bytes())) }
}

#[test]
fn create_t1_many_nodes_run_one_factory_and_one_of_them_created() {
    for hold_reserves in [false, true] {
        let mut scene =
            Scene::new(vec![server("a"), server("b"), server("c"), server("d"), server("e"), server("f")]);
        if hold_reserves {
            for host in 0..6 {
                scene.rule(host, "reserve", Policy::Hold, 1);
            }
        }
        let calls: Vec<_> = (0..6).map(|host| scene.create(host, "x", "accept it")).collect();
        if hold_reserves {
            // Everybody saw Missing and competes at the Store.
            assert_eq!(scene.held_calls().len(), 6);
            for host in [3, 1, 5, 0, 2, 4] {
                scene.release_store(host, "reserve");
            }
        }
        scene.advance(Duration::from_secs(1));
        assert_eq!(scene.factories("x").len(), 1);
        let created: Vec<_> = calls
            .iter()
            .filter(|call| matches!(scene.answer(**call), Some(spotmesh::output::Answer::Created { .. })))
            .collect();
        let [winner] = created[..] else { panic!("{} operations created", created.len()) };
        let (object, reply) = scene.expect_created(*winner);
        assert_eq!(reply, "re:accept it");
        for call in calls.iter().filter(|call| *call != winner) {
            assert_eq!(scene.expect_existing(*call).object_generation, object.object_generation);
        }
    }
}

#[test]
fn create_t2_others_wait_while_an_attempt_is_creating() {
    for hints in [true, false] {
        let mut scene = cast();
        scene.deliver_hints(hints);
        let first = scene.create(C1, "x", "hold");
        let second = scene.create(C2, "x", "accept second");
        let third = scene.create_exclusive(C3, "x", "accept third");
        let own = scene.create(C1, "x", "accept fourth");
        scene.advance(Duration::from_secs(5));
        for call in [first, second, third, own] {
            scene.expect_no_answer(call);
        }
        assert_eq!(scene.all_store_uses("reserve").len(), 1, "only the first operation reserved");
        assert_eq!(scene.factories("x").len(), 1);
        scene.end_turn("x", accepted("done"));
        scene.advance(Duration::from_secs(2));
        let (object, reply) = scene.expect_created(first);
        assert_eq!(reply, "done");
        assert_eq!(scene.expect_existing(second), object);
        assert_eq!(scene.expect_existing(own), object);
        scene.expect_failed(third, ErrorKind::AlreadyExists);
        assert_eq!(scene.all_store_uses("reserve").len(), 1);
        assert_eq!(scene.factories("x").len(), 1);
    }
}

#[test]
fn create_t3_after_a_rejection_waiters_compete_with_their_own_requests() {
    let mut scene = cast();
    let first = scene.create(C1, "x", "hold first");
    let second = scene.create(C2, "x", "accept second");
    let third = scene.create(C3, "x", "accept third");
    scene.end_turn("x", declined("words for the first"));
    scene.advance(Duration::from_secs(3));
    let (refused, words) = scene.expect_rejected(first);
    assert_eq!(words, "words for the first");
    let factories = scene.factories("x");
    let [before, winner] = factories[..] else { panic!("{} factories", factories.len()) };
    assert_eq!(&before.input()[..], b"hold first");
    let (winner, loser, request) = match &winner.input()[..] {
        b"accept second" => (second, third, "re:accept second"),
        b"accept third" => (third, second, "re:accept third"),
        other => panic!("a factory saw {other:?}"),
    };
    let (object, reply) = scene.expect_created(winner);
    assert_eq!(reply, request);
    assert_eq!(scene.expect_existing(loser), object);
    assert_ne!(object.object_generation, refused.object_generation);
}

#[test]
fn create_t8_err_t12_a_waiter_times_out_and_the_attempt_goes_on() {
    let mut scene = cast();
    let first = scene.create(C1, "x", "hold");
    let short = scene.create_within(C2, "x", "accept", Duration::from_millis(700));
    scene.advance(Duration::from_millis(699));
    scene.expect_no_answer(short);
    scene.advance(Duration::from_millis(1));
    scene.expect_failed(short, ErrorKind::DeadlineExceeded);
    scene.expect_no_answer(first);
    assert!(scene.actor("x").is_some_and(|row| row.pending().is_some()), "the attempt is untouched");
    scene.advance(Duration::from_secs(3));
    scene.end_turn("x", accepted("late"));
    let (object, _) = scene.expect_created(first);
    let again = scene.create(C2, "x", "accept");
    assert_eq!(scene.expect_existing(again), object);
    assert_eq!(scene.factories("x").len(), 1);
}

#[test]
fn create_t18_another_type_is_refused_against_creating_and_ready() {
    let mut scene = cast();
    let other = |scene: &mut Scene, mode| {
        scene.create_as(C2, "x", mode, "other", Bytes::from_static(b"accept"), TIMEOUT)
    };
    let first = scene.create(C1, "x", "hold");
    for mode in [CreateMode::GetOrCreate, CreateMode::Create] {
        let call = other(&mut scene, mode);
        scene.expect_failed(call, ErrorKind::TypeMismatch);
    }
    scene.end_turn("x", accepted("done"));
    scene.expect_created(first);
    for mode in [CreateMode::GetOrCreate, CreateMode::Create] {
        let call = other(&mut scene, mode);
        scene.expect_failed(call, ErrorKind::TypeMismatch);
    }
    assert_eq!(scene.factories("x").len(), 1);

    // A waiter meets another type when the attempt it waited for is gone (CREATE-85).
    let mut scene = cast();
    scene.deliver_hints(false);
    let first = scene.create(C1, "x", "hold");
    let waiter = scene.create(C2, "x", "accept");
    scene.end_turn("x", declined("no"));
    scene.expect_rejected(first);
    let third = scene.create_as(C3, "x", CreateMode::Create, "other", Bytes::from_static(b"hold"), TIMEOUT);
    scene.advance(Duration::from_secs(2));
    scene.expect_failed(waiter, ErrorKind::TypeMismatch);
    scene.expect_no_answer(third);
}

#[test]
fn create_t18_exclusive_create_waits_for_what_becomes_of_creating() {
    for (end, exists) in [(accepted("yes"), true), (declined("no"), false), (TurnEnd::Panicked, false)] {
        let mut scene = cast();
        scene.create(C1, "x", "hold");
        let exclusive = scene.create_exclusive(C2, "x", "accept exclusive");
        scene.advance(Duration::from_secs(2));
        scene.expect_no_answer(exclusive);
        scene.end_turn("x", end);
        scene.advance(Duration::from_secs(2));
        if exists {
            scene.expect_failed(exclusive, ErrorKind::AlreadyExists);
        } else {
            assert_eq!(scene.expect_created(exclusive).1, "re:accept exclusive");
        }
        let again = scene.create_exclusive(C3, "x", "accept");
        scene.expect_failed(again, ErrorKind::AlreadyExists);
    }
}

#[test]
fn create_t19_missing_creating_and_failures_are_not_cached() {
    let mut scene = cast();
    // Missing, seen by a find and by a message.
    assert!(!scene.is_found(C2, "x"));
    let early = scene.request(C2, "x", "hello");
    scene.expect_failed(early, ErrorKind::NotFound);
    // Creating.
    let first = scene.create(C1, "x", "hold");
    assert!(!scene.is_found(C2, "x"), "Creating is not found");
    let early = scene.request(C2, "x", "hello");
    scene.expect_failed(early, ErrorKind::NotFound);
    scene.end_turn("x", accepted("done"));
    let (object, _) = scene.expect_created(first);
    // No time has passed since: the next calls see the row as it is.
    assert!(scene.is_found(C2, "x"));
    let asked = scene.request(C2, "x", "hello");
    scene.expect_replied(asked, "re:hello");
    let again = scene.create(C2, "x", "accept");
    assert_eq!(scene.expect_existing(again), object);
    assert!(scene.handled("x").len() == 1);

    // A Store failure.
    scene.rule(C3, "read_creation", Policy::Answer(Err(StoreError::Unavailable)), usize::MAX);
    scene.rule(C3, "read_authority", Policy::Answer(Err(StoreError::Unavailable)), usize::MAX);
    let failing = scene.create_within(C3, "x", "accept", Duration::from_secs(1));
    let unasked = scene.request(C3, "x", "hello");
    scene.advance(Duration::from_secs(6));
    scene.expect_failed(failing, ErrorKind::Unavailable);
    scene.expect_failed(unasked, ErrorKind::Unavailable);
    scene.forget_rules();
    let again = scene.create(C3, "x", "accept");
    assert_eq!(scene.expect_existing(again), object);
    let asked = scene.request(C3, "x", "again");
    scene.expect_replied(asked, "re:again");

    // Missing once more, after the owner went in order.
    let call = scene.shutdown(A, Duration::from_secs(5));
    scene.advance(Duration::from_secs(6));
    assert_eq!(scene.host(A).state(), HostState::Stopped, "{:?}", scene.answer(call));
    assert!(!scene.is_found(C2, "x"));
}

#[test]
fn create_t20_only_the_answer_or_the_record_completes_a_call() {
    let mut scene = cast();
    scene.hold_link(A, C1);
    let call = scene.create(C1, "x", "accept");
    scene.advance(Duration::from_secs(2));
    // Ready is plain to see, and this host sees it.
    assert!(scene.is_found(C1, "x"));
    let other = scene.create(C1, "x", "accept other");
    scene.expect_existing(other);
    let asked = scene.request(C2, "x", "hello");
    scene.expect_replied(asked, "re:hello");
    scene.expect_no_answer(call);
    scene.release_link(A, C1);
    assert_eq!(scene.expect_created(call).1, "re:accept");
}
