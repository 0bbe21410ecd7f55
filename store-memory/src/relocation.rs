//! Relocation of single objects (STORE-85..89, STORE-95).

use spotmesh::model::{
    AuthorityOwnerGeneration, ExecutionMode, LeaseRef, NodeFence, ObjectKey, ObjectKind, RelocationId,
    SpotKind, StoreVersion,
};
use spotmesh::store::{
    AbortRelocation, ClearRelocation, CommitRelocation, ConflictReason, Mark, MarkPhase, MarkRelocation,
    RelocationMark, RelocationPhase, ReserveRelocation, StoreError, StoreResult,
};

use crate::apply::Tx;
use crate::capacity::Change;
use crate::membership::{SpotStep, Step};
use crate::sequence::Sequences;
use crate::state::{Member, Row};

impl Tx<'_> {
    pub(crate) fn moving_row(&self, key: &ObjectKey) -> Result<&Row, StoreError> {
        let row = self.state.rows.get(key).ok_or(StoreError::NotFound)?;
        match row.ready() {
            Some(_) => Ok(row),
            None => Err(self.conflict(ConflictReason::StateMismatch, key)),
        }
    }

    /// The relocation mark of this move.
    pub(crate) fn mark_of(
        &self,
        key: &ObjectKey,
        relocation: RelocationId,
    ) -> Result<&RelocationMark, StoreError> {
        match self.moving_row(key)?.mark() {
            Some(Mark::Relocating(mark)) if mark.relocation == relocation => Ok(mark),
            Some(Mark::Relocating(_)) => Err(self.conflict(ConflictReason::ReservationMismatch, key)),
            Some(Mark::Closing(_)) => Err(self.conflict(ConflictReason::Closing, key)),
            None => Err(self.conflict(ConflictReason::StateMismatch, key)),
        }
    }

    pub(crate) fn need_version(
        &self,
        key: &ObjectKey,
        row: &Row,
        version: StoreVersion,
    ) -> Result<(), StoreError> {
        if row.version == version { Ok(()) } else { Err(self.conflict(ConflictReason::VersionMismatch, key)) }
    }

    /// Whether the owner, and its lease, is the one of a fence.
    pub(crate) fn need_owner(
        &self,
        key: &ObjectKey,
        row: &Row,
        fence: &spotmesh::store::OwnerFence,
    ) -> Result<(), StoreError> {
        let (owner, generation) = self.state.effective(row);
        if *owner != fence.node {
            return Err(self.conflict(ConflictReason::OwnerMismatch, key));
        }
        if generation != fence.generation {
            return Err(self.conflict(ConflictReason::GenerationMismatch, key));
        }
        Ok(())
    }

    /// Whether a node can take the row's object over.
    pub(crate) fn need_target(
        &self,
        key: &ObjectKey,
        row: &Row,
        target: &NodeFence,
    ) -> Result<(), StoreError> {
        let other = self.state.effective(row).0 != target;
        let eligible = other
            && self.is_eligible(target, |descriptor| {
                descriptor.capability(row.kind, &row.stable_type).is_some()
            });
        if eligible { Ok(()) } else { Err(self.conflict(ConflictReason::TargetNotEligible, key)) }
    }

    /// Changes the mark of a row and its version.
    pub(crate) fn set_mark(&mut self, key: &ObjectKey, version: StoreVersion, mark: Option<RelocationMark>) {
        if let Some(row) = self.state.rows.get_mut(key) {
            row.version = version;
            if let Some(ready) = row.ready_mut() {
                ready.object.mark = mark.map(|mark| Mark::Relocating(Box::new(mark)));
            }
        }
        self.hint(key);
    }

    pub(crate) fn reserve_relocation(&mut self, r: &ReserveRelocation) -> StoreResult {
        if r.attempt == 0 {
            return Err(StoreError::InvalidArgument("attempt: expected from 1, found 0".to_owned()));
        }
        let key = &r.key;
        let row = self.moving_row(key)?;
        if row.kind == ObjectKind::Spot(SpotKind::User) && row.execution_mode == Some(ExecutionMode::SpotWide)
        {
            // A SpotWide Spot moves with its members or not at all (STORE-92).
            return Err(self.conflict(ConflictReason::StateMismatch, key));
        }
        if row.mark().is_some() {
            let mark = self.mark_of(key, r.relocation)?;
            let same = mark.reservation == Some(r.reservation)
                && mark.source == r.source
                && mark.target == r.target
                && mark.phase == RelocationPhase::Preparing
                && mark.attempt == r.attempt;
            return if same { self.row(key) } else { Err(self.conflict(ConflictReason::Moving, key)) };
        }
        self.need_owner(key, row, &r.source)?;
        if r.source.node.lease != r.lease {
            return Err(self.conflict(ConflictReason::OwnerMismatch, key));
        }
        self.need_version(key, row, r.version)?;
        self.need_live(r.lease)?;
        self.need_target(key, row, &r.target)?;
        let bundle = row.bundle();
        self.state.fits(&r.target, &bundle)?;
        self.state.check_capacity(&r.target, &bundle, Change::Reserve)?;
        let version = self.state.sequences.version()?;
        self.state.change_capacity(&r.target, &bundle, Change::Reserve);
        let mark = RelocationMark {
            relocation: r.relocation,
            reservation: Some(r.reservation),
            attempt: r.attempt,
            phase: RelocationPhase::Preparing,
            source: r.source.clone(),
            target: r.target.clone(),
            bundle,
            valid_until: self.now + r.validity,
            aggregate: None,
            move_counts: None,
        };
        self.set_mark(key, version, Some(mark));
        self.row(key)
    }

    pub(crate) fn mark_relocation(&mut self, r: &MarkRelocation) -> StoreResult {
        let key = &r.key;
        let row = self.moving_row(key)?;
        let mark = self.mark_of(key, r.relocation)?;
        let conflict = |reason| Err(self.conflict(reason, key));
        let (phase, by) = match r.phase {
            MarkPhase::Captured => (RelocationPhase::Captured, mark.source.node.lease),
            MarkPhase::Prepared => (RelocationPhase::Prepared, mark.target.lease),
        };
        if by != r.lease {
            return conflict(ConflictReason::OwnerMismatch);
        }
        if mark.phase == phase && mark.attempt == r.attempt {
            return self.row(key);
        }
        let allowed = match (r.phase, mark.phase) {
            (_, RelocationPhase::Aborted | RelocationPhase::Committed) => false,
            (MarkPhase::Captured, RelocationPhase::Prepared) => r.attempt > mark.attempt,
            (MarkPhase::Captured, _) => r.attempt >= mark.attempt,
            (MarkPhase::Prepared, found) => found == RelocationPhase::Captured && r.attempt == mark.attempt,
        };
        if !allowed || mark.aggregate.is_some() {
            return conflict(ConflictReason::StateMismatch);
        }
        self.need_version(key, row, r.version)?;
        self.need_live(r.lease)?;
        let mark = RelocationMark { phase, attempt: r.attempt, ..mark.clone() };
        let version = self.state.sequences.version()?;
        self.set_mark(key, version, Some(mark));
        self.row(key)
    }

    pub(crate) fn abort_relocation(&mut self, r: &AbortRelocation) -> StoreResult {
        self.abort_move(&r.key, r.relocation, r.version, r.lease, false)
    }

    /// Aborts a move of a single object or of an aggregate (STORE-87, STORE-94).
    pub(crate) fn abort_move(
        &mut self,
        key: &ObjectKey,
        relocation: RelocationId,
        version: StoreVersion,
        lease: LeaseRef,
        aggregate: bool,
    ) -> StoreResult {
        let row = self.moving_row(key)?;
        let (owner, _) = self.state.effective(row);
        let committed = row.ready().is_some_and(|ready| ready.object.last_commit == Some(relocation));
        if row.mark().is_none() {
            return self.abort_unmarked(key, owner.lease == lease && !committed, version, lease);
        }
        let mark = self.mark_of(key, relocation)?;
        let conflict = |reason| Err(self.conflict(reason, key));
        if mark.source.node.lease != lease && mark.target.lease != lease && owner.lease != lease {
            return conflict(ConflictReason::OwnerMismatch);
        }
        match mark.phase {
            RelocationPhase::Aborted => return self.row(key),
            RelocationPhase::Committed => return conflict(ConflictReason::StateMismatch),
            _ if mark.aggregate.is_some() != aggregate => return conflict(ConflictReason::StateMismatch),
            _ => {}
        }
        self.need_version(key, row, version)?;
        self.need_live(lease)?;
        let (target, bundle) = (mark.target.clone(), mark.bundle.clone());
        self.state.check_capacity(&target, &bundle, Change::ReturnReserved)?;
        let mark = RelocationMark { phase: RelocationPhase::Aborted, ..mark.clone() };
        let next = self.state.sequences.version()?;
        self.state.change_capacity(&target, &bundle, Change::ReturnReserved);
        self.set_mark(key, next, Some(mark));
        self.row(key)
    }

    /// On an unmarked row only the version is replaced, so that a late reservation cannot match. Where the
    /// version is newer already, that holds (STORE-25).
    fn abort_unmarked(
        &mut self,
        key: &ObjectKey,
        by_owner: bool,
        version: StoreVersion,
        lease: LeaseRef,
    ) -> StoreResult {
        let found = self.moving_row(key)?.version;
        if !by_owner {
            return Err(self.conflict(ConflictReason::OwnerMismatch, key));
        }
        if found < version {
            return Err(self.conflict(ConflictReason::VersionMismatch, key));
        }
        if found == version {
            self.need_live(lease)?;
            let next = self.state.sequences.version()?;
            self.set_mark(key, next, None);
        }
        self.row(key)
    }

    pub(crate) fn clear_relocation(&mut self, r: &ClearRelocation) -> StoreResult {
        let key = &r.key;
        let row = self.moving_row(key)?;
        if self.state.effective(row).0.lease != r.lease {
            return Err(self.conflict(ConflictReason::OwnerMismatch, key));
        }
        if row.mark().is_none() {
            return self.row(key);
        }
        let mark = self.mark_of(key, r.relocation)?;
        if !matches!(mark.phase, RelocationPhase::Aborted | RelocationPhase::Committed) {
            return Err(self.conflict(ConflictReason::Moving, key));
        }
        if mark.move_counts.is_some_and(|counts| counts.source > 0) {
            return Err(self.conflict(ConflictReason::MembersPresent, key));
        }
        self.need_version(key, row, r.version)?;
        self.need_live(r.lease)?;
        let version = self.state.sequences.version()?;
        self.set_mark(key, version, None);
        self.row(key)
    }

    /// Whether this target's commit of this move is in the row (STORE-25).
    pub(crate) fn is_committed(&self, row: &Row, relocation: RelocationId, target: LeaseRef) -> bool {
        self.state.effective(row).0.lease == target
            && row.ready().is_some_and(|ready| ready.object.last_commit == Some(relocation))
    }

    pub(crate) fn commit_relocation(&mut self, r: &CommitRelocation) -> StoreResult {
        let key = &r.key;
        let row = self.moving_row(key)?;
        if row.object_generation != r.object_generation {
            return Err(self.conflict(ConflictReason::GenerationMismatch, key));
        }
        if self.is_committed(row, r.relocation, r.lease) {
            return self.row(key);
        }
        let mark = self.mark_of(key, r.relocation)?;
        if mark.target.lease != r.lease || mark.source != r.source {
            return Err(self.conflict(ConflictReason::OwnerMismatch, key));
        }
        let prepared = mark.phase == RelocationPhase::Prepared && mark.attempt == r.attempt;
        if !prepared || row.kind == ObjectKind::Spot(SpotKind::User) {
            return Err(self.conflict(ConflictReason::StateMismatch, key));
        }
        self.need_owner(key, row, &r.source)?;
        self.need_version(key, row, r.version)?;
        self.need_live(r.lease)?;
        let (source, target) = (mark.source.node.clone(), mark.target.clone());
        let bundle = mark.bundle.clone();
        let mark = RelocationMark { phase: RelocationPhase::Committed, ..mark.clone() };
        self.state.check_capacity(&target, &bundle, Change::Activate)?;
        self.state.check_capacity(&source, &bundle, Change::ReturnActive)?;
        let mut sequences = self.state.sequences;
        let (member, steps) = self.plan_member_move(r, row, &source, &target, &mut sequences)?;
        let owner_generation = sequences.owner()?;
        let version = sequences.version()?;
        self.state.sequences = sequences;
        self.state.change_capacity(&target, &bundle, Change::Activate);
        self.state.change_capacity(&source, &bundle, Change::ReturnActive);
        for step in steps {
            self.make_step(step);
        }
        if let Some(ready) = self.state.rows.get_mut(key).and_then(Row::ready_mut) {
            ready.object.last_commit = Some(r.relocation);
            if let Some(member) = member {
                ready.member = member;
            }
            if let Some(membership) = &r.membership {
                ready.object.last_change = Some(membership.join);
            }
        }
        self.set_owner(key, target, owner_generation);
        self.set_mark(key, version, Some(mark));
        self.row(key)
    }

    pub(crate) fn set_owner(
        &mut self,
        key: &ObjectKey,
        owner: NodeFence,
        generation: AuthorityOwnerGeneration,
    ) {
        if let Some(row) = self.state.rows.get_mut(key) {
            row.owner = owner;
            row.owner_generation = generation;
        }
    }

    /// What a move does to the membership of its Actor: a new membership and the steps of the Spots involved.
    fn plan_member_move(
        &self,
        r: &CommitRelocation,
        row: &Row,
        source: &NodeFence,
        target: &NodeFence,
        sequences: &mut Sequences,
    ) -> Result<(Option<Member>, [Option<SpotStep>; 2]), StoreError> {
        let key = &r.key;
        let Some(spot) = row.spot() else {
            return match &r.membership {
                None => Ok((None, [None, None])),
                Some(_) => Err(self.conflict(ConflictReason::StateMismatch, key)),
            };
        };
        if let Some(membership) = &r.membership {
            if membership.from != *spot || membership.to == membership.from {
                return Err(self.conflict(ConflictReason::StateMismatch, key));
            }
            let member = self.joinable(&membership.to, target)?;
            let left = self.plan_step(&membership.from, Step::Leave, source, sequences)?;
            let joined = self.plan_step(&membership.to, Step::Join, target, sequences)?;
            return Ok((Some(member), [left, joined]));
        }
        // Without a Join an Actor moves only behind the PerActor Spot it stays a member of (STORE-102).
        let follows = matches!(
            row.ready().map(|ready| &ready.member),
            Some(Member::User { mode: ExecutionMode::PerActor, .. })
        );
        let spot_key = ObjectKey::Spot(spot.clone());
        let at_target = self.state.rows.get(&spot_key).is_some_and(|spot| spot.owner == *target);
        if !follows || !at_target {
            return Err(self.conflict(ConflictReason::StateMismatch, key));
        }
        Ok((None, [self.plan_transfer(&spot_key, sequences)?, None]))
    }
}
