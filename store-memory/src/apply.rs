//! The Store contract as one pure function (STORE-135).

use spotmesh::model::{LeaseRef, ObjectKey, StoreTime};
use spotmesh::store::{
    ConflictReason, LeaseState, Stamped, StoreError, StoreEvent, StoreReply, StoreRequest, StoreResult,
};

use crate::state::State;

/// Carries one operation out at Store time `now`. A failure leaves `state` as it was.
pub fn apply(state: &mut State, now: StoreTime, request: &StoreRequest) -> StoreResult {
    apply_with_hints(state, now, request).0
}

/// As [`apply`], and tells which hints the operation caused (STORE-112). Renewals and counters cause none.
pub fn apply_with_hints(
    state: &mut State,
    now: StoreTime,
    request: &StoreRequest,
) -> (StoreResult, Vec<StoreEvent>) {
    let mut tx = Tx { state, now, hints: Vec::new() };
    let result = tx.dispatch(request);
    (result, tx.hints)
}

/// One operation under way.
///
/// Every operation first checks all its preconditions through `&State` and draws from a copy of the sequences,
/// then changes the state without a way to fail.
pub(crate) struct Tx<'a> {
    pub state: &'a mut State,
    pub now: StoreTime,
    pub hints: Vec<StoreEvent>,
}

impl Tx<'_> {
    fn dispatch(&mut self, request: &StoreRequest) -> StoreResult {
        use StoreRequest as R;
        match request {
            R::AcquireLease(r) => self.acquire_lease(r),
            R::RenewLease(r) => self.renew_lease(r),
            R::ReleaseLease(r) => self.release_lease(r),
            R::ReadLease(r) => self.read_lease(r),
            R::ClaimNode(r) => self.claim_node(r),
            R::PublishDescriptor(r) => self.publish_descriptor(r),
            R::UpdateDescriptor(r) => self.update_descriptor(r),
            R::RemoveDescriptor(r) => self.remove_descriptor(r),
            R::ListDescriptors(r) => self.list_descriptors(r),
            R::ReadAuthority(r) => self.read_authority(r),
            R::ReadCreation(r) => self.read_creation(r),
            R::ReadTerminal(r) => self.read_terminal(r),
            R::ListAuthorities(r) => self.list_authorities(r),
            R::PutCreationContent(r) => self.put_creation_content(r),
            R::GetCreationContent(r) => self.get_creation_content(r),
            R::Reserve(r) => self.reserve(r),
            R::CommitCreated(r) => self.commit_created(r),
            R::CommitRejected(r) => self.commit_rejected(r),
            R::AbortFailed(r) => self.abort_failed(r),
            R::AbortNotExecuted(r) => self.abort_not_executed(r),
            R::AbortRecovery(r) => self.abort_recovery(r),
            R::ChangeMembership(r) => self.change_membership(r),
            R::BeginClose(r) => self.begin_close(r),
            R::FinishClose(r) => self.finish_close(r),
            R::FinishStaleClose(r) => self.finish_stale_close(r),
            R::RemoveOwnerRows(r) => self.remove_owner_rows(r),
            R::RetireOwner(r) => self.retire_owner(r),
            R::ReserveRelocation(r) => self.reserve_relocation(r),
            R::MarkRelocation(r) => self.mark_relocation(r),
            R::AbortRelocation(r) => self.abort_relocation(r),
            R::ClearRelocation(r) => self.clear_relocation(r),
            R::CommitRelocation(r) => self.commit_relocation(r),
            R::PutInventoryChunk(r) => self.put_inventory_chunk(r),
            R::GetInventoryChunk(r) => self.get_inventory_chunk(r),
            R::PrepareAggregate(r) => self.prepare_aggregate(r),
            R::CommitAggregate(r) => self.commit_aggregate(r),
            R::AbortAggregate(r) => self.abort_aggregate(r),
            R::CommitSpotAuthority(r) => self.commit_spot_authority(r),
            R::PutActivation(r) => self.put_activation(r),
            R::GetActivation(r) => self.get_activation(r),
            R::RecordActivationProgress(r) => self.record_activation_progress(r),
            R::ClearActivation(r) => self.clear_activation(r),
            R::ScanStaleCreating(r) => self.scan_stale_creating(r),
            R::ScanStaleClosing(r) => self.scan_stale_closing(r),
            R::ScanOwnRows(r) => self.scan_own_rows(r),
            R::Sweep(r) => self.sweep(r),
        }
    }

    /// A value stamped with the time of the operation.
    pub(crate) fn stamp<T>(&self, value: T) -> Stamped<T> {
        Stamped { value, store_now: self.now }
    }

    /// The reply of an operation without output.
    pub(crate) fn done(&self) -> StoreResult {
        Ok(StoreReply::Done(self.stamp(())))
    }

    /// The row of a key as reply.
    pub(crate) fn row(&self, key: &ObjectKey) -> StoreResult {
        match self.state.view_key(key, self.now)? {
            Some(view) => Ok(StoreReply::Row(view)),
            None => Err(StoreError::NotFound),
        }
    }

    /// A conflict showing the key's row as it stands.
    pub(crate) fn conflict(&self, reason: ConflictReason, key: &ObjectKey) -> StoreError {
        StoreError::Conflict { reason, current: self.state.view_key(key, self.now).ok().flatten() }
    }

    /// Fails unless the caller's own lease is live.
    pub(crate) fn need_live(&self, lease: LeaseRef) -> Result<(), StoreError> {
        if self.state.is_live(lease, self.now) { Ok(()) } else { Err(StoreError::LeaseLost) }
    }

    /// Fences a dead lease somebody acts on: it can never be renewed again (STORE-36).
    pub(crate) fn fence(&mut self, lease: LeaseRef) {
        if let Some(row) = self.state.leases.get_mut(&lease.owner)
            && row.lease == lease
            && row.state == LeaseState::Active
        {
            row.state = LeaseState::Fenced;
        }
    }

    /// Hints that state or owner of a key changed.
    pub(crate) fn hint(&mut self, key: &ObjectKey) {
        self.hints.push(StoreEvent::Authority(key.clone()));
    }
}
