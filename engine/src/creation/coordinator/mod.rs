//! The coordinator of one create or get-or-create: spec 04 §4, and §6 while it waits for somebody else's attempt.

mod ending;
mod order;
mod reserving;
mod resolving;

pub(crate) use ending::actor_ref;

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::input::{CallId, CreateMode, StoreCallId};
use crate::link::{LinkId, NodeIndex};
use crate::mark::Mark;
use crate::model::limits::WAITER_BACKOFF_FIRST;
use crate::model::{
    ContentId, Entropy, ErrorKind, Instant, LeaseRef, LifecycleGeneration, NodeFence, ObjectKey, ObjectKind,
    OperationIdentity, ReservationId, Rid, Sha256Digest, StableType,
};
use crate::output::Answer;
use crate::store::{ReservationFence, Reserve, StoreReply, StoreRequest, StoreResult};
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

    /// Whether the key is watched.
    pub(crate) fn is_watching(&self) -> bool {
        self.watching
    }
}
