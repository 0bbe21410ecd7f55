//! Dispatch, Awaiting and Withdraw: the order and its answer (CREATE-43..49).

use bytes::Bytes;

use crate::mark::Mark;
use crate::output::Answer;
use crate::store::{AbortNotExecuted, ReservationFence, StoreError, StoreResult};
use crate::wire::CreateVerdict;

use super::ending::{actor_ref, rejected};
use super::{Coordinator, CoordinatorContext, CoordinatorEffect, Out, State};

impl Coordinator {
    pub(super) fn dispatch(&mut self, fence: Box<ReservationFence>, out: Out<'_>) -> State {
        out.push(CoordinatorEffect::Dispatch(fence.clone()));
        State::Dispatch { fence }
    }

    pub(super) fn wait_for_route(
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

    pub(super) fn order_lost(
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

    pub(super) fn lost_sight(&mut self, cx: &mut CoordinatorContext<'_>, out: Out<'_>) -> State {
        out.push(CoordinatorEffect::Mark(Mark::CreateReservationGone));
        self.back_off(cx, out);
        // The end of that attempt removed its content; whether it ran is unknown (CREATE-55).
        self.content = None;
        State::BackingOff
    }

    pub(super) fn answered(
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

    pub(super) fn withdraw(
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

    pub(super) fn withdrawn(
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
}
