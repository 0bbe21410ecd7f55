//! Moves of SpotWide Spots with all their members (STORE-90..94, STORE-97, STORE-98, STORE-101).

use bytes::Bytes;
use futures::future::{join, join_all};

use super::fixture::*;
use super::moves::*;
use super::provider::Provider;
use crate::driver::LocationStoreExt;
use crate::model::limits::{INVENTORY_LEAF_BYTES, INVENTORY_LEAF_ENTRIES};
use crate::model::{AggregateId, RelocationPolicy, Sha256Digest};
use crate::store::*;

/// A Spot with members, the Spot last.
async fn populated<P: Provider>(
    world: &World<'_, P>,
    id: &str,
    members: usize,
    node: &Node,
) -> Vec<AuthorityView> {
    let zone = world.create(&spot(id), USER_SPOT, node).await;
    let mut rows = Vec::new();
    for n in 0..members {
        let hero = world.create(&actor(&format!("{id}-{n:05}")), ACTOR, node).await;
        rows.push(world.join(&hero, &spot_of(&zone)).await);
    }
    rows.push(world.row(&zone.key).await);
    rows
}

/// STORE-T12.
pub async fn all_members_switch_in_one_step(provider: &impl Provider) {
    let world = World::new(provider);
    let (a, b) = (world.node("a", unlimited()).await, world.node("b", unlimited()).await);
    for members in [1, 1_024, 1_025, 10_000] {
        let rows = populated(&world, &format!("zone-{members}"), members, &a).await;
        let (zone, sample) = (rows[members].key.clone(), [0, members / 2, members - 1]);
        for lease in [a.fence.lease, b.fence.lease] {
            world.renew(lease).await;
        }
        let before = (world.actors(&a).await, world.actors(&b).await);
        let prepare = world.inventoried(&rows, &b).await;
        world.ok(prepare).await;
        let prepared = world.row(&zone).await;
        for at in sample {
            assert_eq!(world.row(&rows[at].key).await.owner, a.fence, "nobody sees a prepared move");
        }
        // Readers beside the commit: whatever one sees of the Spot, a later read sees no older member.
        let commit = world.store.execute(commit_aggregate_of(&prepared));
        let reads = join_all((0..16).map(|n| {
            let (zone, member) = (zone.clone(), rows[sample[n % 3]].key.clone());
            let world = &world;
            async move {
                let first = world.row(&zone).await.owner;
                let then = world.row(&member).await.owner;
                (first, then)
            }
        }));
        let (committed, seen) = join(commit, reads).await;
        let committed = committed.expect("the commit of what was prepared");
        for (spot, member) in seen {
            assert!(
                spot == a.fence || member == b.fence,
                "the Spot was seen at its new owner, then a member not"
            );
        }
        for row in &rows {
            let now = world.row(&row.key).await;
            assert_eq!((&now.owner, now.owner_generation), (&b.fence, committed.owner_generation));
        }
        let n = members as u64;
        let moved = ((before.0.0 - n, before.0.1), (before.1.0 + n, before.1.1));
        assert_eq!((world.actors(&a).await, world.actors(&b).await), moved);
        world.ok(clear_of(&committed)).await;
    }
    provider.check().await;
}

/// STORE-T13.
pub async fn a_commit_needs_exactly_what_was_prepared(provider: &impl Provider) {
    let world = World::new(provider);
    let (a, b) = (world.node("a", unlimited()).await, world.node("b", unlimited()).await);
    // Whoever comes or goes after the prepare makes it worthless.
    for (id, change) in [("joined", 0), ("left", 1), ("destroyed", 2)] {
        let rows = populated(&world, id, 2, &a).await;
        let outsider = world.create(&actor(&format!("{id}-outsider")), ACTOR, &a).await;
        world.ok(world.inventoried(&rows, &b).await).await;
        let zone = world.row(&rows[2].key).await;
        let commit = commit_aggregate_of(&zone);
        match change {
            0 => {
                // A marked Spot admits nobody, so the join is refused and the commit stays good.
                let late = world.join_request(&outsider, &spot_of(&zone));
                world.conflict(late, ConflictReason::Moving).await;
                world.ok(commit).await;
                continue;
            }
            1 => drop(world.join(&rows[0], &a.entry).await),
            _ => {
                let (close, lease) = (world.operation_id(), a.fence.lease);
                let marked = world.ok(BeginClose { fence: authority_fence(&rows[0]), close, lease }).await;
                world.ok(FinishClose { fence: authority_fence(&marked), close, lease }).await;
            }
        }
        let changed = world.row(&zone.key).await;
        for version in [zone.version, changed.version] {
            let error = world.err(CommitAggregate { version, ..commit.clone() }).await;
            assert!(error.conflict_reason().is_some(), "{id}: found {error:?}");
        }
        assert_eq!(world.row(&rows[1].key).await.owner, a.fence);
        assert_eq!(world.row(&zone.key).await.version, changed.version);
        // It can only be aborted, which gives the whole bundle back.
        let reserved = world.actors(&b).await.1;
        world.ok(abort_aggregate_of(&changed)).await;
        assert_eq!(world.actors(&b).await.1, reserved - 2);
    }

    // Every part of the prepared identity counts.
    let rows = populated(&world, "fixed", 1, &a).await;
    let prepare = world.inventoried(&rows, &b).await;
    let wrong_count = PrepareAggregate { count: 3, ..prepare.clone() };
    assert!(matches!(world.err(wrong_count).await, StoreError::InvalidArgument(_)));
    let absent = Sha256Digest::of(b"absent");
    assert_eq!(world.err(PrepareAggregate { root: absent, ..prepare.clone() }).await, StoreError::NotFound);
    world.ok(prepare.clone()).await;
    let repeated = world.ok(prepare.clone()).await;
    assert!(matches!(*repeated, PrepareOutcome::AlreadyPrepared(_)), "found {repeated:?}");
    let reserved = world.actors(&b).await;
    let retried = world.ok(PrepareAggregate { attempt: 2, ..prepare }).await;
    assert!(matches!(*retried, PrepareOutcome::AlreadyPrepared(_)), "found {retried:?}");
    assert_eq!(world.actors(&b).await, reserved, "a higher attempt reserves nothing twice");
    let zone = world.row(&rows[1].key).await;
    let commit = commit_aggregate_of(&zone);
    assert_eq!(commit.attempt, 2);
    let wrong = [
        CommitAggregate { attempt: 1, ..commit.clone() },
        CommitAggregate { root: absent, ..commit.clone() },
        CommitAggregate { digest: absent, ..commit.clone() },
        CommitAggregate { count: 3, ..commit.clone() },
        CommitAggregate { version: rows[1].version, ..commit.clone() },
        CommitAggregate { lease: a.fence.lease, ..commit.clone() },
    ];
    for wrong in wrong {
        let error = world.err(wrong.clone()).await;
        assert!(error.conflict_reason().is_some(), "{wrong:?}: found {error:?}");
    }
    assert_eq!(world.row(&zone.key).await.version, zone.version);
    world.ok(commit).await;
    chunk_bounds(&world, &rows[0]).await;
    provider.check().await;
}

/// Bounds and digests of chunks (STORE-18, STORE-90).
async fn chunk_bounds<P: Provider>(world: &World<'_, P>, row: &AuthorityView) {
    let aggregate = AggregateId::new(world.bits()).expect("not zero");
    let put = |chunk: InventoryChunk| {
        let bytes = chunk.encode();
        PutInventoryChunk { aggregate, digest: Sha256Digest::of(&bytes), bytes }
    };
    let entry = |n: usize| InventoryEntry {
        key: actor(&format!("{n:05}")),
        object_generation: row.object_generation,
        owner: owner_of(row),
        policy: RelocationPolicy::PreserveState,
    };
    let leaf = |entries: usize| InventoryChunk::Leaf((0..entries).map(entry).collect());
    let full = put(leaf(INVENTORY_LEAF_ENTRIES));
    assert_eq!(world.ok(full.clone()).await.value, PutOutcome::Stored);
    assert_eq!(world.ok(full.clone()).await.value, PutOutcome::AlreadyStored);
    let unsorted = InventoryChunk::Leaf(vec![entry(2), entry(1)]);
    let twice = InventoryChunk::Leaf(vec![entry(1), entry(1)]);
    let index = InventoryChunk::Index(vec![full.digest; INVENTORY_LEAF_ENTRIES + 1]);
    for refused in [leaf(INVENTORY_LEAF_ENTRIES + 1), leaf(0), unsorted, twice, index] {
        let error = world.err(put(refused)).await;
        assert!(matches!(error, StoreError::InvalidArgument(_)), "found {error:?}");
    }
    let large = Bytes::from(vec![0; INVENTORY_LEAF_BYTES + 1]);
    let large = PutInventoryChunk { aggregate, digest: Sha256Digest::of(&large), bytes: large };
    assert!(matches!(world.err(large).await, StoreError::InvalidArgument(_)));
    let wrong = PutInventoryChunk { digest: Sha256Digest::of(b"other"), ..full.clone() };
    assert!(matches!(world.err(wrong).await, StoreError::InvalidArgument(_)));
    let read = world.ok(GetInventoryChunk { aggregate, digest: full.digest }).await.value;
    assert_eq!(read, full.bytes);
}

/// STORE-T14.
pub async fn no_participant_goes_back_after_the_commit(provider: &impl Provider) {
    let world = World::new(provider);
    let (a, b) = (world.node("a", unlimited()).await, world.node("b", unlimited()).await);
    let rows = populated(&world, "zone", 3, &a).await;
    // One member has a move of its own under way, the way a Join that lost the race to the seal would leave it.
    let own_move = world.prepare_move(&rows[0], &b).await;
    world.ok(abort_of(&world.row(&rows[0].key).await)).await;
    let aborted = world.ok(clear_of(&world.row(&rows[0].key).await)).await;
    let rows = [vec![*aborted], rows[1..].to_vec()].concat();
    world.ok(world.inventoried(&rows, &b).await).await;
    let prepared = world.row(&rows[3].key).await;
    let committed = world.ok(commit_aggregate_of(&prepared)).await;
    let (source, target) = (a.fence.lease, b.fence.lease);

    // The source's late steps, whatever version they carry.
    for row in [&prepared, &*committed] {
        let abort = abort_aggregate_of(row);
        for lease in [source, target] {
            world.conflict(AbortAggregate { lease, ..abort.clone() }, ConflictReason::StateMismatch).await;
        }
    }
    let back = PrepareAggregate { lease: source, ..world.inventoried(&rows, &a).await };
    assert!(world.err(back).await.conflict_reason().is_some());
    assert!(world.err(own_move).await.conflict_reason().is_some());
    for row in &rows[..3] {
        // By its own fence of before, by the source's lease: not closed, not left, not moved.
        let (close, join) = (world.operation_id(), world.operation_id());
        let begin = BeginClose { fence: authority_fence(row), close, lease: source };
        assert!(world.err(begin).await.conflict_reason().is_some());
        let (from, to) = (membership_of(row), a.entry.clone());
        let leave = ChangeMembership { fence: authority_fence(row), from, to, join, lease: source };
        assert!(world.err(leave).await.conflict_reason().is_some());
        assert!(world.err(world.reserve_move(row, &b)).await.conflict_reason().is_some());
        // A member of a SpotWide Spot does not move alone, not even at the new owner's wish.
        let now = world.row(&row.key).await;
        let alone = world.prepare_move(&now, &a).await;
        world.conflict(alone, ConflictReason::StateMismatch).await;
        world.ok(abort_of(&world.row(&row.key).await)).await;
    }
    // The new owner's death changes nothing of it.
    provider.advance(TTL).await;
    for row in &rows {
        let now = world.row(&row.key).await;
        assert_eq!((&now.owner, now.owner_generation), (&b.fence, committed.owner_generation));
    }
    provider.check().await;
}
