//! Membership, close and the rows of a whole owner (STORE-76..84).

use futures::future::join;

use super::fixture::*;
use super::provider::Provider;
use crate::driver::LocationStoreExt;
use crate::model::{ExecutionMode, ObjectKey, SpotId};
use crate::store::*;

fn join_of(
    row: &AuthorityView,
    from: &SpotId,
    to: &str,
    join: crate::model::OperationId,
) -> ChangeMembership {
    let lease = row.owner.lease;
    ChangeMembership { fence: authority_fence(row), from: from.clone(), to: spot_id(to), join, lease }
}

fn member_count(row: &AuthorityView) -> u64 {
    match &row.membership {
        Membership::Members { count, .. } => *count,
        other => panic!("{}: expected a User Spot, found {other:?}", row.key),
    }
}

/// STORE-T17.
pub async fn a_spot_with_members_cannot_close_and_no_race_leaves_a_member_behind(provider: &impl Provider) {
    let world = World::new(provider);
    let node = world.node("n", unlimited()).await;
    let lease = node.fence.lease;
    let zone = world.create(&spot("zone"), USER_SPOT, &node).await;
    let hero = world.create(&actor("hero"), ACTOR, &node).await;
    let joined = world.ok(join_of(&hero, &node.entry, "zone", world.operation_id())).await;
    assert_eq!(joined.membership, Membership::User { spot: spot_id("zone"), mode: ExecutionMode::SpotWide });
    let with_member = world.row(&zone.key).await;
    assert_eq!(member_count(&with_member), 1);
    let close = world.operation_id();
    let begin = BeginClose { fence: authority_fence(&with_member), close, lease };
    world.conflict(begin, ConflictReason::MembersPresent).await;
    assert_eq!(world.row(&zone.key).await.version, with_member.version, "nothing changed");
    // A member can be destroyed; then the Spot can close.
    let destroy = world.operation_id();
    let marked = world.ok(BeginClose { fence: authority_fence(&joined), close: destroy, lease }).await;
    world.ok(FinishClose { fence: authority_fence(&marked), close: destroy, lease }).await;
    let empty = world.row(&zone.key).await;
    assert_eq!(member_count(&empty), 0);
    let marked = world.ok(BeginClose { fence: authority_fence(&empty), close, lease }).await;
    world.ok(FinishClose { fence: authority_fence(&marked), close, lease }).await;
    world.assert_missing(&zone.key).await;
    assert_eq!(world.capacity(&node).await.spots, super::provider::Slots::default());

    // Joins and closes of the same Spot at the same time.
    for round in 0..20 {
        let zone_id = format!("zone-{round}");
        let zone = world.create(&spot(&zone_id), USER_SPOT, &node).await;
        let hero = world.create(&actor(&format!("hero-{round}")), ACTOR, &node).await;
        let close = world.operation_id();
        let joining = world.store.execute(join_of(&hero, &node.entry, &zone_id, world.operation_id()));
        let closing = world.store.execute(BeginClose { fence: authority_fence(&zone), close, lease });
        let (joined, closed) =
            if round % 2 == 0 { join(joining, closing).await } else { swap(join(closing, joining).await) };
        assert!(joined.is_ok() != closed.is_ok(), "exactly one wins: {joined:?} and {closed:?}");
        if let Ok(marked) = closed {
            world.ok(FinishClose { fence: authority_fence(&marked), close, lease }).await;
            world.assert_missing(&zone.key).await;
        }
        let hero = world.row(&hero.key).await;
        if let Membership::User { spot, .. } = &hero.membership {
            world.row(&ObjectKey::Spot(spot.clone())).await;
        }
        provider.check().await;
    }
}

fn swap<A, B>((a, b): (A, B)) -> (B, A) {
    (b, a)
}

/// What a membership change compares, and what it leaves as it is (STORE-76).
pub async fn a_membership_change_keeps_generations_and_capacity(provider: &impl Provider) {
    let world = World::new(provider);
    let (node, other) = (world.node("n", unlimited()).await, world.node("m", unlimited()).await);
    world.create(&spot("zone"), USER_SPOT, &node).await;
    world.create(&spot("far"), USER_SPOT, &other).await;
    let hero = world.create(&actor("hero"), ACTOR, &node).await;
    let capacity = world.capacity(&node).await;
    let change = join_of(&hero, &node.entry, "zone", world.operation_id());
    assert_eq!(
        world.err(ChangeMembership { to: spot_id("nowhere"), ..change.clone() }).await,
        StoreError::NotFound
    );
    let far = ChangeMembership { to: spot_id("far"), ..change.clone() };
    world.conflict(far, ConflictReason::OwnerMismatch).await;
    let wrong_from = ChangeMembership { from: spot_id("far"), ..change.clone() };
    world.conflict(wrong_from, ConflictReason::StateMismatch).await;
    let foreign = ChangeMembership { lease: other.fence.lease, ..change.clone() };
    world.conflict(foreign, ConflictReason::OwnerMismatch).await;
    let joined = world.ok(change.clone()).await;
    let generations = |row: &AuthorityView| (row.object_generation, row.owner_generation);
    assert_eq!(generations(&joined), generations(&hero));
    assert_eq!(world.capacity(&node).await, capacity);
    // The same change again is the same change, another one under the old version is none.
    assert_eq!(world.ok(change.clone()).await.version, joined.version);
    assert_eq!(member_count(&world.row(&spot("zone")).await), 1);
    let stale = ChangeMembership { join: world.operation_id(), ..change };
    world.conflict(stale, ConflictReason::VersionMismatch).await;
    let back = ChangeMembership {
        to: node.entry.clone(),
        ..join_of(&joined, &spot_id("zone"), "zone", world.operation_id())
    };
    let back = world.ok(back).await;
    assert_eq!(back.membership, Membership::Entry { spot: node.entry.clone() });
    assert_eq!(member_count(&world.row(&spot("zone")).await), 0);
    provider.check().await;
}

/// Any host finishes the close of a dead owner; nobody touches its Ready rows but an operator (STORE-79..84).
pub async fn a_dead_owner_keeps_its_ready_rows_until_retired(provider: &impl Provider) {
    let world = World::new(provider);
    let node = world.node("n", unlimited()).await;
    let lease = node.fence.lease;
    let closing = world.create(&actor("closing"), ACTOR, &node).await;
    let ready = world.create(&actor("ready"), ACTOR, &node).await;
    world.create(&spot("zone"), USER_SPOT, &node).await;
    world.create(&spot("match"), INSTANCE_SPOT, &node).await;
    let close = world.operation_id();
    let closing = world.ok(BeginClose { fence: authority_fence(&closing), close, lease }).await;
    let other = world.lease().await;
    let stale = FinishStaleClose { key: closing.key.clone(), version: closing.version, lease: other };
    world.conflict(stale.clone(), ConflictReason::LeaseLive).await;
    world.conflict(RetireOwner { lease, limit: 10 }, ConflictReason::LeaseLive).await;
    provider.advance(TTL).await;
    world.renew(other).await;
    let page = world.ok(ScanStaleClosing { token: None, limit: 10 }).await;
    assert_eq!(page.rows.iter().map(|row| &row.key).collect::<Vec<_>>(), [&closing.key]);
    world.ok(stale).await;
    world.assert_missing(&closing.key).await;
    assert_eq!(world.err(RenewLease { lease, ttl: TTL }).await, StoreError::LeaseLost);
    let ready_stale = FinishStaleClose { key: ready.key.clone(), version: ready.version, lease: other };
    world.conflict(ready_stale, ConflictReason::StateMismatch).await;
    world.ok(Sweep { limit: 1000 }).await;
    let read = world.read(&ready.key).await;
    assert!(matches!(resolve(&read), Resolution::Unavailable(_)), "found {read:?}");
    // In batches, with the remaining count each time.
    assert_eq!(world.ok(RetireOwner { lease, limit: 2 }).await.value, 1);
    assert_eq!(world.ok(RetireOwner { lease, limit: 2 }).await.value, 0);
    world.assert_missing(&ready.key).await;
    assert_eq!(world.capacity(&node).await.actors, super::provider::Slots::default());
    assert_eq!(world.capacity(&node).await.spots, super::provider::Slots::default());
    provider.check().await;
}

/// A graceful shutdown removes its own rows, Actors before their Spots, and nobody else's (STORE-80).
pub async fn a_shutdown_removes_its_own_rows(provider: &impl Provider) {
    let world = World::new(provider);
    let (node, other) = (world.node("n", unlimited()).await, world.node("m", unlimited()).await);
    let lease = node.fence.lease;
    let hero = world.create(&actor("hero"), ACTOR, &node).await;
    world.create(&spot("zone"), USER_SPOT, &node).await;
    world.ok(join_of(&hero, &node.entry, "zone", world.operation_id())).await;
    world.reserve(&actor("pending"), ACTOR, &node).await;
    let foreign = world.create(&actor("foreign"), ACTOR, &other).await;
    for remaining in [2, 1, 0, 0] {
        assert_eq!(world.ok(RemoveOwnerRows { lease, limit: 1 }).await.value, remaining);
        provider.check().await;
    }
    for key in [actor("hero"), actor("pending"), spot("zone")] {
        world.assert_missing(&key).await;
    }
    assert_eq!(world.row(&foreign.key).await.version, foreign.version);
    world.ok(ReleaseLease { lease }).await;
    assert_eq!(world.err(RemoveOwnerRows { lease, limit: 1 }).await, StoreError::LeaseLost);
}
