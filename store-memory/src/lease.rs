//! Owner leases (STORE-40..43).

use std::time::Duration;

use spotmesh::store::{
    AcquireLease, ConflictReason, LeaseGrant, LeaseState, ReadLease, ReleaseLease, RenewLease, StoreError,
    StoreReply, StoreResult,
};

use crate::apply::Tx;
use crate::state::LeaseRow;

fn check_ttl(ttl: Duration) -> Result<(), StoreError> {
    if ttl.is_zero() {
        return Err(StoreError::InvalidArgument("lease ttl: expected above zero, found zero".to_owned()));
    }
    Ok(())
}

impl Tx<'_> {
    fn granted(&self, row: &LeaseRow) -> StoreResult {
        let grant = LeaseGrant { lease: row.lease, expires_at: row.expires_at, store_now: self.now };
        Ok(StoreReply::Granted(grant))
    }

    pub(crate) fn acquire_lease(&mut self, r: &AcquireLease) -> StoreResult {
        check_ttl(r.ttl)?;
        if let Some(row) = self.state.leases.get(&r.owner) {
            return match row.state {
                LeaseState::Active => self.granted(row),
                _ => Err(StoreError::conflict(ConflictReason::Exists)),
            };
        }
        let generation = self.state.sequences.lease()?;
        let lease = spotmesh::model::LeaseRef { owner: r.owner, generation };
        let row = LeaseRow { lease, state: LeaseState::Active, expires_at: self.now + r.ttl };
        self.state.leases.insert(r.owner, row);
        self.granted(&row)
    }

    pub(crate) fn renew_lease(&mut self, r: &RenewLease) -> StoreResult {
        check_ttl(r.ttl)?;
        let until = self.now + r.ttl;
        let row = self
            .state
            .leases
            .get_mut(&r.lease.owner)
            .filter(|row| row.lease == r.lease && row.state == LeaseState::Active)
            .ok_or(StoreError::LeaseLost)?;
        row.expires_at = row.expires_at.max(until);
        let row = *row;
        self.granted(&row)
    }

    pub(crate) fn release_lease(&mut self, r: &ReleaseLease) -> StoreResult {
        let now = self.now;
        let mut released = false;
        if let Some(row) = self.state.leases.get_mut(&r.lease.owner).filter(|row| row.lease == r.lease) {
            if row.view().is_live(now) {
                row.state = LeaseState::Released;
            }
            released = row.state == LeaseState::Released;
        }
        Ok(StoreReply::Flag(self.stamp(released)))
    }

    pub(crate) fn read_lease(&self, r: &ReadLease) -> StoreResult {
        let row = self.state.lease(r.lease).ok_or(StoreError::NotFound)?;
        Ok(StoreReply::Lease(self.stamp(row.view())))
    }
}
