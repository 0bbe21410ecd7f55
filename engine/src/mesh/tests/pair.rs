//! Two nodes and every order in which what they do can meet (NODE-36: convergence).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::*;
use crate::link::LinkDownReason;

/// One physical connection: side 0 dialled it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Wire {
    node: [usize; 2],
    dial: DialId,
    up: [bool; 2],
    /// Messages on their way to each side.
    to: [VecDeque<Message>; 2],
    /// The side closed it, or was told that it is gone.
    over: [bool; 2],
    /// Broken: what is on its way is lost.
    cut: bool,
    /// After a cut, the side that is not told (half-open).
    deaf: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    peers: [Peers; 2],
    entropy: [Entropy; 2],
    ids: [DialIds; 2],
    now: Instant,
    timers: [BTreeMap<PeerTimer, Instant>; 2],
    dials: BTreeSet<(usize, DialId)>,
    wires: Vec<Wire>,
    cuts: u32,
    /// The side that is not told of a cut.
    deaf: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Connect(usize, DialId),
    Up(usize, usize),
    Deliver(usize, usize),
    Down(usize, usize),
    Cut(usize),
}

impl World {
    fn new(names: [&str; 2], routing: RoutingMode, cuts: u32, deaf: Option<usize>) -> Self {
        Self {
            peers: names.map(|name| Peers::new(local(name, routing))),
            entropy: [1, 2].map(|seed| Entropy::new([seed; 32])),
            ids: [DialIds::default(), DialIds::default()],
            now: Instant::ZERO,
            timers: [BTreeMap::new(), BTreeMap::new()],
            dials: BTreeSet::new(),
            wires: Vec::new(),
            cuts,
            deaf,
        }
    }

    fn side(&self, wire: usize, node: usize) -> usize {
        usize::from(self.wires[wire].node[1] == node)
    }

    fn on(&mut self, node: usize, event: PeerEvent) {
        let mut out = Vec::new();
        let (now, entropy, ids) = (self.now, &mut self.entropy[node], &mut self.ids[node]);
        self.peers[node].on(event.clone(), now, entropy, ids, &mut out);
        self.peers[node].check().unwrap_or_else(|found| panic!("node {node} after {event:?}: {found}"));
        for effect in out {
            match effect {
                PeerEffect::Dial { dial, .. } => {
                    self.dials.insert((node, dial));
                }
                PeerEffect::DropDial(dial) => {
                    self.dials.remove(&(node, dial));
                    for wire in self.wires.iter_mut().filter(|wire| wire.node[0] == node && wire.dial == dial)
                    {
                        wire.over[0] = true;
                    }
                }
                PeerEffect::Send { link, message } => {
                    let (wire, side) = (link.0 as usize / 2, link.0 as usize % 2);
                    let wire = &mut self.wires[wire];
                    if !wire.cut {
                        wire.to[1 - side].push_back(message);
                    }
                }
                PeerEffect::Close(link) => self.wires[link.0 as usize / 2].over[link.0 as usize % 2] = true,
                PeerEffect::SetTimer { timer, at } => {
                    self.timers[node].insert(timer, at);
                }
                PeerEffect::CancelTimer(timer) => {
                    self.timers[node].remove(&timer);
                }
                PeerEffect::Event(Event::Violation(found)) => panic!("node {node} on {event:?}: {found}"),
                PeerEffect::Event(Event::ProtocolViolation { found, .. }) => {
                    panic!("node {node} on {event:?}: {found}")
                }
                _ => {}
            }
        }
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> =
            self.dials.iter().map(|(node, dial)| Step::Connect(*node, *dial)).collect();
        for (at, wire) in self.wires.iter().enumerate() {
            for side in 0..2 {
                if wire.over[side] {
                    continue;
                }
                if !wire.up[side] {
                    steps.push(Step::Up(at, side));
                } else if wire.cut {
                    if wire.deaf != Some(side) {
                        steps.push(Step::Down(at, side));
                    }
                } else if !wire.to[side].is_empty() {
                    steps.push(Step::Deliver(at, side));
                } else if wire.over[1 - side] {
                    steps.push(Step::Down(at, side));
                }
            }
            if self.cuts > 0 && !wire.cut && wire.up == [true; 2] && wire.over == [false; 2] {
                steps.push(Step::Cut(at));
            }
        }
        steps
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Connect(node, dial) => {
                self.dials.remove(&(node, dial));
                self.wires.push(Wire {
                    node: [node, 1 - node],
                    dial,
                    up: [false; 2],
                    to: Default::default(),
                    over: [false; 2],
                    cut: false,
                    deaf: None,
                });
            }
            Step::Up(at, side) => {
                let wire = &mut self.wires[at];
                wire.up[side] = true;
                let (node, dial) = (wire.node[side], (side == 0).then_some(wire.dial));
                let link = LinkId((at * 2 + side) as u64);
                self.on(node, PeerEvent::LinkUp { link, dial, proven: NOBODY });
            }
            Step::Deliver(at, side) => {
                let node = self.wires[at].node[side];
                let message = self.wires[at].to[side].pop_front().unwrap();
                self.on(node, PeerEvent::Received { link: LinkId((at * 2 + side) as u64), message });
            }
            Step::Down(at, side) => {
                self.wires[at].over[side] = true;
                let reason = if self.wires[at].cut {
                    LinkDownReason::Broken("cut".to_owned())
                } else {
                    LinkDownReason::Closed
                };
                let node = self.wires[at].node[side];
                self.on(node, PeerEvent::LinkDown { link: LinkId((at * 2 + side) as u64), reason });
            }
            Step::Cut(at) => {
                self.cuts -= 1;
                let deaf = self.deaf;
                let wire = &mut self.wires[at];
                wire.cut = true;
                wire.to = Default::default();
                wire.deaf = deaf;
            }
        }
    }

    /// Nothing is on its way: the next redial, if any is due. Longer deadlines are not waited for.
    fn redial(&mut self) -> bool {
        let next = (0..2)
            .flat_map(|node| self.timers[node].iter().map(move |(timer, at)| (*at, node, timer.clone())))
            .filter(|(_, _, timer)| matches!(timer, PeerTimer::Redial(_)))
            .min();
        let Some((at, node, timer)) = next else { return false };
        self.timers[node].remove(&timer);
        self.now = at;
        self.on(node, PeerEvent::TimerFired(timer));
        true
    }

    /// Lets time pass: what is on its way arrives first, every deadline fires when it is due.
    fn pass(&mut self, by: Duration) {
        let end = self.now + by;
        loop {
            if let Some(step) = self.steps().into_iter().find(|step| !matches!(step, Step::Cut(_))) {
                self.take(step);
                continue;
            }
            let due = (0..2)
                .flat_map(|node| self.timers[node].iter().map(move |(timer, at)| (*at, node, timer.clone())))
                .min();
            match due {
                Some((at, node, timer)) if at <= end => {
                    self.timers[node].remove(&timer);
                    self.now = at;
                    self.on(node, PeerEvent::TimerFired(timer));
                }
                _ => break,
            }
        }
        self.now = end;
    }

    /// Lets the handshakes end that wait for a peer which is gone without a word.
    fn give_up_handshakes(&mut self) {
        for node in 0..2 {
            while let Some((timer, at)) = self.timers[node]
                .iter()
                .find(|(timer, _)| matches!(timer, PeerTimer::Handshake(_)))
                .map(|(timer, at)| (timer.clone(), *at))
            {
                self.timers[node].remove(&timer);
                self.now = self.now.max(at);
                self.on(node, PeerEvent::TimerFired(timer));
            }
        }
    }

    /// Both nodes are ready on the two ends of one wire, and nothing else is open.
    fn converged(&self) {
        let route = |node: usize| {
            let mut ready = self.peers[node].ready_peers();
            let peer = ready.next().unwrap_or_else(|| panic!("node {node} is not connected: {self:?}"));
            assert!(ready.next().is_none());
            peer.link.0 as usize
        };
        let (a, b) = (route(0), route(1));
        assert_eq!(a / 2, b / 2, "the ends chose different connections");
        assert_ne!(a, b);
        let wire = a / 2;
        assert!(!self.wires[wire].cut);
        for (at, other) in self.wires.iter().enumerate() {
            assert!(at == wire || other.over == [true; 2], "wire {at} is still open: {other:?}");
        }
        assert_eq!(self.side(wire, 0), a % 2);
    }
}

/// Walks every order of steps from `world`, up to one connection. Returns how many states there were.
fn explore(world: World) -> usize {
    explore_to(world, World::converged)
}

/// Walks every order of steps from `world`, up to an `end`.
fn explore_to(world: World, end: fn(&World)) -> usize {
    let mut seen = BTreeSet::new();
    let mut ends = 0;
    let mut todo = vec![world];
    while let Some(world) = todo.pop() {
        let mut hasher = DefaultHasher::new();
        world.hash(&mut hasher);
        if !seen.insert(hasher.finish()) {
            continue;
        }
        let steps = world.steps();
        for step in &steps {
            let mut next = world.clone();
            next.take(*step);
            todo.push(next);
        }
        // Cuts are never forced: a state whose only steps are cuts is an end as well.
        if steps.iter().all(|step| matches!(step, Step::Cut(_))) {
            let mut next = world;
            if next.redial() {
                todo.push(next);
            } else {
                next.give_up_handshakes();
                end(&next);
                ends += 1;
            }
        }
        assert!(seen.len() < 2_000_000, "no end of it");
    }
    assert!(ends > 0);
    seen.len()
}

fn manual_pair(names: [&str; 2], expected: bool, cuts: u32, deaf: Option<usize>) -> World {
    let mut world = World::new(names, RoutingMode::Manual, cuts, deaf);
    for node in 0..2 {
        let peer = names[1 - node];
        world.on(node, PeerEvent::ManualIntents(vec![manual("tcp://peer", expected.then_some(peer))]));
        world.on(node, PeerEvent::AdmissionOpened);
    }
    world
}

fn automatic_pair(cuts: u32, deaf: Option<usize>) -> World {
    let mut world = World::new(["a", "b"], RoutingMode::Automatic, cuts, deaf);
    for (node, peer) in [(0, descriptor("b", 100)), (1, descriptor("a", 100))] {
        world.on(node, listed(&[peer]));
        world.on(node, PeerEvent::AdmissionOpened);
    }
    world
}

#[test]
fn node_t36_crossed_dials_converge_on_one_connection_in_every_order() {
    for expected in [true, false] {
        let states = explore(manual_pair(["a", "b"], expected, 0, None));
        assert!(states > 200, "only {states} states");
    }
}

#[test]
fn node_t36_crossed_dials_converge_when_a_connection_breaks_at_any_time() {
    for expected in [true, false] {
        let states = explore(manual_pair(["a", "b"], expected, 1, None));
        assert!(states > 1_000, "only {states} states");
    }
}

#[test]
fn node_t36_repeated_dials_converge_when_only_the_dialler_sees_the_break() {
    explore(automatic_pair(2, Some(1)));
}

#[test]
fn node_t36_a_node_that_opens_late_is_reached_by_a_redial() {
    let mut world = World::new(["a", "b"], RoutingMode::Automatic, 0, None);
    for (node, peer) in [(0, descriptor("b", 100)), (1, descriptor("a", 100))] {
        world.on(node, listed(&[peer]));
    }
    world.on(0, PeerEvent::AdmissionOpened);
    let mut refused = 0;
    while !world.steps().is_empty() || (refused < 3 && world.redial()) {
        let Some(step) = world.steps().first().copied() else { continue };
        world.take(step);
        refused = world.wires.len();
    }
    assert_eq!(world.peers[0].ready_peers().count(), 0);
    world.on(1, PeerEvent::AdmissionOpened);
    explore(world);
}

#[test]
fn node_t36_crossed_dials_converge_when_only_the_dialler_sees_the_break() {
    let states = explore(manual_pair(["a", "b"], true, 1, Some(1)));
    assert!(states > 1_000, "only {states} states");
}

#[test]
fn node_t42_whichever_end_is_not_told_of_a_break_both_are_connected_again_after_the_deadline() {
    for routing in [RoutingMode::Automatic, RoutingMode::Manual] {
        for deaf in [0, 1] {
            for healthy in [0, 3_000, 17_500] {
                let mut world = match routing {
                    RoutingMode::Manual => manual_pair(["a", "b"], false, 1, Some(deaf)),
                    RoutingMode::Automatic => automatic_pair(1, Some(deaf)),
                };
                world.pass(ms(healthy));
                world.converged();
                let wire = world.wires.iter().position(|wire| wire.over == [false; 2]).unwrap();
                world.take(Step::Cut(wire));
                // The deadline of 15 s, then a redial after at most 5 s.
                world.pass(ms(20_000));
                world.converged();
                world.pass(ms(600_000));
                world.converged();
            }
        }
    }
}

#[test]
fn node_t35_two_clients_end_not_required_in_every_order() {
    let mut world = World::new(["a", "b"], RoutingMode::Manual, 0, None);
    for node in 0..2 {
        let mut client = local(["a", "b"][node], RoutingMode::Manual);
        client.role = ObjectRole::Client;
        world.peers[node] = Peers::new(client);
        let intents = vec![manual("tcp://peer", Some(["b", "a"][node]))];
        world.on(node, PeerEvent::ManualIntents(intents));
        world.on(node, PeerEvent::AdmissionOpened);
    }
    explore_to(world, |world| {
        for node in 0..2 {
            let states: Vec<PeerState> = world.peers[node].views().map(|view| view.state).collect();
            assert_eq!(states, [PeerState::NotRequired]);
            assert!(world.timers[node].is_empty());
        }
        assert!(world.wires.iter().all(|wire| wire.over == [true; 2]));
    });
}
