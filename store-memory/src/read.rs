//! Reads, listings and scans (STORE-54..59, STORE-109, STORE-110).

use std::ops::Bound;
use std::sync::Arc;

use spotmesh::model::limits::PAGE_BYTES_MAX;
use spotmesh::model::{NodeFence, ObjectKey, ObjectKind, OperationIdentity, Sha256Digest, SpotId, SpotKind};
use spotmesh::store::{
    AuthorityPage, AuthorityRead, AuthorityView, CreationView, Descriptor, DescriptorEntry, DescriptorPage,
    ListAuthorities, ListDescriptors, Mark, OwnRowFilter, PageToken, ReadAuthority, ReadCreation,
    ReadTerminal, ScanOwnRows, ScanStaleClosing, ScanStaleCreating, SpotType, StoreError, StoreReply,
    StoreResult, TerminalRecord,
};

use crate::apply::Tx;
use crate::capacity::SlotUse;
use crate::page::{check_limit, listing, resume, token};
use crate::state::{NodeName, Row};

impl Tx<'_> {
    fn read(&self, key: &ObjectKey) -> Result<AuthorityRead, StoreError> {
        Ok(match self.state.view_key(key, self.now)? {
            Some(view) => AuthorityRead::Found(view),
            None => AuthorityRead::Missing { store_now: self.now },
        })
    }

    /// The terminal record of an operation while it is retained (STORE-72).
    pub(crate) fn terminal(&self, operation: &OperationIdentity) -> Option<&TerminalRecord> {
        self.state.terminals.get(operation).filter(|record| record.retain_until > self.now)
    }

    fn verified_terminal(&self, operation: &OperationIdentity) -> Result<Option<TerminalRecord>, StoreError> {
        match self.terminal(operation) {
            Some(record) if Sha256Digest::of(&record.envelope.encode()) != record.sha256 => {
                Err(StoreError::DataLost)
            }
            found => Ok(found.cloned()),
        }
    }

    pub(crate) fn read_authority(&self, r: &ReadAuthority) -> StoreResult {
        self.read(&r.key).map(StoreReply::Authority)
    }

    pub(crate) fn read_creation(&self, r: &ReadCreation) -> StoreResult {
        let authority = self.read(&r.key)?;
        let terminal = self.verified_terminal(&r.operation)?;
        let row = authority.found();
        let target_lease = row.map(|row| row.owner_lease);
        let target_lifecycle = row.and_then(|row| self.state.published_lifecycle(&row.owner));
        let store_now = self.now;
        let view = CreationView { authority, terminal, target_lease, target_lifecycle, store_now };
        Ok(StoreReply::Creation(Box::new(view)))
    }

    pub(crate) fn read_terminal(&self, r: &ReadTerminal) -> StoreResult {
        let record = self.verified_terminal(&r.operation)?.ok_or(StoreError::NotFound)?;
        Ok(StoreReply::Terminal(self.stamp(Box::new(record))))
    }

    pub(crate) fn list_descriptors(&self, r: &ListDescriptors) -> StoreResult {
        let limit = check_limit(r.limit)?;
        let listing = listing("list_descriptors", &r.mesh);
        let behind: Bound<NodeName> = match resume(listing, r.token.as_ref())? {
            Some(last) => Bound::Excluded(last),
            None => Bound::Unbounded,
        };
        let mut entries: Vec<DescriptorEntry> = Vec::new();
        let (mut bytes, mut next) = (0, None);
        for ((mesh, _), claim) in self.state.claims.range((behind, Bound::Unbounded)) {
            let Some(published) = &claim.published else { continue };
            if r.mesh.as_ref().is_some_and(|wanted| wanted != mesh) {
                continue;
            }
            // 256 bytes are more than lease view and version take. A single descriptor always fits.
            bytes += published.encoded_len + 256;
            if entries.len() == limit || (bytes > PAGE_BYTES_MAX && !entries.is_empty()) {
                next = entries
                    .last()
                    .map(|last| token(listing, &(last.descriptor.mesh.clone(), last.descriptor.rid.clone())));
                break;
            }
            let lease = self.state.lease(claim.lease).ok_or_else(|| {
                StoreError::Corrupt(format!(
                    "node {} in {mesh}: lease has no record",
                    published.descriptor.rid
                ))
            })?;
            let node = NodeFence {
                mesh: mesh.clone(),
                rid: published.descriptor.rid.clone(),
                lifecycle: published.descriptor.lifecycle,
                lease: claim.lease,
            };
            entries.push(DescriptorEntry {
                descriptor: self.projected(&published.descriptor, &node),
                lease: lease.view(),
                version: published.version,
            });
        }
        let (change_stamp, store_now) = (self.state.change_stamp, self.now);
        Ok(StoreReply::Descriptors(DescriptorPage { entries, next, change_stamp, store_now }))
    }

    /// The descriptor with what its node's counters hold now: the projection candidates are chosen by
    /// (STORE-17, NODE-44). The counters decide in Reserve all the same.
    fn projected(&self, published: &Arc<Descriptor>, node: &NodeFence) -> Arc<Descriptor> {
        let used = self.state.node_use(node);
        let count = |slots: SlotUse| u32::try_from(slots.active + slots.reserved).unwrap_or(u32::MAX);
        let (actors, spots) = (count(used.actors), count(used.spots));
        if (actors, spots) == (published.actors, published.spots) && used.types.is_empty() {
            return Arc::clone(published);
        }
        let mut descriptor = (**published).clone();
        (descriptor.actors, descriptor.spots) = (actors, spots);
        for capability in &mut descriptor.capabilities {
            if let ObjectKind::Spot(kind) = capability.kind {
                let spot_type = SpotType { kind, stable_type: capability.stable_type.clone() };
                capability.count = used.types.get(&spot_type).copied().map_or(0, count);
            }
        }
        Arc::new(descriptor)
    }

    /// A page of the rows that `wanted` picks, in key order.
    ///
    /// A view holds at most twelve texts of 255 bytes and some fixed-size values, so under 4 KiB: 1,000 views
    /// stay below the 4 MiB of a page.
    fn rows(
        &self,
        listing: u64,
        (from, limit): (Option<&PageToken>, u32),
        wanted: impl Fn(&ObjectKey, &Row) -> bool,
    ) -> StoreResult {
        let limit = check_limit(limit)?;
        let behind: Bound<ObjectKey> = match resume(listing, from)? {
            Some(last) => Bound::Excluded(last),
            None => Bound::Unbounded,
        };
        let mut rows: Vec<AuthorityView> = Vec::new();
        let mut next = None;
        for (key, row) in self.state.rows.range((behind, Bound::Unbounded)) {
            if !wanted(key, row) {
                continue;
            }
            if rows.len() == limit {
                next = rows.last().map(|last| token(listing, &last.key));
                break;
            }
            rows.push(*self.state.view(key, row, self.now)?);
        }
        Ok(StoreReply::Authorities(AuthorityPage { rows, next, store_now: self.now }))
    }

    pub(crate) fn list_authorities(&self, r: &ListAuthorities) -> StoreResult {
        let listing = listing("list_authorities", (r.kind, &r.stable_type, &r.mesh, &r.spot));
        if r.kind == ObjectKind::Spot(SpotKind::Entry) {
            return self.list_entries(listing, r);
        }
        self.rows(listing, (r.token.as_ref(), r.limit), |_, row| {
            row.kind == r.kind
                && r.stable_type.as_ref().is_none_or(|wanted| *wanted == row.stable_type)
                && r.mesh.as_ref().is_none_or(|wanted| *wanted == self.state.effective(row).0.mesh)
                && r.spot.as_ref().is_none_or(|wanted| row.spot() == Some(wanted))
        })
    }

    fn list_entries(&self, listing: u64, r: &ListAuthorities) -> StoreResult {
        let limit = check_limit(r.limit)?;
        let behind: Bound<SpotId> = match resume(listing, r.token.as_ref())? {
            Some(ObjectKey::Spot(last)) => Bound::Excluded(last),
            _ => Bound::Unbounded,
        };
        let mut rows: Vec<AuthorityView> = Vec::new();
        let mut next = None;
        for (id, entry) in self.state.entries.range((behind, Bound::Unbounded)) {
            let Some(view) = self.state.view_entry(id, entry, self.now)? else { continue };
            let wanted = r.stable_type.as_ref().is_none_or(|wanted| *wanted == view.stable_type)
                && r.mesh.as_ref().is_none_or(|wanted| *wanted == view.owner.mesh)
                && r.spot.is_none();
            if !wanted {
                continue;
            }
            if rows.len() == limit {
                next = rows.last().map(|last| token(listing, &last.key));
                break;
            }
            rows.push(*view);
        }
        Ok(StoreReply::Authorities(AuthorityPage { rows, next, store_now: self.now }))
    }

    /// Whether a row's owner is gone: its lease dead, its descriptor absent or of another lifecycle.
    fn owner_gone(&self, row: &Row) -> bool {
        let (owner, _) = self.state.effective(row);
        !self.state.is_live(owner.lease, self.now)
            || self.state.published_lifecycle(owner) != Some(owner.lifecycle)
    }

    pub(crate) fn scan_stale_creating(&self, r: &ScanStaleCreating) -> StoreResult {
        self.rows(listing("scan_stale_creating", ()), (r.token.as_ref(), r.limit), |_, row| {
            row.pending().is_some() && self.owner_gone(row)
        })
    }

    pub(crate) fn scan_stale_closing(&self, r: &ScanStaleClosing) -> StoreResult {
        self.rows(listing("scan_stale_closing", ()), (r.token.as_ref(), r.limit), |_, row| {
            matches!(row.mark(), Some(Mark::Closing(_))) && self.owner_gone(row)
        })
    }

    pub(crate) fn scan_own_rows(&self, r: &ScanOwnRows) -> StoreResult {
        let listing = listing("scan_own_rows", (r.lease, r.filter));
        self.rows(listing, (r.token.as_ref(), r.limit), |_, row| {
            let owned = self.state.effective(row).0.lease == r.lease;
            match r.filter {
                OwnRowFilter::Creating => owned && row.pending().is_some(),
                OwnRowFilter::Ready => owned && row.ready().is_some(),
                OwnRowFilter::MarkedTarget => {
                    row.relocation().is_some_and(|mark| mark.target.lease == r.lease)
                }
            }
        })
    }
}
