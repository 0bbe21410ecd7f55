//! The async face of the state: one lock, an injectable clock, hints through channels (STORE-135).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use spotmesh::driver::LocationStore;
use spotmesh::model::StoreTime;
use spotmesh::store::{StoreEvent, StoreRequest, StoreResult, WatchScope};

use crate::apply::apply_with_hints;
use crate::state::State;
use crate::watch::{Watcher, watch};

/// A Location Store in memory. Clones share one namespace.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

struct Shared {
    inner: Mutex<Inner>,
    clock: Box<dyn Fn() -> StoreTime + Send + Sync>,
}

struct Inner {
    state: State,
    watchers: Vec<Watcher>,
    latest: StoreTime,
}

impl MemoryStore {
    /// An empty namespace on the clock of this process: microseconds since the store was made.
    ///
    /// Simulations and tests inject their own clock with [`Self::with_clock`].
    #[must_use]
    pub fn new() -> Self {
        let origin = std::time::Instant::now();
        Self::with_clock(move || {
            StoreTime::from_micros(i64::try_from(origin.elapsed().as_micros()).unwrap_or(i64::MAX))
        })
    }

    /// An empty namespace on an injected Store clock. A clock that goes back counts as standing still.
    #[must_use]
    pub fn with_clock(clock: impl Fn() -> StoreTime + Send + Sync + 'static) -> Self {
        let inner = Inner { state: State::new(), watchers: Vec::new(), latest: StoreTime::default() };
        Self { shared: Arc::new(Shared { inner: Mutex::new(inner), clock: Box::new(clock) }) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No operation leaves the state half changed, so a panic elsewhere under the lock does not spoil it.
        self.shared.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries one operation out at once.
    pub fn apply(&self, request: &StoreRequest) -> StoreResult {
        let mut inner = self.lock();
        inner.latest = inner.latest.max((self.shared.clock)());
        let now = inner.latest;
        let (result, hints) = apply_with_hints(&mut inner.state, now, request);
        for event in &hints {
            inner.watchers.retain(|watcher| watcher.tell(event));
        }
        result
    }

    /// A copy of the state.
    #[must_use]
    pub fn state(&self) -> State {
        self.lock().state.clone()
    }

    /// Lets only `remaining` more values be issued of every sequence, for tests of STORE-10.
    pub fn leave_generations(&self, remaining: u64) {
        self.lock().state.leave_generations(remaining);
    }

    /// Tells every watcher that hints may have been missed, as after a listener's reconnect (STORE-112).
    pub fn resync(&self) {
        self.lock().watchers.retain(|watcher| watcher.tell(&StoreEvent::Resync));
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl LocationStore for MemoryStore {
    fn call(&self, request: StoreRequest) -> BoxFuture<'static, StoreResult> {
        let store = self.clone();
        async move { store.apply(&request) }.boxed()
    }

    fn watch(&self, scope: WatchScope) -> BoxStream<'static, StoreEvent> {
        let (watcher, watch) = watch(scope);
        let mut inner = self.lock();
        inner.watchers.retain(Watcher::is_read);
        inner.watchers.push(watcher);
        watch.boxed()
    }
}
