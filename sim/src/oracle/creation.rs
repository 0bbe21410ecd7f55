//! Creation: one factory run an attempt and lifecycle, one `Created` an incarnation (CREATE-1, CREATE-58, -24).

use std::collections::{BTreeMap, BTreeSet};

use spotmesh::model::{ObjectGeneration, ObjectKey};
use spotmesh::output::Answer;
use spotmesh::store::{StoreReply, StoreRequest};

use super::Verdicts;
use super::rows::Rows;
use crate::agenda::Nanos;
use crate::place::RunOf;
use crate::script::{Uid, Verdict};
use crate::store::Applied;

/// One incarnation of a key from its Reserve on.
#[derive(Debug, Clone)]
struct Attempt {
    target: spotmesh::model::LeaseRef,
    runs: Vec<RunOf>,
    verdict: Option<Verdict>,
    created_for: Option<Uid>,
}

/// Attempts of a run.
#[derive(Debug, Clone, Default)]
pub struct Creation {
    attempts: BTreeMap<(ObjectKey, ObjectGeneration), Attempt>,
    generations: BTreeSet<ObjectGeneration>,
}

impl Creation {
    /// The Store carried something out.
    pub fn applied(&mut self, verdicts: &mut Verdicts, at: Nanos, applied: &Applied) {
        let (StoreRequest::Reserve(reserve), Ok(StoreReply::Reserved(fence))) =
            (&applied.request, &applied.result)
        else {
            return;
        };
        let generation = fence.value.object_generation;
        let key = (reserve.key.clone(), generation);
        if self.attempts.contains_key(&key) {
            return; // A re-issue of the same Reserve.
        }
        if !self.generations.insert(generation) {
            verdicts.report("creation", at, format!("generation {generation} was issued twice"));
        }
        let attempt =
            Attempt { target: reserve.target.lease, runs: Vec::new(), verdict: None, created_for: None };
        self.attempts.insert(key, attempt);
    }

    /// A create turn starts.
    pub fn started(
        &mut self,
        verdicts: &mut Verdicts,
        at: Nanos,
        run: RunOf,
        lease: Option<spotmesh::model::LeaseRef>,
        key: &ObjectKey,
        generation: ObjectGeneration,
    ) {
        let Some(attempt) = self.attempts.get_mut(&(key.clone(), generation)) else {
            verdicts.report("creation", at, format!("{run} runs a factory for {key} nobody reserved"));
            return;
        };
        if lease != Some(attempt.target) {
            verdicts.report("creation", at, format!("{run} runs a factory for {key} reserved elsewhere"));
        }
        if attempt.runs.contains(&run) {
            let text = format!("{run} runs a second factory for {key} generation {generation}");
            verdicts.report("creation", at, text);
        }
        attempt.runs.push(run);
    }

    /// A create callback ended.
    pub fn decided(&mut self, key: &ObjectKey, generation: ObjectGeneration, verdict: Verdict) {
        if let Some(attempt) = self.attempts.get_mut(&(key.clone(), generation)) {
            attempt.verdict = Some(verdict);
        }
    }

    /// A creator got an answer.
    pub fn answered(
        &mut self,
        verdicts: &mut Verdicts,
        at: Nanos,
        key: &ObjectKey,
        uid: Uid,
        answer: &Answer,
    ) {
        let Answer::Created { actor, .. } = answer else { return };
        let generation = actor.object_generation;
        match self.attempts.get_mut(&(key.clone(), generation)) {
            None => {
                verdicts.report("creation", at, format!("{key} generation {generation} was never reserved"))
            }
            Some(attempt) => match attempt.created_for {
                None => attempt.created_for = Some(uid),
                Some(other) => verdicts.report(
                    "creation",
                    at,
                    format!("{key} generation {generation} is Created for {uid:?} and for {other:?}"),
                ),
            },
        }
    }

    /// After every applied change: what was not approved is never Ready.
    pub fn check_rows(&self, verdicts: &mut Verdicts, at: Nanos, key: &ObjectKey, rows: &Rows) {
        let Some(row) = rows.row(key).filter(|row| row.ready) else { return };
        let attempt = self.attempts.get(&(key.clone(), row.object_generation));
        if attempt.is_some_and(|attempt| attempt.verdict != Some(Verdict::Accept)) {
            let verdict = attempt.and_then(|attempt| attempt.verdict);
            let text =
                format!("{key} generation {} is Ready, its callback: {verdict:?}", row.object_generation);
            verdicts.report("creation", at, text);
        }
    }

    /// Adds what is remembered.
    pub fn digest(&self, digest: &mut crate::digest::Digest) {
        for (key, attempt) in &self.attempts {
            digest.add(&(key, &attempt.runs, attempt.verdict, attempt.created_for));
        }
    }

    /// Factories that ran for a key, over all its incarnations.
    #[must_use]
    pub fn factory_runs(&self, key: &ObjectKey) -> usize {
        self.attempts.iter().filter(|((k, _), _)| k == key).map(|(_, attempt)| attempt.runs.len()).sum()
    }
}
