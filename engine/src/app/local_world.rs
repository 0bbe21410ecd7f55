//! Hosts of one process that find each other, in virtual time: for tests, examples and a first look.

use std::cell::Cell;

use super::builder::HostBuilder;
use super::host::HostHandle;
use crate::driver::local::{LocalNetwork, LocalRuntime};
use crate::driver::{Clock, Executor};
use crate::model::{Error, StoreTime};

/// One [`LocalRuntime`] and one [`LocalNetwork`] with any number of hosts on them.
///
/// It runs the same loop and core as production; only wires and clock are different. A run repeats exactly.
#[derive(Default)]
pub struct LocalWorld {
    runtime: LocalRuntime,
    network: LocalNetwork,
    started: Cell<u64>,
}

impl LocalWorld {
    /// A world without hosts.
    #[must_use]
    pub fn new() -> Self {
        Self { runtime: LocalRuntime::new(), network: LocalNetwork::new(), started: Cell::new(0) }
    }

    /// Starts a host and lets the world run until it serves.
    ///
    /// # Errors
    /// Configuration as in [`HostBuilder::build`], or the error of the host's startup.
    pub fn start(&self, host: HostBuilder) -> Result<HostHandle, Error> {
        let plan = host.build()?;
        let transport = self.network.transport();
        // Two hosts of a world never share a seed: their number is part of it.
        let number = self.started.replace(self.started.get() + 1);
        let mut seed = *b"a local world's seed, and number";
        seed[24..].copy_from_slice(&number.to_be_bytes());
        let (host, driver) = plan.start(transport, self.runtime.clone(), self.runtime.clone(), seed)?;
        self.runtime.spawn(Box::pin(driver));
        self.block_on(host.wait_serving())?;
        Ok(host)
    }

    /// Runs all hosts until `future` ends.
    ///
    /// # Panics
    /// As [`LocalRuntime::block_on`].
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Its runtime, a Clock and an Executor.
    #[must_use]
    pub fn runtime(&self) -> &LocalRuntime {
        &self.runtime
    }

    /// A clock for a Store of this world, so that leases end in the world's time.
    pub fn store_clock(&self) -> impl Fn() -> StoreTime + Send + Sync + 'static + use<> {
        let runtime = self.runtime.clone();
        move || {
            let micros = runtime.now().as_nanos() / 1_000;
            StoreTime::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
        }
    }
}
