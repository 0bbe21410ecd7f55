//! Whether the other end of a ready connection still answers (spec 02 §12.1).

use std::num::NonZeroU64;

use serde::Serialize;

use crate::model::limits::{PEER_DEADLINE, PROBE_INTERVAL};
use crate::model::{Entropy, Instant};

/// Liveness of one ready connection. A new connection gets a new one: nothing is carried over (NODE-89).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct Liveness {
    /// The id that waits for its acknowledgement, at most one (NODE-107).
    outstanding: Option<NonZeroU64>,
    /// When the next probe leaves.
    pub(crate) probe_at: Instant,
    /// When the connection counts as dead.
    pub(crate) dead_at: Instant,
}

impl Liveness {
    pub(crate) fn new(now: Instant) -> Self {
        Self { outstanding: None, probe_at: now + PROBE_INTERVAL, dead_at: now + PEER_DEADLINE }
    }

    /// The interval passed: the id to send, a fresh one or the one still unanswered (NODE-107).
    pub(crate) fn probe(&mut self, now: Instant, entropy: &mut Entropy) -> u64 {
        self.probe_at = now + PROBE_INTERVAL;
        self.outstanding.get_or_insert_with(|| entropy.non_zero_u64()).get()
    }

    /// An acknowledgement arrived on this connection. Only the first one of the outstanding id renews the
    /// deadline (NODE-108).
    pub(crate) fn acknowledged(&mut self, id: u64, now: Instant) -> bool {
        if self.outstanding.is_none_or(|outstanding| outstanding.get() != id) {
            return false;
        }
        self.outstanding = None;
        self.dead_at = now + PEER_DEADLINE;
        true
    }
}
