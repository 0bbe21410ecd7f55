//! Turns that wait and that the loop polls itself, each woken on its own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures::task::AtomicWaker;

use super::instance::{Outcome, TurnFuture};
use crate::input::TurnId;

/// The set of waiting turns. Only a turn that was woken is polled again.
pub(crate) struct PendingTurns {
    turns: BTreeMap<TurnId, Waiting>,
    woken: Arc<Woken>,
}

struct Waiting {
    future: TurnFuture,
    wake: Arc<TurnWaker>,
    waker: Waker,
}

struct Woken {
    turns: Mutex<Vec<TurnId>>,
    /// Set only while the loop sleeps, so that a wake from inside the loop costs no second run of it.
    driver: AtomicWaker,
}

struct TurnWaker {
    turn: TurnId,
    queued: AtomicBool,
    woken: Arc<Woken>,
}

impl Wake for TurnWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.woken.turns.lock().unwrap_or_else(PoisonError::into_inner).push(self.turn);
            self.woken.driver.wake();
        }
    }
}

impl PendingTurns {
    pub(crate) fn new() -> Self {
        let woken = Woken { turns: Mutex::new(Vec::new()), driver: AtomicWaker::new() };
        Self { turns: BTreeMap::new(), woken: Arc::new(woken) }
    }

    /// Takes a turn that was not ready. It is polled once more at once, this time with a waker of its own.
    pub(crate) fn insert(&mut self, turn: TurnId, future: TurnFuture) {
        let wake = Arc::new(TurnWaker { turn, queued: AtomicBool::new(false), woken: self.woken.clone() });
        wake.wake_by_ref();
        self.turns.insert(turn, Waiting { future, waker: Waker::from(wake.clone()), wake });
    }

    /// Removes a turn without finishing it.
    pub(crate) fn remove(&mut self, turn: TurnId) -> Option<TurnFuture> {
        self.turns.remove(&turn).map(|waiting| waiting.future)
    }

    /// Polls the turns that were woken and appends those that ended.
    ///
    /// With `park` the loop is woken by the next turn that wants to run.
    pub(crate) fn poll_woken(&mut self, park: Option<&Context<'_>>, ended: &mut Vec<(TurnId, Outcome)>) {
        match park {
            Some(cx) => self.woken.driver.register(cx.waker()),
            None => drop(self.woken.driver.take()),
        }
        let woken = std::mem::take(&mut *self.woken.turns.lock().unwrap_or_else(PoisonError::into_inner));
        for turn in woken {
            let Some(Waiting { future, wake, waker }) = self.turns.get_mut(&turn) else { continue };
            // The flag must fall before the poll: a wake during the poll counts.
            wake.queued.store(false, Ordering::Release);
            if let Poll::Ready(outcome) = future.as_mut().poll(&mut Context::from_waker(waker)) {
                self.turns.remove(&turn);
                ended.push((turn, outcome));
            }
        }
    }
}
