//! Requests between hosts, the routes they take and the cache of those routes (spec 01 §10–11, spec 03 §13).

mod scene;

use std::time::Duration;

use scene::{Call, Policy, Scene, client, key, server};
use spotmesh::config::{HostConfig, NodeConfig};
use spotmesh::host::Host;
use spotmesh::input::{ActorCall, Command, TurnEnd};
use spotmesh::model::limits::Settings;
use spotmesh::model::{ActorId, ErrorKind, Instant, MeshName, ObjectRole, OperationId, PacketName};
use spotmesh::output::Answer;
use spotmesh::store::{AuthorityFence, AuthorityRead, BeginClose, FinishClose, StoreError, StoreReply};
use spotmesh::wire::{Message, Metadata, PayloadCodec};

const C: usize = 0;
const A: usize = 1;
const B: usize = 2;

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A caller and an owner; `x` lives on the owner.
fn pair() -> Scene {
    let mut scene = Scene::new(vec![client("c"), server("a")]);
    let call = scene.create(C, "x", "accept");
    scene.expect_created(call);
    scene
}

fn reads(scene: &Scene) -> usize {
    scene.store_uses(C, "read_authority").len()
}

#[track_caller]
fn replied(scene: &mut Scene, id: &str) {
    let call = scene.request(C, id, "hello");
    scene.expect_replied(call, "re:hello");
}

fn fence(scene: &mut Scene, id: &str) -> AuthorityFence {
    let row = scene.actor(id).expect("a row");
    AuthorityFence {
        key: row.key,
        object_generation: row.object_generation,
        owner_generation: row.owner_generation,
        version: row.version,
    }
}

/// Ends an incarnation in the Store, as its owner's destroy will.
fn remove(scene: &mut Scene, id: &str, owner: usize) {
    let (close, lease) = (OperationId::new(9).unwrap(), scene.lease(owner));
    let begin = BeginClose { fence: fence(scene, id), close, lease };
    scene.ask_store(begin).unwrap();
    let finish = FinishClose { fence: fence(scene, id), close, lease };
    scene.ask_store(finish).unwrap();
}

/// What can end a request, each as the first or as a late one.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ending {
    Reply,
    Deadline,
    Cancellation,
    Disconnect,
}

const ENDINGS: [Ending; 4] = [Ending::Reply, Ending::Deadline, Ending::Cancellation, Ending::Disconnect];

fn happen(scene: &mut Scene, ending: Ending, call: Call) {
    match ending {
        Ending::Reply => {
            if !scene.holding("x").is_empty() {
                scene.end_turn("x", TurnEnd::Handled { reply: "late".into() });
            }
        }
        Ending::Deadline => scene.advance(s(6)),
        // A driver drops a call only while its caller waits for it.
        Ending::Cancellation if scene.answer(call).is_none() => scene.drop_call(call),
        Ending::Cancellation => {}
        Ending::Disconnect => scene.break_links(C, A),
    }
}

#[test]
fn model_t27_a_request_ends_once_with_whatever_comes_first() {
    for first in ENDINGS {
        for second in ENDINGS {
            // A second owner stands by: nothing may ever be sent to it.
            let mut scene = Scene::new(vec![client("c"), server("a"), server("b").weight(0)]);
            let call = scene.create(C, "x", "accept");
            scene.expect_created(call);
            let call = scene.request(C, "x", "hold");
            assert_eq!(scene.holding("x").len(), 1);
            happen(&mut scene, first, call);
            let after_first = scene.answer(call).cloned();
            match (first, &after_first) {
                (Ending::Reply, Some(Answer::Replied(reply))) => assert_eq!(&reply[..], b"late"),
                (Ending::Deadline, Some(Answer::Failed(e))) => {
                    assert_eq!(e.kind(), ErrorKind::DeadlineExceeded)
                }
                (Ending::Disconnect, Some(Answer::Failed(e))) => assert_eq!(e.kind(), ErrorKind::Unavailable),
                (Ending::Cancellation, None) => {}
                other => panic!("{other:?}"),
            }
            // The scene itself fails on a second answer and on an answer to a dropped call.
            happen(&mut scene, second, call);
            scene.advance(s(10));
            assert_eq!(scene.answer(call), after_first.as_ref(), "{first:?} then {second:?}");
            assert_eq!(scene.handled("x").len(), 1, "{first:?} then {second:?}: run once");
            let to_others = scene.sent(C, B).into_iter().filter(|it| matches!(it, Message::Actor(_))).count();
            assert_eq!(to_others, 0, "{first:?} then {second:?}: resent");
        }
    }
}

/// A cached route serves without the Store, and every cause of MODEL-123 that exists in this version ends it
/// (the relay notification comes with Message Follow).
fn every_cause_ends_a_cached_route() {
    // Hit.
    let mut scene = pair();
    replied(&mut scene, "x");
    replied(&mut scene, "x");
    assert_eq!(reads(&scene), 1, "the second request needs no Store");

    // A newer StoreVersion, seen by a find.
    let (close, lease) = (OperationId::new(9).unwrap(), scene.lease(A));
    let begin = BeginClose { fence: fence(&mut scene, "x"), close, lease };
    scene.ask_store(begin).unwrap();
    assert!(!scene.is_found(C, "x"));
    let before = reads(&scene);
    let call = scene.request(C, "x", "hello");
    scene.expect_failed(call, ErrorKind::NotFound);
    assert_eq!(reads(&scene), before + 1, "a newer version");

    // A stale-route answer: A never owned `ghost`.
    let mut scene = pair();
    let mut row = scene.actor("x").unwrap();
    row.key = key("ghost");
    let forged = Ok(StoreReply::Authority(AuthorityRead::Found(Box::new(row))));
    scene.rule(C, "read_authority", Policy::Answer(forged), 1);
    let call = scene.request(C, "ghost", "hello");
    scene.expect_failed(call, ErrorKind::Unavailable);
    assert!(scene.handled("ghost").is_empty());
    let before = reads(&scene);
    let call = scene.request(C, "ghost", "hello");
    scene.expect_failed(call, ErrorKind::NotFound);
    assert_eq!(reads(&scene), before + 1, "a stale-route answer");

    // The same for a one-way message, which has no reply to carry it.
    let mut row = scene.actor("x").unwrap();
    row.key = key("ghost");
    let forged = Ok(StoreReply::Authority(AuthorityRead::Found(Box::new(row))));
    scene.rule(C, "read_authority", Policy::Answer(forged), 1);
    let call = send(&mut scene, "ghost");
    assert_eq!(scene.answer(call), Some(&Answer::Sent));
    let before = reads(&scene);
    let call = scene.request(C, "ghost", "hello");
    scene.expect_failed(call, ErrorKind::NotFound);
    assert_eq!(reads(&scene), before + 1, "a stale-route notice");

    // Store recovery.
    let mut scene = pair();
    replied(&mut scene, "x");
    scene.rule(C, "list_descriptors", Policy::Answer(Err(StoreError::Unavailable)), 1);
    scene.advance(s(3));
    let before = reads(&scene);
    replied(&mut scene, "x");
    assert_eq!(reads(&scene), before + 1, "a Store that came back");

    // The lease: an entry ends with the owner's admission deadline as it was when the route was read.
    let mut scene = pair();
    replied(&mut scene, "x");
    let before = reads(&scene);
    scene.advance(s(10));
    replied(&mut scene, "x");
    assert_eq!(reads(&scene), before + 1, "the owner's admission deadline");

    // A lost connection: what waited on it shows that the route may be stale.
    let mut scene = pair();
    let call = scene.request(C, "x", "hold");
    scene.break_links(C, A);
    scene.expect_failed(call, ErrorKind::Unavailable);
    scene.advance(s(2));
    let before = reads(&scene);
    let call = scene.request(C, "x", "hello");
    assert_eq!(reads(&scene), before + 1, "a lost connection");
    scene.end_turn("x", TurnEnd::Handled { reply: "unheard".into() });
    scene.expect_replied(call, "re:hello");

    // Age.
    let mut short = client("c");
    short.settings.route_cache_max_age = s(2);
    let mut scene = Scene::new(vec![short, server("a")]);
    let call = scene.create(C, "x", "accept");
    scene.expect_created(call);
    replied(&mut scene, "x");
    let before = reads(&scene);
    scene.advance(Duration::from_millis(1_900));
    replied(&mut scene, "x");
    assert_eq!(reads(&scene), before, "young enough");
    scene.advance(Duration::from_millis(200));
    replied(&mut scene, "x");
    assert_eq!(reads(&scene), before + 1, "too old");

    // Off.
    let mut off = client("c");
    off.settings.route_cache_max_age = Duration::ZERO;
    let mut scene = Scene::new(vec![off, server("a")]);
    let call = scene.create(C, "x", "accept");
    scene.expect_created(call);
    replied(&mut scene, "x");
    replied(&mut scene, "x");
    assert_eq!(reads(&scene), 2, "0 switches the cache off");
}

fn send(scene: &mut Scene, id: &str) -> Call {
    let message = ActorCall {
        target: ActorId::new(id).unwrap(),
        packet: PacketName::new("say").unwrap(),
        version: 1,
        codec: PayloadCodec::Postcard,
        payload: "hello".into(),
        metadata: Metadata::none(),
        timeout: s(1),
    };
    scene.call(C, Command::SendToActor(message))
}

fn negative_results_are_read_again() {
    let mut scene = Scene::new(vec![client("c"), server("a")]);
    let call = scene.request(C, "x", "hello");
    scene.expect_failed(call, ErrorKind::NotFound); // Missing
    let create = scene.create(C, "x", "hold");
    let call = scene.request(C, "x", "hello");
    scene.expect_failed(call, ErrorKind::NotFound); // Creating
    scene.end_turn("x", TurnEnd::Accepted { reply: None });
    scene.expect_created(create);
    scene.rule(C, "read_authority", Policy::Answer(Err(StoreError::Unavailable)), 1);
    let call = scene.request(C, "x", "hello");
    scene.expect_failed(call, ErrorKind::Unavailable); // the Store failed
    assert_eq!(reads(&scene), 3);
    replied(&mut scene, "x");
    assert_eq!(reads(&scene), 4, "each saw the state of its own time");
    // A call made while an older read is out is not answered by that read's Missing.
    scene.rule(C, "read_authority", Policy::HoldAnswer, 1);
    let early = scene.request(C, "y", "hello");
    let create = scene.create(C, "y", "accept");
    scene.expect_created(create);
    let late = scene.request(C, "y", "hello");
    scene.release_store(C, "read_authority");
    scene.expect_failed(early, ErrorKind::NotFound);
    scene.expect_replied(late, "re:hello");
}

fn the_age_rule_is_enforced() {
    let config = |age: u64, follow: u64| {
        let mut config =
            HostConfig::new(vec![NodeConfig::new(MeshName::new("m").unwrap(), ObjectRole::Client)]);
        config.settings = Settings {
            route_cache_max_age: s(age),
            message_follow_duration: s(follow),
            ..Settings::default()
        };
        Host::new(config, [1; 32], Instant::ZERO)
    };
    assert!(config(25, 30).is_ok());
    assert_eq!(config(26, 30).unwrap_err().kind(), ErrorKind::Configuration);
    assert!(config(0, 1).is_ok());
    assert!(config(60, 0).is_ok());
}

#[test]
fn model_t28_route_cache_hits_invalidations_negative_results_and_age_rule() {
    every_cause_ends_a_cached_route();
    negative_results_are_read_again();
    the_age_rule_is_enforced();
}

#[test]
fn store_t23_the_route_cache_holds_ready_routes_only_and_obeys_every_bound() {
    negative_results_are_read_again();
    every_cause_ends_a_cached_route();
}

#[test]
fn model_t29_a_recreated_object_takes_messages_and_a_changed_owner_refuses_them() {
    let mut scene = pair();
    replied(&mut scene, "x");
    let old = scene.actor("x").unwrap().object_generation;
    remove(&mut scene, "x", A);
    let call = scene.create(C, "x", "accept");
    let (object, _) = scene.expect_created(call);
    assert_ne!(object.object_generation, old);
    let before = reads(&scene);
    replied(&mut scene, "x");
    assert_eq!(reads(&scene), before, "by the route of the former incarnation");
    assert_eq!(scene.handled("x").last().unwrap().turn.object_generation, object.object_generation);

    // Another owner than the route says, and no follow route: Unavailable, not executed, the Store not asked.
    let mut scene = Scene::new(vec![client("c"), server("a"), server("b").weight(0)]);
    let call = scene.create(C, "x", "accept");
    scene.expect_created(call);
    let owned_by_a = scene.actor("x").unwrap();
    scene.set_weight(A, 0);
    scene.set_weight(B, 100);
    scene.advance(s(2));
    let call = scene.create(C, "y", "accept");
    scene.expect_created(call);
    assert_eq!(scene.fence(B).rid, scene.actor("y").unwrap().owner.rid);
    let mut forged = owned_by_a;
    forged.key = key("y");
    let forged = Ok(StoreReply::Authority(AuthorityRead::Found(Box::new(forged))));
    scene.rule(C, "read_authority", Policy::Answer(forged), 1);
    let asked = scene.store_uses(A, "read_authority").len();
    let call = scene.request(C, "y", "hello");
    scene.expect_failed(call, ErrorKind::Unavailable);
    assert!(scene.handled("y").is_empty(), "not executed");
    assert_eq!(scene.store_uses(A, "read_authority").len(), asked, "the Store was not read for it");
    replied(&mut scene, "y");
}

#[test]
fn messages_of_one_source_keep_their_order_over_a_look_up() {
    let mut scene = pair();
    scene.rule(C, "read_authority", Policy::Hold, 1);
    let calls: Vec<_> = (0..5).map(|n| scene.request(C, "x", &format!("m{n}"))).collect();
    scene.release_store(C, "read_authority");
    for (n, call) in calls.into_iter().enumerate() {
        scene.expect_replied(call, &format!("re:m{n}"));
    }
    let order: Vec<_> = scene.handled("x").iter().map(|turn| turn.input().clone()).collect();
    assert_eq!(order, ["m0", "m1", "m2", "m3", "m4"]);
}
