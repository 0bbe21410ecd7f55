//! The end of a decision: what follows from it for each peer it touched.

use super::{Decision, Peer, PeerEffect, Peers};
use crate::event::{Event, PeerState};
use crate::link::LinkId;
use crate::mesh::admission::{AdmissionEvent, Verdict};
use crate::mesh::intent::{IntentEvent, IntentKey, IntentState};
use crate::model::{HostState, LifecycleGeneration, Rid};

impl Peers {
    /// Looks at every touched peer until nothing more follows.
    pub(super) fn settle(&mut self, d: &mut Decision<'_>) {
        while let Some((rid, reason)) = d.touched.pop_first() {
            self.rejudge_held(&rid, d);
            self.link_intents(&rid, d);
            if let Some(again) = d.touched.get_mut(&rid) {
                // Something moved: look again, for the newest reason there is.
                if again.is_empty() {
                    *again = reason;
                }
                continue;
            }
            self.end_lifecycles(&rid, d);
            self.show(&rid, &reason, d);
            self.forget(&rid);
        }
    }

    /// Runs the checks again for held links: the listing, an intent or the old connection changed (NODE-87).
    fn rejudge_held(&mut self, rid: &Rid, d: &mut Decision<'_>) {
        let held: Vec<LinkId> =
            self.peers.get(rid).map(|peer| peer.held.iter().copied().collect()).unwrap_or_default();
        for id in held {
            let Some(hello) = self.links.get(&id).and_then(|link| link.admission.hello()).cloned() else {
                continue;
            };
            let verdict = self.verdict(id, &hello);
            if verdict != Verdict::Hold {
                self.step_link(id, AdmissionEvent::Rejudged(verdict), d);
            }
        }
    }

    /// Intents of an admitted peer are linked, however the connection came about.
    fn link_intents(&mut self, rid: &Rid, d: &mut Decision<'_>) {
        let Some((link, lifecycle)) = self.ready(rid) else { return };
        let dial = self.links.get(&link).and_then(|link| link.dial);
        let mut due: Vec<(IntentKey, IntentEvent)> = Vec::new();
        for (key, intent) in self.intents_of(rid) {
            let own = dial.filter(|dial| intent.dial() == Some(*dial));
            let meant = intent.target.lifecycle.is_none_or(|expected| expected == lifecycle);
            let waits = match intent.state {
                IntentState::Idle { .. } => true,
                IntentState::Dialling { .. } => own.is_some(),
                IntentState::Linked { .. } | IntentState::NotRequired => false,
            };
            if meant && waits {
                due.push((key.clone(), IntentEvent::Admitted { link, dial: own }));
            }
        }
        for (key, event) in due {
            self.step_intent(&key, event, d);
        }
    }

    /// NODE-103: no intent for the lifecycle and no admitted connection of it.
    fn end_lifecycles(&mut self, rid: &Rid, d: &mut Decision<'_>) {
        let Some(peer) = self.peers.get(rid) else { return };
        let ended: Vec<LifecycleGeneration> =
            peer.alive.iter().copied().filter(|lifecycle| !self.lives(rid, *lifecycle)).collect();
        for lifecycle in ended {
            if let Some(peer) = self.peers.get_mut(rid) {
                peer.alive.remove(&lifecycle);
            }
            d.out.push(PeerEffect::LifecycleEnded { rid: rid.clone(), lifecycle });
        }
    }

    /// Whether an intent for the lifecycle or an admitted connection of it is left (NODE-103).
    pub(crate) fn lives(&self, rid: &Rid, lifecycle: LifecycleGeneration) -> bool {
        let admitted = self.ready(rid).map(|(_, admitted)| admitted);
        admitted == Some(lifecycle)
            || self.intents_of(rid).any(|(_, intent)| match intent.target.lifecycle {
                Some(meant) => meant == lifecycle,
                // A wish for whichever lifecycle runs there: an admitted one takes the place of all others.
                None => admitted.is_none(),
            })
    }

    /// Tells observers what changed. A new admitted connection is reported even between two Ready (OBS-13).
    fn show(&mut self, rid: &Rid, reason: &str, d: &mut Decision<'_>) {
        let Some(peer) = self.peers.get(rid) else { return };
        let shown = (self.state_of(rid, peer), peer.route);
        let unseen = peer.shown.is_none() && !self.has_reason(rid, peer);
        if peer.shown == Some(shown) || unseen {
            return;
        }
        let lifecycle = self.lifecycle_of(peer);
        if let Some(peer) = self.peers.get_mut(rid) {
            peer.shown = Some(shown);
        }
        d.event(Event::Peer {
            node: self.local.node,
            rid: rid.clone(),
            lifecycle,
            state: shown.0,
            reason: reason.to_owned(),
        });
    }

    /// State of a peer by the diagram of §11.
    pub(super) fn state_of(&self, rid: &Rid, peer: &Peer) -> PeerState {
        if let Some(ready) = peer.route.and_then(|route| self.ready_link(route)) {
            return match ready.hello.host_state {
                HostState::Draining | HostState::Stopped => PeerState::Draining,
                _ => PeerState::Ready,
            };
        }
        let intent = |wanted: fn(IntentState) -> bool| self.intents_of(rid).any(|(_, i)| wanted(i.state));
        if peer.candidate.is_some()
            || !peer.held.is_empty()
            || intent(|state| matches!(state, IntentState::Dialling { .. }))
        {
            PeerState::Connecting
        } else if peer.listed.as_ref().is_some_and(|listed| !listed.required)
            || intent(|state| state == IntentState::NotRequired)
        {
            PeerState::NotRequired
        } else {
            PeerState::NotConnected
        }
    }

    /// The lifecycle a peer is shown with: the admitted one, else the listed one.
    pub(super) fn lifecycle_of(&self, peer: &Peer) -> Option<LifecycleGeneration> {
        let admitted = peer.route.and_then(|route| self.ready_link(route)).map(|ready| ready.hello.lifecycle);
        admitted.or_else(|| peer.listed.as_ref().map(|listed| listed.lifecycle))
    }

    /// Whether anything still speaks for keeping the entry of a RID.
    pub(super) fn has_reason(&self, rid: &Rid, peer: &Peer) -> bool {
        peer.listed.is_some()
            || peer.route.is_some()
            || peer.candidate.is_some()
            || !peer.held.is_empty()
            || !peer.alive.is_empty()
            || self.intents_of(rid).next().is_some()
    }

    fn forget(&mut self, rid: &Rid) {
        if self.peers.get(rid).is_some_and(|peer| !self.has_reason(rid, peer)) {
            self.peers.remove(rid);
        }
    }
}
