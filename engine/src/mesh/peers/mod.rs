//! All peers of one MeshNode: intents, links, the selected route of each RID (spec 02 §9, §11, §12).

mod check;
mod event;
mod links;
mod plan;
mod settle;
mod timers;
mod update;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

pub(crate) use event::{EndReason, PeerEffect, PeerEvent, PeerTimer, PeerView, ReadyPeer, RouteGeneration};

use super::admission::{Admission, ReadyLink, closed};
use super::intent::{Intent, IntentKey};
use super::local::{DialIds, LocalNode};
use crate::event::{Event, PeerState};
use crate::link::{DialId, LinkId, ProvenPeer};
use crate::mark::Mark;
use crate::model::{
    DescriptorRevision, Entropy, Error, HostState, Instant, LifecycleGeneration, Rid, SecurityIdentity,
};

/// The peers of one MeshNode.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct Peers {
    local: LocalNode,
    /// Whether startup step 5 opened peer admission.
    opened: bool,
    intents: BTreeMap<IntentKey, Intent>,
    /// Dial registrations and the intent each belongs to.
    dials: BTreeMap<DialId, IntentKey>,
    links: BTreeMap<LinkId, Link>,
    peers: BTreeMap<Rid, Peer>,
    last_route: RouteGeneration,
    /// Deadlines the host holds for us; derived from the states above.
    timers: BTreeMap<PeerTimer, Instant>,
}

/// One link from `LinkUp` to its end.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
struct Link {
    /// The dial that made it, `None` on an inbound link.
    dial: Option<DialId>,
    proven: ProvenPeer,
    /// Descriptor revision our Hello stated.
    stated: DescriptorRevision,
    /// When the handshake must be over.
    handshake_by: Instant,
    admission: Admission,
}

/// What is known of one RID. Kept while anything in it, or an intent, gives a reason to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
struct Peer {
    /// From the listing in force.
    listed: Option<ListedPeer>,
    /// The admitted connection, the selected route (NODE-84).
    route: Option<LinkId>,
    /// The better connection that is about to take its place.
    candidate: Option<LinkId>,
    /// Links that wait for NODE-87.
    held: BTreeSet<LinkId>,
    /// Lifecycles that were wished for or admitted and have not ended (NODE-103).
    alive: BTreeSet<LifecycleGeneration>,
    /// What monitoring saw last: a new route is reported anew (OBS-13).
    shown: Option<(PeerState, Option<LinkId>)>,
    /// Last connect or admission error (NODE-140).
    last_error: Option<Error>,
}

/// What the listing says of a peer, as far as it matters for connecting.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
struct ListedPeer {
    lifecycle: LifecycleGeneration,
    identity: SecurityIdentity,
    /// Whether the pair needs a connection (NODE-70).
    required: bool,
}

/// What one decision works with.
struct Decision<'a> {
    now: Instant,
    entropy: &'a mut Entropy,
    ids: &'a mut DialIds,
    out: &'a mut Vec<PeerEffect>,
    /// Peers to look at again before the decision ends, with the reason of the change.
    touched: BTreeMap<Rid, String>,
    /// Items whose timers may have to change.
    links: BTreeSet<LinkId>,
    intents: BTreeSet<IntentKey>,
}

impl Decision<'_> {
    fn touch(&mut self, rid: &Rid, reason: impl Into<String>) {
        self.touched.insert(rid.clone(), reason.into());
    }

    fn mark(&mut self, mark: Mark) {
        self.out.push(PeerEffect::Mark(mark));
    }

    fn event(&mut self, event: Event) {
        self.out.push(PeerEffect::Event(event));
    }
}

impl Peers {
    /// No peers yet, admission closed until `AdmissionOpened`.
    pub(crate) fn new(local: LocalNode) -> Self {
        Self {
            local,
            opened: false,
            intents: BTreeMap::new(),
            dials: BTreeMap::new(),
            links: BTreeMap::new(),
            peers: BTreeMap::new(),
            last_route: RouteGeneration(0),
            timers: BTreeMap::new(),
        }
    }

    /// Takes one event and appends what is to be done, in order.
    pub(crate) fn on(
        &mut self,
        event: PeerEvent,
        now: Instant,
        entropy: &mut Entropy,
        ids: &mut DialIds,
        out: &mut Vec<PeerEffect>,
    ) {
        let mut decision = Decision {
            now,
            entropy,
            ids,
            out,
            touched: BTreeMap::new(),
            links: BTreeSet::new(),
            intents: BTreeSet::new(),
        };
        let d = &mut decision;
        // Nothing is wished for after the end; what still arrives finds no link to belong to.
        let stopped = self.local.host_state == HostState::Stopped;
        match event {
            PeerEvent::AdmissionOpened
            | PeerEvent::HostStateChanged { .. }
            | PeerEvent::WeightsChanged { .. }
            | PeerEvent::Listed { .. }
            | PeerEvent::ManualIntents(_)
                if stopped => {}
            PeerEvent::AdmissionOpened => {
                self.opened = true;
                self.dial_all(d);
            }
            PeerEvent::HostStateChanged { state, revision } => self.host_state_changed(state, revision, d),
            PeerEvent::WeightsChanged { channels, revision } => {
                self.local.channels = channels;
                self.local.revision = revision;
                self.announce(d);
            }
            PeerEvent::Listed { descriptors, keep_absent } => self.listed(descriptors, keep_absent, d),
            PeerEvent::ManualIntents(intents) => self.manual_intents(intents, d),
            PeerEvent::LinkUp { link, dial, proven } => self.link_up(link, dial, proven, d),
            PeerEvent::LinkDown { link, reason } => self.end_link(link, EndReason::Down(reason), d),
            PeerEvent::DialFailed { dial, reason } => self.dial_failed(dial, &reason, d),
            PeerEvent::Received { link, message } => self.received(link, message, d),
            PeerEvent::TimerFired(timer) => self.timer_fired(timer, d),
        }
        self.settle(d);
        self.sync_timers(d);
    }

    /// The admitted connection of a peer.
    pub(crate) fn ready(&self, rid: &Rid) -> Option<(LinkId, LifecycleGeneration)> {
        let route = self.peers.get(rid)?.route?;
        Some((route, self.ready_link(route)?.hello.lifecycle))
    }

    /// Everything about the admitted connection of a peer.
    #[cfg(test)]
    pub(crate) fn ready_peer(&self, rid: &Rid) -> Option<ReadyPeer<'_>> {
        let link = self.peers.get(rid)?.route?;
        Some(ready_view(link, self.ready_link(link)?))
    }

    /// All admitted peers in RID order.
    pub(crate) fn ready_peers(&self) -> impl Iterator<Item = ReadyPeer<'_>> {
        let routes = self.peers.values().filter_map(|peer| peer.route);
        routes.filter_map(|link| Some(ready_view(link, self.ready_link(link)?)))
    }

    /// The peer behind an admitted link; `None` while its handshake runs and after its end.
    pub(crate) fn peer_of(&self, link: LinkId) -> Option<ReadyPeer<'_>> {
        Some(ready_view(link, self.ready_link(link)?))
    }

    /// Every known peer as monitoring shows it (NODE-140, NODE-142).
    pub(crate) fn views(&self) -> impl Iterator<Item = PeerView<'_>> {
        self.peers.iter().map(|(rid, peer)| PeerView {
            rid,
            lifecycle: self.lifecycle_of(peer),
            state: self.state_of(rid, peer),
            last_error: peer.last_error.as_ref(),
        })
    }

    /// How the node finds its peers.
    #[cfg(test)]
    pub(super) fn routing(&self) -> crate::model::RoutingMode {
        self.local.routing
    }

    /// Whether this node dialled an open link.
    #[cfg(test)]
    pub(super) fn dialled(&self, link: LinkId) -> Option<bool> {
        Some(self.links.get(&link)?.dial.is_some())
    }

    fn ready_link(&self, link: LinkId) -> Option<&ReadyLink> {
        self.links.get(&link)?.admission.ready()
    }

    /// Whether handshakes and dials go on (check 1).
    fn admits(&self) -> bool {
        closed(self.opened, self.local.host_state).is_none()
    }

    fn host_state_changed(&mut self, state: HostState, revision: DescriptorRevision, d: &mut Decision<'_>) {
        let admitted = self.admits();
        self.local.host_state = state;
        self.local.revision = revision;
        if state == HostState::Stopped {
            self.end_all(d);
            return;
        }
        self.announce(d);
        match (admitted, self.admits()) {
            (true, false) => self.close_admission(d),
            (false, true) => self.dial_all(d),
            _ => {}
        }
    }
}

fn ready_view(link: LinkId, ready: &ReadyLink) -> ReadyPeer<'_> {
    ReadyPeer {
        rid: &ready.hello.rid,
        lifecycle: ready.hello.lifecycle,
        link,
        route: ready.route,
        role: ready.hello.role,
        host_state: ready.hello.host_state,
        channels: &ready.hello.channels,
        endpoint: &ready.hello.endpoint,
    }
}
