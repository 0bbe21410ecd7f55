//! Creation: one factory run an attempt and lifecycle, one `Created` an incarnation (CREATE-1, CREATE-58, -24).

use std::collections::{BTreeMap, BTreeSet};

use spotmesh::model::{ContentId, ObjectGeneration, ObjectKey, ReservationId};
use spotmesh::output::{Answer, Turn, Work};
use spotmesh::store::{CreationSource, ReservationFence, StoreReply, StoreRequest};
use spotmesh::wire::{CreateVerdict, Message};

use super::Verdicts;
use super::rows::Rows;
use crate::agenda::Nanos;
use crate::place::RunOf;
use crate::script::{Uid, Verdict, uid_of};
use crate::store::Applied;

/// One incarnation of a key from its Reserve on.
#[derive(Debug, Clone)]
struct Attempt {
    target: spotmesh::model::LeaseRef,
    runs: Vec<RunOf>,
    verdict: Option<Verdict>,
    withdrawn: bool,
    ended: bool,
    /// The call it was reserved for.
    of: Option<Uid>,
    created_for: Option<Uid>,
}

/// Attempts of a run.
#[derive(Debug, Clone, Default)]
pub struct Creation {
    attempts: BTreeMap<(ObjectKey, ObjectGeneration), Attempt>,
    generations: BTreeSet<ObjectGeneration>,
    /// Reservations whose order was given to a link, and those a target refused before execution.
    ordered: BTreeSet<ReservationId>,
    refused: BTreeSet<ReservationId>,
    /// Which call's request a content is.
    contents: BTreeMap<ContentId, Uid>,
}

impl Creation {
    /// The Store carried something out.
    pub fn applied(&mut self, verdicts: &mut Verdicts, at: Nanos, applied: &Applied) {
        if let (StoreRequest::AbortNotExecuted(abort), Ok(_)) = (&applied.request, &applied.result) {
            self.withdrawn(verdicts, at, applied.by, &abort.fence);
        }
        if let StoreRequest::PutCreationContent(put) = &applied.request
            && let Some(uid) = uid_of(&put.bytes)
        {
            self.contents.insert(put.content, uid);
        }
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
        let of = match reserve.source {
            CreationSource::Content(content, ..) => self.contents.get(&content).copied(),
            CreationSource::Activation(..) => None,
        };
        let attempt = Attempt {
            target: reserve.target.lease,
            runs: Vec::new(),
            verdict: None,
            withdrawn: false,
            ended: false,
            of,
            created_for: None,
        };
        self.attempts.insert(key, attempt);
    }

    /// A process hands a message to a link.
    pub fn sent(&mut self, message: &Message) {
        match message {
            Message::CreateOrder(order) => {
                self.ordered.insert(order.fence.reservation);
            }
            Message::CreateAnswer(answer) if answer.verdict == CreateVerdict::NotAdmitted => {
                self.refused.insert(answer.reservation);
            }
            _ => {}
        }
    }

    /// Only who can prove that no factory started may withdraw an attempt (STORE-68, CREATE-54).
    fn withdrawn(&mut self, verdicts: &mut Verdicts, at: Nanos, by: RunOf, fence: &ReservationFence) {
        let Some(attempt) = self.attempts.get_mut(&(fence.key.clone(), fence.object_generation)) else {
            return;
        };
        if std::mem::replace(&mut attempt.withdrawn, true) || attempt.ended {
            return; // A re-issue, or the row was gone before.
        }
        // Without an order, or after a refusal, the target may have adopted the row by its own scan (CREATE-93).
        let open = self.ordered.contains(&fence.reservation) && !self.refused.contains(&fence.reservation);
        if attempt.runs.contains(&by) || (open && !attempt.runs.is_empty()) {
            let text = format!("{by} withdraws {}, whose factory ran on {:?}", fence.key, attempt.runs);
            verdicts.report("creation", at, text);
        }
    }

    /// A create turn starts.
    pub fn started(
        &mut self,
        verdicts: &mut Verdicts,
        at: Nanos,
        run: RunOf,
        lease: Option<spotmesh::model::LeaseRef>,
        turn: &Turn,
    ) {
        let (key, generation) = (&turn.key, turn.object_generation);
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
        if let Work::Create { request, .. } = &turn.work
            && uid_of(request) != attempt.of
        {
            let text = format!("{run} runs a factory for {key} with the request of another operation");
            verdicts.report("creation", at, text);
        }
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
    pub fn check_rows(&mut self, verdicts: &mut Verdicts, at: Nanos, key: &ObjectKey, rows: &Rows) {
        let current = rows.row(key).filter(|row| !row.ready).map(|row| row.object_generation);
        for ((_, generation), attempt) in self
            .attempts
            .range_mut((key.clone(), ObjectGeneration::FIRST)..)
            .take_while(|((k, _), _)| k == key)
        {
            attempt.ended |= current != Some(*generation);
        }
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

    /// Whether this call reserved the key at some time: then its target's answer is what it waits for (CREATE-53).
    #[must_use]
    pub fn reserved_for(&self, key: &ObjectKey, uid: Uid) -> bool {
        self.attempts.iter().any(|((k, _), attempt)| k == key && attempt.of == Some(uid))
    }

    /// Factories that ran for a key, over all its incarnations.
    #[must_use]
    pub fn factory_runs(&self, key: &ObjectKey) -> usize {
        self.attempts.iter().filter(|((k, _), _)| k == key).map(|(_, attempt)| attempt.runs.len()).sum()
    }
}
