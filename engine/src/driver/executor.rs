//! The Executor trait: where work runs that the loop does not run itself.

use std::sync::Arc;

use futures::future::BoxFuture;

/// Runs futures to their end, on whatever threads it has.
pub trait Executor: Send + Sync + 'static {
    /// Starts a task. The driver spawns Store calls and, where so configured, turns that wait.
    fn spawn(&self, future: BoxFuture<'static, ()>);
}

impl<E: Executor + ?Sized> Executor for Arc<E> {
    fn spawn(&self, future: BoxFuture<'static, ()>) {
        (**self).spawn(future);
    }
}
