//! Recovery: scans for attempts nobody finishes, every interval with jitter (spec 04 §7).
//!
//! One round walks StaleCreating, StaleClosing, the host's own Creating rows and a sweep, page by page.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;

use crate::mark::Mark;
use crate::model::limits::PAGE_DEFAULT;
use crate::model::{Entropy, Instant, LeaseRef, ObjectKey, ReservationId, StoreVersion};
use crate::store::{
    AbortRecovery, AuthorityView, ConflictReason, FinishStaleClose, OwnRowFilter, PageToken, ScanOwnRows,
    ScanStaleClosing, ScanStaleCreating, StoreError, StoreReply, StoreRequest, StoreResult, Sweep,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
enum Stage {
    StaleCreating,
    StaleClosing,
    OwnCreating,
    Sweep,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
enum State {
    /// Waits for the next round.
    Idle,
    /// A page of this stage is out.
    Scanning(Stage),
    /// One row is being removed; the rest of the page and its successor follow.
    Removing { stage: Stage, rest: Vec<(ObjectKey, StoreVersion)>, next: Option<PageToken> },
    /// The host stops.
    Stopped,
}

/// What recovery is told.
#[derive(Debug, Clone)]
pub(crate) enum RecoveryEvent {
    /// The host serves: rounds begin.
    Started,
    /// The timer fired.
    TimerFired,
    /// The Store call that is out ended.
    StoreAnswered(StoreResult),
    /// The host stops.
    Stopped,
}

/// What recovery wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecoveryEffect {
    /// Call the Store; the answer comes back as `StoreAnswered`.
    Call(StoreRequest),
    /// Fire `TimerFired` then.
    SetTimer(Instant),
    /// Adopt this row if no local attempt holds it (CREATE-93).
    Adopt(Box<AuthorityView>),
    /// A branch was reached.
    Mark(Mark),
}

/// The recovery scan of one host.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct Recovery {
    interval: Duration,
    state: State,
    /// Own Creating rows seen in the round before: a row is adopted at its second sighting, so that an order
    /// on its way comes first (CREATE-94).
    seen: BTreeSet<ReservationId>,
    seen_now: BTreeSet<ReservationId>,
}

type Out<'a> = &'a mut Vec<RecoveryEffect>;

impl Recovery {
    pub(crate) fn new(interval: Duration) -> Self {
        Self { interval, state: State::Idle, seen: BTreeSet::new(), seen_now: BTreeSet::new() }
    }

    pub(crate) fn on(
        &mut self,
        event: RecoveryEvent,
        now: Instant,
        lease: Option<LeaseRef>,
        entropy: &mut Entropy,
        out: Out<'_>,
    ) {
        use RecoveryEvent as E;
        use State as S;
        let state = std::mem::replace(&mut self.state, S::Idle);
        self.state = match (state, event) {
            (_, E::Stopped) | (S::Stopped, _) => S::Stopped,
            (S::Idle, E::Started) => self.rest(now, entropy, out),
            // CREATE-90: only a host with a live lease scans.
            (S::Idle, E::TimerFired) => match lease {
                Some(lease) => scan(Stage::StaleCreating, None, lease, out),
                None => self.rest(now, entropy, out),
            },
            (S::Scanning(stage), E::StoreAnswered(result)) => {
                let Some(lease) = lease else { return self.state = self.rest(now, entropy, out) };
                match result {
                    Ok(StoreReply::Authorities(page)) => match stage {
                        Stage::OwnCreating => {
                            for row in page.rows {
                                self.sighted(row, out);
                            }
                            match page.next {
                                Some(token) => scan(stage, Some(token), lease, out),
                                None => self.next_stage(stage, lease, now, entropy, out),
                            }
                        }
                        _ => {
                            let rows = page.rows.iter().map(|row| (row.key.clone(), row.version)).collect();
                            self.remove(stage, rows, page.next, lease, (now, entropy), out)
                        }
                    },
                    Ok(_) => self.rest(now, entropy, out),
                    // CREATE-90: a failed scan changes nothing; the next round starts anew.
                    Err(_) => self.rest(now, entropy, out),
                }
            }
            (S::Removing { stage, rest, next }, E::StoreAnswered(result)) => {
                match result {
                    Ok(_) => out.push(RecoveryEffect::Mark(Mark::RecoveryRemovedRow)),
                    Err(error) if error.conflict_reason() == Some(ConflictReason::LeaseLive) => {}
                    Err(StoreError::Conflict { .. } | StoreError::NotFound) => {
                        out.push(RecoveryEffect::Mark(Mark::RecoveryLostRace)); // CREATE-97
                    }
                    Err(_) => {}
                }
                let Some(lease) = lease else { return self.state = self.rest(now, entropy, out) };
                self.remove(stage, rest, next, lease, (now, entropy), out)
            }
            (state, _) => state,
        };
    }

    fn sighted(&mut self, row: AuthorityView, out: Out<'_>) {
        let Some(pending) = row.pending() else { return };
        let reservation = pending.reservation;
        self.seen_now.insert(reservation);
        if self.seen.contains(&reservation) {
            out.push(RecoveryEffect::Adopt(Box::new(row)));
        }
    }

    fn remove(
        &mut self,
        stage: Stage,
        mut rows: Vec<(ObjectKey, StoreVersion)>,
        next: Option<PageToken>,
        lease: LeaseRef,
        (now, entropy): (Instant, &mut Entropy),
        out: Out<'_>,
    ) -> State {
        let Some((key, version)) = rows.pop() else {
            return match next {
                Some(token) => scan(stage, Some(token), lease, out),
                None => self.next_stage(stage, lease, now, entropy, out),
            };
        };
        out.push(RecoveryEffect::Call(match stage {
            Stage::StaleClosing => FinishStaleClose { key, version, lease }.into(), // CREATE-96
            _ => AbortRecovery { key, version, lease }.into(),                      // CREATE-91
        }));
        State::Removing { stage, rest: rows, next }
    }

    fn next_stage(
        &mut self,
        stage: Stage,
        lease: LeaseRef,
        now: Instant,
        entropy: &mut Entropy,
        out: Out<'_>,
    ) -> State {
        match stage {
            Stage::StaleCreating => scan(Stage::StaleClosing, None, lease, out),
            Stage::StaleClosing => scan(Stage::OwnCreating, None, lease, out),
            Stage::OwnCreating => scan(Stage::Sweep, None, lease, out),
            Stage::Sweep => self.rest(now, entropy, out),
        }
    }

    /// The next round, 80..100 % of the interval from now.
    fn rest(&mut self, now: Instant, entropy: &mut Entropy, out: Out<'_>) -> State {
        self.seen = std::mem::take(&mut self.seen_now);
        let fifth = u64::try_from(self.interval.as_nanos() / 5).unwrap_or(0);
        out.push(RecoveryEffect::SetTimer(
            now + (self.interval - Duration::from_nanos(entropy.below(fifth))),
        ));
        State::Idle
    }
}

fn scan(stage: Stage, token: Option<PageToken>, lease: LeaseRef, out: Out<'_>) -> State {
    let limit = PAGE_DEFAULT;
    out.push(RecoveryEffect::Call(match stage {
        Stage::StaleCreating => ScanStaleCreating { token, limit }.into(),
        Stage::StaleClosing => ScanStaleClosing { token, limit }.into(),
        Stage::OwnCreating => ScanOwnRows { lease, filter: OwnRowFilter::Creating, token, limit }.into(),
        Stage::Sweep => Sweep { limit }.into(),
    }));
    State::Scanning(stage)
}
