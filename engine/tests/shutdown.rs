//! Shutdown of whole hosts (spec 09 §9).

mod scene;

use std::time::Duration;

use scene::{Call, Policy, Scene, client, server};
use spotmesh::event::Event;
use spotmesh::input::TurnEnd;
use spotmesh::model::{ErrorKind, HostState, LeaseRef};
use spotmesh::output::Answer;
use spotmesh::store::{Descriptor, LeaseState, ListDescriptors, ReadLease, StoreError, StoreReply};

const C: usize = 0;
const A: usize = 1;
const B: usize = 2;

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A caller, an owner of `x`, and a second server that takes new objects only when the first does not.
fn cast() -> Scene {
    let mut scene = Scene::new(vec![client("c"), server("a"), server("b").weight(0)]);
    let call = scene.create(C, "x", "accept");
    scene.expect_created(call);
    scene
}

fn handled(reply: &'static str) -> TurnEnd {
    TurnEnd::Handled { reply: reply.into() }
}

/// What a host asked the Store to change after the first `from` such calls, renewals aside.
fn changes(scene: &Scene, host: usize, from: usize) -> Vec<&'static str> {
    let names = scene.changing_uses(host).into_iter().map(|used| used.request.name());
    names.filter(|name| *name != "renew_lease").skip(from).collect()
}

fn descriptor(scene: &mut Scene, rid_prefix: &str) -> Option<std::sync::Arc<Descriptor>> {
    match scene.ask_store(ListDescriptors { mesh: None, token: None, limit: 100 }) {
        Ok(StoreReply::Descriptors(page)) => {
            let mut all = page.entries.into_iter().map(|entry| entry.descriptor);
            all.find(|it| it.rid.as_bytes().starts_with(rid_prefix.as_bytes()))
        }
        other => panic!("{other:?}"),
    }
}

fn lease_state(scene: &mut Scene, lease: LeaseRef) -> LeaseState {
    match scene.ask_store(ReadLease { lease }) {
        Ok(StoreReply::Lease(view)) => view.value.state,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn ended(scene: &Scene, call: Call, forced: bool) {
    assert_eq!(scene.expect_answer(call), &Answer::ShutDown { forced });
    assert_eq!(scene.host(call.0).state(), HostState::Stopped);
    // HOST-58.
    assert_eq!(scene.host(call.0).poll_timeout(), None, "a timer survives Stopped");
    assert_eq!(scene.host(call.0).object_count(), 0);
    assert!(scene.host(call.0).is_quiet());
    assert!(scene.holding("x").iter().all(|(host, _)| *host != call.0), "a turn survives Stopped");
}

#[test]
fn host_52_seal_publish_finish_rows_descriptor_lease_in_this_order() {
    let mut scene = cast();
    let lease = scene.lease(A);
    let before = changes(&scene, A, 0).len();
    let node = scene.fence(A);
    for step in ["update_descriptor", "remove_owner_rows", "remove_descriptor", "release_lease"] {
        scene.rule(A, step, Policy::Hold, 1);
    }
    let call = scene.shutdown(A, s(30));
    // Step 1: the seal comes before anything is written.
    assert_eq!(scene.host(A).state(), HostState::Draining);
    let refused = scene.request(A, "x", "hello");
    scene.expect_failed(refused, ErrorKind::ShuttingDown);
    let refused = scene.create(A, "y", "accept");
    scene.expect_failed(refused, ErrorKind::ShuttingDown);
    let refused = scene.find(A, "x");
    scene.expect_failed(refused, ErrorKind::ShuttingDown);
    // Step 2: nothing goes on before the Draining descriptor is written.
    assert_eq!(changes(&scene, A, before), ["update_descriptor"]);
    assert_eq!(descriptor(&mut scene, "a-").unwrap().host_state, HostState::Serving);
    scene.release_store(A, "update_descriptor");
    assert_eq!(descriptor(&mut scene, "a-").unwrap().host_state, HostState::Draining);
    // Step 6: the rows, while descriptor and lease still stand.
    assert!(scene.actor("x").is_some());
    scene.release_store(A, "remove_owner_rows");
    assert!(scene.actor("x").is_none());
    assert_eq!(scene.actors_of(&node), (0, 0), "their capacity is free");
    // Step 7: descriptor, then lease, then peers and listener.
    assert!(descriptor(&mut scene, "a-").is_some());
    scene.release_store(A, "remove_descriptor");
    assert!(descriptor(&mut scene, "a-").is_none());
    assert_eq!(lease_state(&mut scene, lease), LeaseState::Active);
    assert_eq!(scene.host(A).state(), HostState::Draining);
    scene.expect_no_answer(call);
    scene.release_store(A, "release_lease");
    assert_eq!(lease_state(&mut scene, lease), LeaseState::Released);
    // A held call is noted twice: when it was made and when it was applied.
    let mut order = changes(&scene, A, before);
    order.dedup();
    assert_eq!(order, ["update_descriptor", "remove_owner_rows", "remove_descriptor", "release_lease"]);
    ended(&scene, call, false);
    let made = scene.store_use_count(A);
    scene.advance(s(60));
    assert_eq!(scene.store_use_count(A), made, "no subscription or renewal survives");
    assert!(scene.node(C).ready_peers.iter().all(|rid| *rid != node.rid));
    // From Serving it moved no object (HOST-50): a new call finds nothing.
    assert!(!scene.is_found(C, "x"));
}

#[test]
fn host_52_53_54_accepted_turns_finish_and_keep_their_lease() {
    let mut scene = cast();
    let running = scene.request(C, "x", "hold");
    let queued = scene.request(C, "x", "queued");
    let own = scene.request(A, "x", "own");
    let call = scene.shutdown(A, s(30));
    let renewed = scene.store_uses(A, "renew_lease").len();
    scene.advance(s(4));
    // HOST-53, NODE-132: renewal goes on; what comes now is refused and does not run.
    let late = scene.request(C, "x", "late");
    scene.expect_failed(late, ErrorKind::ShuttingDown);
    assert!(scene.actor("x").is_some(), "no row goes before the turns have ended");
    scene.end_turn("x", handled("done"));
    scene.expect_replied(running, "done");
    scene.expect_replied(queued, "re:queued");
    scene.expect_replied(own, "re:own");
    ended(&scene, call, false);
    assert_eq!(scene.handled("x").len(), 3);
    assert!(scene.actor("x").is_none());

    // Work that takes longer than a lease lives keeps it.
    let mut scene = cast();
    scene.request(C, "x", "hold");
    let lease = scene.lease(A);
    let call = scene.shutdown(A, s(60));
    scene.advance(s(40));
    assert!(scene.store_uses(A, "renew_lease").len() >= renewed + 6);
    assert_eq!(lease_state(&mut scene, lease), LeaseState::Active);
    assert!(scene.actor("x").is_some());
    scene.end_turn("x", handled("unheard"));
    ended(&scene, call, false);
}

#[test]
fn node_t17_a_draining_node_gets_no_placement_while_accepted_operations_end() {
    let mut scene = cast();
    scene.set_weight(B, 100);
    scene.set_weight(A, 10_000);
    scene.advance(s(2));
    let creating = scene.create(C, "y", "hold");
    let held_by: Vec<_> = scene.holding("y").iter().map(|(host, _)| *host).collect();
    assert_eq!(held_by, [A]);
    let running = scene.request(C, "x", "hold");
    let call = scene.shutdown(A, s(60));
    for n in 0..20 {
        let other = scene.create(C, &format!("z{n}"), "accept");
        scene.advance(Duration::from_millis(200));
        scene.expect_created(other);
        assert!(scene.factories(&format!("z{n}")).iter().all(|factory| factory.host == B));
    }
    scene.end_turn("y", TurnEnd::Accepted { reply: Some("made".into()) });
    assert_eq!(scene.expect_created(creating).1, "made");
    scene.end_turn("x", handled("done"));
    scene.expect_replied(running, "done");
    scene.advance(s(1));
    ended(&scene, call, false);
}

#[test]
fn host_51_one_operation_one_deadline_one_outcome() {
    let mut scene = cast();
    let zero = scene.shutdown(A, Duration::ZERO);
    scene.expect_failed(zero, ErrorKind::InvalidOperation);
    assert_eq!(scene.host(A).state(), HostState::Serving);
    scene.request(C, "x", "hold");
    let first = scene.shutdown(A, s(10));
    scene.advance(s(4));
    // It does not get a deadline of its own.
    let second = scene.shutdown(A, s(1_000));
    let gone = scene.shutdown(A, s(1));
    scene.drop_call(gone);
    scene.advance(Duration::from_millis(5_999));
    scene.expect_no_answer(first);
    scene.expect_no_answer(second);
    scene.advance(Duration::from_millis(1));
    ended(&scene, first, true);
    ended(&scene, second, true);
    let third = scene.shutdown(A, s(5));
    ended(&scene, third, true);
}

#[test]
fn host_54_at_the_deadline_what_is_left_ends_shutting_down() {
    let mut scene = cast();
    let lease = scene.lease(A);
    let running = scene.request(C, "x", "hold");
    let queued = scene.request(C, "x", "queued");
    let own = scene.request(A, "x", "own");
    let before = changes(&scene, A, 0).len();
    let call = scene.shutdown(A, s(3));
    scene.advance(s(3));
    ended(&scene, call, true);
    for request in [running, queued, own] {
        scene.expect_failed(request, ErrorKind::ShuttingDown);
    }
    assert_eq!(scene.abandoned().len(), 1);
    assert_eq!(scene.handled("x").len(), 1, "what was queued never ran");
    // Without a Store write: the rows count as a dead owner's until somebody cleans up.
    assert_eq!(changes(&scene, A, before), ["update_descriptor"]);
    assert!(scene.actor("x").is_some());
    assert_eq!(lease_state(&mut scene, lease), LeaseState::Active);
    scene.advance(s(20));
    let call = scene.request(C, "x", "hello");
    scene.expect_failed(call, ErrorKind::Unavailable);
}

#[test]
fn a_shutdown_repeats_what_the_store_did_not_confirm() {
    for step in ["update_descriptor", "remove_owner_rows", "remove_descriptor", "release_lease"] {
        for policy in [
            Policy::Answer(Err(StoreError::Unavailable)),
            Policy::AppliedBut(StoreError::Indeterminate),
            Policy::LoseAnswer,
            Policy::LoseCall,
        ] {
            let mut scene = cast();
            let lease = scene.lease(A);
            scene.rule(A, step, policy.clone(), 1);
            let call = scene.shutdown(A, s(30));
            scene.advance(s(10));
            ended(&scene, call, false);
            assert_eq!(
                scene.store_uses(A, step).len(),
                2 + usize::from(step == "update_descriptor"),
                "{policy:?}"
            );
            assert!(scene.actor("x").is_none(), "{step} {policy:?}");
            assert!(descriptor(&mut scene, "a-").is_none(), "{step} {policy:?}");
            assert_eq!(lease_state(&mut scene, lease), LeaseState::Released, "{step} {policy:?}");
        }
    }
}

#[test]
fn a_store_that_stays_away_is_waited_for_until_the_deadline() {
    let mut scene = cast();
    scene.store_does(Policy::LoseCall);
    let call = scene.shutdown(A, s(12));
    scene.advance(Duration::from_millis(11_999));
    scene.expect_no_answer(call);
    assert_eq!(scene.host(A).state(), HostState::Draining);
    scene.advance(Duration::from_millis(1));
    ended(&scene, call, true);
}

#[test]
fn host_75_a_lease_lost_while_shutting_down_ends_it_without_a_write() {
    let mut scene = cast();
    scene.request(A, "x", "hold");
    let call = scene.shutdown(A, s(60));
    let before = changes(&scene, A, 0).len();
    scene.rule(A, "renew_lease", Policy::Answer(Err(StoreError::LeaseLost)), 1);
    scene.advance(s(6));
    ended(&scene, call, true);
    assert!(changes(&scene, A, before).is_empty());
    // LeaseLost as the answer of a step.
    let mut scene = cast();
    let before = changes(&scene, A, 0).len();
    scene.rule(A, "remove_owner_rows", Policy::Answer(Err(StoreError::LeaseLost)), 1);
    let call = scene.shutdown(A, s(60));
    ended(&scene, call, true);
    assert_eq!(changes(&scene, A, before), ["update_descriptor", "remove_owner_rows"]);
}

#[test]
fn a_shutdown_interrupts_a_startup_and_gives_back_what_it_had() {
    for step in ["claim_node", "publish_descriptor", "list_descriptors", "update_descriptor"] {
        let mut scene = Scene::new(vec![client("c")]);
        let at = {
            // The rule must stand before the host starts.
            scene.rule(1, step, Policy::Hold, 1);
            scene.add_host(server("a"))
        };
        assert_eq!(scene.host(at).state(), HostState::Preparing, "{step}");
        let call = scene.shutdown(at, s(30));
        scene.advance(s(5));
        ended(&scene, call, false);
        assert!(descriptor(&mut scene, "a-").is_none(), "{step}");
        let lease = scene.lease(at);
        assert_eq!(lease_state(&mut scene, lease), LeaseState::Released, "{step}");
        let states: Vec<_> = scene.events().iter().filter(|(host, _)| *host == at).collect();
        assert!(!states.iter().any(|(_, it)| matches!(it, Event::HostState { to: HostState::Serving, .. })));
    }
    // Before the lease is confirmed there is nothing to give back.
    let mut scene = Scene::new(vec![client("c")]);
    scene.rule(1, "acquire_lease", Policy::LoseCall, usize::MAX);
    let at = scene.add_host(server("a"));
    scene.advance(s(8));
    let call = scene.shutdown(at, s(30));
    ended(&scene, call, false);
}
