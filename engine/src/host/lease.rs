//! The owner lease inside the host: calls, reconciliation after a late renewal, and its loss.

use std::collections::BTreeSet;

use serde::Serialize;

use super::store_calls::StoreUse;
use super::{Host, TimerKey, planted};
use crate::event::Event;
use crate::lease::{LeaseEffect, LeaseEvent};
use crate::mark::Mark;
use crate::model::limits::{PAGE_MAX, WAITER_BACKOFF_MAX};
use crate::model::{Error, ErrorKind, HostState, ObjectGeneration, ObjectKey};
use crate::store::{
    AcquireLease, OwnRowFilter, PageToken, RenewLease, ScanOwnRows, StoreError, StoreReply, StoreResult,
};

/// Rows seen so far by a reconciliation (STORE-37).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
pub(super) struct Reconcile {
    running: bool,
    seen: BTreeSet<(ObjectKey, ObjectGeneration)>,
}

impl Host {
    /// Whether work may start now: the check before every turn and every mutation (STORE-35).
    pub(super) fn admits_work(&self) -> bool {
        if planted!(self, IgnoresAdmissionDeadline) {
            return true;
        }
        self.lease.admits(self.now)
    }

    pub(super) fn lease_event(&mut self, event: LeaseEvent) {
        let mut effects = Vec::new();
        self.lease.on(event, self.now, &mut effects);
        for effect in effects {
            self.lease_effect(effect);
        }
    }

    fn lease_effect(&mut self, effect: LeaseEffect) {
        let ttl = self.lease.ttl();
        match effect {
            LeaseEffect::Acquire(owner, timeout) => {
                self.call_store_within(StoreUse::Lease, AcquireLease { owner, ttl }.into(), timeout);
            }
            LeaseEffect::Renew(lease, timeout) => {
                self.call_store_within(StoreUse::Lease, RenewLease { lease, ttl }.into(), timeout);
            }
            LeaseEffect::SetTimer(at) => self.timers.set(TimerKey::Lease, at),
            LeaseEffect::Confirmed => {
                self.record(Event::LeaseHeld);
                self.lease_confirmed();
            }
            LeaseEffect::Extended => self.pump_held_back(),
            LeaseEffect::Reconcile => {
                self.mark(Mark::LeaseRenewedPastExpiry);
                self.record(Event::LeaseDoubtful);
                if planted!(self, SkipsReconciliation) {
                    self.lease_event(LeaseEvent::Reconciled);
                } else {
                    self.reconcile = Reconcile { running: true, seen: BTreeSet::new() };
                    self.reconcile_page(None);
                }
            }
            LeaseEffect::Lost => self.lease_lost(),
            LeaseEffect::Refused(error) => self.startup_refused(Error::new(
                ErrorKind::Configuration,
                "startup",
                format!("owner lease: {error}"),
            )),
        }
    }

    pub(super) fn lease_timer(&mut self) {
        self.lease_event(LeaseEvent::TimerFired);
    }

    pub(super) fn lease_answered(&mut self, result: StoreResult) {
        let answer = match result {
            Ok(StoreReply::Granted(grant)) => Ok(grant),
            Ok(_) => Err(StoreError::Indeterminate),
            Err(error) => Err(error),
        };
        self.lease_event(LeaseEvent::Answered(answer));
    }

    /// Reads the next page of this host's Ready rows.
    pub(super) fn reconcile_page(&mut self, token: Option<PageToken>) {
        if !self.reconcile.running {
            return;
        }
        let Some(lease) = self.lease.lease() else { return };
        if token.is_none() {
            self.reconcile.seen.clear();
        }
        let scan = ScanOwnRows { lease, filter: OwnRowFilter::Ready, token, limit: PAGE_MAX };
        self.call_store(StoreUse::Reconcile, scan.into());
    }

    pub(super) fn reconcile_answered(&mut self, result: StoreResult) {
        if !self.reconcile.running {
            return;
        }
        match result {
            Ok(StoreReply::Authorities(page)) => {
                let rows = page.rows.into_iter().map(|row| (row.key, row.object_generation));
                self.reconcile.seen.extend(rows);
                match page.next {
                    Some(token) => self.reconcile_page(Some(token)),
                    None => self.reconciled(),
                }
            }
            _ => self.timers.set(TimerKey::Reconcile, self.now + WAITER_BACKOFF_MAX),
        }
    }

    fn reconciled(&mut self) {
        self.mark(Mark::LeaseReconciled);
        let seen = std::mem::take(&mut self.reconcile).seen;
        for (key, generation) in self.objects.incarnations() {
            if !seen.contains(&(key.clone(), generation)) {
                self.drop_object(&key, ErrorKind::Unavailable);
            }
        }
        self.lease_event(LeaseEvent::Reconciled);
    }

    /// HOST-75, STORE-38: local objects go without Store writes; only a new run can serve again.
    fn lease_lost(&mut self) {
        self.mark(Mark::LeaseLost);
        self.record(Event::LeaseLost);
        self.reconcile = Reconcile::default();
        self.timers.cancel(&TimerKey::Lease);
        self.stop_background();
        self.end_all_work(ErrorKind::Unavailable);
        self.tell_peers_state(HostState::Error);
        if self.shutdown.is_some() {
            self.shutdown_lease_lost();
        } else {
            self.set_state(HostState::Error);
        }
    }
}
