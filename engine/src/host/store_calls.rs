//! Store calls: who waits for which, and for how long.

use std::time::Duration;

use serde::Serialize;

use super::{Host, TimerKey};
use crate::input::{CallId, StoreCallId};
use crate::link::NodeIndex;
use crate::model::{ObjectKey, OperationId, ReservationId};
use crate::output::Output;
use crate::store::{StoreError, StoreRequest, StoreResult};

/// Who waits for the answer of a Store call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(super) enum StoreUse {
    Lease,
    Startup,
    Discovery(NodeIndex),
    Publish(NodeIndex),
    Create(OperationId),
    Attempt(ReservationId),
    Recovery,
    Route(ObjectKey),
    Find(CallId),
    Reconcile,
    Shutdown,
    /// Nobody: best effort.
    Nobody,
}

impl Host {
    pub(super) fn call_store(&mut self, used_by: StoreUse, request: StoreRequest) -> StoreCallId {
        let timeout = self.config.settings.store_call_timeout;
        self.call_store_within(used_by, request, timeout)
    }

    pub(super) fn call_store_within(
        &mut self,
        used_by: StoreUse,
        request: StoreRequest,
        timeout: Duration,
    ) -> StoreCallId {
        let call = StoreCallId(self.fresh());
        self.store_calls.insert(call, used_by);
        self.timers.set(TimerKey::StoreCall(call), self.now + timeout);
        self.outputs.push_back(Output::CallStore { call, request: Box::new(request), timeout });
        call
    }

    /// STORE-27: a call that has started and is not answered in time is Indeterminate.
    pub(super) fn store_timed_out(&mut self, call: StoreCallId) {
        self.store_answered(call, Err(StoreError::Indeterminate));
    }

    pub(super) fn store_answered(&mut self, call: StoreCallId, result: StoreResult) {
        // An answer after its call's deadline finds nobody.
        let Some(used_by) = self.store_calls.remove(&call) else { return };
        self.timers.cancel(&TimerKey::StoreCall(call));
        self.routes.store_was_reached(&result);
        match used_by {
            StoreUse::Lease => self.lease_answered(result),
            StoreUse::Startup => self.startup_answered(call, result),
            StoreUse::Discovery(node) => self.discovery_answered(node, result),
            StoreUse::Publish(node) => self.published(node, &result),
            StoreUse::Create(operation) => self.create_store_answered(operation, call, result),
            StoreUse::Attempt(reservation) => self.attempt_store_answered(reservation, call, result),
            StoreUse::Recovery => self.recovery_answered(result),
            StoreUse::Route(key) => self.route_read(&key, result),
            StoreUse::Find(call) => self.found(call, result),
            StoreUse::Reconcile => self.reconcile_answered(result),
            StoreUse::Shutdown => self.shutdown_answered(&result),
            StoreUse::Nobody => {}
        }
    }
}
