//! The LocationStore trait: one call for every operation, and a stream of hints.

use std::future::Future;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;

use crate::store::{StoreError, StoreEvent, StoreOperation, StoreRequest, StoreResult, WatchScope};

/// A provider of the Location Store contract (spec 03 §16).
///
/// There is a single `call` because requests are data: a call can be recorded, re-issued verbatim to settle a
/// lost answer (STORE-24, STORE-25) and faulted in one place. Typed calls are in [`LocationStoreExt`].
pub trait LocationStore: Send + Sync + 'static {
    /// Carries one operation out.
    ///
    /// Dropping the future before its first poll does no I/O; dropping it later leaves the result unknown, as
    /// `Indeterminate` does (STORE-27).
    fn call(&self, request: StoreRequest) -> BoxFuture<'static, StoreResult>;

    /// Hints about a scope, from now until the stream is dropped. They may be lost, repeated or merged; after
    /// a gap the stream delivers `Resync` (STORE-112).
    fn watch(&self, scope: WatchScope) -> BoxStream<'static, StoreEvent>;
}

impl<S: LocationStore + ?Sized> LocationStore for Arc<S> {
    fn call(&self, request: StoreRequest) -> BoxFuture<'static, StoreResult> {
        (**self).call(request)
    }

    fn watch(&self, scope: WatchScope) -> BoxStream<'static, StoreEvent> {
        (**self).watch(scope)
    }
}

/// Typed calls on any [`LocationStore`].
pub trait LocationStoreExt: LocationStore {
    /// Carries one operation out and unwraps its output.
    ///
    /// # Errors
    /// The failures of the operation (STORE-22); `Corrupt` where the provider answers with the output of
    /// another operation, which is a defect of the provider.
    fn execute<O: StoreOperation>(
        &self,
        operation: O,
    ) -> impl Future<Output = Result<O::Output, StoreError>> + Send {
        let request = operation.into_request();
        let name = request.name();
        let reply = self.call(request);
        async move {
            O::from_reply(reply.await?)
                .ok_or_else(|| StoreError::Corrupt(format!("{name}: reply of another operation")))
        }
    }
}

impl<S: LocationStore + ?Sized> LocationStoreExt for S {}
