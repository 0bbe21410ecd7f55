//! The end of sequences and of records (STORE-10, STORE-111).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::fixture::*;
use super::provider::Provider;
use crate::model::limits::TERMINAL_RETENTION;
use crate::model::{ActivationId, AggregateId, ContentId, Sha256Digest};
use crate::store::*;

/// STORE-T26.
pub async fn an_exhausted_sequence_fails_the_operation_and_changes_nothing(provider: &impl Provider) {
    let world = World::new(provider);
    let node = world.node("n", unlimited()).await;
    let lease = node.fence.lease;
    let hidden = world.claim("hidden", lease, unlimited());
    world.ok(hidden.clone()).await;
    let fence = world.reserve(&actor("creating"), ACTOR, &node).await;
    let zone = world.create(&spot("zone"), USER_SPOT, &node).await;
    let hero = world.create(&actor("hero"), ACTOR, &node).await;
    let request = world.reservation(&actor("late"), ACTOR, &node).await;
    let (owner, close, join) = (world.owner_id(), world.operation_id(), world.operation_id());
    let late_claim = world.claim("late", lease, unlimited());
    let mut next = node.descriptor.clone();
    next.revision = next.revision.next().expect("not exhausted");
    provider.leave_generations(0).await;
    let capacity = world.capacity(&node).await;
    let listed = world.ok(ListDescriptors { mesh: None, token: None, limit: 10 }).await;

    let exhausted = StoreError::GenerationExhausted;
    for _ in 0..2 {
        assert_eq!(world.err(AcquireLease { owner, ttl: TTL }).await, exhausted);
        assert_eq!(world.err(late_claim.clone()).await, exhausted);
        let publish = PublishDescriptor { descriptor: Arc::new(descriptor(&hidden, 1)), lease };
        assert_eq!(world.err(publish).await, exhausted);
        assert_eq!(
            world.err(UpdateDescriptor { descriptor: Arc::new(next.clone()), lease }).await,
            exhausted
        );
        assert_eq!(world.err(request.clone()).await, exhausted);
        assert_eq!(world.err(commit(&fence, &node)).await, exhausted);
        let begin = BeginClose { fence: authority_fence(&hero), close, lease };
        assert_eq!(world.err(begin).await, exhausted);
        let (from, to) = (node.entry.clone(), spot_id("zone"));
        let change = ChangeMembership { fence: authority_fence(&hero), from, to, join, lease };
        assert_eq!(world.err(change).await, exhausted);
    }
    world.assert_missing(&actor("late")).await;
    assert_eq!(world.row(&actor("creating")).await.reservation_fence(), Some(fence.clone()));
    assert_eq!(world.row(&hero.key).await.version, hero.version);
    assert_eq!(world.row(&zone.key).await.version, zone.version);
    assert_eq!(world.capacity(&node).await, capacity);
    let unchanged = world.ok(ListDescriptors { mesh: None, token: None, limit: 10 }).await;
    assert_eq!((unchanged.entries, unchanged.change_stamp), (listed.entries, listed.change_stamp));
    // What issues nothing still works.
    world.renew(lease).await;
    world.ok(AbortNotExecuted { fence, lease }).await;
    provider.check().await;
}

/// STORE-T27.
pub async fn sweep_removes_only_what_is_unlinked_and_past_its_retention(provider: &impl Provider) {
    let world = World::new(provider);
    let node = world.node("n", unlimited()).await;
    let lease = node.fence.lease;
    let bytes = Bytes::from_static(b"bytes");
    let sha256 = Sha256Digest::of(&bytes);
    let content = |bits| ContentId::new(bits).expect("not zero");
    let activation = |bits| ActivationId::new(bits).expect("not zero");
    let (short, long) = (content(world.bits()), content(world.bits()));
    let (short_activation, long_activation) = (activation(world.bits()), activation(world.bits()));
    let brief = Duration::from_secs(10);
    let wide = Duration::from_secs(3600);
    for (content, retention) in [(short, brief), (long, wide)] {
        world.ok(PutCreationContent { content, bytes: bytes.clone(), sha256, retention }).await;
    }
    for (activation, retention) in [(short_activation, brief), (long_activation, wide)] {
        world.ok(PutActivation { activation, envelope: bytes.clone(), sha256, retention }).await;
    }
    // Linked: held by Creating rows, and by a Ready Instance Spot.
    let creating = world.reservation(&actor("creating"), ACTOR, &node).await;
    world.ok(creating.clone()).await;
    let instance = world.reservation(&spot("match"), INSTANCE_SPOT, &node).await;
    let instance_fence = *world.ok(instance.clone()).await.value;
    world.ok(commit(&instance_fence, &node)).await;
    let (aggregate, chunk) =
        (AggregateId::new(world.bits()).expect("not zero"), { InventoryChunk::Index(vec![sha256]).encode() });
    let digest = Sha256Digest::of(&chunk);
    world.ok(PutInventoryChunk { aggregate, bytes: chunk, digest }).await;
    let ended = world.reservation(&actor("ended"), ACTOR, &node).await;
    let ended_fence = *world.ok(ended.clone()).await.value;
    world.ok(commit(&ended_fence, &node)).await;
    let gone = world.lease().await;
    let holder = world.node("holder", unlimited()).await;
    let held = world.create(&actor("held"), ACTOR, &holder).await;

    assert_eq!(world.ok(Sweep { limit: 1000 }).await.value, 0, "nothing is past its retention");
    provider.advance(brief).await;
    world.renew(lease).await;
    assert_eq!(world.ok(Sweep { limit: 1 }).await.value, 1, "a batch ends at its limit");
    assert_eq!(world.ok(Sweep { limit: 1000 }).await.value, 1);
    assert_eq!(world.err(GetCreationContent { content: short }).await, StoreError::NotFound);
    assert_eq!(world.err(GetActivation { activation: short_activation }).await, StoreError::NotFound);
    world.ok(GetInventoryChunk { aggregate, digest }).await;
    world.ok(ReadTerminal { operation: ended.operation.clone() }).await;

    provider.advance(REMAINING + TERMINAL_RETENTION).await;
    world.renew(lease).await;
    // Two records, the chunk, and the lease that nothing names; not the dead holder's, which its row names.
    assert_eq!(world.ok(Sweep { limit: 1000 }).await.value, 4);
    assert_eq!(world.err(ReadTerminal { operation: ended.operation }).await, StoreError::NotFound);
    assert_eq!(world.err(GetInventoryChunk { aggregate, digest }).await, StoreError::NotFound);
    assert_eq!(world.err(ReadLease { lease: gone }).await, StoreError::NotFound);
    world.ok(ReadLease { lease: holder.fence.lease }).await;
    assert_eq!(world.row(&held.key).await.version, held.version);
    world.ok(GetCreationContent { content: long }).await;
    world.ok(GetActivation { activation: long_activation }).await;
    let CreationSource::Content(linked, ..) = creating.source else { panic!("{creating:?}") };
    world.ok(GetCreationContent { content: linked }).await;
    let CreationSource::Activation(linked, ..) = instance.source else { panic!("{instance:?}") };
    world.ok(GetActivation { activation: linked }).await;
    assert_eq!(world.ok(Sweep { limit: 1000 }).await.value, 0);
    provider.check().await;
}
