//! Instances and the turns that run on them.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures::StreamExt;
use futures::channel::mpsc;
use futures::future::{AbortHandle, abortable};

use super::executor::Executor;
use super::instance::{Application, EncodedMessage, Instance, Outcome, Started, TurnFuture, TurnScope};
use super::pending::PendingTurns;
use super::port::Port;
use crate::input::{InstanceId, TurnEnd, TurnId};
use crate::model::{ErrorKind, Instant, ObjectKey};
use crate::output::{Turn, Work};

/// Where a turn runs that is not ready when it is first polled.
///
/// The first poll always happens in the loop itself, so that a handler that never waits costs no task switch,
/// except with `Spawned`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TurnPlacement {
    /// In the loop. Right where handlers wait for messages, timers and I/O but compute little.
    #[default]
    Inline,
    /// On the executor from its first wait on.
    SpawnedOnWait,
    /// On the executor from its first instruction. Right where handlers compute: turns of different gates then
    /// run on as many threads as the executor has, at the price of two task switches a turn.
    Spawned,
}

/// What the loop holds for one instance.
enum Slot {
    Idle(Box<dyn Instance>),
    /// The turn has the object. `doomed` where the core wants it dropped when the turn ends.
    Running {
        doomed: bool,
    },
}

/// A turn that ended and that the core has not heard of yet.
pub(crate) struct Ended {
    pub(crate) turn: TurnId,
    pub(crate) instance: InstanceId,
    pub(crate) end: TurnEnd,
}

/// All instances of a host and the turns running on them.
pub(crate) struct Turns {
    application: Arc<dyn Application>,
    executor: Arc<dyn Executor>,
    placement: TurnPlacement,
    slots: BTreeMap<InstanceId, Slot>,
    /// Turns that did not end at once, and whose instance they have.
    running: BTreeMap<TurnId, InstanceId>,
    pending: PendingTurns,
    spawned: BTreeMap<TurnId, AbortHandle>,
    reports: mpsc::UnboundedSender<Report>,
    reported: mpsc::UnboundedReceiver<Report>,
    scratch: Vec<(TurnId, Outcome)>,
}

type Report = (TurnId, Outcome);

impl Turns {
    pub(crate) fn new(
        application: Arc<dyn Application>,
        executor: Arc<dyn Executor>,
        placement: TurnPlacement,
    ) -> Self {
        let (reports, reported) = mpsc::unbounded();
        Self {
            application,
            executor,
            placement,
            slots: BTreeMap::new(),
            running: BTreeMap::new(),
            pending: PendingTurns::new(),
            spawned: BTreeMap::new(),
            reports,
            reported,
            scratch: Vec::new(),
        }
    }

    /// Starts a turn and runs it as far as it goes at once; its end where it got there.
    pub(crate) fn start(&mut self, turn: Turn, port: &Arc<Port>, now: Instant) -> Option<Ended> {
        let (id, instance) = (turn.turn, turn.instance);
        let object = match self.slots.insert(instance, Slot::Running { doomed: false }) {
            Some(Slot::Idle(object)) => Some(object),
            Some(running @ Slot::Running { .. }) => {
                tracing::error!(target: "spotmesh", turn = id.0, instance = instance.0, "instance has a turn already");
                self.slots.insert(instance, running);
                return Some(Ended { turn: id, instance, end: TurnEnd::Failed(ErrorKind::InternalFailure) });
            }
            None => None,
        };
        let started = match begin(&*self.application, object, turn, port, now) {
            Ok(started) => started,
            Err(why) => {
                tracing::error!(target: "spotmesh", turn = id.0, instance = instance.0, why, "turn cannot start");
                self.slots.remove(&instance);
                return Some(Ended { turn: id, instance, end: TurnEnd::Failed(ErrorKind::InternalFailure) });
            }
        };
        let mut future = match started {
            Started::Ended(outcome) => return Some(self.settle(id, instance, outcome)),
            Started::Running(future) => future,
        };
        if self.placement != TurnPlacement::Spawned {
            // Whoever polls it next gives it a waker that works.
            if let Poll::Ready(outcome) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return Some(self.settle(id, instance, outcome));
            }
        }
        self.running.insert(id, instance);
        match self.placement {
            TurnPlacement::Inline => self.pending.insert(id, future),
            TurnPlacement::SpawnedOnWait | TurnPlacement::Spawned => self.spawn(id, future),
        }
        None
    }

    /// Collects turns that ended since. With `park` the loop is woken by the next one.
    pub(crate) fn collect(&mut self, mut park: Option<&mut Context<'_>>, ended: &mut VecDeque<Ended>) {
        let mut outcomes = std::mem::take(&mut self.scratch);
        self.pending.poll_woken(park.as_deref(), &mut outcomes);
        loop {
            let report = match &mut park {
                Some(cx) => match self.reported.poll_next_unpin(cx) {
                    Poll::Ready(report) => report,
                    Poll::Pending => None,
                },
                None => self.reported.try_recv().ok(),
            };
            match report {
                Some((turn, outcome)) if self.spawned.remove(&turn).is_some() => {
                    outcomes.push((turn, outcome))
                }
                // It was abandoned while its end was on the way.
                Some((_, outcome)) => drop_object(outcome.instance),
                None => break,
            }
        }
        for (turn, outcome) in outcomes.drain(..) {
            if let Some(instance) = self.running.remove(&turn) {
                ended.push_back(self.settle(turn, instance, outcome));
            }
        }
        self.scratch = outcomes;
    }

    /// Drops the future of a turn, and with it the object it had taken. No end follows.
    pub(crate) fn abandon(&mut self, turn: TurnId) {
        let Some(instance) = self.running.remove(&turn) else { return };
        drop_object(self.pending.remove(turn));
        if let Some(handle) = self.spawned.remove(&turn) {
            handle.abort();
        }
        self.slots.remove(&instance);
    }

    /// Drops an instance, after its running turn if it has one.
    pub(crate) fn drop_instance(&mut self, instance: InstanceId) {
        match self.slots.get_mut(&instance) {
            Some(Slot::Running { doomed }) => *doomed = true,
            Some(Slot::Idle(_)) => drop_object(self.slots.remove(&instance)),
            None => {}
        }
    }

    /// Puts the object back after its turn, or drops it where nobody needs it any more.
    fn settle(&mut self, turn: TurnId, instance: InstanceId, outcome: Outcome) -> Ended {
        let doomed = matches!(self.slots.get(&instance), None | Some(Slot::Running { doomed: true }));
        match outcome.instance {
            Some(object) if !doomed => {
                self.slots.insert(instance, Slot::Idle(object));
            }
            object => {
                self.slots.remove(&instance);
                drop_object(object);
            }
        }
        Ended { turn, instance, end: outcome.end }
    }

    fn spawn(&mut self, turn: TurnId, future: TurnFuture) {
        let (future, handle) = abortable(future);
        let mut reporter = Reporter { turn, reports: self.reports.clone(), done: false };
        self.spawned.insert(turn, handle);
        self.executor.spawn(Box::pin(async move {
            let outcome = future.await;
            match outcome {
                Ok(outcome) => reporter.report(outcome),
                Err(_abandoned) => reporter.withhold(),
            }
        }));
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        for handle in self.spawned.values() {
            handle.abort();
        }
        for (_, slot) in std::mem::take(&mut self.slots) {
            drop_object(slot);
        }
    }
}

/// Tells the loop how a spawned turn ended, also where the executor gave its task up.
struct Reporter {
    turn: TurnId,
    reports: mpsc::UnboundedSender<Report>,
    done: bool,
}

impl Reporter {
    /// Nobody waits for the end of an abandoned turn.
    fn withhold(&mut self) {
        self.done = true;
    }

    fn report(&mut self, outcome: Outcome) {
        self.done = true;
        // Without a loop nobody waits for the end.
        let _ = self.reports.unbounded_send((self.turn, outcome));
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        if !self.done {
            self.report(Outcome { instance: None, end: TurnEnd::Failed(ErrorKind::InternalFailure) });
        }
    }
}

fn begin(
    application: &dyn Application,
    object: Option<Box<dyn Instance>>,
    turn: Turn,
    port: &Arc<Port>,
    now: Instant,
) -> Result<Started, &'static str> {
    let ObjectKey::Actor(id) = turn.key else { return Err("expected an Actor, found a Spot") };
    let scope = |metadata, remaining| TurnScope {
        turn: turn.turn,
        node: turn.node,
        id,
        object_generation: turn.object_generation,
        owner_generation: turn.owner_generation,
        metadata,
        until: now + remaining,
        port: port.clone(),
    };
    match (turn.work, object) {
        (Work::Create { request, remaining }, None) => Ok(application.create(
            &turn.stable_type,
            request,
            scope(crate::wire::Metadata::none(), remaining),
        )),
        (Work::Create { .. }, Some(_)) => Err("creation of an instance that exists"),
        (
            Work::Message { wants_reply, packet, version, codec, payload, metadata, remaining },
            Some(object),
        ) => {
            let message = EncodedMessage { wants_reply, packet, version, codec, payload };
            Ok(object.handle(message, scope(metadata, remaining)))
        }
        (Work::Message { .. }, None) => Err("message for an instance that does not exist"),
    }
}

/// Drops something of the application; a panic of its destructor ends here (MODEL-63).
fn drop_object<T>(object: T) {
    if catch_unwind(AssertUnwindSafe(|| drop(object))).is_err() {
        tracing::error!(target: "spotmesh", "a destructor of the application panicked");
    }
}
