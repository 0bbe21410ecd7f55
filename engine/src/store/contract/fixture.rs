//! Hosts, nodes and objects for the suite's tests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

use super::provider::{Capacity, Provider};
use crate::driver::{LocationStore, LocationStoreExt};
use crate::model::{
    ActorId, ContentId, DescriptorRevision, ExecutionMode, HostState, LeaseRef, LifecycleGeneration,
    MeshName, NodeFence, ObjectKey, ObjectKind, ObjectRole, OperationId, OperationIdentity, OwnerId,
    RelocationPolicy, ReservationId, Rid, SecurityIdentity, Sha256Digest, SpotId, SpotKind, StableType,
    Weight,
};
use crate::store::*;

/// Life of every lease in the suite.
pub(crate) const TTL: Duration = Duration::from_secs(15);
/// Time every creation has.
pub(crate) const REMAINING: Duration = Duration::from_secs(30);
/// Stable types every node of the suite provides, by kind.
pub(crate) const ACTOR: (ObjectKind, &str) = (ObjectKind::Actor, "player");
/// See [`ACTOR`].
pub(crate) const USER_SPOT: (ObjectKind, &str) = (ObjectKind::Spot(SpotKind::User), "zone");
/// See [`ACTOR`].
pub(crate) const INSTANCE_SPOT: (ObjectKind, &str) = (ObjectKind::Spot(SpotKind::Instance), "match");

/// One claimed and published node.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub fence: NodeFence,
    pub entry: SpotId,
    pub descriptor: Descriptor,
}

impl Node {
    pub(crate) fn entry_key(&self) -> ObjectKey {
        ObjectKey::Spot(self.entry.clone())
    }
}

/// A namespace under test.
pub(crate) struct World<'p, P> {
    pub provider: &'p P,
    pub store: Arc<dyn LocationStore>,
    next: AtomicU64,
}

pub(crate) fn actor(id: &str) -> ObjectKey {
    ObjectKey::Actor(ActorId::new(id).expect("a legal id"))
}

pub(crate) fn spot_id(id: &str) -> SpotId {
    SpotId::new(id).expect("a legal id")
}

pub(crate) fn spot(id: &str) -> ObjectKey {
    ObjectKey::Spot(spot_id(id))
}

pub(crate) fn stable(name: &str) -> StableType {
    StableType::new(name).expect("a legal type")
}

pub(crate) fn spot_type(of: (ObjectKind, &str)) -> SpotType {
    let ObjectKind::Spot(kind) = of.0 else { panic!("{of:?} is no Spot") };
    SpotType { kind, stable_type: stable(of.1) }
}

/// Limits that bind nothing.
pub(crate) fn unlimited() -> NodeLimits {
    NodeLimits::default()
}

impl<'p, P: Provider> World<'p, P> {
    pub(crate) fn new(provider: &'p P) -> Self {
        Self { provider, store: provider.store(), next: AtomicU64::new(1) }
    }

    /// Fresh bits for an identity; high and low half both differ from those of others.
    pub(crate) fn bits(&self) -> u128 {
        let n = u128::from(self.next.fetch_add(1, Ordering::Relaxed));
        (n << 64) | n
    }

    pub(crate) fn operation_id(&self) -> OperationId {
        OperationId::new(self.bits()).expect("not zero")
    }

    pub(crate) fn reservation_id(&self) -> ReservationId {
        ReservationId::new(self.bits()).expect("not zero")
    }

    pub(crate) fn owner_id(&self) -> OwnerId {
        OwnerId::new(self.bits()).expect("not zero")
    }

    pub(crate) fn lifecycle(&self) -> LifecycleGeneration {
        LifecycleGeneration::from_u64(self.next.fetch_add(1, Ordering::Relaxed)).expect("not zero")
    }

    pub(crate) async fn ok<O: StoreOperation>(&self, operation: O) -> O::Output {
        match self.store.execute(operation).await {
            Ok(output) => output,
            Err(error) => panic!("expected success, found {error:?}"),
        }
    }

    pub(crate) async fn err<O: StoreOperation>(&self, operation: O) -> StoreError {
        match self.store.execute(operation).await {
            Ok(_) => panic!("expected a failure, found success"),
            Err(error) => error,
        }
    }

    /// Fails unless the operation ends in a conflict of this reason.
    pub(crate) async fn conflict<O: StoreOperation>(&self, operation: O, reason: ConflictReason) {
        let error = self.err(operation).await;
        assert_eq!(error.conflict_reason(), Some(reason), "found {error:?}");
    }

    pub(crate) async fn lease(&self) -> LeaseRef {
        self.ok(AcquireLease { owner: self.owner_id(), ttl: TTL }).await.lease
    }

    pub(crate) async fn renew(&self, lease: LeaseRef) -> LeaseGrant {
        self.ok(RenewLease { lease, ttl: TTL }).await
    }

    pub(crate) fn claim(&self, rid: &str, lease: LeaseRef, limits: NodeLimits) -> ClaimNode {
        let lifecycle = self.lifecycle();
        ClaimNode {
            mesh: MeshName::new("mesh").expect("legal"),
            rid: Rid::new(rid).expect("legal"),
            lifecycle,
            role: ObjectRole::Server,
            limits,
            entry_spot_id: Some(spot_id(&format!("{rid}-entry-{}", lifecycle.get()))),
            lease,
        }
    }

    /// A claimed, published and Serving node of its own host.
    pub(crate) async fn node(&self, rid: &str, limits: NodeLimits) -> Node {
        let lease = self.lease().await;
        self.node_of(rid, lease, limits).await
    }

    pub(crate) async fn node_of(&self, rid: &str, lease: LeaseRef, limits: NodeLimits) -> Node {
        let claim = self.claim(rid, lease, limits);
        self.ok(claim.clone()).await;
        let descriptor = descriptor(&claim, 1);
        self.ok(PublishDescriptor { descriptor: Arc::new(descriptor.clone()), lease }).await;
        Node { fence: fence(&claim), entry: claim.entry_spot_id.expect("a Server's"), descriptor }
    }

    /// Publishes a changed descriptor of the next revision.
    pub(crate) async fn update(
        &self,
        node: &mut Node,
        change: impl FnOnce(&mut Descriptor),
    ) -> UpdateOutcome {
        node.descriptor.revision = node.descriptor.revision.next().expect("not exhausted");
        change(&mut node.descriptor);
        let descriptor = Arc::new(node.descriptor.clone());
        self.ok(UpdateDescriptor { descriptor, lease: node.fence.lease }).await.value
    }

    pub(crate) fn operation(&self, source: &Node) -> OperationIdentity {
        OperationIdentity {
            source_rid: source.fence.rid.clone(),
            source_lifecycle: source.fence.lifecycle,
            operation: self.operation_id(),
        }
    }

    /// Stores content or an activation record for one creation.
    pub(crate) async fn source(&self, of: (ObjectKind, &str)) -> CreationSource {
        let bytes = Bytes::from(format!("request {}", self.bits()));
        let (sha256, size) = (Sha256Digest::of(&bytes), u32::try_from(bytes.len()).expect("short"));
        let retention = REMAINING;
        if of == INSTANCE_SPOT {
            let activation = crate::model::ActivationId::new(self.bits()).expect("not zero");
            self.ok(PutActivation { activation, envelope: bytes, sha256, retention }).await;
            return CreationSource::Activation(activation, sha256, size);
        }
        let content = ContentId::new(self.bits()).expect("not zero");
        self.ok(PutCreationContent { content, bytes, sha256, retention }).await;
        CreationSource::Content(content, sha256, size)
    }

    /// A complete reservation request for a new operation of the target's own host.
    pub(crate) async fn reservation(
        &self,
        key: &ObjectKey,
        of: (ObjectKind, &str),
        target: &Node,
    ) -> Reserve {
        Reserve {
            key: key.clone(),
            kind: of.0,
            stable_type: stable(of.1),
            execution_mode: (of == USER_SPOT).then_some(ExecutionMode::SpotWide),
            target: target.fence.clone(),
            reservation: self.reservation_id(),
            operation: self.operation(target),
            source: self.source(of).await,
            remaining: REMAINING,
            lease: target.fence.lease,
        }
    }

    pub(crate) async fn reserve(
        &self,
        key: &ObjectKey,
        of: (ObjectKind, &str),
        target: &Node,
    ) -> ReservationFence {
        let request = self.reservation(key, of, target).await;
        *self.ok(request).await.value
    }

    /// Creates a Ready object.
    pub(crate) async fn create(
        &self,
        key: &ObjectKey,
        of: (ObjectKind, &str),
        target: &Node,
    ) -> AuthorityView {
        let fence = self.reserve(key, of, target).await;
        *self.ok(commit(&fence, target)).await
    }

    pub(crate) async fn read(&self, key: &ObjectKey) -> AuthorityRead {
        self.ok(ReadAuthority { key: key.clone() }).await
    }

    pub(crate) async fn row(&self, key: &ObjectKey) -> AuthorityView {
        match self.read(key).await {
            AuthorityRead::Found(view) => *view,
            AuthorityRead::Missing { .. } => panic!("{key}: expected a row"),
        }
    }

    pub(crate) async fn assert_missing(&self, key: &ObjectKey) {
        let read = self.read(key).await;
        assert!(read.found().is_none(), "{key}: expected no row, found {read:?}");
    }

    pub(crate) async fn capacity(&self, node: &Node) -> Capacity {
        self.provider.capacity(&node.fence).await
    }

    /// (active, reserved) Actors of a node.
    pub(crate) async fn actors(&self, node: &Node) -> (u64, u64) {
        let capacity = self.capacity(node).await;
        (capacity.actors.active, capacity.actors.reserved)
    }
}

pub(crate) fn fence(claim: &ClaimNode) -> NodeFence {
    NodeFence {
        mesh: claim.mesh.clone(),
        rid: claim.rid.clone(),
        lifecycle: claim.lifecycle,
        lease: claim.lease,
    }
}

/// The descriptor of a Serving node that provides the suite's three types.
pub(crate) fn descriptor(claim: &ClaimNode, revision: u64) -> Descriptor {
    let server = claim.role == ObjectRole::Server;
    let capability = |of: (ObjectKind, &str)| TypeCapability {
        kind: of.0,
        stable_type: stable(of.1),
        policy: RelocationPolicy::PreserveState,
        limit: match of.0 {
            ObjectKind::Spot(kind) => {
                let spot_type = SpotType { kind, stable_type: stable(of.1) };
                claim.limits.types.get(&spot_type).copied().unwrap_or_default()
            }
            ObjectKind::Actor => 0,
        },
        count: 0,
    };
    let types = [ACTOR, USER_SPOT, INSTANCE_SPOT];
    Descriptor {
        mesh: claim.mesh.clone(),
        rid: claim.rid.clone(),
        lifecycle: claim.lifecycle,
        revision: DescriptorRevision::new(revision).expect("a legal revision"),
        endpoint: format!("tcp://{}", claim.rid),
        role: claim.role,
        channels: BTreeMap::new(),
        entry_spot_id: claim.entry_spot_id.clone(),
        capabilities: if server { types.into_iter().map(capability).collect() } else { Vec::new() },
        placement_weight: Weight::DEFAULT,
        actors: 0,
        actor_limit: claim.limits.actors,
        spots: 0,
        spot_limit: claim.limits.spots,
        pending_activations: 0,
        pending_activation_limit: 128,
        host_state: HostState::Serving,
        identity: SecurityIdentity::new("anonymous").expect("legal"),
        trust_profile: "open".to_owned(),
        public_key: None,
        protocol: 1,
        protocol_capabilities: 0,
        application_version: 0,
        maintenance_wave: None,
    }
}

/// An answer that fits a reservation.
pub(crate) fn envelope(fence: &ReservationFence, outcome: TerminalOutcome) -> TerminalEnvelope {
    TerminalEnvelope {
        outcome,
        key: fence.key.clone(),
        object_generation: fence.object_generation,
        mesh: fence.target.mesh.clone(),
        rid: fence.target.rid.clone(),
        reply: Some(Bytes::from_static(b"reply")),
    }
}

/// The commit of a reservation; Actors and User Spots leave a record, Instance Spots none.
pub(crate) fn commit(fence: &ReservationFence, target: &Node) -> CommitCreated {
    let is_actor = matches!(fence.key, ObjectKey::Actor(_));
    let instance = fence.key.id().starts_with("match");
    CommitCreated {
        fence: fence.clone(),
        lease: fence.target.lease,
        envelope: (!instance).then(|| envelope(fence, TerminalOutcome::Created)),
        entry_spot_id: is_actor.then(|| target.entry.clone()),
    }
}

pub(crate) fn authority_fence(row: &AuthorityView) -> AuthorityFence {
    AuthorityFence {
        key: row.key.clone(),
        object_generation: row.object_generation,
        owner_generation: row.owner_generation,
        version: row.version,
    }
}
