//! Virtual time and madsim's tasks as the driver's Clock and Executor.

use std::time::Duration;

use futures::future::BoxFuture;
use spotmesh::driver::{Clock, Executor};
use spotmesh::model::Instant;

use crate::agenda::Nanos;

/// The simulation's clock; all nodes share it.
#[derive(Debug, Clone, Copy)]
pub struct MadClock {
    origin: madsim::time::Instant,
}

impl MadClock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> Self {
        Self { origin: madsim::time::Instant::now() }
    }

    /// Nanoseconds since its start.
    #[must_use]
    pub fn nanos(&self) -> Nanos {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Completes at that time.
    pub async fn until(&self, at: Nanos) {
        madsim::time::sleep_until(self.origin + Duration::from_nanos(at)).await;
    }
}

impl Clock for MadClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.nanos())
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        let clock = *self;
        Box::pin(async move { clock.until(at.as_nanos()).await })
    }
}

/// Spawns on the simulated node that is running.
#[derive(Debug, Clone, Copy, Default)]
pub struct MadExecutor;

impl Executor for MadExecutor {
    fn spawn(&self, future: BoxFuture<'static, ()>) {
        drop(madsim::task::spawn(future));
    }
}
