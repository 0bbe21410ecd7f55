//! One attempt at its target: spec 04 §5.

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::input::{InstanceId, StoreCallId, TurnEnd, TurnId};
use crate::link::{LinkId, NodeIndex};
use crate::mark::Mark;
use crate::model::limits::{CREATION_REQUEST_MAX, WAITER_BACKOFF_FIRST, WAITER_BACKOFF_MAX};
use crate::model::{
    ContentId, ErrorKind, Instant, LeaseRef, ObjectKind, OperationId, OperationIdentity, Sha256Digest,
    SpotId, StableType,
};
use crate::store::{
    AbortFailed, AbortNotExecuted, AuthorityState, CommitCreated, CommitRejected, CreationSource,
    CreationView, GetCreationContent, ReadCreation, ReservationFence, StoreError, StoreReply, StoreRequest,
    StoreResult, TerminalEnvelope, TerminalOutcome,
};
use crate::wire::CreateVerdict;

/// Where an answer goes (CREATE-74: once per attached route).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub(crate) enum AnswerRoute {
    /// A coordinator of this host.
    Local(OperationId),
    /// The link an order came on, and the operation it named.
    Remote(LinkId, OperationIdentity),
}

/// What an attempt writes to the Store when its application code has decided.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
enum Verdict {
    Created {
        envelope: TerminalEnvelope,
    },
    Rejected {
        envelope: TerminalEnvelope,
    },
    Failed {
        envelope: TerminalEnvelope,
        kind: ErrorKind,
    },
    /// Nothing of the application ran (CREATE-69, CREATE-93).
    NotExecuted,
}

/// The states of spec 04 §5.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
enum State {
    /// `read_creation` is out.
    Verify,
    /// `get_creation_content` is out, or waits to be repeated.
    Loading { content: ContentId, digest: Sha256Digest, size: u32 },
    /// Application code runs on the staging instance.
    Running { instance: InstanceId, turn: TurnId },
    /// Committing, Rejecting or Aborting: the write is out, or waits to be repeated unchanged (CREATE-71).
    Settling { instance: Option<InstanceId>, verdict: Verdict },
    /// Conflict or a lost lease: the row is re-read to see whether the own result is recorded (CREATE-72).
    Reviewing { instance: Option<InstanceId>, verdict: Verdict },
    /// Answered.
    Done,
}

/// What an attempt is told.
#[derive(Debug, Clone)]
pub(crate) enum AttemptEvent {
    /// The attempt was registered: by an order, or by adoption (CREATE-93).
    Started,
    /// The Store call that is out ended.
    StoreAnswered(StoreResult),
    /// The host had room for it and started the turn.
    Running(InstanceId, TurnId),
    /// The host is at its pending-activation limit (CREATE-62).
    AtLimit,
    /// The turn ended.
    TurnEnded(TurnEnd),
    /// The attempt's deadline passed.
    DeadlineFired,
    /// The backoff timer fired.
    BackoffFired,
}

/// What an attempt wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AttemptEffect {
    /// Call the Store; the answer comes back as `StoreAnswered`.
    Call(StoreRequest),
    /// Accept the attempt if the pending-activation limit allows (CREATE-20); report `Running` or `AtLimit`
    /// after `Admitted`.
    Admit,
    /// Start the application's turn on a new staging instance with this request; report `Running`.
    Run { request: Bytes, remaining: Duration },
    /// Stop waiting for the turn (CREATE-68).
    Abandon(TurnId),
    /// Fire `DeadlineFired` then.
    SetDeadline(Instant),
    /// Fire `BackoffFired` then.
    SetBackoff(Instant),
    /// Register the local route and open admission (CREATE-70).
    Open(InstanceId),
    /// Drop the staging instance.
    Dispose(InstanceId),
    /// Answer every attached route and forget the attempt.
    Answer(CreateVerdict, Option<Bytes>),
    /// A branch was reached.
    Mark(Mark),
}

/// What the machine may use of its surroundings.
pub(crate) struct AttemptContext<'a> {
    pub(crate) now: Instant,
    /// The host's lease, `None` once it is lost.
    pub(crate) lease: Option<LeaseRef>,
    /// Whether the local admission deadline lies ahead (STORE-34).
    pub(crate) admits: bool,
    pub(crate) entry_spot: Option<&'a SpotId>,
    pub(crate) guesses_failed: bool,
    pub(crate) guesses_succeeded: bool,
}

/// One attempt by (key, ObjectGeneration, ReservationId), all three in the fence.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct Attempt {
    pub(crate) fence: ReservationFence,
    pub(crate) operation: OperationIdentity,
    pub(crate) kind: ObjectKind,
    pub(crate) stable_type: StableType,
    pub(crate) node: NodeIndex,
    pub(crate) routes: Vec<AnswerRoute>,
    /// Found by the own-row scan, not ordered (CREATE-93).
    pub(crate) adopted: bool,
    /// An earlier order for it was refused here at the limit (CREATE-62).
    pub(crate) refused: bool,
    /// Whether it counts against the pending-activation limit.
    pub(crate) accepted: bool,
    /// The one Store call that is out.
    pub(crate) store_call: Option<StoreCallId>,
    deadline: Option<Instant>,
    backoff: Duration,
    state: State,
}

type Out<'a> = &'a mut Vec<AttemptEffect>;

impl Attempt {
    pub(crate) fn new(
        fence: ReservationFence,
        operation: OperationIdentity,
        kind: ObjectKind,
        stable_type: StableType,
        node: NodeIndex,
        route: Option<AnswerRoute>,
    ) -> Self {
        Self {
            fence,
            operation,
            kind,
            stable_type,
            node,
            adopted: route.is_none(),
            routes: route.into_iter().collect(),
            refused: false,
            accepted: false,
            store_call: None,
            deadline: None,
            backoff: WAITER_BACKOFF_FIRST,
            state: State::Verify,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether the object may become Ready any moment: messages for it are held, not refused.
    pub(crate) fn is_committing(&self) -> bool {
        matches!(
            &self.state,
            State::Settling { verdict: Verdict::Created { .. }, .. }
                | State::Reviewing { verdict: Verdict::Created { .. }, .. }
        )
    }

    /// The staging instance, if one exists.
    pub(crate) fn instance(&self) -> Option<InstanceId> {
        match &self.state {
            State::Running { instance, .. } => Some(*instance),
            State::Settling { instance, .. } | State::Reviewing { instance, .. } => *instance,
            _ => None,
        }
    }

    pub(crate) fn turn(&self) -> Option<TurnId> {
        match &self.state {
            State::Running { turn, .. } => Some(*turn),
            _ => None,
        }
    }

    pub(crate) fn state_name(&self) -> &'static str {
        match &self.state {
            State::Verify => "Verify",
            State::Loading { .. } => "Loading",
            State::Running { .. } => "Running",
            State::Settling { verdict: Verdict::Created { .. }, .. } => "Committing",
            State::Settling { verdict: Verdict::Rejected { .. }, .. } => "Rejecting",
            State::Settling { .. } => "Aborting",
            State::Reviewing { .. } => "Reviewing",
            State::Done => "Done",
        }
    }

    /// One step. Events that mean nothing in a state leave it as it is.
    pub(crate) fn on(&mut self, event: AttemptEvent, cx: &AttemptContext<'_>, out: Out<'_>) {
        use AttemptEvent as E;
        use State as S;
        let state = std::mem::replace(&mut self.state, S::Done);
        self.state = match (state, event) {
            (S::Verify, E::Started) => self.read(out), // CREATE-56
            (S::Verify, E::StoreAnswered(Ok(StoreReply::Creation(view)))) => self.verified(*view, cx, out),
            (S::Verify, E::StoreAnswered(Err(_))) => self.unreadable(cx, out),
            (S::Verify, E::BackoffFired) => self.read(out),
            (S::Loading { .. }, E::AtLimit) => self.not_admitted(out), // CREATE-62
            (S::Loading { content, digest, size }, E::StoreAnswered(result)) => {
                self.loaded((content, digest, size), result, cx, out)
            }
            (S::Loading { content, digest, size }, E::BackoffFired) => {
                out.push(AttemptEffect::Call(GetCreationContent { content }.into()));
                S::Loading { content, digest, size }
            }
            (S::Loading { .. }, E::Running(instance, turn)) => S::Running { instance, turn }, // CREATE-64
            (S::Loading { .. }, E::DeadlineFired) => {
                out.push(AttemptEffect::Mark(Mark::AttemptTimedOut));
                self.failed(None, ErrorKind::DeadlineExceeded, cx, out) // CREATE-68
            }
            (S::Running { instance, .. }, E::TurnEnded(end)) => self.decided(instance, end, cx, out),
            (S::Running { instance, turn }, E::DeadlineFired) => {
                out.push(AttemptEffect::Abandon(turn));
                out.push(AttemptEffect::Mark(Mark::AttemptTimedOut));
                self.failed(Some(instance), ErrorKind::DeadlineExceeded, cx, out) // CREATE-68
            }
            (S::Settling { instance, verdict }, E::StoreAnswered(result)) => {
                self.settled(instance, verdict, result, cx, out)
            }
            (S::Settling { instance, verdict }, E::BackoffFired) => self.settle(instance, verdict, cx, out),
            (S::Reviewing { instance, verdict }, E::StoreAnswered(result)) => {
                self.reviewed(instance, verdict, result, cx, out)
            }
            (S::Reviewing { instance, verdict }, E::BackoffFired) => {
                out.push(AttemptEffect::Call(self.read_request()));
                S::Reviewing { instance, verdict }
            }
            // A late timer, answer or turn of a state that ended.
            (state, _) => state,
        };
    }

    fn read_request(&self) -> StoreRequest {
        ReadCreation { key: self.fence.key.clone(), operation: self.operation.clone() }.into()
    }

    fn read(&mut self, out: Out<'_>) -> State {
        out.push(AttemptEffect::Call(self.read_request()));
        State::Verify
    }

    fn unreadable(&mut self, cx: &AttemptContext<'_>, out: Out<'_>) -> State {
        self.back_off(cx, out);
        State::Verify
    }

    fn back_off(&mut self, cx: &AttemptContext<'_>, out: Out<'_>) {
        out.push(AttemptEffect::SetBackoff(cx.now + self.backoff));
        self.backoff = (self.backoff * 2).min(WAITER_BACKOFF_MAX);
    }

    /// The rows of Verify, in the order of the table.
    fn verified(&mut self, view: CreationView, cx: &AttemptContext<'_>, out: Out<'_>) -> State {
        if let Some(record) = &view.terminal {
            out.push(AttemptEffect::Mark(Mark::AttemptAnsweredFromRecord));
            return self.replay(&record.envelope, out); // CREATE-59
        }
        let row = view.authority.found();
        let Some((row, pending)) = row.and_then(|row| Some((row, row.pending()?))) else {
            out.push(AttemptEffect::Mark(Mark::AttemptReservationGone));
            return self.answer(CreateVerdict::ReservationGone, None, out); // CREATE-60
        };
        if pending.reservation != self.fence.reservation {
            out.push(AttemptEffect::Mark(Mark::AttemptReservationGone));
            return self.answer(CreateVerdict::ReservationGone, None, out); // CREATE-60
        }
        if row.reservation_fence().as_ref() != Some(&self.fence) || pending.operation != self.operation {
            out.push(AttemptEffect::Mark(Mark::AttemptStaleFence));
            return self.answer(CreateVerdict::Unavailable, None, out); // CREATE-61
        }
        let remaining = pending.deadline_at.since(view.store_now);
        if self.adopted && (self.refused || (self.routes.is_empty() && remaining.is_zero())) {
            out.push(AttemptEffect::Mark(Mark::AttemptAdoptionRefused));
            return self.settle(None, Verdict::NotExecuted, cx, out); // CREATE-93
        }
        let deadline = cx.now + remaining;
        self.deadline = Some(deadline);
        let CreationSource::Content(content, digest, size) = pending.source else {
            return self.settle(None, Verdict::NotExecuted, cx, out); // CREATE-69: no Actor has such a source
        };
        out.push(AttemptEffect::SetDeadline(deadline));
        out.push(AttemptEffect::Admit);
        out.push(AttemptEffect::Call(GetCreationContent { content }.into()));
        State::Loading { content, digest, size } // CREATE-57
    }

    fn not_admitted(&mut self, out: Out<'_>) -> State {
        out.push(AttemptEffect::Mark(Mark::AttemptNotAdmitted));
        self.answer(CreateVerdict::NotAdmitted, None, out)
    }

    fn loaded(
        &mut self,
        (content, digest, size): (ContentId, Sha256Digest, u32),
        result: StoreResult,
        cx: &AttemptContext<'_>,
        out: Out<'_>,
    ) -> State {
        match result {
            Ok(StoreReply::Content(found))
                if found.value.bytes.len() == size as usize
                    && Sha256Digest::of(&found.value.bytes) == digest =>
            {
                let remaining = self.deadline.map_or(Duration::ZERO, |deadline| deadline.since(cx.now));
                out.push(AttemptEffect::Run { request: found.value.bytes, remaining });
                State::Loading { content, digest, size }
            }
            Ok(_) | Err(StoreError::NotFound | StoreError::DataLost | StoreError::Corrupt(_)) => {
                out.push(AttemptEffect::Mark(Mark::AttemptContentLost));
                self.failed(None, ErrorKind::DataLost, cx, out) // CREATE-63
            }
            Err(_) => {
                self.back_off(cx, out);
                State::Loading { content, digest, size }
            }
        }
    }

    fn decided(
        &mut self,
        instance: InstanceId,
        end: TurnEnd,
        cx: &AttemptContext<'_>,
        out: Out<'_>,
    ) -> State {
        match end {
            TurnEnd::Accepted { reply } if fits(reply.as_ref()) => {
                let envelope = self.envelope(TerminalOutcome::Created, reply);
                self.settle(Some(instance), Verdict::Created { envelope }, cx, out) // CREATE-65
            }
            TurnEnd::Declined { reply } if fits(reply.as_ref()) => {
                out.push(AttemptEffect::Mark(Mark::AttemptRejected));
                let envelope = self.envelope(TerminalOutcome::Rejected, reply);
                self.settle(Some(instance), Verdict::Rejected { envelope }, cx, out) // CREATE-66
            }
            TurnEnd::Accepted { .. } | TurnEnd::Declined { .. } | TurnEnd::Undecodable => {
                self.failed(Some(instance), ErrorKind::ProtocolError, cx, out) // CREATE-22
            }
            TurnEnd::Failed(_) | TurnEnd::Panicked | TurnEnd::NoHandler | TurnEnd::Handled { .. } => {
                out.push(AttemptEffect::Mark(Mark::AttemptFailed));
                self.failed(Some(instance), ErrorKind::InternalFailure, cx, out) // CREATE-67, CREATE-22
            }
        }
    }

    fn failed(
        &mut self,
        instance: Option<InstanceId>,
        kind: ErrorKind,
        cx: &AttemptContext<'_>,
        out: Out<'_>,
    ) -> State {
        if let Some(instance) = instance {
            out.push(AttemptEffect::Dispose(instance));
        }
        let envelope = self.envelope(TerminalOutcome::Failed(kind), None);
        self.settle(None, Verdict::Failed { envelope, kind }, cx, out)
    }

    fn envelope(&self, outcome: TerminalOutcome, reply: Option<Bytes>) -> TerminalEnvelope {
        TerminalEnvelope {
            outcome,
            key: self.fence.key.clone(),
            object_generation: self.fence.object_generation,
            mesh: self.fence.target.mesh.clone(),
            rid: self.fence.target.rid.clone(),
            reply,
        }
    }

    /// Sends the frozen result to the Store; the same request every time (STORE-24).
    fn settle(
        &mut self,
        instance: Option<InstanceId>,
        verdict: Verdict,
        cx: &AttemptContext<'_>,
        out: Out<'_>,
    ) -> State {
        let Some(lease) = cx.lease else { return self.discard(instance, out) };
        if !cx.admits {
            // STORE-34: nothing is committed past the deadline; the lease may still be renewed.
            self.back_off(cx, out);
            return State::Settling { instance, verdict };
        }
        let fence = self.fence.clone();
        let request: StoreRequest = match &verdict {
            Verdict::Created { envelope } => CommitCreated {
                fence,
                lease,
                envelope: Some(envelope.clone()),
                entry_spot_id: cx.entry_spot.cloned(),
            }
            .into(),
            Verdict::Rejected { envelope } => {
                CommitRejected { fence, lease, envelope: envelope.clone() }.into()
            }
            Verdict::Failed { envelope, .. } => {
                AbortFailed { fence, lease, envelope: Some(envelope.clone()) }.into()
            }
            Verdict::NotExecuted => AbortNotExecuted { fence, lease }.into(),
        };
        out.push(AttemptEffect::Call(request));
        State::Settling { instance, verdict }
    }

    fn settled(
        &mut self,
        instance: Option<InstanceId>,
        verdict: Verdict,
        result: StoreResult,
        cx: &AttemptContext<'_>,
        out: Out<'_>,
    ) -> State {
        match result {
            Ok(_) => self.complete(instance, verdict, out), // CREATE-70
            Err(StoreError::Indeterminate | StoreError::Unavailable) if cx.guesses_succeeded => {
                self.complete(instance, verdict, out)
            }
            Err(StoreError::Indeterminate | StoreError::Unavailable) if cx.guesses_failed => {
                self.discard(instance, out)
            }
            Err(StoreError::Indeterminate | StoreError::Unavailable) => {
                out.push(AttemptEffect::Mark(Mark::AttemptSettled));
                self.back_off(cx, out);
                State::Settling { instance, verdict } // CREATE-71
            }
            Err(_) => {
                out.push(AttemptEffect::Call(self.read_request()));
                State::Reviewing { instance, verdict } // CREATE-72
            }
        }
    }

    /// CREATE-72: the record of this identity and reservation is the own result; anything else is not.
    fn reviewed(
        &mut self,
        instance: Option<InstanceId>,
        verdict: Verdict,
        result: StoreResult,
        cx: &AttemptContext<'_>,
        out: Out<'_>,
    ) -> State {
        let view = match result {
            Ok(StoreReply::Creation(view)) => view,
            Ok(_) | Err(StoreError::DataLost | StoreError::Corrupt(_)) => {
                return self.discard(instance, out);
            }
            Err(_) => {
                self.back_off(cx, out);
                return State::Reviewing { instance, verdict };
            }
        };
        let own = view.terminal.as_ref().is_some_and(|record| record.reservation == self.fence.reservation);
        if !own {
            let waiting = view.authority.found().and_then(|row| row.reservation_fence());
            if cx.lease.is_some() && waiting.as_ref() == Some(&self.fence) {
                // The lease had run out and was not fenced: the frozen result still counts once it is renewed.
                self.back_off(cx, out);
                return State::Settling { instance, verdict };
            }
            return self.discard(instance, out);
        }
        out.push(AttemptEffect::Mark(Mark::AttemptFoundOwnResult));
        let ready = view.authority.found().filter(|row| {
            row.object_generation == self.fence.object_generation
                && matches!(row.state, AuthorityState::Ready(_))
                && Some(row.owner.lease) == cx.lease
        });
        match (&verdict, ready) {
            (Verdict::Created { .. }, None) => self.discard(instance, out),
            _ => self.complete(instance, verdict, out),
        }
    }

    fn complete(&mut self, instance: Option<InstanceId>, verdict: Verdict, out: Out<'_>) -> State {
        let object_generation = self.fence.object_generation;
        match verdict {
            Verdict::Created { envelope } => {
                out.extend(instance.map(AttemptEffect::Open));
                self.answer(CreateVerdict::Created { object_generation }, envelope.reply, out)
            }
            Verdict::Rejected { envelope } => {
                out.extend(instance.map(AttemptEffect::Dispose));
                self.answer(CreateVerdict::Rejected { object_generation }, envelope.reply, out)
            }
            Verdict::Failed { kind, .. } => self.answer(CreateVerdict::Failed(kind), None, out),
            Verdict::NotExecuted => self.answer(CreateVerdict::Unavailable, None, out),
        }
    }

    fn replay(&mut self, envelope: &TerminalEnvelope, out: Out<'_>) -> State {
        let object_generation = envelope.object_generation;
        let verdict = match envelope.outcome {
            TerminalOutcome::Created => CreateVerdict::Created { object_generation },
            TerminalOutcome::Rejected => CreateVerdict::Rejected { object_generation },
            TerminalOutcome::Failed(kind) => CreateVerdict::Failed(kind),
        };
        self.answer(verdict, envelope.reply.clone(), out)
    }

    fn discard(&mut self, instance: Option<InstanceId>, out: Out<'_>) -> State {
        out.push(AttemptEffect::Mark(Mark::AttemptDiscarded));
        out.extend(instance.map(AttemptEffect::Dispose));
        self.answer(CreateVerdict::Unavailable, None, out) // CREATE-73
    }

    fn answer(&mut self, verdict: CreateVerdict, reply: Option<Bytes>, out: Out<'_>) -> State {
        out.push(AttemptEffect::Answer(verdict, reply));
        State::Done // CREATE-74
    }
}

/// CREATE-22: a reply that does not fit the record fails the attempt. 2 KiB cover everything beside the reply.
fn fits(reply: Option<&Bytes>) -> bool {
    reply.is_none_or(|reply| reply.len() <= CREATION_REQUEST_MAX - 2_048)
}
