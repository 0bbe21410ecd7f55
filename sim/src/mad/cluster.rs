//! A cluster of simulated processes, each with a host built from the embedding API.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use madsim::runtime::{Handle, NodeHandle, Runtime};
use spotmesh::app::{HostBuilder, HostHandle};
use spotmesh::model::HostState;

use super::clock::{MadClock, MadExecutor};
use super::network::MadNetwork;
use super::store::MadStore;
use crate::draw::seed_bytes;
use crate::net::{NetworkSpec, Notice};
use crate::place::{RunOf, Seat};

/// Runs a simulation of a seed to its end, on a thread of its own: madsim's determinism needs a fresh one.
///
/// # Panics
/// As the simulation does; the seed is part of the message on standard error.
pub fn with_seed<F>(seed: u64, simulation: impl FnOnce(u64) -> F + Send + 'static) -> F::Output
where
    F: Future,
    F::Output: Send + 'static,
{
    let thread = std::thread::spawn(move || {
        let mut runtime = Runtime::with_seed_and_config(seed, madsim::Config::default());
        runtime.set_time_limit(Duration::from_secs(3_600));
        runtime.block_on(simulation(seed))
    });
    thread.join().unwrap_or_else(|panic| {
        eprintln!("the simulation of seed {seed} failed");
        std::panic::resume_unwind(panic)
    })
}

type Current = Arc<Mutex<BTreeMap<Seat, (u32, HostHandle)>>>;

/// Simulated processes over one network and one Store.
pub struct Cluster {
    seed: u64,
    clock: MadClock,
    /// The Store all processes use.
    pub store: MadStore,
    /// The network between them.
    pub network: MadNetwork,
    nodes: Vec<NodeHandle>,
    current: Current,
}

impl Cluster {
    /// A cluster without processes. Call it inside [`with_seed`].
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let clock = MadClock::start();
        Self {
            seed,
            clock,
            store: MadStore::new(seed, clock),
            network: MadNetwork::start(NetworkSpec::default(), seed, clock),
            nodes: Vec::new(),
            current: Arc::default(),
        }
    }

    /// Starts a process; `describe` builds its host anew for every run.
    pub fn start(&mut self, describe: impl Fn(MadStore) -> HostBuilder + Send + Sync + 'static) -> Seat {
        let seat = Seat(u8::try_from(self.nodes.len()).unwrap_or(u8::MAX));
        let (seed, clock) = (self.seed, self.clock);
        let (store, network, current) = (self.store.clone(), self.network.clone(), Arc::clone(&self.current));
        let describe = Arc::new(describe);
        let runs = Arc::new(Mutex::new(0u32));
        let handle = Handle::current();
        let node = handle.create_node().name(format!("{seat}")).init(move || {
            let (store, network) = (store.clone(), network.clone());
            let (describe, current) = (Arc::clone(&describe), Arc::clone(&current));
            let run = {
                let mut runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
                *runs += 1;
                *runs
            };
            async move {
                let bytes = seed_bytes(seed, 0x3ad << 40 | u64::from(seat.0) << 32 | u64::from(run));
                let transport = network.transport(RunOf { seat, run });
                let plan = describe(store).build().unwrap_or_else(|error| panic!("{seat}: {error}"));
                let (handle, driver) = plan
                    .start(transport, clock, MadExecutor, bytes)
                    .unwrap_or_else(|error| panic!("{seat}: {error}"));
                current.lock().unwrap_or_else(PoisonError::into_inner).insert(seat, (run, handle));
                driver.await;
            }
        });
        self.nodes.push(node.build());
        seat
    }

    /// The handle of the process that runs on a seat now.
    ///
    /// # Panics
    /// Where none was started yet: let some virtual time pass first.
    #[must_use]
    pub fn host(&self, seat: Seat) -> HostHandle {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        match current.get(&seat) {
            Some((_, handle)) => handle.clone(),
            None => panic!("{seat} has not started"),
        }
    }

    /// Waits until every process serves and the hosts had time to find each other.
    ///
    /// # Panics
    /// Where one does not serve within a minute.
    pub async fn wait_serving(&self) {
        for _ in 0..600 {
            self.sleep(Duration::from_millis(100)).await;
            let serving = {
                let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
                current.values().filter(|(_, host)| host.state() == HostState::Serving).count()
            };
            if serving == self.nodes.len() {
                self.sleep(Duration::from_secs(3)).await;
                return;
            }
        }
        panic!("some process does not serve within a minute");
    }

    /// Lets virtual time pass.
    pub async fn sleep(&self, lasting: Duration) {
        madsim::time::sleep(lasting).await;
    }

    /// Kills a process: its tasks are dropped wherever they are. Peers learn of it as `notice` says.
    pub fn kill(&self, seat: Seat, notice: Notice, flush: bool) {
        self.network.on_death(seat, notice, flush);
        Handle::current().kill(self.nodes[usize::from(seat.0)].id());
    }

    /// Starts a new process where one was killed.
    pub fn restart(&self, seat: Seat) {
        Handle::current().restart(self.nodes[usize::from(seat.0)].id());
    }

    /// Stops a process; the simulation's clock goes on.
    pub fn pause(&self, seat: Seat) {
        Handle::current().pause(self.nodes[usize::from(seat.0)].id());
    }

    /// Lets a paused process go on.
    pub fn resume(&self, seat: Seat) {
        Handle::current().resume(self.nodes[usize::from(seat.0)].id());
    }
}
