//! Close, destroy and the rows of a whole owner (STORE-77..81).

use spotmesh::model::{ActivationId, LeaseRef, NodeFence, ObjectKey};
use spotmesh::store::{
    AuthorityFence, BeginClose, Bundle, ConflictReason, CreationSource, FinishClose, FinishStaleClose,
    LeaseState, Mark, RelocationPhase, RemoveOwnerRows, RetireOwner, StoreError, StoreReply, StoreResult,
};

use crate::apply::Tx;
use crate::capacity::Change;
use crate::membership::{SpotStep, Step};
use crate::page::check_limit;
use crate::sequence::Sequences;
use crate::state::Row;

/// The end of one row, worked out and checked but not yet made.
struct Removal {
    key: ObjectKey,
    owner: NodeFence,
    bundle: Bundle,
    change: Change,
    /// What a move under way holds at its target.
    promised: Option<(NodeFence, Bundle)>,
    left: Option<SpotStep>,
    source: Option<CreationSource>,
    activation: Option<ActivationId>,
}

/// The slots a mark still holds reserved at its target.
pub(crate) fn promised(row: &Row) -> Option<(&NodeFence, &Bundle)> {
    let mark = row.relocation()?;
    let open = !matches!(mark.phase, RelocationPhase::Committed | RelocationPhase::Aborted);
    open.then_some((&mark.target, &mark.bundle))
}

impl Tx<'_> {
    /// Checks generations, owner and version of a Ready row against a fence (STORE-8).
    pub(crate) fn check_owned(&self, fence: &AuthorityFence, lease: LeaseRef) -> Result<(), StoreError> {
        let conflict = |reason| Err(self.conflict(reason, &fence.key));
        let row = self.state.rows.get(&fence.key).ok_or(StoreError::NotFound)?;
        if row.ready().is_none() {
            return conflict(ConflictReason::StateMismatch);
        }
        let (owner, owner_generation) = self.state.effective(row);
        if (row.object_generation, owner_generation) != (fence.object_generation, fence.owner_generation) {
            return conflict(ConflictReason::GenerationMismatch);
        }
        if owner.lease != lease {
            return conflict(ConflictReason::OwnerMismatch);
        }
        if row.version != fence.version {
            return conflict(ConflictReason::VersionMismatch);
        }
        Ok(())
    }

    pub(crate) fn begin_close(&mut self, r: &BeginClose) -> StoreResult {
        let key = &r.fence.key;
        let row = self.state.rows.get(key).ok_or(StoreError::NotFound)?;
        match row.mark() {
            Some(Mark::Closing(close))
                if *close == r.close && row.object_generation == r.fence.object_generation =>
            {
                return self.row(key);
            }
            Some(Mark::Closing(_)) => return Err(self.conflict(ConflictReason::Closing, key)),
            Some(Mark::Relocating(_)) => return Err(self.conflict(ConflictReason::Moving, key)),
            None => {}
        }
        self.check_owned(&r.fence, r.lease)?;
        if row.members().is_some_and(|members| members.count > 0) {
            return Err(self.conflict(ConflictReason::MembersPresent, key));
        }
        self.need_live(r.lease)?;
        let version = self.state.sequences.version()?;
        if let Some(row) = self.state.rows.get_mut(key) {
            row.version = version;
            if let Some(ready) = row.ready_mut() {
                ready.object.mark = Some(Mark::Closing(r.close));
            }
        }
        self.hint(key);
        self.row(key)
    }

    pub(crate) fn finish_close(&mut self, r: &FinishClose) -> StoreResult {
        let key = &r.fence.key;
        let gone = |row: &Row| row.object_generation != r.fence.object_generation;
        match self.state.rows.get(key) {
            None => return self.done(),
            Some(row) if gone(row) => return self.done(),
            Some(row) => match row.mark() {
                Some(Mark::Closing(close)) if *close == r.close => {}
                Some(Mark::Closing(_)) => return Err(self.conflict(ConflictReason::Closing, key)),
                _ => return Err(self.conflict(ConflictReason::StateMismatch, key)),
            },
        }
        self.check_owned(&r.fence, r.lease)?;
        self.need_live(r.lease)?;
        self.remove_row(key)?;
        self.done()
    }

    pub(crate) fn finish_stale_close(&mut self, r: &FinishStaleClose) -> StoreResult {
        let conflict = |reason| Err(self.conflict(reason, &r.key));
        let row = match self.state.rows.get(&r.key) {
            Some(row) if row.version == r.version => row,
            _ => return conflict(ConflictReason::VersionMismatch),
        };
        if !matches!(row.mark(), Some(Mark::Closing(_))) {
            return conflict(ConflictReason::StateMismatch);
        }
        let owner = self.state.effective(row).0.lease;
        if self.state.is_live(owner, self.now) {
            return conflict(ConflictReason::LeaseLive);
        }
        self.need_live(r.lease)?;
        self.remove_row(&r.key)?;
        self.fence(owner);
        self.done()
    }

    /// Deletes a row with everything that hangs on it, or fails and changes nothing.
    fn remove_row(&mut self, key: &ObjectKey) -> Result<(), StoreError> {
        let mut sequences = self.state.sequences;
        let removal = self.plan_removal(key, &mut sequences)?;
        self.state.sequences = sequences;
        self.state.rows.remove(&removal.key);
        self.state.change_capacity(&removal.owner, &removal.bundle, removal.change);
        if let Some((target, bundle)) = &removal.promised {
            self.state.change_capacity(target, bundle, Change::ReturnReserved);
        }
        self.make_step(removal.left);
        if let Some(source) = &removal.source {
            self.remove_source(source);
        }
        if let Some(activation) = removal.activation {
            self.state.activations.remove(&activation);
        }
        self.hint(&removal.key);
        Ok(())
    }

    fn plan_removal(&self, key: &ObjectKey, sequences: &mut Sequences) -> Result<Removal, StoreError> {
        let row = self.state.rows.get(key).ok_or(StoreError::NotFound)?;
        let owner = self.state.effective(row).0.clone();
        let change = if row.ready().is_some() { Change::ReturnActive } else { Change::ReturnReserved };
        let bundle = row.bundle();
        self.state.check_capacity(&owner, &bundle, change)?;
        let promised = promised(row).map(|(target, bundle)| (target.clone(), bundle.clone()));
        if let Some((target, bundle)) = &promised {
            self.state.check_capacity(target, bundle, Change::ReturnReserved)?;
        }
        let left = match row.spot() {
            Some(spot) => self.plan_step(spot, Step::Leave, &owner, sequences)?,
            None => None,
        };
        Ok(Removal {
            key: key.clone(),
            owner,
            bundle,
            change,
            promised,
            left,
            source: row.pending().map(|pending| pending.source),
            activation: row.ready().and_then(|ready| ready.object.activation),
        })
    }

    pub(crate) fn remove_owner_rows(&mut self, r: &RemoveOwnerRows) -> StoreResult {
        let limit = check_limit(r.limit)?;
        if self.state.lease(r.lease).is_none_or(|row| row.state != LeaseState::Active) {
            return Err(StoreError::LeaseLost);
        }
        self.remove_batch(r.lease, limit)
    }

    pub(crate) fn retire_owner(&mut self, r: &RetireOwner) -> StoreResult {
        let limit = check_limit(r.limit)?;
        if self.state.is_live(r.lease, self.now) {
            return Err(StoreError::conflict(ConflictReason::LeaseLive));
        }
        let reply = self.remove_batch(r.lease, limit)?;
        self.fence(r.lease);
        Ok(reply)
    }

    /// Removes a batch of an owner's rows in key order, so that Actors go before their Spots.
    ///
    /// A User Spot whose members other nodes own stays, and counts as remaining: no member is ever left of a
    /// deleted Spot. A row that cannot be removed ends the batch; alone it is the failure.
    fn remove_batch(&mut self, lease: LeaseRef, limit: usize) -> StoreResult {
        let keys: Vec<ObjectKey> = self
            .state
            .rows
            .iter()
            .filter(|(_, row)| self.state.effective(row).0.lease == lease)
            .map(|(key, _)| key.clone())
            .collect();
        let mut removed = 0;
        for key in &keys {
            if removed == limit {
                break;
            }
            let row = self.state.rows.get(key);
            if row.and_then(Row::members).is_some_and(|members| members.count > 0) {
                continue;
            }
            match self.remove_row(key) {
                Ok(()) => removed += 1,
                Err(error) if removed == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(StoreReply::Count(self.stamp((keys.len() - removed) as u64)))
    }
}
