//! Moves of a SpotWide Spot with all its members (STORE-90..94).

use spotmesh::model::limits::TERMINAL_RETENTION;
use spotmesh::model::{ExecutionMode, ObjectKey, Sha256Digest};
use spotmesh::store::{
    AbortAggregate, Aggregate, Bundle, CommitAggregate, ConflictReason, GetInventoryChunk, InventoryChunk,
    PrepareAggregate, PrepareOutcome, PreparedAggregate, PutInventoryChunk, PutOutcome, RelocationMark,
    RelocationPhase, StoreError, StoreReply, StoreResult,
};

use crate::apply::Tx;
use crate::capacity::Change;
use crate::state::{ChunkRow, Member, Members, Row};

impl Tx<'_> {
    pub(crate) fn put_inventory_chunk(&mut self, r: &PutInventoryChunk) -> StoreResult {
        InventoryChunk::decode(&r.bytes)?;
        let found = Sha256Digest::of(&r.bytes);
        if found != r.digest {
            let text = format!("inventory chunk: expected bytes of digest {:?}, found {found:?}", r.digest);
            return Err(StoreError::InvalidArgument(text));
        }
        let retain_until = self.now + TERMINAL_RETENTION;
        let key = (r.aggregate, r.digest);
        let outcome = match self.state.chunks.get_mut(&key) {
            Some(held) if held.bytes != r.bytes => {
                return Err(StoreError::conflict(ConflictReason::DifferentContent));
            }
            Some(held) => {
                held.retain_until = retain_until.max(held.retain_until);
                PutOutcome::AlreadyStored
            }
            None => {
                self.state.chunks.insert(key, ChunkRow { bytes: r.bytes.clone(), retain_until });
                PutOutcome::Stored
            }
        };
        Ok(StoreReply::Put(self.stamp(outcome)))
    }

    pub(crate) fn get_inventory_chunk(&self, r: &GetInventoryChunk) -> StoreResult {
        let chunk = self.state.chunks.get(&(r.aggregate, r.digest)).ok_or(StoreError::NotFound)?;
        if Sha256Digest::of(&chunk.bytes) != r.digest {
            return Err(StoreError::DataLost);
        }
        Ok(StoreReply::Chunk(self.stamp(chunk.bytes.clone())))
    }

    /// The members of a SpotWide Spot, the only kind that moves as an aggregate.
    fn spot_wide<'s>(&self, key: &ObjectKey, row: &'s Row) -> Result<&'s Members, StoreError> {
        match (row.members(), row.execution_mode) {
            (Some(members), Some(ExecutionMode::SpotWide)) => Ok(members),
            _ => Err(self.conflict(ConflictReason::StateMismatch, key)),
        }
    }

    pub(crate) fn prepare_aggregate(&mut self, r: &PrepareAggregate) -> StoreResult {
        if r.attempt == 0 {
            return Err(StoreError::InvalidArgument("attempt: expected from 1, found 0".to_owned()));
        }
        let key = &ObjectKey::Spot(r.spot.clone());
        let row = self.moving_row(key)?;
        let members = self.spot_wide(key, row)?;
        let prepared = PreparedAggregate {
            id: r.aggregate,
            generation: r.generation,
            count: r.count,
            root: r.root,
            digest: r.digest,
        };
        if row.mark().is_some() {
            return self.prepare_again(r, key, &prepared);
        }
        self.need_owner(key, row, &r.source)?;
        if r.source.node.lease != r.lease {
            return Err(self.conflict(ConflictReason::OwnerMismatch, key));
        }
        if members.generation != r.generation {
            return Err(self.conflict(ConflictReason::GenerationMismatch, key));
        }
        self.need_version(key, row, r.version)?;
        if r.count != members.count + 1 {
            let text = format!("count: expected members + 1 = {}, found {}", members.count + 1, r.count);
            return Err(StoreError::InvalidArgument(text));
        }
        self.need_live(r.lease)?;
        if !self.state.chunks.contains_key(&(r.aggregate, r.root)) {
            return Err(StoreError::NotFound);
        }
        self.need_target(key, row, &r.target)?;
        let bundle = Bundle { actors: members.count, ..row.bundle() };
        self.state.fits(&r.target, &bundle)?;
        self.state.check_capacity(&r.target, &bundle, Change::Reserve)?;
        let version = self.state.sequences.version()?;
        self.state.change_capacity(&r.target, &bundle, Change::Reserve);
        let mark = RelocationMark {
            relocation: r.relocation,
            reservation: None,
            attempt: r.attempt,
            phase: RelocationPhase::Prepared,
            source: r.source.clone(),
            target: r.target.clone(),
            bundle,
            valid_until: self.now + r.validity,
            aggregate: Some(prepared),
            move_counts: None,
        };
        self.set_mark(key, version, Some(mark));
        self.prepared(key, PrepareOutcome::Prepared)
    }

    fn prepared(
        &self,
        key: &ObjectKey,
        outcome: fn(spotmesh::store::AuthorityView) -> PrepareOutcome,
    ) -> StoreResult {
        let view = self.state.view_key(key, self.now)?.ok_or(StoreError::NotFound)?;
        Ok(StoreReply::Prepared(Box::new(outcome(*view))))
    }

    /// A repeat of the same move; a higher attempt replaces the former one and reserves nothing again.
    fn prepare_again(
        &mut self,
        r: &PrepareAggregate,
        key: &ObjectKey,
        prepared: &PreparedAggregate,
    ) -> StoreResult {
        let mark = self.mark_of(key, r.relocation)?;
        let same = mark.phase == RelocationPhase::Prepared
            && mark.source == r.source
            && mark.target == r.target
            && mark.aggregate.as_ref() == Some(prepared);
        if !same || r.attempt < mark.attempt {
            return Err(self.conflict(ConflictReason::Moving, key));
        }
        if r.attempt > mark.attempt {
            if r.source.node.lease != r.lease {
                return Err(self.conflict(ConflictReason::OwnerMismatch, key));
            }
            self.need_live(r.lease)?;
            let valid_until = self.now + r.validity;
            let mark = RelocationMark { attempt: r.attempt, valid_until, ..mark.clone() };
            let version = self.state.sequences.version()?;
            self.set_mark(key, version, Some(mark));
        }
        self.prepared(key, PrepareOutcome::AlreadyPrepared)
    }

    pub(crate) fn commit_aggregate(&mut self, r: &CommitAggregate) -> StoreResult {
        let key = &ObjectKey::Spot(r.spot.clone());
        let row = self.moving_row(key)?;
        let members = self.spot_wide(key, row)?;
        if self.is_committed(row, r.relocation, r.lease) {
            return self.row(key);
        }
        let mark = self.mark_of(key, r.relocation)?;
        if mark.target.lease != r.lease || mark.source != r.source {
            return Err(self.conflict(ConflictReason::OwnerMismatch, key));
        }
        let prepared = PreparedAggregate {
            id: r.aggregate,
            generation: r.generation,
            count: r.count,
            root: r.root,
            digest: r.digest,
        };
        let equal = mark.phase == RelocationPhase::Prepared
            && mark.attempt == r.attempt
            && mark.aggregate.as_ref() == Some(&prepared);
        if !equal {
            return Err(self.conflict(ConflictReason::StateMismatch, key));
        }
        if members.generation != r.generation {
            return Err(self.conflict(ConflictReason::GenerationMismatch, key));
        }
        self.need_owner(key, row, &r.source)?;
        self.need_version(key, row, r.version)?;
        self.need_live(r.lease)?;
        let (source, target) = (mark.source.node.clone(), mark.target.clone());
        let bundle = mark.bundle.clone();
        let mark = RelocationMark { phase: RelocationPhase::Committed, ..mark.clone() };
        let members = Members {
            count: members.count,
            generation: members.generation.next().ok_or(StoreError::GenerationExhausted)?,
            aggregate: Some(Aggregate { id: r.aggregate, count: r.count, root: r.root, digest: r.digest }),
        };
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
            ready.member = Member::Spot(members);
        }
        self.set_owner(key, target, owner_generation);
        self.set_mark(key, version, Some(mark));
        self.row(key)
    }

    pub(crate) fn abort_aggregate(&mut self, r: &AbortAggregate) -> StoreResult {
        self.abort_move(&ObjectKey::Spot(r.spot.clone()), r.relocation, r.version, r.lease, true)
    }
}
