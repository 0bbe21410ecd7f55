//! Requests of moves, built from rows as read.

use std::time::Duration;

use bytes::Bytes;

use super::fixture::*;
use super::provider::Provider;
use crate::model::{AggregateId, RelocationId, RelocationPolicy, Sha256Digest, SpotId};
use crate::store::*;

/// Restore validity of every move in the suite.
pub(crate) const VALIDITY: Duration = Duration::from_secs(30);

pub(crate) fn owner_of(row: &AuthorityView) -> OwnerFence {
    OwnerFence { node: row.owner.clone(), generation: row.owner_generation }
}

pub(crate) fn spot_of(row: &AuthorityView) -> SpotId {
    spot_id(row.key.id())
}

/// The Spot an Actor is a member of.
pub(crate) fn membership_of(row: &AuthorityView) -> SpotId {
    match &row.membership {
        Membership::Entry { spot } | Membership::User { spot, .. } => spot.clone(),
        other => panic!("{}: expected a member, found {other:?}", row.key),
    }
}

/// Members and aggregate generation of a User Spot.
pub(crate) fn members_of(row: &AuthorityView) -> (u64, u64) {
    match &row.membership {
        Membership::Members { count, generation, .. } => (*count, generation.get()),
        other => panic!("{}: expected a User Spot, found {other:?}", row.key),
    }
}

/// The relocation mark of a row.
pub(crate) fn mark_of(row: &AuthorityView) -> &RelocationMark {
    match row.mark() {
        Some(Mark::Relocating(mark)) => mark,
        other => panic!("{}: expected a relocation mark, found {other:?}", row.key),
    }
}

/// The inventory of an aggregate: its chunks, the root's digest last.
pub(crate) fn inventory(rows: &[AuthorityView]) -> Vec<(Bytes, Sha256Digest)> {
    let mut entries: Vec<_> = rows
        .iter()
        .map(|row| InventoryEntry {
            key: row.key.clone(),
            object_generation: row.object_generation,
            owner: owner_of(row),
            policy: RelocationPolicy::PreserveState,
        })
        .collect();
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    let digested = |chunk: InventoryChunk| {
        let bytes = chunk.encode();
        let digest = Sha256Digest::of(&bytes);
        (bytes, digest)
    };
    let leaves = entries.chunks(crate::model::limits::INVENTORY_LEAF_ENTRIES);
    let mut chunks: Vec<_> = leaves.map(|leaf| digested(InventoryChunk::Leaf(leaf.to_vec()))).collect();
    if chunks.len() > 1 {
        let below = chunks.iter().map(|(_, digest)| *digest).collect();
        chunks.push(digested(InventoryChunk::Index(below)));
    }
    chunks
}

impl<P: Provider> World<'_, P> {
    pub(crate) fn relocation_id(&self) -> RelocationId {
        RelocationId::new(self.bits()).expect("not zero")
    }

    pub(crate) fn reserve_move(&self, row: &AuthorityView, target: &Node) -> ReserveRelocation {
        ReserveRelocation {
            key: row.key.clone(),
            relocation: self.relocation_id(),
            reservation: self.reservation_id(),
            attempt: 1,
            version: row.version,
            source: owner_of(row),
            target: target.fence.clone(),
            validity: VALIDITY,
            lease: row.owner.lease,
        }
    }

    /// Reserves, captures and prepares a move; answers the commit that is due, without a Join.
    pub(crate) async fn prepare_move(&self, row: &AuthorityView, target: &Node) -> CommitRelocation {
        let r = self.reserve_move(row, target);
        let row = self.ok(r.clone()).await;
        let row = self.ok(step_of(&row, MarkPhase::Captured)).await;
        let row = self.ok(step_of(&row, MarkPhase::Prepared)).await;
        commit_of(&row, None)
    }

    /// Moves an Actor to a Spot of another node, and clears the mark.
    pub(crate) async fn join_across(&self, row: &AuthorityView, to: &SpotId, target: &Node) -> AuthorityView {
        let commit = self.prepare_move(row, target).await;
        let (from, join) = (membership_of(row), self.operation_id());
        let membership = Some(MembershipMove { from, to: to.clone(), join });
        let row = self.ok(CommitRelocation { membership, ..commit }).await;
        *self.ok(clear_of(&row)).await
    }

    /// Joins an Actor to a Spot of its own node.
    pub(crate) async fn join(&self, row: &AuthorityView, to: &SpotId) -> AuthorityView {
        *self.ok(self.join_request(row, to)).await
    }

    pub(crate) fn join_request(&self, row: &AuthorityView, to: &SpotId) -> ChangeMembership {
        ChangeMembership {
            fence: authority_fence(row),
            from: membership_of(row),
            to: to.clone(),
            join: self.operation_id(),
            lease: row.owner.lease,
        }
    }

    /// The chunks of a Spot and its members, the Spot last in `rows`, and the prepare that is due after them.
    pub(crate) fn plan_aggregate(
        &self,
        rows: &[AuthorityView],
        target: &Node,
    ) -> (Vec<PutInventoryChunk>, PrepareAggregate) {
        let spot = rows.last().expect("the Spot comes last");
        let aggregate = AggregateId::new(self.bits()).expect("not zero");
        let puts: Vec<_> = inventory(rows)
            .into_iter()
            .map(|(bytes, digest)| PutInventoryChunk { aggregate, bytes, digest })
            .collect();
        let root = puts.last().expect("an inventory is never empty").digest;
        let Membership::Members { generation, .. } = spot.membership else { panic!("{spot:?}") };
        let prepare = PrepareAggregate {
            spot: spot_of(spot),
            aggregate,
            generation,
            relocation: self.relocation_id(),
            attempt: 1,
            version: spot.version,
            source: owner_of(spot),
            target: target.fence.clone(),
            root,
            count: rows.len() as u64,
            digest: root,
            validity: VALIDITY,
            lease: spot.owner.lease,
        };
        (puts, prepare)
    }

    /// Puts the inventory of a Spot and its members and answers the prepare that is due.
    pub(crate) async fn inventoried(&self, rows: &[AuthorityView], target: &Node) -> PrepareAggregate {
        let (puts, prepare) = self.plan_aggregate(rows, target);
        for put in puts {
            self.ok(put).await;
        }
        prepare
    }
}

/// The next phase of a marked row, by whom it is due.
pub(crate) fn step_of(row: &AuthorityView, phase: MarkPhase) -> MarkRelocation {
    let mark = mark_of(row);
    let lease = match phase {
        MarkPhase::Captured => mark.source.node.lease,
        MarkPhase::Prepared => mark.target.lease,
    };
    let (key, relocation, attempt, version) = (row.key.clone(), mark.relocation, mark.attempt, row.version);
    MarkRelocation { key, relocation, attempt, phase, version, lease }
}

/// The commit of a marked row by its target.
pub(crate) fn commit_of(row: &AuthorityView, membership: Option<MembershipMove>) -> CommitRelocation {
    let mark = mark_of(row);
    CommitRelocation {
        key: row.key.clone(),
        object_generation: row.object_generation,
        source: mark.source.clone(),
        version: row.version,
        relocation: mark.relocation,
        attempt: mark.attempt,
        lease: mark.target.lease,
        membership,
    }
}

/// The abort of a marked row, by its source.
pub(crate) fn abort_of(row: &AuthorityView) -> AbortRelocation {
    let mark = mark_of(row);
    let (key, relocation, version) = (row.key.clone(), mark.relocation, row.version);
    AbortRelocation { key, relocation, version, lease: mark.source.node.lease }
}

/// The clearing of an ended move, by the owner.
pub(crate) fn clear_of(row: &AuthorityView) -> ClearRelocation {
    let (key, relocation, version) = (row.key.clone(), mark_of(row).relocation, row.version);
    ClearRelocation { key, relocation, version, lease: row.owner.lease }
}

/// The commit of a prepared aggregate by its target.
pub(crate) fn commit_aggregate_of(row: &AuthorityView) -> CommitAggregate {
    let mark = mark_of(row);
    let aggregate = mark.aggregate.as_ref().expect("an aggregate's mark");
    CommitAggregate {
        spot: spot_of(row),
        aggregate: aggregate.id,
        generation: aggregate.generation,
        relocation: mark.relocation,
        attempt: mark.attempt,
        version: row.version,
        source: mark.source.clone(),
        root: aggregate.root,
        count: aggregate.count,
        digest: aggregate.digest,
        lease: mark.target.lease,
    }
}

/// The abort of a prepared aggregate, by its source.
pub(crate) fn abort_aggregate_of(row: &AuthorityView) -> AbortAggregate {
    let mark = mark_of(row);
    let (spot, relocation, version) = (spot_of(row), mark.relocation, row.version);
    AbortAggregate { spot, relocation, version, lease: mark.source.node.lease }
}

/// The commit of a moving PerActor Spot by its target.
pub(crate) fn commit_spot_of(row: &AuthorityView) -> CommitSpotAuthority {
    let mark = mark_of(row);
    CommitSpotAuthority {
        spot: spot_of(row),
        relocation: mark.relocation,
        version: row.version,
        source: mark.source.clone(),
        lease: mark.target.lease,
    }
}
