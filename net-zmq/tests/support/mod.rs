//! Several transports on one reactor, driven until something is true or time is up.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use spotmesh::driver::Transport;
use spotmesh::link::{
    DialId, DialTarget, Lane, LinkDownReason, LinkId, NodeIndex, ProvenPeer, Record, TransportEvent,
};
use spotmesh::model::Rid;
use spotmesh_net_zmq::{Reactor, Timing, ZmqConfig, ZmqTransport};

pub const NODE: NodeIndex = NodeIndex(0);
/// Long enough for a slow machine; every wait ends when its condition holds.
pub const LONG: Duration = Duration::from_secs(20);
pub const MS: Duration = Duration::from_millis(1);

/// One transport and what it reported.
pub struct Host {
    pub transport: ZmqTransport,
    pub events: Vec<TransportEvent>,
}

impl Host {
    pub fn links_up(&self) -> Vec<(LinkId, Option<DialId>, ProvenPeer)> {
        let up = |event: &TransportEvent| match event {
            TransportEvent::LinkUp { link, dial, proven, .. } => Some((*link, *dial, proven.clone())),
            _ => None,
        };
        self.events.iter().filter_map(up).collect()
    }

    pub fn down(&self, id: LinkId) -> Option<LinkDownReason> {
        self.events.iter().find_map(|event| match event {
            TransportEvent::LinkDown { link, reason } if *link == id => Some(reason.clone()),
            _ => None,
        })
    }

    pub fn failed(&self, id: DialId) -> Option<String> {
        self.events.iter().find_map(|event| match event {
            TransportEvent::DialFailed { dial, reason } if *dial == id => Some(reason.clone()),
            _ => None,
        })
    }

    pub fn received(&self, id: LinkId, on: Lane) -> Vec<Record> {
        let of = |event: &TransportEvent| match event {
            TransportEvent::Received { link, lane, record } if *link == id && *lane == on => {
                Some(record.clone())
            }
            _ => None,
        };
        self.events.iter().filter_map(of).collect()
    }

    pub fn received_count(&self, id: LinkId) -> usize {
        let of =
            |event: &&TransportEvent| matches!(event, TransportEvent::Received { link, .. } if *link == id);
        self.events.iter().filter(of).count()
    }
}

/// All transports of a test.
pub struct Rig {
    pub reactor: Reactor,
    pub hosts: Vec<Host>,
    next_dial: u64,
}

/// Short times, so that tests of failures do not take long.
pub fn brisk() -> ZmqConfig {
    let timing = Timing {
        dial: Duration::from_secs(2),
        handshake: Duration::from_secs(1),
        heartbeat: Duration::from_millis(400),
        heartbeat_timeout: Duration::from_millis(1_200),
        close: Duration::from_secs(1),
    };
    ZmqConfig { timing, ..ZmqConfig::default() }
}

pub fn rid(name: &str) -> Rid {
    Rid::new(name).unwrap()
}

pub fn small(text: &str) -> Record {
    Record { header: Bytes::copy_from_slice(text.as_bytes()), body: None }
}

pub fn numbered(number: u32, body: usize) -> Record {
    let body = (body > 0).then(|| Bytes::from(vec![number as u8; body]));
    Record { header: Bytes::copy_from_slice(&number.to_le_bytes()), body }
}

pub fn number_of(record: &Record) -> u32 {
    u32::from_le_bytes(record.header[..].try_into().unwrap())
}

impl Rig {
    pub fn new(configs: impl IntoIterator<Item = ZmqConfig>) -> Self {
        let reactor = Reactor::new().unwrap();
        let mut rig = Self { reactor, hosts: Vec::new(), next_dial: 0 };
        for config in configs {
            rig.add(config);
        }
        rig
    }

    pub fn add(&mut self, config: ZmqConfig) -> usize {
        let transport = ZmqTransport::new(config, &self.reactor).unwrap();
        self.hosts.push(Host { transport, events: Vec::new() });
        self.hosts.len() - 1
    }

    /// Drives all transports until `done`, at most for `limit`; answers whether it came to that.
    pub fn until(&mut self, limit: Duration, done: impl FnMut(&mut [Host]) -> bool) -> bool {
        self.until_without(usize::MAX, limit, done)
    }

    /// The same, but one host does not look at its sockets.
    pub fn until_without(
        &mut self,
        asleep: usize,
        limit: Duration,
        mut done: impl FnMut(&mut [Host]) -> bool,
    ) -> bool {
        let clock = self.reactor.clock();
        let mut end = pin!(clock.sleep_until(clock.now() + limit));
        let hosts = &mut self.hosts;
        self.reactor.block_on(poll_fn(|cx| {
            loop {
                let mut progress = false;
                for (_, host) in hosts.iter_mut().enumerate().filter(|(at, _)| *at != asleep) {
                    // Some at a time, so that no transport starves another.
                    for _ in 0..1_000 {
                        let Poll::Ready(event) = host.transport.poll_event(cx) else { break };
                        host.events.push(event);
                        progress = true;
                    }
                }
                if done(hosts) {
                    return Poll::Ready(true);
                }
                if end.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(false);
                }
                if !progress {
                    return Poll::Pending;
                }
            }
        }))
    }

    /// Drives all transports for a while.
    pub fn settle(&mut self, time: Duration) {
        self.until(time, |_| false);
    }

    /// Opens the listener of a host; answers its endpoint.
    pub fn bind(&mut self, at: usize) -> String {
        self.hosts[at].transport.bind(NODE);
        let mut endpoint = None;
        assert!(self.until(LONG, |hosts| {
            endpoint = hosts[at].events.iter().find_map(|event| match event {
                TransportEvent::Bound { endpoint, .. } => Some(endpoint.clone()),
                TransportEvent::BindFailed { reason, .. } => panic!("{reason}"),
                _ => None,
            });
            endpoint.is_some()
        }));
        endpoint.unwrap()
    }

    pub fn dial(&mut self, from: usize, endpoint: &str, expected: Option<&str>) -> DialId {
        self.dial_as(from, endpoint, expected, &format!("host-{from}"))
    }

    pub fn dial_as(&mut self, from: usize, endpoint: &str, expected: Option<&str>, local: &str) -> DialId {
        self.next_dial += 1;
        let dial = DialId(self.next_dial);
        let target = DialTarget {
            endpoint: endpoint.to_owned(),
            expected_rid: expected.map(rid),
            local_rid: rid(local),
        };
        self.hosts[from].transport.dial(NODE, dial, target);
        dial
    }

    /// Dials and waits for the link; answers its ids on both sides.
    pub fn link(&mut self, from: usize, to: usize, endpoint: &str) -> (LinkId, LinkId) {
        let before = self.hosts[to].links_up().len();
        let dial = self.dial(from, endpoint, None);
        let mut ours = None;
        assert!(
            self.until(LONG, |hosts| {
                ours = hosts[from].links_up().into_iter().find(|(_, of, _)| *of == Some(dial));
                ours.is_some() && hosts[to].links_up().len() > before
            }),
            "no link: {:?}",
            self.hosts[from].events
        );
        let theirs = self.hosts[to].links_up()[before].0;
        (ours.unwrap().0, theirs)
    }

    /// Two hosts with a link from the second to the first: their link ids, and the endpoint of the first.
    pub fn pair(config: ZmqConfig) -> (Self, LinkId, LinkId, String) {
        let mut rig = Self::new([config.clone(), config]);
        let endpoint = rig.bind(0);
        let (dialler, listener) = rig.link(1, 0, &endpoint);
        (rig, listener, dialler, endpoint)
    }

    pub fn send(&mut self, at: usize, link: LinkId, lane: Lane, record: Record) {
        self.hosts[at].transport.send(link, lane, record);
    }

    pub fn flush(&mut self, at: usize) {
        self.hosts[at].transport.flush();
    }
}
