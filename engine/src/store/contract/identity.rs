//! The 128-bit identities are never taken for one another (STORE-11).

use std::time::Duration;

use super::fixture::*;
use super::provider::Provider;
use crate::model::{
    AggregateId, ContentId, OperationId, OperationIdentity, RelocationId, ReservationId, Sha256Digest, SpotId,
};
use crate::store::*;

/// STORE-T24: every operation that compares one of the four refuses the bits of the others.
pub async fn no_identity_stands_in_for_another(provider: &impl Provider) {
    let world = World::new(provider);
    let (node, target) = (world.node("n", unlimited()).await, world.node("m", unlimited()).await);
    let lease = node.fence.lease;
    let reservation = |bits| ReservationId::new(bits).expect("not zero");
    let operation = |bits| OperationId::new(bits).expect("not zero");
    let relocation = |bits| RelocationId::new(bits).expect("not zero");
    let aggregate = |bits| AggregateId::new(bits).expect("not zero");

    // Operation and reservation, through a whole creation.
    let request = world.reservation(&actor("hero"), ACTOR, &node).await;
    let operation_bits = request.operation.operation.get();
    let reservation_bits = request.reservation.get();
    let fence = *world.ok(request.clone()).await.value;
    let swapped = ReservationFence { reservation: reservation(operation_bits), ..fence.clone() };
    world.conflict(commit(&swapped, &node), ConflictReason::ReservationMismatch).await;
    let envelope = envelope(&swapped, TerminalOutcome::Rejected);
    let reject = CommitRejected { fence: swapped.clone(), lease, envelope };
    world.conflict(reject, ConflictReason::ReservationMismatch).await;
    let abort = AbortNotExecuted { fence: swapped, lease };
    world.conflict(abort, ConflictReason::ReservationMismatch).await;
    // A reservation is not repeated under the bits of its operation: the key is taken.
    let again = Reserve { reservation: reservation(operation_bits), ..request.clone() };
    world.conflict(again, ConflictReason::Exists).await;
    let hero = world.ok(commit(&fence, &node)).await;
    let by_reservation =
        OperationIdentity { operation: operation(reservation_bits), ..request.operation.clone() };
    assert_eq!(world.err(ReadTerminal { operation: by_reservation }).await, StoreError::NotFound);
    world.ok(ReadTerminal { operation: request.operation.clone() }).await;
    let content = ContentId::new(reservation_bits).expect("not zero");
    assert_eq!(world.err(GetCreationContent { content }).await, StoreError::NotFound);

    // A relocation: its mark answers to its RelocationId, not to its reservation or an operation.
    let relocation_bits = world.bits();
    let target_reservation = world.bits();
    let mark = ReserveRelocation {
        key: hero.key.clone(),
        relocation: relocation(relocation_bits),
        reservation: reservation(target_reservation),
        attempt: 1,
        version: hero.version,
        source: OwnerFence { node: hero.owner.clone(), generation: hero.owner_generation },
        target: target.fence.clone(),
        validity: Duration::from_secs(30),
        lease,
    };
    let marked = world.ok(mark.clone()).await;
    let repeat = ReserveRelocation { reservation: reservation(relocation_bits), ..mark };
    world.conflict(repeat, ConflictReason::Moving).await;
    for bits in [target_reservation, operation_bits, reservation_bits] {
        let (key, version, relocation) = (hero.key.clone(), marked.version, relocation(bits));
        let phase = MarkPhase::Captured;
        let step = MarkRelocation { key: key.clone(), relocation, attempt: 1, phase, version, lease };
        world.conflict(step, ConflictReason::ReservationMismatch).await;
        let abort = AbortRelocation { key: key.clone(), relocation, version, lease };
        world.conflict(abort, ConflictReason::ReservationMismatch).await;
        let clear = ClearRelocation { key, relocation, version, lease };
        world.conflict(clear, ConflictReason::ReservationMismatch).await;
    }
    let (key, version) = (hero.key.clone(), marked.version);
    world.ok(AbortRelocation { key, relocation: relocation(relocation_bits), version, lease }).await;

    // An aggregate: chunks and the prepared move answer to the AggregateId, not to the RelocationId.
    let zone = world.create(&spot("zone"), USER_SPOT, &node).await;
    let (aggregate_bits, relocation_bits) = (world.bits(), world.bits());
    let chunk = InventoryChunk::Leaf(vec![InventoryEntry {
        key: zone.key.clone(),
        object_generation: zone.object_generation,
        owner: OwnerFence { node: zone.owner.clone(), generation: zone.owner_generation },
        policy: crate::model::RelocationPolicy::PreserveState,
    }])
    .encode();
    let root = Sha256Digest::of(&chunk);
    world.ok(PutInventoryChunk { aggregate: aggregate(aggregate_bits), bytes: chunk, digest: root }).await;
    let swapped = GetInventoryChunk { aggregate: aggregate(relocation_bits), digest: root };
    assert_eq!(world.err(swapped).await, StoreError::NotFound);
    let Membership::Members { generation, .. } = zone.membership else { panic!("{zone:?}") };
    let prepare = PrepareAggregate {
        spot: SpotId::new(zone.key.id()).expect("legal"),
        aggregate: aggregate(aggregate_bits),
        generation,
        relocation: relocation(relocation_bits),
        attempt: 1,
        version: zone.version,
        source: OwnerFence { node: zone.owner.clone(), generation: zone.owner_generation },
        target: target.fence.clone(),
        root,
        count: 1,
        digest: root,
        validity: Duration::from_secs(30),
        lease,
    };
    let swapped = PrepareAggregate { aggregate: aggregate(relocation_bits), ..prepare.clone() };
    assert_eq!(world.err(swapped).await, StoreError::NotFound, "no root chunk under that id");
    world.ok(prepare.clone()).await;
    let prepared = world.row(&zone.key).await;
    let commit = CommitAggregate {
        spot: prepare.spot,
        aggregate: prepare.aggregate,
        generation,
        relocation: prepare.relocation,
        attempt: 1,
        version: prepared.version,
        source: prepare.source,
        root,
        count: 1,
        digest: root,
        lease: target.fence.lease,
    };
    let swapped = CommitAggregate { aggregate: aggregate(relocation_bits), ..commit.clone() };
    world.conflict(swapped, ConflictReason::StateMismatch).await;
    let swapped = CommitAggregate { relocation: relocation(aggregate_bits), ..commit.clone() };
    world.conflict(swapped, ConflictReason::ReservationMismatch).await;
    world.ok(commit).await;

    // A close answers to its own operation.
    let end = world.create(&actor("end"), ACTOR, &node).await;
    let close = world.operation_id();
    let marked = world.ok(BeginClose { fence: authority_fence(&end), close, lease }).await;
    let by_relocation = operation(relocation_bits);
    let swapped = FinishClose { fence: authority_fence(&marked), close: by_relocation, lease };
    world.conflict(swapped, ConflictReason::Closing).await;
    world.ok(FinishClose { fence: authority_fence(&marked), close, lease }).await;
    provider.check().await;
}
