//! Moves of PerActor Spots, whose members follow one by one (STORE-95, STORE-102).

use spotmesh::model::{ExecutionMode, ObjectKey};
use spotmesh::store::{
    CommitSpotAuthority, ConflictReason, MoveCounts, RelocationMark, RelocationPhase, StoreError, StoreResult,
};

use crate::apply::Tx;
use crate::capacity::Change;
use crate::membership::SpotStep;
use crate::sequence::Sequences;
use crate::state::Row;

impl Tx<'_> {
    /// One member of a moving PerActor Spot goes over from the source's count to the target's.
    pub(crate) fn plan_transfer(
        &self,
        spot: &ObjectKey,
        sequences: &mut Sequences,
    ) -> Result<Option<SpotStep>, StoreError> {
        let Some(row) = self.state.rows.get(spot) else { return Ok(None) };
        let (Some(members), Some(counts)) =
            (row.members(), row.relocation().and_then(|mark| mark.move_counts))
        else {
            return Err(self.conflict(ConflictReason::StateMismatch, spot));
        };
        let source = counts.source.checked_sub(1);
        let source = source.ok_or_else(|| StoreError::Corrupt(format!("{spot}: move count below zero")))?;
        let counts = MoveCounts { source, target: counts.target + 1 };
        Ok(Some(SpotStep::transfer(spot.clone(), members.clone(), counts, sequences.version()?)))
    }

    pub(crate) fn commit_spot_authority(&mut self, r: &CommitSpotAuthority) -> StoreResult {
        let key = &ObjectKey::Spot(r.spot.clone());
        let row = self.moving_row(key)?;
        if self.is_committed(row, r.relocation, r.lease) {
            return self.row(key);
        }
        let mark = self.mark_of(key, r.relocation)?;
        if mark.target.lease != r.lease || mark.source != r.source {
            return Err(self.conflict(ConflictReason::OwnerMismatch, key));
        }
        let open = !matches!(mark.phase, RelocationPhase::Committed | RelocationPhase::Aborted);
        let (Some(members), true, Some(ExecutionMode::PerActor)) = (row.members(), open, row.execution_mode)
        else {
            return Err(self.conflict(ConflictReason::StateMismatch, key));
        };
        self.need_owner(key, row, &r.source)?;
        self.need_version(key, row, r.version)?;
        self.need_live(r.lease)?;
        let (source, target) = (mark.source.node.clone(), mark.target.clone());
        let bundle = mark.bundle.clone();
        let move_counts = Some(MoveCounts { source: members.count, target: 0 });
        let mark = RelocationMark { phase: RelocationPhase::Committed, move_counts, ..mark.clone() };
        self.state.check_capacity(&target, &bundle, Change::Activate)?;
        self.state.check_capacity(&source, &bundle, Change::ReturnActive)?;
        let mut sequences = self.state.sequences;
        let owner_generation = sequences.owner()?;
        let version = sequences.version()?;
        self.state.sequences = sequences;
        self.state.change_capacity(&target, &bundle, Change::Activate);
        self.state.change_capacity(&source, &bundle, Change::ReturnActive);
        if let Some(ready) = self.state.rows.get_mut(key).and_then(Row::ready_mut) {
            ready.object.last_commit = Some(r.relocation);
        }
        self.set_owner(key, target, owner_generation);
        self.set_mark(key, version, Some(mark));
        self.row(key)
    }
}
