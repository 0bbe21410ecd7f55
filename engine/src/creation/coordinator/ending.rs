//! How an operation ends: without a candidate, at its deadline, by its caller, with its result (CREATE-38, -50..52).

use bytes::Bytes;

use crate::mark::Mark;
use crate::model::{ActorRef, Error, ErrorKind, MeshName, ObjectGeneration, ObjectKey, Rid};
use crate::output::Answer;
use crate::store::{AbortNotExecuted, TerminalEnvelope, TerminalOutcome};

use super::{Coordinator, CoordinatorContext, CoordinatorEffect, Out, State};

impl Coordinator {
    pub(super) fn nobody(
        &mut self,
        kind: ErrorKind,
        _cx: &mut CoordinatorContext<'_>,
        out: Out<'_>,
    ) -> State {
        out.push(CoordinatorEffect::Mark(Mark::CreateNoCandidate));
        let found = match kind {
            ErrorKind::NotFound => format!("no serving node registers {}", self.spec.stable_type),
            _ => format!("no eligible candidate left, {} excluded", self.excluded.len()),
        };
        self.fail(kind, found, out)
    }

    pub(super) fn deadline(&mut self, state: State, cx: &mut CoordinatorContext<'_>, out: Out<'_>) -> State {
        let after_order = match state {
            State::Awaiting { .. } | State::Waiting => true,
            State::Dispatch { .. } => self.order_given,
            _ => false,
        };
        out.push(CoordinatorEffect::Mark(if after_order {
            Mark::CreateDeadlineAfterOrder // CREATE-51
        } else {
            Mark::CreateDeadlineBeforeOrder // CREATE-50
        }));
        self.give_back(&state, cx, out);
        if !after_order && self.failure_seen && self.only_failures {
            return self.fail(
                ErrorKind::Unavailable,
                "store or route not usable until the deadline".to_owned(),
                out,
            );
        }
        self.fail(ErrorKind::DeadlineExceeded, format!("in {}", name_of(&state)), out)
    }

    pub(super) fn dropped(&mut self, state: State, cx: &mut CoordinatorContext<'_>, out: Out<'_>) -> State {
        out.push(CoordinatorEffect::Mark(Mark::CreateCancelled));
        self.give_back(&state, cx, out);
        self.finish(None, out)
    }

    /// CREATE-50: a reservation is given back, best effort, while it is certain that no factory started for it:
    /// its order was never handed over, and its target cannot have adopted it yet (STORE-68).
    pub(super) fn give_back(&self, state: &State, cx: &CoordinatorContext<'_>, out: Out<'_>) {
        if self.order_given || cx.now >= self.reserved_at + cx.adopted_after {
            return;
        }
        if let (State::Dispatch { fence }, Some(lease)) = (state, cx.lease) {
            let abort = AbortNotExecuted { fence: (**fence).clone(), lease };
            out.push(CoordinatorEffect::CallForgotten(abort.into()));
        }
    }

    pub(super) fn no_lease(&mut self, cx: &CoordinatorContext<'_>, out: Out<'_>) -> State {
        let kind = if cx.draining { ErrorKind::ShuttingDown } else { ErrorKind::Unavailable };
        self.fail(kind, "this host's owner lease is not live".to_owned(), out)
    }

    pub(super) fn fail(&mut self, kind: ErrorKind, description: String, out: Out<'_>) -> State {
        self.finish(Some(Answer::Failed(Error::new(kind, "create", description))), out)
    }

    pub(super) fn finish(&mut self, answer: Option<Answer>, out: Out<'_>) -> State {
        out.push(CoordinatorEffect::Finish(answer));
        State::Done
    }
}

pub(super) fn name_of(state: &State) -> &'static str {
    match state {
        State::Awaiting { .. } => "Awaiting: the attempt itself is not judged",
        State::Waiting => "Waiting: another operation's attempt goes on",
        _ => "preparation",
    }
}

pub(super) fn rejected(actor: ActorRef, reply: Option<Bytes>, cx: &CoordinatorContext<'_>) -> Answer {
    if cx.planted_rejected_existing { Answer::Existing { actor } } else { Answer::Rejected { actor, reply } }
}

/// CREATE-26, CREATE-99: the recorded result, answered anew.
pub(super) fn replayed(envelope: &TerminalEnvelope, cx: &CoordinatorContext<'_>) -> Option<Answer> {
    let actor = actor_ref(&envelope.key, envelope.object_generation, &envelope.mesh, &envelope.rid)?;
    let reply = envelope.reply.clone();
    Some(match envelope.outcome {
        TerminalOutcome::Created => Answer::Created { actor, reply },
        TerminalOutcome::Rejected => rejected(actor, reply, cx),
        TerminalOutcome::Failed(kind) => {
            Answer::Failed(Error::new(kind, "create", "the attempt failed at its target"))
        }
    })
}

/// CREATE-25. Only Actors are created in this step, so every key is an Actor's.
pub(crate) fn actor_ref(
    key: &ObjectKey,
    object_generation: ObjectGeneration,
    mesh: &MeshName,
    node: &Rid,
) -> Option<ActorRef> {
    match key {
        ObjectKey::Actor(id) => {
            Some(ActorRef { id: id.clone(), object_generation, mesh: mesh.clone(), node: node.clone() })
        }
        ObjectKey::Spot(_) => None,
    }
}
