//! What the driver asks for: the Transport trait.

use std::rc::Rc;
use std::task::{Context as TaskContext, Poll};

use spotmesh::driver::Transport;
use spotmesh::link::{
    DialId, DialTarget, Lane, LinkDownReason, LinkId, NodeIndex, ProvenPeer, Record, TransportEvent,
};

use crate::config::Security;
use crate::frame::{self, FRAME_MAX, Token};
use crate::link::{Link, Phase};
use crate::port::{Port, PortKey, Role};
use crate::reactor::Sleep;
use crate::transport::ZmqTransport;

/// Rounds of receiving that may go by without an event for the driver before others get their turn.
const ROUNDS: u32 = 32;

impl ZmqTransport {
    /// Starts a dial: its socket, its two connections and the first message on each.
    fn start_dial(
        &mut self,
        node: NodeIndex,
        id: LinkId,
        dial: DialId,
        target: &DialTarget,
    ) -> Result<(), String> {
        let (server_key, proven) = match &self.config.security {
            Security::Null => (None, ProvenPeer { rid: None, identity: None }),
            Security::Curve { peers, .. } => {
                let Some(key) = peers.key_for(target) else {
                    return Err(format!("no key is known for {} at {}", expected(target), target.endpoint));
                };
                let proven = peers.peer_of(&key).unwrap_or(ProvenPeer { rid: None, identity: None });
                (Some(key), proven)
            }
        };
        let mut token = Token::default();
        spotmesh_zmq_ffi::random_bytes(&mut token).map_err(|error| error.to_string())?;
        let key = self.new_port_key();
        let (sources, config) = (Rc::clone(&self.sources), &self.config);
        let port = Port::dial(&self.context, &sources, config, target, id, server_key.as_ref())?;
        let until = self.now() + self.config.timing.dial;
        let mut link = Link::new(node, key, token, until);
        link.dial = Some(dial);
        link.proven = proven;
        for lane in [Lane::Application, Lane::Completion] {
            let out = &mut link.lane_mut(lane).out;
            out.route = frame::dialler_route(lane);
            out.open_with(frame::hello(lane, &token, &target.local_rid));
        }
        self.links.insert(id, link);
        self.dials.insert(dial, id);
        self.timed.insert(id);
        self.add_port(key, port);
        // Waits in libzmq until the connections are up.
        self.pump(id);
        Ok(())
    }

    fn bind_node(&mut self, node: NodeIndex) {
        if let Some((_, listener)) = self.listener_of(node) {
            // Unbound while links were left, or bound twice: the address is the same.
            listener.accepting = true;
            let endpoint = listener.endpoint.clone();
            self.events.push_back(TransportEvent::Bound { node, endpoint });
            return;
        }
        let listen = self.config.listen_of(node);
        match Port::listen(&self.context, &self.sources, &self.config, node, &listen) {
            Ok(port) => {
                let key = self.new_port_key();
                if let Role::Listener(listener) = &port.role {
                    let endpoint = listener.endpoint.clone();
                    self.events.push_back(TransportEvent::Bound { node, endpoint });
                }
                self.add_port(key, port);
            }
            Err(reason) => self.events.push_back(TransportEvent::BindFailed { node, reason }),
        }
    }

    /// Has the owner poll again where something waits that no descriptor and no timer tells of.
    ///
    /// A driver may send after it found nothing to receive. Sending processes what the socket's descriptor had
    /// to tell, so each socket that was used is asked again.
    fn stir(&mut self) {
        let ports = &self.ports;
        let idle =
            |key: &PortKey| ports.get(key).is_none_or(|port| matches!(port.socket.readable(), Ok(false)));
        self.unread.retain(|key| !idle(key));
        let due = self.next_due();
        let unarmed = due.is_some() && due != self.timer.as_ref().map(Sleep::at);
        if !self.events.is_empty() || !self.unread.is_empty() || unarmed {
            self.sources.wake();
        }
    }
}

fn expected(target: &DialTarget) -> String {
    target.expected_rid.as_ref().map_or_else(|| "a peer".to_owned(), |rid| format!("RID {rid}"))
}

impl Transport for ZmqTransport {
    fn bind(&mut self, node: NodeIndex) {
        self.bind_node(node);
        self.stir();
    }

    fn unbind(&mut self, node: NodeIndex) {
        let Some((key, listener)) = self.listener_of(node) else { return };
        listener.accepting = false;
        for id in std::mem::take(&mut listener.opening).into_values() {
            self.remove_link(id, 0);
        }
        self.close_unused_listener(key);
        self.stir();
    }

    fn dial(&mut self, node: NodeIndex, dial: DialId, target: DialTarget) {
        let id = self.new_link_id();
        if let Err(reason) = self.start_dial(node, id, dial, &target) {
            self.remove_link(id, 0);
            self.events.push_back(TransportEvent::DialFailed { dial, reason });
        }
        self.stir();
    }

    fn drop_dial(&mut self, dial: DialId) {
        let unseen = |event: &TransportEvent| match event {
            TransportEvent::DialFailed { dial: of, .. } => *of == dial,
            TransportEvent::LinkUp { dial: of, .. } => *of == Some(dial),
            _ => false,
        };
        let undelivered = self.events.iter().any(unseen);
        self.events.retain(|event| !unseen(event));
        let Some(id) = self.dials.get(&dial).copied() else { return };
        match self.links.get(&id).map(|link| &link.phase) {
            Some(Phase::Opening { .. }) => {
                self.remove_link(id, 0);
            }
            Some(_) if undelivered => self.close(id),
            // The dial ended with a LinkUp: the link is closed by its own id.
            _ => {}
        }
        self.stir();
    }

    fn send(&mut self, id: LinkId, lane: Lane, record: Record) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.phase != Phase::Up {
            return;
        }
        let largest = record.header.len().max(record.body.as_ref().map_or(0, bytes::Bytes::len));
        if largest > FRAME_MAX {
            let text =
                format!("a record to send: expected frames of at most {FRAME_MAX} bytes, found {largest}");
            self.end_link(id, LinkDownReason::Violated(text));
            self.sources.wake();
            return;
        }
        let out = &mut link.lane_mut(lane).out;
        out.push(record);
        let pending = out.pending();
        self.unsent.insert(id);
        if pending > self.config.bounds.hard {
            self.counters.stalled_links += 1;
            self.end_link(id, LinkDownReason::Stalled);
            self.sources.wake();
        } else if lane == Lane::Application && pending > self.config.bounds.soft && !link.congested {
            link.congested = true;
            self.events.push_back(TransportEvent::Congested { link: id });
            self.sources.wake();
        }
    }

    fn close(&mut self, id: LinkId) {
        self.events.retain(|event| match event {
            TransportEvent::LinkUp { link, .. }
            | TransportEvent::LinkDown { link, .. }
            | TransportEvent::Received { link, .. }
            | TransportEvent::Congested { link }
            | TransportEvent::Writable { link } => *link != id,
            _ => true,
        });
        let until = self.now() + self.config.timing.close;
        let Some(link) = self.links.get_mut(&id) else { return };
        match link.phase {
            Phase::Up => {
                link.phase = Phase::Closing { until };
                link.end_with_bye();
                self.timed.insert(id);
                self.pump(id);
            }
            Phase::Opening { .. } | Phase::Ending { .. } => {
                self.remove_link(id, 0);
            }
            Phase::Closing { .. } => {}
        }
        self.stir();
    }

    fn flush(&mut self) {
        self.pump_unsent();
        self.stir();
    }

    fn poll_event(&mut self, cx: &mut TaskContext<'_>) -> Poll<TransportEvent> {
        for _ in 0..ROUNDS {
            if let Some(event) = self.events.pop_front() {
                return Poll::Ready(event);
            }
            self.expire();
            let mut ready = std::mem::take(&mut self.ready);
            self.sources.take_ready(cx, &mut ready);
            for token in ready.drain(..) {
                match self.tokens.get(&token).copied() {
                    Some((port, true)) => self.read_monitor(port),
                    Some((port, false)) => {
                        self.unread.insert(port);
                        // Room in a connection is told by the same descriptor.
                        self.unsent.append(&mut self.full);
                    }
                    None => {}
                }
            }
            self.ready = ready;
            self.receive();
            self.pump_unsent();
            let idle = self.events.is_empty() && self.unread.is_empty();
            if idle && !self.poll_timer(cx) {
                return Poll::Pending;
            }
        }
        // Others run before the next round.
        cx.waker().wake_by_ref();
        match self.events.pop_front() {
            Some(event) => Poll::Ready(event),
            None => Poll::Pending,
        }
    }
}
