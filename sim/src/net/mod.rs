//! The simulated network: ordered links that break, stall, half-open and refuse.
//!
//! It knows no host. The world hands it what hosts want to send and takes from it, through the agenda, what
//! transports report. Ordered per link and lane; loss shows only as `LinkDown`, or as silence on a half-open
//! link until somebody closes it.

mod faults;
mod link;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use spotmesh::link::{DialId, Lane, LinkDownReason, LinkId, ProvenPeer, Record, TransportEvent};

use crate::agenda::{Agenda, Nanos, micros};
use crate::digest::Digest;
use crate::draw::{noise, noise_between};
use crate::place::{NodeOf, RunOf, Seat};
use link::{Flow, Link, Side};
pub use link::{SideState, lane_at, lane_index};

/// How fast the network is. Times in microseconds.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NetworkSpec {
    /// Shortest and longest one-way latency of a record.
    pub latency_us: (u64, u64),
    /// So many of a thousand records take `spike_us` longer.
    pub spike_permille: u64,
    /// See `spike_permille`.
    pub spike_us: u64,
    /// From a dial to its answer, and from one side's `LinkUp` to the other's at most.
    pub dial_us: (u64, u64),
    /// A dial into a blocked direction fails after this long.
    pub dial_timeout_us: u64,
}

impl Default for NetworkSpec {
    fn default() -> Self {
        Self {
            latency_us: (200, 900),
            spike_permille: 0,
            spike_us: 0,
            dial_us: (300, 2_000),
            dial_timeout_us: 3_000_000,
        }
    }
}

/// What the network scheduled.
#[derive(Debug, Clone)]
pub enum NetEvent {
    /// The oldest record of a lane arrives.
    Arrive {
        /// The link.
        link: u64,
        /// Sending side.
        from: usize,
        /// Lane, as an index.
        lane: usize,
    },
    /// A dial reaches its target, or nobody.
    DialEnds {
        /// Who dialled.
        by: NodeOf,
        /// The dial.
        dial: DialId,
    },
    /// A host's transport reports something.
    Report {
        /// Whose.
        to: RunOf,
        /// What.
        event: TransportEvent,
    },
    /// Blocked directions may be open again.
    Unblock,
}

/// What one side sees of a break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Notice {
    /// `LinkDown` after so many milliseconds.
    After(u32),
    /// Never: the side keeps a half-open link until it gives it up itself.
    Never,
}

/// All links, listeners, dials and blocked directions.
#[derive(Debug, Clone)]
pub struct Network {
    spec: NetworkSpec,
    seed: u64,
    links: BTreeMap<u64, Link>,
    listeners: BTreeMap<String, NodeOf>,
    dials: BTreeMap<(RunOf, DialId), (NodeOf, String)>,
    blocked: BTreeMap<(Seat, Seat), Nanos>,
    next_link: u64,
    counts: BTreeMap<(u8, u8, u8), u64>,
}

impl Network {
    /// An empty network.
    #[must_use]
    pub fn new(spec: NetworkSpec, seed: u64) -> Self {
        Self {
            spec,
            seed,
            links: BTreeMap::new(),
            listeners: BTreeMap::new(),
            dials: BTreeMap::new(),
            blocked: BTreeMap::new(),
            next_link: 1,
            counts: BTreeMap::new(),
        }
    }

    /// A keyed number for the n-th event of `what` between two seats.
    fn chance(&mut self, what: u8, from: Seat, to: Seat) -> u64 {
        let count = self.counts.entry((what, from.0, to.0)).or_default();
        *count += 1;
        noise(self.seed, u64::from(what) << 16 | u64::from(from.0) << 8 | u64::from(to.0), *count)
    }

    fn latency(&mut self, from: Seat, to: Seat) -> Nanos {
        let drawn = self.chance(1, from, to);
        let (low, high) = self.spec.latency_us;
        let mut us = noise_between(drawn, 0, 0, low, high);
        if noise_between(drawn, 1, 0, 0, 999) < self.spec.spike_permille {
            us += self.spec.spike_us;
        }
        micros(us)
    }

    fn dial_time(&mut self, from: Seat, to: Seat) -> Nanos {
        let drawn = self.chance(2, from, to);
        micros(noise_between(drawn, 0, 0, self.spec.dial_us.0, self.spec.dial_us.1))
    }

    /// Opens a listener.
    pub fn bind(&mut self, node: NodeOf, endpoint: &str) {
        self.listeners.insert(endpoint.to_owned(), node);
    }

    /// Closes the listener of a node.
    pub fn unbind(&mut self, node: NodeOf) {
        self.listeners.retain(|_, owner| *owner != node);
    }

    /// Starts a dial.
    pub fn dial<E: From<NetEvent>>(
        &mut self,
        agenda: &mut Agenda<E>,
        by: NodeOf,
        dial: DialId,
        endpoint: &str,
    ) {
        let to = self.listeners.get(endpoint).copied();
        let delay = match to {
            Some(to)
                if self.is_blocked(by.run.seat, to.run.seat) || self.is_blocked(to.run.seat, by.run.seat) =>
            {
                micros(self.spec.dial_timeout_us)
            }
            Some(to) => self.dial_time(by.run.seat, to.run.seat),
            None => self.dial_time(by.run.seat, by.run.seat),
        };
        self.dials.insert((by.run, dial), (by, endpoint.to_owned()));
        agenda.after(delay, NetEvent::DialEnds { by, dial }.into());
    }

    /// Forgets a dial; no event of it follows.
    pub fn drop_dial(&mut self, by: RunOf, dial: DialId) {
        self.dials.remove(&(by, dial));
    }

    /// A dial reaches its listener, or fails.
    pub fn dial_ends<E: From<NetEvent>>(&mut self, agenda: &mut Agenda<E>, by: NodeOf, dial: DialId) {
        let Some((_, endpoint)) = self.dials.remove(&(by.run, dial)) else { return };
        let open = |net: &Self, to: NodeOf| {
            !net.is_blocked(by.run.seat, to.run.seat) && !net.is_blocked(to.run.seat, by.run.seat)
        };
        let Some(to) = self.listeners.get(&endpoint).copied().filter(|to| open(self, *to)) else {
            let reason = format!("nobody answers at {endpoint}");
            let event = TransportEvent::DialFailed { dial, reason };
            agenda.after(0, NetEvent::Report { to: by.run, event }.into());
            return;
        };
        let link = self.next_link;
        self.next_link += 1;
        let side =
            |end, which, dial| Side { end, id: LinkId(link * 2 + which), state: SideState::Opening, dial };
        let sides = [side(by, 0, Some(dial)), side(to, 1, None)];
        let up = [agenda.now(), agenda.now() + self.dial_time(to.run.seat, by.run.seat)];
        let flow = |receiver: usize| Flow { last: [up[receiver]; 2], ..Flow::default() };
        let flows = [flow(1), flow(0)];
        for (side, at) in sides.iter().zip(up) {
            let event = TransportEvent::LinkUp {
                node: side.end.node,
                link: side.id,
                dial: side.dial,
                proven: ProvenPeer { rid: None, identity: None },
            };
            agenda.at(at, NetEvent::Report { to: side.end.run, event }.into());
        }
        self.links.insert(link, Link { sides, flows, congested: [false; 2] });
    }

    /// Queues a record; does nothing on a link that is gone.
    pub fn send<E: From<NetEvent>>(
        &mut self,
        agenda: &mut Agenda<E>,
        by: RunOf,
        id: LinkId,
        lane: Lane,
        record: Record,
    ) {
        let Some((number, from)) = self.side_of(by, id) else { return };
        let link = &self.links[&number];
        if link.sides[from].state != SideState::Up || link.flows[from].cut {
            return;
        }
        let to = link.sides[1 - from].end.run.seat;
        let latency = self.latency(by.seat, to);
        let Some(link) = self.links.get_mut(&number) else { return };
        let (flow, lane) = (&mut link.flows[from], lane_index(lane));
        let at = (agenda.now() + latency).max(flow.last[lane]);
        flow.last[lane] = at;
        flow.lanes[lane].push_back(record);
        agenda.at(at, NetEvent::Arrive { link: number, from, lane }.into());
    }

    /// The oldest record of a lane arrives, unless its direction is blocked.
    pub fn arrive(&mut self, link: u64, from: usize, lane: usize) -> Option<(RunOf, TransportEvent)> {
        let (a, b) = {
            let link = self.links.get(&link)?;
            (link.sides[from].end.run.seat, link.sides[1 - from].end.run.seat)
        };
        let held = self.is_blocked(a, b);
        let link = self.links.get_mut(&link)?;
        let flow = &mut link.flows[from];
        if held || flow.stalled[lane] > 0 {
            if flow.lanes[lane].len() as u32 > flow.stalled[lane] {
                flow.stalled[lane] += 1;
            }
            return None;
        }
        let record = flow.lanes[lane].pop_front()?;
        let side = &link.sides[1 - from];
        Some((side.end.run, TransportEvent::Received { link: side.id, lane: lane_at(lane), record }))
    }

    /// Lets what was stalled go on, wherever the direction is open again.
    pub fn unblock<E: From<NetEvent>>(&mut self, agenda: &mut Agenda<E>) {
        let now = agenda.now();
        self.blocked.retain(|_, until| *until > now);
        let blocked: BTreeSet<(Seat, Seat)> = self.blocked.keys().copied().collect();
        for (number, link) in &mut self.links {
            for from in 0..2 {
                let pair = (link.sides[from].end.run.seat, link.sides[1 - from].end.run.seat);
                if blocked.contains(&pair) {
                    continue;
                }
                for lane in 0..2 {
                    let stalled = std::mem::take(&mut link.flows[from].stalled[lane]);
                    for _ in 0..stalled {
                        // Records still on their way keep their place behind these.
                        agenda.after(0, NetEvent::Arrive { link: *number, from, lane }.into());
                    }
                    let flow = &mut link.flows[from];
                    flow.last[lane] = flow.last[lane].max(now);
                }
            }
        }
    }

    /// Whether a transport event is still true when its host gets to see it, and takes note that it did.
    pub fn admit(&mut self, to: RunOf, event: &TransportEvent) -> bool {
        let (link, state) = match event {
            TransportEvent::LinkUp { link, .. } => (link, Some(SideState::Up)),
            TransportEvent::LinkDown { link, .. } => (link, Some(SideState::Gone)),
            TransportEvent::Received { link, .. }
            | TransportEvent::Congested { link }
            | TransportEvent::Writable { link } => (link, None),
            _ => return true,
        };
        let Some((number, side)) = self.side_of(to, *link) else { return false };
        let Some(link) = self.links.get_mut(&number) else { return false };
        let seen = &mut link.sides[side].state;
        let expected = match event {
            TransportEvent::LinkUp { .. } => SideState::Opening,
            _ => SideState::Up,
        };
        if *seen != expected {
            return false;
        }
        if let Some(state) = state {
            *seen = state;
        }
        if link.is_over() {
            self.links.remove(&number);
        }
        true
    }

    /// Closes a link after what was sent on it left. The closer hears no more of it.
    pub fn close<E: From<NetEvent>>(&mut self, agenda: &mut Agenda<E>, by: RunOf, id: LinkId) {
        let Some((number, side)) = self.side_of(by, id) else { return };
        let Some(link) = self.links.get_mut(&number) else { return };
        link.sides[side].state = SideState::Gone;
        link.cut(1 - side);
        let other = &link.sides[1 - side];
        if other.state != SideState::Gone && !link.flows[side].cut {
            let at = link.flows[side].last[0].max(link.flows[side].last[1]);
            let event = TransportEvent::LinkDown { link: other.id, reason: LinkDownReason::Closed };
            agenda.at(at, NetEvent::Report { to: other.end.run, event }.into());
        }
        if link.is_over() {
            self.links.remove(&number);
        }
    }

    /// Whether records from one seat to the other are held.
    #[must_use]
    pub fn is_blocked(&self, from: Seat, to: Seat) -> bool {
        self.blocked.contains_key(&(from, to))
    }

    /// Links of which at least one side thinks they are up, per pair of nodes.
    pub fn links(&self) -> impl Iterator<Item = (NodeOf, NodeOf)> {
        self.links.values().map(|link| (link.sides[0].end, link.sides[1].end))
    }

    /// The process at the other end of a link that is up on both sides and never lost anything.
    #[must_use]
    pub fn up_to(&self, run: RunOf, id: LinkId) -> Option<RunOf> {
        let (number, side) = self.side_of(run, id)?;
        let link = &self.links[&number];
        let whole = link.sides.iter().all(|side| side.state == SideState::Up)
            && link.flows.iter().all(|flow| !flow.cut);
        whole.then_some(link.sides[1 - side].end.run)
    }

    /// Whether a side has not been told of its link yet: nothing may arrive there before.
    #[must_use]
    pub fn is_opening(&self, link: u64, side: usize) -> bool {
        self.links.get(&link).is_some_and(|link| link.sides[side].state == SideState::Opening)
    }

    /// The link and sending side of an id, as its owner uses it.
    #[must_use]
    pub fn place_of(&self, run: RunOf, id: LinkId) -> Option<(u64, usize)> {
        self.side_of(run, id)
    }

    /// Adds everything that matters for what can happen, times aside.
    pub fn digest(&self, digest: &mut Digest) {
        for (number, link) in &self.links {
            digest.add(number);
            for (side, flow) in link.sides.iter().zip(&link.flows) {
                digest.add(&(side.end, side.id, side.state as u8, side.dial, flow.cut));
                digest.add(&flow.lanes);
            }
        }
        digest.add(&self.listeners);
        digest.add(&self.dials);
    }

    /// The peer at the other end of a link.
    #[must_use]
    pub fn peer_of(&self, run: RunOf, id: LinkId) -> Option<NodeOf> {
        let (number, side) = self.side_of(run, id)?;
        Some(self.links[&number].sides[1 - side].end)
    }

    fn side_of(&self, run: RunOf, id: LinkId) -> Option<(u64, usize)> {
        let (number, side) = (id.0 / 2, (id.0 % 2) as usize);
        let link = self.links.get(&number)?;
        (link.sides[side].end.run == run).then_some((number, side))
    }
}
