//! Settings of the transport, checked as a whole before a socket is opened.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use spotmesh::link::NodeIndex;
use spotmesh::model::{Error, ErrorKind};
use spotmesh_zmq_ffi::KeyPair;

use crate::keys::PeerKeys;

/// Where one MeshNode listens (NODE-8, NODE-9).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// Address to bind, default `127.0.0.1`. A wildcard needs [`Self::advertise_host`].
    pub host: String,
    /// Port to bind, default 0 for any free one.
    pub port: u16,
    /// Host that others are told, default [`Self::host`].
    pub advertise_host: Option<String>,
}

impl Default for Listen {
    fn default() -> Self {
        Self { host: "127.0.0.1".to_owned(), port: 0, advertise_host: None }
    }
}

impl Listen {
    /// Checks that a host others can use is advertised (NODE-9).
    ///
    /// # Errors
    /// `Configuration`.
    pub fn check(&self) -> Result<(), Error> {
        if self.host.is_empty() {
            return Err(wrong("bind host: expected an address, found an empty text"));
        }
        match &self.advertise_host {
            None if is_wildcard(&self.host) => Err(wrong(&format!(
                "advertise host: expected one beside the wildcard bind host {:?}, found none",
                self.host
            ))),
            Some(host) if host.is_empty() || is_wildcard(host) => {
                Err(wrong(&format!("advertise host: expected a host others can reach, found {host:?}")))
            }
            _ => Ok(()),
        }
    }

    /// The address to give to libzmq.
    pub(crate) fn bind_address(&self) -> String {
        format!("tcp://{}:{}", bracketed(&self.host), self.port)
    }

    /// The endpoint to advertise, with the really bound port.
    pub(crate) fn advertised(&self, port: u16) -> String {
        format!("tcp://{}:{port}", bracketed(self.advertise_host.as_ref().unwrap_or(&self.host)))
    }

    pub(crate) fn is_ipv6(&self) -> bool {
        self.host.contains(':')
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() }
}

fn is_wildcard(host: &str) -> bool {
    matches!(host.trim_matches(['[', ']']), "*" | "0.0.0.0" | "::" | "0")
}

fn wrong(description: &str) -> Error {
    Error::new(ErrorKind::Configuration, "zmq transport", description.to_owned())
}

/// How peers prove who they are.
#[derive(Clone, Default)]
pub enum Security {
    /// Nobody proves anything and everything is readable on the way: for loopback and trusted networks only.
    #[default]
    Null,
    /// Encrypted, both sides prove a key (CURVE).
    Curve {
        /// The key pair of this host.
        keys: KeyPair,
        /// Whose keys are known.
        peers: Arc<dyn PeerKeys>,
    },
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("Null"),
            Self::Curve { keys, .. } => f.debug_struct("Curve").field("keys", keys).finish_non_exhaustive(),
        }
    }
}

/// Bounds of one lane, in bytes: what waits here plus what the other side has not taken yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// Past this the Application lane reports `Congested`, and `Writable` at half of it; default 8 MiB.
    pub soft: usize,
    /// Past this the link is given up as `Stalled`; default 64 MiB.
    pub hard: usize,
    /// Given to libzmq before the other side has taken it, at most; default 4 MiB. One record may be larger.
    pub window: usize,
}

/// Smallest legal window: the other side says what it took every quarter of this.
pub(crate) const WINDOW_MIN: usize = 512 << 10;
/// Taken bytes after which the other side is told.
pub(crate) const ACK_EVERY: u64 = (WINDOW_MIN / 4) as u64;

impl Default for Bounds {
    fn default() -> Self {
        Self { soft: 8 << 20, hard: 64 << 20, window: 4 << 20 }
    }
}

/// Durations of the transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// A dial without a link after this has failed, default 5 s; also the life of a half-made inbound link.
    pub dial: Duration,
    /// A ZMTP handshake not done after this ends the connection, default 3 s.
    pub handshake: Duration,
    /// From one ping to the next, default 1 s.
    pub heartbeat: Duration,
    /// A silent peer is disconnected after this, default 3 s.
    pub heartbeat_timeout: Duration,
    /// How long a closed link may go on sending what was queued, default 1 s.
    pub close: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            dial: Duration::from_secs(5),
            handshake: Duration::from_secs(3),
            heartbeat: Duration::from_secs(1),
            heartbeat_timeout: Duration::from_secs(3),
            close: Duration::from_secs(1),
        }
    }
}

/// Settings of one [`crate::ZmqTransport`].
#[derive(Debug, Clone, Default)]
pub struct ZmqConfig {
    /// Where the nodes listen; a node without an entry listens at [`Listen::default`].
    pub listen: BTreeMap<NodeIndex, Listen>,
    /// How peers prove who they are.
    pub security: Security,
    /// Bounds of each lane.
    pub bounds: Bounds,
    /// Durations.
    pub timing: Timing,
}

impl ZmqConfig {
    /// Checks every value and how they go together.
    ///
    /// # Errors
    /// `Configuration` naming the first value that does not hold.
    pub fn check(&self) -> Result<(), Error> {
        for (node, listen) in &self.listen {
            listen.check().map_err(|e| wrong(&format!("node {}: {}", node.0, e.description())))?;
        }
        let Bounds { soft, hard, window } = self.bounds;
        if window < WINDOW_MIN {
            return Err(wrong(&format!("window: expected at least {WINDOW_MIN} bytes, found {window}")));
        }
        if soft < window || hard <= soft {
            return Err(wrong(&format!(
                "lane bounds: expected window <= soft < hard, found {window}, {soft}, {hard}"
            )));
        }
        let timing = [
            ("dial", self.timing.dial),
            ("handshake", self.timing.handshake),
            ("heartbeat", self.timing.heartbeat),
            ("heartbeat_timeout", self.timing.heartbeat_timeout),
            ("close", self.timing.close),
        ];
        for (name, value) in timing {
            if !(Duration::from_millis(1)..=Duration::from_secs(3_600)).contains(&value) {
                return Err(wrong(&format!("{name}: expected 1 ms to 1 hour, found {value:?}")));
            }
        }
        if self.timing.heartbeat_timeout < self.timing.heartbeat {
            return Err(wrong(&format!(
                "heartbeat_timeout: expected at least the heartbeat {:?}, found {:?}",
                self.timing.heartbeat, self.timing.heartbeat_timeout
            )));
        }
        Ok(())
    }

    pub(crate) fn listen_of(&self, node: NodeIndex) -> Listen {
        self.listen.get(&node).cloned().unwrap_or_default()
    }
}

/// Whole milliseconds for an option of libzmq; the durations were checked to be at most an hour.
pub(crate) fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(host: &str, advertise: Option<&str>) -> Listen {
        Listen { host: host.to_owned(), port: 0, advertise_host: advertise.map(str::to_owned) }
    }

    #[test]
    fn node_9_a_wildcard_bind_host_needs_an_advertise_host() {
        assert_eq!(Listen::default().check(), Ok(()));
        for wildcard in ["0.0.0.0", "*", "::", "[::]"] {
            let error = listen(wildcard, None).check().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Configuration);
            assert!(error.description().contains("advertise host"), "{error}");
            assert_eq!(listen(wildcard, Some("10.0.0.7")).check(), Ok(()));
            assert!(listen("10.0.0.7", Some(wildcard)).check().is_err());
        }
        assert!(listen("", None).check().is_err());
        assert!(listen("127.0.0.1", Some("")).check().is_err());
        let config = ZmqConfig { listen: [(NodeIndex(3), listen("*", None))].into(), ..ZmqConfig::default() };
        assert!(config.check().unwrap_err().description().contains("node 3"));
    }

    #[test]
    fn node_8_the_advertised_endpoint_is_advertise_host_and_bound_port() {
        assert_eq!(Listen::default().advertised(71), "tcp://127.0.0.1:71");
        assert_eq!(listen("0.0.0.0", Some("game.example")).advertised(71), "tcp://game.example:71");
        assert_eq!(listen("::1", None).advertised(71), "tcp://[::1]:71");
        assert_eq!(listen("::1", None).bind_address(), "tcp://[::1]:0");
    }

    #[test]
    fn bounds_and_durations_are_checked() {
        let with = |change: &dyn Fn(&mut ZmqConfig)| {
            let mut config = ZmqConfig::default();
            change(&mut config);
            config.check()
        };
        assert_eq!(with(&|_| ()), Ok(()));
        assert!(with(&|c| c.bounds.window = WINDOW_MIN - 1).is_err());
        assert!(with(&|c| c.bounds.soft = c.bounds.window - 1).is_err());
        assert!(with(&|c| c.bounds.hard = c.bounds.soft).is_err());
        assert!(with(&|c| c.timing.dial = Duration::ZERO).is_err());
        assert!(with(&|c| c.timing.close = Duration::from_secs(3_601)).is_err());
        assert!(with(&|c| c.timing.heartbeat_timeout = c.timing.heartbeat / 2).is_err());
    }
}
