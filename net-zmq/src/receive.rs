//! What arrives: messages of peers, and what libzmq reports about connections.

use std::time::Duration;

use bytes::Bytes;
use spotmesh::link::{Lane, LinkDownReason, LinkId, ProvenPeer, Record, TransportEvent};
use spotmesh::model::Rid;
use spotmesh_zmq_ffi::{Error, MonitorEvent, MonitorKind, Multipart};

use crate::config::Security;
use crate::frame::{self, Malformed, Message, Token};
use crate::link::{Link, Phase};
use crate::port::{Listener, PortKey, Role};
use crate::transport::ZmqTransport;
use crate::zap::key_of_user_id;

/// Messages and bytes taken from one socket before the next gets its turn.
const TURN_MESSAGES: usize = 256;
const TURN_BYTES: usize = 1 << 20;
/// Turns given to a socket before a link of it that is lost ends.
const REST_TURNS: usize = 64;
/// What a lost connection delivered before is still read for this long: its loss is reported by another way.
pub(crate) const LAST_RECORDS: Duration = Duration::from_millis(5);
/// Links of one listener with one lane yet, at most.
const OPENING_MAX: usize = 1_024;

impl ZmqTransport {
    /// Receives from every socket that may have something, each for one turn.
    pub(crate) fn receive(&mut self) {
        let mut message = std::mem::take(&mut self.message);
        let unread: Vec<PortKey> = self.unread.iter().copied().collect();
        for key in unread {
            self.receive_turn(key, &mut message);
        }
        self.message = message;
    }

    /// Reads what a socket still holds, up to a bound that no link alone can reach.
    pub(crate) fn receive_rest(&mut self, key: PortKey) {
        let mut message = std::mem::take(&mut self.message);
        for _ in 0..REST_TURNS {
            if !self.unread.contains(&key) {
                break;
            }
            self.receive_turn(key, &mut message);
        }
        self.message = message;
    }

    fn receive_turn(&mut self, key: PortKey, message: &mut Multipart) {
        let mut bytes = 0;
        for _ in 0..TURN_MESSAGES {
            let Some(port) = self.ports.get(&key) else { return };
            match port.socket.recv(message) {
                Ok(()) => {}
                Err(Error::WouldBlock) => {
                    // Everything of this socket was seen: its descriptor tells of what comes next.
                    self.unread.remove(&key);
                    return;
                }
                Err(error) => {
                    tracing::error!(%error, "a socket cannot be read");
                    self.unread.remove(&key);
                    return;
                }
            }
            bytes += message.len();
            match port.role {
                Role::Dialler(link) => self.on_dialler(link, message),
                Role::Listener(_) => self.on_listener(key, message),
            }
            if bytes >= TURN_BYTES {
                return;
            }
        }
    }

    /// A message on a dial's own socket: only the dialled peer can have sent it.
    fn on_dialler(&mut self, id: LinkId, message: &Multipart) {
        let Some((route, frames)) = message.frames().split_first() else { return };
        let Some(lane) = frame::lane_of_route(route) else {
            self.counters.stray_messages += 1;
            return;
        };
        match read(message, frames) {
            Ok(decoded) => self.on_message(id, lane, decoded, bytes_of(frames)),
            Err(error) => self.end_link(id, LinkDownReason::Violated(error.to_string())),
        }
    }

    /// A message on a listener: of a link, or one that opens a link, or of no use.
    fn on_listener(&mut self, key: PortKey, message: &Multipart) {
        let Some((route, frames)) = message.frames().split_first() else { return };
        let known = self.ports.get_mut(&key).and_then(|port| port.listener_mut()?.routes.get(route).copied());
        let decoded = read(message, frames);
        let Some((id, lane)) = known else {
            match decoded {
                Ok(Message::Hello { lane, token, rid }) => {
                    let user = message.user_id().map(<[u8]>::to_vec);
                    self.on_hello(key, route, Hello { lane, token, rid, user, fd: message.source_fd() });
                }
                // The other side does not know yet that its link is gone.
                Ok(Message::Pack(_) | Message::Whole(_) | Message::Ack(_)) => {
                    self.counters.stray_messages += 1;
                    self.answer(key, route, frame::refuse("the link is gone"));
                }
                Ok(_) | Err(_) => self.counters.stray_messages += 1,
            }
            return;
        };
        let owner = self.links.get(&id).and_then(|link| link.user.as_deref());
        if owner.is_some() && message.user_id() != owner {
            self.counters.foreign_messages += 1;
            let text = "a frame of another key than the link's".to_owned();
            self.end_link(id, LinkDownReason::Violated(text));
            return;
        }
        match decoded {
            Ok(decoded) => self.on_message(id, lane, decoded, bytes_of(frames)),
            Err(error) => self.end_link(id, LinkDownReason::Violated(error.to_string())),
        }
    }

    /// Sends one message to a connection that belongs to no link; it may as well be gone.
    pub(crate) fn answer(&mut self, key: PortKey, route: &[u8], message: Bytes) {
        if let Some(port) = self.ports.get(&key) {
            let sent = port.socket.send(route, true).and_then(|()| port.socket.send_bytes(message, false));
            if let Err(error) = sent {
                tracing::debug!(%error, "a stray connection could not be answered");
            }
            self.unread.insert(key);
        }
    }

    fn refuse(&mut self, key: PortKey, route: &[u8], reason: &str) {
        self.counters.refused_hellos += 1;
        tracing::debug!(reason, "a connection was refused");
        self.answer(key, route, frame::refuse(reason));
    }

    /// What the transport can prove about the owner of a connection that states `rid`.
    fn prove(&self, user: Option<&[u8]>, rid: &Rid) -> Result<ProvenPeer, String> {
        let Security::Curve { peers, .. } = &self.config.security else {
            return Ok(ProvenPeer { rid: None, identity: None });
        };
        let proven = user.and_then(key_of_user_id).and_then(|key| peers.peer_of(&key));
        let Some(proven) = proven else { return Err("expected a known key".to_owned()) };
        match &proven.rid {
            Some(bound) if bound != rid => Err(format!("expected RID {bound} of this key, found {rid}")),
            _ => Ok(proven),
        }
    }

    /// A connection opens one lane of a link.
    fn on_hello(&mut self, key: PortKey, route: &Bytes, hello: Hello) {
        // The end of an earlier connection with the same descriptor must be seen before this one has it.
        self.read_monitor(key);
        let proven = match self.prove(hello.user.as_deref(), &hello.rid) {
            Ok(proven) => proven,
            Err(reason) => return self.refuse(key, route, &reason),
        };
        let until = self.now() + self.config.timing.dial;
        let id = self.new_link_id();
        let Some(listener) = self.ports.get_mut(&key).and_then(|port| port.listener_mut()) else { return };
        if !hello.fd.is_some_and(|fd| listener.connected.contains(&fd)) {
            // Gone again.
            self.counters.stray_messages += 1;
            return;
        }
        if !listener.accepting {
            return self.refuse(key, route, "the listener is closed");
        }
        let node = listener.node;
        let id = match listener.opening.get(&hello.token) {
            Some(first) => *first,
            None if listener.opening.len() >= OPENING_MAX => {
                return self.refuse(key, route, "too many links are being opened");
            }
            None => {
                listener.opening.insert(hello.token, id);
                let mut link = Link::new(node, key, hello.token, until);
                link.user = hello.user.clone().filter(|_| !matches!(self.config.security, Security::Null));
                link.proven = proven;
                link.stated = Some(hello.rid.clone());
                self.links.insert(id, link);
                self.timed.insert(id);
                id
            }
        };
        let Some(link) = self.links.get_mut(&id) else { return };
        let same = link.stated.as_ref() == Some(&hello.rid)
            && (link.user.is_none() || link.user == hello.user)
            && !link.lane(hello.lane).open;
        if !same {
            return self.refuse(key, route, "the lanes of a link do not belong together");
        }
        let lane = link.lane_mut(hello.lane);
        lane.open = true;
        lane.fd = hello.fd;
        lane.out.route = route.clone();
        lane.out.open_with(frame::accept());
        let up = link.both_open();
        if let Some(listener) = self.ports.get_mut(&key).and_then(|port| port.listener_mut()) {
            listener.routes.insert(route.clone(), (id, hello.lane));
            if let Some(fd) = hello.fd {
                listener.fds.insert(fd, (id, hello.lane));
            }
            if up {
                listener.opening.remove(&hello.token);
            }
        }
        if up {
            self.link_is_up(id);
        }
        self.pump(id);
    }

    fn link_is_up(&mut self, id: LinkId) {
        self.timed.remove(&id);
        let Some(link) = self.links.get_mut(&id) else { return };
        link.phase = Phase::Up;
        let (node, dial, proven) = (link.node, link.dial, link.proven.clone());
        let early = std::mem::take(&mut link.early);
        self.events.push_back(TransportEvent::LinkUp { node, link: id, dial, proven });
        for (lane, record) in early {
            self.events.push_back(TransportEvent::Received { link: id, lane, record });
        }
    }

    /// A message on a lane of a link.
    fn on_message(&mut self, id: LinkId, lane: Lane, message: Message, bytes: usize) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let (phase, dialled) = (link.phase.clone(), link.dial.is_some());
        let opening = matches!(phase, Phase::Opening { .. });
        let state = link.lane_mut(lane);
        match message {
            Message::Accept if opening && dialled && !state.open => {
                state.open = true;
                if link.both_open() {
                    self.link_is_up(id);
                }
            }
            Message::Refuse(reason) if dialled => {
                self.end_link(id, LinkDownReason::Broken(format!("refused: {reason}")));
            }
            Message::Pack(_) | Message::Whole(_) if state.ended || !state.open => {
                self.violated(id, "a record outside an open lane");
            }
            Message::Pack(pack) => {
                if state.take(bytes) {
                    self.unsent.insert(id);
                }
                frame::unpack(&pack, |record| self.on_record(id, lane, record));
            }
            Message::Whole(record) => {
                if state.take(bytes) {
                    self.unsent.insert(id);
                }
                self.on_record(id, lane, record);
            }
            Message::Ack(taken) => {
                if state.out.acked(taken) {
                    self.pump(id);
                } else {
                    self.violated(id, "an acknowledgement of what was not sent");
                }
            }
            Message::Bye => {
                state.ended = true;
                let both = link.both_ended();
                match phase {
                    Phase::Closing { .. } if both => {
                        self.remove_link(id, 0);
                    }
                    Phase::Closing { .. } => {}
                    _ if both || opening => self.end_link(id, LinkDownReason::Closed),
                    // The other lane may have more to deliver before its own end.
                    _ => self.ending(id, LinkDownReason::Closed, self.config.timing.close),
                }
            }
            Message::Hello { .. } | Message::Accept | Message::Refuse(_) => {
                self.violated(id, "a message that opens a lane on an open one");
            }
        }
    }

    fn violated(&mut self, id: LinkId, text: &str) {
        self.end_link(id, LinkDownReason::Violated(text.to_owned()));
    }

    fn on_record(&mut self, id: LinkId, lane: Lane, record: Record) {
        let Some(link) = self.links.get_mut(&id) else { return };
        match link.phase {
            Phase::Up | Phase::Ending { .. } => {
                self.events.push_back(TransportEvent::Received { link: id, lane, record });
            }
            Phase::Opening { .. } => link.early.push((lane, record)),
            // No event follows a close.
            Phase::Closing { .. } => {}
        }
    }

    /// Ends a link that is up in a moment, after what the other side sent before was read.
    pub(crate) fn ending(&mut self, id: LinkId, reason: LinkDownReason, after: Duration) {
        let until = self.now() + after;
        let Some(link) = self.links.get_mut(&id) else { return };
        match &mut link.phase {
            Phase::Up => {
                link.phase = Phase::Ending { until, reason };
                self.timed.insert(id);
                self.unread.insert(link.port);
            }
            // The first reason stays, the end may come sooner.
            Phase::Ending { until: before, .. } => *before = until.min(*before),
            Phase::Opening { .. } | Phase::Closing { .. } => self.end_link(id, reason),
        }
    }

    /// Takes note of what libzmq reports about a socket's connections.
    pub(crate) fn read_monitor(&mut self, key: PortKey) {
        while let Some(port) = self.ports.get_mut(&key) {
            let event = match port.socket.next_event() {
                Ok(event) => event,
                Err(Error::WouldBlock) => return,
                Err(error) => {
                    tracing::error!(%error, "a monitor cannot be read");
                    return;
                }
            };
            match &mut port.role {
                Role::Listener(listener) => {
                    if let Some((id, _)) = noted(listener, event) {
                        let text = "the connection is lost".to_owned();
                        self.ending(id, LinkDownReason::Broken(text), LAST_RECORDS);
                    }
                }
                Role::Dialler(id) => {
                    let id = *id;
                    if let Some(text) = failure(event) {
                        self.ending(id, LinkDownReason::Broken(text), LAST_RECORDS);
                    }
                }
            }
        }
    }
}

/// What a connection said to open a lane.
struct Hello {
    lane: Lane,
    token: Token,
    rid: Rid,
    user: Option<Vec<u8>>,
    fd: Option<i32>,
}

fn bytes_of(frames: &[Bytes]) -> usize {
    match frames {
        // A record with large parts: its first frame says only that.
        [_, parts @ ..] if !parts.is_empty() => parts.iter().map(Bytes::len).sum(),
        frames => frames.iter().map(Bytes::len).sum(),
    }
}

fn read(message: &Multipart, frames: &[Bytes]) -> Result<Message, Malformed> {
    if message.overlong() {
        Err(Malformed("expected few frames, found many".to_owned()))
    } else {
        frame::decode(frames)
    }
}

/// Keeps the listener's list of connections; answers the lane whose connection ended.
fn noted(listener: &mut Listener, event: MonitorEvent) -> Option<(LinkId, Lane)> {
    let fd = i32::try_from(event.value).ok()?;
    match event.kind {
        MonitorKind::Accepted => {
            listener.connected.insert(fd);
            None
        }
        MonitorKind::Disconnected => {
            listener.connected.remove(&fd);
            listener.fds.remove(&fd)
        }
        _ => None,
    }
}

/// What an event means for a dial's connections, where it means their end.
fn failure(event: MonitorEvent) -> Option<String> {
    match event.kind {
        MonitorKind::Closed => Some("nobody answers at that address".to_owned()),
        MonitorKind::Disconnected => Some("the connection is lost".to_owned()),
        MonitorKind::HandshakeFailed => Some("the handshake was cut off or timed out".to_owned()),
        MonitorKind::HandshakeBroken => {
            Some(format!("the handshake failed: other security settings or keys ({:#x})", event.value))
        }
        MonitorKind::HandshakeRefused => Some(format!("the other side refused this key ({})", event.value)),
        MonitorKind::Connected | MonitorKind::Accepted | MonitorKind::HandshakeSucceeded => None,
    }
}

#[cfg(test)]
#[path = "receive_tests.rs"]
mod tests;
