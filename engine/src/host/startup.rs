//! Startup in five steps, and its undo (NODE-58..62, HOST-5..9).
//!
//! Step 1 is `HostConfig::check` in `Host::new`. A later step begins when the earlier one has succeeded for
//! every node; a failing step releases what was acquired in reverse order.

use serde::Serialize;

use super::store_calls::StoreUse;
use super::{Host, TimerKey};
use crate::creation::RecoveryEvent;
use crate::event::Event;
use crate::input::StoreCallId;
use crate::lease::LeaseEvent;
use crate::link::NodeIndex;
use crate::mark::Mark;
use crate::mesh::{DiscoveryEvent, PeerEvent};
use crate::model::limits::{PAGE_MAX, WAITER_BACKOFF_FIRST, WAITER_BACKOFF_MAX};
use crate::model::{Error, ErrorKind, HostState};
use crate::output::Output;
use crate::store::{
    ConflictReason, PublishDescriptor, ReleaseLease, RemoveOwnerRows, StoreError, StoreReply, StoreRequest,
    StoreResult, UpdateDescriptor, WatchScope,
};

/// Where startup stands. Nodes are taken in configuration order within a step.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
enum Step {
    /// Step 2: the owner lease is not confirmed.
    Lease,
    /// Step 2: claims the RID and the Entry Spot id of a node.
    Claim(usize),
    /// Step 3: opens the listener of a node.
    Bind(usize),
    /// Step 4: publishes the descriptor of a node, not yet Serving.
    Publish(usize),
    /// Step 4: waits for the first complete listing of every node.
    Listing,
    /// Step 5: publishes Serving for a node.
    Serve(usize),
    /// The host serves.
    Served,
    /// A step failed: releases in reverse order. Where a descriptor may already be listed as Serving, others may
    /// have placed objects here (`rows`): these go first.
    Undo { error: Error, rows: bool },
    /// Startup ended in Error, or the host was shut down meanwhile.
    Ended,
}

/// The startup of one host.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(super) struct Startup {
    step: Step,
    /// The one call that is out; the answer to a call of a step that was given up speaks for no other.
    awaited: Option<StoreCallId>,
    backoff_doublings: u32,
}

impl Startup {
    pub(super) fn new() -> Self {
        Self { step: Step::Lease, awaited: None, backoff_doublings: 0 }
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.step, Step::Served | Step::Ended)
    }

    pub(super) fn is_undoing(&self) -> bool {
        matches!(self.step, Step::Undo { .. })
    }
}

impl Host {
    pub(super) fn begin_startup(&mut self) {
        if self.config.nodes.iter().any(super::super::config::NodeConfig::needs_store) {
            self.lease_event(LeaseEvent::Start);
        } else {
            self.enter(Step::Bind(0));
        }
    }

    pub(super) fn lease_confirmed(&mut self) {
        if self.startup.step == Step::Lease {
            self.enter(Step::Claim(0));
        }
    }

    fn enter(&mut self, step: Step) {
        self.startup.step = step;
        self.startup.backoff_doublings = 0;
        self.proceed();
    }

    /// Begins what the current step needs, or repeats it unchanged after a failure of the Store.
    fn proceed(&mut self) {
        match self.startup.step.clone() {
            Step::Lease | Step::Served | Step::Ended => {}
            Step::Claim(at) => match self.next_with_store(at) {
                Some((at, lease)) => {
                    self.startup.step = Step::Claim(at);
                    let limits = super::mesh::limits_of(&self.config.nodes[at]);
                    let claim = self.nodes[at].claim(limits, lease);
                    self.call_startup(claim.into());
                }
                None => self.enter(Step::Bind(0)),
            },
            Step::Bind(at) if at < self.nodes.len() => self.outputs.push_back(Output::Bind(index(at))),
            Step::Bind(_) => self.enter(Step::Publish(0)),
            Step::Publish(at) => match self.next_with_store(at) {
                Some((at, lease)) => {
                    self.startup.step = Step::Publish(at);
                    let descriptor = self.nodes[at].descriptor(&self.config, HostState::Preparing);
                    self.call_startup(PublishDescriptor { descriptor, lease }.into());
                }
                None => {
                    self.startup.step = Step::Listing;
                    self.begin_discovery();
                    self.listing_arrived();
                }
            },
            Step::Listing => {}
            Step::Serve(at) => match self.next_with_store(at) {
                Some((at, lease)) => {
                    self.startup.step = Step::Serve(at);
                    let descriptor = self.nodes[at].descriptor(&self.config, HostState::Serving);
                    self.call_startup(UpdateDescriptor { descriptor, lease }.into());
                }
                None => self.serve(),
            },
            Step::Undo { .. } => self.undo_next(),
        }
    }

    /// The first node from `at` on that has records in the Store, and the lease they hang on.
    fn next_with_store(&self, at: usize) -> Option<(usize, crate::model::LeaseRef)> {
        let lease = self.lease.lease()?;
        (at..self.nodes.len()).find(|at| self.config.nodes[*at].needs_store()).map(|at| (at, lease))
    }

    pub(super) fn bound(&mut self, node: NodeIndex, result: Result<String, String>) {
        let at = usize::from(node.0);
        if self.startup.step != Step::Bind(at) {
            if result.is_ok() {
                self.outputs.push_back(Output::Unbind(node));
            }
            return;
        }
        match result {
            Ok(endpoint) => {
                self.nodes[at].bound(endpoint);
                self.enter(Step::Bind(at + 1));
            }
            Err(reason) => {
                self.startup_failed(Error::new(
                    ErrorKind::Configuration,
                    "startup",
                    format!("bind: {reason}"),
                ));
            }
        }
    }

    fn call_startup(&mut self, request: StoreRequest) {
        let call = self.call_store(StoreUse::Startup, request);
        self.startup.awaited = Some(call);
    }

    pub(super) fn startup_answered(&mut self, call: StoreCallId, result: StoreResult) {
        if self.startup.awaited != Some(call) {
            return;
        }
        self.startup.awaited = None;
        if let Err(error) = &result
            && !self.startup.is_undoing()
        {
            return self.startup_store_failed(error);
        }
        match self.startup.step.clone() {
            Step::Claim(at) => {
                self.nodes[at].claimed = true;
                self.enter(Step::Claim(at + 1));
            }
            Step::Publish(at) => self.enter(Step::Publish(at + 1)),
            Step::Serve(at) => self.enter(Step::Serve(at + 1)),
            Step::Undo { .. } => self.undone(&result),
            Step::Lease | Step::Bind(_) | Step::Listing | Step::Served | Step::Ended => {}
        }
    }

    fn startup_store_failed(&mut self, error: &StoreError) {
        match error {
            StoreError::Unavailable | StoreError::Indeterminate => self.repeat_step(),
            StoreError::Conflict { reason, .. } => {
                if matches!(reason, ConflictReason::RidInUse | ConflictReason::EntrySpotIdInUse) {
                    self.mark(Mark::ClaimConflict); // NODE-15, NODE-22: no second value is tried
                }
                let text = format!("claim or publication: {error}");
                self.startup_failed(Error::new(ErrorKind::Configuration, "startup", text));
            }
            error => {
                self.startup_failed(Error::new(ErrorKind::Configuration, "startup", error.to_string()));
            }
        }
    }

    fn repeat_step(&mut self) {
        let wait = WAITER_BACKOFF_FIRST * 2u32.pow(self.startup.backoff_doublings.min(5));
        self.startup.backoff_doublings += 1;
        self.timers.set(TimerKey::Startup, self.now + wait.min(WAITER_BACKOFF_MAX));
    }

    pub(super) fn startup_timer(&mut self) {
        self.proceed();
    }

    /// Step 4 is complete when every node that discovers has its first complete listing.
    pub(super) fn listing_arrived(&mut self) {
        if self.startup.step == Step::Listing && self.nodes.iter().all(super::mesh::Node::has_listing) {
            // Step 5 prepares peer admission first: who sees Serving may connect at once.
            for at in 0..self.nodes.len() {
                self.peer_event(index(at), PeerEvent::AdmissionOpened);
            }
            self.enter(Step::Serve(0));
        }
    }

    fn serve(&mut self) {
        self.startup.step = Step::Served;
        self.set_state(HostState::Serving);
        self.tell_peers_state(HostState::Serving);
        let lease = self.lease.lease();
        for at in 0..self.nodes.len() {
            self.nodes[at].refresh_own(&self.config, lease);
            let event = self.nodes[at].serving(index(at));
            self.record(event);
        }
        if self.lease.lease().is_some() {
            self.recovery_event(RecoveryEvent::Started);
        }
    }

    /// The lease cannot be had, whatever is tried.
    pub(super) fn startup_refused(&mut self, error: Error) {
        if !self.startup.is_over() {
            self.startup_failed(error);
        }
    }

    /// Releases what startup acquired; the host then waits for Shutdown in Error.
    pub(super) fn startup_failed(&mut self, error: Error) {
        self.mark(Mark::StartupUndone);
        self.timers.cancel(&TimerKey::Startup);
        self.stop_background();
        let rows = matches!(self.startup.step, Step::Serve(_));
        if rows {
            self.end_all_work(ErrorKind::Unavailable);
        }
        self.startup.step = Step::Undo { error, rows };
        self.undo_next();
    }

    fn undo_next(&mut self) {
        // Listeners first: they were opened last.
        for at in (0..self.nodes.len()).rev() {
            if self.nodes[at].unbind() {
                self.outputs.push_back(Output::Unbind(index(at)));
            }
        }
        let lease = self.lease.lease();
        if let (Step::Undo { rows: true, .. }, Some(lease)) = (&self.startup.step, lease) {
            return self.call_startup(RemoveOwnerRows { lease, limit: PAGE_MAX }.into());
        }
        let claimed = (0..self.nodes.len()).rev().find(|at| self.nodes[*at].claimed);
        match (claimed, lease) {
            (Some(at), Some(lease)) => {
                let remove: StoreRequest = self.nodes[at].removal(lease).into();
                self.call_startup(remove);
            }
            (None, Some(lease)) => {
                self.call_startup(ReleaseLease { lease }.into());
            }
            (_, None) => self.undo_ended(),
        }
    }

    fn undone(&mut self, result: &StoreResult) {
        if matches!(result, Err(StoreError::Unavailable | StoreError::Indeterminate)) {
            return self.repeat_step();
        }
        if let Step::Undo { rows: rows @ true, .. } = &mut self.startup.step {
            *rows = matches!(result, Ok(StoreReply::Count(left)) if left.value > 0);
            return self.undo_next();
        }
        match (0..self.nodes.len()).rev().find(|at| self.nodes[*at].claimed) {
            Some(at) => {
                self.nodes[at].claimed = false;
                self.undo_next();
            }
            None => {
                self.lease_event(LeaseEvent::Release);
                self.timers.cancel(&TimerKey::Lease);
                self.undo_ended();
            }
        }
    }

    fn undo_ended(&mut self) {
        let step = std::mem::replace(&mut self.startup.step, Step::Ended);
        if let Step::Undo { error, .. } = step {
            self.record(Event::StartupFailed(error));
        }
        self.end_all_work(ErrorKind::Unavailable);
        if self.shutdown.is_some() {
            self.shutdown_after_undo();
        } else {
            self.set_state(HostState::Error);
        }
    }

    /// HOST table: Shutdown interrupts Preparing. `true` where the undo goes on and Shutdown waits for it.
    ///
    /// Once Serving may be listed, an answer lost or late, others place objects here: such a host ends like one
    /// that serves.
    pub(super) fn interrupt_startup(&mut self) -> bool {
        match &self.startup.step {
            Step::Served | Step::Ended => false,
            Step::Serve(_) => {
                self.timers.cancel(&TimerKey::Startup);
                self.startup.step = Step::Ended;
                self.startup.awaited = None;
                false
            }
            Step::Undo { .. } => true,
            _ => {
                self.startup_failed(Error::new(
                    ErrorKind::ShuttingDown,
                    "startup",
                    "shut down while preparing",
                ));
                true
            }
        }
    }

    pub(super) fn begin_discovery(&mut self) {
        self.outputs.push_back(Output::Watch(WatchScope::Descriptors));
        for at in 0..self.nodes.len() {
            let manual = self.config.nodes[at].manual_intents.clone();
            if self.nodes[at].discovers() {
                self.discovery_event(index(at), DiscoveryEvent::Started);
            } else if !manual.is_empty() {
                self.peer_event(index(at), PeerEvent::ManualIntents(manual));
            }
        }
    }
}

pub(super) fn index(at: usize) -> NodeIndex {
    // A host has far fewer than 65,536 nodes: their MeshNames are listed by hand.
    NodeIndex(at as u16)
}
