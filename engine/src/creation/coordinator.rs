//! The coordinator of one create or get-or-create: spec 04 §4, and §6 while it waits for somebody else's attempt.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::input::{CallId, CreateMode, StoreCallId};
use crate::link::{LinkId, NodeIndex};
use crate::mark::Mark;
use crate::model::limits::{TERMINAL_RETENTION, WAITER_BACKOFF_FIRST, WAITER_BACKOFF_MAX};
use crate::model::{
    ActorRef, ContentId, Entropy, Error, ErrorKind, Instant, LeaseRef, LifecycleGeneration, MeshName,
    NodeFence, ObjectGeneration, ObjectKey, ObjectKind, OperationIdentity, ReservationId, Rid, Sha256Digest,
    StableType,
};
use crate::output::Answer;
use crate::store::{
    AbortNotExecuted, AbortRecovery, AuthorityView, ConflictReason, CreationSource, CreationView,
    Mark as RowMark, PutCreationContent, ReadCreation, ReservationFence, Reserve, StoreError, StoreReply,
    StoreRequest, StoreResult, TerminalEnvelope, TerminalOutcome,
};
use crate::wire::CreateVerdict;

/// What is to be created, fixed at submit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct CreateSpec {
    pub(crate) key: ObjectKey,
    pub(crate) kind: ObjectKind,
    pub(crate) stable_type: StableType,
    pub(crate) mode: CreateMode,
    pub(crate) request: Bytes,
}

/// The states of spec 04 §4. Data is valid in its state only.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
enum State {
    /// `read_creation` is out.
    Resolve,
    /// Waits before the next Resolve after a Store failure or a vanished reservation.
    BackingOff,
    /// Somebody else's attempt, or a close, holds the key (§6).
    Waiting,
    /// `abort(Recovery)` is out for a row whose target is gone.
    Cleanup,
    /// The host is choosing a candidate.
    Select,
    /// `put_creation_content` is out, or waits to be repeated.
    Storing { target: NodeFence, content: ContentId },
    /// `reserve` is out, or waits to be repeated unchanged (STORE-24).
    Reserving { request: Box<Reserve> },
    /// Reserved; the order has no route yet.
    Dispatch { fence: Box<ReservationFence> },
    /// The order was admitted: by the link, or by this host itself.
    Awaiting { fence: Box<ReservationFence>, link: Option<LinkId> },
    /// `abort(NotExecuted)` is out, or waits to be repeated.
    Withdraw { fence: Box<ReservationFence> },
    /// The call has its answer.
    Done,
}

/// What the coordinator is told.
#[derive(Debug, Clone)]
pub(crate) enum CoordinatorEvent {
    /// The call was submitted.
    Submitted,
    /// The Store call that is out ended.
    StoreAnswered(StoreResult),
    /// The host chose this candidate.
    Chosen(NodeFence),
    /// Types are served, but nobody fits (CREATE-18).
    NobodyFits,
    /// No serving node registers the type.
    NobodyHasType,
    /// The order was handed over, on a link or to this host (`None`).
    OrderAdmitted(Option<LinkId>),
    /// There is no ready link to the target.
    NoRoute,
    /// A link to the target became ready.
    RouteReady,
    /// The target's lifecycle ended (NODE-103).
    LifecycleEnded,
    /// A link is gone.
    LinkLost(LinkId),
    /// The target answered.
    Answered(ReservationId, CreateVerdict, Option<Bytes>),
    /// The watched key may have changed.
    Hinted,
    /// The backoff timer fired.
    BackoffFired,
    /// The operation's deadline passed.
    DeadlineFired,
    /// The caller stopped waiting.
    CallDropped,
}

/// What the coordinator wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CoordinatorEffect {
    /// Call the Store; the answer comes back as `StoreAnswered`.
    Call(StoreRequest),
    /// Call the Store; nobody waits for the answer.
    CallForgotten(StoreRequest),
    /// Choose a candidate outside `excluded`.
    Choose,
    /// Hand the order over.
    Dispatch(Box<ReservationFence>),
    /// Fire `BackoffFired` then.
    SetBackoff(Instant),
    /// Watch the key from now on.
    Watch,
    /// The call ends with this answer; `None` where nobody waits. The coordinator is done.
    Finish(Option<Answer>),
    /// A refused reservation, for observers.
    ReservationFailed(String),
    /// A branch was reached.
    Mark(Mark),
}

/// What the machine may use of its surroundings.
pub(crate) struct CoordinatorContext<'a> {
    pub(crate) now: Instant,
    pub(crate) entropy: &'a mut Entropy,
    /// The host's lease, `None` while it is unconfirmed or lost.
    pub(crate) lease: Option<LeaseRef>,
    pub(crate) draining: bool,
    /// No target adopts a row earlier than this after its reservation (CREATE-93).
    pub(crate) adopted_after: Duration,
    pub(crate) planted_retarget: bool,
    pub(crate) planted_hints_only: bool,
    pub(crate) planted_rejected_existing: bool,
    pub(crate) planted_creating_existing: bool,
}

/// One create or get-or-create (CREATE-5: one deadline, fixed at submit).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct Coordinator {
    pub(crate) operation: OperationIdentity,
    pub(crate) call: CallId,
    pub(crate) node: NodeIndex,
    pub(crate) spec: CreateSpec,
    pub(crate) deadline: Instant,
    pub(crate) excluded: BTreeSet<(Rid, LifecycleGeneration)>,
    /// The one Store call that is out; answers of others are not this operation's any more.
    pub(crate) store_call: Option<StoreCallId>,
    digest: Sha256Digest,
    /// Content that is stored as far as this operation knows.
    content: Option<ContentId>,
    backoff: Duration,
    watching: bool,
    hinted: bool,
    /// Whether a route or Store failure stood in the way, and whether anything else did (CREATE-50).
    failure_seen: bool,
    only_failures: bool,
    /// Whether the order of the current reservation may have reached its target.
    order_given: bool,
    /// When the current reservation was confirmed.
    reserved_at: Instant,
    state: State,
}

type Out<'a> = &'a mut Vec<CoordinatorEffect>;

impl Coordinator {
    pub(crate) fn new(
        operation: OperationIdentity,
        call: CallId,
        node: NodeIndex,
        spec: CreateSpec,
        deadline: Instant,
    ) -> Self {
        let digest = Sha256Digest::of(&spec.request);
        Self {
            operation,
            call,
            node,
            spec,
            deadline,
            excluded: BTreeSet::new(),
            store_call: None,
            digest,
            content: None,
            backoff: WAITER_BACKOFF_FIRST,
            watching: false,
            hinted: false,
            failure_seen: false,
            only_failures: true,
            order_given: false,
            reserved_at: Instant::ZERO,
            state: State::Resolve,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The node an order is for or on its way to.
    pub(crate) fn target(&self) -> Option<&NodeFence> {
        match &self.state {
            State::Dispatch { fence } | State::Awaiting { fence, .. } => Some(&fence.target),
            _ => None,
        }
    }

    /// The link an order was sent on.
    pub(crate) fn order_link(&self) -> Option<LinkId> {
        match &self.state {
            State::Awaiting { link, .. } => *link,
            _ => None,
        }
    }

    pub(crate) fn state_name(&self) -> &'static str {
        match &self.state {
            State::Resolve => "Resolve",
            State::BackingOff => "BackingOff",
            State::Waiting => "Waiting",
            State::Cleanup => "Cleanup",
            State::Select => "Select",
            State::Storing { .. } => "Storing",
            State::Reserving { .. } => "Reserving",
            State::Dispatch { .. } => "Dispatch",
            State::Awaiting { .. } => "Awaiting",
            State::Withdraw { .. } => "Withdraw",
            State::Done => "Done",
        }
    }

    /// One step. Events that mean nothing in a state leave it as it is.
    pub(crate) fn on(&mut self, event: CoordinatorEvent, cx: &mut CoordinatorContext<'_>, out: Out<'_>) {
        use CoordinatorEvent as E;
        use State as S;
        let state = std::mem::replace(&mut self.state, S::Done);
        self.state = match (state, event) {
            (S::Resolve, E::Submitted) => self.resolve(out),
            (S::Resolve, E::StoreAnswered(Ok(StoreReply::Creation(view)))) => self.resolved(*view, cx, out),
            (S::Resolve, E::StoreAnswered(Err(error))) => self.store_failed(&error, cx, out),
            (S::BackingOff, E::BackoffFired | E::Hinted) => self.resolve(out),
            (S::Waiting, E::BackoffFired) if cx.planted_hints_only => S::Waiting,
            (S::Waiting, E::BackoffFired | E::Hinted) => self.resolve(out), // CREATE-89
            (S::Cleanup, E::StoreAnswered(_)) => self.resolve(out),         // CREATE-34: a Conflict is fine
            (S::Select, E::Chosen(target)) => self.store_content(target, cx, out), // CREATE-37
            (S::Select, E::NobodyFits) => self.nobody(ErrorKind::Unavailable, cx, out), // CREATE-38
            (S::Select, E::NobodyHasType) => self.nobody(ErrorKind::NotFound, cx, out), // CREATE-38
            (S::Storing { target, content }, E::StoreAnswered(result)) => {
                self.content_stored(target, content, &result, cx, out)
            }
            (S::Storing { target, content }, E::BackoffFired) => {
                out.push(CoordinatorEffect::Call(self.put_content(content, cx.now)));
                S::Storing { target, content }
            }
            (S::Reserving { request }, E::StoreAnswered(result)) => self.reserved(request, result, cx, out),
            (S::Reserving { request }, E::BackoffFired) => {
                out.push(CoordinatorEffect::Call((*request).clone().into())); // CREATE-42
                S::Reserving { request }
            }
            (S::Dispatch { fence }, E::OrderAdmitted(link)) => {
                self.order_given = true;
                out.push(CoordinatorEffect::Mark(match link {
                    None => Mark::CreateLocalTarget,     // CREATE-43
                    Some(_) => Mark::CreateRemoteTarget, // CREATE-44
                }));
                S::Awaiting { fence, link }
            }
            (S::Dispatch { fence }, E::NoRoute) => self.wait_for_route(fence, cx, out), // CREATE-45
            (S::Dispatch { fence }, E::RouteReady | E::BackoffFired) => self.dispatch(fence, out),
            (S::Dispatch { .. } | S::Awaiting { .. }, E::LifecycleEnded) => self.lost_sight(cx, out), // CREATE-49
            (S::Awaiting { fence, link: Some(link) }, E::LinkLost(lost)) if link == lost => {
                self.order_lost(fence, cx, out) // CREATE-48
            }
            (S::Awaiting { fence, link }, E::Answered(reservation, verdict, reply)) => {
                if reservation == fence.reservation {
                    self.answered(fence, verdict, reply, cx, out)
                } else {
                    S::Awaiting { fence, link }
                }
            }
            (S::Withdraw { fence }, E::StoreAnswered(result)) => self.withdrawn(fence, &result, cx, out),
            (S::Withdraw { fence }, E::BackoffFired) => self.withdraw(fence, cx, out),
            (S::Done, _) => S::Done,
            (state, E::DeadlineFired) => self.deadline(state, cx, out), // CREATE-50, -51
            (state, E::CallDropped) => self.dropped(state, cx, out),    // CREATE-52
            (state, E::Hinted) => {
                self.hinted = true;
                state
            }
            // A late timer, route or answer of a state that ended.
            (state, _) => state,
        };
    }

    fn resolve(&mut self, out: Out<'_>) -> State {
        self.hinted = false;
        out.push(CoordinatorEffect::Call(
            ReadCreation { key: self.spec.key.clone(), operation: self.operation.clone() }.into(),
        ));
        State::Resolve
    }

    /// The rows of Resolve, in the order of the table.
    fn resolved(&mut self, view: CreationView, cx: &mut CoordinatorContext<'_>, out: Out<'_>) -> State {
        if let Some(record) = &view.terminal {
            out.push(CoordinatorEffect::Mark(Mark::CreateRecordReplayed));
            return self.finish(replayed(&record.envelope, cx), out); // CREATE-26
        }
        let Some(row) = view.authority.found() else {
            out.push(CoordinatorEffect::Choose);
            return State::Select; // CREATE-35
        };
        if row.kind != self.spec.kind || row.stable_type != self.spec.stable_type {
            out.push(CoordinatorEffect::Mark(Mark::CreateTypeMismatch));
            let found =
                format!("expected {}, found {:?} {}", self.spec.stable_type, row.kind, row.stable_type);
            return self.fail(ErrorKind::TypeMismatch, found, out); // CREATE-29, -85
        }
        let Some(pending) = row.pending() else { return self.ready(row, cx, out) };
        if view.abandoned().is_some() {
            let Some(lease) = cx.lease else { return self.no_lease(cx, out) };
            out.push(CoordinatorEffect::Mark(Mark::CreateCleanedByCoordinator));
            let abort = AbortRecovery { key: row.key.clone(), version: row.version, lease };
            out.push(CoordinatorEffect::Call(abort.into()));
            return State::Cleanup; // CREATE-34, -84
        }
        if pending.operation == self.operation
            && let Some(fence) = row.reservation_fence()
        {
            out.push(CoordinatorEffect::Mark(Mark::CreateOwnReservationFound));
            // Somebody may have taken it up while this operation did not know of it.
            self.order_given = true;
            return self.dispatch(Box::new(fence), out); // CREATE-33
        }
        if cx.planted_creating_existing {
            let actor = actor_ref(&row.key, row.object_generation, &row.owner.mesh, &row.owner.rid);
            return self.finish(actor.map(|actor| Answer::Existing { actor }), out);
        }
        self.wait(cx, out) // CREATE-32
    }

    fn ready(&mut self, row: &AuthorityView, cx: &mut CoordinatorContext<'_>, out: Out<'_>) -> State {
        if matches!(row.mark(), Some(RowMark::Closing(_))) {
            return self.wait(cx, out); // CREATE-31
        }
        if self.spec.mode == CreateMode::Create {
            return self.fail(ErrorKind::AlreadyExists, "the object exists".to_owned(), out); // CREATE-27, -28, -30
        }
        if !row.owner_is_live() {
            out.push(CoordinatorEffect::Mark(Mark::CreateOwnerDead));
            return self.fail(ErrorKind::Unavailable, "the object's owner is dead".to_owned(), out); // CREATE-28
        }
        out.push(CoordinatorEffect::Mark(Mark::CreateExisting));
        let actor = actor_ref(&row.key, row.object_generation, &row.owner.mesh, &row.owner.rid);
        self.finish(actor.map(|actor| Answer::Existing { actor }), out) // CREATE-27, -30, -81
    }

    fn wait(&mut self, cx: &mut CoordinatorContext<'_>, out: Out<'_>) -> State {
        out.push(CoordinatorEffect::Mark(Mark::CreateWaited));
        self.only_failures = false;
        if !self.watching {
            self.watching = true;
            out.push(CoordinatorEffect::Watch);
        }
        if self.hinted {
            return self.resolve(out);
        }
        self.back_off(cx, out);
        State::Waiting
    }

    /// Sets the backoff timer with jitter: 50 ms doubling to 1 s (spec 03 §15).
    fn back_off(&mut self, cx: &mut CoordinatorContext<'_>, out: Out<'_>) {
        let fifth = u64::try_from(self.backoff.as_nanos() / 5).unwrap_or(0);
        let wait = self.backoff - Duration::from_nanos(cx.entropy.below(fifth));
        out.push(CoordinatorEffect::SetBackoff(cx.now + wait));
        self.backoff = (self.backoff * 2).min(WAITER_BACKOFF_MAX);
    }

    fn store_failed(&mut self, error: &StoreError, cx: &mut CoordinatorContext<'_>, out: Out<'_>) -> State {
        match error {
            StoreError::DataLost | StoreError::Corrupt(_) => {
                self.fail(ErrorKind::DataLost, error.to_string(), out)
            }
            _ => {
                out.push(CoordinatorEffect::Mark(Mark::CreateStoreFailure));
                self.failure_seen = true;
                self.back_off(cx, out);
                State::BackingOff // CREATE-36, -87
            }
        }
    }

    fn store_content(&mut self, target: NodeFence, cx: &mut CoordinatorContext<'_>, out: Out<'_>) -> State {
        if let Some(content) = self.content {
            return self.reserve(target, content, cx, out);
        }
        let content = ContentId::random(cx.entropy);
        out.push(CoordinatorEffect::Call(self.put_content(content, cx.now)));
        State::Storing { target, content }
    }

    fn put_content(&self, content: ContentId, now: Instant) -> StoreRequest {
        PutCreationContent {
            content,
            bytes: self.spec.request.clone(),
            sha256: self.digest,
            retention: self.deadline.since(now) + TERMINAL_RETENTION,
        }
        .into()
    }

    fn content_stored(
        &mut self,
        target: NodeFence,
        content: ContentId,
        result: &StoreResult,
        cx: &mut CoordinatorContext<'_>,
        out: Out<'_>,
    ) -> State {
        match result {
            Ok(_) => {
                self.content = Some(content);
                self.reserve(target, content, cx, out)
            }
            Err(StoreError::Unavailable | StoreError::Indeterminate) => {
                self.failure_seen = true;
                self.back_off(cx, out);
                State::Storing { target, content }
            }
            Err(error) => self.fail(ErrorKind::InternalFailure, format!("creation content: {error}"), out),
        }
    }

    fn reserve(
        &mut self,
        target: NodeFence,
        content: ContentId,
        cx: &mut CoordinatorContext<'_>,
        out: Out<'_>,
    ) -> State {
        let Some(lease) = cx.lease else { return self.no_lease(cx, out) };
        let request = Box::new(Reserve {
            key: self.spec.key.clone(),
            kind: self.spec.kind,
            stable_type: self.spec.stable_type.clone(),
            execution_mode: None,
            target,
            reservation: ReservationId::random(cx.entropy),
            operation: self.operation.clone(),
            // The request was checked to be at most 1 MiB.
            source: CreationSource::Content(content, self.digest, self.spec.request.len() as u32),
            remaining: self.deadline.since(cx.now),
            lease,
        });
        out.push(CoordinatorEffect::Call((*request).clone().into()));
        State::Reserving { request }
    }

    fn reserved(
        &mut self,
        request: Box<Reserve>,
        result: StoreResult,
        cx: &mut CoordinatorContext<'_>,
        out: Out<'_>,
    ) -> State {
        match result {
            Ok(StoreReply::Reserved(fence)) => {
                self.order_given = false;
                self.reserved_at = cx.now;
                self.dispatch(fence.value, out) // CREATE-39
            }
            Err(StoreError::CapacityExceeded(component)) => {
                self.exclude(&request.target, format!("capacity: {component:?}"), out) // CREATE-40
            }
            Err(error) if error.conflict_reason() == Some(ConflictReason::TargetNotEligible) => {
                self.exclude(&request.target, "target not eligible".to_owned(), out) // CREATE-40
            }
            Err(StoreError::Conflict { .. }) => {
                out.push(CoordinatorEffect::Mark(Mark::CreateReserveLost));
                self.resolve(out) // CREATE-41
            }
            // Content may have been taken by a recovery of an earlier attempt of this operation.
            Err(StoreError::NotFound) => {
                self.content = None;
                self.store_content(request.target.clone(), cx, out)
            }
            Err(StoreError::Indeterminate | StoreError::Unavailable) => {
                out.push(CoordinatorEffect::Mark(Mark::CreateReserveIndeterminate));
                self.failure_seen = true;
                self.back_off(cx, out);
                State::Reserving { request } // CREATE-42
            }
            Err(StoreError::LeaseLost) => self.no_lease(cx, out),
            Err(StoreError::DataLost | StoreError::Corrupt(_)) => {
                self.fail(ErrorKind::DataLost, "creation content".to_owned(), out)
            }
            Err(error) => self.fail(ErrorKind::InternalFailure, format!("reserve: {error}"), out), // ERR-16
            Ok(other) => self.fail(ErrorKind::InternalFailure, format!("reserve answered {other:?}"), out),
        }
    }

    fn exclude(&mut self, target: &NodeFence, reason: String, out: Out<'_>) -> State {
        out.push(CoordinatorEffect::Mark(Mark::CreateCandidateExcluded));
        out.push(CoordinatorEffect::ReservationFailed(reason));
        self.excluded.insert((target.rid.clone(), target.lifecycle));
        out.push(CoordinatorEffect::Choose);
        State::Select
    }

    fn dispatch(&mut self, fence: Box<ReservationFence>, out: Out<'_>) -> State {
        out.push(CoordinatorEffect::Dispatch(fence.clone()));
        State::Dispatch { fence }
    }

    fn wait_for_route(
        &mut self,
        fence: Box<ReservationFence>,
        cx: &mut CoordinatorContext<'_>,
        out: Out<'_>,
    ) -> State {
        out.push(CoordinatorEffect::Mark(Mark::CreateWaitedForRoute));
        self.failure_seen = true;
        self.back_off(cx, out);
        State::Dispatch { fence }
    }

    fn order_lost(
        &mut self,
        fence: Box<ReservationFence>,
        cx: &mut CoordinatorContext<'_>,
        out: Out<'_>,
    ) -> State {
        out.push(CoordinatorEffect::Mark(Mark::CreateOrderResent));
        if cx.planted_retarget {
            self.excluded.insert((fence.target.rid.clone(), fence.target.lifecycle));
            return self.withdraw(fence, cx, out);
        }
        self.dispatch(fence, out)
    }

    fn lost_sight(&mut self, cx: &mut CoordinatorContext<'_>, out: Out<'_>) -> State {
        out.push(CoordinatorEffect::Mark(Mark::CreateReservationGone));
        self.back_off(cx, out);
        // The end of that attempt removed its content; whether it ran is unknown (CREATE-55).
        self.content = None;
        State::BackingOff
    }

    fn answered(
        &mut self,
        fence: Box<ReservationFence>,
        verdict: CreateVerdict,
        reply: Option<Bytes>,
        cx: &mut CoordinatorContext<'_>,
        out: Out<'_>,
    ) -> State {
        let target = &fence.target;
        match verdict {
            CreateVerdict::Created { object_generation } => {
                let actor = actor_ref(&fence.key, object_generation, &target.mesh, &target.rid);
                self.finish(actor.map(|actor| Answer::Created { actor, reply }), out) // CREATE-47
            }
            CreateVerdict::Rejected { object_generation } => {
                let actor = actor_ref(&fence.key, object_generation, &target.mesh, &target.rid);
                self.finish(actor.map(|actor| rejected(actor, reply, cx)), out) // CREATE-47
            }
            CreateVerdict::Failed(kind) => {
                self.fail(kind, "the attempt failed at its target".to_owned(), out)
            }
            CreateVerdict::NotAdmitted => {
                self.excluded.insert((target.rid.clone(), target.lifecycle));
                self.withdraw(fence, cx, out) // CREATE-46
            }
            CreateVerdict::ReservationGone | CreateVerdict::Unavailable => self.lost_sight(cx, out), // CREATE-49
        }
    }

    fn withdraw(
        &mut self,
        fence: Box<ReservationFence>,
        cx: &mut CoordinatorContext<'_>,
        out: Out<'_>,
    ) -> State {
        let Some(lease) = cx.lease else { return self.no_lease(cx, out) };
        out.push(CoordinatorEffect::Mark(Mark::CreateWithdrawn));
        out.push(CoordinatorEffect::Call(AbortNotExecuted { fence: (*fence).clone(), lease }.into()));
        State::Withdraw { fence }
    }

    fn withdrawn(
        &mut self,
        fence: Box<ReservationFence>,
        result: &StoreResult,
        cx: &mut CoordinatorContext<'_>,
        out: Out<'_>,
    ) -> State {
        match result {
            Ok(_) => {
                self.content = None;
                self.only_failures = false;
                out.push(CoordinatorEffect::Choose);
                State::Select
            }
            Err(StoreError::Unavailable | StoreError::Indeterminate) => {
                self.back_off(cx, out);
                State::Withdraw { fence }
            }
            Err(StoreError::LeaseLost) => self.no_lease(cx, out),
            // The target took the reservation up after all, or somebody recovered it: read what became of it.
            Err(_) => {
                self.content = None;
                self.resolve(out)
            }
        }
    }

    fn nobody(&mut self, kind: ErrorKind, _cx: &mut CoordinatorContext<'_>, out: Out<'_>) -> State {
        out.push(CoordinatorEffect::Mark(Mark::CreateNoCandidate));
        let found = match kind {
            ErrorKind::NotFound => format!("no serving node registers {}", self.spec.stable_type),
            _ => format!("no eligible candidate left, {} excluded", self.excluded.len()),
        };
        self.fail(kind, found, out)
    }

    fn deadline(&mut self, state: State, cx: &mut CoordinatorContext<'_>, out: Out<'_>) -> State {
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

    fn dropped(&mut self, state: State, cx: &mut CoordinatorContext<'_>, out: Out<'_>) -> State {
        out.push(CoordinatorEffect::Mark(Mark::CreateCancelled));
        self.give_back(&state, cx, out);
        self.finish(None, out)
    }

    /// CREATE-50: a reservation is given back, best effort, while it is certain that no factory started for it:
    /// its order was never handed over, and its target cannot have adopted it yet (STORE-68).
    fn give_back(&self, state: &State, cx: &CoordinatorContext<'_>, out: Out<'_>) {
        if self.order_given || cx.now >= self.reserved_at + cx.adopted_after {
            return;
        }
        if let (State::Dispatch { fence }, Some(lease)) = (state, cx.lease) {
            let abort = AbortNotExecuted { fence: (**fence).clone(), lease };
            out.push(CoordinatorEffect::CallForgotten(abort.into()));
        }
    }

    fn no_lease(&mut self, cx: &CoordinatorContext<'_>, out: Out<'_>) -> State {
        let kind = if cx.draining { ErrorKind::ShuttingDown } else { ErrorKind::Unavailable };
        self.fail(kind, "this host's owner lease is not live".to_owned(), out)
    }

    fn fail(&mut self, kind: ErrorKind, description: String, out: Out<'_>) -> State {
        self.finish(Some(Answer::Failed(Error::new(kind, "create", description))), out)
    }

    fn finish(&mut self, answer: Option<Answer>, out: Out<'_>) -> State {
        out.push(CoordinatorEffect::Finish(answer));
        State::Done
    }

    /// Whether the key is watched.
    pub(crate) fn is_watching(&self) -> bool {
        self.watching
    }
}

fn name_of(state: &State) -> &'static str {
    match state {
        State::Awaiting { .. } => "Awaiting: the attempt itself is not judged",
        State::Waiting => "Waiting: another operation's attempt goes on",
        _ => "preparation",
    }
}

fn rejected(actor: ActorRef, reply: Option<Bytes>, cx: &CoordinatorContext<'_>) -> Answer {
    if cx.planted_rejected_existing { Answer::Existing { actor } } else { Answer::Rejected { actor, reply } }
}

/// CREATE-26, CREATE-99: the recorded result, answered anew.
fn replayed(envelope: &TerminalEnvelope, cx: &CoordinatorContext<'_>) -> Option<Answer> {
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
