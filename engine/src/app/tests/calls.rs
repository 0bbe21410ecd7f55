//! Calls: their one end, their local checks, the state of the host.

use std::time::Duration;

use futures::future::{Either, join, select};
use futures::{FutureExt, StreamExt};

use super::scripted::Scene;
use super::subject::*;
use crate::app::{Error, ErrorKind, ShutdownOutcome, TurnPlacement};
use crate::event::Event;
use crate::input::{Command, Input};
use crate::model::HostState;
use crate::output::Output;

fn kind<T>(result: Result<T, Error>) -> ErrorKind {
    result.err().expect("a refusal").kind()
}

#[test]
fn err_6_a_dropped_call_is_reported_once_and_only_while_it_waits() {
    let scene = Scene::new();
    scene.runtime.block_on(async {
        scene.host.actors().create::<Subject>("a", Begin::With(1)).await.unwrap();
        let slow = scene.host.actor::<Subject>("a").request(AddLater(1_000, 1)).into_future();
        let patience = scene.sleep(Duration::from_millis(10)).boxed_local();
        let Either::Right(((), slow)) = select(slow, patience).await else { panic!("it ended early") };
        drop(slow);
        // Never submitted: nothing to report.
        drop(scene.host.actor::<Subject>("a").request(Add(1)).into_future());
        scene.sleep(Duration::from_secs(2)).await;
        assert_eq!(
            scene.host.actor::<Subject>("a").request(Add(0)).await.unwrap(),
            2,
            "ERR-6: nothing is undone"
        );
    });
    let script = scene.script();
    let dropped: Vec<_> = script.inputs.iter().filter(|i| matches!(i, Input::CallDropped { .. })).collect();
    let slow_call = script.inputs.iter().find_map(|input| match input {
        Input::Called { call, command: Command::RequestActor(_), .. } => Some(*call),
        _ => None,
    });
    assert_eq!(dropped, [&Input::CallDropped { call: slow_call.unwrap() }]);
}

#[test]
fn local_checks_refuse_before_anything_is_submitted() {
    let scene = Scene::new();
    scene.runtime.block_on(async {
        let host = &scene.host;
        let actor = host.actor::<Subject>("a");
        // MODEL-13.
        for illegal in [String::new(), "x".repeat(256), "a\0b".to_owned()] {
            assert_eq!(
                kind(host.actor::<Subject>(&illegal).request(Add(1)).await),
                ErrorKind::InvalidOperation
            );
            assert_eq!(kind(host.address(&illegal).send(Add(1)).await), ErrorKind::InvalidOperation);
            assert_eq!(kind(host.find(&illegal).await), ErrorKind::InvalidOperation);
            let created = host.actors().create::<Subject>(&illegal, Begin::With(1)).await;
            assert_eq!(kind(created), ErrorKind::InvalidOperation);
        }
        // MODEL-105.
        for illegal in [Duration::ZERO, Duration::from_millis(1 << 31)] {
            assert_eq!(kind(actor.request(Add(1)).timeout(illegal).await), ErrorKind::InvalidOperation);
            assert_eq!(kind(actor.send(Add(1)).timeout(illegal).await), ErrorKind::InvalidOperation);
            assert_eq!(kind(host.find("a").timeout(illegal).await), ErrorKind::InvalidOperation);
            let create = host.actors().create::<Subject>("a", Begin::With(1));
            assert_eq!(kind(create.timeout(illegal).await), ErrorKind::InvalidOperation);
        }
        // MODEL-116.
        assert_eq!(
            kind(actor.request(Add(1)).metadata("k", &"v".repeat(1_024)).await),
            ErrorKind::InvalidOperation
        );
        // CREATE-12.
        let create = || host.actors().get_or_create::<Subject>("a", Begin::With(1));
        let second = Duration::from_secs(1);
        assert_eq!(kind(create().timeout(second).timeout(second).await), ErrorKind::InvalidOperation);
        assert_eq!(kind(create().in_mesh("game").in_mesh("game").await), ErrorKind::InvalidOperation);
        assert_eq!(kind(create().in_mesh("").await), ErrorKind::InvalidOperation);
        // ERR-21, row 14.
        assert_eq!(kind(host.set_placement_weight(10_001).await), ErrorKind::Configuration);
        assert_eq!(kind(host.set_placement_weight(-1).await), ErrorKind::Configuration);
        assert_eq!(kind(host.set_mesh_placement_weight("", 1).await), ErrorKind::InvalidOperation);
        assert_eq!(kind(host.set_channel_weight("c", 10_001).await), ErrorKind::Configuration);
        assert_eq!(kind(host.set_channel_weight("", 1).await), ErrorKind::InvalidOperation);
        // An encoding that fails.
        assert_eq!(kind(host.address("a").send(NeverSent).await), ErrorKind::InvalidOperation);
    });
    assert!(scene.script().inputs.is_empty(), "{:?}", scene.script().inputs);
}

struct NeverSent;

impl serde::Serialize for NeverSent {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("never"))
    }
}

impl<'de> serde::Deserialize<'de> for NeverSent {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Ok(Self)
    }
}

crate::message!(NeverSent, "test.never", reply = ());

#[test]
fn create_11_a_request_of_1_mib_is_submitted_and_one_byte_more_is_not() {
    let scene = Scene::new();
    scene.runtime.block_on(async {
        // A variant number and a length of three bytes come before the text.
        let request = |len: usize| Begin::Decline("x".repeat(len - 4));
        let create = |len| scene.host.actors().create::<Subject>("a", request(len)).into_future();
        assert_eq!(kind(create((1 << 20) + 1).await), ErrorKind::InvalidOperation);
        assert!(scene.script().inputs.is_empty());
        // Its reply is just as long, one byte of it being the variant number less.
        create(1 << 20).await.unwrap();
    });
    let submitted = scene.script().inputs.iter().find_map(|input| match input {
        Input::Called { command: Command::CreateActor(create), .. } => Some(create.request.len()),
        _ => None,
    });
    assert_eq!(submitted, Some(1 << 20));
}

#[test]
fn options_reach_the_core_and_the_handler() {
    let scene = Scene::new();
    scene.runtime.block_on(async {
        scene.host.actors().create::<Subject>("a", Begin::With(1)).in_mesh("game").await.unwrap();
        let described = scene
            .host
            .actor::<Subject>("a")
            .request(Describe)
            .timeout(Duration::from_millis(300))
            .metadata("trace", "1")
            .metadata("trace", "2")
            .await;
        // Ten of the 300 ms are over when the handler looks.
        assert_eq!(described.unwrap(), ("a".to_owned(), Some("2".to_owned()), 290, (1, 1)));
    });
    let script = scene.script();
    let Some(Input::Called { command: Command::CreateActor(create), .. }) = script.inputs.first() else {
        panic!("expected a creation first")
    };
    assert_eq!(create.mesh.as_ref().map(|mesh| mesh.as_str()), Some("game"));
    assert_eq!(create.timeout, Duration::from_secs(30), "the default");
}

#[test]
fn calls_of_one_caller_reach_the_core_in_the_order_of_their_submission() {
    let scene = Scene::new();
    scene.runtime.block_on(async {
        scene.host.actors().create::<Subject>("a", Begin::With(0)).await.unwrap();
        let actor = scene.host.actor::<Subject>("a");
        let calls = (1..=2_000).map(|_| actor.request(Add(1)).into_future());
        let values = futures::future::join_all(calls).await;
        // More than one batch of the loop; the Actor saw them in order.
        for (at, value) in values.into_iter().enumerate() {
            assert_eq!(value.unwrap(), u32::try_from(at).unwrap() + 1);
        }
    });
}

#[test]
fn waiting_for_serving_ends_with_serving_or_with_the_startup_error() {
    let scene = Scene::new();
    scene.script().state = HostState::Preparing;
    scene.script().steps.insert(1, (Vec::new(), Some(HostState::Serving)));
    scene.runtime.block_on(async {
        let (served, ()) = join(scene.host.wait_serving(), async {
            scene.sleep(Duration::from_secs(1)).await;
            assert_eq!(scene.host.state(), HostState::Preparing);
            scene.step(1).await;
        })
        .await;
        served.unwrap();
        assert_eq!(scene.host.state(), HostState::Serving);
        scene.host.wait_serving().await.unwrap();
    });

    let scene = Scene::new();
    scene.script().state = HostState::Preparing;
    let error = Error::new(ErrorKind::Configuration, "startup", "RID in use");
    let failed = vec![Output::Record(Event::StartupFailed(error.clone()))];
    scene.script().steps.insert(1, (failed, Some(HostState::Error)));
    scene.runtime.block_on(async {
        let (served, ()) = join(scene.host.wait_serving(), scene.step(1)).await;
        assert_eq!(served, Err(error.clone()));
        assert_eq!(scene.host.wait_serving().await, Err(error));
    });
}

#[test]
fn after_its_loop_a_host_is_stopped_and_refuses() {
    let scene = Scene::new();
    let (late, shut) = scene.runtime.block_on(async {
        scene.host.actors().create::<Subject>("a", Begin::With(0)).await.unwrap();
        let late = scene.host.actor::<Subject>("a").request(AddLater(10_000, 1)).into_future();
        join(late, async {
            scene.sleep(Duration::from_secs(1)).await;
            scene.host.shutdown().await
        })
        .await
    });
    assert_eq!(shut, Ok(ShutdownOutcome::Stopped));
    assert_eq!(kind(late), ErrorKind::ShuttingDown);
    assert_eq!(scene.host.state(), HostState::Stopped);
    scene.runtime.block_on(async {
        assert_eq!(kind(scene.host.find("a").await), ErrorKind::ShuttingDown);
        assert_eq!(kind(scene.host.wait_serving().await), ErrorKind::ShuttingDown);
    });
    assert_eq!(scene.runtime.tasks(), 0);
}

#[test]
fn a_spawned_turn_does_not_outlive_its_host() {
    let scene = Scene::with(TurnPlacement::Spawned);
    scene.runtime.block_on(async {
        scene.host.actors().create::<Subject>("a", Begin::With(5)).await.unwrap();
        scene.host.actor::<Subject>("a").send(AddLater(10_000, 1)).await.unwrap();
        scene.host.shutdown().await.unwrap();
        scene.sleep(Duration::from_millis(1)).await;
    });
    assert_eq!(scene.runtime.tasks(), 0);
    assert_eq!(dropped(), [5]);
}

#[test]
fn obs_1_observers_see_events_and_a_slow_one_misses_some_without_holding_up_the_host() {
    let scene = Scene::new();
    scene.runtime.block_on(async {
        let mut quick = scene.host.observe(64);
        let mut slow = scene.host.observe(1);
        scene.on_step(1, vec![Output::Record(Event::LeaseHeld); 10]);
        scene.step(1).await;
        for _ in 0..10 {
            assert_eq!(quick.next().await, Some(Event::LeaseHeld));
        }
        assert_eq!(quick.missed(), 0);
        let mut seen = 0;
        while let Some(Some(_)) = slow.next().now_or_never() {
            seen += 1;
        }
        assert!((1..10).contains(&seen), "{seen}");
        assert_eq!(seen + slow.missed(), 10);
        drop(scene.host.shutdown().await);
        assert_eq!(quick.next().await, None, "the stream ends with the host");
    });
}
