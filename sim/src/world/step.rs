//! One step of one host: an input or a deadline, what follows from it, and the checks after it.

use spotmesh::host::Host;
use spotmesh::input::Input;
use spotmesh::link::TransportEvent;
use spotmesh::output::Output;
use spotmesh::wire;

use super::seat::{Effect, Trap};
use super::{Happening, Held, Point, World};
use crate::action::CrashPoint;
use crate::net::Notice;
use crate::place::{RunOf, Seat};

impl World {
    /// Counts a passed point down; the trap whose turn it is.
    pub(super) fn spring(&mut self, run: RunOf, fits: impl Fn(&CrashPoint) -> bool) -> Option<Trap> {
        let traps = &mut self.seat_mut(run.seat).traps;
        let at = traps.iter().position(|trap| fits(&trap.point))?;
        if traps[at].skip > 0 {
            traps[at].skip -= 1;
            return None;
        }
        Some(traps.remove(at))
    }

    /// How many outputs are still carried out where a crash waits at this point.
    pub(super) fn crash_at(&mut self, run: RunOf, point: &Point<'_>) -> Option<(u32, Effect)> {
        if self.seat(run.seat).traps.is_empty() {
            return None;
        }
        let name = match point {
            Point::Received(TransportEvent::Received { record, .. }) => {
                wire::decode(record).map_or("", |(message, _)| message.name())
            }
            Point::Answered(name) => name,
            _ => "",
        };
        let trap = self.spring(run, |armed| match (armed, point) {
            (CrashPoint::Answered(op, _), Point::Answered(_)) => op == name,
            (CrashPoint::TurnEnded(_), Point::TurnEnded) => true,
            (CrashPoint::Received(wanted, _), Point::Received(_)) => wanted == name,
            _ => false,
        })?;
        match trap.point {
            CrashPoint::Answered(_, keep) | CrashPoint::TurnEnded(keep) | CrashPoint::Received(_, keep) => {
                Some((keep, trap.effect))
            }
            CrashPoint::Applied(_) | CrashPoint::Called(_) => None,
        }
    }

    /// A trap does its work.
    pub(super) fn strike(&mut self, run: RunOf, effect: Effect, place: &str) {
        match effect {
            Effect::Crash(restart_ms) => {
                self.kill(run, restart_ms, Notice::After(1), true, &format!("crashes {place}"));
            }
            Effect::Pause(for_ms) => self.pause(run.seat, for_ms),
        }
    }

    /// Gives an input to a process, or keeps it while the process is paused.
    pub(super) fn feed(&mut self, run: RunOf, input: Input, point: Point<'_>) {
        if !self.is_current(run) {
            return;
        }
        if self.seat(run.seat).paused.is_some() {
            self.seat_mut(run.seat).held.push(Held::Input(input));
            return;
        }
        if let Input::Transport(event) = &input
            && !self.net.admit(run, event)
        {
            return;
        }
        let crash = match &input {
            Input::Transport(event @ TransportEvent::Received { .. }) => {
                self.crash_at(run, &Point::Received(event))
            }
            _ => self.crash_at(run, &point),
        };
        let now = self.agenda.now();
        self.inputs += 1;
        self.digest.add(&(now, run, &input));
        if let Some(trace) = &mut self.trace {
            trace.input(now, run, &input);
        }
        let local = self.seat(run.seat).clock.read(now);
        if let Some(host) = &mut self.seat_mut(run.seat).host {
            host.handle(input, local);
        }
        self.settle(run, crash);
    }

    pub(super) fn wake(&mut self, run: RunOf, epoch: u64) {
        let now = self.agenda.now();
        let seat = self.seat_mut(run.seat);
        if seat.run != run.run || seat.wakes != epoch || !seat.is_active() {
            return;
        }
        seat.wake = None;
        seat.spins = if seat.spins.0 == now { (now, seat.spins.1 + 1) } else { (now, 1) };
        if seat.spins.1 > 100 {
            let due = seat.host().and_then(Host::poll_timeout);
            let text = format!("{run} asks to be woken again and again at one instant: {due:?}");
            self.oracles.verdicts.report("spin", now, text);
            return;
        }
        self.fire(run);
    }

    pub(super) fn fire(&mut self, run: RunOf) {
        let now = self.agenda.now();
        self.inputs += 1;
        self.digest.add(&(now, run));
        let local = self.seat(run.seat).clock.read(now);
        if let Some(trace) = &mut self.trace {
            let due = self.seats[usize::from(run.seat.0)].host().and_then(Host::poll_timeout);
            trace.wake(now, run, due);
        }
        if let Some(host) = &mut self.seat_mut(run.seat).host {
            host.handle_timeout(local);
        }
        self.settle(run, None);
    }

    /// Carries out what a host wants done, checks it, and schedules its next deadline.
    pub(super) fn settle(&mut self, run: RunOf, mut crash: Option<(u32, Effect)>) {
        let now = self.agenda.now();
        while let Some(host) = &mut self.seats[usize::from(run.seat.0)].host {
            let Some(output) = host.poll_output() else { break };
            if let Some((left, effect @ Effect::Crash(_))) = &mut crash {
                if *left == 0 {
                    let effect = *effect;
                    self.strike(run, effect, "between its outputs");
                    return;
                }
                *left -= 1;
            }
            self.digest.add(&(now, run, &output));
            if let Some(trace) = &mut self.trace {
                trace.output(now, run, &output);
            }
            let called = match &output {
                Output::CallStore { request, .. } => Some(request.name()),
                _ => None,
            };
            self.carry(run, output);
            if let Some(name) = called
                && !self.seat(run.seat).traps.is_empty()
                && let Some(trap) = self.spring(run, |point| *point == CrashPoint::Called(name.to_owned()))
            {
                if matches!(trap.effect, Effect::Crash(_)) {
                    self.strike(run, trap.effect, "after a call");
                    return;
                }
                crash = Some((u32::MAX, trap.effect));
            }
        }
        if let Some((_, effect)) = crash {
            self.strike(run, effect, "after its outputs");
        }
        if !self.is_current(run) {
            return;
        }
        if let Some(host) = self.seat(run.seat).host()
            && let Err(violation) = host.check_invariants()
        {
            self.oracles.verdicts.report("invariant", now, format!("{run}: {violation}"));
        }
        self.schedule_wake(run.seat);
    }

    pub(super) fn schedule_wake(&mut self, seat: Seat) {
        let now = self.agenda.now();
        let state = self.seat_mut(seat);
        let due = state.host().and_then(Host::poll_timeout).map(|(at, _)| state.clock.when(at).max(now));
        if state.wake == due && due.is_some() {
            return;
        }
        state.wakes += 1;
        state.wake = due;
        let (run, epoch) = (state.current(), state.wakes);
        if let Some(at) = due {
            self.agenda.at(at, Happening::Wake(run, epoch));
        }
    }
}
