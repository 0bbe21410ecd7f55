//! Processes begin, end, stop and go on.

use spotmesh::host::Host;

use super::{Happening, Held, Point, World, app};
use crate::agenda::millis;
use crate::draw::{noise, seed_bytes};
use crate::net::Notice;
use crate::place::{RunOf, Seat};

impl World {
    pub(super) fn start(&mut self, seat: Seat) {
        let now = self.agenda.now();
        let (seed, mutant) = (self.run.seed, self.mutant);
        let state = self.seat_mut(seat);
        state.starting = false;
        if state.host.is_some() {
            return;
        }
        state.run += 1;
        state.draining = None;
        state.started_at = now;
        let run = state.current();
        let bytes = seed_bytes(seed, 0x1057 << 40 | u64::from(seat.0) << 32 | u64::from(run.run));
        match Host::new(state.config.clone(), bytes, state.clock.read(now)) {
            Ok(mut host) => {
                if let Some(mutant) = mutant {
                    host.plant(mutant);
                }
                state.host = Some(host);
                self.note(run, "starts");
                self.settle(run, None);
            }
            Err(error) => self.oracles.verdicts.report("start", now, format!("{run}: {error}")),
        }
    }

    /// A process whose host has ended exits: it must have dropped every instance by then (HOST-58, HOST-75).
    pub(super) fn exit(&mut self, run: RunOf, restart_ms: Option<u32>) {
        if !self.is_current(run) {
            return;
        }
        if self.seat(run.seat).paused.is_some() {
            // What is stopped does not even exit.
            self.agenda.after(millis(50), Happening::Exit(run, restart_ms));
            return;
        }
        let now = self.agenda.now();
        if let Some((key, generation)) = self.oracles.turns.kept(run).next() {
            let text = format!("{run} ends with an instance of {key} generation {generation} still open");
            self.oracles.verdicts.report("leak", now, text);
        }
        self.kill(run, restart_ms, Notice::After(0), true, "exits");
    }

    /// Ends a process; another one starts `restart_ms` later, or when the faults end.
    pub(super) fn kill(
        &mut self,
        run: RunOf,
        restart_ms: Option<u32>,
        notice: Notice,
        flush: bool,
        why: &str,
    ) {
        if !self.is_current(run) {
            return;
        }
        self.note(run, why);
        let state = self.seat_mut(run.seat);
        let marks = state.host.take().map(|host| host.marks());
        state.paused = None;
        state.held.clear();
        state.wake = None;
        state.wakes += 1;
        state.app = app::App::default();
        if let Some(marks) = marks {
            self.marks |= marks;
        }
        self.net.process_died(&mut self.agenda, run, notice, flush);
        self.store.process_died(run);
        self.oracles.process_died(run);
        let restart = restart_ms.map(u64::from).or(self.healed.then_some(200));
        let state = self.seat_mut(run.seat);
        if let Some(ms) = restart
            && !state.starting
        {
            state.starting = true;
            self.agenda.after(millis(ms), Happening::Start(run.seat));
        }
    }

    pub(super) fn pause(&mut self, seat: Seat, for_ms: u32) {
        let state = self.seat_mut(seat);
        if state.host.is_none() || state.paused.is_some() {
            return;
        }
        state.pauses += 1;
        let epoch = state.pauses;
        state.paused = Some(epoch);
        let run = state.current();
        self.note(run, "pauses");
        self.agenda.after(millis(u64::from(for_ms)), Happening::Resume(seat, epoch));
    }

    /// A paused process goes on: everything that waited reaches it at once, deadlines first or last.
    pub(super) fn resume(&mut self, seat: Seat, epoch: u64) {
        let now = self.agenda.now();
        let state = self.seat_mut(seat);
        if state.paused != Some(epoch) {
            return;
        }
        state.paused = None;
        state.resumed_at = now;
        state.wake = None;
        let run = state.current();
        let held = std::mem::take(&mut state.held);
        self.note(run, "resumes");
        let timers_first = noise(self.run.seed, 0x9a05e, epoch << 8 | u64::from(seat.0)) & 1 == 0;
        let due = |world: &Self| {
            let state = world.seat(seat);
            let local = state.clock.read(now);
            state.is_active() && state.host().and_then(Host::poll_timeout).is_some_and(|(at, _)| at <= local)
        };
        if timers_first && due(self) {
            self.fire(run);
        }
        for held in held {
            match held {
                Held::Input(input) => self.feed(run, input, Point::Other),
                Held::TurnStep(turn, step) => self.turn_step(run, turn, step),
                Held::Act(index) => self.act(index),
            }
        }
        if due(self) {
            self.fire(run);
        }
        self.schedule_wake(seat);
    }
}
