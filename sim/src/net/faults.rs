//! What breaks links, holds directions, and ends processes.

use spotmesh::link::{LinkDownReason, TransportEvent};

use super::link::{Side, SideState};
use super::{NetEvent, Network, Notice};
use crate::agenda::{Agenda, Nanos, millis};
use crate::place::{RunOf, Seat};

impl Network {
    /// Breaks every link between two seats: what is in flight is lost, each side learns of it in its own way.
    pub fn break_between<E: From<NetEvent>>(
        &mut self,
        agenda: &mut Agenda<E>,
        a: Seat,
        b: Seat,
        notice_a: Notice,
        notice_b: Notice,
    ) {
        for link in self.links.values_mut() {
            let seats = [link.sides[0].end.run.seat, link.sides[1].end.run.seat];
            if seats != [a, b] && seats != [b, a] {
                continue;
            }
            link.cut(0);
            link.cut(1);
            for side in &link.sides {
                let notice = if side.end.run.seat == a { notice_a } else { notice_b };
                tell(agenda, side, notice);
            }
        }
    }

    /// Loses one direction for good: nothing arrives at `to` any more on the present links.
    pub fn break_one_way<E: From<NetEvent>>(
        &mut self,
        agenda: &mut Agenda<E>,
        from: Seat,
        to: Seat,
        notice: Notice,
    ) {
        for link in self.links.values_mut() {
            for side in 0..2 {
                let seats = [link.sides[side].end.run.seat, link.sides[1 - side].end.run.seat];
                if seats == [from, to] {
                    link.cut(side);
                    tell(agenda, &link.sides[side], notice);
                }
            }
        }
    }

    /// Holds everything from one seat to another until `until`; dials between them time out meanwhile.
    pub fn block<E: From<NetEvent>>(&mut self, agenda: &mut Agenda<E>, from: Seat, to: Seat, until: Nanos) {
        let held = self.blocked.entry((from, to)).or_default();
        *held = (*held).max(until);
        agenda.at(until, NetEvent::Unblock.into());
    }

    /// Opens every blocked direction.
    pub fn heal<E: From<NetEvent>>(&mut self, agenda: &mut Agenda<E>) {
        self.blocked.clear();
        self.unblock(agenda);
    }

    /// Tells `by` to hold application records for `to` back, or to go on.
    pub fn congest<E: From<NetEvent>>(&mut self, agenda: &mut Agenda<E>, by: Seat, to: Seat, on: bool) {
        for link in self.links.values_mut() {
            for side in 0..2 {
                let seats = [link.sides[side].end.run.seat, link.sides[1 - side].end.run.seat];
                if seats != [by, to] || link.sides[side].state != SideState::Up || link.congested[side] == on
                {
                    continue;
                }
                link.congested[side] = on;
                let id = link.sides[side].id;
                let event = if on {
                    TransportEvent::Congested { link: id }
                } else {
                    TransportEvent::Writable { link: id }
                };
                agenda.after(0, NetEvent::Report { to: link.sides[side].end.run, event }.into());
            }
        }
    }

    /// A process died: its listeners and dials are gone and its peers learn of it, or not (`Notice::Never`, a
    /// machine without power). `flush` lets what it had sent arrive first.
    pub fn process_died<E: From<NetEvent>>(
        &mut self,
        agenda: &mut Agenda<E>,
        run: RunOf,
        notice: Notice,
        flush: bool,
    ) {
        self.listeners.retain(|_, owner| owner.run != run);
        self.dials.retain(|(owner, _), _| *owner != run);
        for link in self.links.values_mut() {
            let Some(side) = link.sides.iter().position(|side| side.end.run == run) else { continue };
            link.sides[side].state = SideState::Gone;
            link.cut(1 - side);
            if !flush {
                link.cut(side);
            }
            let left = link.flows[side].last[0].max(link.flows[side].last[1]);
            let other = &link.sides[1 - side];
            match notice {
                Notice::After(ms) if other.state != SideState::Gone => {
                    let at = left.max(agenda.now() + millis(u64::from(ms)));
                    let reason = LinkDownReason::Broken("connection reset".to_owned());
                    let event = TransportEvent::LinkDown { link: other.id, reason };
                    agenda.at(at, NetEvent::Report { to: other.end.run, event }.into());
                }
                _ => {}
            }
        }
        self.links.retain(|_, link| !link.is_over());
    }
}

fn tell<E: From<NetEvent>>(agenda: &mut Agenda<E>, side: &Side, notice: Notice) {
    if side.state == SideState::Gone {
        return;
    }
    if let Notice::After(ms) = notice {
        let reason = LinkDownReason::Broken("connection reset".to_owned());
        let event = TransportEvent::LinkDown { link: side.id, reason };
        agenda.after(millis(u64::from(ms)), NetEvent::Report { to: side.end.run, event }.into());
    }
}
