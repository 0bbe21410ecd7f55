//! Links: handshakes, the selected route of each RID, liveness (spec 02 §11, §12.1).

use std::collections::BTreeSet;

use super::{Decision, EndReason, Link, PeerEffect, Peers};
use crate::event::Event;
use crate::link::{DialId, LinkId, ProvenPeer};
use crate::mark::Mark;
use crate::mesh::admission::{
    Act, Admission, AdmissionEvent, Circumstances, Current, Rank, Refused, Verdict, closed, judge,
};
use crate::mesh::intent::{IntentEvent, IntentKey, IntentState};
use crate::model::limits::HANDSHAKE_TIMEOUT;
use crate::model::{Error, ErrorKind, Rid};
use crate::wire::{Hello, Message, Refusal};

impl Peers {
    pub(super) fn link_up(
        &mut self,
        id: LinkId,
        dial: Option<DialId>,
        proven: ProvenPeer,
        d: &mut Decision<'_>,
    ) {
        if self.links.contains_key(&id) {
            d.event(Event::Violation(format!("LinkUp of the open link {}", id.0)));
            return;
        }
        if let Some(dial) = dial {
            // A dial that no intent owns any more revives nothing (NODE-100).
            let Some(key) = self.dials.get(&dial).cloned() else {
                d.mark(Mark::PeerLateLink);
                d.out.push(PeerEffect::Close(id));
                return;
            };
            self.step_intent(&key, IntentEvent::Up { link: id }, d);
        }
        let stated = self.local.revision;
        let handshake_by = d.now + HANDSHAKE_TIMEOUT;
        let link = Link { dial, proven, stated, handshake_by, admission: Admission::AwaitingHello };
        self.links.insert(id, link);
        d.links.insert(id);
        if let Some(refusal) = closed(self.opened, self.local.host_state) {
            self.refuse(id, refusal, "this host admits no peers now", d);
            return;
        }
        let hello = Message::Hello(Box::new(self.local.hello(dial)));
        d.out.push(PeerEffect::Send { link: id, message: hello });
    }

    pub(super) fn received(&mut self, id: LinkId, message: Message, d: &mut Decision<'_>) {
        if !self.links.contains_key(&id) {
            // Closed by us while the message was on its way.
            return;
        }
        match message {
            Message::Hello(hello) => self.hello_received(id, hello, d),
            Message::Welcome => self.step_link(id, AdmissionEvent::Welcome, d),
            Message::Refused(refusal) => self.step_link(id, AdmissionEvent::Refused(refusal), d),
            _ if self.ready_link(id).is_none() => self.step_link(id, AdmissionEvent::Traffic, d),
            // NODE-107: ids are non-zero.
            Message::Probe(0) => self.violated(id, "a probe with id 0", d),
            Message::Probe(probe) => {
                d.out.push(PeerEffect::Send { link: id, message: Message::ProbeAck(probe) });
            }
            Message::ProbeAck(probe) => {
                let now = d.now;
                if let Some(Admission::Ready(link)) = self.links.get_mut(&id).map(|link| &mut link.admission)
                    && link.liveness.acknowledged(probe, now)
                {
                    d.links.insert(id);
                }
            }
            Message::NodeUpdate(update) => self.apply_update(id, update, d),
            // Application messages of a ready link are the host's.
            _ => {}
        }
    }

    fn hello_received(&mut self, id: LinkId, hello: Box<Hello>, d: &mut Decision<'_>) {
        let Some(link) = self.links.get(&id) else { return };
        if hello.dialled == link.dial.is_some() {
            self.violated(id, "a Hello with the wrong statement who dialled", d);
            return;
        }
        let verdict = self.verdict(id, &hello);
        self.learn(id, &hello.rid, &verdict, d);
        let rid = hello.rid.clone();
        self.step_link(id, AdmissionEvent::Hello(hello, verdict.clone()), d);
        if let Verdict::Refuse(Refused { refusal: Refusal::NotRequired, .. }) = verdict {
            self.not_required(&rid, d);
        }
    }

    /// The checks of NODE-83 for this link as things stand now.
    pub(super) fn verdict(&self, id: LinkId, hello: &Hello) -> Verdict {
        let rank = |id: LinkId, hello: &Hello| {
            let dial = self.links.get(&id).and_then(|link| link.dial);
            Rank::of(&self.local.rid, hello, dial.map(|dial| dial.0))
        };
        let Some(link) = self.links.get(&id) else { return Verdict::Hold };
        let dialled = link.dial.and_then(|dial| self.intents.get(self.dials.get(&dial)?));
        let peer = self.peers.get(&hello.rid);
        let current = peer.and_then(|peer| {
            let current = peer.candidate.or(peer.route).filter(|current| *current != id)?;
            let stated = self.links.get(&current)?.admission.hello()?;
            let (lifecycle, identity) = (stated.lifecycle, stated.identity.clone());
            Some(Current { lifecycle, identity, rank: rank(current, stated) })
        });
        let listed = peer.and_then(|peer| peer.listed.as_ref());
        let at = Circumstances {
            opened: self.opened,
            proven: &link.proven,
            dialled: dialled.map(|intent| &intent.target),
            listed: listed.map(|listed| (listed.lifecycle, &listed.identity)),
            intended: dialled.is_some() || self.intents_of(&hello.rid).next().is_some(),
            current,
            rank: rank(id, hello),
        };
        judge(&self.local, hello, &at)
    }

    /// Remembers who answered an intent that named no RID.
    fn learn(&mut self, id: LinkId, rid: &Rid, verdict: &Verdict, d: &mut Decision<'_>) {
        let known = match verdict {
            Verdict::Admit | Verdict::Hold => true,
            Verdict::Refuse(refused) => {
                matches!(refused.refusal, Refusal::Duplicate | Refusal::NotRequired)
            }
        };
        let Some(key) = self.links.get(&id).and_then(|link| self.dials.get(&link.dial?)).cloned() else {
            return;
        };
        let Some(intent) = self.intents.get_mut(&key) else { return };
        if known && intent.target.rid.is_none() && intent.learned.as_ref() != Some(rid) {
            if let Some(before) = intent.learned.replace(rid.clone()) {
                d.touch(&before, "its endpoint answers with another RID");
            }
            self.peers.entry(rid.clone()).or_default();
            d.touch(rid, "answered a dial");
        }
    }

    /// Moves one handshake and carries out what follows.
    pub(super) fn step_link(&mut self, id: LinkId, event: AdmissionEvent, d: &mut Decision<'_>) {
        let route = self.last_route.next();
        let Some(link) = self.links.get_mut(&id) else { return };
        // The link keeps its last state until `end_link` has taken it out of everything that names it.
        let stated = match &event {
            AdmissionEvent::Hello(hello, _) => Some(hello.rid.clone()),
            _ => link.admission.hello().map(|hello| hello.rid.clone()),
        };
        let (next, act) = link.admission.clone().on(event, d.now, route);
        if let Some(next) = next {
            link.admission = next;
        }
        d.links.insert(id);
        match act {
            Act::Nothing => self.hold(id, d),
            Act::Welcome => self.select(id, d),
            Act::Ready { welcome } => self.admit(id, welcome, d),
            Act::Refuse(refused) => {
                let mark = if refused.refusal == Refusal::Duplicate {
                    Mark::PeerDuplicate
                } else {
                    Mark::PeerRefused
                };
                d.mark(mark);
                self.end(id, EndReason::Refused(refused.refusal), stated, Some(refused.why), d);
            }
            Act::RefusedByPeer(refusal) => {
                self.end_link(id, EndReason::RefusedByPeer(refusal), d);
                if let (Refusal::NotRequired, Some(rid)) = (refusal, stated) {
                    self.not_required(&rid, d);
                }
            }
            Act::TimedOut => self.end_link(id, EndReason::HandshakeTimedOut, d),
            Act::Violated(found) => self.violated(id, found, d),
            Act::Defect(event) => {
                let state = self.links.get(&id).map_or("gone", |link| link.admission.name());
                d.event(Event::Violation(format!("link {}: {event} in {state}", id.0)));
            }
        }
    }

    fn hold(&mut self, id: LinkId, d: &mut Decision<'_>) {
        if let Some(link) = self.links.get(&id)
            && let Admission::Held { hello, .. } = &link.admission
            && self.peers.entry(hello.rid.clone()).or_default().held.insert(id)
        {
            d.touch(&hello.rid, "held: another generation of the RID is known");
        }
    }

    /// The link passed the checks: it is what the RID's route becomes when the peer agrees.
    fn select(&mut self, id: LinkId, d: &mut Decision<'_>) {
        let Some(hello) = self.links.get(&id).and_then(|link| link.admission.hello()) else { return };
        let rid = hello.rid.clone();
        let peer = self.peers.entry(rid.clone()).or_default();
        peer.held.remove(&id);
        if let Some(before) = peer.candidate.replace(id) {
            self.step_link(before, AdmissionEvent::Superseded, d);
        }
        d.out.push(PeerEffect::Send { link: id, message: Message::Welcome });
        d.touch(&rid, "handshake");
    }

    /// Both sides admitted the link: the selected route advances to it (NODE-86, NODE-87).
    fn admit(&mut self, id: LinkId, welcome: bool, d: &mut Decision<'_>) {
        if welcome {
            self.select(id, d);
        }
        let Some(ready) = self.ready_link(id) else { return };
        let (rid, lifecycle, route) = (ready.hello.rid.clone(), ready.hello.lifecycle, ready.route);
        self.last_route = route;
        let peer = self.peers.entry(rid.clone()).or_default();
        peer.candidate = None;
        if let Some(before) = peer.route {
            let returned = self.ready_link(before).is_some_and(|old| old.hello.lifecycle != lifecycle);
            if returned {
                d.mark(Mark::PeerReturned);
                self.end_link(before, EndReason::Returned, d);
            } else {
                d.mark(Mark::PeerReplaced);
                self.step_link(before, AdmissionEvent::Superseded, d);
            }
        }
        let peer = self.peers.entry(rid.clone()).or_default();
        peer.route = Some(id);
        peer.alive.insert(lifecycle);
        d.touch(&rid, "admitted");
        d.out.push(PeerEffect::PeerReady { rid, lifecycle, link: id, route });
        // What changed since our Hello left would otherwise stay unknown to the peer (NODE-112).
        if self.links.get(&id).is_some_and(|link| link.stated < self.local.revision) {
            self.update(id, d);
        }
    }

    pub(super) fn refuse(&mut self, id: LinkId, refusal: Refusal, why: &str, d: &mut Decision<'_>) {
        d.mark(Mark::PeerRefused);
        self.end(id, EndReason::Refused(refusal), None, Some(why.to_owned()), d);
    }

    fn violated(&mut self, id: LinkId, found: &str, d: &mut Decision<'_>) {
        d.event(Event::ProtocolViolation { link: id, found: found.to_owned() });
        self.end_link(id, EndReason::Violated(found.to_owned()), d);
    }

    pub(super) fn end_link(&mut self, id: LinkId, reason: EndReason, d: &mut Decision<'_>) {
        self.end(id, reason, None, None, d);
    }

    /// Takes a link out of everything that names it. `stated` is a RID the link's state does not hold yet,
    /// `why` explains a refusal.
    fn end(
        &mut self,
        id: LinkId,
        reason: EndReason,
        stated: Option<Rid>,
        why: Option<String>,
        d: &mut Decision<'_>,
    ) {
        let Some(link) = self.links.remove(&id) else { return };
        d.links.insert(id);
        if let EndReason::Refused(refusal) = reason {
            d.out.push(PeerEffect::Send { link: id, message: Message::Refused(refusal) });
        }
        if !matches!(reason, EndReason::Down(_)) {
            d.out.push(PeerEffect::Close(id));
        }
        let rid = link.admission.hello().map(|hello| hello.rid.clone());
        if let Some(rid) = &rid {
            let peer = self.peers.entry(rid.clone()).or_default();
            peer.held.remove(&id);
            if peer.candidate == Some(id) {
                peer.candidate = None;
            }
            if peer.route == Some(id)
                && let Some(ready) = link.admission.ready()
            {
                peer.route = None;
                let (rid, lifecycle) = (rid.clone(), ready.hello.lifecycle);
                d.out.push(PeerEffect::PeerLost { rid, lifecycle, link: id, reason: reason.clone() });
            }
            d.touch(rid, reason.to_string());
        }
        let own = link.dial.and_then(|dial| self.dials.get(&dial)).cloned();
        if link.admission.ready().is_none() {
            let named = own.as_ref().and_then(|key| self.intents.get(key)?.peer().cloned());
            let known = rid.clone().or(stated).or(named);
            if let Some(error) = attempt_error(&reason, why)
                && (known.is_some() || link.dial.is_some())
            {
                self.report(known.as_ref(), error, d);
            }
        }
        self.tell_intents(id, own, rid.as_ref(), &reason, d);
    }

    /// The intents that stood on a link which ended.
    fn tell_intents(
        &mut self,
        id: LinkId,
        own: Option<IntentKey>,
        rid: Option<&Rid>,
        reason: &EndReason,
        d: &mut Decision<'_>,
    ) {
        let named = rid.into_iter().flat_map(|rid| self.intents_of(rid).map(|(key, _)| key.clone()));
        let keys: BTreeSet<IntentKey> = own.into_iter().chain(named).collect();
        for key in keys {
            match self.intents.get(&key).map(|intent| intent.state) {
                Some(IntentState::Dialling { link: Some(link), .. }) if link == id => match reason {
                    EndReason::Refused(Refusal::NotRequired)
                    | EndReason::RefusedByPeer(Refusal::NotRequired) => {
                        self.step_intent(&key, IntentEvent::PairNotRequired, d);
                    }
                    reason => self.attempt_refused(&key, &reason.to_string(), d),
                },
                Some(IntentState::Linked { link, .. }) if link == id => {
                    let redial = self.redial_at(&key, 0, d);
                    self.step_intent(&key, IntentEvent::Lost { redial }, d);
                }
                _ => {}
            }
        }
    }

    /// A handshake with this RID showed that the pair needs no connection (NODE-76).
    fn not_required(&mut self, rid: &Rid, d: &mut Decision<'_>) {
        let keys: Vec<_> = self.intents_of(rid).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.step_intent(&key, IntentEvent::PairNotRequired, d);
        }
    }

    /// Ends connections of lifecycles that the listing shows to be over: their RID is claimed anew.
    pub(super) fn end_returned(&mut self, present: &BTreeSet<Rid>, d: &mut Decision<'_>) {
        let mut stale = Vec::new();
        for peer in present.iter().filter_map(|rid| self.peers.get(rid)) {
            let listed = peer.listed.as_ref().map(|listed| listed.lifecycle);
            for link in [peer.route, peer.candidate].into_iter().flatten() {
                let hello = self.links.get(&link).and_then(|link| link.admission.hello());
                if hello.is_some_and(|hello| Some(hello.lifecycle) != listed) {
                    stale.push(link);
                }
            }
        }
        for link in stale {
            self.end_link(link, EndReason::Returned, d);
        }
    }

    pub(super) fn unready_links(&self) -> impl Iterator<Item = LinkId> {
        self.links.iter().filter(|(_, link)| link.admission.ready().is_none()).map(|(id, _)| *id)
    }
}

/// The typed error of an attempt that ended so; `None` where it is no failure.
fn attempt_error(reason: &EndReason, why: Option<String>) -> Option<Error> {
    let kind = match reason {
        EndReason::Refused(refusal) | EndReason::RefusedByPeer(refusal) => match refusal {
            Refusal::NotRequired | Refusal::Duplicate => return None,
            Refusal::NotReady | Refusal::Held => ErrorKind::Unavailable,
            Refusal::ShuttingDown => ErrorKind::ShuttingDown,
            Refusal::Incompatible => ErrorKind::ProtocolError,
            Refusal::WrongMesh | Refusal::TrustProfile | Refusal::OwnRid | Refusal::Unexpected => {
                ErrorKind::Rejected
            }
        },
        EndReason::Violated(_) => ErrorKind::ProtocolError,
        EndReason::Down(_) | EndReason::Silent | EndReason::HandshakeTimedOut => ErrorKind::Unavailable,
        EndReason::Returned | EndReason::IntentRemoved | EndReason::HostClosed => return None,
    };
    let text = match why {
        Some(why) => format!("{reason}: {why}"),
        None => reason.to_string(),
    };
    Some(Error::new(kind, "connect", text))
}
