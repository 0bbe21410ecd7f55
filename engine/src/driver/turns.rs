//! Instances and the turns that run on them.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures::future::{AbortHandle, abortable};

use super::executor::Executor;
use super::inbox::Arrival;
use super::instance::{Application, EncodedMessage, Instance, Outcome, Started, TurnFuture, TurnScope};
use super::pending::PendingTurns;
use super::port::Port;
use crate::input::{InstanceId, TurnEnd, TurnId};
use crate::model::{ErrorKind, Instant, ObjectKey};
use crate::output::{Turn, Work};
use crate::wire::Metadata;

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
    /// The turn has the object.
    Running,
    /// The turn has the object, and the core wants it dropped when the turn ends.
    Doomed,
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
    port: Arc<Port>,
    slots: BTreeMap<InstanceId, Slot>,
    /// Turns that did not end at once, and whose instance they have.
    running: BTreeMap<TurnId, InstanceId>,
    pending: PendingTurns,
    spawned: BTreeMap<TurnId, AbortHandle>,
}

impl Turns {
    pub(crate) fn new(
        application: Arc<dyn Application>,
        executor: Arc<dyn Executor>,
        placement: TurnPlacement,
        port: Arc<Port>,
    ) -> Self {
        Self {
            application,
            executor,
            placement,
            port,
            slots: BTreeMap::new(),
            running: BTreeMap::new(),
            pending: PendingTurns::default(),
            spawned: BTreeMap::new(),
        }
    }

    /// Starts a turn and runs it as far as it goes at once; its end where it got there.
    pub(crate) fn start(&mut self, turn: Turn, now: Instant) -> Option<Ended> {
        let Turn { turn: id, instance, node, key, stable_type, object_generation, owner_generation, work } =
            turn;
        let port = &self.port;
        let scope = |metadata, remaining| match key {
            ObjectKey::Actor(actor) => Ok(TurnScope {
                turn: id,
                node,
                id: actor,
                object_generation,
                owner_generation,
                metadata,
                until: now + remaining,
                port: port.clone(),
            }),
            ObjectKey::Spot(_) => Err("the object is a Spot"),
        };
        let started = match (work, self.slots.get_mut(&instance)) {
            (
                Work::Message { wants_reply, packet, version, codec, payload, metadata, remaining },
                Some(slot),
            ) => scope(metadata, remaining).and_then(|scope| match std::mem::replace(slot, Slot::Running) {
                Slot::Idle(object) => {
                    let message = EncodedMessage { wants_reply, packet, version, codec, payload };
                    Ok(object.handle(message, scope))
                }
                occupied => {
                    *slot = occupied;
                    Err("the instance has a turn already")
                }
            }),
            (Work::Create { request, remaining }, None) => scope(Metadata::none(), remaining).map(|scope| {
                self.slots.insert(instance, Slot::Running);
                self.application.create(&stable_type, request, scope)
            }),
            (Work::Message { .. }, None) => Err("the instance does not exist"),
            (Work::Create { .. }, Some(_)) => Err("the instance exists already"),
        };
        let mut future = match started {
            Ok(Started::Running(future)) => future,
            Ok(Started::Ended(outcome)) => return Some(self.settle(id, instance, outcome)),
            Err(why) => {
                tracing::error!(target: "spotmesh", turn = id.0, instance = instance.0, why, "turn cannot start");
                return Some(Ended { turn: id, instance, end: TurnEnd::Failed(ErrorKind::InternalFailure) });
            }
        };
        if self.placement != TurnPlacement::Spawned {
            // Whoever polls it next gives it a waker that works.
            if let Poll::Ready(outcome) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return Some(self.settle(id, instance, outcome));
            }
        }
        self.running.insert(id, instance);
        match self.placement {
            TurnPlacement::Inline => self.pending.insert(id, future, &self.port),
            TurnPlacement::SpawnedOnWait | TurnPlacement::Spawned => self.spawn(id, future),
        }
        None
    }

    /// Polls a turn of the loop that was woken; its end where it got there.
    pub(crate) fn woken(&mut self, turn: TurnId) -> Option<Ended> {
        let outcome = self.pending.poll(turn)?;
        let instance = self.running.remove(&turn)?;
        Some(self.settle(turn, instance, outcome))
    }

    /// Takes the outcome of a spawned turn; nothing where it was abandoned while its end was on the way.
    pub(crate) fn reported(&mut self, turn: TurnId, outcome: Outcome) -> Option<Ended> {
        if self.spawned.remove(&turn).is_none() {
            drop_object(outcome.instance);
            return None;
        }
        let instance = self.running.remove(&turn)?;
        Some(self.settle(turn, instance, outcome))
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
            Some(Slot::Idle(_)) => drop_object(self.slots.remove(&instance)),
            Some(slot) => *slot = Slot::Doomed,
            None => {}
        }
    }

    /// Puts the object back after its turn, or drops it where nobody needs it any more.
    fn settle(&mut self, turn: TurnId, instance: InstanceId, outcome: Outcome) -> Ended {
        match (self.slots.get_mut(&instance), outcome.instance) {
            (Some(slot @ Slot::Running), Some(object)) => *slot = Slot::Idle(object),
            (_, object) => {
                self.slots.remove(&instance);
                drop_object(object);
            }
        }
        Ended { turn, instance, end: outcome.end }
    }

    fn spawn(&mut self, turn: TurnId, future: TurnFuture) {
        let (future, handle) = abortable(future);
        let mut reporter = Reporter { turn, port: self.port.clone(), done: false };
        self.spawned.insert(turn, handle);
        self.executor.spawn(Box::pin(async move {
            match future.await {
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
    port: Arc<Port>,
    done: bool,
}

impl Reporter {
    /// Nobody waits for the end of an abandoned turn.
    fn withhold(&mut self) {
        self.done = true;
    }

    fn report(&mut self, outcome: Outcome) {
        self.done = true;
        if let Err(unread) = self.port.inbox().push(Arrival::Ended(self.turn, outcome)) {
            drop_object(unread);
        }
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        if !self.done {
            self.report(Outcome { instance: None, end: TurnEnd::Failed(ErrorKind::InternalFailure) });
        }
    }
}

/// Drops something of the application; a panic of its destructor ends here (MODEL-63).
fn drop_object<T>(object: T) {
    if catch_unwind(AssertUnwindSafe(|| drop(object))).is_err() {
        tracing::error!(target: "spotmesh", "a destructor of the application panicked");
    }
}
