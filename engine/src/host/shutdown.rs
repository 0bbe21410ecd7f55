//! Shutdown (spec 09 §9): seal, publish Draining, finish, release rows, descriptors and the lease.

use std::time::Duration;

use serde::Serialize;

use super::store_calls::StoreUse;
use super::{Host, TimerKey};
use crate::input::CallId;
use crate::lease::LeaseEvent;
use crate::mark::Mark;
use crate::model::limits::{PAGE_MAX, WAITER_BACKOFF_FIRST};
use crate::model::{Error, ErrorKind, HostState, LeaseRef};
use crate::output::{Answer, Output};
use crate::store::{
    ReleaseLease, RemoveOwnerRows, StoreError, StoreReply, StoreRequest, StoreResult, UpdateDescriptor,
};
use crate::wire::CreateVerdict;

/// Where Shutdown stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
enum Step {
    /// Startup is being undone first.
    Undoing,
    /// Step 2: publishes Draining for a node.
    Publish(usize),
    /// Step 3: accepted turns and attempts end.
    Finish,
    /// Step 6: removes the host's rows.
    Rows,
    /// Step 7: withdraws the descriptor of a node.
    Descriptors(usize),
    /// Step 7: releases the lease, which is not renewed any more.
    Lease(LeaseRef),
    /// Stopped.
    Ended,
}

/// One Shutdown; later calls join it (HOST-51).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(super) struct Shutdown {
    step: Step,
    callers: Vec<CallId>,
    forced: bool,
}

impl Host {
    pub(super) fn shutdown_called(&mut self, call: CallId, timeout: Duration) {
        if let Some(running) = &mut self.shutdown {
            if running.step == Step::Ended {
                let forced = running.forced;
                return self.answer(call, Answer::ShutDown { forced });
            }
            return running.callers.push(call);
        }
        let Some(timeout) = (!timeout.is_zero()).then_some(timeout) else {
            let error = Error::new(
                ErrorKind::InvalidOperation,
                "shutdown",
                "expected a positive timeout, found zero",
            );
            return self.answer(call, Answer::Failed(error));
        };
        self.shutdown = Some(Shutdown { step: Step::Undoing, callers: vec![call], forced: false });
        self.timers.set(TimerKey::Shutdown, self.now + timeout);
        let interrupted = self.interrupt_startup();
        if interrupted {
            return;
        }
        if self.lease.is_lost() || self.state == HostState::Error {
            self.set_state(HostState::Draining);
            self.force();
            return self.shutdown_end();
        }
        // Step 1: the admission seal. Calls that were not handed over yet end now.
        self.set_state(HostState::Draining);
        self.stop_background();
        self.tell_peers_state(HostState::Draining);
        self.enter_shutdown(Step::Publish(0));
    }

    pub(super) fn shutdown_dropped(&mut self, call: CallId) {
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.callers.retain(|caller| *caller != call); // HOST-17: ends only that wait
        }
    }

    /// Whether the host's rows are going or gone: no attempt can start any more.
    pub(super) fn shutdown_is_releasing(&self) -> bool {
        let step = self.shutdown.as_ref().map(|shutdown| shutdown.step);
        !matches!(step, None | Some(Step::Publish(_) | Step::Finish))
    }

    fn force(&mut self) {
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.forced = true;
        }
        self.mark(Mark::ShutdownForced);
    }

    fn enter_shutdown(&mut self, step: Step) {
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.step = step;
        }
        self.shutdown_step();
    }

    /// Begins what the current step needs, or repeats it.
    pub(super) fn shutdown_step(&mut self) {
        let Some(step) = self.shutdown.as_ref().map(|shutdown| shutdown.step) else { return };
        let lease = self.lease.lease();
        match (step, lease) {
            (Step::Undoing | Step::Ended, _) => {}
            (Step::Publish(at), Some(lease)) if at < self.nodes.len() => {
                if !self.config.nodes[at].needs_store() {
                    return self.enter_shutdown(Step::Publish(at + 1));
                }
                let descriptor = self.nodes[at].descriptor(&self.config, HostState::Draining);
                self.call_store(StoreUse::Shutdown, UpdateDescriptor { descriptor, lease }.into());
            }
            (Step::Publish(_), _) => self.enter_shutdown(Step::Finish),
            (Step::Finish, _) => self.shutdown_progress(),
            (Step::Rows, Some(lease)) => {
                let remove = RemoveOwnerRows { lease, limit: PAGE_MAX };
                self.call_store(StoreUse::Shutdown, remove.into());
            }
            (Step::Descriptors(at), Some(lease)) if at < self.nodes.len() => {
                if !self.nodes[at].claimed {
                    return self.enter_shutdown(Step::Descriptors(at + 1));
                }
                let remove: StoreRequest = self.nodes[at].removal(lease).into();
                self.call_store(StoreUse::Shutdown, remove);
            }
            (Step::Descriptors(_), Some(lease)) => {
                // HOST-53: renewal ends here. One that met the released lease would look like its loss.
                self.lease_event(LeaseEvent::Release);
                self.timers.cancel(&TimerKey::Lease);
                self.enter_shutdown(Step::Lease(lease));
            }
            (Step::Lease(lease), _) => {
                self.call_store(StoreUse::Shutdown, ReleaseLease { lease }.into());
            }
            (Step::Rows | Step::Descriptors(_), None) => self.shutdown_end(),
        }
    }

    /// Step 3 ends when no turn, attempt or call is left.
    pub(super) fn shutdown_progress(&mut self) {
        let finishing = self.shutdown.as_ref().is_some_and(|shutdown| shutdown.step == Step::Finish);
        if finishing && self.turns.is_empty() && self.attempts.is_empty() && self.objects.all_idle() {
            self.release_objects();
        }
    }

    /// Steps 4 and 5, then the Store. Actors have no closing callback of their own (HOST-56).
    fn release_objects(&mut self) {
        self.end_all_work(ErrorKind::ShuttingDown);
        self.enter_shutdown(Step::Rows);
    }

    pub(super) fn shutdown_answered(&mut self, result: &StoreResult) {
        let Some(step) = self.shutdown.as_ref().map(|shutdown| shutdown.step) else { return };
        match (step, result) {
            // STORE-34: with the lease gone nothing may be written; the rows count as a dead owner's (K29).
            (_, Err(StoreError::LeaseLost)) => {
                self.force();
                self.end_all_work(ErrorKind::ShuttingDown);
                self.shutdown_end();
            }
            (_, Err(StoreError::Unavailable | StoreError::Indeterminate)) => {
                self.timers.set(TimerKey::ShutdownStep, self.now + WAITER_BACKOFF_FIRST);
            }
            (Step::Publish(at), _) => self.enter_shutdown(Step::Publish(at + 1)),
            (Step::Rows, Ok(StoreReply::Count(left))) if left.value > 0 => self.shutdown_step(),
            (Step::Rows, _) => self.enter_shutdown(Step::Descriptors(0)),
            (Step::Descriptors(at), _) => {
                self.nodes[at].claimed = false;
                self.enter_shutdown(Step::Descriptors(at + 1));
            }
            (Step::Lease(_), _) => self.shutdown_end(),
            (Step::Undoing | Step::Finish | Step::Ended, _) => {}
        }
    }

    pub(super) fn shutdown_after_undo(&mut self) {
        self.set_state(HostState::Draining);
        self.shutdown_end();
    }

    /// HOST-75: teardown goes on without Store writes.
    pub(super) fn shutdown_lease_lost(&mut self) {
        self.force();
        self.shutdown_end();
    }

    /// HOST table: what is not finished by the deadline is given up.
    pub(super) fn shutdown_deadline(&mut self) {
        let Some(step) = self.shutdown.as_ref().map(|shutdown| shutdown.step) else { return };
        if step == Step::Ended {
            return;
        }
        self.force();
        self.end_all_work(ErrorKind::ShuttingDown);
        self.shutdown_end();
    }

    fn shutdown_end(&mut self) {
        for at in (0..self.nodes.len()).rev() {
            if self.nodes[at].unbind() {
                self.outputs.push_back(Output::Unbind(super::startup::index(at)));
            }
        }
        self.tell_peers_state(HostState::Stopped);
        for link in std::mem::take(&mut self.links).into_keys() {
            self.outputs.push_back(Output::CloseLink(link));
        }
        self.lease_event(LeaseEvent::Release);
        // HOST-58: nothing of the runtime survives Stopped.
        self.timers = crate::timers::Timers::new();
        self.store_calls.clear();
        let (callers, forced) = match &mut self.shutdown {
            Some(shutdown) => {
                shutdown.step = Step::Ended;
                (std::mem::take(&mut shutdown.callers), shutdown.forced)
            }
            None => (Vec::new(), false),
        };
        if !forced {
            self.mark(Mark::ShutdownCompleted);
        }
        self.set_state(HostState::Stopped);
        for call in callers {
            self.answer(call, Answer::ShutDown { forced });
        }
    }

    /// Ends every call, attempt and object of this host without a Store write.
    pub(super) fn end_all_work(&mut self, kind: ErrorKind) {
        for (reservation, attempt) in std::mem::take(&mut self.attempts) {
            self.timers.cancel(&TimerKey::Attempt(reservation));
            self.timers.cancel(&TimerKey::AttemptBackoff(reservation));
            if let Some(turn) = attempt.turn() {
                self.turns.remove(&turn);
                self.outputs.push_back(Output::AbandonTurn(turn));
            }
            if let Some(instance) = attempt.instance() {
                self.outputs.push_back(Output::DropInstance(instance));
            }
            if attempt.accepted {
                self.nodes[usize::from(attempt.node.0)].pending_activations -= 1;
            }
            // CREATE-73: nothing is written, but whoever waits for this attempt must look for himself.
            self.answer_routes(attempt, CreateVerdict::Unavailable, None);
        }
        self.attempts_by_key.clear();
        for (key, jobs) in std::mem::take(&mut self.held) {
            for job in jobs {
                self.end_job(&key, job, Err(kind));
            }
        }
        for (key, _) in self.objects.incarnations() {
            self.drop_object(&key, kind);
        }
        let operations: Vec<_> = self.coordinators.keys().copied().collect();
        for operation in operations {
            self.end_create(operation, kind);
        }
        let calls: Vec<_> = self.calls.keys().copied().collect();
        for call in calls {
            self.message_failed(call, kind, "the host ended");
        }
        self.routes = super::messages::Routes::default();
    }
}
