//! Intents: which peers are wanted, and the attempts to reach them (spec 02 §12).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Decision, EndReason, ListedPeer, PeerEffect, Peers};
use crate::config::ManualIntent;
use crate::event::Event;
use crate::link::{DialId, DialTarget, LinkId};
use crate::mark::Mark;
use crate::mesh::intent::{Fate, Intent, IntentAct, IntentEvent, IntentKey, IntentState, Target};
use crate::model::{Error, ErrorKind, Instant, Rid};
use crate::store::Descriptor;
use crate::wire::Refusal;

impl Peers {
    /// A complete listing was read: the wished peers of Automatic mode.
    pub(super) fn listed(
        &mut self,
        descriptors: Vec<Arc<Descriptor>>,
        keep_absent: bool,
        d: &mut Decision<'_>,
    ) {
        let mut wanted = BTreeMap::new();
        let mut present = BTreeSet::new();
        for descriptor in descriptors {
            if descriptor.rid == self.local.rid || descriptor.mesh != self.local.mesh {
                continue;
            }
            let required = self.local.needs(descriptor.role, !descriptor.channels.is_empty());
            let rid = descriptor.rid.clone();
            let peer = self.peers.entry(rid.clone()).or_default();
            peer.listed = Some(ListedPeer {
                lifecycle: descriptor.lifecycle,
                identity: descriptor.identity.clone(),
                required,
            });
            if required {
                wanted.insert(IntentKey::Discovered(rid.clone()), discovered(&descriptor));
            }
            self.apply_descriptor(&descriptor, d);
            d.touch(&rid, "listing read");
            present.insert(rid);
        }
        for (rid, peer) in &mut self.peers {
            if peer.listed.is_some() && !present.contains(rid) {
                if keep_absent {
                    d.mark(Mark::IntentKeptInGrace);
                } else {
                    peer.listed = None;
                    d.touch(rid, "descriptor gone");
                }
            }
        }
        self.reconcile(wanted, keep_absent.then_some(&present), d);
        self.end_returned(&present, d);
    }

    /// The intents the application wants, in Manual mode.
    pub(super) fn manual_intents(&mut self, intents: Vec<ManualIntent>, d: &mut Decision<'_>) {
        let wanted = intents.into_iter().map(|intent| {
            let target = Target {
                endpoint: intent.endpoint.clone(),
                rid: intent.expected_rid,
                lifecycle: None,
                identity: None,
            };
            (IntentKey::Application(intent.endpoint), target)
        });
        self.reconcile(wanted.collect(), None, d);
    }

    /// The one place that decides which intents are new, replaced or removed (NODE-99).
    ///
    /// With `keep_absent`, an intent missing from `wanted` stays, unless its peer is in that set: then the
    /// listing shows it and shows that the pair needs no connection.
    fn reconcile(
        &mut self,
        wanted: BTreeMap<IntentKey, Target>,
        keep_absent: Option<&BTreeSet<Rid>>,
        d: &mut Decision<'_>,
    ) {
        let stays = |key: &IntentKey, intent: &Intent| match wanted.get(key) {
            Some(target) => *target == intent.target,
            None => keep_absent.is_some_and(|present| intent.peer().is_none_or(|rid| !present.contains(rid))),
        };
        let ended: Vec<_> = self
            .intents
            .iter()
            .filter(|(key, intent)| !stays(key, intent))
            .map(|(key, _)| key.clone())
            .collect();
        for key in ended {
            self.remove_intent(&key, d);
        }
        for (key, target) in wanted {
            if !self.intents.contains_key(&key) {
                self.add_intent(key, target, d);
            }
        }
    }

    fn add_intent(&mut self, key: IntentKey, target: Target, d: &mut Decision<'_>) {
        let dials = target.rid.as_ref().is_none_or(|rid| self.local.dials(rid));
        if let Some(rid) = &target.rid {
            let peer = self.peers.entry(rid.clone()).or_default();
            peer.alive.extend(target.lifecycle);
            d.touch(rid, "intent registered");
        }
        // A peer that is admitted already needs no dial.
        let admitted = target.rid.as_ref().and_then(|rid| self.ready(rid)).map(|(_, admitted)| admitted);
        let linked = admitted.is_some_and(|admitted| target.lifecycle.is_none_or(|meant| meant == admitted));
        self.intents.insert(key.clone(), Intent::new(target, dials));
        if !linked {
            self.dial(&key, d);
        }
    }

    /// Removal is terminal and takes the dial registration with it in this decision (NODE-98, NODE-100).
    fn remove_intent(&mut self, key: &IntentKey, d: &mut Decision<'_>) {
        let Some(mut intent) = self.intents.remove(key) else { return };
        if let Some(dial) = intent.dial() {
            self.dials.remove(&dial);
        }
        if let Some(rid) = intent.peer() {
            d.touch(rid, "intent removed");
        }
        d.intents.insert(key.clone());
        let mut acts = Vec::new();
        // Removed is legal in every state, so there is no defect to report.
        let fate = intent.on(IntentEvent::Removed, &mut acts);
        debug_assert_eq!(fate, Ok(Fate::Gone));
        self.carry_out(&intent, acts, &EndReason::IntentRemoved, d);
    }

    /// Starts attempts for all intents that wait for one.
    pub(super) fn dial_all(&mut self, d: &mut Decision<'_>) {
        let keys: Vec<_> = self.intents.keys().cloned().collect();
        for key in keys {
            self.dial(&key, d);
        }
    }

    /// Starts an attempt where the intent waits for one and the host admits peers.
    pub(super) fn dial(&mut self, key: &IntentKey, d: &mut Decision<'_>) {
        let admits = self.admits();
        let Some(intent) = self.intents.get(key) else { return };
        if admits && intent.dials && matches!(intent.state, IntentState::Idle { .. }) {
            let dial = d.ids.issue();
            self.dials.insert(dial, key.clone());
            self.step_intent(key, IntentEvent::Reconciled { dial }, d);
        }
    }

    /// Moves one intent and carries out what it wants.
    pub(super) fn step_intent(&mut self, key: &IntentKey, event: IntentEvent, d: &mut Decision<'_>) {
        let Some(intent) = self.intents.get_mut(key) else { return };
        let before = intent.dial();
        let mut acts = Vec::new();
        if let Err(defect) = intent.on(event, &mut acts) {
            d.event(Event::Violation(format!("intent {key:?}: {} in {}", defect.event, defect.state)));
        }
        let intent = intent.clone();
        if let Some(dial) = before.filter(|dial| intent.dial() != Some(*dial)) {
            self.dials.remove(&dial);
        }
        if let Some(rid) = intent.peer() {
            // Most moves follow from something that gave its own reason.
            let reason = match event {
                IntentEvent::PairNotRequired => "the pair needs no connection",
                IntentEvent::Suspended => "this host stopped admitting peers",
                _ => "",
            };
            d.touched.entry(rid.clone()).or_insert_with(|| reason.to_owned());
        }
        d.intents.insert(key.clone());
        let reason = match event {
            IntentEvent::Suspended => EndReason::HostClosed,
            IntentEvent::PairNotRequired => EndReason::Refused(Refusal::NotRequired),
            _ => EndReason::IntentRemoved,
        };
        self.carry_out(&intent, acts, &reason, d);
    }

    fn carry_out(&mut self, intent: &Intent, acts: Vec<IntentAct>, reason: &EndReason, d: &mut Decision<'_>) {
        for act in acts {
            match act {
                IntentAct::Dial(dial) => {
                    let target = DialTarget {
                        endpoint: intent.target.endpoint.clone(),
                        expected_rid: intent.target.rid.clone(),
                        local_rid: self.local.rid.clone(),
                    };
                    d.out.push(PeerEffect::Dial { dial, target });
                    if let Some(rid) = intent.peer() {
                        d.touch(rid, "dialling");
                    }
                }
                IntentAct::DropDial(dial) => d.out.push(PeerEffect::DropDial(dial)),
                IntentAct::Close(link) => self.end_link(link, reason.clone(), d),
            }
        }
    }

    /// When the next attempt of an intent starts, if this side makes any.
    pub(super) fn redial_at(&self, key: &IntentKey, failures: u32, d: &mut Decision<'_>) -> Option<Instant> {
        let dials = self.intents.get(key).is_some_and(|intent| intent.dials);
        (dials && self.admits()).then(|| d.now + Intent::redial_wait(failures, d.entropy))
    }

    /// The own attempt of an intent ended without admission. The intent stays (NODE-101).
    pub(super) fn attempt_refused(&mut self, key: &IntentKey, reason: &str, d: &mut Decision<'_>) {
        let Some(intent) = self.intents.get(key) else { return };
        let failures = intent.failures;
        if let Some(rid) = intent.peer() {
            d.touch(&rid.clone(), reason);
        }
        let redial = self.redial_at(key, failures, d);
        self.step_intent(key, IntentEvent::Refused { redial }, d);
    }

    pub(super) fn dial_failed(&mut self, dial: DialId, reason: &str, d: &mut Decision<'_>) {
        let Some(key) = self.dials.get(&dial).cloned() else { return };
        let Some(intent) = self.intents.get(&key) else { return };
        if !matches!(intent.state, IntentState::Dialling { dial: own, link: None } if own == dial) {
            return;
        }
        let (rid, endpoint) = (intent.peer().cloned(), intent.target.endpoint.clone());
        let text = format!("dial {endpoint}: {reason}");
        self.report(rid.as_ref(), Error::new(ErrorKind::Unavailable, "connect", text), d);
        self.attempt_refused(&key, reason, d);
    }

    /// Reports a refused connect or admission with its typed error (NODE-101, NODE-102).
    pub(super) fn report(&mut self, rid: Option<&Rid>, error: Error, d: &mut Decision<'_>) {
        // An unknown RID gets no entry: whoever can reach the listener could fill the table with them.
        if let Some(peer) = rid.and_then(|rid| self.peers.get_mut(rid)) {
            peer.last_error = Some(error.clone());
        }
        d.event(Event::PeerError { node: self.local.node, rid: rid.cloned(), error });
    }

    /// Intents that name this peer.
    pub(super) fn intents_of(&self, rid: &Rid) -> impl Iterator<Item = (&IntentKey, &Intent)> {
        let discovered = self.intents.get_key_value(&IntentKey::Discovered(rid.clone()));
        // Application intents sort first and are few.
        let application = self
            .intents
            .iter()
            .take_while(|(key, _)| matches!(key, IntentKey::Application(_)))
            .filter(move |(_, intent)| intent.peer() == Some(rid));
        discovered.into_iter().chain(application)
    }

    /// Draining or worse: nothing new is admitted or dialled; admitted connections stay.
    pub(super) fn close_admission(&mut self, d: &mut Decision<'_>) {
        let keys: Vec<_> = self.intents.keys().cloned().collect();
        for key in keys {
            self.step_intent(&key, IntentEvent::Suspended, d);
        }
        let open: Vec<LinkId> = self.unready_links().collect();
        for link in open {
            self.refuse(link, Refusal::ShuttingDown, "this host stopped admitting peers", d);
        }
    }

    /// The host stopped: nothing is left.
    pub(super) fn end_all(&mut self, d: &mut Decision<'_>) {
        self.reconcile(BTreeMap::new(), None, d);
        let links: Vec<LinkId> = self.links.keys().copied().collect();
        for link in links {
            self.end_link(link, EndReason::HostClosed, d);
        }
        for (rid, peer) in &mut self.peers {
            peer.listed = None;
            d.touch(rid, "this host stopped");
        }
    }
}

/// The intent a descriptor stands for.
fn discovered(descriptor: &Descriptor) -> Target {
    Target {
        endpoint: descriptor.endpoint.clone(),
        rid: Some(descriptor.rid.clone()),
        lifecycle: Some(descriptor.lifecycle),
        identity: Some(descriptor.identity.clone()),
    }
}
