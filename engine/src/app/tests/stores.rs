//! Store calls, watches and the deadline.

use std::time::Duration;

use futures::channel::mpsc;

use super::scripted::Scene;
use crate::input::{Input, StoreCallId};
use crate::model::Instant;
use crate::output::Output;
use crate::store::{ListDescriptors, StoreEvent, WatchScope};

fn call(call: u64, timeout: u64) -> Output {
    let request = ListDescriptors { mesh: None, token: None, limit: 10 }.into();
    Output::CallStore { call: StoreCallId(call), request, timeout: Duration::from_secs(timeout) }
}

#[test]
fn a_store_call_is_answered_or_dropped_when_its_time_is_over() {
    let scene = Scene::new();
    // The store takes two seconds.
    scene.on_step(1, vec![call(1, 1), call(2, 3)]);
    scene.runtime.block_on(async {
        scene.step(1).await;
        scene.sleep(Duration::from_millis(1_500)).await;
        assert_eq!(*scene.store.dropped.lock().unwrap(), 1, "the first ran out of time");
        scene.sleep(Duration::from_secs(10)).await;
    });
    let answered: Vec<_> = scene.script().inputs.iter().filter_map(answered).collect();
    assert_eq!(answered, [StoreCallId(2)]);
    assert_eq!(scene.runtime.tasks(), 1, "only the loop is left");
}

fn answered(input: &Input) -> Option<StoreCallId> {
    match input {
        Input::StoreAnswered { call, .. } => Some(*call),
        _ => None,
    }
}

#[test]
fn store_112_hints_come_until_unwatch_and_a_watch_that_ended_is_opened_again() {
    let scene = Scene::new();
    let (hint, hints) = mpsc::unbounded();
    *scene.store.hints.lock().unwrap() = Some(hints);
    scene.on_step(1, vec![Output::Watch(WatchScope::Descriptors)]);
    scene.on_step(2, vec![Output::Unwatch(WatchScope::Descriptors)]);
    scene.runtime.block_on(async {
        scene.step(1).await;
        hint.unbounded_send(StoreEvent::Descriptors).unwrap();
        scene.sleep(Duration::from_millis(1)).await;
        assert_eq!(hinted(&scene), [StoreEvent::Descriptors]);
        // The store ends the stream and offers another one.
        let (again, hints) = mpsc::unbounded();
        *scene.store.hints.lock().unwrap() = Some(hints);
        drop(hint);
        scene.sleep(Duration::from_secs(2)).await;
        assert_eq!(
            hinted(&scene),
            [StoreEvent::Descriptors, StoreEvent::Resync],
            "hints may have been missed"
        );
        again.unbounded_send(StoreEvent::Descriptors).unwrap();
        scene.sleep(Duration::from_millis(1)).await;
        assert_eq!(hinted(&scene).len(), 3);
        scene.step(2).await;
        scene.sleep(Duration::from_millis(1)).await;
        assert!(again.unbounded_send(StoreEvent::Descriptors).is_err(), "the stream was dropped");
    });
    assert_eq!(scene.runtime.tasks(), 1, "only the loop is left");
}

fn hinted(scene: &Scene) -> Vec<StoreEvent> {
    let script = scene.script();
    let hints = script.inputs.iter().filter_map(|input| match input {
        Input::StoreHinted(event) => Some(event.clone()),
        _ => None,
    });
    hints.collect()
}

#[test]
fn the_deadline_is_kept_also_when_it_moves() {
    let scene = Scene::new();
    let at = |ms: u64| Instant::from_nanos(1_000_000_000) + Duration::from_millis(ms);
    scene.runtime.block_on(async {
        // Far, then nearer, then far again: fired once each, and on time.
        scene.script().deadline = Some(at(5_000));
        scene.step(1).await;
        scene.script().deadline = Some(at(700));
        scene.step(2).await;
        scene.sleep(Duration::from_millis(900)).await;
        assert_eq!(scene.script().timeouts, [at(700)]);
        scene.script().deadline = Some(at(6_000));
        scene.step(3).await;
        scene.sleep(Duration::from_secs(10)).await;
        assert_eq!(scene.script().timeouts, [at(700), at(6_000)]);
    });
}
