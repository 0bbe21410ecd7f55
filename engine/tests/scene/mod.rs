//! A stage for tests of whole hosts: several `Host`s and one Store driven by hand, in virtual time.
//!
//! Nothing happens by chance. Links are instantaneous unless held, Store calls are applied at once unless a rule
//! says otherwise, turns do what the first word of their request or payload says: `accept`, `decline`, `fail`,
//! `panic`, `oversize`, `hold` (until [`Scene::end_turn`]). After every step the hosts' invariants, the absence of
//! `Violation` events, `State::check` and CREATE-153 are asserted.
#![allow(dead_code, unused_imports)] // Each test file uses its own part of the stage.

mod act;
mod app;
mod look;
mod net;
mod spec;
mod store;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use spotmesh::event::Event;
use spotmesh::host::Host;
use spotmesh::input::{CallId, Input, InstanceId, TurnId};
use spotmesh::link::TransportEvent;
use spotmesh::model::{Instant, ObjectKey, StoreTime};
use spotmesh::output::{Answer, Output, Turn};
use spotmesh::store::WatchScope;
use spotmesh_store_memory::State;

pub use act::{Call, TIMEOUT};
pub use app::StartedTurn;
pub use look::key;
use net::Network;
pub use net::Sent;
pub use spec::{HostSpec, client, server};
pub use store::{HeldCall, Policy, StoreUse};

/// Store time at the start of every scene.
const STORE_EPOCH: i64 = 1_000_000_000;

/// One process, or the gap its end left.
pub struct Seat {
    spec: HostSpec,
    host: Option<Host>,
    run: u32,
    paused: bool,
    waiting: Vec<Input>,
    watches: Vec<WatchScope>,
    running: BTreeMap<TurnId, Turn>,
    next_call: u64,
}

/// What is under way between the parts of the scene.
enum Happening {
    Input(usize, u32, Input),
    Output(usize, u32, Output),
}

/// The stage.
pub struct Scene {
    now: Instant,
    seats: Vec<Seat>,
    state: State,
    queue: VecDeque<Happening>,
    net: Network,
    store: store::StoreSide,
    hints: bool,
    answers: BTreeMap<(usize, CallId), Answer>,
    dropped_calls: Vec<(usize, CallId)>,
    events: Vec<(usize, Event)>,
    turns: Vec<StartedTurn>,
    abandoned: Vec<(usize, TurnId)>,
    disposed: Vec<(usize, InstanceId)>,
    keys: Vec<ObjectKey>,
    orphans: BTreeMap<ObjectKey, Instant>,
    died: BTreeMap<(usize, u32), Instant>,
}

impl Scene {
    /// Hosts in this order, started and connected.
    pub fn new(hosts: Vec<HostSpec>) -> Self {
        let mut scene = Self {
            now: Instant::from_nanos(1_000_000_000),
            seats: Vec::new(),
            state: State::new(),
            queue: VecDeque::new(),
            net: Network::default(),
            store: store::StoreSide::default(),
            hints: true,
            answers: BTreeMap::new(),
            dropped_calls: Vec::new(),
            events: Vec::new(),
            turns: Vec::new(),
            abandoned: Vec::new(),
            disposed: Vec::new(),
            keys: Vec::new(),
            orphans: BTreeMap::new(),
            died: BTreeMap::new(),
        };
        for spec in hosts {
            scene.add_host(spec);
        }
        // Discovery polls once a second; everybody sees everybody after two.
        scene.advance(Duration::from_secs(3));
        scene
    }

    /// One more host; it starts at once. Returns its number.
    pub fn add_host(&mut self, spec: HostSpec) -> usize {
        self.seats.push(Seat {
            spec,
            host: None,
            run: 0,
            paused: false,
            waiting: Vec::new(),
            watches: Vec::new(),
            running: BTreeMap::new(),
            next_call: 0,
        });
        let at = self.seats.len() - 1;
        self.start(at);
        at
    }

    /// Starts a process on a seat that has none.
    pub fn start(&mut self, at: usize) {
        let seat = &mut self.seats[at];
        assert!(seat.host.is_none(), "host {at} runs already");
        seat.run += 1;
        let mut seed = [7; 32];
        (seed[0], seed[1]) = (at as u8, seat.run as u8);
        let host = Host::new(seat.spec.config(), seed, self.now).expect("a legal configuration");
        seat.host = Some(host);
        self.drain(at);
        self.settle();
    }

    /// Ends a process without warning: its links break, its Store calls find nobody, its turns vanish.
    pub fn kill(&mut self, at: usize) {
        let run = self.seats[at].run;
        let seat = &mut self.seats[at];
        assert!(seat.host.take().is_some(), "host {at} is dead already");
        seat.paused = false;
        seat.waiting.clear();
        seat.watches.clear();
        seat.running.clear();
        self.died.insert((at, run), self.now);
        self.store.process_died(at);
        for (to, event) in self.net.process_died(at) {
            self.tell(to, Input::Transport(event));
        }
        self.settle();
    }

    /// Stops a process: nothing reaches it, none of its timers fire.
    pub fn pause(&mut self, at: usize) {
        assert!(self.seats[at].host.is_some());
        self.seats[at].paused = true;
    }

    /// Lets a paused process go on: what waited reaches it, in order, then its deadlines.
    pub fn resume(&mut self, at: usize) {
        self.seats[at].paused = false;
        for input in std::mem::take(&mut self.seats[at].waiting) {
            self.tell(at, input);
        }
        self.settle();
        self.advance(Duration::ZERO);
    }

    /// Lets so much time pass. Every deadline on the way fires at its time.
    pub fn advance(&mut self, by: Duration) {
        let until = self.now + by;
        self.settle();
        let mut spins = 0;
        while let Some((at, due)) = self.next_due().filter(|(_, due)| *due <= until) {
            spins = if due > self.now { 0 } else { spins + 1 };
            assert!(spins < 10_000, "time stands still at {:?}", self.now);
            self.now = self.now.max(due);
            self.release_delayed();
            if let Some(at) = at {
                let now = self.now;
                let host = self.seats[at].host.as_mut().expect("only living hosts have deadlines");
                host.handle_timeout(now);
                self.drain(at);
            }
            self.settle();
        }
        self.now = until;
        self.check();
    }

    /// Advances in small steps until `done`, at most for `limit`.
    #[track_caller]
    pub fn advance_until(&mut self, limit: Duration, what: &str, done: impl Fn(&mut Self) -> bool) {
        let until = self.now + limit;
        while !done(self) {
            assert!(self.now < until, "not within {limit:?}: {what}");
            self.advance(Duration::from_millis(10));
        }
    }

    fn next_due(&self) -> Option<(Option<usize>, Instant)> {
        let hosts = self.seats.iter().enumerate().filter(|(_, seat)| !seat.paused);
        let timers = hosts
            .filter_map(|(at, seat)| Some((Some(at), seat.host.as_ref()?.poll_timeout()?.0)))
            .chain(self.store.next_delayed().map(|due| (None, due)));
        timers.min_by_key(|(at, due)| (*due, *at))
    }

    /// Store time now.
    pub fn store_now(&self) -> StoreTime {
        StoreTime::from_micros(STORE_EPOCH) + self.now.since(Instant::ZERO)
    }

    pub fn now(&self) -> Instant {
        self.now
    }

    /// Queues an input for a host's present process.
    fn tell(&mut self, at: usize, input: Input) {
        let run = self.seats[at].run;
        self.queue.push_back(Happening::Input(at, run, input));
    }

    /// Carries out what is under way until nothing is.
    fn settle(&mut self) {
        let mut steps = 0;
        while let Some(happening) = self.queue.pop_front() {
            steps += 1;
            assert!(steps < 1_000_000, "the scene never settles");
            match happening {
                Happening::Input(at, run, input) => {
                    let now = self.now;
                    let seat = &mut self.seats[at];
                    if seat.run != run {
                        continue;
                    }
                    if seat.paused {
                        seat.waiting.push(input);
                        continue;
                    }
                    let Some(host) = &mut seat.host else { continue };
                    if !self.net.admits(at, &input) {
                        continue;
                    }
                    host.handle(input, now);
                    self.drain(at);
                }
                Happening::Output(at, run, output) => {
                    if self.seats[at].run == run && self.seats[at].host.is_some() {
                        self.carry(at, output);
                    }
                }
            }
        }
        self.check();
    }

    fn drain(&mut self, at: usize) {
        let run = self.seats[at].run;
        let Some(host) = &mut self.seats[at].host else { return };
        let mut outputs = Vec::new();
        while let Some(output) = host.poll_output() {
            outputs.push(output);
        }
        host.check_invariants().unwrap_or_else(|violation| panic!("host {at}: {violation}"));
        self.queue.extend(outputs.into_iter().map(|output| Happening::Output(at, run, output)));
    }

    fn carry(&mut self, at: usize, output: Output) {
        let run = self.seats[at].run;
        match output {
            Output::Bind(node) => {
                let endpoint = self.net.bind(at, run, node);
                self.tell(at, Input::Transport(TransportEvent::Bound { node, endpoint }));
            }
            Output::Unbind(node) => self.net.unbind(at, node),
            Output::Dial { node, dial, target } => {
                for (to, event) in self.net.dial(at, node, dial, &target.endpoint) {
                    self.tell(to, Input::Transport(event));
                }
            }
            Output::DropDial(_) => {} // A dial ends at once, so there is never one to drop.
            Output::Send { link, lane, record } => {
                if let Some((to, event)) = self.net.send(at, link, lane, record) {
                    self.tell(to, Input::Transport(event));
                }
            }
            Output::CloseLink(link) => {
                if let Some((to, event)) = self.net.close(at, link) {
                    self.tell(to, Input::Transport(event));
                }
            }
            Output::CallStore { call, request, timeout: _ } => self.store_called(at, call, *request),
            Output::Watch(scope) => self.seats[at].watches.push(scope),
            Output::Unwatch(scope) => self.seats[at].watches.retain(|watched| *watched != scope),
            Output::StartTurn(turn) => self.turn_started(at, *turn),
            Output::AbandonTurn(turn) => {
                self.seats[at].running.remove(&turn);
                self.abandoned.push((at, turn));
            }
            Output::DropInstance(instance) => self.instance_dropped(at, instance),
            Output::Answer { call, answer } => {
                assert!(!self.dropped_calls.contains(&(at, call)), "host {at} answers a dropped {call:?}");
                let before = self.answers.insert((at, call), answer);
                assert!(before.is_none(), "host {at} answers {call:?} twice");
            }
            Output::Record(event) => {
                assert!(!matches!(event, Event::Violation(_)), "host {at}: {event:?}");
                self.events.push((at, event));
            }
        }
    }
}
