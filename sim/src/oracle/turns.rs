//! Gates: turns of one instance never overlap, and only instances that exist run turns (MODEL-53).

use std::collections::BTreeMap;

use spotmesh::input::{InstanceId, TurnId};
use spotmesh::model::{ObjectGeneration, ObjectKey};
use spotmesh::output::{Turn, Work};

use super::{Verdicts, describe};
use crate::agenda::Nanos;
use crate::place::RunOf;

#[derive(Debug, Clone)]
struct Live {
    instance: InstanceId,
    key: ObjectKey,
    object_generation: ObjectGeneration,
}

/// How far an instance is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Its create turn runs.
    Staging,
    /// Its create callback approved.
    Approved,
    /// Its create callback did not approve, or was abandoned.
    Refused,
    /// The core dropped it.
    Dropped,
}

#[derive(Debug, Clone)]
struct Instance {
    key: ObjectKey,
    object_generation: ObjectGeneration,
    stage: Stage,
}

/// Turns and instances of all living processes.
#[derive(Debug, Clone, Default)]
pub struct Turns {
    live: BTreeMap<(RunOf, TurnId), Live>,
    seen: BTreeMap<RunOf, TurnId>,
    instances: BTreeMap<(RunOf, InstanceId), Instance>,
}

impl Turns {
    /// A turn starts.
    pub fn started(&mut self, verdicts: &mut Verdicts, at: Nanos, run: RunOf, turn: &Turn) {
        let mut report =
            |text: String| verdicts.report("gate", at, format!("{}: {text}", describe(run, turn)));
        if self.seen.get(&run).is_some_and(|last| *last >= turn.turn) {
            report(format!("turn numbers must grow, the last was {}", self.seen[&run].0));
        }
        self.seen.insert(run, turn.turn);
        for ((other_run, other), live) in &self.live {
            let same_instance = *other_run == run && live.instance == turn.instance;
            let same_object = live.key == turn.key && live.object_generation == turn.object_generation;
            if same_instance || same_object {
                report(format!("starts while turn {} of the same object runs on {other_run}", other.0));
            }
        }
        let known = self.instances.get(&(run, turn.instance));
        match (&turn.work, known) {
            (Work::Create { .. }, None) => {
                let instance = Instance {
                    key: turn.key.clone(),
                    object_generation: turn.object_generation,
                    stage: Stage::Staging,
                };
                self.instances.insert((run, turn.instance), instance);
            }
            (Work::Create { .. }, Some(_)) => report("a second create turn on one instance".to_owned()),
            (Work::Message { .. }, None) => report("a message turn on an instance never created".to_owned()),
            (Work::Message { .. }, Some(instance)) => {
                if instance.stage != Stage::Approved {
                    report(format!("a message turn on an instance that is {:?}", instance.stage));
                }
                if instance.key != turn.key || instance.object_generation != turn.object_generation {
                    report(format!(
                        "the instance was created as {} generation {}",
                        instance.key, instance.object_generation
                    ));
                }
            }
        }
        self.live.insert(
            (run, turn.turn),
            Live {
                instance: turn.instance,
                key: turn.key.clone(),
                object_generation: turn.object_generation,
            },
        );
    }

    /// A turn ended; `approved` says how, for a create turn.
    pub fn ended(&mut self, run: RunOf, turn: TurnId, approved: Option<bool>) {
        let Some(live) = self.live.remove(&(run, turn)) else { return };
        if let (Some(approved), Some(instance)) = (approved, self.instances.get_mut(&(run, live.instance)))
            && instance.stage == Stage::Staging
        {
            instance.stage = if approved { Stage::Approved } else { Stage::Refused };
        }
    }

    /// The core gave a turn up.
    pub fn abandoned(&mut self, run: RunOf, turn: TurnId) {
        let creating = self
            .live
            .get(&(run, turn))
            .and_then(|live| self.instances.get(&(run, live.instance)))
            .is_some_and(|instance| instance.stage == Stage::Staging);
        self.ended(run, turn, creating.then_some(false));
    }

    /// The core dropped an instance.
    pub fn dropped(&mut self, verdicts: &mut Verdicts, at: Nanos, run: RunOf, id: InstanceId) {
        match self.instances.get_mut(&(run, id)) {
            Some(instance) if instance.stage != Stage::Dropped => instance.stage = Stage::Dropped,
            Some(_) => verdicts.report("gate", at, format!("{run} drops instance {} twice", id.0)),
            None => {
                verdicts.report("gate", at, format!("{run} drops instance {}, which it never made", id.0))
            }
        }
    }

    /// A process is gone.
    pub fn process_died(&mut self, run: RunOf) {
        self.live.retain(|(owner, _), _| *owner != run);
        self.instances.retain(|(owner, _), _| *owner != run);
    }

    /// Approved instances that were not dropped, with what they are.
    pub fn kept(&self, run: RunOf) -> impl Iterator<Item = (&ObjectKey, ObjectGeneration)> {
        self.instances
            .iter()
            .filter(move |((owner, _), instance)| *owner == run && instance.stage != Stage::Dropped)
            .map(|(_, instance)| (&instance.key, instance.object_generation))
    }

    /// Turns that run now on a process.
    #[must_use]
    pub fn running(&self, run: RunOf) -> usize {
        self.live.keys().filter(|(owner, _)| *owner == run).count()
    }
}
