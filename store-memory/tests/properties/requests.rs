//! Turns four random bytes into requests that are often, not always, the right ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use spotmesh::model::*;
use spotmesh::store::*;

use crate::world::{World, pick, stable};

const TTL: Duration = Duration::from_secs(15);
const REMAINING: Duration = Duration::from_secs(30);

/// The requests of one choice; none where the history has nothing to do it with.
pub fn choose(world: &mut World, [action, a, b, c]: [u8; 4]) -> Vec<StoreRequest> {
    match action % 32 {
        0 => {
            world.advance(u64::from(a % 20));
            Vec::new()
        }
        1 => vec![AcquireLease { owner: OwnerId::new(world.bits()).expect("not zero"), ttl: TTL }.into()],
        2 | 3 => world.leases.iter().map(|lease| RenewLease { lease: *lease, ttl: TTL }.into()).collect(),
        4 if a % 8 == 0 => one(pick(&world.leases, b).map(|lease| ReleaseLease { lease: *lease })),
        4 | 5 => claim(world, a, b),
        6 => publish(world, a, b),
        7 if a % 4 == 0 => one(pick(&world.nodes, b).map(|node| RemoveDescriptor {
            mesh: node.fence.mesh.clone(),
            rid: node.fence.rid.clone(),
            lifecycle: node.fence.lifecycle,
            lease: node.fence.lease,
        })),
        7..=10 => reserve(world, a, b, c),
        11 | 12 => one(fence(world, a).map(|(fence, entry)| CommitCreated {
            lease: fence.target.lease,
            envelope: envelope(&fence, TerminalOutcome::Created),
            entry_spot_id: matches!(fence.key, ObjectKey::Actor(_)).then_some(entry),
            fence,
        })),
        13 => one(fence(world, a).and_then(|(fence, _)| {
            let envelope = envelope(&fence, TerminalOutcome::Rejected)?;
            Some(CommitRejected { lease: fence.target.lease, envelope, fence })
        })),
        14 => one(fence(world, a).map(|(fence, _)| AbortFailed {
            lease: fence.target.lease,
            envelope: envelope(&fence, TerminalOutcome::Failed(ErrorKind::InternalFailure)),
            fence,
        })),
        15 => one(fence(world, a)
            .and_then(|(fence, _)| Some(AbortNotExecuted { fence, lease: *pick(&world.leases, b)? }))),
        16 => by_key(world, a, b, |key, version, lease| AbortRecovery { key, version, lease }.into()),
        17..=19 => join(world, a, b),
        20 if b % 2 == 0 => close(world, a, c),
        20 => by_key(world, a, c, |key, version, lease| FinishStaleClose { key, version, lease }.into()),
        21 if a % 8 == 0 => {
            one(pick(&world.leases, b).map(|lease| RemoveOwnerRows { lease: *lease, limit: 2 }))
        }
        21 if a % 8 == 1 => one(pick(&world.leases, b).map(|lease| RetireOwner { lease: *lease, limit: 2 })),
        21..=23 => begin_move(world, a, b, c),
        24..=26 => step_move(world, a, b),
        27 => end_move(world, a, b),
        28 => activation(world, a),
        29 => by_key(world, 5, a, |_, _, _| Sweep { limit: 10 }.into()),
        30 => finish_close(world, a),
        _ => reads(world, a, b),
    }
}

fn one(request: Option<impl Into<StoreRequest>>) -> Vec<StoreRequest> {
    request.map(Into::into).into_iter().collect()
}

fn by_key(
    world: &World,
    a: u8,
    b: u8,
    make: fn(ObjectKey, StoreVersion, LeaseRef) -> StoreRequest,
) -> Vec<StoreRequest> {
    let (key, _) = World::key(a);
    let version = world.view(&key).map_or(StoreVersion::FIRST, |view| view.version);
    one(pick(&world.leases, b).map(|lease| make(key, version, *lease)))
}

fn claim(world: &mut World, a: u8, b: u8) -> Vec<StoreRequest> {
    let Some(lease) = pick(&world.leases, b).copied() else { return Vec::new() };
    let lifecycle = world.lifecycle();
    let zone = SpotType { kind: SpotKind::User, stable_type: stable(ObjectKind::Spot(SpotKind::User)) };
    let claim = ClaimNode {
        mesh: World::mesh(),
        rid: World::rid(a),
        lifecycle,
        role: ObjectRole::Server,
        limits: NodeLimits { actors: 2, spots: 2, types: BTreeMap::from([(zone, 1)]) },
        entry_spot_id: Some(SpotId::new(format!("entry-{}", lifecycle.get())).expect("legal")),
        lease,
    };
    let descriptor = Arc::new(descriptor(&claim, 1, HostState::Serving));
    vec![claim.into(), PublishDescriptor { descriptor, lease }.into()]
}

fn publish(world: &mut World, a: u8, b: u8) -> Vec<StoreRequest> {
    if world.nodes.is_empty() {
        return Vec::new();
    }
    let at = usize::from(a) % world.nodes.len();
    let node = &mut world.nodes[at];
    node.revision += u64::from(b % 2);
    let state = if b.is_multiple_of(16) { HostState::Draining } else { HostState::Serving };
    let descriptor = Arc::new(descriptor(&node.claim, node.revision + 1, state));
    one(Some(UpdateDescriptor { descriptor, lease: node.fence.lease }))
}

fn descriptor(claim: &ClaimNode, revision: u64, host_state: HostState) -> Descriptor {
    let kinds = [ObjectKind::Actor, ObjectKind::Spot(SpotKind::User), ObjectKind::Spot(SpotKind::Instance)];
    let capability = |kind| TypeCapability {
        kind,
        stable_type: stable(kind),
        policy: RelocationPolicy::PreserveState,
        limit: u32::from(kind == ObjectKind::Spot(SpotKind::User)),
        count: 0,
    };
    Descriptor {
        mesh: claim.mesh.clone(),
        rid: claim.rid.clone(),
        lifecycle: claim.lifecycle,
        revision: DescriptorRevision::new(revision).expect("legal"),
        endpoint: "tcp://node".to_owned(),
        role: claim.role,
        channels: BTreeMap::new(),
        entry_spot_id: claim.entry_spot_id.clone(),
        capabilities: kinds.map(capability).to_vec(),
        placement_weight: Weight::DEFAULT,
        actors: 0,
        actor_limit: claim.limits.actors,
        spots: 0,
        spot_limit: claim.limits.spots,
        pending_activations: 0,
        pending_activation_limit: 128,
        host_state,
        identity: SecurityIdentity::new("anonymous").expect("legal"),
        trust_profile: "open".to_owned(),
        public_key: None,
        protocol: 1,
        protocol_capabilities: 0,
        application_version: 0,
        maintenance_wave: None,
    }
}

fn reserve(world: &mut World, a: u8, b: u8, c: u8) -> Vec<StoreRequest> {
    let (key, kind) = World::key(a);
    let Some(node) = pick(&world.nodes, b).cloned() else { return Vec::new() };
    let lease =
        if c.is_multiple_of(4) { *pick(&world.leases, c).expect("a node has one") } else { node.fence.lease };
    let bytes = Bytes::from(vec![a, b, c]);
    let (sha256, retention) = (Sha256Digest::of(&bytes), REMAINING);
    let (put, source): (StoreRequest, _) = if kind == ObjectKind::Spot(SpotKind::Instance) {
        let activation = ActivationId::new(world.bits()).expect("not zero");
        let put = PutActivation { activation, envelope: bytes, sha256, retention };
        (put.into(), CreationSource::Activation(activation, sha256, 3))
    } else {
        let content = ContentId::new(world.bits()).expect("not zero");
        let put = PutCreationContent { content, bytes, sha256, retention };
        (put.into(), CreationSource::Content(content, sha256, 3))
    };
    let execution_mode = (kind == ObjectKind::Spot(SpotKind::User)).then_some(if c.is_multiple_of(3) {
        ExecutionMode::PerActor
    } else {
        ExecutionMode::SpotWide
    });
    let reserve = Reserve {
        key,
        kind,
        stable_type: stable(kind),
        execution_mode,
        target: node.fence.clone(),
        reservation: ReservationId::new(world.bits()).expect("not zero"),
        operation: OperationIdentity {
            source_rid: node.fence.rid.clone(),
            source_lifecycle: node.fence.lifecycle,
            // Few enough that operations meet their own terminal records.
            operation: OperationId::new(u128::from(c) + 1).expect("not zero"),
        },
        source,
        remaining: REMAINING,
        lease,
    };
    vec![put, reserve.into()]
}

/// A recent or, sometimes, any earlier reservation, with its target's Entry Spot.
fn fence(world: &World, a: u8) -> Option<(ReservationFence, SpotId)> {
    let recent = world.fences.len().saturating_sub(4);
    let from = if a.is_multiple_of(4) { &world.fences[..] } else { &world.fences[recent..] };
    let fence = pick(from, a / 4)?;
    Some((fence.clone(), world.node_of(&fence.target)?.entry.clone()))
}

fn envelope(fence: &ReservationFence, outcome: TerminalOutcome) -> Option<TerminalEnvelope> {
    (fence.key != World::spot("i")).then(|| TerminalEnvelope {
        outcome,
        key: fence.key.clone(),
        object_generation: fence.object_generation,
        mesh: fence.target.mesh.clone(),
        rid: fence.target.rid.clone(),
        reply: None,
    })
}

fn fence_of(view: &AuthorityView) -> AuthorityFence {
    AuthorityFence {
        key: view.key.clone(),
        object_generation: view.object_generation,
        owner_generation: view.owner_generation,
        version: view.version,
    }
}

fn owner_of(view: &AuthorityView) -> OwnerFence {
    OwnerFence { node: view.owner.clone(), generation: view.owner_generation }
}

fn spot_of(view: &AuthorityView) -> Option<SpotId> {
    match &view.membership {
        Membership::Entry { spot } | Membership::User { spot, .. } => Some(spot.clone()),
        Membership::None | Membership::Members { .. } => None,
    }
}

/// Somewhere an Actor of `owner` could go: a User Spot, or the owner's Entry Spot.
fn destination(world: &World, owner: &NodeFence, b: u8) -> Option<SpotId> {
    match b % 5 {
        0 => world.node_of(owner).map(|node| node.entry.clone()),
        n => match World::key(3 + n % 2).0 {
            ObjectKey::Spot(spot) => Some(spot),
            ObjectKey::Actor(_) => None,
        },
    }
}

fn join(world: &mut World, a: u8, b: u8) -> Vec<StoreRequest> {
    let join = OperationId::new(world.bits()).expect("not zero");
    let Some(view) = world.view(&World::key(a % 3).0) else { return Vec::new() };
    let change = spot_of(&view).zip(destination(world, &view.owner, b)).map(|(from, to)| ChangeMembership {
        fence: fence_of(&view),
        from,
        to,
        join,
        lease: view.owner.lease,
    });
    one(change)
}

fn close(world: &mut World, a: u8, c: u8) -> Vec<StoreRequest> {
    let close = OperationId::new(u128::from(c) + 1).expect("not zero");
    let view = world.view(&World::key(a).0);
    one(view.map(|view| BeginClose { fence: fence_of(&view), close, lease: view.owner.lease }))
}

fn finish_close(world: &World, a: u8) -> Vec<StoreRequest> {
    one(world.view(&World::key(a).0).and_then(|view| match view.mark() {
        Some(Mark::Closing(close)) => {
            Some(FinishClose { fence: fence_of(&view), close: *close, lease: view.owner.lease })
        }
        _ => None,
    }))
}

fn begin_move(world: &mut World, a: u8, b: u8, c: u8) -> Vec<StoreRequest> {
    let relocation = RelocationId::new(world.bits()).expect("not zero");
    let reservation = ReservationId::new(world.bits()).expect("not zero");
    let aggregate = AggregateId::new(world.bits()).expect("not zero");
    let Some(view) = world.view(&World::key(a).0) else { return Vec::new() };
    let Some(target) = pick(&world.nodes, b).map(|node| node.fence.clone()) else { return Vec::new() };
    let (source, lease) = (owner_of(&view), view.owner.lease);
    let Membership::Members { count, generation, .. } = view.membership else {
        return vec![reserve_move(&view, relocation, reservation, target)];
    };
    if view.execution_mode == Some(ExecutionMode::PerActor) {
        return vec![reserve_move(&view, relocation, reservation, target)];
    }
    let bytes = InventoryChunk::Index(vec![Sha256Digest::of(&[a, b, c])]).encode();
    let root = Sha256Digest::of(&bytes);
    let ObjectKey::Spot(spot) = view.key else { return Vec::new() };
    let prepare = PrepareAggregate {
        spot,
        aggregate,
        generation,
        relocation,
        attempt: 1,
        version: view.version,
        source,
        target,
        root,
        count: count + 1,
        digest: root,
        validity: REMAINING,
        lease,
    };
    vec![PutInventoryChunk { aggregate, bytes, digest: root }.into(), prepare.into()]
}

fn reserve_move(
    view: &AuthorityView,
    relocation: RelocationId,
    reservation: ReservationId,
    target: NodeFence,
) -> StoreRequest {
    ReserveRelocation {
        key: view.key.clone(),
        relocation,
        reservation,
        attempt: 1,
        version: view.version,
        source: owner_of(view),
        target,
        validity: REMAINING,
        lease: view.owner.lease,
    }
    .into()
}

/// The next step of a move under way: a mark, or its commit.
fn step_move(world: &mut World, a: u8, b: u8) -> Vec<StoreRequest> {
    let join = OperationId::new(world.bits()).expect("not zero");
    let Some(view) = world.view(&World::key(a).0) else { return Vec::new() };
    let Some(Mark::Relocating(mark)) = view.mark() else { return Vec::new() };
    let (key, version, relocation) = (view.key.clone(), view.version, mark.relocation);
    let (source, lease) = (mark.source.clone(), mark.target.lease);
    if let (Some(aggregate), ObjectKey::Spot(spot)) = (&mark.aggregate, &view.key) {
        return one(Some(CommitAggregate {
            spot: spot.clone(),
            aggregate: aggregate.id,
            generation: aggregate.generation,
            relocation,
            attempt: mark.attempt,
            version,
            source,
            root: aggregate.root,
            count: aggregate.count,
            digest: aggregate.digest,
            lease,
        }));
    }
    if let (ObjectKind::Spot(SpotKind::User), ObjectKey::Spot(spot)) = (view.kind, &view.key) {
        return one(Some(CommitSpotAuthority { spot: spot.clone(), relocation, version, source, lease }));
    }
    let attempt = mark.attempt;
    let step = |phase, lease| {
        one(Some(MarkRelocation { key: key.clone(), relocation, attempt, phase, version, lease }))
    };
    match mark.phase {
        RelocationPhase::Preparing => step(MarkPhase::Captured, mark.source.node.lease),
        RelocationPhase::Captured => step(MarkPhase::Prepared, mark.target.lease),
        _ => {
            let from = spot_of(&view);
            let to = destination(world, &mark.target, b);
            let membership = (b % 4 != 3).then_some(from.zip(to)).flatten();
            let membership = membership.map(|(from, to)| MembershipMove { from, to, join });
            let object_generation = view.object_generation;
            one(Some(CommitRelocation {
                key,
                object_generation,
                source,
                version,
                relocation,
                attempt,
                lease,
                membership,
            }))
        }
    }
}

/// Abort or clear, by source or target.
fn end_move(world: &World, a: u8, b: u8) -> Vec<StoreRequest> {
    let Some(view) = world.view(&World::key(a).0) else { return Vec::new() };
    let (key, version) = (view.key.clone(), view.version);
    let Some(Mark::Relocating(mark)) = view.mark() else {
        let relocation = RelocationId::new(u128::MAX).expect("not zero");
        return one(b.is_multiple_of(8).then_some(AbortRelocation {
            key,
            relocation,
            version,
            lease: view.owner.lease,
        }));
    };
    let relocation = mark.relocation;
    if matches!(mark.phase, RelocationPhase::Committed | RelocationPhase::Aborted) {
        return one(Some(ClearRelocation { key, relocation, version, lease: view.owner.lease }));
    }
    let lease = if b.is_multiple_of(2) { mark.source.node.lease } else { mark.target.lease };
    match (&mark.aggregate, &view.key) {
        (Some(_), ObjectKey::Spot(spot)) => {
            one(Some(AbortAggregate { spot: spot.clone(), relocation, version, lease }))
        }
        _ => one(Some(AbortRelocation { key, relocation, version, lease })),
    }
}

fn activation(world: &World, a: u8) -> Vec<StoreRequest> {
    let key = World::spot("i");
    let Some(view) = world.view(&key) else { return Vec::new() };
    let activation = match &view.state {
        AuthorityState::Creating(pending) => match pending.source {
            CreationSource::Activation(id, ..) => Some(id),
            CreationSource::Content(..) => None,
        },
        AuthorityState::Ready(ready) => ready.activation,
    };
    let (Some(activation), ObjectKey::Spot(spot)) = (activation, key) else { return Vec::new() };
    let (object_generation, owner_generation) = (view.object_generation, view.owner_generation);
    let lease = view.owner.lease;
    if a.is_multiple_of(3) {
        return one(Some(ClearActivation { spot, object_generation, owner_generation, activation, lease }));
    }
    one(Some(RecordActivationProgress {
        spot,
        object_generation,
        owner_generation,
        activation,
        inbox_sequence: (a % 3 == 1).then_some(u64::from(a)),
        cursor: (a % 3 == 2).then_some(u64::from(a)),
        lease,
    }))
}

fn reads(world: &World, a: u8, b: u8) -> Vec<StoreRequest> {
    let (key, kind) = World::key(a);
    let limit = u32::from(b % 3) + 1;
    let mut requests: Vec<StoreRequest> = vec![
        ReadAuthority { key }.into(),
        ListDescriptors { mesh: None, token: None, limit }.into(),
        ListAuthorities { kind, stable_type: None, mesh: None, spot: None, token: None, limit }.into(),
        ScanStaleCreating { token: None, limit }.into(),
        ScanStaleClosing { token: None, limit }.into(),
    ];
    if let Some(lease) = pick(&world.leases, b) {
        for filter in [OwnRowFilter::Creating, OwnRowFilter::Ready, OwnRowFilter::MarkedTarget] {
            requests.push(ScanOwnRows { lease: *lease, filter, token: None, limit }.into());
        }
    }
    requests
}
