//! A checked description of a host, and its start.

use std::sync::Arc;

use super::host::HostHandle;
use super::typed::Registry;
use crate::config::HostConfig;
use crate::driver::{Clock, Driver, Executor, LocationStore, Surroundings, Transport, TurnPlacement};
use crate::host::Host;
use crate::model::Error;

/// A host that was checked and not started.
#[must_use = "a plan starts nothing"]
pub struct HostPlan {
    config: HostConfig,
    registry: Arc<Registry>,
    store: Option<Arc<dyn LocationStore>>,
    placement: TurnPlacement,
}

impl HostPlan {
    pub(crate) fn new(
        config: HostConfig,
        registry: Arc<Registry>,
        store: Option<Arc<dyn LocationStore>>,
        placement: TurnPlacement,
    ) -> Self {
        Self { config, registry, store, placement }
    }

    /// What the core will be told.
    #[must_use]
    pub fn config(&self) -> &HostConfig {
        &self.config
    }

    /// Makes the host: a handle, and the future that is its loop. Nothing happens before the loop is polled;
    /// it ends when the host has stopped.
    ///
    /// `seed` is the source of all the host's random choices. In production it comes from the system's
    /// generator: two host runs must never share one (MODEL-27).
    ///
    /// # Errors
    /// `Configuration` as in [`HostConfig::check`].
    pub fn start<T: Transport, C: Clock, E: Executor>(
        self,
        transport: T,
        clock: C,
        executor: E,
        seed: [u8; 32],
    ) -> Result<(HostHandle, impl Future<Output = ()>), Error> {
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let settings = self.config.settings.clone();
        let core = Host::new(self.config, seed, clock.now())?;
        let around = Surroundings {
            store: self.store,
            clock,
            executor: Arc::new(executor),
            application: self.registry,
            placement: self.placement,
            settings,
        };
        let (port, driver) = Driver::new(core, transport, around);
        Ok((HostHandle::new(port), driver.run()))
    }
}
