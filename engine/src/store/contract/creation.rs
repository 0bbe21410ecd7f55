//! How reservations end (STORE-65..69, STORE-71..73).

use std::time::Duration;

use super::fixture::*;
use super::provider::Provider;
use crate::driver::LocationStoreExt;
use crate::model::limits::TERMINAL_RETENTION;
use crate::model::{ErrorKind, LifecycleGeneration, Rid};
use crate::store::*;

fn failed(fence: &ReservationFence) -> AbortFailed {
    let outcome = TerminalOutcome::Failed(ErrorKind::InternalFailure);
    AbortFailed { fence: fence.clone(), lease: fence.target.lease, envelope: Some(envelope(fence, outcome)) }
}

fn rejected(fence: &ReservationFence) -> CommitRejected {
    let envelope = envelope(fence, TerminalOutcome::Rejected);
    CommitRejected { fence: fence.clone(), lease: fence.target.lease, envelope }
}

/// STORE-T5.
pub async fn the_end_of_a_creation_shows_all_its_parts_at_once(provider: &impl Provider) {
    let world = World::new(provider);
    let node = world.node("n", unlimited()).await;
    let request = world.reservation(&actor("hero"), ACTOR, &node).await;
    let fence = *world.ok(request.clone()).await.value;
    let row = world.ok(commit(&fence, &node)).await;
    assert!(matches!(row.state, AuthorityState::Ready(_)), "found {row:?}");
    assert_eq!(row.allocation, Allocation::Active);
    assert_eq!(row.membership, Membership::Entry { spot: node.entry.clone() });
    assert_eq!(
        (row.object_generation, row.owner_generation),
        (fence.object_generation, fence.owner_generation)
    );
    assert_ne!(row.version, fence.version);
    let view = world.ok(ReadCreation { key: actor("hero"), operation: request.operation.clone() }).await;
    assert_eq!(view.authority.found().map(|row| row.version), Some(row.version));
    let record = view.terminal.expect("a record");
    assert_eq!(record.envelope, envelope(&fence, TerminalOutcome::Created));
    assert_eq!(record.retain_until, fence.deadline_at + TERMINAL_RETENTION);
    assert_eq!(world.actors(&node).await, (1, 0));
    let CreationSource::Content(content, ..) = request.source else { panic!("{request:?}") };
    assert_eq!(world.err(GetCreationContent { content }).await, StoreError::NotFound);

    for (id, ending) in [("declined", 0), ("broken", 1)] {
        let request = world.reservation(&actor(id), ACTOR, &node).await;
        let fence = *world.ok(request.clone()).await.value;
        let expected = if ending == 0 {
            world.ok(rejected(&fence)).await;
            TerminalOutcome::Rejected
        } else {
            world.ok(failed(&fence)).await;
            TerminalOutcome::Failed(ErrorKind::InternalFailure)
        };
        world.assert_missing(&actor(id)).await;
        assert_eq!(world.actors(&node).await, (1, 0), "after {expected:?}");
        let record = world.ok(ReadTerminal { operation: request.operation.clone() }).await.value;
        assert_eq!(record.envelope.outcome, expected);
        let CreationSource::Content(content, ..) = request.source else { panic!("{request:?}") };
        assert_eq!(world.err(GetCreationContent { content }).await, StoreError::NotFound);
        // The operation ended: it gets no second attempt while the record is there.
        let again =
            Reserve { reservation: world.reservation_id(), source: world.source(ACTOR).await, ..request };
        world.conflict(again, ConflictReason::TerminalExists).await;
        // Another operation does.
        let other = world.reserve(&actor(id), ACTOR, &node).await;
        world.ok(AbortNotExecuted { fence: other, lease: node.fence.lease }).await;
    }
    provider.check().await;
}

/// STORE-T6.
pub async fn an_abort_without_record_leaves_none_and_defeats_a_late_commit(provider: &impl Provider) {
    let world = World::new(provider);
    let (node, coordinator) = (world.node("n", unlimited()).await, world.lease().await);
    let request = world.reservation(&actor("hero"), ACTOR, &node).await;
    let fence = *world.ok(request.clone()).await.value;
    world.ok(AbortNotExecuted { fence: fence.clone(), lease: coordinator }).await;
    world.assert_missing(&actor("hero")).await;
    assert_eq!(world.actors(&node).await, (0, 0));
    assert_eq!(world.err(ReadTerminal { operation: request.operation.clone() }).await, StoreError::NotFound);
    assert!(world.err(commit(&fence, &node)).await.conflict_reason().is_some());
    // The same operation may try again, with the same bytes put again.
    let again = Reserve { source: world.source(ACTOR).await, reservation: world.reservation_id(), ..request };
    let fence = *world.ok(again.clone()).await.value;
    // Recovery is refused while the target lives, however old the row.
    let version = world.row(&actor("hero")).await.version;
    world.renew(coordinator).await;
    let recover = AbortRecovery { key: actor("hero"), version, lease: coordinator };
    world.conflict(recover.clone(), ConflictReason::LeaseLive).await;
    provider.advance(TTL - Duration::from_secs(1)).await;
    world.renew(coordinator).await;
    world.conflict(recover.clone(), ConflictReason::LeaseLive).await;
    provider.advance(Duration::from_secs(2)).await;
    world.ok(recover.clone()).await;
    world.assert_missing(&actor("hero")).await;
    assert_eq!(world.actors(&node).await, (0, 0));
    assert_eq!(world.err(ReadTerminal { operation: again.operation }).await, StoreError::NotFound);
    let late = world.err(commit(&fence, &node)).await;
    assert!(late.conflict_reason().is_some(), "found {late:?}");
    let renew = RenewLease { lease: node.fence.lease, ttl: TTL };
    assert_eq!(world.err(renew).await, StoreError::LeaseLost, "recovery fenced the lease");
    // The other recoverer of the same row.
    world.conflict(recover, ConflictReason::VersionMismatch).await;
    provider.check().await;
}

/// Recovery also follows a lifecycle that ended while its lease lives, and fences nothing then (STORE-69).
pub async fn recovery_follows_a_lifecycle_that_ended(provider: &impl Provider) {
    let world = World::new(provider);
    let (node, other) = (world.node("n", unlimited()).await, world.lease().await);
    world.reserve(&actor("hero"), ACTOR, &node).await;
    let (mesh, rid) = (node.fence.mesh.clone(), node.fence.rid.clone());
    let (lifecycle, lease) = (node.fence.lifecycle, node.fence.lease);
    world.ok(RemoveDescriptor { mesh, rid, lifecycle, lease }).await;
    let page = world.ok(ScanStaleCreating { token: None, limit: 10 }).await;
    assert_eq!(page.rows.iter().map(|row| row.key.clone()).collect::<Vec<_>>(), [actor("hero")]);
    world.ok(AbortRecovery { key: actor("hero"), version: page.rows[0].version, lease: other }).await;
    world.assert_missing(&actor("hero")).await;
    world.renew(lease).await;
    assert_eq!(world.actors(&node).await, (0, 0));
    provider.check().await;
}

/// STORE-T7.
pub async fn a_terminal_record_answers_its_identity_until_its_retention_ends(provider: &impl Provider) {
    let world = World::new(provider);
    let node = world.node("n", unlimited()).await;
    let request = world.reservation(&actor("hero"), ACTOR, &node).await;
    let fence = *world.ok(request.clone()).await.value;
    world.ok(rejected(&fence)).await;
    let operation = request.operation.clone();
    world.ok(ReadTerminal { operation: operation.clone() }).await;
    let mut others = vec![operation.clone(), operation.clone(), operation.clone()];
    others[0].source_rid = Rid::new("elsewhere").expect("legal");
    others[1].source_lifecycle = LifecycleGeneration::from_u64(u64::MAX).expect("not zero");
    others[2].operation = world.operation_id();
    for other in others {
        let view = world.ok(ReadCreation { key: actor("hero"), operation: other.clone() }).await;
        assert_eq!(view.terminal, None, "{other:?}");
        assert_eq!(world.err(ReadTerminal { operation: other }).await, StoreError::NotFound);
    }
    let second = |source| Reserve { source, ..request.clone() };
    let new_reservation = world.reservation_id();
    // Alive up to deadline + 5 min, to the last whole second before it.
    let mut passed = Duration::ZERO;
    let end = REMAINING + TERMINAL_RETENTION;
    while passed + Duration::from_secs(10) < end {
        provider.advance(Duration::from_secs(10)).await;
        passed += Duration::from_secs(10);
        world.renew(node.fence.lease).await;
    }
    world.ok(ReadTerminal { operation: operation.clone() }).await;
    let early = Reserve { reservation: new_reservation, ..second(world.source(ACTOR).await) };
    world.conflict(early, ConflictReason::TerminalExists).await;
    provider.advance(end - passed).await;
    world.renew(node.fence.lease).await;
    assert_eq!(world.err(ReadTerminal { operation: operation.clone() }).await, StoreError::NotFound);
    let view = world.ok(ReadCreation { key: actor("hero"), operation: operation.clone() }).await;
    assert_eq!(view.terminal, None);
    let again = Reserve { reservation: new_reservation, ..second(world.source(ACTOR).await) };
    let again = *world.ok(again).await.value;
    // Its end replaces the record that is past its retention.
    world.ok(commit(&again, &node)).await;
    let record = world.ok(ReadTerminal { operation }).await.value;
    assert_eq!(record.reservation, new_reservation);
    provider.check().await;
}

/// STORE-T8.
pub async fn no_time_frees_a_creating_row_while_its_target_lives(provider: &impl Provider) {
    let world = World::new(provider);
    let node = world.node("n", unlimited()).await;
    let fence = world.reserve(&actor("hero"), ACTOR, &node).await;
    let total = REMAINING + TERMINAL_RETENTION * 2;
    let mut passed = Duration::ZERO;
    while passed < total {
        provider.advance(Duration::from_secs(10)).await;
        passed += Duration::from_secs(10);
        world.renew(node.fence.lease).await;
    }
    world.ok(Sweep { limit: 1000 }).await;
    let row = world.row(&actor("hero")).await;
    assert!(row.store_now > fence.deadline_at);
    assert_eq!(row.reservation_fence().as_ref(), Some(&fence));
    let page = world.ok(ScanStaleCreating { token: None, limit: 10 }).await;
    assert_eq!(page.rows, [], "its target lives");
    assert_eq!(world.actors(&node).await, (0, 1));
    let row = world.ok(commit(&fence, &node)).await;
    assert!(matches!(row.state, AuthorityState::Ready(_)), "found {row:?}");
    provider.check().await;
}

/// A fence that differs in any one field commits nothing (STORE-65).
pub async fn a_commit_compares_every_field_of_its_fence(provider: &impl Provider) {
    let world = World::new(provider);
    let (node, other) = (world.node("n", unlimited()).await, world.node("m", unlimited()).await);
    let fence = world.reserve(&actor("hero"), ACTOR, &node).await;
    let later = world.reserve(&actor("later"), ACTOR, &node).await;
    let changed = [
        ReservationFence { reservation: later.reservation, ..fence.clone() },
        ReservationFence { object_generation: later.object_generation, ..fence.clone() },
        ReservationFence { owner_generation: later.owner_generation, ..fence.clone() },
        ReservationFence { version: later.version, ..fence.clone() },
        ReservationFence { target: other.fence.clone(), ..fence.clone() },
        ReservationFence { deadline_at: later.deadline_at + REMAINING, ..fence.clone() },
        ReservationFence { key: actor("nobody"), ..fence.clone() },
    ];
    for wrong in changed {
        let error = world.err(commit(&wrong, &node)).await;
        assert!(error.conflict_reason().is_some(), "{wrong:?}: found {error:?}");
        let error = world.err(failed(&wrong)).await;
        assert!(error.conflict_reason().is_some(), "{wrong:?}: found {error:?}");
    }
    // The right fence in the hands of another host.
    let foreign = CommitCreated { lease: other.fence.lease, ..commit(&fence, &node) };
    world.conflict(foreign, ConflictReason::OwnerMismatch).await;
    assert_eq!(world.row(&actor("hero")).await.reservation_fence(), Some(fence.clone()));
    assert_eq!(world.actors(&node).await, (0, 2));
    // A target that gave its claim up commits nothing either.
    let (mesh, rid) = (node.fence.mesh.clone(), node.fence.rid.clone());
    let (lifecycle, lease) = (node.fence.lifecycle, node.fence.lease);
    world.ok(RemoveDescriptor { mesh, rid, lifecycle, lease }).await;
    world.conflict(commit(&fence, &node), ConflictReason::LifecycleMismatch).await;
    let store = &world.store;
    assert!(store.execute(ReadAuthority { key: actor("hero") }).await.is_ok());
    provider.check().await;
}
