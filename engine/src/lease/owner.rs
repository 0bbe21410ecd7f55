//! The machine that claims, renews and loses the owner lease.
//!
//! ```text
//! Unclaimed --Start--> Acquiring --Granted--> Held --renewal late--> Reconciling --Reconciled--> Held
//!                       |   ^                  |                        |
//!                       +---+ every interval   +------- LeaseLost ------+--> Lost
//! ```

use std::time::Duration;

use serde::Serialize;

use crate::model::limits::Settings;
use crate::model::{Instant, LeaseRef, OwnerId, StoreTime};
use crate::store::{LeaseGrant, StoreError};

/// Where the host stands with its lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
enum State {
    /// Nothing was asked for: no node needs the Store, or startup has not begun.
    Unclaimed,
    /// Not confirmed yet; asks again every interval with the same OwnerId (STORE-39).
    Acquiring {
        /// When the request in flight was made.
        sent: Option<Instant>,
    },
    /// Confirmed; admission is open up to the deadline.
    Held(Holding),
    /// A renewal arrived past expiry: rows are re-read before admission opens again (STORE-37).
    Reconciling(Holding),
    /// Fenced or refused; forever (STORE-38).
    Lost,
    /// Given back at the end of the host.
    Released,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
struct Holding {
    lease: LeaseRef,
    /// Expiry by the Store's clock as of the last grant.
    expires_at: StoreTime,
    /// Local admission deadline (STORE-31).
    deadline: Instant,
    /// When the renewal in flight was made.
    sent: Option<Instant>,
}

/// What the lease machine is told.
#[derive(Debug, Clone)]
pub(crate) enum LeaseEvent {
    /// Startup step 2 begins.
    Start,
    /// Acquire or renew ended.
    Answered(Result<LeaseGrant, StoreError>),
    /// The timer set by [`LeaseEffect::SetTimer`] fired.
    TimerFired,
    /// Every row the host believes it owns was re-read.
    Reconciled,
    /// The lease is being given back.
    Release,
}

/// What the lease machine wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LeaseEffect {
    /// Call `acquire_lease`, waiting no longer than the timeout.
    Acquire(OwnerId, Duration),
    /// Call `renew_lease`, waiting no longer than the timeout.
    Renew(LeaseRef, Duration),
    /// Fire [`LeaseEvent::TimerFired`] then, replacing an earlier timer.
    SetTimer(Instant),
    /// The first grant is confirmed.
    Confirmed,
    /// A renewal moved the deadline: held-back work may go on.
    Extended,
    /// Re-read the host's rows, then report [`LeaseEvent::Reconciled`].
    Reconcile,
    /// The lease is gone for good.
    Lost,
    /// Acquire was refused for a reason that repeating cannot mend.
    Refused(StoreError),
}

/// The owner lease of one host run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct OwnerLease {
    owner: OwnerId,
    ttl: Duration,
    interval: Duration,
    timeout: Duration,
    margin: Duration,
    state: State,
}

impl OwnerLease {
    pub(crate) fn new(owner: OwnerId, settings: &Settings) -> Self {
        Self {
            owner,
            ttl: settings.owner_lease_ttl,
            interval: settings.owner_lease_renew_interval,
            timeout: settings.owner_lease_renew_timeout,
            margin: settings.owner_lease_fencing_margin,
            state: State::Unclaimed,
        }
    }

    /// Life of a lease after each renewal.
    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// The lease, once confirmed and until lost.
    pub(crate) fn lease(&self) -> Option<LeaseRef> {
        match &self.state {
            State::Held(held) | State::Reconciling(held) => Some(held.lease),
            _ => None,
        }
    }

    /// Whether work may start now (STORE-34, MODEL-29).
    pub(crate) fn admits(&self, now: Instant) -> bool {
        matches!(&self.state, State::Held(held) if now < held.deadline)
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.state == State::Lost
    }

    pub(crate) fn on(&mut self, event: LeaseEvent, now: Instant, out: &mut Vec<LeaseEffect>) {
        use LeaseEvent as E;
        use State as S;
        let state = std::mem::replace(&mut self.state, S::Lost);
        self.state = match (state, event) {
            (S::Unclaimed, E::Start) => self.acquire(now, out),
            (S::Acquiring { sent: Some(sent) }, E::Answered(Ok(grant))) => self.hold(&grant, sent, out),
            (S::Acquiring { .. }, E::Answered(Err(error))) => self.not_acquired(error, out),
            (S::Acquiring { sent: None }, E::TimerFired) => self.acquire(now, out),
            // The call is still out: its own timeout ends it before the next interval (ERR-24).
            (S::Acquiring { sent: Some(sent) }, E::TimerFired) => {
                out.push(LeaseEffect::SetTimer(now + self.timeout));
                S::Acquiring { sent: Some(sent) }
            }
            (S::Held(held), E::TimerFired) => S::Held(self.renew(held, now, out)),
            (S::Held(held), E::Answered(Ok(grant))) => self.renewed(held, &grant, now, out),
            (S::Held(held), E::Answered(Err(error))) => self.not_renewed(held, &error, now, out, S::Held),
            (S::Reconciling(held), E::TimerFired) => S::Reconciling(self.renew(held, now, out)),
            (S::Reconciling(held), E::Answered(Ok(grant))) => {
                S::Reconciling(self.extend(held, &grant, now, out))
            }
            (S::Reconciling(held), E::Answered(Err(error))) => {
                self.not_renewed(held, &error, now, out, S::Reconciling)
            }
            (S::Reconciling(held), E::Reconciled) => {
                out.push(LeaseEffect::Extended);
                S::Held(held)
            }
            (S::Unclaimed | S::Acquiring { .. } | S::Held(_) | S::Reconciling(_), E::Release) => S::Released,
            // A late answer or timer of a state that ended, or a reconciliation overtaken by a loss.
            (state, E::Answered(_) | E::TimerFired | E::Reconciled | E::Release | E::Start) => state,
        };
    }

    fn acquire(&self, now: Instant, out: &mut Vec<LeaseEffect>) -> State {
        out.push(LeaseEffect::Acquire(self.owner, self.timeout));
        out.push(LeaseEffect::SetTimer(now + self.interval));
        State::Acquiring { sent: Some(now) }
    }

    fn not_acquired(&self, error: StoreError, out: &mut Vec<LeaseEffect>) -> State {
        match error {
            StoreError::Unavailable | StoreError::Indeterminate => State::Acquiring { sent: None },
            refused => {
                out.push(LeaseEffect::Refused(refused));
                State::Lost
            }
        }
    }

    fn holding(&self, grant: &LeaseGrant, sent: Instant) -> Holding {
        // STORE-31: the instant before the request, so that delay shortens the deadline and never extends it.
        let deadline = (sent + grant.expires_at.since(grant.store_now)).minus(self.margin);
        Holding { lease: grant.lease, expires_at: grant.expires_at, deadline, sent: None }
    }

    fn hold(&self, grant: &LeaseGrant, sent: Instant, out: &mut Vec<LeaseEffect>) -> State {
        out.push(LeaseEffect::SetTimer(sent + self.interval));
        out.push(LeaseEffect::Confirmed);
        State::Held(self.holding(grant, sent))
    }

    fn renew(&self, mut held: Holding, now: Instant, out: &mut Vec<LeaseEffect>) -> Holding {
        if held.sent.is_some() {
            // STORE-30: the next renewal starts when this one ends, if that is later.
            out.push(LeaseEffect::SetTimer(now + self.timeout));
            return held;
        }
        out.push(LeaseEffect::Renew(held.lease, self.timeout));
        out.push(LeaseEffect::SetTimer(now + self.interval));
        held.sent = Some(now);
        held
    }

    fn renewed(&self, held: Holding, grant: &LeaseGrant, now: Instant, out: &mut Vec<LeaseEffect>) -> State {
        let late = grant.store_now >= held.expires_at;
        let extended = self.extend(held, grant, now, out);
        if late {
            // STORE-37: somebody may have acted on the expiry before this renewal.
            out.push(LeaseEffect::Reconcile);
            State::Reconciling(extended)
        } else {
            out.push(LeaseEffect::Extended);
            State::Held(extended)
        }
    }

    fn extend(&self, held: Holding, grant: &LeaseGrant, now: Instant, out: &mut Vec<LeaseEffect>) -> Holding {
        let Some(sent) = held.sent else { return held };
        let next = sent + self.interval;
        out.push(LeaseEffect::SetTimer(if next > now { next } else { now }));
        let renewed = self.holding(grant, sent);
        // STORE-33: a renewal only ever moves the deadline forward.
        Holding { deadline: renewed.deadline.max(held.deadline), ..renewed }
    }

    fn not_renewed(
        &self,
        mut held: Holding,
        error: &StoreError,
        now: Instant,
        out: &mut Vec<LeaseEffect>,
        stay: fn(Holding) -> State,
    ) -> State {
        match error {
            StoreError::LeaseLost => {
                out.push(LeaseEffect::Lost);
                State::Lost
            }
            _ => {
                // The lease may still be renewed past expiry while nobody fenced it (STORE-36).
                let next = held.sent.map_or(now, |sent| sent + self.interval);
                held.sent = None;
                out.push(LeaseEffect::SetTimer(if next > now { next } else { now }));
                stay(held)
            }
        }
    }
}
