//! Faults around any Location Store (STORE-135): calls that fail, answers that are lost, hints that are dropped.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};

use super::store::LocationStore;
use crate::store::{StoreError, StoreEvent, StoreRequest, StoreResult, WatchScope};

/// What happens to one call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum StoreFault {
    /// Nothing.
    #[default]
    None,
    /// The request never leaves: `Unavailable`.
    FailBefore,
    /// The request is applied, the answer lost: `Indeterminate`.
    LoseAnswer,
    /// The request is lost on its way: `Indeterminate`.
    LoseRequest,
    /// The answer is `Indeterminate`, and the request is applied later, by [`FaultyStore::deliver_late`]
    /// (STORE-24).
    ApplyLate,
}

/// Decides what happens to calls and hints.
pub trait FaultPlan: Send + Sync + 'static {
    /// What happens to this call, and how long it waits before anything else.
    fn on_call(&self, request: &StoreRequest) -> (StoreFault, Duration);

    /// Whether this hint is dropped.
    fn drops_event(&self, scope: &WatchScope, event: &StoreEvent) -> bool;
}

/// Waits; injected, because only the embedder has a clock.
pub type Sleep = Arc<dyn Fn(Duration) -> BoxFuture<'static, ()> + Send + Sync>;

/// A Location Store with faults in front of it. Clones share plan and late requests.
pub struct FaultyStore<S, P> {
    shared: Arc<Shared<S, P>>,
}

struct Shared<S, P> {
    store: S,
    plan: P,
    sleep: Sleep,
    late: Mutex<Vec<StoreRequest>>,
}

impl<S, P> Clone for FaultyStore<S, P> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<S: LocationStore, P: FaultPlan> FaultyStore<S, P> {
    /// `store` under the faults of `plan`.
    pub fn new(store: S, plan: P, sleep: Sleep) -> Self {
        let late = Mutex::new(Vec::new());
        Self { shared: Arc::new(Shared { store, plan, sleep, late }) }
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &P {
        &self.shared.plan
    }

    /// The store without faults.
    #[must_use]
    pub fn inner(&self) -> &S {
        &self.shared.store
    }

    /// Applies the requests held back by [`StoreFault::ApplyLate`], in the order of their calls. Nobody sees
    /// their answers but the caller of this.
    pub fn deliver_late(&self) -> impl Future<Output = Vec<StoreResult>> + Send + use<S, P> {
        let shared = self.shared.clone();
        async move {
            let held: Vec<_> =
                std::mem::take(&mut *shared.late.lock().unwrap_or_else(PoisonError::into_inner));
            let mut results = Vec::with_capacity(held.len());
            for request in held {
                results.push(shared.store.call(request).await);
            }
            results
        }
    }
}

impl<S: LocationStore, P: FaultPlan> LocationStore for FaultyStore<S, P> {
    fn call(&self, request: StoreRequest) -> BoxFuture<'static, StoreResult> {
        let shared = self.shared.clone();
        async move {
            let (fault, delay) = shared.plan.on_call(&request);
            if !delay.is_zero() {
                (shared.sleep)(delay).await;
            }
            match fault {
                StoreFault::None => shared.store.call(request).await,
                StoreFault::FailBefore => Err(StoreError::Unavailable),
                StoreFault::LoseRequest => Err(StoreError::Indeterminate),
                StoreFault::LoseAnswer => {
                    // Whatever the answer is, it is lost.
                    drop(shared.store.call(request).await);
                    Err(StoreError::Indeterminate)
                }
                StoreFault::ApplyLate => {
                    shared.late.lock().unwrap_or_else(PoisonError::into_inner).push(request);
                    Err(StoreError::Indeterminate)
                }
            }
        }
        .boxed()
    }

    fn watch(&self, scope: WatchScope) -> BoxStream<'static, StoreEvent> {
        let shared = self.shared.clone();
        let events = self.shared.store.watch(scope.clone());
        events
            .filter(move |event| {
                let dropped = shared.plan.drops_event(&scope, event);
                async move { !dropped }
            })
            .boxed()
    }
}
