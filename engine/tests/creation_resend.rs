//! Lost answers and re-sends of the same operation (spec 04 §8, STORE-24).

mod scene;

use std::time::Duration;

use scene::{Policy, Scene, client, server};
use spotmesh::input::TurnEnd;
use spotmesh::model::ErrorKind;
use spotmesh::model::limits::TERMINAL_RETENTION;
use spotmesh::store::{StoreError, StoreRequest};
use spotmesh::wire::{CreateVerdict, Message};

const C1: usize = 0;
const C2: usize = 1;
const A: usize = 2;

fn cast() -> Scene {
    Scene::new(vec![client("c1"), client("c2"), server("a")])
}

/// What the target answered to each order, oldest first.
fn verdicts(scene: &Scene) -> Vec<CreateVerdict> {
    let answers = scene.sent(A, C1).into_iter().filter_map(|message| match message {
        Message::CreateAnswer(answer) => Some(answer.verdict),
        _ => None,
    });
    answers.collect()
}

/// Creates with the answer lost on its way, and lets the pair connect again.
fn create_with_lost_answer(scene: &mut Scene, request: &str) -> scene::Call {
    scene.hold_link(A, C1);
    let call = scene.create(C1, "x", request);
    scene.expect_no_answer(call);
    assert_eq!(verdicts(scene).len(), 1, "the target answered");
    scene.break_links(C1, A);
    scene.advance(Duration::from_secs(6));
    assert_eq!(scene.orders(C1, A), 2, "the order was sent once more");
    call
}

#[test]
fn create_t6_a_resend_gets_the_recorded_result_and_runs_nothing() {
    for request in ["accept", "decline", "fail"] {
        let mut scene = cast();
        let call = create_with_lost_answer(&mut scene, request);
        match request {
            "accept" => assert_eq!(scene.expect_created(call).1, "re:accept"),
            "decline" => assert_eq!(scene.expect_rejected(call).1, "re:decline"),
            _ => scene.expect_failed(call, ErrorKind::InternalFailure),
        }
        assert_eq!(scene.factories("x").len(), 1, "application code ran once");
        let verdicts = verdicts(&scene);
        assert_eq!(verdicts[0], verdicts[1]);
        // Both orders named one operation, and the second travelled on a new link.
        let orders: Vec<_> = scene
            .sent(C1, A)
            .into_iter()
            .filter_map(|it| match it {
                Message::CreateOrder(order) => Some((order.operation, order.fence)),
                _ => None,
            })
            .collect();
        assert_eq!(orders[0], orders[1]);
    }
}

#[test]
fn create_t6_another_operation_or_lifecycle_does_not_get_the_record() {
    let mut scene = cast();
    let call = create_with_lost_answer(&mut scene, "accept");
    let (object, _) = scene.expect_created(call);
    // Another OperationId of the same lifecycle: no reply.
    let other = scene.create(C1, "x", "accept other");
    assert_eq!(scene.expect_existing(other), object);
    // Another lifecycle.
    scene.kill(C1);
    scene.start(C1);
    scene.advance(Duration::from_secs(3));
    let other = scene.create(C1, "x", "accept other");
    assert_eq!(scene.expect_existing(other), object);

    // After a rejection, another operation and another lifecycle run their own attempts.
    let mut scene = cast();
    let call = create_with_lost_answer(&mut scene, "decline");
    scene.expect_rejected(call);
    let other = scene.create(C1, "x", "decline other");
    assert_eq!(scene.expect_rejected(other).1, "re:decline other");
    scene.kill(C1);
    scene.start(C1);
    scene.advance(Duration::from_secs(3));
    let other = scene.create(C1, "x", "accept third");
    assert_eq!(scene.expect_created(other).1, "re:accept third");
    assert_eq!(scene.factories("x").len(), 3);
}

/// A record of an operation with a deadline 30 s after its submit, asked for just before and just after the end
/// of its retention.
#[test]
fn create_t7_err_t11_a_record_is_replayed_for_five_minutes_after_the_deadline() {
    for request in ["accept", "decline"] {
        let mut scene = cast();
        let call = scene.create(C1, "x", request);
        assert!(scene.answer(call).is_some());
        let first = verdicts(&scene)[0];
        let e = Duration::from_millis(1);
        scene.advance(Duration::from_secs(30) + TERMINAL_RETENTION - e);
        scene.resend_order(C1, A);
        assert_eq!(verdicts(&scene), [first, first], "deadline + 5 min - e");
        scene.advance(e * 2);
        scene.resend_order(C1, A);
        assert_eq!(verdicts(&scene)[2], CreateVerdict::ReservationGone, "deadline + 5 min + e");
        assert_eq!(scene.factories("x").len(), 1, "no re-send ran application code");
        // From now on the operation is as good as a new one (CREATE-101).
        let again = scene.create(C1, "x", "accept again");
        if request == "accept" {
            scene.expect_existing(again);
        } else {
            assert_eq!(scene.expect_created(again).1, "re:accept again");
            assert_eq!(scene.all_store_uses("reserve").len(), 2, "a new reservation wins");
        }
    }
}

fn commits(scene: &Scene) -> Vec<StoreRequest> {
    scene.store_uses(A, "commit_created").iter().map(|it| it.request.clone()).collect()
}

#[test]
fn create_t12_err_t19_a_lost_commit_answer_is_settled_by_reissue() {
    for (policy, applied) in [
        (Policy::LoseAnswer, true),
        (Policy::LoseCall, false),
        (Policy::AppliedBut(StoreError::Indeterminate), true),
        (Policy::Answer(Err(StoreError::Indeterminate)), false),
    ] {
        let mut scene = cast();
        scene.rule(A, "commit_created", policy.clone(), 1);
        let call = scene.create(C1, "x", "accept");
        assert_eq!(scene.actor("x").is_some_and(|row| row.pending().is_none()), applied);
        // Not settled: nobody is told, and no message runs.
        let asked = scene.request(C2, "x", "hello");
        scene.expect_no_answer(call);
        assert!(scene.handled("x").is_empty(), "admission is closed under {policy:?}");
        assert_eq!(scene.host(A).object_count(), 0);
        scene.advance(Duration::from_secs(4));
        // Settled: one visible result.
        let (object, _) = scene.expect_created(call);
        let commits = commits(&scene);
        assert_eq!(commits.len(), 2);
        assert_eq!(commits[0], commits[1], "re-issued unchanged");
        assert_eq!(scene.factories("x").len(), 1);
        assert_eq!(scene.used(A), (1, 0));
        if applied {
            scene.expect_replied(asked, "re:hello"); // It waited for admission.
        } else {
            scene.expect_failed(asked, ErrorKind::NotFound);
        }
        let again = scene.create(C2, "x", "accept");
        assert_eq!(scene.expect_existing(again), object);
    }
}

/// Applied and then contradicted: the row is re-read, and the own record decides (CREATE-72).
#[test]
fn create_t12_err_t19_a_commit_that_ends_in_a_conflict_is_judged_by_the_record() {
    let conflict =
        || StoreError::Conflict { reason: spotmesh::store::ConflictReason::StateMismatch, current: None };
    let mut scene = cast();
    scene.rule(A, "commit_created", Policy::AppliedBut(conflict()), 1);
    let call = scene.create(C1, "x", "hold");
    scene.rule(A, "read_creation", Policy::Hold, 1);
    scene.end_turn("x", TurnEnd::Accepted { reply: None });
    scene.expect_no_answer(call);
    assert_eq!(scene.host(A).object_count(), 0, "closed until it is re-read");
    scene.release_store(A, "read_creation");
    scene.expect_created(call);
    assert_eq!(scene.host(A).object_count(), 1);
    assert_eq!(commits(&scene).len(), 1);
}
