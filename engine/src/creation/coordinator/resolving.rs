//! Resolve, Waiting and Cleanup: what a read of the key means (CREATE-26..36, -81..89).

use std::time::Duration;

use crate::input::CreateMode;
use crate::mark::Mark;
use crate::model::ErrorKind;
use crate::model::limits::WAITER_BACKOFF_MAX;
use crate::output::Answer;
use crate::store::{AbortRecovery, AuthorityView, CreationView, Mark as RowMark, ReadCreation, StoreError};

use super::ending::{actor_ref, replayed};
use super::{Coordinator, CoordinatorContext, CoordinatorEffect, Out, State};

impl Coordinator {
    pub(super) fn resolve(&mut self, out: Out<'_>) -> State {
        self.hinted = false;
        out.push(CoordinatorEffect::Call(
            ReadCreation { key: self.spec.key.clone(), operation: self.operation.clone() }.into(),
        ));
        State::Resolve
    }

    /// The rows of Resolve, in the order of the table.
    pub(super) fn resolved(
        &mut self,
        view: CreationView,
        cx: &mut CoordinatorContext<'_>,
        out: Out<'_>,
    ) -> State {
        if let Some(record) = &view.terminal {
            out.push(CoordinatorEffect::Mark(Mark::CreateRecordReplayed));
            return self.finish(replayed(&record.envelope, cx), out); // CREATE-26
        }
        let Some(row) = view.authority.found() else {
            out.push(CoordinatorEffect::Choose);
            return State::Select; // CREATE-35
        };
        if row.kind != self.spec.kind || row.stable_type != self.spec.stable_type {
            out.push(CoordinatorEffect::Mark(Mark::CreateTypeMismatch));
            let found =
                format!("expected {}, found {:?} {}", self.spec.stable_type, row.kind, row.stable_type);
            return self.fail(ErrorKind::TypeMismatch, found, out); // CREATE-29, -85
        }
        let Some(pending) = row.pending() else { return self.ready(row, cx, out) };
        if view.abandoned().is_some() {
            let Some(lease) = cx.lease else { return self.no_lease(cx, out) };
            out.push(CoordinatorEffect::Mark(Mark::CreateCleanedByCoordinator));
            let abort = AbortRecovery { key: row.key.clone(), version: row.version, lease };
            out.push(CoordinatorEffect::Call(abort.into()));
            return State::Cleanup; // CREATE-34, -84
        }
        if pending.operation == self.operation
            && let Some(fence) = row.reservation_fence()
        {
            out.push(CoordinatorEffect::Mark(Mark::CreateOwnReservationFound));
            // Somebody may have taken it up while this operation did not know of it.
            self.order_given = true;
            return self.dispatch(Box::new(fence), out); // CREATE-33
        }
        if cx.planted_creating_existing {
            let actor = actor_ref(&row.key, row.object_generation, &row.owner.mesh, &row.owner.rid);
            return self.finish(actor.map(|actor| Answer::Existing { actor }), out);
        }
        self.wait(cx, out) // CREATE-32
    }

    pub(super) fn ready(
        &mut self,
        row: &AuthorityView,
        cx: &mut CoordinatorContext<'_>,
        out: Out<'_>,
    ) -> State {
        if matches!(row.mark(), Some(RowMark::Closing(_))) {
            return self.wait(cx, out); // CREATE-31
        }
        if self.spec.mode == CreateMode::Create {
            return self.fail(ErrorKind::AlreadyExists, "the object exists".to_owned(), out); // CREATE-27, -28, -30
        }
        if !row.owner_is_live() {
            out.push(CoordinatorEffect::Mark(Mark::CreateOwnerDead));
            return self.fail(ErrorKind::Unavailable, "the object's owner is dead".to_owned(), out); // CREATE-28
        }
        out.push(CoordinatorEffect::Mark(Mark::CreateExisting));
        let actor = actor_ref(&row.key, row.object_generation, &row.owner.mesh, &row.owner.rid);
        self.finish(actor.map(|actor| Answer::Existing { actor }), out) // CREATE-27, -30, -81
    }

    pub(super) fn wait(&mut self, cx: &mut CoordinatorContext<'_>, out: Out<'_>) -> State {
        out.push(CoordinatorEffect::Mark(Mark::CreateWaited));
        self.only_failures = false;
        if !self.watching {
            self.watching = true;
            out.push(CoordinatorEffect::Watch);
        }
        if self.hinted {
            return self.resolve(out);
        }
        self.back_off(cx, out);
        State::Waiting
    }

    /// Sets the backoff timer with jitter: 50 ms doubling to 1 s (spec 03 §15).
    pub(super) fn back_off(&mut self, cx: &mut CoordinatorContext<'_>, out: Out<'_>) {
        let fifth = u64::try_from(self.backoff.as_nanos() / 5).unwrap_or(0);
        let wait = self.backoff - Duration::from_nanos(cx.entropy.below(fifth));
        out.push(CoordinatorEffect::SetBackoff(cx.now + wait));
        self.backoff = (self.backoff * 2).min(WAITER_BACKOFF_MAX);
    }

    pub(super) fn store_failed(
        &mut self,
        error: &StoreError,
        cx: &mut CoordinatorContext<'_>,
        out: Out<'_>,
    ) -> State {
        match error {
            StoreError::DataLost | StoreError::Corrupt(_) => {
                self.fail(ErrorKind::DataLost, error.to_string(), out)
            }
            _ => {
                out.push(CoordinatorEffect::Mark(Mark::CreateStoreFailure));
                self.failure_seen = true;
                self.back_off(cx, out);
                State::BackingOff // CREATE-36, -87
            }
        }
    }
}
