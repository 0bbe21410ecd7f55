//! Turns that wait and that the loop polls itself, each woken on its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::inbox::Arrival;
use super::instance::{Outcome, TurnFuture};
use super::port::Port;
use crate::input::TurnId;

/// The set of waiting turns. Only a turn that was woken is polled again.
#[derive(Default)]
pub(crate) struct PendingTurns(BTreeMap<TurnId, Waiting>);

struct Waiting {
    future: TurnFuture,
    wake: Arc<TurnWaker>,
    waker: Waker,
}

struct TurnWaker {
    turn: TurnId,
    /// Whether its `Woken` is on the way.
    queued: AtomicBool,
    port: Arc<Port>,
}

impl Wake for TurnWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            // Without a loop nobody polls the turn again.
            let _ = self.port.inbox().push(Arrival::Woken(self.turn));
        }
    }
}

impl PendingTurns {
    /// Takes a turn that was not ready. It is polled once more soon, this time with a waker of its own.
    pub(crate) fn insert(&mut self, turn: TurnId, future: TurnFuture, port: &Arc<Port>) {
        let wake = Arc::new(TurnWaker { turn, queued: AtomicBool::new(false), port: port.clone() });
        wake.wake_by_ref();
        self.0.insert(turn, Waiting { future, waker: Waker::from(wake.clone()), wake });
    }

    /// Removes a turn without finishing it.
    pub(crate) fn remove(&mut self, turn: TurnId) -> Option<TurnFuture> {
        self.0.remove(&turn).map(|waiting| waiting.future)
    }

    /// Polls a turn that was woken; its outcome where it ended.
    pub(crate) fn poll(&mut self, turn: TurnId) -> Option<Outcome> {
        let Waiting { future, wake, waker } = self.0.get_mut(&turn)?;
        // The flag must fall before the poll: a wake during the poll counts.
        wake.queued.store(false, Ordering::Release);
        let Poll::Ready(outcome) = future.as_mut().poll(&mut Context::from_waker(waker)) else { return None };
        self.0.remove(&turn);
        Some(outcome)
    }
}
