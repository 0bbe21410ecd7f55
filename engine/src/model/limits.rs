//! Every fixed limit and default of this step (spec 10 §5) and the settings that are checked at startup.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::{Error, ErrorKind};

/// Largest encoded creation request and terminal record, 1 MiB (CREATE-11, STORE-72).
pub const CREATION_REQUEST_MAX: usize = 1 << 20;
/// Largest encoded descriptor, 1 MiB (NODE-64).
pub const DESCRIPTOR_MAX: usize = 1 << 20;
/// Most capability entries of a descriptor (NODE-64).
pub const CAPABILITIES_MAX: usize = 1_024;
/// Largest encoded metadata of a message, in bytes (MODEL-116).
pub const METADATA_MAX: usize = 1_024;
/// Most entries of a Store page (STORE-54).
pub const PAGE_MAX: u32 = 1_000;
/// Default entries of a Store page.
pub const PAGE_DEFAULT: u32 = 100;
/// Most encoded bytes of a Store page, 4 MiB.
pub const PAGE_BYTES_MAX: usize = 4 << 20;
/// Longest page token, in bytes.
pub const PAGE_TOKEN_MAX: usize = 4_096;
/// Terminal records and unlinked content stay readable this long past the deadline (STORE-72).
pub const TERMINAL_RETENTION: Duration = Duration::from_secs(5 * 60);
/// Largest activation record, 16 MiB.
pub const ACTIVATION_MAX: usize = 16 << 20;
/// Most entries of an inventory leaf (STORE-18).
pub const INVENTORY_LEAF_ENTRIES: usize = 1_024;
/// Largest encoded inventory leaf, 1 MiB.
pub const INVENTORY_LEAF_BYTES: usize = 1 << 20;
/// Most jobs waiting in or running from one object's application lane (MODEL-58).
pub const LANE_JOBS_MAX: usize = 1_024;
/// Most bytes of one object's application lane, payload plus [`LANE_JOB_OVERHEAD`] each (MODEL-58).
pub const LANE_BYTES_MAX: usize = 64 << 20;
/// Bytes charged per job besides its payload.
pub const LANE_JOB_OVERHEAD: usize = 256;
/// Largest application payload of one message. It travels as one frame (spec 02 leaves the number to us: 16 MiB).
pub const PAYLOAD_MAX: usize = 16 << 20;
/// Interval of liveness probes on a ready connection (NODE-106).
pub const PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// A connection without a matching acknowledgement for this long is dead (NODE-106).
pub const PEER_DEADLINE: Duration = Duration::from_secs(15);
/// First redial wait (NODE-105).
pub const REDIAL_FIRST: Duration = Duration::from_millis(100);
/// Longest redial wait (NODE-105).
pub const REDIAL_MAX: Duration = Duration::from_secs(5);
/// A handshake not finished by then ends the connection.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// First wait of a re-reading waiter (spec 03 §15).
pub const WAITER_BACKOFF_FIRST: Duration = Duration::from_millis(50);
/// Longest wait of a re-reading waiter.
pub const WAITER_BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Shortest and longest explicit timeout of a call, in milliseconds (MODEL-105).
pub const TIMEOUT_MS: std::ops::RangeInclusive<u64> = 1..=(1 << 31) - 1;

/// Whether `timeout` may be given to a call: 1 ms ..= 2^31−1 ms, rounded up to whole milliseconds (MODEL-105).
#[must_use]
pub fn call_timeout(timeout: Duration) -> Option<Duration> {
    let ms = u64::try_from(timeout.as_nanos().div_ceil(1_000_000)).ok()?;
    TIMEOUT_MS.contains(&ms).then(|| Duration::from_millis(ms))
}

/// Durations an application may set for a host; all are checked together by [`Settings::check`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Settings {
    /// Life of an owner lease after a renewal; default 15 s.
    pub owner_lease_ttl: Duration,
    /// From the start of one renewal to the next; default 5 s.
    pub owner_lease_renew_interval: Duration,
    /// A renewal not answered by then has failed; default 3 s.
    pub owner_lease_renew_timeout: Duration,
    /// Local admission ends this much before the lease does; default 5 s.
    pub owner_lease_fencing_margin: Duration,
    /// Polling of descriptors; default 1 s.
    pub discovery_poll_interval: Duration,
    /// How long the last complete listing stays in force while the Store fails; default 30 s.
    pub store_failure_grace: Duration,
    /// Longest life of a cached route, zero switches the cache off; default 15 s.
    pub route_cache_max_age: Duration,
    /// How long a former owner forwards, zero switches it off; default 30 s.
    pub message_follow_duration: Duration,
    /// Cap of one Store call; default 3 s.
    pub store_call_timeout: Duration,
    /// Interval of recovery scans; default 5 s, with jitter.
    pub recovery_scan_interval: Duration,
    /// Default timeout of a request; 30 s.
    pub request_timeout: Duration,
    /// Default timeout of a send's admission; 1 s.
    pub send_timeout: Duration,
    /// Default timeout of create and get-or-create; 30 s.
    pub create_timeout: Duration,
    /// Default timeout of Shutdown; 30 s.
    pub shutdown_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        let s = Duration::from_secs;
        Self {
            owner_lease_ttl: s(15),
            owner_lease_renew_interval: s(5),
            owner_lease_renew_timeout: s(3),
            owner_lease_fencing_margin: s(5),
            discovery_poll_interval: s(1),
            store_failure_grace: s(30),
            route_cache_max_age: s(15),
            message_follow_duration: s(30),
            store_call_timeout: s(3),
            recovery_scan_interval: s(5),
            request_timeout: s(30),
            send_timeout: s(1),
            create_timeout: s(30),
            shutdown_timeout: s(30),
        }
    }
}

impl Settings {
    /// Checks every value and the relations ERR-24 and ERR-25.
    ///
    /// # Errors
    /// `Configuration` naming the first value or relation that does not hold.
    pub fn check(&self) -> Result<(), Error> {
        let positive = [
            ("owner_lease_ttl", self.owner_lease_ttl),
            ("owner_lease_renew_interval", self.owner_lease_renew_interval),
            ("owner_lease_renew_timeout", self.owner_lease_renew_timeout),
            ("owner_lease_fencing_margin", self.owner_lease_fencing_margin),
            ("discovery_poll_interval", self.discovery_poll_interval),
            ("store_failure_grace", self.store_failure_grace),
            ("store_call_timeout", self.store_call_timeout),
            ("recovery_scan_interval", self.recovery_scan_interval),
            ("shutdown_timeout", self.shutdown_timeout),
        ];
        for (name, value) in positive {
            if value.is_zero() {
                return Err(configuration(format!("{name}: expected a positive duration, found zero")));
            }
        }
        let calls = [
            ("request_timeout", self.request_timeout),
            ("send_timeout", self.send_timeout),
            ("create_timeout", self.create_timeout),
        ];
        for (name, value) in calls {
            if call_timeout(value).is_none() {
                return Err(configuration(format!("{name}: expected 1 ms..2^31-1 ms, found {value:?}")));
            }
        }
        let slowest = self.owner_lease_renew_interval.max(self.owner_lease_renew_timeout);
        let needed = slowest.saturating_add(self.owner_lease_renew_timeout);
        if needed >= self.owner_lease_ttl.saturating_sub(self.owner_lease_fencing_margin) {
            return Err(configuration(format!(
                "lease timing: expected max(interval, timeout) + timeout < ttl - margin, found {needed:?} against {:?}",
                self.owner_lease_ttl.saturating_sub(self.owner_lease_fencing_margin)
            )));
        }
        let (age, follow) = (self.route_cache_max_age, self.message_follow_duration);
        if !age.is_zero() && !follow.is_zero() && age.saturating_add(Duration::from_secs(5)) > follow {
            return Err(configuration(format!(
                "route cache: expected route_cache_max_age + 5 s <= message_follow_duration, found {age:?} against {follow:?}"
            )));
        }
        Ok(())
    }
}

fn configuration(description: String) -> Error {
    Error::new(ErrorKind::Configuration, "settings", description)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut Settings)) -> Result<(), Error> {
        let mut settings = Settings::default();
        change(&mut settings);
        settings.check()
    }

    #[test]
    fn err_t16_relations_hold_at_and_break_beyond_their_boundary() {
        assert_eq!(with(|_| ()), Ok(()));
        // ERR-24: interval 5 + timeout 3 must stay below ttl - margin.
        let ms = Duration::from_millis;
        assert!(with(|s| s.owner_lease_ttl = ms(13_001)).is_ok());
        assert_eq!(with(|s| s.owner_lease_ttl = ms(13_000)).unwrap_err().kind(), ErrorKind::Configuration);
        assert!(with(|s| s.owner_lease_renew_timeout = ms(4_999)).is_ok());
        assert!(with(|s| s.owner_lease_renew_timeout = ms(5_000)).is_err());
        // ERR-25: the cache is at least 5 s shorter than Message Follow, unless one of them is off.
        assert!(with(|s| s.route_cache_max_age = ms(25_000)).is_ok());
        assert!(with(|s| s.route_cache_max_age = ms(25_001)).is_err());
        assert!(with(|s| s.message_follow_duration = Duration::ZERO).is_ok());
        assert!(
            with(|s| (s.route_cache_max_age, s.message_follow_duration) = (Duration::ZERO, ms(1))).is_ok()
        );
        assert!(with(|s| s.store_call_timeout = Duration::ZERO).is_err());
        assert!(with(|s| s.request_timeout = Duration::ZERO).is_err());
    }

    #[test]
    fn explicit_timeouts_are_rounded_up_and_bounded() {
        assert_eq!(call_timeout(Duration::ZERO), None);
        assert_eq!(call_timeout(Duration::from_nanos(1)), Some(Duration::from_millis(1)));
        assert_eq!(call_timeout(Duration::from_micros(1_001)), Some(Duration::from_millis(2)));
        assert!(call_timeout(Duration::from_millis((1 << 31) - 1)).is_some());
        assert!(call_timeout(Duration::from_millis(1 << 31)).is_none());
    }
}
