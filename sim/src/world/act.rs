//! Actions of the list, and the calls applications make.

use std::time::Duration;

use bytes::Bytes;
use spotmesh::input::{ActorCall, Command, CreateActor, CreateMode, Input, TurnId};
use spotmesh::model::{ActorId, MeshName, ObjectKey, PacketName, StableType, Weight};
use spotmesh::wire::{Metadata, PayloadCodec};

use super::seat::{Effect, Trap};
use super::{Happening, Held, Point, World};
use crate::action::{Action, Run};
use crate::agenda::{Nanos, millis};
use crate::clock::RATE_ONE;
use crate::net::Notice;
use crate::oracle::calls::{Asked, Call};
use crate::place::{RunOf, Seat};
use crate::script::{self, HandlerScript, Nested, Uid};

/// Whether some clock of the run does not go with the world's.
pub(super) fn skews_clocks(run: &Run) -> bool {
    run.cluster.hosts.iter().any(|host| host.clock_rate != RATE_ONE)
        || run
            .actions
            .iter()
            .any(|timed| matches!(timed.action, Action::ClockRate { .. } | Action::ClockJump { .. }))
}

/// A call to make, with what its answer is judged by.
pub(super) struct Making {
    pub asked: Asked,
    pub command: Command,
    pub timeout_ms: u32,
    pub from: Option<TurnId>,
}

impl World {
    pub(super) fn act(&mut self, index: usize) {
        let run = std::sync::Arc::clone(&self.run);
        let action = &run.actions[index].action;
        let now = self.agenda.now();
        if let Some(seat) = caller(action) {
            let state = self.seat_mut(seat);
            if state.paused.is_some() {
                state.held.push(Held::Act(index));
                return;
            }
            if state.host.is_none() {
                self.skipped += 1;
                return;
            }
        }
        if let Some(trace) = &mut self.trace {
            trace.action(now, &format!("{action:?}"));
        }
        self.perform(action);
    }

    /// Does one action now.
    pub fn perform(&mut self, action: &Action) {
        match action {
            Action::Create { .. }
            | Action::Find { .. }
            | Action::Message { .. }
            | Action::Weight { .. }
            | Action::Shutdown { .. } => {
                self.call_of(action);
            }
            _ => self.fault(action),
        }
    }

    /// Makes the call of an action; its number in the run, `None` where nobody runs who could make it.
    pub fn call_of(&mut self, action: &Action) -> Option<Uid> {
        let seat = caller(action)?;
        if !self.seat(seat).is_active() {
            return None;
        }
        let uid = self.uid();
        let run = self.seat(seat).current();
        let (making, cancel_ms) = match action {
            Action::Create { actor, stable_type, exclusive, mesh, timeout_ms, script, cancel_ms, .. } => {
                let mut request = script::encode(uid, script).to_vec();
                request.resize(request.len() + script.padding as usize, 0);
                let command = Command::CreateActor(CreateActor {
                    id: actor_id(actor),
                    stable_type: legal(StableType::new(stable_type)),
                    mode: if *exclusive { CreateMode::Create } else { CreateMode::GetOrCreate },
                    mesh: mesh.as_ref().map(|mesh| legal(MeshName::new(mesh))),
                    request: Bytes::from(request),
                    timeout: ms(*timeout_ms),
                });
                let asked = Asked::Create {
                    key: ObjectKey::Actor(actor_id(actor)),
                    stable_type: stable_type.clone(),
                    exclusive: *exclusive,
                    verdict: script.verdict,
                };
                (Making { asked, command, timeout_ms: *timeout_ms, from: None }, *cancel_ms)
            }
            Action::Find { actor, timeout_ms, .. } => {
                let command = Command::FindActor { id: actor_id(actor), timeout: ms(*timeout_ms) };
                let asked = Asked::Find { key: ObjectKey::Actor(actor_id(actor)) };
                (Making { asked, command, timeout_ms: *timeout_ms, from: None }, None)
            }
            Action::Message { actor, request, timeout_ms, script, cancel_ms, .. } => {
                let making = message(uid, actor, *request, *timeout_ms, script, None);
                (making, *cancel_ms)
            }
            Action::Weight { weight, .. } => {
                let weight = Weight::new(i64::from(*weight)).unwrap_or_default();
                let command = Command::SetPlacementWeight { mesh: None, weight };
                (Making { asked: Asked::Weight, command, timeout_ms: 60_000, from: None }, None)
            }
            Action::Shutdown { timeout_ms, restart_ms, .. } => {
                let now = self.agenda.now();
                let state = self.seat_mut(seat);
                state.restart_ms = *restart_ms;
                // A second Shutdown joins the first and its deadline (HOST-51).
                let command = Command::Shutdown { timeout: ms(*timeout_ms) };
                let own = state.clock.read(now) + ms(*timeout_ms);
                let until = state.draining.unwrap_or(own);
                state.draining = Some(until);
                let timeout_ms =
                    u32::try_from(until.since(state.clock.read(now)).as_millis()).unwrap_or(u32::MAX);
                self.calm = false;
                (Making { asked: Asked::Shutdown, command, timeout_ms, from: None }, None)
            }
            _ => return None,
        };
        self.call(run, uid, making);
        if let Some(cancel_ms) = cancel_ms {
            self.agenda.after(millis(u64::from(cancel_ms)), Happening::Cancel(run, uid));
        }
        Some(uid)
    }

    /// Submits a call to a process that runs.
    pub(super) fn call(&mut self, run: RunOf, uid: Uid, making: Making) -> spotmesh::input::CallId {
        let now = self.agenda.now();
        let Making { asked, command, timeout_ms, from } = making;
        let slack = match asked {
            // The last Store calls of a shutdown run into their own timeout.
            Asked::Shutdown => millis(5_000),
            _ => millis(100),
        };
        let state = self.seat_mut(run.seat);
        let id = state.call_id();
        let deadline = state.clock.read(now) + ms(timeout_ms);
        let overdue = state.clock.when(deadline) + slack;
        let at = self.stamp();
        self.oracles.calls.submitted(Call { uid, by: run, id, asked, at, deadline, end: None });
        self.agenda.at(overdue, Happening::Overdue(run, uid));
        self.feed(run, Input::Called { call: id, from, command }, Point::Other);
        id
    }

    pub(super) fn uid(&mut self) -> Uid {
        self.next_uid += 1;
        Uid(self.next_uid)
    }

    /// A handler calls: a request it waits for, or a send.
    pub(super) fn nested_call(&mut self, run: RunOf, turn: TurnId, own: ObjectKey, nested: &Nested) {
        let uid = self.uid();
        let script = HandlerScript::default();
        let from = nested.waits.then_some(own);
        let mut making = message(uid, &nested.to, nested.waits, nested.timeout_ms, &script, from);
        making.from = nested.waits.then_some(turn);
        if nested.waits {
            // Known before the call is made: its answer may come at once.
            let next = self.seat(run.seat).next_call + 1;
            self.seat_mut(run.seat).app.waiting.insert(spotmesh::input::CallId(next), turn);
        }
        self.call(run, uid, making);
    }

    /// A call that ought to have ended: it must have, unless its process could not run.
    pub(super) fn overdue(&mut self, run: RunOf, uid: Uid) {
        let Some(call) = self.oracles.calls.get(uid).filter(|call| call.end.is_none()) else { return };
        if !self.is_current(run) {
            return;
        }
        let now = self.agenda.now();
        let state = self.seat(run.seat);
        let slack = if call.asked == Asked::Shutdown { millis(5_000) } else { millis(100) };
        let due = state.clock.when(call.deadline) + slack;
        if state.paused.is_some() || state.resumed_at + millis(100) > now || due > now {
            let again = due.max(now + millis(200));
            self.agenda.at(again, Happening::Overdue(run, uid));
            return;
        }
        let text =
            format!("{run}: {uid:?} {:?} has no answer past its deadline {:?}", call.asked, call.deadline);
        self.oracles.verdicts.report("overdue", now, text);
    }

    fn fault(&mut self, action: &Action) {
        self.calm = false;
        let now = self.agenda.now();
        let until = |for_ms: &u32| now + millis(u64::from(*for_ms));
        match action {
            Action::Kill { host, restart_ms, notice, flush } => {
                let run = self.seat(*host).current();
                self.kill(run, *restart_ms, *notice, *flush, "is killed");
            }
            Action::Crash { host, point, skip, restart_ms } => {
                let effect = Effect::Crash(*restart_ms);
                self.seat_mut(*host).traps.push(Trap { point: point.clone(), skip: *skip, effect });
            }
            Action::PauseAt { host, point, skip, for_ms } => {
                let effect = Effect::Pause(*for_ms);
                self.seat_mut(*host).traps.push(Trap { point: point.clone(), skip: *skip, effect });
            }
            Action::Pause { host, for_ms } => self.pause(*host, *for_ms),
            Action::ClockRate { host, rate } => {
                self.seat_mut(*host).clock.set_rate(now, *rate);
                self.schedule_wake(*host);
            }
            Action::ClockJump { host, by_ms } => {
                self.seat_mut(*host).clock.jump(now, millis(u64::from(*by_ms)));
                self.schedule_wake(*host);
            }
            Action::Break { a, b, notice_a, notice_b } => {
                self.net.break_between(&mut self.agenda, *a, *b, *notice_a, *notice_b);
            }
            Action::BreakOneWay { from, to, notice } => {
                self.net.break_one_way(&mut self.agenda, *from, *to, *notice);
            }
            Action::Block { from, to, for_ms } => {
                self.net.block(&mut self.agenda, *from, *to, until(for_ms));
            }
            Action::Partition { group, for_ms, cut } => self.partition(group, until(for_ms), *cut),
            Action::Congest { from, to, for_ms } => {
                self.net.congest(&mut self.agenda, *from, *to, true);
                self.agenda.at(until(for_ms), Happening::Uncongest(*from, *to));
            }
            Action::StoreFault { host, op, fault, count } => {
                self.store.arm(*host, op.clone(), *fault, *count);
            }
            Action::StoreOutage { host, for_ms } => self.store.outage(*host, until(for_ms)),
            Action::StoreSlow { for_ms, delay_ms } => {
                self.store.slow(until(for_ms), millis(u64::from(*delay_ms)));
            }
            Action::DropHints { for_ms, resync } => {
                self.store.deafen(&mut self.agenda, until(for_ms), *resync);
            }
            _ => {}
        }
    }

    fn partition(&mut self, group: &[Seat], until: Nanos, cut: bool) {
        let all: Vec<Seat> = self.seats.iter().map(|state| state.seat).collect();
        for a in all.iter().filter(|seat| group.contains(seat)) {
            for b in all.iter().filter(|seat| !group.contains(seat)) {
                self.net.block(&mut self.agenda, *a, *b, until);
                self.net.block(&mut self.agenda, *b, *a, until);
                if cut {
                    self.net.break_between(&mut self.agenda, *a, *b, Notice::After(5), Notice::After(9));
                }
            }
        }
    }

    /// The host answered its Shutdown: the process ends.
    pub(super) fn shut_down(&mut self, run: RunOf) {
        let restart_ms = self.seat(run.seat).restart_ms;
        self.agenda.after(millis(1), Happening::Exit(run, restart_ms));
    }
}

fn caller(action: &Action) -> Option<Seat> {
    match action {
        Action::Create { host, .. }
        | Action::Find { host, .. }
        | Action::Message { host, .. }
        | Action::Weight { host, .. }
        | Action::Shutdown { host, .. } => Some(*host),
        _ => None,
    }
}

fn message(
    uid: Uid,
    to: &str,
    request: bool,
    timeout_ms: u32,
    script: &HandlerScript,
    from: Option<ObjectKey>,
) -> Making {
    let call = ActorCall {
        target: actor_id(to),
        packet: legal(PacketName::new("scripted")),
        version: 1,
        codec: PayloadCodec::Postcard,
        payload: script::encode(uid, script),
        metadata: Metadata::none(),
        timeout: ms(timeout_ms),
    };
    let key = ObjectKey::Actor(actor_id(to));
    let asked = Asked::Message { key, request, ending: script.ending, from };
    let command = if request { Command::RequestActor(call) } else { Command::SendToActor(call) };
    Making { asked, command, timeout_ms, from: None }
}

fn actor_id(id: &str) -> ActorId {
    legal(ActorId::new(id))
}

/// Names of plans are legal by construction, those of files are checked when the file is read.
fn legal<T>(value: Result<T, spotmesh::model::IllegalId>) -> T {
    value.unwrap_or_else(|error| panic!("illegal name in an action: {error}"))
}

fn ms(value: u32) -> Duration {
    Duration::from_millis(u64::from(value))
}
