//! The monotonic clock of one host, which may run at another rate than the world and may jump ahead.

use serde::{Deserialize, Serialize};
use spotmesh::model::Instant;

use crate::agenda::Nanos;

/// Rate of a clock that runs with the world, in parts per million.
pub const RATE_ONE: u32 = 1_000_000;

/// Maps world time to one process's monotonic time and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostClock {
    since: Nanos,
    base: u64,
    rate: u32,
}

impl HostClock {
    /// A clock that shows `base` at world time `since` and advances `rate` millionths as fast as the world.
    #[must_use]
    pub fn new(since: Nanos, base: u64, rate: u32) -> Self {
        Self { since, base, rate: rate.max(1) }
    }

    /// What the clock shows at a world time.
    #[must_use]
    pub fn read(&self, world: Nanos) -> Instant {
        let passed =
            u128::from(world.saturating_sub(self.since)) * u128::from(self.rate) / u128::from(RATE_ONE);
        Instant::from_nanos(self.base.saturating_add(passed as u64))
    }

    /// The first world time at which the clock shows `local` or more.
    #[must_use]
    pub fn when(&self, local: Instant) -> Nanos {
        let ahead = u128::from(local.as_nanos().saturating_sub(self.base));
        let world = (ahead * u128::from(RATE_ONE)).div_ceil(u128::from(self.rate));
        self.since.saturating_add(u64::try_from(world).unwrap_or(u64::MAX))
    }

    /// Changes the rate from `world` on.
    pub fn set_rate(&mut self, world: Nanos, rate: u32) {
        *self = Self::new(world, self.read(world).as_nanos(), rate);
    }

    /// Moves the clock `by` nanoseconds ahead. A monotonic clock never moves back.
    pub fn jump(&mut self, world: Nanos, by: Nanos) {
        *self = Self::new(world, self.read(world).as_nanos().saturating_add(by), self.rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_is_the_earliest_world_time_that_reads_late_enough() {
        for rate in [RATE_ONE, 800_000, 1_250_000, 999_983] {
            let clock = HostClock::new(1_000, 50, rate);
            for local in [50u64, 51, 1_000, 123_456_789, 10_000_000_000] {
                let local = Instant::from_nanos(local);
                let world = clock.when(local);
                assert!(clock.read(world) >= local);
                if world > 1_000 {
                    assert!(clock.read(world - 1) < local, "rate {rate}, {local:?}");
                }
            }
        }
    }

    #[test]
    fn a_changed_rate_and_a_jump_keep_the_clock_monotonic() {
        let mut clock = HostClock::new(0, 0, RATE_ONE);
        clock.set_rate(1_000, 500_000);
        assert_eq!(clock.read(1_000).as_nanos(), 1_000);
        assert_eq!(clock.read(3_000).as_nanos(), 2_000);
        clock.jump(3_000, 7);
        assert_eq!(clock.read(3_000).as_nanos(), 2_007);
    }
}
