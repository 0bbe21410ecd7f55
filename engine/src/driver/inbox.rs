//! The one queue into a loop: calls of handles, store answers, turns that ended or want to go on, the bell.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use futures::channel::oneshot;

use super::instance::Outcome;
use super::observe::ObserverEnd;
use crate::input::{CallId, Command, Input, TurnId};
use crate::model::Error;
use crate::output::Answer;

/// What reaches a loop from outside, in the order in which it happened.
pub(crate) enum Arrival {
    /// Submit a command; its one answer goes to `answer`.
    Call { call: CallId, from: Option<TurnId>, command: Command, answer: oneshot::Sender<Answer> },
    /// The caller of this call stopped waiting.
    DropCall(CallId),
    /// Tell when the host serves, or why it never will.
    AwaitServing(oneshot::Sender<Result<(), Error>>),
    /// Show every event from now on.
    Observe(ObserverEnd),
    /// A Store answered or hinted.
    Store(Input),
    /// A turn in the loop wants to be polled again.
    Woken(TurnId),
    /// A turn on the executor ended.
    Ended(TurnId, Outcome),
    /// The deadline the loop sleeps for has come.
    Rung,
}

/// Many writers, one reader that takes everything at once.
///
/// The lock is held for a push or a swap, never while anything runs. The reader is woken only where it sleeps:
/// a push from inside the loop costs no second run of it.
#[derive(Default)]
pub(crate) struct Inbox(Mutex<Content>);

#[derive(Default)]
struct Content {
    queue: VecDeque<Arrival>,
    /// Set while the reader sleeps.
    reader: Option<Waker>,
    closed: bool,
}

/// Room a queue keeps when it has been emptied, in arrivals.
const KEPT: usize = 1_024;

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Content> {
        // Nothing that can panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends; gives the arrival back where nobody will read it.
    pub(crate) fn push(&self, arrival: Arrival) -> Result<(), Box<Arrival>> {
        let reader = {
            let mut content = self.lock();
            if content.closed {
                return Err(Box::new(arrival));
            }
            content.queue.push_back(arrival);
            content.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
        Ok(())
    }

    /// Takes all arrivals into `batch`, which must be empty and lends its room in exchange.
    pub(crate) fn take(&self, batch: &mut VecDeque<Arrival>) {
        debug_assert!(batch.is_empty(), "a batch is worked off before the next");
        if batch.capacity() > KEPT {
            *batch = VecDeque::new();
        }
        std::mem::swap(&mut self.lock().queue, batch);
    }

    /// Puts the reader to sleep until the next push; `false` where something has arrived already.
    pub(crate) fn park(&self, reader: &Waker) -> bool {
        let mut content = self.lock();
        if content.queue.is_empty() {
            content.reader = Some(reader.clone());
        }
        content.queue.is_empty()
    }

    /// Refuses everything from now on and drops what has not been read.
    pub(crate) fn close(&self) {
        let unread = {
            let mut content = self.lock();
            content.closed = true;
            (std::mem::take(&mut content.queue), content.reader.take())
        };
        // Destructors run without the lock: a dropped call pushes.
        drop(unread);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_taken_in_order_and_refused_after_the_close() {
        let inbox = Inbox::default();
        let push = |number| inbox.push(Arrival::DropCall(CallId(number)));
        for number in 0..3 {
            assert!(push(number).is_ok());
        }
        assert!(!inbox.park(Waker::noop()), "something has arrived");
        let mut batch = VecDeque::new();
        inbox.take(&mut batch);
        let numbers = batch.into_iter().map(|arrival| match arrival {
            Arrival::DropCall(call) => call.0,
            _ => panic!("expected a dropped call"),
        });
        assert_eq!(numbers.collect::<Vec<_>>(), [0, 1, 2]);
        assert!(inbox.park(Waker::noop()));
        inbox.close();
        assert!(push(4).is_err() && inbox.is_closed());
    }
}
