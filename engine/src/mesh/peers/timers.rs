//! Deadlines: what fires, and the ones each state calls for.

use super::{Decision, EndReason, PeerEffect, PeerTimer, Peers};
use crate::link::LinkId;
use crate::mark::Mark;
use crate::mesh::admission::{Admission, AdmissionEvent};
use crate::mesh::intent::{IntentKey, IntentState};
use crate::model::Instant;
use crate::wire::Message;

impl Peers {
    pub(super) fn timer_fired(&mut self, timer: PeerTimer, d: &mut Decision<'_>) {
        // A deadline that was moved or cancelled while it fired means nothing.
        if self.timers.get(&timer).is_none_or(|at| *at > d.now) {
            return;
        }
        self.timers.remove(&timer);
        match timer {
            PeerTimer::Redial(key) => {
                d.intents.insert(key.clone());
                self.dial(&key, d);
            }
            PeerTimer::Handshake(id) => self.step_link(id, AdmissionEvent::TimedOut, d),
            PeerTimer::Probe(id) => {
                d.links.insert(id);
                if let Some(Admission::Ready(link)) = self.links.get_mut(&id).map(|link| &mut link.admission)
                {
                    let probe = link.liveness.probe(d.now, d.entropy);
                    d.out.push(PeerEffect::Send { link: id, message: Message::Probe(probe) });
                }
            }
            PeerTimer::Dead(id) => {
                d.mark(Mark::PeerDead);
                self.end_link(id, EndReason::Silent, d);
            }
        }
    }

    /// Sets and cancels the deadlines of everything this decision changed.
    pub(super) fn sync_timers(&mut self, d: &mut Decision<'_>) {
        for id in std::mem::take(&mut d.links) {
            let due = self.link_timers(id);
            for timer in [PeerTimer::Handshake(id), PeerTimer::Probe(id), PeerTimer::Dead(id)] {
                let at = due.iter().find(|(wanted, _)| *wanted == timer).map(|(_, at)| *at);
                self.sync_timer(timer, at, d);
            }
        }
        for key in std::mem::take(&mut d.intents) {
            let at = self.redial_timer(&key);
            self.sync_timer(PeerTimer::Redial(key), at, d);
        }
    }

    fn sync_timer(&mut self, timer: PeerTimer, at: Option<Instant>, d: &mut Decision<'_>) {
        match at {
            Some(at) => {
                if self.timers.insert(timer.clone(), at) != Some(at) {
                    d.out.push(PeerEffect::SetTimer { timer, at });
                }
            }
            None => {
                if self.timers.remove(&timer).is_some() {
                    d.out.push(PeerEffect::CancelTimer(timer));
                }
            }
        }
    }

    /// The deadlines a link's state calls for.
    pub(super) fn link_timers(&self, id: LinkId) -> Vec<(PeerTimer, Instant)> {
        match self.links.get(&id).map(|link| (&link.admission, link.handshake_by)) {
            None => Vec::new(),
            Some((Admission::Ready(ready), _)) => vec![
                (PeerTimer::Probe(id), ready.liveness.probe_at),
                (PeerTimer::Dead(id), ready.liveness.dead_at),
            ],
            Some((_, at)) => vec![(PeerTimer::Handshake(id), at)],
        }
    }

    /// The deadline an intent's state calls for.
    pub(super) fn redial_timer(&self, key: &IntentKey) -> Option<Instant> {
        match self.intents.get(key)?.state {
            IntentState::Idle { redial } => redial,
            _ => None,
        }
    }
}
