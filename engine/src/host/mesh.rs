//! One MeshNode of the host, and its peers, links and listing.

use std::sync::Arc;

use serde::Serialize;

use super::store_calls::StoreUse;
use super::{Host, TimerKey, planted};
use crate::config::{HostConfig, NodeConfig, RidChoice};
use crate::event::Event;
use crate::link::{DialId, LinkDownReason, LinkId, NodeIndex, ProvenPeer};
use crate::mark::Mark;
use crate::mesh::{
    Discovery, DiscoveryEffect, DiscoveryEvent, DiscoveryTimer, ListedNode, Listing, LocalNode, PeerEffect,
    PeerEvent, PeerTimer, Peers,
};
use crate::model::limits::PAGE_MAX;
use crate::model::{
    DescriptorRevision, Entropy, HostState, LeaseRef, LifecycleGeneration, NodeFence, ObjectRole, Rid,
    RoutingMode, SpotId, Weight,
};
use crate::output::Output;
use crate::store::{
    ClaimNode, Descriptor, ListDescriptors, NodeLimits, RemoveDescriptor, SpotType, StoreError, StoreReply,
    StoreResult, TypeCapability,
};
use crate::wire::{Message, encode};

/// Version of the protocol this crate speaks.
pub(super) const PROTOCOL: u16 = 1;

/// A MeshNode of this host.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(super) struct Node {
    pub(super) local: LocalNode,
    pub(super) entry_spot: Option<SpotId>,
    pub(super) claimed: bool,
    pub(super) weight: Weight,
    pub(super) pending_activations: u32,
    pub(super) listing: Option<Listing>,
    /// Publication after startup: whether the descriptor changed, and whether an update is out.
    pub(super) unpublished: bool,
    pub(super) publishing: bool,
    listening: bool,
    peers: Peers,
    discovery: Discovery,
}

impl Node {
    pub(super) fn new(index: usize, node: &NodeConfig, host: &HostConfig, entropy: &mut Entropy) -> Self {
        let rid = match &node.rid {
            RidChoice::Automatic { prefix } => Rid::automatic(prefix, entropy),
            RidChoice::Fixed(rid) => rid.clone(),
        };
        let entry_spot = (node.role == ObjectRole::Server).then(|| SpotId::entry(&node.prefix(), entropy));
        let local = LocalNode {
            node: super::startup::index(index),
            mesh: node.mesh.clone(),
            rid,
            lifecycle: LifecycleGeneration::new(entropy.non_zero_u64()),
            revision: DescriptorRevision::FIRST,
            channels: node.channels.clone(),
            identity: node.identity.clone(),
            trust_profile: node.trust_profile.clone(),
            role: node.role,
            host_state: HostState::Preparing,
            endpoint: String::new(),
            protocol: PROTOCOL,
            required_capabilities: 0,
            capabilities: 0,
            routing: node.routing,
        };
        Self {
            peers: Peers::new(local.clone()),
            local,
            entry_spot,
            claimed: false,
            weight: node.placement_weight,
            pending_activations: 0,
            listing: None,
            unpublished: false,
            publishing: false,
            listening: false,
            discovery: Discovery::new(node.mesh.clone(), &host.settings),
        }
    }

    pub(super) fn claim(&self, limits: NodeLimits, lease: LeaseRef) -> ClaimNode {
        ClaimNode {
            mesh: self.local.mesh.clone(),
            rid: self.local.rid.clone(),
            lifecycle: self.local.lifecycle,
            role: self.local.role,
            limits,
            entry_spot_id: self.entry_spot.clone(),
            lease,
        }
    }

    pub(super) fn removal(&self, lease: LeaseRef) -> RemoveDescriptor {
        RemoveDescriptor {
            mesh: self.local.mesh.clone(),
            rid: self.local.rid.clone(),
            lifecycle: self.local.lifecycle,
            lease,
        }
    }

    pub(super) fn bound(&mut self, endpoint: String) {
        self.local.endpoint = endpoint;
        self.listening = true;
        // Nothing was dialled or admitted yet: the peers start with the endpoint they will state.
        self.peers = Peers::new(self.local.clone());
    }

    pub(super) fn unbind(&mut self) -> bool {
        std::mem::take(&mut self.listening)
    }

    pub(super) fn discovers(&self) -> bool {
        self.local.routing == RoutingMode::Automatic
    }

    pub(super) fn has_listing(&self) -> bool {
        !self.discovers() || self.listing.is_some()
    }

    pub(super) fn serving(&self, node: NodeIndex) -> Event {
        Event::NodeServing {
            node,
            rid: self.local.rid.clone(),
            lifecycle: self.local.lifecycle,
            endpoint: self.local.endpoint.clone(),
        }
    }

    pub(super) fn peers(&self) -> &Peers {
        &self.peers
    }

    /// The descriptor of the current values; a changed one needs a higher revision first.
    pub(super) fn descriptor(&mut self, config: &HostConfig, state: HostState) -> Arc<Descriptor> {
        if self.local.host_state != state {
            self.local.host_state = state;
            if state != HostState::Preparing {
                self.raise_revision();
            }
        }
        let node = &config.nodes[usize::from(self.local.node.0)];
        let capabilities = node.types.iter().map(|registration| TypeCapability {
            kind: registration.kind,
            stable_type: registration.stable_type.clone(),
            policy: registration.policy,
            limit: registration.limit,
            count: 0,
        });
        Arc::new(Descriptor {
            mesh: self.local.mesh.clone(),
            rid: self.local.rid.clone(),
            lifecycle: self.local.lifecycle,
            revision: self.local.revision,
            endpoint: self.local.endpoint.clone(),
            role: self.local.role,
            channels: self.local.channels.clone(),
            entry_spot_id: self.entry_spot.clone(),
            capabilities: capabilities.collect(),
            placement_weight: self.weight,
            actors: 0,
            actor_limit: node.actor_limit,
            spots: 0,
            spot_limit: node.spot_limit,
            pending_activations: self.pending_activations,
            pending_activation_limit: node.pending_activation_limit,
            host_state: state,
            identity: self.local.identity.clone(),
            trust_profile: self.local.trust_profile.clone(),
            public_key: node.public_key,
            protocol: PROTOCOL,
            protocol_capabilities: 0,
            application_version: config.application_version,
            maintenance_wave: config.maintenance_wave.clone(),
        })
    }

    /// What this node says of itself now counts at once in its own listing: a listing read before a change of
    /// weight or state must not choose by the old value.
    pub(super) fn refresh_own(&mut self, config: &HostConfig, lease: Option<LeaseRef>) {
        let (Some(lease), true) = (lease, self.listing.is_some()) else { return };
        let mut own = (*self.descriptor(config, self.local.host_state)).clone();
        let Some(listing) = &mut self.listing else { return };
        if let Some(listed) = listing.nodes.get(&self.local.rid)
            && listed.descriptor.lifecycle == self.local.lifecycle
        {
            // The counts are the Store's projection (STORE-17).
            let seen = &listed.descriptor;
            (own.actors, own.spots) = (seen.actors, seen.spots);
            own.capabilities.clone_from(&seen.capabilities);
        }
        let node = ListedNode { descriptor: Arc::new(own), lease };
        listing.nodes.insert(self.local.rid.clone(), node);
    }

    pub(super) fn raise_revision(&mut self) {
        // 2^63 changes are out of reach of any lifecycle.
        self.local.revision = self.local.revision.next().unwrap_or(self.local.revision);
    }
}

pub(super) fn limits_of(node: &NodeConfig) -> NodeLimits {
    let types = node.types.iter().filter_map(|registration| match registration.kind {
        crate::model::ObjectKind::Spot(kind) => {
            Some((SpotType { kind, stable_type: registration.stable_type.clone() }, registration.limit))
        }
        crate::model::ObjectKind::Actor => None,
    });
    NodeLimits { actors: node.actor_limit, spots: node.spot_limit, types: types.collect() }
}

impl Host {
    pub(super) fn node(&self, node: NodeIndex) -> &Node {
        &self.nodes[usize::from(node.0)]
    }

    pub(super) fn peer_event(&mut self, node: NodeIndex, event: PeerEvent) {
        let mut effects = Vec::new();
        let peers = &mut self.nodes[usize::from(node.0)].peers;
        peers.on(event, self.now, &mut self.entropy, &mut self.dials, &mut effects);
        for effect in effects {
            self.peer_effect(node, effect);
        }
    }

    fn peer_effect(&mut self, node: NodeIndex, effect: PeerEffect) {
        match effect {
            PeerEffect::Dial { dial, .. } if planted!(self, LosesDials) && dial.0.is_multiple_of(3) => {}
            PeerEffect::Dial { dial, target } => self.outputs.push_back(Output::Dial { node, dial, target }),
            PeerEffect::DropDial(dial) => self.outputs.push_back(Output::DropDial(dial)),
            PeerEffect::Send { link, message } => self.send(link, &message, None),
            PeerEffect::Close(link) => {
                self.links.remove(&link);
                self.outputs.push_back(Output::CloseLink(link));
            }
            PeerEffect::SetTimer { timer, at } => self.timers.set(TimerKey::Peer(node, timer), at),
            PeerEffect::CancelTimer(timer) => self.timers.cancel(&TimerKey::Peer(node, timer)),
            PeerEffect::PeerReady { rid, .. } => self.route_ready(&rid),
            PeerEffect::PeerLost { link, .. } => self.link_lost(link),
            PeerEffect::LifecycleEnded { rid, lifecycle } => self.lifecycle_ended(&rid, lifecycle),
            PeerEffect::Event(event) => self.record(event),
            PeerEffect::Mark(mark) => self.mark(mark),
        }
    }

    pub(super) fn send(&mut self, link: LinkId, message: &Message, body: Option<bytes::Bytes>) {
        let lane = message.lane();
        let record = encode(message, body);
        self.outputs.push_back(Output::Send { link, lane, record });
    }

    pub(super) fn link_up(
        &mut self,
        node: NodeIndex,
        link: LinkId,
        dial: Option<DialId>,
        proven: ProvenPeer,
    ) {
        if usize::from(node.0) >= self.nodes.len() {
            self.outputs.push_back(Output::CloseLink(link));
            return;
        }
        self.links.insert(link, node);
        self.peer_event(node, PeerEvent::LinkUp { link, dial, proven });
    }

    pub(super) fn link_down(&mut self, link: LinkId, reason: LinkDownReason) {
        if let Some(node) = self.links.remove(&link) {
            self.peer_event(node, PeerEvent::LinkDown { link, reason });
        }
    }

    pub(super) fn dial_failed(&mut self, dial: DialId, reason: String) {
        // Dials are numbered per host; the node whose intent it is knows it.
        for at in 0..self.nodes.len() {
            let event = PeerEvent::DialFailed { dial, reason: reason.clone() };
            self.peer_event(super::startup::index(at), event);
        }
    }

    pub(super) fn peer_timer(&mut self, node: NodeIndex, timer: PeerTimer) {
        self.peer_event(node, PeerEvent::TimerFired(timer));
    }

    pub(super) fn discovery_event(&mut self, node: NodeIndex, event: DiscoveryEvent) {
        let mut effects = Vec::new();
        self.nodes[usize::from(node.0)].discovery.on(event, self.now, &mut effects);
        for effect in effects {
            match effect {
                DiscoveryEffect::CallList { mesh, token } => {
                    let list = ListDescriptors { mesh: Some(mesh), token, limit: PAGE_MAX };
                    self.call_store(StoreUse::Discovery(node), list.into());
                }
                DiscoveryEffect::Listed { listing, keep_absent } => self.listed(node, listing, keep_absent),
                DiscoveryEffect::Lapsed => self.nodes[usize::from(node.0)].listing = None,
                DiscoveryEffect::SetTimer { timer, at } => {
                    self.timers.set(TimerKey::Discovery(node, timer), at);
                }
                DiscoveryEffect::CancelTimer(timer) => self.timers.cancel(&TimerKey::Discovery(node, timer)),
                DiscoveryEffect::Mark(mark) => self.mark(mark),
                DiscoveryEffect::Defect(what) => self.violated(what),
            }
        }
    }

    fn listed(&mut self, node: NodeIndex, listing: Listing, keep_absent: bool) {
        let descriptors = listing.nodes.values().map(|listed| Arc::clone(&listed.descriptor)).collect();
        self.nodes[usize::from(node.0)].listing = Some(listing);
        let lease = self.lease.lease();
        if self.state == HostState::Serving {
            self.nodes[usize::from(node.0)].refresh_own(&self.config, lease);
        }
        self.peer_event(node, PeerEvent::Listed { descriptors, keep_absent });
        self.listing_arrived();
    }

    pub(super) fn discovery_answered(&mut self, node: NodeIndex, result: StoreResult) {
        let event = match result {
            Ok(StoreReply::Descriptors(page)) => DiscoveryEvent::PageRead(Box::new(page)),
            Err(StoreError::ScanExpired) => DiscoveryEvent::ScanExpired,
            _ => DiscoveryEvent::PageFailed,
        };
        self.discovery_event(node, event);
    }

    pub(super) fn discovery_timer(&mut self, node: NodeIndex, timer: DiscoveryTimer) {
        self.discovery_event(node, DiscoveryEvent::TimerFired(timer));
    }

    pub(super) fn descriptors_hinted(&mut self) {
        for at in 0..self.nodes.len() {
            if self.nodes[at].discovers() {
                self.discovery_event(super::startup::index(at), DiscoveryEvent::Hinted);
            }
        }
    }

    /// Peers learn the host's state at the next handshake, and now.
    pub(super) fn tell_peers_state(&mut self, state: HostState) {
        for at in 0..self.nodes.len() {
            if self.nodes[at].local.host_state != state {
                // A state peers or the Store would take for known is ignored (NODE-113, STORE-52).
                self.nodes[at].local.host_state = state;
                self.nodes[at].raise_revision();
            }
            let revision = self.nodes[at].local.revision;
            self.peer_event(super::startup::index(at), PeerEvent::HostStateChanged { state, revision });
        }
    }

    /// Stops what runs by itself: scans and discovery.
    pub(super) fn stop_background(&mut self) {
        self.recovery_event(crate::creation::RecoveryEvent::Stopped);
        self.timers.cancel(&TimerKey::Recovery);
        for at in 0..self.nodes.len() {
            self.discovery_event(super::startup::index(at), DiscoveryEvent::Stopped);
        }
    }

    /// The local node that is `rid` in this lifecycle, if any.
    pub(super) fn own_node(&self, rid: &Rid, lifecycle: LifecycleGeneration) -> Option<NodeIndex> {
        let at =
            self.nodes.iter().position(|node| node.local.rid == *rid && node.local.lifecycle == lifecycle)?;
        Some(super::startup::index(at))
    }

    /// A ready link to that lifecycle of a peer.
    pub(super) fn ready_link(&self, fence: &NodeFence) -> Option<(NodeIndex, LinkId)> {
        self.nodes.iter().enumerate().filter(|(_, node)| node.local.mesh == fence.mesh).find_map(
            |(at, node)| {
                let (link, lifecycle) = node.peers.ready(&fence.rid)?;
                (lifecycle == fence.lifecycle).then_some((super::startup::index(at), link))
            },
        )
    }

    pub(super) fn note_dead_link(&mut self) {
        self.mark(Mark::RequestLinkLost);
    }
}
