//! Links between the hosts of a scene: in order, at once unless held, gone when broken.

use std::collections::{BTreeMap, VecDeque};

use spotmesh::input::Input;
use spotmesh::link::{DialId, Lane, LinkDownReason, LinkId, NodeIndex, ProvenPeer, Record, TransportEvent};
use spotmesh::wire::{self, Message};

use super::Scene;

/// A record on its way, or one that was sent.
#[derive(Debug, Clone)]
pub struct Sent {
    pub from: usize,
    pub to: usize,
    pub link: LinkId,
    pub lane: Lane,
    pub record: Record,
}

impl Sent {
    pub fn message(&self) -> Message {
        wire::decode(&self.record).expect("hosts send what can be decoded").0
    }
}

#[derive(Default)]
pub(super) struct Network {
    listeners: BTreeMap<String, (usize, NodeIndex)>,
    /// Each side of a link: whose it is, and the other side.
    sides: BTreeMap<LinkId, (usize, LinkId)>,
    next: u64,
    /// Directions in which records wait.
    held: BTreeMap<(usize, usize), VecDeque<Sent>>,
    /// Pairs that cannot connect.
    cut: Vec<(usize, usize)>,
    pub(super) log: Vec<Sent>,
}

type Told = Vec<(usize, TransportEvent)>;

impl Network {
    pub(super) fn bind(&mut self, at: usize, run: u32, node: NodeIndex) -> String {
        let endpoint = format!("scene://{at}/{run}/{}", node.0);
        self.listeners.insert(endpoint.clone(), (at, node));
        endpoint
    }

    pub(super) fn unbind(&mut self, at: usize, node: NodeIndex) {
        self.listeners.retain(|_, listener| *listener != (at, node));
    }

    pub(super) fn dial(&mut self, at: usize, node: NodeIndex, dial: DialId, endpoint: &str) -> Told {
        let found = self.listeners.get(endpoint).copied();
        let Some((to, their)) = found.filter(|(to, _)| !self.is_cut(at, *to)) else {
            let reason = format!("nobody answers at {endpoint}");
            return vec![(at, TransportEvent::DialFailed { dial, reason })];
        };
        self.next += 2;
        let (mine, other) = (LinkId(self.next), LinkId(self.next + 1));
        self.sides.insert(mine, (at, other));
        self.sides.insert(other, (to, mine));
        let up = |node, link, dial| TransportEvent::LinkUp {
            node,
            link,
            dial,
            proven: ProvenPeer { rid: None, identity: None },
        };
        vec![(at, up(node, mine, Some(dial))), (to, up(their, other, None))]
    }

    fn is_cut(&self, a: usize, b: usize) -> bool {
        self.cut.contains(&(a.min(b), a.max(b)))
    }

    pub(super) fn send(
        &mut self,
        from: usize,
        link: LinkId,
        lane: Lane,
        record: Record,
    ) -> Option<(usize, TransportEvent)> {
        let other = self.sides.get(&link)?.1;
        let to = self.sides.get(&other)?.0;
        let sent = Sent { from, to, link: other, lane, record: record.clone() };
        self.log.push(sent.clone());
        if let Some(waiting) = self.held.get_mut(&(from, to)) {
            waiting.push_back(sent);
            return None;
        }
        Some((to, TransportEvent::Received { link: other, lane, record }))
    }

    /// The closer hears no more of the link; what it sent arrives first.
    pub(super) fn close(&mut self, _at: usize, link: LinkId) -> Option<(usize, TransportEvent)> {
        let (_, other) = self.sides.remove(&link)?;
        let to = self.sides.get(&other)?.0;
        Some((to, TransportEvent::LinkDown { link: other, reason: LinkDownReason::Closed }))
    }

    pub(super) fn process_died(&mut self, at: usize) -> Told {
        self.listeners.retain(|_, (owner, _)| *owner != at);
        let links: Vec<_> =
            self.sides.iter().filter(|(_, (owner, _))| *owner == at).map(|(l, _)| *l).collect();
        let broken = links.into_iter().filter_map(|link| {
            let (_, other) = self.sides.remove(&link)?;
            let to = self.sides.get(&other)?.0;
            (to != at).then(|| (to, down(other)))
        });
        broken.collect()
    }

    /// Whether a transport input still concerns a link the host has; takes note of links that went down.
    pub(super) fn admits(&mut self, at: usize, input: &Input) -> bool {
        match input {
            Input::Transport(TransportEvent::LinkDown { link, .. }) => {
                self.sides.get(link).is_some_and(|(owner, _)| *owner == at) && {
                    self.sides.remove(link);
                    true
                }
            }
            Input::Transport(TransportEvent::LinkUp { link, .. } | TransportEvent::Received { link, .. }) => {
                self.sides.get(link).is_some_and(|(owner, _)| *owner == at)
            }
            _ => true,
        }
    }
}

fn down(link: LinkId) -> TransportEvent {
    TransportEvent::LinkDown { link, reason: LinkDownReason::Broken("cut".to_owned()) }
}

impl Scene {
    /// From now on records from one host to the other wait.
    pub fn hold_link(&mut self, from: usize, to: usize) {
        self.net.held.entry((from, to)).or_default();
    }

    /// Records that wait in a direction.
    pub fn held_on_link(&self, from: usize, to: usize) -> Vec<Message> {
        self.net.held.get(&(from, to)).into_iter().flatten().map(Sent::message).collect()
    }

    /// Lets what waits arrive, in order; nothing waits any more.
    pub fn release_link(&mut self, from: usize, to: usize) {
        for sent in self.net.held.remove(&(from, to)).into_iter().flatten() {
            let Sent { to, link, lane, record, .. } = sent;
            self.tell(to, Input::Transport(TransportEvent::Received { link, lane, record }));
        }
        self.settle();
    }

    /// The transport of a host says that its link to the other is congested, or takes more again.
    pub fn congest(&mut self, from: usize, to: usize, yes: bool) {
        let links = self.net.sides.iter().filter_map(|(link, (owner, other))| {
            let peer = self.net.sides.get(other)?.0;
            (*owner == from && peer == to).then_some(*link)
        });
        for link in links.collect::<Vec<_>>() {
            let event =
                if yes { TransportEvent::Congested { link } } else { TransportEvent::Writable { link } };
            self.tell(from, Input::Transport(event));
        }
        self.settle();
    }

    /// Breaks the links of a pair: what waits on them is lost, both sides learn of it. They may connect again.
    pub fn break_links(&mut self, a: usize, b: usize) {
        self.net.held.remove(&(a, b));
        self.net.held.remove(&(b, a));
        let sides: Vec<_> = self.net.sides.iter().map(|(link, side)| (*link, *side)).collect();
        for (link, (owner, other)) in sides {
            let peer = self.net.sides.get(&other).map(|side| side.0);
            if (owner, peer) == (a, Some(b)) || (owner, peer) == (b, Some(a)) {
                self.tell(owner, Input::Transport(down(link)));
            }
        }
        self.settle();
    }

    /// As [`Self::break_links`], and the pair cannot connect until [`Self::mend`].
    pub fn cut(&mut self, a: usize, b: usize) {
        self.net.cut.push((a.min(b), a.max(b)));
        self.break_links(a, b);
    }

    pub fn mend(&mut self, a: usize, b: usize) {
        self.net.cut.retain(|pair| *pair != (a.min(b), a.max(b)));
    }

    /// Everything one host sent to another, oldest first.
    pub fn sent(&self, from: usize, to: usize) -> Vec<Message> {
        self.net.log.iter().filter(|it| (it.from, it.to) == (from, to)).map(Sent::message).collect()
    }

    /// Create orders one host sent to another.
    pub fn orders(&self, from: usize, to: usize) -> usize {
        self.sent(from, to).iter().filter(|it| matches!(it, Message::CreateOrder(_))).count()
    }

    /// Sends the pair's last create order once more, on the link they have now: a re-send of the same operation.
    pub fn resend_order(&mut self, from: usize, to: usize) {
        let last = self.net.log.iter().rev().find(|sent| {
            (sent.from, sent.to) == (from, to) && matches!(sent.message(), Message::CreateOrder(_))
        });
        let record = last.expect("an order was sent").record.clone();
        let link = self.net.sides.iter().find_map(|(link, (owner, other))| {
            let peer = self.net.sides.get(other)?.0;
            (*owner == to && peer == from).then_some(*link)
        });
        let link = link.expect("the pair is connected");
        self.tell(to, Input::Transport(TransportEvent::Received { link, lane: Lane::Application, record }));
        self.settle();
    }
}
