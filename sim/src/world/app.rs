//! The scripted application of one process: instances with a counter, and the turns that run on them.

use std::collections::BTreeMap;

use spotmesh::input::{InstanceId, TurnEnd, TurnId};
use spotmesh::model::{ErrorKind, ObjectGeneration, ObjectKey};
use spotmesh::output::{Turn, Work};

use crate::agenda::{Nanos, micros};
use crate::script::{self, CounterReply, CreateScript, Ending, HandlerScript, Nested, Uid, Verdict};

/// A running turn.
#[derive(Debug, Clone)]
pub(super) struct Running {
    pub instance: InstanceId,
    pub key: ObjectKey,
    pub object_generation: ObjectGeneration,
    pub job: Job,
}

/// What a turn does.
#[derive(Debug, Clone)]
pub(super) enum Job {
    Create(Uid, CreateScript),
    Handle(Uid, HandlerScript),
    /// A payload that holds no script.
    Unreadable,
}

/// What the next step of a turn is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing before the run's faults have ended.
    HangsUntilHealed,
    /// Nothing, ever.
    HangsForEver,
    /// After this time, step 1 or the end.
    After(Nanos),
}

/// Instances and turns of one process.
#[derive(Debug, Clone, Default)]
pub(super) struct App {
    counters: BTreeMap<InstanceId, u64>,
    running: BTreeMap<TurnId, Running>,
    /// Calls of handlers that wait for an answer.
    pub waiting: BTreeMap<spotmesh::input::CallId, TurnId>,
}

impl App {
    /// A turn starts. Says what its first step is, and after which time.
    pub fn start(&mut self, turn: &Turn) -> Step {
        let (job, step) = match &turn.work {
            Work::Create { request, .. } => match script::decode::<CreateScript>(request) {
                Some((uid, create)) => {
                    let step = match create.verdict {
                        Verdict::Hang => Step::HangsForEver,
                        _ => Step::After(micros(create.takes_us)),
                    };
                    (Job::Create(uid, create), step)
                }
                None => (Job::Unreadable, Step::After(0)),
            },
            Work::Message { payload, .. } => match script::decode::<HandlerScript>(payload) {
                Some((uid, handler)) => {
                    let step = match handler.ending {
                        Ending::Hang => Step::HangsUntilHealed,
                        _ => Step::After(micros(handler.takes_us)),
                    };
                    (Job::Handle(uid, handler), step)
                }
                None => (Job::Unreadable, Step::After(0)),
            },
        };
        let running = Running {
            instance: turn.instance,
            key: turn.key.clone(),
            object_generation: turn.object_generation,
            job,
        };
        self.running.insert(turn.turn, running);
        step
    }

    /// A running turn.
    pub fn turn(&self, turn: TurnId) -> Option<&Running> {
        self.running.get(&turn)
    }

    /// What the turn calls at its first step.
    pub fn nested(&self, turn: TurnId) -> Option<(ObjectKey, Nested)> {
        let running = self.running.get(&turn)?;
        match &running.job {
            Job::Handle(_, handler) => Some((running.key.clone(), handler.nested.clone()?)),
            _ => None,
        }
    }

    /// The turn ends now; how, and the counter it replied with.
    pub fn finish(&mut self, turn: TurnId) -> Option<(Running, TurnEnd, Option<(Uid, u64)>)> {
        let running = self.running.remove(&turn)?;
        let mut replied = None;
        let end = match &running.job {
            Job::Unreadable => TurnEnd::Undecodable,
            Job::Create(uid, create) => {
                let reply = Some(CounterReply { uid: *uid, counter: 0 }.encode());
                match create.verdict {
                    Verdict::Accept | Verdict::Hang => {
                        self.counters.insert(running.instance, 0);
                        TurnEnd::Accepted { reply }
                    }
                    Verdict::Decline => TurnEnd::Declined { reply },
                    Verdict::Fail => TurnEnd::Failed(ErrorKind::InternalFailure),
                    Verdict::Panic => TurnEnd::Panicked,
                }
            }
            Job::Handle(uid, handler) => match handler.ending {
                Ending::Reply | Ending::Hang => {
                    let counter = self.counters.entry(running.instance).or_default();
                    *counter += 1;
                    replied = Some((*uid, *counter));
                    TurnEnd::Handled { reply: CounterReply { uid: *uid, counter: *counter }.encode() }
                }
                Ending::Fail => TurnEnd::Failed(ErrorKind::NotFound),
                Ending::Panic => TurnEnd::Panicked,
                Ending::NoHandler => TurnEnd::NoHandler,
                Ending::Undecodable => TurnEnd::Undecodable,
            },
        };
        Some((running, end, replied))
    }

    /// Adds everything that matters for what can happen.
    pub fn digest(&self, digest: &mut crate::digest::Digest) {
        digest.add(&self.counters);
        for (turn, running) in &self.running {
            digest.add(&(turn, running.instance, &running.key, running.object_generation));
        }
        digest.add(&self.waiting);
    }

    /// The core gave the turn up.
    pub fn abandon(&mut self, turn: TurnId) {
        self.running.remove(&turn);
        self.waiting.retain(|_, waiter| *waiter != turn);
    }

    /// The core dropped an instance.
    pub fn drop_instance(&mut self, instance: InstanceId) {
        self.counters.remove(&instance);
    }

    /// Turns that hang until the faults end.
    pub fn hanging(&self) -> Vec<TurnId> {
        self.running
            .iter()
            .filter(|(_, running)| {
                matches!(&running.job, Job::Handle(_, handler) if handler.ending == Ending::Hang)
            })
            .map(|(turn, _)| *turn)
            .collect()
    }
}
