//! The Transport: what the driver asks for, and when things happen by themselves.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::Context as TaskContext;
use std::time::Duration;

use spotmesh::link::{DialId, Lane, LinkDownReason, LinkId, NodeIndex, TransportEvent};
use spotmesh::model::{Error, ErrorKind, Instant};
use spotmesh_zmq_ffi::{Context, Multipart, require_curve};

use crate::config::{Security, ZmqConfig, millis};
use crate::frame;
use crate::lane::Pumped;
use crate::link::{Link, Phase};
use crate::port::{Port, PortKey, Role};
use crate::reactor::{Reactor, ReactorClock, Sleep, Sources};
use crate::receive::LAST_RECORDS;
use crate::zap::ZapHandler;

/// How soon a full connection is tried again where no event of its socket comes first.
const RETRY: Duration = Duration::from_millis(5);

/// What was turned away without harm, since the transport was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that belonged to no link: garbage, or of a link that ended.
    pub stray_messages: u64,
    /// Attempts to open a link that were refused.
    pub refused_hellos: u64,
    /// Messages that came over a connection whose proven key is not the link's.
    pub foreign_messages: u64,
    /// Links given up because the other side took nothing.
    pub stalled_links: u64,
}

/// Moves records between MeshNodes over ZeroMQ.
///
/// It belongs to the thread that made it and is driven by [`Reactor::block_on`] on that thread: its wake-ups
/// come from the reactor's descriptors. Dropping it closes everything; it blocks, at most for
/// [`crate::Timing::close`] twice, while links that were closed before still have something to send.
pub struct ZmqTransport {
    // Dropped in this order: sockets, the handler that judges connections, the context.
    pub(crate) ports: BTreeMap<PortKey, Port>,
    _zap: ZapHandler,
    pub(crate) context: Context,
    pub(crate) config: ZmqConfig,
    pub(crate) sources: Rc<Sources>,
    clock: ReactorClock,
    pub(crate) timer: Option<Sleep>,
    /// Ports by reactor token; `true` for the monitor's.
    pub(crate) tokens: BTreeMap<u64, (PortKey, bool)>,
    pub(crate) links: BTreeMap<LinkId, Link>,
    pub(crate) dials: BTreeMap<DialId, LinkId>,
    pub(crate) events: VecDeque<TransportEvent>,
    /// Ports that may have something to receive.
    pub(crate) unread: BTreeSet<PortKey>,
    /// Links with something to send.
    pub(crate) unsent: BTreeSet<LinkId>,
    /// Links whose connection was full, and when they are tried again.
    pub(crate) full: BTreeSet<LinkId>,
    retry: Option<Instant>,
    /// Links that change by themselves at some time.
    pub(crate) timed: BTreeSet<LinkId>,
    pub(crate) message: Multipart,
    pub(crate) ready: Vec<u64>,
    next_link: u64,
    next_port: u64,
    pub(crate) counters: Counters,
}

impl ZmqTransport {
    /// A transport of the given settings, without listeners or links.
    ///
    /// # Errors
    /// `Configuration` where a setting does not hold or the linked libzmq lacks CURVE, `InternalFailure` where
    /// no context can be made.
    pub fn new(config: ZmqConfig, reactor: &Reactor) -> Result<Self, Error> {
        config.check()?;
        let error = |kind, text: String| Error::new(kind, "zmq transport", text);
        require_curve().map_err(|e| error(ErrorKind::Configuration, e.to_string()))?;
        if let Security::Curve { keys, .. } = &config.security {
            let public = spotmesh_zmq_ffi::public_key(&keys.secret)
                .map_err(|e| error(ErrorKind::Configuration, e.to_string()))?;
            if public != keys.public {
                let text = "CURVE keys: expected a public key that belongs to the secret key, found another";
                return Err(error(ErrorKind::Configuration, text.to_owned()));
            }
        }
        let context = Context::new().map_err(|e| error(ErrorKind::InternalFailure, e.to_string()))?;
        let zap = ZapHandler::start(&context, &config.security)
            .map_err(|text| error(ErrorKind::InternalFailure, text))?;
        Ok(Self {
            ports: BTreeMap::new(),
            _zap: zap,
            context,
            config,
            sources: reactor.sources(),
            clock: reactor.clock(),
            timer: None,
            tokens: BTreeMap::new(),
            links: BTreeMap::new(),
            dials: BTreeMap::new(),
            events: VecDeque::new(),
            unread: BTreeSet::new(),
            unsent: BTreeSet::new(),
            full: BTreeSet::new(),
            retry: None,
            timed: BTreeSet::new(),
            message: Multipart::default(),
            ready: Vec::new(),
            next_link: 0,
            next_port: 0,
            counters: Counters::default(),
        })
    }

    /// What was turned away so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Sockets and links that exist now: zero and zero when nothing is registered (NODE-98).
    #[must_use]
    pub fn registered(&self) -> (usize, usize) {
        (self.ports.len(), self.links.len())
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(crate) fn new_link_id(&mut self) -> LinkId {
        self.next_link += 1;
        LinkId(self.next_link)
    }

    pub(crate) fn add_port(&mut self, key: PortKey, port: Port) {
        self.tokens.insert(port.socket_token, (key, false));
        self.tokens.insert(port.monitor_token, (key, true));
        self.ports.insert(key, port);
        // A descriptor tells of nothing before its socket was found empty once.
        self.unread.insert(key);
        self.read_monitor(key);
    }

    /// Closes a socket; what libzmq holds may leave for `linger` milliseconds.
    pub(crate) fn remove_port(&mut self, key: PortKey, linger: i32) {
        if let Some(port) = self.ports.remove(&key) {
            self.tokens.remove(&port.socket_token);
            self.tokens.remove(&port.monitor_token);
            self.unread.remove(&key);
            port.linger(linger);
        }
    }

    pub(crate) fn new_port_key(&mut self) -> PortKey {
        self.next_port += 1;
        PortKey(self.next_port)
    }

    pub(crate) fn listener_of(&mut self, node: NodeIndex) -> Option<(PortKey, &mut crate::port::Listener)> {
        self.ports.iter_mut().find_map(|(key, port)| match &mut port.role {
            Role::Listener(listener) if listener.node == node => Some((*key, listener)),
            _ => None,
        })
    }

    /// Closes a listener that accepts nothing any more and has no lane left.
    pub(crate) fn close_unused_listener(&mut self, key: PortKey) {
        let unused = match self.ports.get(&key).map(|port| &port.role) {
            Some(Role::Listener(listener)) => !listener.accepting && listener.routes.is_empty(),
            _ => false,
        };
        if unused {
            self.remove_port(key, millis(self.config.timing.close));
        }
    }

    /// Forgets a link with all that is registered for it.
    pub(crate) fn remove_link(&mut self, id: LinkId, linger: i32) -> Option<Link> {
        let link = self.links.remove(&id)?;
        self.unsent.remove(&id);
        self.full.remove(&id);
        self.timed.remove(&id);
        if let Some(dial) = link.dial {
            self.dials.remove(&dial);
            self.remove_port(link.port, linger);
            return Some(link);
        }
        if let Some(listener) = self.ports.get_mut(&link.port).and_then(Port::listener_mut) {
            for lane in link.lanes() {
                listener.routes.remove(&lane.out.route);
                if let Some(fd) = lane.fd {
                    listener.fds.remove(&fd);
                }
            }
            listener.opening.remove(&link.token);
        }
        self.close_unused_listener(link.port);
        Some(link)
    }

    /// Ends a link at once and reports it, as the end of its dial where it was not up yet.
    pub(crate) fn end_link(&mut self, id: LinkId, reason: LinkDownReason) {
        let Some(link) = self.remove_link(id, 0) else { return };
        // A listener cannot cut one connection, so the dialler is asked to.
        let last = match (link.dial, &reason) {
            (None, LinkDownReason::Stalled | LinkDownReason::Violated(_)) => {
                Some(frame::refuse("the link was given up"))
            }
            (None, LinkDownReason::Closed) => Some(frame::bye()),
            _ => None,
        };
        for lane in last.iter().flat_map(|_| link.lanes()) {
            self.answer(link.port, &lane.out.route, last.clone().unwrap_or_default());
        }
        match (link.phase, link.dial) {
            (Phase::Up | Phase::Ending { .. }, _) => {
                self.events.push_back(TransportEvent::LinkDown { link: id, reason });
            }
            (Phase::Opening { .. }, Some(dial)) => {
                let reason = match reason {
                    LinkDownReason::Broken(text) | LinkDownReason::Violated(text) => text,
                    other => format!("{other:?}"),
                };
                self.events.push_back(TransportEvent::DialFailed { dial, reason });
            }
            (Phase::Opening { .. } | Phase::Closing { .. }, _) => {}
        }
    }

    /// Gives what a link has queued to libzmq.
    pub(crate) fn pump(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let Some(port) = self.ports.get(&link.port) else { return };
        // Sending may process an event of the socket that its descriptor then does not tell of any more.
        self.unread.insert(link.port);
        let pumped = link.pump(&port.socket, self.config.bounds.window);
        match pumped {
            Ok(Pumped::Full) => {
                self.full.insert(id);
                self.retry.get_or_insert(self.clock.now() + RETRY);
            }
            Ok(Pumped::Empty | Pumped::Window) => {
                self.full.remove(&id);
                self.report_writable(id);
            }
            // What the other side sent before, a close in order among it, is still read.
            Err(error) => self.ending(id, LinkDownReason::Broken(error.to_string()), LAST_RECORDS),
        }
    }

    fn report_writable(&mut self, id: LinkId) {
        let half = self.config.bounds.soft / 2;
        if let Some(link) = self.links.get_mut(&id)
            && link.congested
            && link.lane(Lane::Application).out.pending() <= half
        {
            link.congested = false;
            if link.phase == Phase::Up {
                self.events.push_back(TransportEvent::Writable { link: id });
            }
        }
    }

    pub(crate) fn pump_unsent(&mut self) {
        while let Some(id) = self.unsent.pop_first() {
            self.pump(id);
        }
    }

    /// Does what is due by the clock.
    pub(crate) fn expire(&mut self) {
        if self.timed.is_empty() && self.retry.is_none() {
            return;
        }
        let now = self.now();
        if self.retry.is_some_and(|at| at <= now) {
            self.retry = None;
            self.unsent.append(&mut self.full);
        }
        let due = |id: &LinkId| self.links.get(id).and_then(Link::until).is_none_or(|until| until <= now);
        let due: Vec<LinkId> = self.timed.iter().copied().filter(due).collect();
        for id in due {
            self.timed.remove(&id);
            let Some(phase) = self.links.get(&id).map(|link| link.phase.clone()) else { continue };
            match phase {
                Phase::Opening { .. } => {
                    self.end_link(id, LinkDownReason::Broken("no answer within the dial timeout".to_owned()));
                }
                Phase::Ending { reason, .. } => {
                    if let Some(port) = self.links.get(&id).map(|link| link.port) {
                        self.receive_rest(port);
                    }
                    self.end_link(id, reason);
                }
                Phase::Closing { .. } => {
                    self.remove_link(id, 0);
                }
                Phase::Up => {}
            }
        }
    }

    /// When [`Self::expire`] has something to do next.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let timed = self.timed.iter().filter_map(|id| self.links.get(id)?.until()).min();
        match (timed, self.retry) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Sleeps for the next due time; answers whether it has come.
    pub(crate) fn poll_timer(&mut self, cx: &mut TaskContext<'_>) -> bool {
        let Some(at) = self.next_due() else {
            self.timer = None;
            return false;
        };
        if self.timer.as_ref().is_none_or(|timer| timer.at() != at) {
            self.timer = Some(self.clock.sleep_until(at));
        }
        let Some(timer) = &mut self.timer else { return false };
        let due = pin!(timer).poll(cx).is_ready();
        if due {
            self.timer = None;
        }
        due
    }
}

impl Drop for ZmqTransport {
    fn drop(&mut self) {
        // Closed links wait for the other side to have read what they sent: a connection closed over unread
        // acknowledgements would be reset, and what was under way lost.
        let closing = |link: &Link| matches!(link.phase, Phase::Closing { .. });
        let end = self.now() + self.config.timing.close;
        while self.links.values().any(closing) && self.now() < end {
            self.expire();
            let ports: Vec<PortKey> = self.ports.keys().copied().collect();
            for key in ports {
                self.read_monitor(key);
                self.unread.insert(key);
            }
            self.unsent.append(&mut self.full);
            self.receive();
            self.pump_unsent();
            self.events.clear();
            std::thread::sleep(Duration::from_millis(1));
        }
        let linger = millis(self.config.timing.close);
        for port in self.ports.values() {
            port.linger(linger);
        }
    }
}
