//! A host that was stopped past its lease and goes on (spec 03 §5, HOST-75).

mod scene;

use std::time::Duration;

use scene::{Call, Policy, Scene, client, server};
use spotmesh::config::{HostConfig, NodeConfig};
use spotmesh::host::Host;
use spotmesh::input::{Command, TurnEnd};
use spotmesh::model::limits::Settings;
use spotmesh::model::{ErrorKind, HostState, Instant, LeaseRef, MeshName, ObjectRole, Weight};
use spotmesh::output::Answer;
use spotmesh::store::{LeaseState, ReadLease, RetireOwner, StoreError, StoreReply};

const C: usize = 0;
const A: usize = 1;

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn lease_state(scene: &mut Scene, lease: LeaseRef) -> LeaseState {
    match scene.ask_store(ReadLease { lease }) {
        Ok(StoreReply::Lease(view)) => view.value.state,
        other => panic!("{other:?}"),
    }
}

/// Somebody acts on the expiry of a host's lease: from now on it is Fenced.
fn fence(scene: &mut Scene, host: usize) -> LeaseRef {
    let lease = scene.lease(host);
    scene.ask_store(RetireOwner { lease, limit: 1 }).unwrap();
    assert_eq!(lease_state(scene, lease), LeaseState::Fenced);
    lease
}

/// An owner stopped in the middle of everything it can be doing: an idle object, a running and a queued message,
/// a factory, a commit on its way, and calls of its own.
fn stopped_in_the_middle() -> (Scene, Vec<Call>) {
    let mut scene = Scene::new(vec![client("c"), server("a")]);
    for id in ["idle", "busy"] {
        let call = scene.create(C, id, "accept");
        scene.expect_created(call);
    }
    let mut calls = vec![scene.request(C, "busy", "hold"), scene.request(C, "busy", "queued")];
    calls.push(scene.create(C, "making", "hold"));
    scene.rule(A, "commit_created", Policy::Hold, 1);
    calls.push(scene.create(C, "made", "accept"));
    assert!(scene.held_calls().contains(&(A, "commit_created")));
    scene.pause(A);
    // What is waiting for it when it goes on: messages of others, ends of its turns, calls of its application.
    calls.push(scene.request(C, "idle", "hello"));
    scene.end_turn("busy", TurnEnd::Handled { reply: "late".into() });
    scene.end_turn("making", TurnEnd::Accepted { reply: None });
    calls.push(scene.create(A, "new", "accept"));
    calls.push(scene.request(A, "idle", "hello"));
    calls.push(scene.call(A, Command::SetPlacementWeight { mesh: None, weight: Weight::new(7).unwrap() }));
    (scene, calls)
}

fn turns(scene: &Scene) -> usize {
    let ids = ["idle", "busy", "making", "made", "new"];
    ids.iter().map(|id| scene.handled(id).len() + scene.factories(id).len()).sum()
}

/// Lets a stopped host go on while everybody else stands still, and expects that nothing came of it.
fn goes_on_without_effect(scene: &mut Scene, calls: &[Call]) {
    scene.pause(C);
    let (store, ran) = (scene.store().clone(), turns(scene));
    scene.resume(A);
    scene.advance(s(30));
    assert_eq!(scene.store(), &store, "the Store changed");
    assert_eq!(turns(scene), ran, "a turn started");
    assert_eq!(scene.host(A).state(), HostState::Error);
    assert_eq!(scene.host(A).object_count(), 0);
    assert!(scene.host(A).is_quiet());
    for call in calls.iter().filter(|call| call.0 == A) {
        // The setter only notes the value; it is never published.
        assert!(matches!(scene.answer(*call), Some(Answer::Failed(_) | Answer::Set)), "{call:?}");
    }
}

#[test]
fn host_t23_a_woken_stale_owner_changes_nothing() {
    let (mut scene, calls) = stopped_in_the_middle();
    scene.advance(s(16));
    fence(&mut scene, A);
    goes_on_without_effect(&mut scene, &calls);
    // Its commit, sent in time, arrives now.
    let store = scene.store().clone();
    let refused = scene.apply_held(A, "commit_created").unwrap_err();
    assert!(matches!(refused, StoreError::LeaseLost | StoreError::Conflict { .. }), "{refused:?}");
    assert_eq!(scene.store(), &store);
    // Shutdown after that writes nothing either.
    let call = scene.shutdown(A, s(5));
    assert_eq!(scene.expect_answer(call), &Answer::ShutDown { forced: true });
    assert_eq!(scene.store(), &store);
}

#[test]
fn store_t21_lease_relation_renewal_past_expiry_and_a_resumed_owner() {
    // The relation of STORE-29, at its boundary and beyond.
    let start = |ttl: u64| {
        let mut config =
            HostConfig::new(vec![NodeConfig::new(MeshName::new("m").unwrap(), ObjectRole::Server)]);
        config.settings = Settings { owner_lease_ttl: Duration::from_millis(ttl), ..Settings::default() };
        Host::new(config, [1; 32], Instant::ZERO)
    };
    assert!(start(13_001).is_ok());
    assert_eq!(start(13_000).unwrap_err().kind(), ErrorKind::Configuration);

    // Nobody acted on the expiry: the lease is renewed and everything goes on, once the rows are read again.
    let (mut scene, _) = stopped_in_the_middle();
    let lease = scene.lease(A);
    scene.pause(C); // It would fence A for the unfinished creations.
    scene.advance(s(60));
    assert_eq!(lease_state(&mut scene, lease), LeaseState::Active);
    let scans = scene.store_uses(A, "scan_own_rows").len();
    scene.resume(A);
    scene.advance(s(1));
    scene.resume(C);
    scene.advance(s(30));
    assert_eq!(lease_state(&mut scene, lease), LeaseState::Active);
    assert!(scene.store_uses(A, "scan_own_rows").len() > scans);
    assert_eq!(scene.host(A).state(), HostState::Serving);
    for id in ["idle", "busy"] {
        let call = scene.request(C, id, "hello");
        scene.expect_replied(call, "re:hello");
    }

    // Somebody did: never again, however often it is asked.
    let (mut scene, calls) = stopped_in_the_middle();
    scene.advance(s(60));
    let lease = fence(&mut scene, A);
    goes_on_without_effect(&mut scene, &calls);
    for _ in 0..3 {
        let renewed = scene.ask_store(spotmesh::store::RenewLease { lease, ttl: s(15) });
        assert_eq!(renewed, Err(StoreError::LeaseLost));
    }
}

#[test]
fn host_75_a_lost_lease_ends_calls_and_objects_without_a_write() {
    let (mut scene, _) = stopped_in_the_middle();
    scene.resume(A);
    scene.advance(s(2));
    let running = scene.request_within(C, "busy", "hold", s(30));
    scene.rule(A, "renew_lease", Policy::Answer(Err(StoreError::LeaseLost)), 1);
    scene.advance(s(6));
    assert_eq!(scene.host(A).state(), HostState::Error);
    scene.expect_failed(running, ErrorKind::Unavailable);
    // What it learnt that from is the last it wrote.
    let writes = scene.changing_uses(A).len();
    assert_eq!(scene.changing_uses(A)[writes - 1].request.name(), "renew_lease");
    // Admission is closed for good.
    for _ in 0..3 {
        let call = scene.request(A, "idle", "hello");
        scene.expect_failed(call, ErrorKind::Unavailable);
        scene.advance(s(20));
    }
    assert_eq!(scene.changing_uses(A).len(), writes);
}
