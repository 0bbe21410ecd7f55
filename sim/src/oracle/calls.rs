//! Calls: each ends exactly once, in time, with an answer its command allows (ERR-7, MODEL-103, MODEL-111).

use std::collections::BTreeMap;

use spotmesh::input::CallId;
use spotmesh::model::{ErrorKind, Instant, ObjectKey};
use spotmesh::output::Answer;

use super::Verdicts;
use super::rows::Rows;
use crate::agenda::Nanos;
use crate::place::RunOf;
use crate::script::{CounterReply, Ending, Uid, Verdict};

/// What a call asked for, as far as its answer is judged by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// Create or get-or-create.
    Create {
        /// The object.
        key: ObjectKey,
        /// Its type.
        stable_type: String,
        /// Create instead of GetOrCreate.
        exclusive: bool,
        /// What its callback does.
        verdict: Verdict,
    },
    /// Find.
    Find {
        /// The object.
        key: ObjectKey,
    },
    /// Send or request.
    Message {
        /// The object.
        key: ObjectKey,
        /// Request instead of send.
        request: bool,
        /// How its handler ends.
        ending: Ending,
        /// The Actor whose handler calls and waits.
        from: Option<ObjectKey>,
    },
    /// Sets a weight.
    Weight,
    /// Shuts the host down.
    Shutdown,
}

/// One call from submission to end.
#[derive(Debug, Clone)]
pub struct Call {
    /// Its number in the run.
    pub uid: Uid,
    /// Who called.
    pub by: RunOf,
    /// Its number in the process.
    pub id: CallId,
    /// What it asked for.
    pub asked: Asked,
    /// When, in world time.
    pub at: Nanos,
    /// Its deadline by the caller's clock.
    pub deadline: Instant,
    /// Its end.
    pub end: Option<(Nanos, End)>,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// With an answer.
    Answered(Answer),
    /// The caller stopped waiting.
    Dropped,
    /// The caller's process died.
    Died,
}

/// Every call of a run.
#[derive(Debug, Clone, Default)]
pub struct Calls {
    calls: BTreeMap<Uid, Call>,
    by_id: BTreeMap<(RunOf, CallId), Uid>,
    /// Types the workload used an id with.
    types: BTreeMap<ObjectKey, Vec<String>>,
    /// Some clock runs fast, slow or jumps: remote stages may judge a deadline earlier than its caller.
    pub skewed: bool,
}

impl Calls {
    /// A call is submitted.
    pub fn submitted(&mut self, call: Call) {
        if let Asked::Create { key, stable_type, .. } = &call.asked {
            let types = self.types.entry(key.clone()).or_default();
            if !types.contains(stable_type) {
                types.push(stable_type.clone());
            }
        }
        self.by_id.insert((call.by, call.id), call.uid);
        self.calls.insert(call.uid, call);
    }

    /// The caller stops waiting.
    pub fn dropped(&mut self, at: Nanos, uid: Uid) {
        if let Some(call) = self.calls.get_mut(&uid).filter(|call| call.end.is_none()) {
            call.end = Some((at, End::Dropped));
        }
    }

    /// A process is gone and its waiting callers with it.
    pub fn process_died(&mut self, run: RunOf) {
        for call in self.calls.values_mut().filter(|call| call.by == run && call.end.is_none()) {
            call.end = Some((call.at, End::Died));
        }
    }

    /// A call by its number in the run.
    #[must_use]
    pub fn get(&self, uid: Uid) -> Option<&Call> {
        self.calls.get(&uid)
    }

    /// A call by its number in its process.
    #[must_use]
    pub fn uid_of(&self, run: RunOf, id: CallId) -> Option<Uid> {
        self.by_id.get(&(run, id)).copied()
    }

    /// All calls in order of submission.
    pub fn iter(&self) -> impl Iterator<Item = &Call> {
        self.calls.values()
    }

    /// Calls without an end.
    pub fn open(&self) -> impl Iterator<Item = &Call> {
        self.calls.values().filter(|call| call.end.is_none())
    }

    /// An answer arrives: it must be the first, to a call that waits, and one the command allows.
    pub fn answered(
        &mut self,
        verdicts: &mut Verdicts,
        rows: &Rows,
        (at, local): (Nanos, Instant),
        (run, id): (RunOf, CallId),
        answer: &Answer,
    ) -> Option<Uid> {
        let Some(uid) = self.uid_of(run, id) else {
            verdicts.report(
                "calls",
                at,
                format!("{run} answers call {}, which nobody made: {answer:?}", id.0),
            );
            return None;
        };
        let (types, skewed) = (&self.types, self.skewed);
        let call = self.calls.get_mut(&uid)?;
        match &call.end {
            Some((_, End::Dropped)) => {
                verdicts.report(
                    "calls",
                    at,
                    format!("{run} answers call {uid:?} after CallDropped: {answer:?}"),
                );
                return Some(uid);
            }
            Some((first, end)) => {
                verdicts.report(
                    "calls",
                    at,
                    format!("{run} answers call {uid:?} again: {answer:?} after {end:?} at {first}"),
                );
                return Some(uid);
            }
            None => {}
        }
        call.end = Some((at, End::Answered(answer.clone())));
        let wrong = match answer {
            Answer::Failed(error)
                if error.kind() == ErrorKind::DeadlineExceeded && local < call.deadline && !skewed =>
            {
                Some(format!("at {local:?}, before its deadline {:?}", call.deadline))
            }
            Answer::Failed(error) => wrong_failure(call, types, rows, at, error.kind()),
            _ => wrong_success(call, rows, at, answer),
        };
        if let Some(why) = wrong {
            verdicts.report("answer", at, format!("{run} answers {:?} with {answer:?}: {why}", call.asked));
        }
        Some(uid)
    }
}

fn wrong_success(call: &Call, rows: &Rows, at: Nanos, answer: &Answer) -> Option<String> {
    let ready = |key: &ObjectKey, generation| {
        let was = rows.was_ready(key, generation, call.at, at);
        (!was).then(|| format!("generation {generation} was not Ready during the call"))
    };
    match (&call.asked, answer) {
        (Asked::Create { key, verdict, .. }, Answer::Created { actor, .. }) => {
            if *verdict != Verdict::Accept {
                return Some("its callback does not approve".to_owned());
            }
            // CREATE-102: a record stays valid as history, so the object may be gone by now.
            let lived = rows
                .lives(key)
                .iter()
                .any(|life| life.object_generation == actor.object_generation && life.from >= call.at);
            (!lived).then(|| format!("generation {} did not begin during the call", actor.object_generation))
        }
        (Asked::Create { key, exclusive: false, .. }, Answer::Existing { actor }) => {
            ready(key, actor.object_generation)
        }
        (Asked::Create { key, verdict, .. }, Answer::Rejected { actor, .. }) => {
            if *verdict != Verdict::Decline {
                return Some("its callback does not decline".to_owned());
            }
            let lived = rows.lives(key).iter().any(|life| life.object_generation == actor.object_generation);
            lived.then(|| format!("the rejected generation {} was Ready", actor.object_generation))
        }
        (Asked::Find { key }, Answer::Found(Some(actor))) => ready(key, actor.object_generation),
        (Asked::Find { key }, Answer::Found(None)) => {
            let absent = rows.was_absent(key, call.at, at);
            (!absent).then(|| "the key was Ready during the whole call".to_owned())
        }
        (Asked::Message { request: false, .. }, Answer::Sent) => None,
        (Asked::Message { request: true, ending, .. }, Answer::Replied(bytes)) => {
            if ending.kind().is_some() {
                return Some("its handler does not reply".to_owned());
            }
            match CounterReply::decode(bytes) {
                Some(reply) if reply.uid == call.uid => None,
                found => Some(format!("expected the reply to call {:?}, found {found:?}", call.uid)),
            }
        }
        (Asked::Weight, Answer::Set) | (Asked::Shutdown, Answer::ShutDown { .. }) => None,
        _ => Some("this command has no such answer".to_owned()),
    }
}

fn wrong_failure(
    call: &Call,
    types: &BTreeMap<ObjectKey, Vec<String>>,
    rows: &Rows,
    at: Nanos,
    kind: ErrorKind,
) -> Option<String> {
    use ErrorKind as K;
    let allowed = match &call.asked {
        Asked::Create { key, exclusive, verdict, .. } => match kind {
            K::AlreadyExists => *exclusive && rows.lives(key).iter().any(|life| life.from <= at),
            K::TypeMismatch => types.get(key).is_some_and(|types| types.len() > 1),
            K::InternalFailure => matches!(verdict, Verdict::Fail | Verdict::Panic),
            K::Unavailable | K::DeadlineExceeded | K::NotFound | K::ShuttingDown => true,
            K::NotConfigured | K::InvalidOperation => true,
            _ => false,
        },
        Asked::Find { .. } => matches!(
            kind,
            K::Unavailable | K::DeadlineExceeded | K::NotConfigured | K::InvalidOperation | K::ShuttingDown
        ),
        Asked::Message { key, request, ending, from } => match kind {
            K::Unavailable | K::DeadlineExceeded | K::ShuttingDown | K::NotConfigured => true,
            K::NotFound => (*request && ending.kind() == Some(kind)) || rows.was_absent(key, call.at, at),
            K::InternalFailure | K::ProtocolError => *request && ending.kind() == Some(kind),
            K::InvalidOperation => from.as_ref() == Some(key),
            _ => false,
        },
        Asked::Weight => matches!(kind, K::ShuttingDown | K::NotConfigured | K::NotFound | K::Unavailable),
        Asked::Shutdown => false,
    };
    (!allowed).then(|| "this command does not fail so here".to_owned())
}
