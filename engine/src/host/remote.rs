//! Application messages between nodes: what goes out on a link and what comes in.

use bytes::Bytes;

use super::messages::Stage;
use super::object::{Job, Origin};
use super::{Host, planted};
use crate::creation::AnswerRoute;
use crate::event::Event;
use crate::input::{ActorCall, CallId};
use crate::link::{Lane, LinkDownReason, LinkId, Record};
use crate::mark::Mark;
use crate::mesh::PeerEvent;
use crate::model::{Correlation, ErrorKind, HostState, NodeFence, ObjectKey};
use crate::output::{Answer, Output};
use crate::wire::{ActorMessage, CallKind, Message, Reply, decode};

impl Host {
    pub(super) fn submit_remote(
        &mut self,
        call: CallId,
        fence: &NodeFence,
        message: ActorCall,
        request: bool,
    ) {
        let Some((_, link)) = self.ready_link(fence) else {
            if let Some(key) = self.calls.get(&call).map(|call| call.key.clone()) {
                self.routes.forget(&key);
            }
            return self.message_failed(call, ErrorKind::Unavailable, "no ready peer for the owner");
        };
        if let Some(waiting) = self.routes.congested.get_mut(&link) {
            waiting.push_back(call);
            self.mark(Mark::LinkCongested);
            if let Some(found) = self.calls.get_mut(&call) {
                let (fence, message) = (Box::new(fence.clone()), Box::new(message));
                found.stage = Stage::Congested { link, fence, message, request };
            }
            return;
        }
        self.hand_over(call, link, fence, message, request);
    }

    /// The point of no return: the entry for the reply is there before the message leaves (MODEL-113).
    fn hand_over(
        &mut self,
        call: CallId,
        link: LinkId,
        fence: &NodeFence,
        message: ActorCall,
        request: bool,
    ) {
        let correlation = self.routes.correlation();
        let Some(found) = self.calls.get_mut(&call) else { return };
        let remaining = found.deadline.since(self.now);
        found.stage = Stage::Remote { link, correlation };
        let kind = if request {
            self.routes.pending.insert((link, correlation), call);
            CallKind::Request(correlation)
        } else {
            CallKind::Send
        };
        let ActorCall { target, packet, version, codec, payload, metadata, .. } = message;
        let (lifecycle, lease) = (fence.lifecycle, fence.lease);
        let message =
            ActorMessage { target, lifecycle, lease, kind, remaining, packet, version, codec, metadata };
        self.send(link, &Message::Actor(Box::new(message)), Some(payload));
        if !request && self.end_call(call) {
            self.answer(call, Answer::Sent); // MODEL-102: admitted to the transport's queue
        }
    }

    pub(super) fn congested(&mut self, link: LinkId) {
        if self.links.contains_key(&link) {
            self.routes.congested.entry(link).or_default();
        }
    }

    pub(super) fn writable(&mut self, link: LinkId) {
        for call in self.routes.congested.remove(&link).unwrap_or_default() {
            let Some(found) = self.calls.get_mut(&call) else { continue };
            let stage = std::mem::replace(&mut found.stage, Stage::Finding);
            let Stage::Congested { fence, message, request, .. } = stage else { continue };
            self.hand_over(call, link, &fence, *message, request);
        }
    }

    /// An admitted connection ended: what waited on it is Unavailable, nothing is sent again (MODEL-108).
    pub(super) fn link_lost(&mut self, link: LinkId) {
        for call in self.routes.take_pending(link) {
            self.note_dead_link();
            if let Some(key) = self.calls.get(&call).map(|call| call.key.clone()) {
                self.routes.forget(&key);
            }
            self.message_failed(call, ErrorKind::Unavailable, "the connection to the owner was lost");
        }
        for call in self.routes.congested.remove(&link).unwrap_or_default() {
            self.message_failed(call, ErrorKind::Unavailable, "the connection to the owner was lost");
        }
        self.order_link_lost(link);
    }

    pub(super) fn received(&mut self, link: LinkId, lane: Lane, record: &Record) {
        // A link that was closed here may still deliver what was under way.
        let Some(node) = self.links.get(&link).copied() else { return };
        let (message, body) = match decode(record) {
            Ok(decoded) => decoded,
            Err(error) => return self.protocol_violation(link, error.to_string()),
        };
        if message.lane() != lane {
            return self.protocol_violation(link, format!("{} on lane {lane:?}", message.name()));
        }
        let ready = self.node(node).peers().peer_of(link).is_some();
        match message {
            Message::CreateOrder(order) if ready => {
                let peer = self.node(node).peers().peer_of(link);
                let from_peer = peer.is_some_and(|peer| {
                    *peer.rid == order.operation.source_rid
                        && peer.lifecycle == order.operation.source_lifecycle
                });
                if !from_peer {
                    // CREATE-56: an order speaks for the node it comes from.
                    return self.protocol_violation(link, "a create order of another node".to_owned());
                }
                let route = AnswerRoute::Remote(link, order.operation.clone());
                self.order_arrived(route, *order);
            }
            Message::CreateAnswer(answer) if ready => self.order_answered(link, &answer, body),
            Message::Actor(message) if ready => self.message_arrived(link, *message, body),
            Message::Reply(reply) if ready => self.reply_arrived(link, reply, body),
            Message::StaleRoute(stale) if ready => {
                let key = ObjectKey::Actor(stale.target);
                self.routes.forget_if(&key, |fence| fence.lifecycle == stale.lifecycle);
            }
            message => self.peer_event(node, PeerEvent::Received { link, message }),
        }
    }

    fn protocol_violation(&mut self, link: LinkId, found: String) {
        self.record(Event::ProtocolViolation { link, found: found.clone() });
        self.outputs.push_back(Output::CloseLink(link));
        self.link_down(link, LinkDownReason::Violated(found));
    }

    fn message_arrived(&mut self, link: LinkId, message: ActorMessage, body: Option<Bytes>) {
        let key = ObjectKey::Actor(message.target.clone());
        let origin = match message.kind {
            CallKind::Send => Origin::Send(None),
            CallKind::Request(correlation) => Origin::Remote(link, correlation),
        };
        let fenced = Some(message.lease) == self.lease.lease()
            && self.nodes.iter().any(|node| node.local.lifecycle == message.lifecycle);
        let here = self.objects.get(&key).is_some();
        let committing = !here && self.is_committing(&key);
        let refusal = if self.shutdown.is_some() {
            Some(ErrorKind::ShuttingDown) // NODE-132
        } else if self.state != HostState::Serving || !fenced || !(here || committing) {
            Some(ErrorKind::Unavailable) // MODEL-124, MODEL-126
        } else {
            None
        };
        if let Some(kind) = refusal {
            let stale = kind == ErrorKind::Unavailable;
            if stale {
                self.mark(Mark::RouteStale);
            }
            return match origin {
                Origin::Remote(link, correlation) => self.reply(link, correlation, Err(kind), stale),
                _ => {
                    self.record(Event::MessageDropped { key, kind });
                    let stale =
                        crate::wire::StaleRoute { target: message.target, lifecycle: message.lifecycle };
                    self.send(link, &Message::StaleRoute(Box::new(stale)), None);
                }
            };
        }
        let deadline = match origin {
            Origin::Remote(..) => Some(self.now + message.remaining),
            _ => None,
        };
        let job = Job {
            origin,
            packet: message.packet,
            version: message.version,
            codec: message.codec,
            payload: body.unwrap_or_default(),
            metadata: message.metadata,
            deadline,
        };
        if committing {
            self.mark(Mark::MessageHeldForOpening);
            self.held.entry(key).or_default().push_back(job);
        } else {
            if planted!(self, RunsMessageTwice) {
                self.enqueue(&key, Job { origin: Origin::Send(None), ..job.clone() });
            }
            self.enqueue(&key, job);
        }
    }

    /// Replies on the route stored with the request; a route that is gone gets nothing (MODEL-112, MODEL-114).
    pub(super) fn reply(
        &mut self,
        link: LinkId,
        correlation: Correlation,
        outcome: Result<Bytes, ErrorKind>,
        stale_route: bool,
    ) {
        if !self.links.contains_key(&link) {
            return;
        }
        let (error, body) = match outcome {
            Ok(body) => (None, Some(body)),
            Err(kind) => (Some(kind.for_peer()), None),
        };
        self.send(link, &Message::Reply(Reply { correlation, error, stale_route }), body);
    }

    fn reply_arrived(&mut self, link: LinkId, reply: Reply, body: Option<Bytes>) {
        let call = self.routes.pending.get(&(link, reply.correlation)).copied();
        let Some(call) = call else { return self.mark(Mark::ReplyTooLate) };
        let Some(found) = self.calls.get(&call) else { return };
        if reply.stale_route {
            let key = found.key.clone();
            self.routes.forget(&key);
        }
        match reply.error {
            None => self.request_ended(call, Ok(body.unwrap_or_default())),
            Some(kind) => self.request_ended(call, Err(kind)),
        }
        if planted!(self, AnswersTwice) && self.now.as_nanos().is_multiple_of(7) {
            self.request_ended(call, Err(ErrorKind::Unavailable));
        }
    }
}
