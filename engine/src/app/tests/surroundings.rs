//! What the loop moves between: Store calls, watches, the transport, the deadline, its thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures::channel::mpsc;

use super::scripted::Scene;
use super::subject::{Add, Begin, Subject};
use crate::driver::Executor;
use crate::input::{Input, StoreCallId};
use crate::link::{DialId, DialTarget, Lane, LinkDownReason, LinkId, NodeIndex, Record, TransportEvent};
use crate::model::{Instant, Rid};
use crate::output::Output;
use crate::store::{ListDescriptors, StoreEvent, WatchScope};

fn call(call: u64, timeout: u64) -> Output {
    let request = Box::new(ListDescriptors { mesh: None, token: None, limit: 10 }.into());
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
fn outputs_reach_the_transport_and_its_events_the_core() {
    let scene = Scene::new();
    let (node, link, dial) = (NodeIndex(0), LinkId(1), DialId(1));
    let local_rid = Rid::new("a").unwrap();
    let target = DialTarget { endpoint: "local://1".to_owned(), expected_rid: None, local_rid };
    let record = Record { header: Bytes::from_static(b"hello"), body: None };
    let lane = Lane::Application;
    scene.on_step(1, vec![Output::Bind(node), Output::Dial { node, dial, target }]);
    scene.on_step(2, vec![Output::Send { link, lane, record: record.clone() }, Output::CloseLink(link)]);
    scene.runtime.block_on(async {
        scene.step(1).await;
        scene.step(2).await;
        scene.sleep(Duration::from_millis(1)).await;
    });
    let script = scene.script();
    let events: Vec<_> = script.inputs.iter().filter_map(transported).collect();
    assert!(
        matches!(
            events[..],
            [
                TransportEvent::Bound { .. },
                TransportEvent::LinkUp { dial: None, .. },
                TransportEvent::LinkUp { dial: Some(DialId(1)), .. },
                ..
            ]
        ),
        "a host that dials itself: {events:?}"
    );
    let link = LinkId(2);
    let received = TransportEvent::Received { link, lane, record };
    let down = TransportEvent::LinkDown { link, reason: LinkDownReason::Closed };
    assert_eq!(events[3..], [&received, &down], "the other end has a number of its own");
}

fn transported(input: &Input) -> Option<&TransportEvent> {
    match input {
        Input::Transport(event) => Some(event),
        _ => None,
    }
}

#[test]
fn a_busy_loop_lets_other_tasks_of_its_thread_run() {
    let scene = Scene::new();
    let other_runs = Arc::new(AtomicUsize::new(0));
    scene.runtime.block_on(async {
        scene.host.actors().create::<Subject>("a", Begin::With(0)).await.unwrap();
        let counter = other_runs.clone();
        scene.runtime.spawn(Box::pin(async move {
            loop {
                counter.fetch_add(1, Ordering::Relaxed);
                yield_once().await;
            }
        }));
        let actor = scene.host.actor::<Subject>("a");
        let before = other_runs.load(Ordering::Relaxed);
        // Two inputs each: far more than one batch.
        let calls = (0..5_000).map(|_| actor.request(Add(1)).into_future());
        futures::future::join_all(calls).await;
        let during = other_runs.load(Ordering::Relaxed) - before;
        assert!(during >= 5, "the other task ran {during} times");
    });
}

async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
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
