//! The memory store behind madsim's time, with faults.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::channel::mpsc;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use spotmesh::driver::LocationStore;
use spotmesh::store::{StoreError, StoreEvent, StoreRequest, StoreResult, WatchScope};
use spotmesh_store_memory::{State, apply_with_hints};

use super::clock::MadClock;
use crate::action::StoreFault;
use crate::agenda::{Nanos, micros, millis};
use crate::draw::noise_between;
use crate::store::StoreSide;

/// The Store of a simulation. Clones are the same Store; it survives every node.
#[derive(Clone)]
pub struct MadStore {
    shared: Arc<Mutex<Shared>>,
    clock: MadClock,
}

struct Shared {
    state: State,
    seed: u64,
    calls: u64,
    watchers: Vec<(WatchScope, mpsc::UnboundedSender<StoreEvent>)>,
    faults: Vec<(Option<String>, StoreFault, u32)>,
    out_until: Nanos,
    applied: u64,
}

impl MadStore {
    /// An empty Store.
    #[must_use]
    pub fn new(seed: u64, clock: MadClock) -> Self {
        let shared = Shared {
            state: State::default(),
            seed,
            calls: 0,
            watchers: Vec::new(),
            faults: Vec::new(),
            out_until: 0,
            applied: 0,
        };
        Self { shared: Arc::new(Mutex::new(shared)), clock }
    }

    /// The next calls of an operation, by its name in spec 03, or of any, meet a fault.
    pub fn fault(&self, op: Option<&str>, fault: StoreFault, count: u32) {
        self.lock().faults.push((op.map(str::to_owned), fault, count));
    }

    /// Nobody reaches the Store for a while.
    pub fn outage(&self, lasting: Nanos) {
        let until = self.clock.nanos() + lasting;
        self.lock().out_until = until;
    }

    /// Asks the Store directly, without delay or fault.
    pub fn ask(&self, request: &StoreRequest) -> StoreResult {
        let now = StoreSide::time(self.clock.nanos());
        apply_with_hints(&mut self.lock().state, now, request).0
    }

    /// The Store's own invariants.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check(&self) -> Result<(), String> {
        self.lock().state.check().map_err(|found| found.to_string())
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, request: &StoreRequest) -> StoreResult {
        let now = StoreSide::time(self.clock.nanos());
        let mut shared = self.lock();
        shared.applied += 1;
        let (result, hints) = apply_with_hints(&mut shared.state, now, request);
        for event in hints {
            shared.watchers.retain(|(scope, watcher)| {
                !scope.covers(&event) || watcher.unbounded_send(event.clone()).is_ok()
            });
        }
        result
    }

    /// Delays there and back, and the fault of the next call.
    fn plan(&self, name: &str) -> (Nanos, Nanos, Option<StoreFault>) {
        let now = self.clock.nanos();
        let mut shared = self.lock();
        shared.calls += 1;
        let (seed, count) = (shared.seed, shared.calls);
        let there = micros(noise_between(seed, 0x57, count, 200, 2_000));
        let back = micros(noise_between(seed, 0x58, count, 200, 2_000));
        if now < shared.out_until {
            return (there, back, Some(StoreFault::FailBefore));
        }
        let fits = |(op, _, _): &(Option<String>, StoreFault, u32)| op.as_deref().is_none_or(|op| op == name);
        let fault = shared.faults.iter().position(fits).map(|at| {
            let fault = shared.faults[at].1;
            shared.faults[at].2 = shared.faults[at].2.saturating_sub(1);
            if shared.faults[at].2 == 0 {
                shared.faults.remove(at);
            }
            fault
        });
        (there, back, fault)
    }
}

impl LocationStore for MadStore {
    fn call(&self, request: StoreRequest) -> BoxFuture<'static, StoreResult> {
        let store = self.clone();
        Box::pin(async move {
            let sleep = |nanos| madsim::time::sleep(std::time::Duration::from_nanos(nanos));
            let (there, back, fault) = store.plan(request.name());
            sleep(there).await;
            match fault {
                None => {
                    let result = store.apply(&request);
                    sleep(back).await;
                    result
                }
                Some(StoreFault::FailBefore) => Err(StoreError::Unavailable),
                Some(StoreFault::LostBefore) => Err(StoreError::Indeterminate),
                Some(StoreFault::LostAfter) => {
                    let _ = store.apply(&request);
                    Err(StoreError::Indeterminate)
                }
                Some(StoreFault::AppliesLater(ms)) => {
                    // Also where the caller dies meanwhile: the request is on its way.
                    drop(madsim::task::spawn(async move {
                        madsim::time::sleep(std::time::Duration::from_nanos(millis(u64::from(ms)))).await;
                        let _ = store.apply(&request);
                    }));
                    Err(StoreError::Indeterminate)
                }
                Some(StoreFault::Silent(applied)) => {
                    if applied {
                        let _ = store.apply(&request);
                    }
                    std::future::pending().await
                }
                Some(StoreFault::Slow(ms) | StoreFault::Late(ms)) => {
                    sleep(millis(u64::from(ms))).await;
                    let result = store.apply(&request);
                    sleep(back).await;
                    result
                }
            }
        })
    }

    fn watch(&self, scope: WatchScope) -> BoxStream<'static, StoreEvent> {
        let (send, receive) = mpsc::unbounded();
        self.lock().watchers.push((scope, send));
        Box::pin(receive)
    }
}
