//! Hints and progress without them (STORE-112, STORE-113).

use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};

use super::fixture::*;
use super::provider::Provider;
use crate::driver::{FaultPlan, FaultyStore, LocationStore, LocationStoreExt, StoreFault};
use crate::model::ObjectKey;
use crate::store::*;

/// No fault but that every hint is lost.
struct Deaf;

impl FaultPlan for Deaf {
    fn on_call(&self, _: &StoreRequest) -> (StoreFault, Duration) {
        (StoreFault::None, Duration::ZERO)
    }

    fn drops_event(&self, _: &WatchScope, _: &StoreEvent) -> bool {
        true
    }
}

/// One step of a waiter that re-reads (STORE-113): what the key resolves to now.
async fn reread<S: LocationStore>(store: &S, key: &ObjectKey) -> Option<bool> {
    let read = store.execute(ReadAuthority { key: key.clone() }).await.expect("a read");
    match resolve(&read) {
        Resolution::ReadyRoute(_) => Some(true),
        Resolution::Missing => Some(false),
        Resolution::Creating(_) | Resolution::Unavailable(_) => None,
    }
}

/// STORE-T25.
pub async fn waiters_finish_without_hints_and_resync_follows_a_gap(provider: &impl Provider) {
    let world = World::new(provider);
    let node = world.node("n", unlimited()).await;
    let deaf = FaultyStore::new(provider.store(), Deaf, Arc::new(|_| futures::future::ready(()).boxed()));
    let keys = ["ready", "rejected", "aborted", "closed"].map(actor);
    let mut streams: Vec<_> = keys.iter().map(|key| deaf.watch(WatchScope::Authority(key.clone()))).collect();
    let mut descriptors = deaf.watch(WatchScope::Descriptors);
    let mut fences = Vec::new();
    for key in &keys[..3] {
        fences.push(world.reserve(key, ACTOR, &node).await);
    }
    let closing = world.create(&keys[3], ACTOR, &node).await;
    let close = world.operation_id();
    let lease = node.fence.lease;
    let closing = world.ok(BeginClose { fence: authority_fence(&closing), close, lease }).await;
    for key in &keys {
        assert_eq!(reread(&deaf, key).await, None, "{key} makes its waiter wait");
    }
    world.ok(commit(&fences[0], &node)).await;
    let envelope = envelope(&fences[1], TerminalOutcome::Rejected);
    world.ok(CommitRejected { fence: fences[1].clone(), lease, envelope }).await;
    world.ok(AbortNotExecuted { fence: fences[2].clone(), lease }).await;
    world.ok(FinishClose { fence: authority_fence(&closing), close, lease }).await;
    // Not one hint arrived, and yet every waiter's next read ends its wait.
    for (key, ends_in_route) in keys.iter().zip([true, false, false, false]) {
        assert_eq!(reread(&deaf, key).await, Some(ends_in_route), "{key}");
    }
    for stream in &mut streams {
        assert_eq!(stream.next().now_or_never(), None);
    }
    let mut node = node;
    world.update(&mut node, |descriptor| descriptor.actors = 1).await;
    assert_eq!(descriptors.next().now_or_never(), None);
    let listed = world.ok(ListDescriptors { mesh: None, token: None, limit: 10 }).await;
    assert_eq!(listed.entries[0].descriptor.actors, 1, "the poll sees it");

    // After the listener came back, every watcher hears that it may have missed something.
    let mut watched = world.store.watch(WatchScope::Authority(keys[0].clone()));
    provider.interrupt_watches().await;
    while watched.next().await.expect("an endless stream") != StoreEvent::Resync {}
}

/// Hints come for changes of state, owner and descriptors, to whom they concern (STORE-112).
pub async fn changes_cause_hints_in_their_scope(provider: &impl Provider) {
    let world = World::new(provider);
    let mut node = world.node("n", unlimited()).await;
    let mut hero = world.store.watch(WatchScope::Authority(actor("hero")));
    let mut descriptors = world.store.watch(WatchScope::Descriptors);
    world.create(&actor("other"), ACTOR, &node).await;
    let fence = world.reserve(&actor("hero"), ACTOR, &node).await;
    assert_eq!(next(&mut hero).await, StoreEvent::Authority(actor("hero")));
    world.ok(commit(&fence, &node)).await;
    assert_eq!(next(&mut hero).await, StoreEvent::Authority(actor("hero")));
    world.update(&mut node, |descriptor| descriptor.actors = 2).await;
    assert_eq!(next(&mut descriptors).await, StoreEvent::Descriptors);
}

/// The next hint other than a `Resync`, which may come at any time.
async fn next(stream: &mut futures::stream::BoxStream<'static, StoreEvent>) -> StoreEvent {
    loop {
        let event = stream.next().await.expect("an endless stream");
        if event != StoreEvent::Resync {
            return event;
        }
    }
}
