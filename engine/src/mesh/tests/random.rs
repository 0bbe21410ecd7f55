//! Random events: nothing panics, the invariants hold after every one, and nothing leaks.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::link::LinkDownReason;
use crate::wire::NodeUpdate;

/// A choice of what happens next; numbers pick among what there is.
#[derive(Debug, Clone)]
enum Choice {
    Listed(Vec<(u8, u64, bool)>, bool),
    Manual(Vec<(u8, Option<u8>)>),
    Up { dial: Option<usize>, proven: Option<u8> },
    DialFailed(usize),
    LinkDown(usize),
    Hello { link: usize, peer: u8, lifecycle: u64, attempt: u64, client: bool, stranger: bool },
    Message { link: usize, kind: u8 },
    Pass(u64),
    HostState(u8),
    Weights,
}

const NAMES: [&str; 4] = ["a", "m", "y", "z"];

fn name(at: u8) -> &'static str {
    NAMES[usize::from(at) % NAMES.len()]
}

fn choices() -> impl Strategy<Value = Choice> {
    let link = 0..6usize;
    prop_oneof![
        2 => (prop::collection::vec((0..4u8, 1..3u64, any::<bool>()), 0..4), any::<bool>())
            .prop_map(|(nodes, keep)| Choice::Listed(nodes, keep)),
        2 => prop::collection::vec((0..4u8, prop::option::of(0..4u8)), 0..4).prop_map(Choice::Manual),
        6 => (prop::option::of(0..4usize), prop::option::weighted(0.1, 0..4u8))
            .prop_map(|(dial, proven)| Choice::Up { dial, proven }),
        2 => (0..4usize).prop_map(Choice::DialFailed),
        3 => link.clone().prop_map(Choice::LinkDown),
        8 => (link.clone(), 0..4u8, 1..3u64, 0..4u64, prop::bool::weighted(0.1), prop::bool::weighted(0.1))
            .prop_map(|(link, peer, lifecycle, attempt, client, stranger)| Choice::Hello {
                link, peer, lifecycle, attempt, client, stranger,
            }),
        8 => (link, 0..14u8).prop_map(|(link, kind)| Choice::Message { link, kind }),
        5 => prop_oneof![1..200u64, 4_000..16_000u64].prop_map(Choice::Pass),
        1 => (0..12u8).prop_map(Choice::HostState),
        1 => Just(Choice::Weights),
    ]
}

/// The transport's side of the contract: which dials and links are open.
struct Run {
    scene: Scene,
    dials: Vec<DialId>,
    dropped: Vec<DialId>,
    links: Vec<LinkId>,
    revision: u64,
    ready: BTreeSet<LinkId>,
    probes: BTreeMap<LinkId, u64>,
}

impl Run {
    fn new(routing: RoutingMode, client: bool) -> Self {
        let mut node = local("m", routing);
        if client {
            node.role = ObjectRole::Client;
        }
        let mut scene = Scene::closed(node);
        scene.on(PeerEvent::AdmissionOpened);
        let (dials, dropped, links) = (Vec::new(), Vec::new(), Vec::new());
        Self { scene, dials, dropped, links, revision: 1, ready: BTreeSet::new(), probes: BTreeMap::new() }
    }

    fn on(&mut self, event: PeerEvent) {
        self.scene.on(event);
        self.follow();
    }

    fn follow(&mut self) {
        for effect in std::mem::take(&mut self.scene.log) {
            match effect {
                PeerEffect::Dial { dial, .. } => self.dials.push(dial),
                PeerEffect::DropDial(dial) => {
                    if self.dials.contains(&dial) {
                        self.dropped.push(dial);
                    }
                    self.dials.retain(|open| *open != dial);
                }
                PeerEffect::Close(link) => self.links.retain(|open| *open != link),
                PeerEffect::PeerReady { link, .. } => {
                    assert!(self.ready.insert(link), "ready once (NODE-93)")
                }
                PeerEffect::PeerLost { link, .. } => assert!(self.ready.remove(&link), "lost once"),
                PeerEffect::Send { link, message } => {
                    assert!(self.links.contains(&link), "sent on a closed link");
                    if let Message::Probe(id) = message {
                        self.probes.insert(link, id);
                    }
                }
                _ => {}
            }
        }
        let ready: BTreeSet<LinkId> = self.scene.peers.ready_peers().map(|peer| peer.link).collect();
        assert_eq!(ready, self.ready);
    }

    fn take(&mut self, choice: Choice) {
        match choice {
            Choice::Listed(nodes, keep_absent) => {
                if self.scene.peers.routing() == RoutingMode::Manual {
                    return;
                }
                // One descriptor a RID, the last one drawn.
                let nodes: BTreeMap<u8, (u64, bool)> =
                    nodes.into_iter().map(|(peer, lifecycle, client)| (peer, (lifecycle, client))).collect();
                let node = |(peer, (lifecycle, client)): (u8, (u64, bool))| {
                    let mut found = descriptor(name(peer), lifecycle);
                    if client {
                        found.role = ObjectRole::Client;
                    }
                    Arc::new(found)
                };
                let descriptors = nodes.into_iter().map(node).collect();
                self.on(PeerEvent::Listed { descriptors, keep_absent });
            }
            Choice::Manual(intents) => {
                if self.scene.peers.routing() == RoutingMode::Manual {
                    let intent =
                        |(at, expected): (u8, Option<u8>)| manual(&format!("tcp://{at}"), expected.map(name));
                    self.on(PeerEvent::ManualIntents(intents.into_iter().map(intent).collect()));
                }
            }
            Choice::Up { dial, proven } => {
                let proven = ProvenPeer { rid: proven.map(|at| rid(name(at))), identity: None };
                let dial = match dial {
                    None => None,
                    // One event ends each dial; a dropped one may have crossed.
                    Some(at) if at % 2 == 0 && !self.dials.is_empty() => {
                        let at = at % self.dials.len();
                        Some(self.dials.remove(at))
                    }
                    Some(_) => self.dropped.pop(),
                };
                self.scene.links += 1;
                let link = LinkId(self.scene.links);
                self.links.push(link);
                self.on(PeerEvent::LinkUp { link, dial, proven });
            }
            Choice::DialFailed(at) => {
                if !self.dials.is_empty() {
                    let at = at % self.dials.len();
                    let dial = self.dials.remove(at);
                    self.on(PeerEvent::DialFailed { dial, reason: "refused".to_owned() });
                }
            }
            Choice::LinkDown(at) => {
                if let Some(link) = self.link(at) {
                    self.links.retain(|open| *open != link);
                    self.on(PeerEvent::LinkDown { link, reason: LinkDownReason::Closed });
                }
            }
            Choice::Hello { link, peer, lifecycle, attempt, client, stranger } => {
                let Some(link) = self.link(link) else { return };
                let mut hello = hello(name(peer), lifecycle, attempt);
                // Usually say what fits the link.
                hello.dialled =
                    self.scene.peers.dialled(link).is_some_and(|dialled| !dialled) != (attempt == 3);
                if client {
                    hello.role = ObjectRole::Client;
                }
                if stranger {
                    hello.identity = identity("stranger");
                }
                self.on(PeerEvent::Received { link, message: Message::Hello(Box::new(hello)) });
            }
            Choice::Message { link, kind } => {
                let Some(link) = self.link(link) else { return };
                let message = match kind {
                    0..=6 => Message::Welcome,
                    7 => Message::Refused(Refusal::NotReady),
                    8 => Message::Refused(Refusal::Duplicate),
                    9 => Message::Refused(Refusal::NotRequired),
                    10 => Message::Probe(5),
                    11 => Message::ProbeAck(self.probes.get(&link).copied().unwrap_or(1)),
                    12 => Message::Probe(0),
                    _ => Message::NodeUpdate(NodeUpdate {
                        lifecycle: life(1),
                        revision: revision(3),
                        channels: BTreeMap::new(),
                        host_state: HostState::Draining,
                    }),
                };
                self.on(PeerEvent::Received { link, message });
            }
            Choice::Pass(by) => {
                let end = self.scene.now + ms(by);
                // One deadline at a time, so that the transport's side follows.
                while let Some(at) = self.scene.timers.values().min().copied().filter(|at| *at <= end) {
                    let by = at - self.scene.now;
                    self.scene.pass(by);
                    self.follow();
                }
                self.scene.now = end;
            }
            Choice::HostState(at) => {
                let state = match at {
                    0..=3 => HostState::Serving,
                    4..=8 => HostState::Relocating,
                    9 | 10 => HostState::Draining,
                    _ => HostState::Stopped,
                };
                self.revision += 1;
                self.on(PeerEvent::HostStateChanged { state, revision: revision(self.revision) });
            }
            Choice::Weights => {
                self.revision += 1;
                let channels = BTreeMap::new();
                self.on(PeerEvent::WeightsChanged { channels, revision: revision(self.revision) });
            }
        }
    }

    fn link(&self, at: usize) -> Option<LinkId> {
        (!self.links.is_empty()).then(|| self.links[at % self.links.len()])
    }

    /// The host stops: everything the machine opened is closed again.
    fn stop(mut self) {
        self.on(PeerEvent::HostStateChanged { state: HostState::Stopped, revision: revision(9_999) });
        assert!(self.dials.is_empty(), "{:?}", self.dials);
        assert!(self.links.is_empty(), "{:?}", self.links);
        assert!(self.scene.timers.is_empty());
        assert!(self.ready.is_empty());
    }
}

proptest! {
    #[test]
    fn random_events_keep_the_invariants(
        manual in any::<bool>(),
        client in any::<bool>(),
        choices in prop::collection::vec(choices(), 1..120),
    ) {
        let routing = if manual { RoutingMode::Manual } else { RoutingMode::Automatic };
        let mut run = Run::new(routing, client);
        for choice in choices {
            run.take(choice);
        }
        run.stop();
    }
}

#[test]
fn equal_events_give_equal_effects_and_states() {
    let run = || {
        let mut scene = Scene::automatic("m");
        scene.on(listed(&[descriptor("z", 1), descriptor("a", 1)]));
        for _ in 0..20 {
            let dial = scene.last_dial();
            scene.on(PeerEvent::DialFailed { dial, reason: "refused".to_owned() });
            scene.pass(ms(5_000));
        }
        (scene.peers, scene.log)
    };
    assert_eq!(run(), run());
}
