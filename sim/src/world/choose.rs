//! The world without time: which things can happen next, one of them happening, and a fingerprint of the state.
//!
//! Small scopes are explored exhaustively with this. Everything on its way may come next, except that lanes
//! keep their order and nothing arrives on a link before its `LinkUp`. Time passes only when a deadline fires.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash as _;

use spotmesh::link::TransportEvent;

use super::{Happening, World};
use crate::digest::Digest;
use crate::net::{NetEvent, Notice};
use crate::place::{RunOf, Seat};
use crate::store::StoreHappening;

/// Something that can happen next.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Choice {
    /// A pending event, by its sequence number.
    Event(u64),
    /// The earliest deadline of a host fires.
    Wake(Seat),
    /// An action of the list, by its place; each happens once.
    Act(usize),
    /// The answer of a Store call is lost, after the call applied or before.
    LoseAnswer {
        /// The pending application of the call.
        event: u64,
        /// The call.
        call: u64,
        /// Whether it is applied.
        applied: bool,
    },
    /// A process dies; the next one starts when the exploration ends.
    Kill(Seat),
    /// The links between two hosts break.
    Break(Seat, Seat),
}

impl World {
    /// Pending events that may come next.
    #[must_use]
    pub fn choices(&self) -> Vec<Choice> {
        let mut pending: Vec<(u64, &Happening)> =
            self.agenda.pending().map(|(_, seq, event)| (seq, event)).collect();
        pending.sort_unstable_by_key(|(seq, _)| *seq);
        let mut lanes = BTreeSet::new();
        let mut told = BTreeSet::new();
        let mut choices = Vec::new();
        for (seq, event) in &pending {
            let enabled = match event {
                Happening::Net(NetEvent::Arrive { link, from, lane }) => {
                    let first = lanes.insert((*link, *from, *lane));
                    first && !self.net.is_opening(*link, 1 - from) && !told.contains(&(*link, 1 - from))
                }
                Happening::Net(NetEvent::Report { to, event }) => {
                    self.may_report(*to, event, &lanes, &mut told)
                }
                Happening::Net(_) | Happening::Store(_) | Happening::TurnStep(..) | Happening::Bound(..) => {
                    true
                }
                _ => false,
            };
            if enabled {
                choices.push(Choice::Event(*seq));
            }
        }
        choices
    }

    /// Events of one side of a link come in order, and a `LinkDown` after what was on its way there.
    fn may_report(
        &self,
        to: RunOf,
        event: &TransportEvent,
        lanes: &BTreeSet<(u64, usize, usize)>,
        told: &mut BTreeSet<(u64, usize)>,
    ) -> bool {
        let link = match event {
            TransportEvent::LinkUp { link, .. } | TransportEvent::LinkDown { link, .. } => *link,
            _ => return true,
        };
        let Some((number, side)) = self.net.place_of(to, link) else { return true };
        let first = told.insert((number, side));
        let overtakes = matches!(event, TransportEvent::LinkDown { .. })
            && (lanes.contains(&(number, 1 - side, 0)) || lanes.contains(&(number, 1 - side, 1)));
        first && !overtakes
    }

    /// Hosts with a deadline.
    #[must_use]
    pub fn wakes(&self) -> Vec<Choice> {
        self.seats
            .iter()
            .filter(|state| state.is_active() && state.wake.is_some())
            .map(|state| Choice::Wake(state.seat))
            .collect()
    }

    /// Store calls whose answer can still be lost.
    #[must_use]
    pub fn losses(&self) -> Vec<Choice> {
        let mut losses = Vec::new();
        for (_, seq, event) in self.agenda.pending() {
            if let Happening::Store(StoreHappening::Apply(call)) = event
                && self.store.can_lose(*call)
            {
                losses.push(Choice::LoseAnswer { event: seq, call: *call, applied: true });
                losses.push(Choice::LoseAnswer { event: seq, call: *call, applied: false });
            }
        }
        losses.sort_unstable();
        losses
    }

    /// Lets one thing happen.
    pub fn choose(&mut self, choice: &Choice) {
        self.chosen += 1;
        self.calm &= matches!(choice, Choice::Event(_) | Choice::Act(_));
        match choice {
            Choice::Event(seq) => {
                if let Some((_, event)) = self.agenda.take(*seq) {
                    self.happen(event);
                }
            }
            Choice::Wake(seat) => {
                let state = self.seat(*seat);
                let (run, epoch, at) = (state.current(), state.wakes, state.wake.unwrap_or_default());
                self.agenda.overtake(at);
                self.wake(run, epoch);
            }
            Choice::Act(index) => {
                // Its number does not depend on what came first.
                self.next_uid = *index as u64;
                self.act(*index);
            }
            Choice::LoseAnswer { event, call, applied } => {
                self.store.lose(&mut self.agenda, *call, *applied);
                if !applied {
                    self.agenda.take(*event);
                }
            }
            Choice::Kill(seat) => {
                let run = self.seat(*seat).current();
                self.kill(run, None, Notice::After(0), true, "is killed");
            }
            Choice::Break(a, b) => {
                self.net.break_between(&mut self.agenda, *a, *b, Notice::After(0), Notice::After(0));
            }
        }
    }

    /// 128 bits that tell states apart: hosts, links, Store, applications and what oracles remember.
    #[must_use]
    pub fn fingerprint(&self) -> u128 {
        let mut digest = Digest::default();
        digest.add(&self.agenda.now());
        for state in &self.seats {
            digest.add(&(state.run, &state.host));
            state.app.digest(&mut digest);
        }
        self.net.digest(&mut digest);
        self.store.digest(&mut digest);
        let mut events = BTreeMap::new();
        for (_, _, event) in self.agenda.pending() {
            let mut one = Digest::default();
            match event {
                Happening::Net(NetEvent::Report { to, event }) => (1u8, to, event).hash(&mut one),
                Happening::Store(StoreHappening::Hint { to, event }) => (2u8, to, event).hash(&mut one),
                Happening::TurnStep(run, turn, step) => (3u8, run, turn, step).hash(&mut one),
                Happening::Bound(run, node) => (4u8, run, node).hash(&mut one),
                // Records, dials and Store calls were counted where they are kept.
                _ => continue,
            }
            *events.entry(one.wide()).or_insert(0u32) += 1;
        }
        digest.add(&events);
        self.oracles.digest(&mut digest);
        digest.wide()
    }
}
