//! Garbage (STORE-111).

use std::collections::BTreeSet;

use spotmesh::model::limits::TERMINAL_RETENTION;
use spotmesh::model::{AggregateId, LeaseRef};
use spotmesh::store::{RelocationPhase, StoreReply, StoreResult, Sweep};

use crate::apply::Tx;
use crate::capacity::NodeKey;
use crate::page::check_limit;

/// Takes up to `left` keys that `dead` picks.
fn picks<'a, K: Clone + 'a, V: 'a>(
    entries: impl IntoIterator<Item = (&'a K, &'a V)>,
    left: usize,
    dead: impl Fn(&K, &V) -> bool,
) -> Vec<K> {
    entries
        .into_iter()
        .filter(|(key, value)| dead(key, value))
        .take(left)
        .map(|(key, _)| key.clone())
        .collect()
}

impl Tx<'_> {
    pub(crate) fn sweep(&mut self, r: &Sweep) -> StoreResult {
        let limit = check_limit(r.limit)?;
        let now = self.now;
        let mut left = limit;

        let past = picks(&self.state.terminals, left, |_, record| record.retain_until <= now);
        left -= past.len();
        for operation in past {
            if let Some(record) = self.state.terminals.remove(&operation) {
                self.state.ended.remove(&record.reservation);
            }
        }
        let past =
            picks(&self.state.contents, left, |_, blob| blob.linked.is_none() && blob.retain_until <= now);
        left -= past.len();
        for content in past {
            self.state.contents.remove(&content);
        }
        let past = picks(&self.state.activations, left, |_, row| {
            row.blob.linked.is_none() && row.blob.retain_until <= now
        });
        left -= past.len();
        for activation in past {
            self.state.activations.remove(&activation);
        }
        let moving = self.moving_aggregates();
        let past = picks(&self.state.chunks, left, |(aggregate, _), chunk| {
            !moving.contains(aggregate) && chunk.retain_until <= now
        });
        left -= past.len();
        for chunk in past {
            self.state.chunks.remove(&chunk);
        }
        left -= self.sweep_counters(left);
        left -= self.sweep_leases(left);
        Ok(StoreReply::Count(self.stamp((limit - left) as u64)))
    }

    /// Aggregates whose move is neither cleared nor aborted: their chunks are linked.
    fn moving_aggregates(&self) -> BTreeSet<AggregateId> {
        let marks = self.state.rows.values().filter_map(|row| row.relocation());
        marks
            .filter(|mark| mark.phase != RelocationPhase::Aborted)
            .filter_map(|mark| mark.aggregate.as_ref().map(|aggregate| aggregate.id))
            .collect()
    }

    /// Counters that are all zero and whose lifecycle holds no claim any more.
    fn sweep_counters(&mut self, left: usize) -> usize {
        if left == 0 {
            return 0;
        }
        let named: BTreeSet<NodeKey> = self
            .state
            .rows
            .values()
            .flat_map(|row| {
                let mark = row.relocation();
                let of_mark = mark.into_iter().flat_map(|mark| [&mark.source.node, &mark.target]);
                of_mark.chain([self.state.effective(row).0])
            })
            .map(NodeKey::of)
            .collect();
        let claims = &self.state.claims;
        let past = picks(&self.state.counters, left, |node, counters| {
            let claim = claims.get(&(node.mesh.clone(), node.rid.clone()));
            counters.is_empty()
                && !named.contains(node)
                && claim.is_none_or(|claim| claim.lifecycle != node.lifecycle)
        });
        for node in &past {
            self.state.counters.remove(node);
        }
        past.len()
    }

    /// Dead leases that nothing names any more. They stay for a while, so that a late repeat of their acquire or
    /// renewal still finds what became of them.
    fn sweep_leases(&mut self, left: usize) -> usize {
        if left == 0 {
            return 0;
        }
        let mut named: BTreeSet<LeaseRef> = self.state.claims.values().map(|claim| claim.lease).collect();
        for row in self.state.rows.values() {
            named.extend([row.owner.lease, self.state.effective(row).0.lease]);
            if let Some(mark) = row.relocation() {
                named.extend([mark.source.node.lease, mark.target.lease]);
            }
        }
        let now = self.now;
        let past = picks(&self.state.leases, left, |_, row| {
            row.expires_at + TERMINAL_RETENTION <= now && !named.contains(&row.lease)
        });
        for owner in &past {
            self.state.leases.remove(owner);
        }
        past.len()
    }
}
