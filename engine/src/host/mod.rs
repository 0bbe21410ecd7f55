//! `Host`: one process run, one owner lease, any number of MeshNodes. It routes inputs to the machines and
//! carries out what they want done; what to decide is theirs.

mod admit;
mod check;
mod creation;
mod lease;
mod mesh;
mod messages;
mod object;
mod publish;
mod remote;
mod shutdown;
mod startup;
mod store_calls;
mod view;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use serde::Serialize;

use crate::config::HostConfig;
use crate::creation::{Attempt, Coordinator, Recovery};
use crate::event::Event;
use crate::input::{CallId, Command, Input, InstanceId, StoreCallId, TurnId};
use crate::lease::OwnerLease;
use crate::link::{LinkId, NodeIndex, TransportEvent};
use crate::mark::{Mark, Marks};
use crate::mesh::{DialIds, DiscoveryTimer, PeerTimer};
use crate::model::{Entropy, Error, HostState, Instant, ObjectKey, OperationId, OwnerId, ReservationId};
use crate::output::{Answer, Output};
#[cfg(feature = "planted")]
use crate::planted::Mutant;
use crate::store::StoreEvent;
use crate::timers::Timers;

pub use check::Violation;
use messages::{MessageCall, Routes};
use object::{Objects, Running};
use shutdown::Shutdown;
use startup::Startup;
use store_calls::StoreUse;
pub use view::NodeView;

/// What a deadline of the host is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub(crate) enum TimerKey {
    Lease,
    StoreCall(StoreCallId),
    Startup,
    Discovery(NodeIndex, DiscoveryTimer),
    Peer(NodeIndex, PeerTimer),
    Create(OperationId),
    CreateBackoff(OperationId),
    Attempt(ReservationId),
    AttemptBackoff(ReservationId),
    Recovery,
    Call(CallId),
    Publish(NodeIndex),
    Reconcile,
    Shutdown,
    ShutdownStep,
}

/// When a host next wants to be woken, and why, for traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeoutReason(TimerKey);

impl fmt::Display for TimeoutReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// One host of a cluster: plain data, driven from outside.
///
/// Mutate once ([`Host::handle`] or [`Host::handle_timeout`]), then drain [`Host::poll_output`], then mutate
/// again. `now` never goes back.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Host {
    config: HostConfig,
    state: HostState,
    now: Instant,
    entropy: Entropy,
    outputs: VecDeque<Output>,
    timers: Timers<TimerKey>,
    marks: Marks,
    next_id: u64,
    store_calls: BTreeMap<StoreCallId, StoreUse>,
    lease: OwnerLease,
    startup: Startup,
    shutdown: Option<Shutdown>,
    nodes: Vec<mesh::Node>,
    links: BTreeMap<LinkId, NodeIndex>,
    dials: DialIds,
    objects: Objects,
    turns: BTreeMap<TurnId, Running>,
    coordinators: BTreeMap<OperationId, Coordinator>,
    create_calls: BTreeMap<CallId, OperationId>,
    watchers: BTreeMap<ObjectKey, BTreeSet<OperationId>>,
    attempts: BTreeMap<ReservationId, Attempt>,
    attempts_by_key: BTreeMap<ObjectKey, BTreeSet<ReservationId>>,
    /// Attempts refused at the pending-activation limit, with the time: they are never adopted.
    refused: BTreeMap<ReservationId, Instant>,
    held: BTreeMap<ObjectKey, VecDeque<object::Job>>,
    recovery: Recovery,
    calls: BTreeMap<CallId, MessageCall>,
    /// Deadlines of `calls`: apart from the other timers, since there is one a call.
    call_deadlines: BTreeSet<(Instant, CallId)>,
    routes: Routes,
    reconcile: lease::Reconcile,
    #[cfg(feature = "planted")]
    mutant: Option<Mutant>,
}

impl Host {
    /// Checks the configuration and begins to start: drain the outputs at once.
    ///
    /// # Errors
    /// `Configuration` (ERR-21); nothing has happened then (NODE-58 step 1).
    pub fn new(config: HostConfig, seed: [u8; 32], now: Instant) -> Result<Self, Error> {
        config.check()?;
        let mut entropy = Entropy::new(seed);
        let owner = OwnerId::random(&mut entropy);
        let nodes = config
            .nodes
            .iter()
            .enumerate()
            .map(|(index, node)| mesh::Node::new(index, node, &config, &mut entropy))
            .collect();
        let mut host = Self {
            state: HostState::Preparing,
            now,
            outputs: VecDeque::new(),
            timers: Timers::new(),
            marks: Marks::default(),
            next_id: 0,
            store_calls: BTreeMap::new(),
            lease: OwnerLease::new(owner, &config.settings),
            startup: Startup::new(),
            shutdown: None,
            nodes,
            links: BTreeMap::new(),
            dials: DialIds::default(),
            objects: Objects::default(),
            turns: BTreeMap::new(),
            coordinators: BTreeMap::new(),
            create_calls: BTreeMap::new(),
            watchers: BTreeMap::new(),
            attempts: BTreeMap::new(),
            attempts_by_key: BTreeMap::new(),
            refused: BTreeMap::new(),
            held: BTreeMap::new(),
            recovery: Recovery::new(config.settings.recovery_scan_interval),
            calls: BTreeMap::new(),
            call_deadlines: BTreeSet::new(),
            routes: Routes::default(),
            reconcile: lease::Reconcile::default(),
            entropy,
            config,
            #[cfg(feature = "planted")]
            mutant: None,
        };
        host.begin_startup();
        Ok(host)
    }

    /// Takes one input. Drain [`Self::poll_output`] before the next one.
    pub fn handle(&mut self, input: Input, now: Instant) {
        self.now = self.now.max(now);
        match input {
            Input::Transport(event) => self.transport_event(event),
            Input::StoreAnswered { call, result } => self.store_answered(call, result),
            Input::StoreHinted(event) => self.store_hinted(event),
            Input::TurnEnded { turn, end } => self.turn_ended(turn, end),
            Input::Called { call, from, command } => self.called(call, from, command),
            Input::CallDropped { call } => self.call_dropped(call),
        }
    }

    /// Fires every timer that is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = self.now.max(now);
        while let Some(key) = self.pop_due() {
            self.timer_fired(key);
        }
    }

    /// Takes the earliest deadline that is due; of two at one time that of a call is the later.
    fn pop_due(&mut self) -> Option<TimerKey> {
        let timer = self.timers.next().map(|(at, _)| at);
        match self.call_deadlines.first() {
            Some((at, call)) if *at <= self.now && timer.is_none_or(|timer| *at < timer) => {
                let call = *call;
                self.call_deadlines.pop_first();
                Some(TimerKey::Call(call))
            }
            _ => self.timers.pop_due(self.now),
        }
    }

    /// When [`Self::handle_timeout`] is due next.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let timer = self.timers.next().map(|(at, _)| at);
        let call = self.call_deadlines.first().map(|(at, _)| *at);
        match (timer, call) {
            (Some(timer), Some(call)) => Some(timer.min(call)),
            (timer, call) => timer.or(call),
        }
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Self::handle_timeout`] is due next, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, TimeoutReason)> {
        let at = self.next_timeout()?;
        let key = match (self.timers.next(), self.call_deadlines.first()) {
            (Some((timer, key)), _) if timer == at => key.clone(),
            (_, Some((_, call))) => TimerKey::Call(*call),
            (Some((_, key)), None) => key.clone(),
            (None, None) => return None,
        };
        Some((at, TimeoutReason(key)))
    }

    fn transport_event(&mut self, event: TransportEvent) {
        match event {
            TransportEvent::Bound { node, endpoint } => self.bound(node, Ok(endpoint)),
            TransportEvent::BindFailed { node, reason } => self.bound(node, Err(reason)),
            TransportEvent::LinkUp { node, link, dial, proven } => self.link_up(node, link, dial, proven),
            TransportEvent::LinkDown { link, reason } => self.link_down(link, reason),
            TransportEvent::DialFailed { dial, reason } => self.dial_failed(dial, reason),
            TransportEvent::Received { link, lane, record } => self.received(link, lane, &record),
            TransportEvent::Congested { link } => self.congested(link),
            TransportEvent::Writable { link } => self.writable(link),
        }
    }

    fn timer_fired(&mut self, key: TimerKey) {
        match key {
            TimerKey::Lease => self.lease_timer(),
            TimerKey::StoreCall(call) => self.store_timed_out(call),
            TimerKey::Startup => self.startup_timer(),
            TimerKey::Discovery(node, timer) => self.discovery_timer(node, timer),
            TimerKey::Peer(node, timer) => self.peer_timer(node, timer),
            TimerKey::Create(operation) => self.create_deadline(operation),
            TimerKey::CreateBackoff(operation) => self.create_backoff(operation),
            TimerKey::Attempt(reservation) => self.attempt_deadline(reservation),
            TimerKey::AttemptBackoff(reservation) => self.attempt_backoff(reservation),
            TimerKey::Recovery => self.recovery_timer(),
            TimerKey::Call(call) => self.call_deadline(call),
            TimerKey::Publish(node) => self.publish(node),
            TimerKey::Reconcile => self.reconcile_page(None),
            TimerKey::Shutdown => self.shutdown_deadline(),
            TimerKey::ShutdownStep => self.shutdown_step(),
        }
    }

    fn store_hinted(&mut self, event: StoreEvent) {
        match event {
            StoreEvent::Descriptors => self.descriptors_hinted(),
            StoreEvent::Authority(key) => self.key_hinted(&key),
            StoreEvent::Resync => {
                // STORE-112, STORE-120: after a gap anything may have changed.
                self.routes.clear_cache();
                self.descriptors_hinted();
                let keys: Vec<_> = self.watchers.keys().cloned().collect();
                for key in keys {
                    self.key_hinted(&key);
                }
            }
        }
    }

    fn called(&mut self, call: CallId, from: Option<TurnId>, command: Command) {
        match command {
            Command::CreateActor(create) => self.create_called(call, create),
            Command::FindActor { id, timeout } => self.find_called(call, id, timeout),
            Command::SendToActor(message) => self.message_called(call, from, message, false),
            Command::RequestActor(message) => self.message_called(call, from, message, true),
            Command::SetPlacementWeight { mesh, weight } => self.weight_called(call, mesh.as_ref(), weight),
            Command::SetChannelWeight { channel, weight } => {
                self.channel_weight_called(call, &channel, weight);
            }
            Command::Shutdown { timeout } => self.shutdown_called(call, timeout),
        }
    }

    fn call_dropped(&mut self, call: CallId) {
        if let Some(operation) = self.create_calls.get(&call).copied() {
            self.create_dropped(operation);
        } else if self.calls.contains_key(&call) {
            self.message_dropped(call);
        } else {
            self.shutdown_dropped(call);
        }
    }

    fn set_state(&mut self, to: HostState) {
        if self.state != to {
            let from = std::mem::replace(&mut self.state, to);
            self.record(Event::HostState { from, to });
        }
    }

    fn record(&mut self, event: Event) {
        self.outputs.push_back(Output::Record(event));
    }

    fn mark(&mut self, mark: Mark) {
        self.marks.hit(mark);
    }

    fn violated(&mut self, what: String) {
        self.record(Event::Violation(what));
    }

    fn answer(&mut self, call: CallId, answer: Answer) {
        self.outputs.push_back(Output::Answer { call, answer });
    }

    /// A number for turns, instances and Store calls; never reused in a host run.
    fn fresh(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn fresh_turn(&mut self) -> TurnId {
        TurnId(self.fresh())
    }

    fn fresh_instance(&mut self) -> InstanceId {
        InstanceId(self.fresh())
    }

    #[cfg(feature = "planted")]
    fn planted(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}

/// Whether a mutant is planted; a constant `false` without the feature.
macro_rules! planted {
    ($host:expr, $mutant:ident) => {{
        #[cfg(feature = "planted")]
        let planted = $host.planted(crate::planted::Mutant::$mutant);
        #[cfg(not(feature = "planted"))]
        let planted = {
            let _ = &$host;
            false
        };
        planted
    }};
}
pub(crate) use planted;
