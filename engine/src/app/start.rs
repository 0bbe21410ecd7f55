//! From a checked description to a running host.

use std::sync::Arc;

use super::host::HostHandle;
use super::plan::HostPlan;
use crate::driver::{Clock, Driver, Executor, Surroundings, Transport};
use crate::host::Host;
use crate::model::Error;

impl HostPlan {
    /// Makes the host: a handle, and the future that is its loop. Nothing happens before the loop is polled;
    /// it ends when the host has stopped.
    ///
    /// `seed` is the source of all the host's random choices. In production it comes from the system's
    /// generator: two host runs must never share one (MODEL-27).
    ///
    /// # Errors
    /// `Configuration` as in [`HostConfig::check`](crate::config::HostConfig::check).
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
