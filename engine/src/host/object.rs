//! Objects this host owns: queue, gate and turns of an Entry Spot Actor (spec 01 §7).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use serde::Serialize;

use super::{Host, planted};
use crate::creation::Attempt;
use crate::event::Event;
use crate::input::{CallId, InstanceId, TurnEnd, TurnId};
use crate::link::{LinkId, NodeIndex};
use crate::mark::Mark;
use crate::model::limits::{LANE_BYTES_MAX, LANE_JOB_OVERHEAD, LANE_JOBS_MAX};
use crate::model::{
    AuthorityOwnerGeneration, Correlation, ErrorKind, Instant, ObjectGeneration, ObjectKey, PacketName,
    ReservationId, StableType,
};
use crate::output::{Output, Turn, Work};
use crate::wire::{Metadata, PayloadCodec};

/// Who learns how a job ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(super) enum Origin {
    /// A send: nobody. `Some` while a local submitter still waits for room (MODEL-59).
    Send(Option<CallId>),
    /// A request of this host.
    Local(CallId),
    /// A request that came on a link; the reply goes back on it (MODEL-112).
    Remote(LinkId, Correlation),
}

/// A message in an object's queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(super) struct Job {
    pub(super) origin: Origin,
    pub(super) packet: PacketName,
    pub(super) version: u16,
    pub(super) codec: PayloadCodec,
    pub(super) payload: Bytes,
    pub(super) metadata: Metadata,
    /// End of the caller's wait; past it the job is not started. `None` for an admitted send.
    pub(super) deadline: Option<Instant>,
}

impl Job {
    fn charge(&self) -> usize {
        self.payload.len() + LANE_JOB_OVERHEAD
    }
}

/// One Actor: a table entry while it is idle.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(super) struct Object {
    key: ObjectKey,
    stable_type: StableType,
    node: NodeIndex,
    instance: InstanceId,
    object_generation: ObjectGeneration,
    owner_generation: AuthorityOwnerGeneration,
    /// The turn that holds the gate and the claim on the queue's head.
    running: Option<TurnId>,
    /// Charge of the running job, zero without one.
    running_charge: usize,
    /// The application lane, allocated with the first job that has to wait.
    lane: Option<Box<Lane>>,
}

/// Accepted jobs, and submitters waiting for room behind them (MODEL-58, MODEL-59).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
struct Lane {
    jobs: VecDeque<Job>,
    waiting: VecDeque<Job>,
    /// Bytes and number of not-yet-finished jobs, the running one included.
    bytes: usize,
    unfinished: usize,
}

impl Object {
    pub(super) fn new(attempt: &Attempt, instance: InstanceId) -> Self {
        Self {
            key: attempt.fence.key.clone(),
            stable_type: attempt.stable_type.clone(),
            node: attempt.node,
            instance,
            object_generation: attempt.fence.object_generation,
            owner_generation: attempt.fence.owner_generation,
            running: None,
            running_charge: 0,
            lane: None,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.running.is_none() && self.lane.is_none()
    }
}

/// The objects of a host by key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
pub(super) struct Objects {
    by_key: BTreeMap<ObjectKey, Object>,
    /// Objects with a ready job that the lease did not allow to start.
    held_back: BTreeSet<ObjectKey>,
    /// Objects that are not idle.
    busy: usize,
}

impl Objects {
    pub(super) fn insert(&mut self, object: Object) {
        self.by_key.insert(object.key.clone(), object);
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Object> {
        self.by_key.get(key)
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Object> {
        self.by_key.values()
    }

    pub(super) fn incarnations(&self) -> Vec<(ObjectKey, ObjectGeneration)> {
        self.by_key.values().map(|object| (object.key.clone(), object.object_generation)).collect()
    }

    pub(super) fn all_idle(&self) -> bool {
        self.busy == 0
    }

    pub(super) fn busy(&self) -> usize {
        self.busy
    }
}

/// What a turn runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(super) enum Running {
    /// A create callback of this attempt.
    Create(ReservationId),
    /// A handler of this object.
    Message { key: ObjectKey, object_generation: ObjectGeneration, origin: Origin },
}

impl Host {
    /// Accepts a job, or makes it wait for room behind the lane (MODEL-59, MODEL-62).
    pub(super) fn enqueue(&mut self, key: &ObjectKey, mut job: Job) {
        let at_once = self.admits_work() && self.starts_at_once(&job);
        let Some(object) = self.objects.by_key.get_mut(key) else {
            return self.end_job(key, job, Err(ErrorKind::Unavailable));
        };
        if object.is_idle() {
            self.objects.busy += 1;
            if at_once {
                // An idle object needs no lane for its only job.
                return self.start_turn(key, job);
            }
        }
        let (running, charge) = (usize::from(object.running.is_some()), object.running_charge);
        let lane = object
            .lane
            .get_or_insert_with(|| Box::new(Lane { unfinished: running, bytes: charge, ..Lane::default() }));
        if !lane.waiting.is_empty()
            || lane.unfinished >= LANE_JOBS_MAX
            || (lane.unfinished > 0 && lane.bytes + job.charge() > LANE_BYTES_MAX)
        {
            lane.waiting.push_back(job);
            self.mark(Mark::LaneFull);
            return;
        }
        lane.unfinished += 1;
        lane.bytes += job.charge();
        let admitted = admit(&mut job);
        lane.jobs.push_back(job);
        if let Some(call) = admitted {
            self.send_admitted(call);
        }
        self.pump(key);
    }

    /// Whether a job for a free gate goes straight to its turn: nobody waits for its admission, and it is
    /// neither late nor given up.
    fn starts_at_once(&self, job: &Job) -> bool {
        let wanted = match &job.origin {
            Origin::Send(waiter) => waiter.is_none(),
            Origin::Local(call) => self.calls.contains_key(call),
            Origin::Remote(..) => true,
        };
        wanted && job.deadline.is_none_or(|deadline| deadline > self.now)
    }

    /// Starts the next job of an object whose gate is free.
    pub(super) fn pump(&mut self, key: &ObjectKey) {
        let admits = self.admits_work();
        let overlap = planted!(self, OverlapsTurns);
        let reverse = planted!(self, ReversesLane);
        loop {
            let Some(object) = self.objects.by_key.get_mut(key) else { return };
            if object.running.is_some() && !overlap {
                return;
            }
            let Some(lane) = &mut object.lane else { return };
            if !lane.jobs.is_empty() && !admits {
                self.objects.held_back.insert(key.clone());
                return self.mark(Mark::TurnHeldBack);
            }
            let next = if reverse { lane.jobs.pop_back() } else { lane.jobs.pop_front() };
            let Some(job) = next else {
                if lane.unfinished == 0 && lane.waiting.is_empty() {
                    object.lane = None;
                    if object.running.is_none() {
                        self.objects.busy -= 1;
                    }
                }
                return;
            };
            let late = job.deadline.is_some_and(|deadline| deadline <= self.now);
            let gone = matches!(&job.origin, Origin::Local(call) if !self.calls.contains_key(call));
            if late || gone {
                lane.unfinished -= 1;
                lane.bytes -= job.charge();
                self.mark(Mark::JobExpired);
                self.end_job(key, job, Err(ErrorKind::DeadlineExceeded));
                self.refill(key);
                continue;
            }
            return self.start_turn(key, job);
        }
    }

    fn start_turn(&mut self, key: &ObjectKey, job: Job) {
        let turn = self.fresh_turn();
        let Some(object) = self.objects.by_key.get_mut(key) else { return };
        object.running = Some(turn);
        object.running_charge = job.charge();
        let object_generation = object.object_generation;
        let start = Turn {
            turn,
            instance: object.instance,
            node: object.node,
            key: object.key.clone(),
            stable_type: object.stable_type.clone(),
            object_generation,
            owner_generation: object.owner_generation,
            work: Work::Message {
                wants_reply: !matches!(job.origin, Origin::Send(_)),
                packet: job.packet,
                version: job.version,
                codec: job.codec,
                payload: job.payload,
                metadata: job.metadata,
                remaining: job.deadline.map_or(std::time::Duration::MAX, |deadline| deadline.since(self.now)),
            },
        };
        let running = Running::Message { key: key.clone(), object_generation, origin: job.origin };
        self.turns.insert(turn, running);
        self.outputs.push_back(Output::StartTurn(Box::new(start)));
    }

    pub(super) fn turn_ended(&mut self, turn: TurnId, end: TurnEnd) {
        // The end of an abandoned turn finds nobody.
        let Some(running) = self.turns.remove(&turn) else { return };
        match running {
            Running::Create(reservation) => self.create_turn_ended(reservation, end),
            Running::Message { key, object_generation, origin } => {
                self.message_turn_ended(&key, object_generation, origin, end);
                self.shutdown_progress();
            }
        }
    }

    fn message_turn_ended(
        &mut self,
        key: &ObjectKey,
        object_generation: ObjectGeneration,
        origin: Origin,
        end: TurnEnd,
    ) {
        let outcome = match end {
            TurnEnd::Handled { reply } => Ok(reply),
            TurnEnd::NoHandler => Err(ErrorKind::NotFound),
            TurnEnd::Undecodable => Err(ErrorKind::ProtocolError),
            TurnEnd::Failed(kind) => Err(kind.for_peer()),
            TurnEnd::Panicked | TurnEnd::Accepted { .. } | TurnEnd::Declined { .. } => {
                Err(ErrorKind::InternalFailure)
            }
        };
        self.settle_origin(key, origin, outcome);
        let Some(object) = self.objects.by_key.get_mut(key) else { return };
        if object.object_generation != object_generation {
            return;
        }
        object.running = None;
        let charge = std::mem::take(&mut object.running_charge);
        let Some(lane) = &mut object.lane else {
            self.objects.busy -= 1;
            return;
        };
        lane.unfinished = lane.unfinished.saturating_sub(1);
        lane.bytes = lane.bytes.saturating_sub(charge);
        if !lane.waiting.is_empty() {
            self.refill(key);
        }
        self.pump(key);
    }

    /// Lets submitters in for whom there is room now, in their order.
    fn refill(&mut self, key: &ObjectKey) {
        loop {
            let Some(lane) = self.objects.by_key.get_mut(key).and_then(|object| object.lane.as_mut()) else {
                return;
            };
            let Some(first) = lane.waiting.front() else { return };
            let room = lane.unfinished < LANE_JOBS_MAX
                && (lane.unfinished == 0 || lane.bytes + first.charge() <= LANE_BYTES_MAX);
            if !room {
                return;
            }
            let Some(mut job) = lane.waiting.pop_front() else { return };
            let waiter = match &job.origin {
                Origin::Send(waiter) => *waiter,
                Origin::Local(call) => Some(*call),
                Origin::Remote(..) => None,
            };
            // A submitter whose own deadline ended is not there any more.
            if waiter.is_some_and(|call| !self.calls.contains_key(&call)) {
                continue;
            }
            lane.unfinished += 1;
            lane.bytes += job.charge();
            let admitted = admit(&mut job);
            lane.jobs.push_back(job);
            if let Some(call) = admitted {
                self.send_admitted(call);
            }
        }
    }

    /// Tells whoever waits for a job that never ran how it ended.
    pub(super) fn end_job(&mut self, key: &ObjectKey, job: Job, outcome: Result<Bytes, ErrorKind>) {
        self.settle_origin(key, job.origin, outcome);
    }

    fn settle_origin(&mut self, key: &ObjectKey, origin: Origin, outcome: Result<Bytes, ErrorKind>) {
        match (origin, outcome) {
            (Origin::Send(Some(call)), Err(kind)) => self.message_failed(call, kind, "the object is gone"),
            (Origin::Send(_), Err(kind)) => self.record(Event::MessageDropped { key: key.clone(), kind }),
            (Origin::Send(_), Ok(_)) => {}
            (Origin::Local(call), outcome) => self.request_ended(call, outcome),
            (Origin::Remote(link, correlation), outcome) => self.reply(link, correlation, outcome, false),
        }
    }

    /// Work that waited for the lease goes on.
    pub(super) fn pump_held_back(&mut self) {
        for key in std::mem::take(&mut self.objects.held_back) {
            self.pump(&key);
        }
    }

    /// Drops a local object with everything waiting for it, which ends with `kind`; its running turn ends unheard.
    pub(super) fn drop_object(&mut self, key: &ObjectKey, kind: ErrorKind) {
        let Some(object) = self.objects.by_key.remove(key) else { return };
        self.objects.held_back.remove(key);
        if !object.is_idle() {
            self.objects.busy -= 1;
        }
        if let Some(turn) = object.running {
            let running = self.turns.remove(&turn);
            self.outputs.push_back(Output::AbandonTurn(turn));
            if let Some(Running::Message { origin, .. }) = running {
                self.settle_origin(key, origin, Err(kind));
            }
        }
        if let Some(lane) = object.lane {
            for job in lane.jobs.into_iter().chain(lane.waiting) {
                self.end_job(key, job, Err(kind));
            }
        }
        self.outputs.push_back(Output::DropInstance(object.instance));
        let object_generation = object.object_generation;
        self.record(Event::ObjectDropped { key: key.clone(), object_generation });
    }

    /// Whether the turn runs on the object of this key.
    pub(super) fn runs_on(&self, turn: TurnId, key: &ObjectKey) -> bool {
        matches!(self.turns.get(&turn), Some(Running::Message { key: own, .. }) if own == key)
    }
}

/// A send's wait ends with its admission (MODEL-102): the submitter to tell, if one waits.
fn admit(job: &mut Job) -> Option<CallId> {
    match &mut job.origin {
        Origin::Send(waiter) => {
            job.deadline = None;
            waiter.take()
        }
        _ => None,
    }
}
