//! Moves of single objects and of PerActor Spots (STORE-85..89, STORE-95, STORE-102).

use futures::future::join;

use super::fixture::*;
use super::moves::*;
use super::provider::Provider;
use crate::driver::LocationStoreExt;
use crate::model::ExecutionMode;
use crate::store::*;

/// STORE-T10.
pub async fn generations_follow_incarnation_and_owner(provider: &impl Provider) {
    let world = World::new(provider);
    let (a, b) = (world.node("a", unlimited()).await, world.node("b", unlimited()).await);
    let zone = world.create(&spot("zone"), USER_SPOT, &a).await;
    let far = world.create(&spot("far"), USER_SPOT, &b).await;
    let created = world.create(&actor("hero"), ACTOR, &a).await;
    // Same-node join and leave: neither generation moves.
    let joined = world.join(&created, &spot_of(&zone)).await;
    assert_eq!(joined.object_generation, created.object_generation);
    assert_eq!(joined.owner_generation, created.owner_generation);
    // Cross-node join: a new owner generation, the same incarnation.
    let crossed = world.join_across(&joined, &spot_of(&far), &b).await;
    assert_eq!(crossed.object_generation, created.object_generation);
    assert!(crossed.owner_generation > joined.owner_generation);
    assert_eq!(crossed.owner, b.fence);
    // The Spot moves with its member: the aggregate's generation counts now, for both.
    let zone = world.row(&far.key).await;
    let prepare = world.inventoried(&[crossed.clone(), zone], &a).await;
    world.ok(prepare).await;
    let committed = world.ok(commit_aggregate_of(&world.row(&far.key).await)).await;
    let moved = world.row(&created.key).await;
    assert_eq!(moved.object_generation, created.object_generation);
    assert_eq!((&moved.owner, moved.owner_generation), (&a.fence, committed.owner_generation));
    assert!(moved.owner_generation > crossed.owner_generation);
    // Leaving the moved Spot keeps the pair that counted there; joining it again keeps the Actor's own.
    world.ok(clear_of(&world.row(&far.key).await)).await;
    let left = world.join(&moved, &a.entry).await;
    assert_eq!((&left.owner, left.owner_generation), (&a.fence, moved.owner_generation));
    let fresh = world.create(&actor("fresh"), ACTOR, &a).await;
    assert!(fresh.owner_generation > committed.owner_generation, "store-wide and increasing");
    let rejoined = world.join(&fresh, &spot_of(&far)).await;
    assert_eq!(rejoined.owner_generation, fresh.owner_generation);
    assert_eq!(rejoined.object_generation, fresh.object_generation);
    // A plain relocation of a Spot without members.
    let instance = world.create(&spot("match"), INSTANCE_SPOT, &a).await;
    let commit = world.prepare_move(&instance, &b).await;
    let relocated = world.ok(commit).await;
    assert_eq!(relocated.object_generation, instance.object_generation);
    assert!(relocated.owner_generation > instance.owner_generation);
    provider.check().await;
}

/// STORE-T11.
pub async fn one_commit_changes_authority_memberships_capacity_and_generations(provider: &impl Provider) {
    let world = World::new(provider);
    let (a, b) = (world.node("a", unlimited()).await, world.node("b", unlimited()).await);
    let from = world.create(&spot("from"), USER_SPOT, &a).await;
    let to = world.create(&spot("to"), USER_SPOT, &b).await;
    let hero = world.create(&actor("hero"), ACTOR, &a).await;
    let hero = world.join(&hero, &spot_of(&from)).await;
    let prepared = world.prepare_move(&hero, &b).await;
    let membership = MembershipMove { from: spot_of(&from), to: spot_of(&to), join: world.operation_id() };
    let commit = CommitRelocation { membership: Some(membership), ..prepared };
    let before = [world.row(&from.key).await, world.row(&to.key).await];
    assert_eq!((world.actors(&a).await, world.actors(&b).await), ((1, 0), (0, 1)));

    // A fence that is stale in any part changes nothing.
    let other = world.create(&actor("other"), ACTOR, &a).await;
    let stale = [
        CommitRelocation { version: hero.version, ..commit.clone() },
        CommitRelocation { attempt: 2, ..commit.clone() },
        CommitRelocation { source: owner_of(&other), ..commit.clone() },
        CommitRelocation { object_generation: other.object_generation, ..commit.clone() },
        CommitRelocation { relocation: world.relocation_id(), ..commit.clone() },
        CommitRelocation { lease: a.fence.lease, ..commit.clone() },
    ];
    for stale in stale {
        let error = world.err(stale.clone()).await;
        assert!(error.conflict_reason().is_some(), "{stale:?}: found {error:?}");
    }
    assert_eq!(world.row(&hero.key).await.owner, a.fence);
    assert_eq!((world.actors(&a).await, world.actors(&b).await), ((2, 0), (0, 1)));

    let moved = world.ok(commit.clone()).await;
    let (from_after, to_after) = (world.row(&from.key).await, world.row(&to.key).await);
    assert_eq!(moved.owner, b.fence);
    assert_eq!(membership_of(&moved), spot_of(&to));
    assert_eq!(mark_of(&moved).phase, RelocationPhase::Committed);
    assert_eq!((members_of(&from_after).0, members_of(&to_after).0), (0, 1));
    for (before, after) in before.iter().zip([&from_after, &to_after]) {
        assert_eq!(members_of(after).1, members_of(before).1 + 1, "aggregate generation of {}", after.key);
    }
    assert_eq!((world.actors(&a).await, world.actors(&b).await), ((1, 0), (1, 0)));

    // The same commit again, also once the mark is cleared and with its former version.
    let again = world.ok(commit.clone()).await;
    assert_eq!((again.version, again.owner_generation), (moved.version, moved.owner_generation));
    let cleared = world.ok(clear_of(&moved)).await;
    assert_eq!(world.ok(commit).await.version, cleared.version);
    assert_eq!((world.actors(&a).await, world.actors(&b).await), ((1, 0), (1, 0)));
    assert_eq!(members_of(&world.row(&to.key).await).0, 1);
    provider.check().await;
}

/// STORE-T15.
pub async fn an_abort_releases_the_target_and_defeats_a_late_commit(provider: &impl Provider) {
    let world = World::new(provider);
    let (a, b) = (world.node("a", unlimited()).await, world.node("b", unlimited()).await);
    let zone = world.create(&spot("zone"), USER_SPOT, &b).await;
    let hero = world.create(&actor("hero"), ACTOR, &a).await;
    let join = |from: &AuthorityView| MembershipMove {
        from: membership_of(from),
        to: spot_of(&zone),
        join: world.operation_id(),
    };
    let commit = world.prepare_move(&hero, &b).await;
    let late = CommitRelocation { membership: Some(join(&hero)), ..commit };
    assert_eq!(world.actors(&b).await, (0, 1));
    let aborted = world.ok(abort_of(&world.row(&hero.key).await)).await;
    assert_eq!(world.actors(&b).await, (0, 0));
    assert_eq!((mark_of(&aborted).phase, &aborted.owner), (RelocationPhase::Aborted, &a.fence));
    assert!(world.err(late.clone()).await.conflict_reason().is_some());
    // Not even with the new version: the move is over.
    let newer = CommitRelocation { version: aborted.version, ..late };
    assert!(world.err(newer).await.conflict_reason().is_some());
    let hero = world.ok(clear_of(&aborted)).await;
    assert_eq!((hero.mark(), &hero.owner), (None, &a.fence));
    let AuthorityState::Ready(object) = &hero.state else { panic!("{hero:?}") };
    assert_eq!(object.last_commit, None, "an aborted move is not kept as a commit");

    // An abort that overtakes its reservation makes the reservation impossible.
    let overtaken = world.reserve_move(&hero, &b);
    let (key, relocation, version) = (hero.key.clone(), overtaken.relocation, hero.version);
    let hero = world.ok(AbortRelocation { key, relocation, version, lease: a.fence.lease }).await;
    world.conflict(overtaken, ConflictReason::VersionMismatch).await;
    assert_eq!(world.actors(&b).await, (0, 0));

    // After a commit an abort is refused, by source and target alike.
    let commit = world.prepare_move(&hero, &b).await;
    let moved = world.ok(CommitRelocation { membership: Some(join(&hero)), ..commit }).await;
    let abort = abort_of(&moved);
    world.conflict(abort.clone(), ConflictReason::StateMismatch).await;
    world.conflict(AbortRelocation { lease: b.fence.lease, ..abort }, ConflictReason::StateMismatch).await;
    assert_eq!(world.actors(&b).await, (1, 0));

    // A source that dies leaves a mark; the target finds it, sees its validity over, and releases its slots.
    let stranded = world.create(&actor("stranded"), ACTOR, &a).await;
    world.prepare_move(&stranded, &b).await;
    assert_eq!(world.actors(&b).await, (1, 1));
    for _ in 0..4 {
        provider.advance(VALIDITY / 4).await;
        world.renew(b.fence.lease).await;
    }
    let lease = b.fence.lease;
    let scan = ScanOwnRows { lease, filter: OwnRowFilter::MarkedTarget, token: None, limit: 10 };
    let page = world.ok(scan).await;
    let expired: Vec<_> = page
        .rows
        .iter()
        .filter(|row| {
            mark_of(row).phase != RelocationPhase::Committed && mark_of(row).valid_until <= page.store_now
        })
        .collect();
    assert_eq!(expired.iter().map(|row| &row.key).collect::<Vec<_>>(), [&stranded.key]);
    world.ok(AbortRelocation { lease, ..abort_of(expired[0]) }).await;
    assert_eq!(world.actors(&b).await, (1, 0));
    assert_eq!(world.row(&stranded.key).await.owner, a.fence, "the dead source keeps the object");
    provider.check().await;
}

/// STORE-T16.
pub async fn a_moving_per_actor_spot_counts_its_members_on_both_sides(provider: &impl Provider) {
    let world = World::new(provider);
    let (a, b) = (world.node("a", unlimited()).await, world.node("b", unlimited()).await);
    let mut request = world.reservation(&spot("shell"), USER_SPOT, &a).await;
    request.execution_mode = Some(ExecutionMode::PerActor);
    let fence = *world.ok(request).await.value;
    let shell = world.ok(commit(&fence, &a)).await;
    let mut members = Vec::new();
    for n in 0..4 {
        let hero = world.create(&actor(&format!("hero-{n}")), ACTOR, &a).await;
        members.push(world.join(&hero, &spot_of(&shell)).await);
    }
    let r = world.reserve_move(&world.row(&shell.key).await, &b);
    world.ok(r).await;
    let joining = world.create(&actor("early"), ACTOR, &a).await;
    let early = world.join_request(&joining, &spot_of(&shell));
    world.conflict(early, ConflictReason::Moving).await;
    let spot_row = world.ok(commit_spot_of(&world.row(&shell.key).await)).await;
    assert_eq!(spot_row.owner, b.fence);
    let counts = async || {
        let row = world.row(&shell.key).await;
        let counts = mark_of(&row).move_counts.expect("a moving PerActor Spot");
        assert_eq!(counts.source + counts.target, members_of(&row).0);
        (counts.source, counts.target)
    };
    assert_eq!(counts().await, (4, 0));
    for member in &members {
        assert_eq!(world.row(&member.key).await.owner, a.fence, "the Spot's commit leaves its Actors");
    }
    assert_eq!((world.actors(&a).await, world.actors(&b).await), ((5, 0), (0, 0)));
    // One follows.
    let commit_member = world.prepare_move(&members[0], &b).await;
    let followed = world.ok(commit_member).await;
    assert_eq!(membership_of(&followed), spot_of(&shell));
    assert_eq!(counts().await, (3, 1));
    world.ok(clear_of(&followed)).await;
    // One leaves at the source, one is destroyed there.
    world.join(&members[1], &a.entry).await;
    assert_eq!(counts().await, (2, 1));
    let (close, lease) = (world.operation_id(), a.fence.lease);
    let marked = world.ok(BeginClose { fence: authority_fence(&members[2]), close, lease }).await;
    world.ok(FinishClose { fence: authority_fence(&marked), close, lease }).await;
    assert_eq!(counts().await, (1, 1));
    // One joins at the new owner, racing with the last one that follows.
    let newcomer = world.create(&actor("newcomer"), ACTOR, &b).await;
    let last = world.prepare_move(&members[3], &b).await;
    world.conflict(clear_of(&world.row(&shell.key).await), ConflictReason::MembersPresent).await;
    let arriving = world.join_request(&newcomer, &spot_of(&shell));
    let (joined, followed) = join(world.store.execute(arriving), world.store.execute(last)).await;
    assert!(joined.is_ok() && followed.is_ok(), "{joined:?} and {followed:?}");
    assert_eq!(counts().await, (0, 3));
    let cleared = world.ok(clear_of(&world.row(&shell.key).await)).await;
    assert_eq!((cleared.mark(), members_of(&cleared).0), (None, 3));
    assert_eq!((world.actors(&a).await, world.actors(&b).await), ((2, 0), (3, 0)));
    provider.check().await;
}
