//! Targets that stop and go on, recoverers that die, a Store that is away (spec 04 §12, K13–K17). CREATE-153 is
//! checked by the scene after every step.

mod scene;

use std::time::Duration;

use bytes::Bytes;
use scene::{Policy, Scene, client, server};
use spotmesh::input::TurnEnd;
use spotmesh::model::{ErrorKind, HostState};
use spotmesh::output::Answer;
use spotmesh::store::{OwnRowFilter, StoreError, StoreRequest};

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

#[test]
fn create_t11_k13_a_target_paused_past_its_lease_commits_nothing() {
    for point in ["factory", "turn ended", "commit in flight"] {
        let mut scene = cast();
        let first = scene.create_within(C1, "x", "hold", SECOND * 60);
        let dead = scene.fence(A);
        let instance = scene.factories("x")[0].turn.instance;
        open_b(&mut scene);
        match point {
            "commit in flight" => {
                scene.rule(A, "commit_created", Policy::Hold, 1);
                scene.end_turn("x", accepted("too late"));
                scene.pause(A);
            }
            _ => scene.pause(A),
        }
        if point == "turn ended" {
            scene.end_turn("x", accepted("too late")); // It reaches the host when it goes on.
        }
        scene.let_recovery_finish();
        // Recovered by another node, and made anew.
        let removed = scene.all_store_uses("abort(Recovery)");
        assert!(removed.iter().any(|it| it.host != A && matches!(it.result, Some(Ok(_)))));
        assert_eq!(scene.actors_of(&dead), (0, 0));
        if point == "commit in flight" {
            // What was sent in time arrives too late and is refused.
            let refused = scene.apply_held(A, "commit_created");
            assert!(
                matches!(refused, Err(StoreError::LeaseLost | StoreError::Conflict { .. })),
                "{refused:?}"
            );
        }
        scene.resume(A);
        scene.advance(SECOND * 10);
        assert_eq!(scene.host(A).object_count(), 0, "{point}: staging is disposed");
        assert!(scene.is_disposed(A, instance), "{point}");
        assert!(scene.handled("x").is_empty(), "{point}: no handler ran");
        let by_a = scene.store_uses(A, "commit_created");
        assert!(by_a.iter().all(|it| !matches!(it.result, Some(Ok(_)))), "{point}: nothing was committed");
        let second = scene.holding("x");
        assert!(second.iter().all(|(host, _)| *host == B));
        scene.end_turn("x", accepted("second run"));
        assert_eq!(scene.expect_created(first).1, "second run");
        let asked = scene.request(C2, "x", "hello");
        scene.expect_replied(asked, "re:hello");
        assert_eq!(scene.handled("x")[0].host, B);
    }
}

#[test]
fn k14_a_target_paused_past_its_lease_runs_nothing_before_it_renewed_and_reread() {
    let mut scene = cast();
    let first = scene.create(C1, "x", "accept");
    scene.expect_created(first);
    scene.pause(A);
    scene.advance(SECOND * 14);
    let asked = scene.request(C1, "x", "hello");
    scene.advance(SECOND * 3);
    scene.rule(A, "renew_lease", Policy::Hold, 1);
    scene.rule(A, "scan_own_rows", Policy::Hold, 1);
    scene.resume(A);
    assert_eq!(scene.held_calls(), [(A, "renew_lease")]);
    assert!(scene.handled("x").is_empty(), "not renewed: no turn");
    scene.release_store(A, "renew_lease");
    assert_eq!(scene.held_calls(), [(A, "scan_own_rows")]);
    assert!(scene.handled("x").is_empty(), "not re-read: no turn");
    scene.release_store(A, "scan_own_rows");
    scene.advance(SECOND);
    // Its caller gave up meanwhile; a message that waits is run now, or was given up with its link.
    assert!(matches!(scene.answer(asked), Some(Answer::Failed(_))));
    scene.advance(SECOND * 10);
    let again = scene.request(C2, "x", "again");
    scene.expect_replied(again, "re:again");
}

#[test]
fn k14_a_target_that_was_fenced_meanwhile_never_runs_a_turn_again() {
    let mut scene = cast();
    let first = scene.create(C1, "x", "accept");
    scene.expect_created(first);
    // Another attempt on the same node is what makes others fence its lease.
    let second = scene.create(C1, "y", "hold");
    scene.drop_call(second);
    scene.pause(A);
    let asked = scene.request(C1, "x", "hello");
    scene.let_recovery_finish();
    assert_eq!(scene.actor("y"), None);
    scene.resume(A);
    scene.advance(SECOND * 20);
    assert!(scene.handled("x").is_empty());
    assert_eq!(scene.host(A).object_count(), 0);
    assert_eq!(scene.host(A).state(), HostState::Error);
    assert!(matches!(scene.expect_answer(asked), Answer::Failed(_)));
    assert!(scene.is_ready("x"), "the row stays a dead owner's");
}

#[test]
fn k15_a_recoverer_dies_around_its_transaction_and_another_finishes() {
    for point in ["before", "in", "after"] {
        let mut scene = cast();
        let call = scene.create(C1, "x", "hold");
        let dead = scene.fence(A);
        scene.drop_call(call);
        scene.kill(A);
        for host in [C1, C2, B] {
            scene.rule(host, "abort(Recovery)", Policy::Hold, 1);
        }
        scene.advance_until(SECOND * 30, "somebody recovers", |scene| !scene.held_calls().is_empty());
        let (recoverer, _) = scene.held_calls()[0];
        match point {
            "before" => {}
            "in" => scene.drop_store(recoverer, "abort(Recovery)"),
            _ => {
                scene.apply_held(recoverer, "abort(Recovery)").expect("it is the first");
                assert_eq!((scene.actor("x"), scene.actors_of(&dead) == (0, 0)), (None, true), "all of it");
            }
        }
        if point != "after" {
            assert_eq!((scene.is_creating("x"), scene.actors_of(&dead)), (true, (0, 1)), "or nothing");
        }
        scene.forget_rules();
        scene.kill(recoverer);
        for host in [C1, C2, B] {
            // The others tried at the same time and were as slow.
            while scene.held_calls().contains(&(host, "abort(Recovery)")) {
                scene.release_store(host, "abort(Recovery)");
            }
        }
        scene.let_recovery_finish();
        assert_eq!((scene.actor("x"), scene.actors_of(&dead) == (0, 0)), (None, true), "{point}");
        assert_eq!(scene.records(), 0);
    }
}

/// Two recoverers on one row (CREATE-97).
#[test]
fn create_97_of_two_recoverers_one_removes_and_the_other_skips() {
    let mut scene = cast();
    let call = scene.create(C1, "x", "hold");
    scene.drop_call(call);
    scene.kill(A);
    for host in [C1, C2, B] {
        scene.rule(host, "abort(Recovery)", Policy::Hold, 1);
    }
    scene.advance_until(SECOND * 40, "two recover", |scene| scene.held_calls().len() >= 2);
    let held: Vec<_> = scene.held_calls().iter().map(|(host, _)| *host).collect();
    for host in &held {
        scene.release_store(*host, "abort(Recovery)");
    }
    let results: Vec<_> =
        scene.all_store_uses("abort(Recovery)").iter().filter_map(|it| it.result.clone()).collect();
    assert!(
        results[0].is_ok()
            && results[1..]
                .iter()
                .all(|it| matches!(it, Err(StoreError::Conflict { .. } | StoreError::NotFound))),
        "{results:?}"
    );
    scene.let_recovery_finish();
    assert_eq!(scene.actor("x"), None);
}

#[test]
fn k16_the_store_stops_during_any_mutation() {
    let mutations = [
        ("put_creation_content", "accept"),
        ("reserve", "accept"),
        ("commit_created", "accept"),
        ("commit_rejected", "decline"),
        ("abort(Failed)", "fail"),
    ];
    for (name, request) in mutations {
        for applied in [true, false] {
            let mut scene = cast();
            let by = if matches!(name, "put_creation_content" | "reserve") { C1 } else { A };
            // It stops in the middle of the call and stays away for five seconds.
            scene.rule(by, name, if applied { Policy::LoseAnswer } else { Policy::LoseCall }, 1);
            let first = scene.create_within(C1, "x", request, SECOND * 60);
            let at = format!("{name}, applied: {applied}");
            scene.store_does(Policy::Answer(Err(StoreError::Unavailable)));
            scene.advance(SECOND * 5);
            scene.expect_no_answer(first);
            let asked = scene.request(C2, "x", "hello");
            scene.advance(SECOND);
            assert!(scene.handled("x").is_empty(), "{at}: admission is closed");
            scene.forget_rules();
            scene.advance(SECOND * 10);
            match request {
                "accept" => assert_eq!(scene.expect_created(first).1, "re:accept", "{at}"),
                "decline" => assert_eq!(scene.expect_rejected(first).1, "re:decline", "{at}"),
                _ => scene.expect_failed(first, ErrorKind::InternalFailure),
            }
            assert_eq!(scene.factories("x").len(), 1, "{at}");
            assert_eq!(scene.used(A), (u64::from(request == "accept"), 0), "{at}");
            assert!(scene.answer(asked).is_some());
            // Settled by re-issue of the very same request.
            let uses = scene.store_uses(by, name);
            let applied_once: Vec<_> = uses.iter().map(|it| &it.request).collect();
            assert!(applied_once.len() >= 2, "{at}");
            if name != "put_creation_content" {
                assert!(applied_once.windows(2).all(|pair| pair[0] == pair[1]), "{at}");
            }
        }
    }
}

#[test]
fn k16_the_store_stops_during_a_withdrawal_or_a_recovery() {
    for applied in [true, false] {
        // abort(NotExecuted) by a coordinator whose target refused.
        let mut scene =
            Scene::new(vec![client("c1"), client("c2"), server("a").pending_limit(1), server("b").weight(0)]);
        scene.create_within(C2, "busy", "hold", SECOND * 120);
        let policy = if applied { Policy::LoseAnswer } else { Policy::LoseCall };
        scene.rule(C1, "abort(NotExecuted)", policy.clone(), 1);
        let call = scene.create_within(C1, "x", "accept", SECOND * 60);
        open_b(&mut scene);
        scene.expect_no_answer(call);
        scene.advance(SECOND * 8);
        scene.expect_created(call);
        assert_eq!((scene.used(A), scene.factories("x").len()), ((0, 1), 1));

        // abort(Recovery).
        let mut scene = cast();
        let call = scene.create(C1, "x", "hold");
        scene.drop_call(call);
        for host in [C1, C2, B] {
            scene.rule(host, "abort(Recovery)", policy.clone(), 1);
        }
        scene.kill(A);
        scene.let_recovery_finish();
        assert_eq!(scene.actor("x"), None);
    }
}

#[test]
fn k17_the_store_is_down_for_longer_than_the_lease() {
    let mut scene = cast();
    let first = scene.create(C1, "x", "accept");
    scene.expect_created(first);
    let asked = scene.request(C1, "x", "warm");
    scene.expect_replied(asked, "re:warm");
    scene.store_does(Policy::Answer(Err(StoreError::Unavailable)));
    scene.advance(SECOND * 11);
    // Past the admission deadline, before the lease runs out: no turn, no creation.
    let early = scene.request(C1, "x", "early");
    let refused = scene.create(C2, "y", "accept");
    scene.expect_failed(refused, ErrorKind::Unavailable);
    scene.advance(SECOND * 9);
    assert_eq!(scene.handled("x").len(), 1, "no admission");
    assert!(matches!(scene.answer(early), None | Some(Answer::Failed(_))));
    let scans = scene.store_uses(A, "scan_own_rows").len();
    scene.forget_rules();
    scene.advance(SECOND * 10);
    // Nobody was fenced: renewed, re-read, and on it goes.
    let reread = scene.store_uses(A, "scan_own_rows");
    assert!(reread[scans..].iter().any(|it| matches!(&it.request, StoreRequest::ScanOwnRows(scan)
        if scan.filter == OwnRowFilter::Ready)));
    let asked = scene.request(C1, "x", "hello");
    scene.expect_replied(asked, "re:hello");
    assert_eq!(scene.handled("x")[0].turn.instance, scene.handled("x").last().unwrap().turn.instance);
    let next = scene.create(C2, "y", "accept");
    scene.expect_created(next);
    assert_eq!(scene.expect_created(first).0.object_generation, scene.generations("x")[0]);
}
