//! The stepped world: hosts, network, Store and scripted applications on one agenda.
//!
//! A world is plain data and `Clone`. It takes one event after the other, feeds it to the host it concerns,
//! carries out what the host wants done, and lets the oracles judge both. Nothing in it reads a clock, draws
//! from an unseeded source or iterates in an undefined order.

mod act;
mod app;
mod carry;
mod choose;
mod end;
mod heal;
mod life;
mod seat;
mod step;

use std::sync::Arc;

use spotmesh::input::{Input, TurnId};
use spotmesh::link::{NodeIndex, TransportEvent};
use spotmesh::mark::Marks;
use spotmesh::planted::Mutant;
use spotmesh::store::StoreRequest;

use crate::action::{CrashPoint, Run};
use crate::agenda::{Agenda, Nanos, micros, millis};
use crate::digest::Digest;
use crate::net::{NetEvent, Network};
use crate::oracle::{Oracles, Violation, calm};
use crate::place::{NodeOf, RunOf, Seat};
use crate::script::Uid;
use crate::store::{StoreHappening, StoreSide};
use crate::trace::Trace;
pub use choose::Choice;
use seat::Held;
pub use seat::SeatState;
use std::hash::Hasher as _;

/// One thing that happens.
#[derive(Debug, Clone)]
enum Happening {
    Net(NetEvent),
    Store(StoreHappening),
    /// A host's earliest deadline.
    Wake(RunOf, u64),
    /// A running turn goes on.
    TurnStep(RunOf, TurnId, u32),
    /// An action of the list.
    Act(usize),
    Resume(Seat, u64),
    Start(Seat),
    /// A process ends by itself; another one starts so many milliseconds later.
    Exit(RunOf, Option<u32>),
    /// A caller stops waiting.
    Cancel(RunOf, Uid),
    /// A call ought to have ended.
    Overdue(RunOf, Uid),
    Bound(RunOf, NodeIndex),
    Uncongest(Seat, Seat),
    Heal,
}

impl From<NetEvent> for Happening {
    fn from(event: NetEvent) -> Self {
        Self::Net(event)
    }
}

impl From<StoreHappening> for Happening {
    fn from(event: StoreHappening) -> Self {
        Self::Store(event)
    }
}

/// Where a process is in its work, for crashes at a precise point.
enum Point<'a> {
    Answered(&'static str),
    TurnEnded,
    Received(&'a TransportEvent),
    Other,
}

/// A simulated cluster.
#[derive(Debug, Clone)]
pub struct World {
    run: Arc<Run>,
    agenda: Agenda<Happening>,
    seats: Vec<SeatState>,
    net: Network,
    store: StoreSide,
    oracles: Oracles,
    digest: Digest,
    inputs: u64,
    marks: Marks,
    mutant: Option<Mutant>,
    next_uid: u64,
    healed: bool,
    /// Nothing but applications acted so far.
    calm: bool,
    /// Choices made by an exploration.
    chosen: u64,
    skipped: u64,
    trace: Option<Trace>,
}

impl World {
    /// The world of a run, at its start.
    ///
    /// # Errors
    /// Says which part of the run is not legal.
    pub fn new(run: Arc<Run>) -> Result<Self, String> {
        let mut seats = Vec::new();
        let mut agenda = Agenda::default();
        for (index, spec) in run.cluster.hosts.iter().enumerate() {
            let seat = Seat(u8::try_from(index).map_err(|_| "expected at most 255 hosts".to_owned())?);
            agenda.at(millis(spec.start_ms), Happening::Start(seat));
            seats.push(SeatState::new(seat, spec.clone(), &run.cluster.settings)?);
        }
        for (index, timed) in run.actions.iter().enumerate() {
            agenda.at(micros(timed.at_us), Happening::Act(index));
        }
        agenda.at(millis(run.chaos_ms), Happening::Heal);
        let mutant = match &run.plant {
            Some(name) => Some(Mutant::from_name(name).ok_or_else(|| format!("no mutant is called {name}"))?),
            None => None,
        };
        let mut oracles = Oracles::default();
        oracles.calls.skewed = act::skews_clocks(&run);
        Ok(Self {
            calm: calm::is_calm(&run),
            net: Network::new(run.cluster.network.clone(), run.seed),
            store: StoreSide::new(run.cluster.store.clone(), run.seed),
            run,
            agenda,
            seats,
            oracles,
            digest: Digest::default(),
            inputs: 0,
            marks: Marks::default(),
            mutant,
            next_uid: 0,
            healed: false,
            chosen: 0,
            skipped: 0,
            trace: None,
        })
    }

    /// Keeps a readable trace from now on.
    pub fn keep_trace(&mut self) {
        self.trace = Some(Trace::default());
    }

    /// The trace kept so far.
    #[must_use]
    pub fn trace(&self) -> Option<&Trace> {
        self.trace.as_ref()
    }

    /// World time, in nanoseconds.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.agenda.now()
    }

    /// Inputs and wake-ups given to hosts so far.
    #[must_use]
    pub fn inputs(&self) -> u64 {
        self.inputs
    }

    /// Running hash over every (time, host, input, output).
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.digest.finish()
    }

    /// What the oracles found.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        self.oracles.verdicts.found()
    }

    /// The oracles with all they remember.
    #[must_use]
    pub fn oracles(&self) -> &Oracles {
        &self.oracles
    }

    /// The seats.
    #[must_use]
    pub fn seats(&self) -> &[SeatState] {
        &self.seats
    }

    /// Actions that met no running process.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Marks reached by all processes, past and present.
    #[must_use]
    pub fn marks(&self) -> Marks {
        let mut marks = self.marks;
        for host in self.seats.iter().filter_map(SeatState::host) {
            marks |= host.marks();
        }
        marks
    }

    /// Lets things happen until `until`, or until an oracle objects.
    pub fn run_until(&mut self, until: Nanos) {
        while self.oracles.verdicts.is_clean() {
            let Some(happening) = self.agenda.next(until) else {
                self.agenda.advance(until);
                return;
            };
            self.happen(happening);
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Net(event) => self.net_event(event),
            Happening::Store(event) => self.store_event(event),
            Happening::Wake(run, epoch) => self.wake(run, epoch),
            Happening::TurnStep(run, turn, step) => self.turn_step(run, turn, step),
            Happening::Act(index) => self.act(index),
            Happening::Resume(seat, epoch) => self.resume(seat, epoch),
            Happening::Start(seat) => self.start(seat),
            Happening::Exit(run, restart_ms) => self.exit(run, restart_ms),
            Happening::Cancel(run, uid) => self.cancel(run, uid),
            Happening::Overdue(run, uid) => self.overdue(run, uid),
            Happening::Bound(run, node) => {
                if self.is_current(run) {
                    let endpoint = self.seat(run.seat).endpoint(node);
                    self.net.bind(NodeOf { run, node }, &endpoint);
                    self.feed(run, Input::Transport(TransportEvent::Bound { node, endpoint }), Point::Other);
                }
            }
            Happening::Uncongest(from, to) => self.net.congest(&mut self.agenda, from, to, false),
            Happening::Heal => self.heal(),
        }
    }

    fn net_event(&mut self, event: NetEvent) {
        let told = match event {
            NetEvent::Arrive { link, from, lane } => self.net.arrive(link, from, lane),
            NetEvent::DialEnds { by, dial } => {
                self.net.dial_ends(&mut self.agenda, by, dial);
                None
            }
            NetEvent::Report { to, event } => Some((to, event)),
            NetEvent::Unblock => {
                self.net.unblock(&mut self.agenda);
                None
            }
        };
        if let Some((to, event)) = told {
            self.feed(to, Input::Transport(event), Point::Other);
        }
    }

    fn store_event(&mut self, event: StoreHappening) {
        match event {
            StoreHappening::Apply(number) => self.store_applies(number),
            StoreHappening::Answer(number) => {
                let name = self.store.pending(number).map_or("", |(_, name)| name);
                if let Some((by, call, result)) = self.store.answer(number) {
                    self.feed(by, Input::StoreAnswered { call, result }, Point::Answered(name));
                }
            }
            StoreHappening::Hint { to, event } => {
                self.feed(to, Input::StoreHinted(event), Point::Other);
            }
        }
    }

    fn store_applies(&mut self, number: u64) {
        let now = self.stamp();
        let Some(applied) = self.store.apply(&mut self.agenda, number) else { return };
        if let Some(trace) = &mut self.trace {
            trace.store(now, &applied);
        }
        let oracles = &mut self.oracles;
        let verdicts = &mut oracles.verdicts;
        oracles.ownership.applied(verdicts, now, &applied);
        oracles.creation.applied(verdicts, now, &applied);
        let caller = &self.seats[usize::from(applied.by.seat.0)];
        let free = self.store.trouble_of(applied.by.seat).max(caller.resumed_at).max(caller.started_at);
        oracles.hosts.applied(verdicts, now, &applied, free);
        if let (StoreRequest::Reserve(reserve), Ok(_)) = (&applied.request, &applied.result)
            && let Some(target) = oracles.ownership.holder(reserve.target.lease)
        {
            let free =
                self.store.trouble_of(target.seat).max(self.seats[usize::from(target.seat.0)].resumed_at);
            oracles.hosts.reserved(verdicts, now, target, free, &reserve.key);
        }
        if let Some(key) = oracles.rows.applied(verdicts, now, &applied, &mut self.store) {
            oracles.creation.check_rows(verdicts, now, &key, &oracles.rows);
        }
        if applied.request.mutates()
            && applied.result.is_ok()
            && let Err(what) = self.store.check()
        {
            let text = format!("after {}: {what}", applied.request.name());
            self.oracles.verdicts.report("store", now, text);
        }
        let name = applied.request.name();
        if self.is_current(applied.by)
            && let Some(trap) =
                self.spring(applied.by, |point| *point == CrashPoint::Applied(name.to_owned()))
        {
            self.strike(applied.by, trap.effect, "before the answer");
        }
    }

    /// The present as oracles see it: later by a nanosecond after every choice of an exploration, in which
    /// time itself stands still.
    fn stamp(&self) -> Nanos {
        self.agenda.now() + self.chosen
    }

    fn is_current(&self, run: RunOf) -> bool {
        let state = self.seat(run.seat);
        state.run == run.run && state.host.is_some()
    }

    fn seat(&self, seat: Seat) -> &SeatState {
        &self.seats[usize::from(seat.0)]
    }

    fn seat_mut(&mut self, seat: Seat) -> &mut SeatState {
        &mut self.seats[usize::from(seat.0)]
    }

    fn note(&mut self, run: RunOf, what: &str) {
        let now = self.agenda.now();
        if let Some(trace) = &mut self.trace {
            trace.note(now, run, what);
        }
    }
}
