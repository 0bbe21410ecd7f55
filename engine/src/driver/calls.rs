//! Calls to the Location Store and watches on it, each a task on the executor.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{AbortHandle, Either, abortable, select};
use futures::{FutureExt, StreamExt};

use super::executor::Executor;
use super::inbox::Arrival;
use super::port::Port;
use super::store::LocationStore;
use crate::input::{Input, StoreCallId};
use crate::model::Instant;
use crate::store::{StoreEvent, StoreRequest, WatchScope};

/// Pause before a watch that ended is opened again; polling covers the gap (STORE-112).
const REWATCH_PAUSE: Duration = Duration::from_secs(1);

/// The Store as the loop uses it.
pub(crate) struct StoreCalls {
    store: Option<Arc<dyn LocationStore>>,
    executor: Arc<dyn Executor>,
    port: Arc<Port>,
    watches: BTreeMap<WatchScope, AbortHandle>,
}

impl StoreCalls {
    pub(crate) fn new(
        store: Option<Arc<dyn LocationStore>>,
        executor: Arc<dyn Executor>,
        port: Arc<Port>,
    ) -> Self {
        Self { store, executor, port, watches: BTreeMap::new() }
    }

    /// Starts a call. Its future is dropped when the core stops waiting, after `timeout`; nothing is reported then.
    pub(crate) fn call(&self, call: StoreCallId, request: StoreRequest, timeout: Duration, now: Instant) {
        let Some(store) = &self.store else {
            tracing::error!(target: "spotmesh", call = call.0, "a Store call without a Store");
            return;
        };
        let answer = store.call(request);
        let deadline = self.port.clock().sleep_until(now + timeout);
        let port = self.port.clone();
        self.executor.spawn(
            async move {
                if let Either::Left((result, _)) = select(answer, deadline).await {
                    // Without a loop nobody waits for the answer.
                    let _ = port.tell(Arrival::Store(Input::StoreAnswered { call, result }));
                }
            }
            .boxed(),
        );
    }

    /// Reports hints of a scope until [`Self::unwatch`].
    pub(crate) fn watch(&mut self, scope: WatchScope) {
        let Some(store) = self.store.clone() else { return };
        let (port, watched) = (self.port.clone(), scope.clone());
        let (task, handle) = abortable(async move {
            loop {
                let mut hints = store.watch(watched.clone());
                while let Some(hint) = hints.next().await {
                    if port.tell(Arrival::Store(Input::StoreHinted(hint))).is_err() {
                        return;
                    }
                }
                // Hints may have been missed from here on.
                port.clock().sleep_until(port.clock().now() + REWATCH_PAUSE).await;
                if port.tell(Arrival::Store(Input::StoreHinted(StoreEvent::Resync))).is_err() {
                    return;
                }
            }
        });
        if let Some(before) = self.watches.insert(scope, handle) {
            before.abort();
        }
        self.executor.spawn(task.map(|_| ()).boxed());
    }

    /// Ends a watch.
    pub(crate) fn unwatch(&mut self, scope: &WatchScope) {
        if let Some(handle) = self.watches.remove(scope) {
            handle.abort();
        }
    }
}

impl Drop for StoreCalls {
    fn drop(&mut self) {
        for handle in self.watches.values() {
            handle.abort();
        }
    }
}
