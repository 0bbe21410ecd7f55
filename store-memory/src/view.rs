//! How rows are shown: one observation of row, effective owner and owner lease (STORE-56).

use spotmesh::model::{NodeFence, ObjectKey, ObjectKind, SpotId, SpotKind, StableType, StoreTime};
use spotmesh::store::{
    Allocation, AuthorityState, AuthorityView, Bundle, ENTRY_STABLE_TYPE, Membership, ReadyObject, StoreError,
};

use crate::state::{EntrySpot, Member, Phase, Row, State};

impl State {
    /// The row of a key, or the Entry Spot of a published claim. `None` is Missing.
    pub(crate) fn view_key(
        &self,
        key: &ObjectKey,
        now: StoreTime,
    ) -> Result<Option<Box<AuthorityView>>, StoreError> {
        if let Some(row) = self.rows.get(key) {
            return self.view(key, row, now).map(Some);
        }
        let ObjectKey::Spot(id) = key else { return Ok(None) };
        match self.entries.get(id) {
            Some(entry) => self.view_entry(id, entry, now),
            None => Ok(None),
        }
    }

    pub(crate) fn view(
        &self,
        key: &ObjectKey,
        row: &Row,
        now: StoreTime,
    ) -> Result<Box<AuthorityView>, StoreError> {
        let (owner, owner_generation) = self.effective(row);
        let lease = self
            .lease(owner.lease)
            .ok_or_else(|| StoreError::Corrupt(format!("{key}: its owner's lease has no record")))?;
        let (state, allocation) = match &row.phase {
            Phase::Creating(pending) => (AuthorityState::Creating(pending.clone()), Allocation::Reserved),
            Phase::Ready(ready) => (AuthorityState::Ready(ready.object.clone()), Allocation::Active),
        };
        Ok(Box::new(AuthorityView {
            key: key.clone(),
            kind: row.kind,
            stable_type: row.stable_type.clone(),
            execution_mode: row.execution_mode,
            state,
            object_generation: row.object_generation,
            owner_generation,
            owner: owner.clone(),
            owner_lease: lease.view(),
            allocation,
            bundle: row.bundle(),
            membership: row.ready().map_or(Membership::None, |ready| membership(&ready.member)),
            version: row.version,
            store_now: now,
        }))
    }

    pub(crate) fn view_entry(
        &self,
        id: &SpotId,
        entry: &EntrySpot,
        now: StoreTime,
    ) -> Result<Option<Box<AuthorityView>>, StoreError> {
        let corrupt = |text: &str| StoreError::Corrupt(format!("Entry Spot {id}: {text}"));
        let claim = self.claims.get(&entry.node).ok_or_else(|| corrupt("its node has no claim"))?;
        let Some(published) = &claim.published else { return Ok(None) };
        let lease = self.lease(claim.lease).ok_or_else(|| corrupt("its owner's lease has no record"))?;
        let (mesh, rid) = entry.node.clone();
        Ok(Some(Box::new(AuthorityView {
            key: ObjectKey::Spot(id.clone()),
            kind: ObjectKind::Spot(SpotKind::Entry),
            // Five letters are a legal stable type.
            stable_type: StableType::new(ENTRY_STABLE_TYPE).map_err(|error| corrupt(&error.to_string()))?,
            execution_mode: None,
            state: AuthorityState::Ready(ReadyObject {
                mark: None,
                created_by: None,
                activation: None,
                last_change: None,
                last_commit: None,
            }),
            object_generation: entry.object_generation,
            owner_generation: entry.owner_generation,
            owner: NodeFence { mesh, rid, lifecycle: claim.lifecycle, lease: claim.lease },
            owner_lease: lease.view(),
            allocation: Allocation::Active,
            bundle: Bundle::default(),
            membership: Membership::None,
            version: published.version,
            store_now: now,
        })))
    }
}

fn membership(member: &Member) -> Membership {
    match member {
        Member::None => Membership::None,
        Member::Entry(spot) => Membership::Entry { spot: spot.clone() },
        Member::User { spot, mode, .. } => Membership::User { spot: spot.clone(), mode: *mode },
        Member::Spot(members) => Membership::Members {
            count: members.count,
            generation: members.generation,
            aggregate: members.aggregate.clone(),
        },
    }
}
