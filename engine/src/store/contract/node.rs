//! Leases, claims and descriptors (STORE-36, STORE-40..54).

use std::sync::Arc;
use std::time::Duration;

use super::fixture::*;
use super::provider::Provider;
use crate::model::{LeaseRef, MeshName};
use crate::store::*;

/// STORE-T19.
pub async fn a_live_claim_keeps_rid_and_entry_spot_id(provider: &impl Provider) {
    let world = World::new(provider);
    let node = world.node("n", unlimited()).await;
    let other = world.lease().await;
    world.conflict(world.claim("n", other, unlimited()), ConflictReason::RidInUse).await;
    let taken = ClaimNode { entry_spot_id: Some(node.entry.clone()), ..world.claim("m", other, unlimited()) };
    world.conflict(taken.clone(), ConflictReason::EntrySpotIdInUse).await;
    // An Entry Spot id is a Spot key as well.
    world.create(&spot("zone"), USER_SPOT, &node).await;
    let taken_by_row = ClaimNode { entry_spot_id: Some(spot_id("zone")), ..taken.clone() };
    world.conflict(taken_by_row, ConflictReason::EntrySpotIdInUse).await;
    let on_entry = world.reservation(&node.entry_key(), USER_SPOT, &node).await;
    world.conflict(on_entry, ConflictReason::Exists).await;
    // The refused claims left nothing behind.
    let listed = world.ok(ListDescriptors { mesh: None, token: None, limit: 10 }).await;
    assert_eq!(listed.entries.len(), 1);
    world.ok(ClaimNode { entry_spot_id: Some(spot_id("fresh")), ..taken }).await;

    // After expiry the RID can be claimed, and the former lease is fenced in the same step.
    provider.advance(TTL).await;
    let successor = world.lease().await;
    let claim = world.claim("n", successor, unlimited());
    world.ok(claim.clone()).await;
    let renew = RenewLease { lease: node.fence.lease, ttl: TTL };
    assert_eq!(world.err(renew).await, StoreError::LeaseLost);
    assert_eq!(world.ok(ReadLease { lease: node.fence.lease }).await.value.state, LeaseState::Fenced);
    world.assert_missing(&node.entry_key()).await;
    world.ok(PublishDescriptor { descriptor: Arc::new(descriptor(&claim, 1)), lease: successor }).await;
    // The former holder cannot remove or change what replaced it.
    let stale = RemoveDescriptor {
        mesh: node.fence.mesh.clone(),
        rid: node.fence.rid.clone(),
        lifecycle: node.fence.lifecycle,
        lease: node.fence.lease,
    };
    world.conflict(stale.clone(), ConflictReason::LifecycleMismatch).await;
    let borrowed = RemoveDescriptor { lifecycle: claim.lifecycle, ..stale };
    world.conflict(borrowed, ConflictReason::LifecycleMismatch).await;
    let mut stale = node.descriptor.clone();
    stale.revision = stale.revision.next().expect("not exhausted");
    let stale = UpdateDescriptor { descriptor: Arc::new(stale), lease: node.fence.lease };
    world.conflict(stale, ConflictReason::LifecycleMismatch).await;
    let listed = world.ok(ListDescriptors { mesh: None, token: None, limit: 10 }).await;
    assert_eq!(listed.entries.len(), 1);
    assert_eq!(listed.entries[0].descriptor.lifecycle, claim.lifecycle);
    provider.check().await;
}

/// STORE-T20.
pub async fn an_unpublished_claim_is_invisible_and_a_repeated_revision_ignored(provider: &impl Provider) {
    let world = World::new(provider);
    let lease = world.lease().await;
    let claim = world.claim("n", lease, unlimited());
    world.ok(claim.clone()).await;
    let list = ListDescriptors { mesh: None, token: None, limit: 10 };
    let before = world.ok(list.clone()).await;
    assert_eq!(before.entries, []);
    let entry = crate::model::ObjectKey::Spot(claim.entry_spot_id.clone().expect("a Server's"));
    world.assert_missing(&entry).await;
    let update = UpdateDescriptor { descriptor: Arc::new(descriptor(&claim, 2)), lease };
    assert_eq!(world.err(update).await, StoreError::NotFound, "nothing to update");

    world.ok(PublishDescriptor { descriptor: Arc::new(descriptor(&claim, 3)), lease }).await;
    let published = world.ok(list.clone()).await;
    assert_eq!(*published.entries[0].descriptor, descriptor(&claim, 3));
    assert_ne!(published.change_stamp, before.change_stamp);
    let read = world.read(&entry).await;
    assert!(matches!(resolve(&read), Resolution::ReadyRoute(row) if row.owner == fence(&claim)), "{read:?}");

    for revision in [1, 3] {
        let mut repeated = descriptor(&claim, revision);
        repeated.endpoint = "tcp://moved".to_owned();
        let outcome = world.ok(UpdateDescriptor { descriptor: Arc::new(repeated), lease }).await.value;
        assert_eq!(outcome, UpdateOutcome::Ignored(published.entries[0].version));
        let unchanged = world.ok(list.clone()).await;
        assert_eq!(
            (unchanged.entries, unchanged.change_stamp),
            (published.entries.clone(), published.change_stamp)
        );
    }
    let mut next = descriptor(&claim, 4);
    next.endpoint = "tcp://moved".to_owned();
    let outcome = world.ok(UpdateDescriptor { descriptor: Arc::new(next.clone()), lease }).await.value;
    assert!(matches!(outcome, UpdateOutcome::Applied(version) if version > published.entries[0].version));
    assert_eq!(*world.ok(list).await.entries[0].descriptor, next);
    provider.check().await;
}

/// What is fixed for a lifecycle stays fixed (STORE-47), and nothing of a refused update is kept.
pub async fn an_update_cannot_change_the_immutable_part(provider: &impl Provider) {
    let world = World::new(provider);
    let node = world.node("n", unlimited()).await;
    let changes: [fn(&mut Descriptor); 5] = [
        |d| d.entry_spot_id = Some(spot_id("another")),
        |d| drop(d.capabilities.pop()),
        |d| d.capabilities[0].policy = crate::model::RelocationPolicy::DisableRelocation,
        |d| d.actor_limit = 9,
        |d| {
            let channel = crate::model::ChannelName::new("chat").expect("legal");
            d.channels.insert(channel, crate::model::Weight::DEFAULT);
        },
    ];
    for change in changes {
        let mut next = node.descriptor.clone();
        next.revision = next.revision.next().expect("not exhausted");
        change(&mut next);
        let update = UpdateDescriptor { descriptor: Arc::new(next), lease: node.fence.lease };
        world.conflict(update, ConflictReason::ImmutableField).await;
    }
    let listed = world.ok(ListDescriptors { mesh: None, token: None, limit: 10 }).await;
    assert_eq!(*listed.entries[0].descriptor, node.descriptor);
}

/// Listings page in order, filter by Mesh and refuse foreign tokens (STORE-54).
pub async fn a_listing_pages_through_all_nodes(provider: &impl Provider) {
    let world = World::new(provider);
    let lease = world.lease().await;
    for n in 0..7 {
        world.node_of(&format!("n{n}"), lease, unlimited()).await;
    }
    let (mut token, mut rids, mut stamps) = (None, Vec::new(), Vec::new());
    loop {
        let page = world.ok(ListDescriptors { mesh: None, token, limit: 3 }).await;
        assert!(page.entries.iter().all(|entry| entry.lease.is_live(page.store_now)));
        rids.extend(page.entries.iter().map(|entry| entry.descriptor.rid.to_string()));
        stamps.push(page.change_stamp);
        token = page.next;
        if token.is_none() {
            break;
        }
    }
    assert_eq!(rids, ["n0", "n1", "n2", "n3", "n4", "n5", "n6"]);
    assert_eq!(stamps, [stamps[0]; 3]);
    let other = Some(MeshName::new("other").expect("legal"));
    let page = world.ok(ListDescriptors { mesh: other.clone(), token: None, limit: 3 }).await;
    assert_eq!((page.entries, page.next), (Vec::new(), None));
    let first = world.ok(ListDescriptors { mesh: None, token: None, limit: 3 }).await;
    let foreign = ListDescriptors { mesh: other, token: first.next, limit: 3 };
    assert_eq!(world.err(foreign).await, StoreError::ScanExpired);
    let garbage = Some(PageToken(bytes::Bytes::from_static(b"garbage")));
    let garbage = ListDescriptors { mesh: None, token: garbage, limit: 3 };
    assert_eq!(world.err(garbage).await, StoreError::ScanExpired);
    for limit in [0, 1001] {
        let error = world.err(ListDescriptors { mesh: None, token: None, limit }).await;
        assert!(matches!(error, StoreError::InvalidArgument(_)), "{limit}: found {error:?}");
    }
}

/// STORE-T21, the part a store decides.
pub async fn renew_works_past_expiry_until_fenced_and_a_resumed_owner_changes_nothing(
    provider: &impl Provider,
) {
    let world = World::new(provider);
    let node = world.node("n", unlimited()).await;
    let (lease, second) = (node.fence.lease, Duration::from_secs(1));
    let reserved = world.reserve(&actor("reserved"), ACTOR, &node).await;
    let ready = world.create(&actor("ready"), ACTOR, &node).await;
    let closing = world.create(&actor("closing"), ACTOR, &node).await;
    let close = world.operation_id();
    let closing = world.ok(BeginClose { fence: authority_fence(&closing), close, lease }).await;
    let pending = world.reservation(&actor("pending"), ACTOR, &node).await;

    provider.advance(TTL + second).await;
    let asleep = world.ok(ReadLease { lease }).await;
    assert!(!asleep.value.is_live(asleep.store_now));
    // The paused owner resumes: every change it tries is refused.
    let capacity = world.capacity(&node).await;
    let listed = world.ok(ListDescriptors { mesh: None, token: None, limit: 10 }).await;
    assert_eq!(world.err(commit(&reserved, &node)).await, StoreError::LeaseLost);
    assert_eq!(world.err(AbortNotExecuted { fence: reserved.clone(), lease }).await, StoreError::LeaseLost);
    assert_eq!(world.err(pending.clone()).await, StoreError::LeaseLost);
    let begin = BeginClose { fence: authority_fence(&ready), close: world.operation_id(), lease };
    assert_eq!(world.err(begin).await, StoreError::LeaseLost);
    let finish = FinishClose { fence: authority_fence(&closing), close, lease };
    assert_eq!(world.err(finish.clone()).await, StoreError::LeaseLost);
    let claim = world.claim("m", lease, unlimited());
    assert_eq!(world.err(claim).await, StoreError::LeaseLost);
    let mut next = node.descriptor.clone();
    next.revision = next.revision.next().expect("not exhausted");
    let update = UpdateDescriptor { descriptor: Arc::new(next), lease };
    assert_eq!(world.err(update).await, StoreError::LeaseLost);
    assert_eq!(world.capacity(&node).await, capacity);
    let unchanged = world.ok(ListDescriptors { mesh: None, token: None, limit: 10 }).await;
    assert_eq!(unchanged.change_stamp, listed.change_stamp);
    assert_eq!(world.row(&actor("ready")).await.version, ready.version);
    assert_eq!(world.row(&actor("closing")).await.version, closing.version);
    assert_eq!(world.row(&actor("reserved")).await.version, reserved.version);

    // Nobody acted on the expiry: the lease can be renewed, and everything works again.
    let grant = world.renew(lease).await;
    assert_eq!(grant.expires_at, grant.store_now + TTL);
    world.ok(pending).await;
    world.ok(finish).await;
    // Once somebody did, never again.
    provider.advance(TTL + second).await;
    let recoverer = world.lease().await;
    world.ok(AbortRecovery { key: actor("reserved"), version: reserved.version, lease: recoverer }).await;
    for _ in 0..2 {
        assert_eq!(world.err(RenewLease { lease, ttl: TTL }).await, StoreError::LeaseLost);
    }
    world.conflict(AcquireLease { owner: lease.owner, ttl: TTL }, ConflictReason::Exists).await;
    assert_eq!(world.row(&actor("ready")).await.version, ready.version, "a dead owner's object stays");
    provider.check().await;
}

/// A renewal moves expiry forward only, names one generation only, and a release ends it (STORE-41, STORE-42).
pub async fn a_lease_grows_and_ends(provider: &impl Provider) {
    let world = World::new(provider);
    let owner = world.owner_id();
    let first = world.ok(AcquireLease { owner, ttl: TTL }).await;
    assert_eq!(first.expires_at, first.store_now + TTL);
    let shorter = world.ok(RenewLease { lease: first.lease, ttl: Duration::from_secs(1) }).await;
    assert_eq!(shorter.expires_at, first.expires_at);
    let generation = world.lease().await.generation;
    let stranger = LeaseRef { owner, generation };
    assert_eq!(world.err(RenewLease { lease: stranger, ttl: TTL }).await, StoreError::LeaseLost);
    assert_eq!(world.err(ReadLease { lease: stranger }).await, StoreError::NotFound);
    assert!(!world.ok(ReleaseLease { lease: stranger }).await.value);
    assert!(world.ok(ReleaseLease { lease: first.lease }).await.value);
    assert_eq!(world.err(RenewLease { lease: first.lease, ttl: TTL }).await, StoreError::LeaseLost);
    world.conflict(AcquireLease { owner, ttl: TTL }, ConflictReason::Exists).await;
    let zero = world.err(AcquireLease { owner: world.owner_id(), ttl: Duration::ZERO }).await;
    assert!(matches!(zero, StoreError::InvalidArgument(_)), "found {zero:?}");
}
