//! The loop as handles see it: one channel in, shared by every handle and every turn of a host.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use futures::channel::{mpsc, oneshot};

use super::call::loop_is_gone;
use super::clock::Clock;
use crate::event::Event;
use crate::input::{CallId, Command, TurnId};
use crate::model::limits::Settings;
use crate::model::{Error, HostState};
use crate::output::Answer;

/// What handles tell the loop.
pub(crate) enum Ask {
    /// Submit a command; its one answer goes to `answer`.
    Call { call: CallId, from: Option<TurnId>, command: Command, answer: oneshot::Sender<Answer> },
    /// The caller of this call stopped waiting.
    Drop(CallId),
    /// Tell when the host serves, or why it never will.
    AwaitServing(oneshot::Sender<Result<(), Error>>),
    /// Send every event from now on.
    Observe(ObserverEnd),
}

/// The loop's end of one observer.
pub(crate) struct ObserverEnd {
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) missed: Arc<AtomicU64>,
}

/// Shared by all handles of a host, its contexts and its loop.
pub(crate) struct Port {
    asks: mpsc::UnboundedSender<Ask>,
    next_call: AtomicU64,
    state: AtomicU8,
    settings: Settings,
    clock: Arc<dyn Clock>,
}

impl Port {
    /// A port and the loop's end of its channel.
    pub(crate) fn new(
        settings: Settings,
        clock: Arc<dyn Clock>,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Ask>) {
        let (asks, receiver) = mpsc::unbounded();
        let state = AtomicU8::new(number(HostState::Preparing));
        (Arc::new(Self { asks, next_call: AtomicU64::new(0), state, settings, clock }), receiver)
    }

    /// Hands an ask to the loop, ShuttingDown where that has ended.
    pub(crate) fn ask(&self, ask: Ask) -> Result<(), Error> {
        self.asks.unbounded_send(ask).map_err(|_| loop_is_gone())
    }

    /// A number for a new call.
    pub(crate) fn next_call(&self) -> CallId {
        CallId(self.next_call.fetch_add(1, Ordering::Relaxed))
    }

    /// The host's state when the loop last looked; Stopped where the loop is gone.
    pub(crate) fn state(&self) -> HostState {
        if self.asks.is_closed() {
            return HostState::Stopped;
        }
        STATES.get(usize::from(self.state.load(Ordering::Acquire))).copied().unwrap_or(HostState::Stopped)
    }

    /// Notes the state and returns the one noted before.
    pub(crate) fn set_state(&self, state: HostState) -> HostState {
        let before = self.state.swap(number(state), Ordering::AcqRel);
        STATES.get(usize::from(before)).copied().unwrap_or(HostState::Stopped)
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }
}

const STATES: [HostState; 7] = [
    HostState::Preparing,
    HostState::Serving,
    HostState::Relocating,
    HostState::Relocated,
    HostState::Draining,
    HostState::Stopped,
    HostState::Error,
];

fn number(state: HostState) -> u8 {
    // The place of a member of a 7-element array fits; every state is a member.
    STATES.iter().position(|candidate| *candidate == state).unwrap_or(5) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_state_survives_its_number() {
        for state in STATES {
            assert_eq!(STATES[usize::from(number(state))], state);
            // An exhaustive match: an eighth state would not compile here.
            match state {
                HostState::Preparing
                | HostState::Serving
                | HostState::Relocating
                | HostState::Relocated
                | HostState::Draining
                | HostState::Stopped
                | HostState::Error => {}
            }
        }
    }
}
