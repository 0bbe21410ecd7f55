//! Single owner: a turn starts only where the Store says the object is, under a live lease (STORE-34, HOST-71).

use std::collections::{BTreeMap, BTreeSet};

use spotmesh::model::{LeaseRef, LifecycleGeneration, StoreTime};
use spotmesh::output::{Turn, Work};
use spotmesh::store::{LeaseState, OwnRowFilter, ReadLease, StoreReply, StoreRequest};

use super::{Verdicts, describe};
use crate::agenda::Nanos;
use crate::place::RunOf;
use crate::store::{Applied, StoreSide};

/// Which lease and lifecycles each process claimed.
#[derive(Debug, Clone, Default)]
pub struct Ownership {
    leases: BTreeMap<RunOf, LeaseRef>,
    lifecycles: BTreeMap<LifecycleGeneration, RunOf>,
    expiries: BTreeMap<LeaseRef, StoreTime>,
    /// Processes whose lease was renewed past its expiry and whose rows were not re-read since (STORE-37).
    unread: BTreeSet<RunOf>,
}

impl Ownership {
    /// The Store carried something out.
    pub fn applied(&mut self, verdicts: &mut Verdicts, at: Nanos, applied: &Applied) {
        match (&applied.request, &applied.result) {
            (StoreRequest::AcquireLease(_), Ok(StoreReply::Granted(grant))) => {
                if let Some(other) = self
                    .leases
                    .iter()
                    .find(|(run, held)| **run != applied.by && held.owner == grant.lease.owner)
                {
                    let text = format!("{} claims the OwnerId of {}", applied.by, other.0);
                    verdicts.report("owner", at, text);
                }
                self.leases.insert(applied.by, grant.lease);
                self.expiries.insert(grant.lease, grant.expires_at);
            }
            (StoreRequest::RenewLease(_), Ok(StoreReply::Granted(grant))) => {
                let before = self.expiries.insert(grant.lease, grant.expires_at);
                if before.is_some_and(|expired| grant.store_now >= expired) {
                    self.unread.insert(applied.by);
                }
            }
            (StoreRequest::ScanOwnRows(scan), Ok(StoreReply::Authorities(page)))
                if scan.filter == OwnRowFilter::Ready && page.next.is_none() =>
            {
                self.unread.remove(&applied.by);
            }
            (StoreRequest::ClaimNode(claim), Ok(_)) => {
                let before = self.lifecycles.insert(claim.lifecycle, applied.by);
                if before.is_some_and(|run| run != applied.by) {
                    let text = format!("{} re-uses the lifecycle of {before:?}", applied.by);
                    verdicts.report("owner", at, text);
                }
            }
            _ => {}
        }
    }

    /// The lease of a process, once granted.
    #[must_use]
    pub fn lease(&self, run: RunOf) -> Option<LeaseRef> {
        self.leases.get(&run).copied()
    }

    /// The process behind a lease.
    #[must_use]
    pub fn holder(&self, lease: LeaseRef) -> Option<RunOf> {
        self.leases.iter().find(|(_, held)| **held == lease).map(|(run, _)| *run)
    }

    /// A turn starts.
    pub fn started(
        &mut self,
        verdicts: &mut Verdicts,
        at: Nanos,
        run: RunOf,
        turn: &Turn,
        store: &mut StoreSide,
    ) {
        let mut report =
            |text: String| verdicts.report("owner", at, format!("{}: {text}", describe(run, turn)));
        if self.unread.contains(&run) {
            report("starts after a renewal past the expiry, without re-reading its rows".to_owned());
        }
        let Some(lease) = self.lease(run) else {
            report("starts without ever having held a lease".to_owned());
            return;
        };
        let view = match store.ask(at, &StoreRequest::ReadLease(ReadLease { lease })) {
            Ok(StoreReply::Lease(stamped)) => stamped.value,
            other => {
                report(format!("starts although its lease {lease:?} is unknown to the Store: {other:?}"));
                return;
            }
        };
        if view.state != LeaseState::Active {
            report(format!("starts although its lease is {:?}", view.state));
        } else if !view.is_live(StoreSide::time(at)) {
            report(format!("starts past its lease, which ended at {:?}", view.expires_at));
        }
        if matches!(turn.work, Work::Create { .. }) {
            // The row may be withdrawn meanwhile; the commit's fence decides (CREATE-9, CREATE-72).
            return;
        }
        let Some(row) = store.row(&turn.key, at) else {
            report("starts although the key has no row".to_owned());
            return;
        };
        if row.pending().is_some() {
            report("starts although the row is still Creating".to_owned());
        }
        if row.owner.lease != lease {
            report(format!("starts although {} owns the row", row.owner.rid));
        }
        if row.object_generation != turn.object_generation || row.owner_generation != turn.owner_generation {
            let found = (row.object_generation, row.owner_generation);
            report(format!("starts although the row is at generation {found:?}"));
        }
    }
}
