//! A loop as handles and contexts see it: its inbox, and what can be read without asking it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::call::loop_is_gone;
use super::clock::Clock;
use super::inbox::{Arrival, Inbox};
use crate::input::CallId;
use crate::model::limits::Settings;
use crate::model::{Error, HostState};

/// Shared by all handles of a host, its turns and its loop.
pub(crate) struct Port {
    inbox: Inbox,
    next_call: AtomicU64,
    state: AtomicU8,
    settings: Settings,
    clock: Arc<dyn Clock>,
}

impl Port {
    pub(crate) fn new(settings: Settings, clock: Arc<dyn Clock>) -> Arc<Self> {
        let state = AtomicU8::new(number(HostState::Preparing));
        Arc::new(Self { inbox: Inbox::default(), next_call: AtomicU64::new(0), state, settings, clock })
    }

    pub(crate) fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// Tells the loop, ShuttingDown where that has ended.
    pub(crate) fn tell(&self, arrival: Arrival) -> Result<(), Error> {
        self.inbox.push(arrival).map_err(|_unread| loop_is_gone())
    }

    /// A number for a new call.
    pub(crate) fn next_call(&self) -> CallId {
        CallId(self.next_call.fetch_add(1, Ordering::Relaxed))
    }

    /// The host's state when the loop last looked; Stopped where the loop is gone.
    pub(crate) fn state(&self) -> HostState {
        if self.inbox.is_closed() {
            return HostState::Stopped;
        }
        state_of(self.state.load(Ordering::Acquire))
    }

    /// Notes the state.
    pub(crate) fn set_state(&self, state: HostState) {
        self.state.store(number(state), Ordering::Release);
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

fn state_of(number: u8) -> HostState {
    STATES.get(usize::from(number)).copied().unwrap_or(HostState::Stopped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_state_survives_its_number() {
        for state in STATES {
            assert_eq!(state_of(number(state)), state);
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
