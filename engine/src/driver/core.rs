//! What the loop needs of a core, so that it can be tested against a scripted one.

use crate::host::Host;
use crate::input::Input;
use crate::model::{HostState, Instant};
use crate::output::Output;

/// The sans-IO side of a host.
pub(crate) trait Core {
    /// Takes one input. All outputs are drained before the next one.
    fn handle(&mut self, input: Input, now: Instant);
    /// Fires every due timer.
    fn handle_timeout(&mut self, now: Instant);
    /// The next thing to do.
    fn poll_output(&mut self) -> Option<Output>;
    /// When [`Self::handle_timeout`] is due next.
    fn poll_timeout(&self) -> Option<Instant>;
    /// State of the host.
    fn state(&self) -> HostState;
}

impl Core for Host {
    fn handle(&mut self, input: Input, now: Instant) {
        Self::handle(self, input, now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        Self::handle_timeout(self, now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        Self::poll_output(self)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Self::next_timeout(self)
    }

    fn state(&self) -> HostState {
        Self::state(self)
    }
}
