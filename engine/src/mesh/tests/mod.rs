//! Scenes and tables for the machines of this folder.

mod admission;
mod discovery;
mod intent;
mod liveness;
mod pair;
mod placement;
mod random;
mod returning;
mod scenes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::local::{DialIds, LocalNode};
use super::peers::{PeerEffect, PeerEvent, PeerTimer, Peers};
use crate::config::ManualIntent;
use crate::event::{Event, PeerState};
use crate::link::{DialId, LinkId, NodeIndex, ProvenPeer};
use crate::model::{
    ChannelName, DescriptorRevision, Entropy, Error, HostState, Instant, LifecycleGeneration, MeshName,
    ObjectRole, Rid, RoutingMode, SecurityIdentity, Weight,
};
use crate::store::Descriptor;
use crate::wire::{Hello, Message, Refusal};

fn rid(text: &str) -> Rid {
    Rid::new(text).unwrap()
}

fn life(value: u64) -> LifecycleGeneration {
    LifecycleGeneration::from_u64(value).unwrap()
}

fn revision(value: u64) -> DescriptorRevision {
    DescriptorRevision::new(value).unwrap()
}

fn mesh(name: &str) -> MeshName {
    MeshName::new(name).unwrap()
}

fn identity(name: &str) -> SecurityIdentity {
    SecurityIdentity::new(name).unwrap()
}

fn channels(weights: &[(&str, i64)]) -> BTreeMap<ChannelName, Weight> {
    weights.iter().map(|(name, w)| (ChannelName::new(name).unwrap(), Weight::new(*w).unwrap())).collect()
}

fn ms(value: u64) -> Duration {
    Duration::from_millis(value)
}

const NOBODY: ProvenPeer = ProvenPeer { rid: None, identity: None };

/// An Object Server of Mesh `m` in lifecycle 100.
fn local(name: &str, routing: RoutingMode) -> LocalNode {
    LocalNode {
        node: NodeIndex(0),
        mesh: mesh("m"),
        rid: rid(name),
        lifecycle: life(100),
        revision: revision(1),
        channels: BTreeMap::new(),
        identity: identity("anonymous"),
        trust_profile: "open".to_owned(),
        role: ObjectRole::Server,
        host_state: HostState::Serving,
        endpoint: format!("tcp://{name}"),
        protocol: 1,
        required_capabilities: 0,
        capabilities: 0,
        routing,
    }
}

/// What a peer that dialled us by its `attempt` says; 0 for one that we dialled.
fn hello(name: &str, lifecycle: u64, attempt: u64) -> Hello {
    let mut peer = local(name, RoutingMode::Automatic);
    peer.lifecycle = life(lifecycle);
    peer.hello((attempt != 0).then_some(DialId(attempt)))
}

fn descriptor(name: &str, lifecycle: u64) -> Descriptor {
    Descriptor {
        mesh: mesh("m"),
        rid: rid(name),
        lifecycle: life(lifecycle),
        revision: revision(1),
        endpoint: format!("tcp://{name}"),
        role: ObjectRole::Server,
        channels: BTreeMap::new(),
        entry_spot_id: None,
        capabilities: Vec::new(),
        placement_weight: Weight::DEFAULT,
        actors: 0,
        actor_limit: 0,
        spots: 0,
        spot_limit: 0,
        pending_activations: 0,
        pending_activation_limit: 128,
        host_state: HostState::Serving,
        identity: identity("anonymous"),
        trust_profile: "open".to_owned(),
        public_key: None,
        protocol: 1,
        protocol_capabilities: 0,
        application_version: 0,
        maintenance_wave: None,
    }
}

fn listed(descriptors: &[Descriptor]) -> PeerEvent {
    let descriptors = descriptors.iter().cloned().map(Arc::new).collect();
    PeerEvent::Listed { descriptors, keep_absent: false }
}

fn manual(endpoint: &str, expected: Option<&str>) -> ManualIntent {
    ManualIntent { endpoint: endpoint.to_owned(), expected_rid: expected.map(rid) }
}

/// One node, its clock, and everything it ever wanted done. Checks the invariants after every event.
struct Scene {
    peers: Peers,
    entropy: Entropy,
    ids: DialIds,
    now: Instant,
    timers: BTreeMap<PeerTimer, Instant>,
    /// Effects of the last event.
    out: Vec<PeerEffect>,
    /// Effects of all events.
    log: Vec<PeerEffect>,
    links: u64,
}

impl Scene {
    /// A node with admission open.
    fn new(local: LocalNode) -> Self {
        let mut scene = Self::closed(local);
        scene.on(PeerEvent::AdmissionOpened);
        scene
    }

    fn closed(local: LocalNode) -> Self {
        Self {
            peers: Peers::new(local),
            entropy: Entropy::new([5; 32]),
            ids: DialIds::default(),
            now: Instant::from_nanos(1_000_000_000),
            timers: BTreeMap::new(),
            out: Vec::new(),
            log: Vec::new(),
            links: 0,
        }
    }

    fn manual(name: &str, intents: Vec<ManualIntent>) -> Self {
        let mut scene = Self::new(local(name, RoutingMode::Manual));
        scene.on(PeerEvent::ManualIntents(intents));
        scene
    }

    fn automatic(name: &str) -> Self {
        Self::new(local(name, RoutingMode::Automatic))
    }

    fn on(&mut self, event: PeerEvent) -> &[PeerEffect] {
        self.out.clear();
        self.peers.on(event.clone(), self.now, &mut self.entropy, &mut self.ids, &mut self.out);
        for effect in &self.out {
            match effect {
                PeerEffect::SetTimer { timer, at } => {
                    self.timers.insert(timer.clone(), *at);
                }
                PeerEffect::CancelTimer(timer) => {
                    assert!(self.timers.remove(timer).is_some(), "{timer:?} was not set");
                }
                PeerEffect::Event(Event::Violation(found)) => panic!("{event:?}: {found}"),
                _ => {}
            }
        }
        self.log.extend(self.out.iter().cloned());
        self.peers.check().unwrap_or_else(|found| panic!("after {event:?}: {found}"));
        &self.out
    }

    /// Fires every deadline up to `by` from now.
    fn pass(&mut self, by: Duration) {
        let end = self.now + by;
        while let Some((timer, at)) =
            self.timers.iter().map(|(timer, at)| (timer.clone(), *at)).min_by_key(|(_, at)| *at)
            && at <= end
        {
            self.timers.remove(&timer);
            self.now = at;
            self.on(PeerEvent::TimerFired(timer));
        }
        self.now = end;
    }

    /// A new link, inbound or of a dial.
    fn up(&mut self, dial: Option<DialId>) -> LinkId {
        self.up_proven(dial, NOBODY)
    }

    fn up_proven(&mut self, dial: Option<DialId>, proven: ProvenPeer) -> LinkId {
        self.links += 1;
        let link = LinkId(self.links);
        self.on(PeerEvent::LinkUp { link, dial, proven });
        link
    }

    fn receive(&mut self, link: LinkId, message: Message) -> &[PeerEffect] {
        self.on(PeerEvent::Received { link, message })
    }

    fn hear(&mut self, link: LinkId, hello: Hello) -> &[PeerEffect] {
        self.receive(link, Message::Hello(Box::new(hello)))
    }

    /// An inbound link, admitted on both sides.
    fn admit(&mut self, hello: Hello) -> LinkId {
        let link = self.up(None);
        self.hear(link, hello);
        self.receive(link, Message::Welcome);
        link
    }

    /// The dials started by the last event.
    fn dials(&self) -> Vec<DialId> {
        self.out
            .iter()
            .filter_map(|effect| match effect {
                PeerEffect::Dial { dial, .. } => Some(*dial),
                _ => None,
            })
            .collect()
    }

    fn dial(&self) -> DialId {
        let dials = self.dials();
        assert_eq!(dials.len(), 1, "{:?}", self.out);
        dials[0]
    }

    /// The newest dial of all.
    fn last_dial(&self) -> DialId {
        let mut dials = self.log.iter().rev().filter_map(|effect| match effect {
            PeerEffect::Dial { dial, .. } => Some(*dial),
            _ => None,
        });
        dials.next().unwrap()
    }

    /// The newest probe sent on a link.
    fn last_probe(&self, link: LinkId) -> Option<u64> {
        self.log.iter().rev().find_map(|effect| match effect {
            PeerEffect::Send { link: to, message: Message::Probe(id) } if *to == link => Some(*id),
            _ => None,
        })
    }

    fn probes(&self, link: LinkId) -> usize {
        let probe = |effect: &&PeerEffect| matches!(effect, PeerEffect::Send { link: to, message: Message::Probe(_) } if *to == link);
        self.log.iter().filter(probe).count()
    }

    fn sent(&self, link: LinkId) -> Vec<Message> {
        self.out
            .iter()
            .filter_map(|effect| match effect {
                PeerEffect::Send { link: to, message } if *to == link => Some(message.clone()),
                _ => None,
            })
            .collect()
    }

    fn refusal(&self, link: LinkId) -> Option<Refusal> {
        let refusal = self.sent(link).into_iter().find_map(|message| match message {
            Message::Refused(refusal) => Some(refusal),
            _ => None,
        });
        assert!(refusal.is_none() || self.closed_link(link), "a refused link is closed");
        refusal
    }

    fn closed_link(&self, link: LinkId) -> bool {
        self.out.contains(&PeerEffect::Close(link))
    }

    fn errors(&self) -> Vec<(Option<Rid>, Error)> {
        self.out
            .iter()
            .filter_map(|effect| match effect {
                PeerEffect::Event(Event::PeerError { rid, error, .. }) => Some((rid.clone(), error.clone())),
                _ => None,
            })
            .collect()
    }

    fn ended(&self) -> Vec<(Rid, LifecycleGeneration)> {
        self.out
            .iter()
            .filter_map(|effect| match effect {
                PeerEffect::LifecycleEnded { rid, lifecycle } => Some((rid.clone(), *lifecycle)),
                _ => None,
            })
            .collect()
    }

    fn state(&self, name: &str) -> Option<PeerState> {
        self.peers.views().find(|view| *view.rid == rid(name)).map(|view| view.state)
    }

    fn ready(&self, name: &str) -> Option<LinkId> {
        self.peers.ready(&rid(name)).map(|(link, _)| link)
    }
}

/// Rows of a table: first word names the row, the first line's words name the columns. `#` starts a comment.
fn table(text: &str) -> Vec<(String, String, String)> {
    let mut lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default())
        .filter(|line| !line.trim().is_empty())
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let columns = lines.next().unwrap();
    let mut cells = Vec::new();
    for line in lines {
        assert_eq!(line.len(), columns.len() + 1, "{line:?}");
        for (column, cell) in columns.iter().zip(&line[1..]) {
            cells.push((line[0].to_owned(), (*column).to_owned(), (*cell).to_owned()));
        }
    }
    cells
}
