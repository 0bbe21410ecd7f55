//! What must hold between two decisions; the simulator asks after every step.

use std::collections::{BTreeMap, BTreeSet};

use super::{PeerTimer, Peers};
use crate::mesh::admission::Admission;
use crate::mesh::intent::{IntentKey, IntentState};
use crate::model::{HostState, Instant, RoutingMode};

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

impl Peers {
    /// The invariants of this machine.
    ///
    /// # Errors
    /// The first that does not hold, as a text.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.check_links()?;
        self.check_intents()?;
        self.check_peers()?;
        self.check_timers()
    }

    /// Every link has exactly the place its state calls for; so a RID has one selected route (NODE-84).
    fn check_links(&self) -> Result<(), String> {
        let mut routes = BTreeSet::new();
        for (id, link) in &self.links {
            let peer = link.admission.hello().map(|hello| (hello, self.peers.get(&hello.rid)));
            let place = |route, candidate, held| match peer {
                None => Err(format!("link {}: no Hello in {}", id.0, link.admission.name())),
                Some((hello, None)) => Err(format!("link {}: unknown peer {}", id.0, hello.rid)),
                Some((_, Some(peer))) => ensure(
                    (peer.route == Some(*id)) == route
                        && (peer.candidate == Some(*id)) == candidate
                        && peer.held.contains(id) == held,
                    || format!("link {}: {} at the wrong place", id.0, link.admission.name()),
                ),
            };
            match &link.admission {
                Admission::AwaitingHello => {}
                Admission::Held { .. } => place(false, false, true)?,
                Admission::AwaitingWelcome { .. } => place(false, true, false)?,
                Admission::Ready(ready) => {
                    place(true, false, false)?;
                    ensure(routes.insert(ready.route) && ready.route <= self.last_route, || {
                        format!("link {}: route generation {:?} is not its own", id.0, ready.route)
                    })?;
                }
            }
            if let Some(dial) = link.dial {
                let intent = self.dials.get(&dial).and_then(|key| self.intents.get(key));
                let owned = intent.is_some_and(|intent| match intent.state {
                    IntentState::Dialling { link, .. } => link == Some(*id),
                    IntentState::Linked { link, .. } => link == *id,
                    _ => false,
                });
                ensure(owned, || format!("link {}: no intent stands behind its dial", id.0))?;
            }
            ensure(self.admits() || link.admission.ready().is_some(), || {
                format!("link {}: a handshake while admission is closed", id.0)
            })?;
        }
        Ok(())
    }

    fn check_intents(&self) -> Result<(), String> {
        let mut dials = BTreeMap::new();
        for (key, intent) in &self.intents {
            let automatic = self.local.routing == RoutingMode::Automatic;
            ensure(matches!(key, IntentKey::Discovered(_)) == automatic, || {
                format!("intent {key:?} in {:?} mode", self.local.routing)
            })?;
            dials.extend(intent.dial().map(|dial| (dial, key.clone())));
            if let Some(rid) = intent.peer() {
                ensure(self.peers.contains_key(rid), || format!("intent {key:?}: peer {rid} has no entry"))?;
                ensure(*rid != self.local.rid || intent.target.rid.is_some(), || {
                    format!("intent {key:?}: learned the local RID")
                })?;
            }
            match intent.state {
                IntentState::Idle { redial } => {
                    ensure(redial.is_none() || (intent.dials && self.admits()), || {
                        format!("intent {key:?}: waits to redial what it may not dial")
                    })?;
                    // Nothing would ever dial again otherwise.
                    let waits = redial.is_some() || !intent.dials || !self.admits();
                    ensure(waits, || format!("intent {key:?}: idle for ever"))?;
                }
                IntentState::Dialling { link, .. } => {
                    ensure(intent.dials && self.admits(), || format!("intent {key:?}: dials, may not"))?;
                    let open = link.is_none_or(|link| {
                        self.links.get(&link).is_some_and(|link| link.admission.ready().is_none())
                    });
                    ensure(open, || format!("intent {key:?}: its handshake is over"))?;
                }
                IntentState::Linked { link, .. } => {
                    let route = intent.peer().and_then(|rid| self.peers.get(rid)?.route);
                    ensure(route == Some(link), || {
                        format!("intent {key:?}: linked to a link that is no route")
                    })?;
                }
                IntentState::NotRequired => {}
            }
        }
        ensure(dials == self.dials, || format!("dials {:?}, of intents {dials:?}", self.dials))
    }

    fn check_peers(&self) -> Result<(), String> {
        for (rid, peer) in &self.peers {
            ensure(self.has_reason(rid, peer), || format!("peer {rid}: leaked"))?;
            for link in peer.route.iter().chain(&peer.candidate).chain(&peer.held) {
                ensure(self.links.contains_key(link), || {
                    format!("peer {rid}: names the gone link {}", link.0)
                })?;
            }
            for lifecycle in &peer.alive {
                ensure(self.lives(rid, *lifecycle), || format!("peer {rid}: {lifecycle:?} ended silently"))?;
            }
            ensure(peer.shown == Some((self.state_of(rid, peer), peer.route)), || {
                format!("peer {rid}: observers saw {:?}", peer.shown)
            })?;
        }
        let stopped = self.local.host_state == HostState::Stopped;
        ensure(!stopped || (self.links.is_empty() && self.peers.is_empty() && self.dials.is_empty()), || {
            "links, dials or peers after the host stopped".to_owned()
        })
    }

    /// Timers are exactly those the states call for.
    fn check_timers(&self) -> Result<(), String> {
        let links = self.links.keys().flat_map(|id| self.link_timers(*id));
        let intents = self
            .intents
            .keys()
            .filter_map(|key| Some((PeerTimer::Redial(key.clone()), self.redial_timer(key)?)));
        let due: BTreeMap<PeerTimer, Instant> = links.chain(intents).collect();
        ensure(due == self.timers, || format!("timers {:?}, expected {due:?}", self.timers))
    }
}
