//! Creation (STORE-64..69).

use spotmesh::model::limits::{CREATION_REQUEST_MAX, TERMINAL_RETENTION};
use spotmesh::model::{
    AggregateGeneration, HostState, LeaseRef, NodeFence, ObjectKey, ObjectKind, Sha256Digest, SpotId,
    SpotKind,
};
use spotmesh::store::{
    AbortFailed, AbortNotExecuted, AbortRecovery, CommitCreated, CommitRejected, ConflictReason,
    CreationSource, PendingCreation, ReadyObject, ReservationFence, Reserve, StoreError, StoreReply,
    StoreResult, TerminalEnvelope, TerminalOutcome, TerminalRecord,
};

use crate::apply::Tx;
use crate::capacity::Change;
use crate::state::{Member, Members, Phase, Ready, Row};

fn invalid(text: String) -> StoreError {
    StoreError::InvalidArgument(text)
}

fn check_reserve(r: &Reserve) -> Result<(), StoreError> {
    if !r.key.fits(r.kind) || r.kind == ObjectKind::Spot(SpotKind::Entry) {
        return Err(invalid(format!(
            "reserve: expected the kind of a creatable {}, found {:?}",
            r.key, r.kind
        )));
    }
    if r.execution_mode.is_some() != (r.kind == ObjectKind::Spot(SpotKind::User)) {
        return Err(invalid(format!(
            "reserve: expected an execution mode exactly for a User Spot, found {:?} for {:?}",
            r.execution_mode, r.kind
        )));
    }
    let activates = matches!(r.source, CreationSource::Activation(..));
    if activates != (r.kind == ObjectKind::Spot(SpotKind::Instance)) {
        return Err(invalid(format!(
            "reserve: expected an activation record exactly for an Instance Spot, found {:?} for {:?}",
            r.source, r.kind
        )));
    }
    Ok(())
}

/// Checks an answer against the reservation it ends.
fn check_envelope(
    envelope: &TerminalEnvelope,
    fence: &ReservationFence,
    outcome: fn(&TerminalOutcome) -> bool,
) -> Result<(), StoreError> {
    if !outcome(&envelope.outcome) {
        return Err(invalid(format!("envelope: its outcome is {:?}", envelope.outcome)));
    }
    let names = (&envelope.key, envelope.object_generation, &envelope.mesh, &envelope.rid);
    let expected = (&fence.key, fence.object_generation, &fence.target.mesh, &fence.target.rid);
    if names != expected {
        return Err(invalid(format!("envelope: expected the object {expected:?}, found {names:?}")));
    }
    let size = envelope.encode().len();
    if size > CREATION_REQUEST_MAX {
        return Err(invalid(format!(
            "envelope: expected at most {CREATION_REQUEST_MAX} bytes, found {size}"
        )));
    }
    Ok(())
}

impl Tx<'_> {
    pub(crate) fn reserve(&mut self, r: &Reserve) -> StoreResult {
        check_reserve(r)?;
        if let Some((row, pending)) = self.state.rows.get(&r.key).and_then(|row| Some((row, row.pending()?)))
            && pending.reservation == r.reservation
        {
            let same = row.kind == r.kind
                && row.stable_type == r.stable_type
                && row.execution_mode == r.execution_mode
                && row.owner == r.target
                && pending.operation == r.operation
                && pending.source == r.source;
            if !same {
                return Err(self.conflict(ConflictReason::DifferentContent, &r.key));
            }
            return self.reserved(&r.key, row, pending);
        }
        self.need_live(r.lease)?;
        if self.terminal(&r.operation).is_some() {
            return Err(self.conflict(ConflictReason::TerminalExists, &r.key));
        }
        let entry = matches!(&r.key, ObjectKey::Spot(id) if self.state.entries.contains_key(id));
        if entry || self.state.rows.contains_key(&r.key) {
            return Err(self.conflict(ConflictReason::Exists, &r.key));
        }
        if !self.is_eligible(&r.target, |descriptor| descriptor.capability(r.kind, &r.stable_type).is_some())
        {
            return Err(StoreError::conflict(ConflictReason::TargetNotEligible));
        }
        self.check_source(&r.source)?;
        let bundle = r.bundle();
        self.state.fits(&r.target, &bundle)?;
        self.state.check_capacity(&r.target, &bundle, Change::Reserve)?;
        let mut sequences = self.state.sequences;
        let (object_generation, owner_generation) = (sequences.object()?, sequences.owner()?);
        let version = sequences.version()?;
        self.state.sequences = sequences;
        self.state.change_capacity(&r.target, &bundle, Change::Reserve);
        self.link_source(&r.source, Some(r.reservation));
        let pending = PendingCreation {
            reservation: r.reservation,
            operation: r.operation.clone(),
            source: r.source,
            deadline_at: self.now + r.remaining,
        };
        let row = Row {
            kind: r.kind,
            stable_type: r.stable_type.clone(),
            execution_mode: r.execution_mode,
            object_generation,
            owner: r.target.clone(),
            owner_generation,
            version,
            phase: Phase::Creating(pending.clone()),
        };
        let reply = self.reserved(&r.key, &row, &pending);
        self.state.rows.insert(r.key.clone(), row);
        self.hint(&r.key);
        reply
    }

    fn reserved(&self, key: &ObjectKey, row: &Row, pending: &PendingCreation) -> StoreResult {
        Ok(StoreReply::Reserved(self.stamp(Box::new(ReservationFence {
            key: key.clone(),
            reservation: pending.reservation,
            object_generation: row.object_generation,
            owner_generation: row.owner_generation,
            version: row.version,
            target: row.owner.clone(),
            deadline_at: pending.deadline_at,
        }))))
    }

    /// Whether a node can be made owner of something new: lease live, published, Serving (STORE-64).
    pub(crate) fn is_eligible(
        &self,
        target: &NodeFence,
        provides: impl FnOnce(&spotmesh::store::Descriptor) -> bool,
    ) -> bool {
        self.state.is_live(target.lease, self.now)
            && self
                .state
                .published(target)
                .is_some_and(|descriptor| descriptor.host_state == HostState::Serving && provides(descriptor))
    }

    /// The Creating row of exactly this reservation, as the fence shows it.
    fn reserved_row(&self, fence: &ReservationFence) -> Result<(&Row, &PendingCreation), StoreError> {
        let conflict = |reason| Err(self.conflict(reason, &fence.key));
        let Some(row) = self.state.rows.get(&fence.key) else {
            return conflict(ConflictReason::StateMismatch);
        };
        let Some(pending) = row.pending() else { return conflict(ConflictReason::StateMismatch) };
        if pending.reservation != fence.reservation || pending.deadline_at != fence.deadline_at {
            return conflict(ConflictReason::ReservationMismatch);
        }
        let generations = (row.object_generation, row.owner_generation);
        if generations != (fence.object_generation, fence.owner_generation) {
            return conflict(ConflictReason::GenerationMismatch);
        }
        if row.version != fence.version {
            return conflict(ConflictReason::VersionMismatch);
        }
        if row.owner != fence.target {
            return conflict(ConflictReason::OwnerMismatch);
        }
        Ok((row, pending))
    }

    /// As [`Self::reserved_row`], and the caller is its live target under the published lifecycle.
    fn row_of_target(
        &self,
        fence: &ReservationFence,
        lease: LeaseRef,
    ) -> Result<(Row, PendingCreation), StoreError> {
        let (row, pending) = self.reserved_row(fence)?;
        if row.owner.lease != lease {
            return Err(self.conflict(ConflictReason::OwnerMismatch, &fence.key));
        }
        self.need_live(lease)?;
        if self.state.published(&row.owner).is_none() {
            return Err(self.conflict(ConflictReason::LifecycleMismatch, &fence.key));
        }
        Ok((row.clone(), pending.clone()))
    }

    /// Whether a retained or not yet swept record says that this attempt ended so.
    fn ended_so(
        &self,
        fence: &ReservationFence,
        envelope: &TerminalEnvelope,
    ) -> Option<Result<(), StoreError>> {
        // Attempts are found by reservation: the fence does not carry the operation.
        let record = self.state.ended.get(&fence.reservation)?;
        let record = self.state.terminals.get(record)?;
        if record.envelope != *envelope {
            return Some(Err(self.conflict(ConflictReason::DifferentContent, &fence.key)));
        }
        Some(Ok(()))
    }

    fn record(&mut self, pending: &PendingCreation, envelope: &TerminalEnvelope) {
        let record = TerminalRecord {
            operation: pending.operation.clone(),
            reservation: pending.reservation,
            envelope: envelope.clone(),
            sha256: Sha256Digest::of(&envelope.encode()),
            retain_until: pending.deadline_at + TERMINAL_RETENTION,
        };
        self.state.ended.insert(pending.reservation, pending.operation.clone());
        if let Some(replaced) = self.state.terminals.insert(pending.operation.clone(), record) {
            self.state.ended.remove(&replaced.reservation);
        }
    }

    /// Fails where another attempt of the operation has a record already.
    fn need_no_terminal(&self, pending: &PendingCreation, key: &ObjectKey) -> Result<(), StoreError> {
        match self.terminal(&pending.operation) {
            Some(_) => Err(self.conflict(ConflictReason::TerminalExists, key)),
            None => Ok(()),
        }
    }

    pub(crate) fn commit_created(&mut self, r: &CommitCreated) -> StoreResult {
        let key = &r.fence.key;
        if r.entry_spot_id.is_some() != matches!(key, ObjectKey::Actor(_)) {
            return Err(invalid("commit_created: expected an Entry Spot id exactly for an Actor".to_owned()));
        }
        if let Some(envelope) = &r.envelope {
            check_envelope(envelope, &r.fence, |outcome| *outcome == TerminalOutcome::Created)?;
        }
        if let Some(row) = self.state.rows.get(key)
            && row.object_generation == r.fence.object_generation
            && row.ready().is_some_and(|ready| ready.object.created_by == Some(r.fence.reservation))
        {
            if let Some(envelope) = &r.envelope {
                self.ended_so(&r.fence, envelope).unwrap_or(Ok(()))?;
            }
            return self.row(key);
        }
        let (row, pending) = self.row_of_target(&r.fence, r.lease)?;
        self.need_no_terminal(&pending, key)?;
        self.need_envelope(row.kind, r.envelope.is_some())?;
        let member = match row.kind {
            ObjectKind::Actor => Member::Entry(self.check_entry(&row.owner, r.entry_spot_id.as_ref())?),
            ObjectKind::Spot(SpotKind::User) => {
                Member::Spot(Members { count: 0, generation: AggregateGeneration::FIRST, aggregate: None })
            }
            ObjectKind::Spot(_) => Member::None,
        };
        let bundle = row.bundle();
        self.state.check_capacity(&row.owner, &bundle, Change::Activate)?;
        let version = self.state.sequences.version()?;
        self.state.change_capacity(&row.owner, &bundle, Change::Activate);
        let activation = match pending.source {
            CreationSource::Activation(id, ..) => Some(id),
            CreationSource::Content(..) => {
                self.remove_source(&pending.source);
                None
            }
        };
        let object = ReadyObject {
            mark: None,
            created_by: Some(pending.reservation),
            activation,
            last_change: None,
            last_commit: None,
        };
        if let Some(row) = self.state.rows.get_mut(key) {
            row.version = version;
            row.phase = Phase::Ready(Ready { object, member });
        }
        if let Some(envelope) = &r.envelope {
            self.record(&pending, envelope);
        }
        self.hint(key);
        self.row(key)
    }

    fn need_envelope(&self, kind: ObjectKind, present: bool) -> Result<(), StoreError> {
        if present == (kind == ObjectKind::Spot(SpotKind::Instance)) {
            return Err(invalid(format!(
                "expected a terminal envelope exactly unless an Instance Spot, found {present} for {kind:?}"
            )));
        }
        Ok(())
    }

    fn check_entry(&self, owner: &NodeFence, named: Option<&SpotId>) -> Result<SpotId, StoreError> {
        let claimed = self.state.claim_of(owner).and_then(|claim| claim.entry_spot_id.as_ref());
        match (claimed, named) {
            (Some(claimed), Some(named)) if claimed == named => Ok(named.clone()),
            _ => Err(invalid(format!("Entry Spot id: expected {claimed:?} as claimed, found {named:?}"))),
        }
    }

    /// Deletes a Creating row, returns its bundle and removes what it started from.
    pub(crate) fn drop_creating(&mut self, key: &ObjectKey) {
        let Some(row) = self.state.rows.remove(key) else { return };
        self.state.change_capacity(&row.owner, &row.bundle(), Change::ReturnReserved);
        if let Some(pending) = row.pending() {
            self.remove_source(&pending.source);
        }
        self.hint(key);
    }

    fn end_without_object(
        &mut self,
        fence: &ReservationFence,
        lease: LeaseRef,
        envelope: Option<&TerminalEnvelope>,
    ) -> StoreResult {
        if let Some(envelope) = envelope {
            if let Some(ended) = self.ended_so(fence, envelope) {
                ended?;
                return self.done();
            }
        } else if self.is_gone(fence) {
            return self.done();
        }
        let (row, pending) = self.row_of_target(fence, lease)?;
        self.need_no_terminal(&pending, &fence.key)?;
        self.need_envelope(row.kind, envelope.is_some())?;
        self.state.check_capacity(&row.owner, &row.bundle(), Change::ReturnReserved)?;
        self.drop_creating(&fence.key);
        if let Some(envelope) = envelope {
            self.record(&pending, envelope);
        }
        self.done()
    }

    /// Whether no row carries the reservation of a fence: it ended, or another incarnation took its place.
    fn is_gone(&self, fence: &ReservationFence) -> bool {
        self.state.rows.get(&fence.key).is_none_or(|row| {
            let carried = match &row.phase {
                Phase::Creating(pending) => Some(pending.reservation),
                Phase::Ready(ready) => ready.object.created_by,
            };
            row.object_generation != fence.object_generation && carried != Some(fence.reservation)
        })
    }

    pub(crate) fn commit_rejected(&mut self, r: &CommitRejected) -> StoreResult {
        check_envelope(&r.envelope, &r.fence, |outcome| *outcome == TerminalOutcome::Rejected)?;
        self.end_without_object(&r.fence, r.lease, Some(&r.envelope))
    }

    pub(crate) fn abort_failed(&mut self, r: &AbortFailed) -> StoreResult {
        if let Some(envelope) = &r.envelope {
            check_envelope(envelope, &r.fence, |outcome| matches!(outcome, TerminalOutcome::Failed(_)))?;
        }
        self.end_without_object(&r.fence, r.lease, r.envelope.as_ref())
    }

    pub(crate) fn abort_not_executed(&mut self, r: &AbortNotExecuted) -> StoreResult {
        if self.is_gone(&r.fence) {
            return self.done();
        }
        let (row, _) = self.reserved_row(&r.fence)?;
        self.state.check_capacity(&row.owner, &row.bundle(), Change::ReturnReserved)?;
        self.need_live(r.lease)?;
        self.drop_creating(&r.fence.key);
        self.done()
    }

    pub(crate) fn abort_recovery(&mut self, r: &AbortRecovery) -> StoreResult {
        let Some(row) = self.state.rows.get(&r.key) else {
            return Err(self.conflict(ConflictReason::VersionMismatch, &r.key));
        };
        if row.version != r.version {
            return Err(self.conflict(ConflictReason::VersionMismatch, &r.key));
        }
        if row.pending().is_none() {
            return Err(self.conflict(ConflictReason::StateMismatch, &r.key));
        }
        let target = row.owner.clone();
        let live = self.state.is_live(target.lease, self.now);
        if live && self.state.published_lifecycle(&target) == Some(target.lifecycle) {
            return Err(self.conflict(ConflictReason::LeaseLive, &r.key));
        }
        self.state.check_capacity(&target, &row.bundle(), Change::ReturnReserved)?;
        self.need_live(r.lease)?;
        if !live {
            self.fence(target.lease);
        }
        self.drop_creating(&r.key);
        self.done()
    }
}
