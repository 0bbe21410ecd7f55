//! Select and Reserving: content first, then one reservation at a time (CREATE-37..42).

use crate::mark::Mark;
use crate::model::limits::TERMINAL_RETENTION;
use crate::model::{ContentId, ErrorKind, Instant, NodeFence, ReservationId};
use crate::store::{
    ConflictReason, CreationSource, PutCreationContent, Reserve, StoreError, StoreReply, StoreRequest,
    StoreResult,
};

use super::{Coordinator, CoordinatorContext, CoordinatorEffect, Out, State};

impl Coordinator {
    pub(super) fn store_content(
        &mut self,
        target: NodeFence,
        cx: &mut CoordinatorContext<'_>,
        out: Out<'_>,
    ) -> State {
        if let Some(content) = self.content {
            return self.reserve(target, content, cx, out);
        }
        let content = ContentId::random(cx.entropy);
        out.push(CoordinatorEffect::Call(self.put_content(content, cx.now)));
        State::Storing { target, content }
    }

    pub(super) fn put_content(&self, content: ContentId, now: Instant) -> StoreRequest {
        PutCreationContent {
            content,
            bytes: self.spec.request.clone(),
            sha256: self.digest,
            retention: self.deadline.since(now) + TERMINAL_RETENTION,
        }
        .into()
    }

    pub(super) fn content_stored(
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

    pub(super) fn reserve(
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

    pub(super) fn reserved(
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

    pub(super) fn exclude(&mut self, target: &NodeFence, reason: String, out: Out<'_>) -> State {
        out.push(CoordinatorEffect::Mark(Mark::CreateCandidateExcluded));
        out.push(CoordinatorEffect::ReservationFailed(reason));
        self.excluded.insert((target.rid.clone(), target.lifecycle));
        out.push(CoordinatorEffect::Choose);
        State::Select
    }
}
