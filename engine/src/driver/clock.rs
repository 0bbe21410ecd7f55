//! The Clock trait: the only place where time enters a host.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::model::Instant;

/// A monotonic clock of one process.
///
/// It must keep counting while the process is stopped or the system suspended (STORE-32): a host judges by it
/// whether its lease still holds (MODEL-29).
pub trait Clock: Send + Sync + 'static {
    /// Now, in nanoseconds since an origin of the clock's choice. Never smaller than a value given before.
    fn now(&self) -> Instant;

    /// Completes at `at` or soon after, at once where `at` has passed. Dropping it ends the wait.
    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()>;
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Instant {
        (**self).now()
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        (**self).sleep_until(at)
    }
}
