//! The Store's records as plain ordered data.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use spotmesh::model::{
    ActivationId, AggregateGeneration, AggregateId, AuthorityOwnerGeneration, ContentId, ExecutionMode,
    LeaseRef, LifecycleGeneration, MeshName, NodeFence, ObjectGeneration, ObjectKey, ObjectKind, ObjectRole,
    OperationIdentity, OwnerId, ReservationId, Rid, Sha256Digest, SpotId, StableType, StoreTime,
    StoreVersion,
};
use spotmesh::store::{
    Aggregate, Bundle, Descriptor, LeaseState, LeaseView, Mark, NodeLimits, PendingCreation, ReadyObject,
    RelocationMark, TerminalRecord,
};

use crate::capacity::{Counters, NodeKey};
use crate::sequence::Sequences;

/// Everything one Store namespace holds.
///
/// Plain data: two stores with equal states answer alike for ever, which exploration and replay rely on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct State {
    pub(crate) sequences: Sequences,
    pub(crate) leases: BTreeMap<OwnerId, LeaseRow>,
    pub(crate) claims: BTreeMap<NodeName, Claim>,
    pub(crate) entries: BTreeMap<SpotId, EntrySpot>,
    pub(crate) counters: BTreeMap<NodeKey, Counters>,
    pub(crate) rows: BTreeMap<ObjectKey, Row>,
    pub(crate) contents: BTreeMap<ContentId, Blob>,
    pub(crate) activations: BTreeMap<ActivationId, ActivationRow>,
    pub(crate) terminals: BTreeMap<OperationIdentity, TerminalRecord>,
    /// Which operation's record an attempt ended in; one entry per record.
    pub(crate) ended: BTreeMap<ReservationId, OperationIdentity>,
    pub(crate) chunks: BTreeMap<(AggregateId, Sha256Digest), ChunkRow>,
    pub(crate) change_stamp: u64,
}

/// Name of a node in the namespace.
pub(crate) type NodeName = (MeshName, Rid);

/// An owner lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct LeaseRow {
    pub lease: LeaseRef,
    pub state: LeaseState,
    pub expires_at: StoreTime,
}

impl LeaseRow {
    pub(crate) fn view(&self) -> LeaseView {
        LeaseView { lease: self.lease, state: self.state, expires_at: self.expires_at }
    }
}

/// A node's claim with its descriptor once published.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Claim {
    pub lifecycle: LifecycleGeneration,
    pub role: ObjectRole,
    pub limits: NodeLimits,
    pub entry_spot_id: Option<SpotId>,
    pub lease: LeaseRef,
    pub claim_version: StoreVersion,
    pub published: Option<Published>,
}

/// A published descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Published {
    pub descriptor: Arc<Descriptor>,
    /// Kept so that listings bound their pages without encoding anything again.
    pub encoded_len: usize,
    pub version: StoreVersion,
}

/// Identity of an Entry Spot; visible while its node's claim is published.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct EntrySpot {
    pub node: NodeName,
    pub object_generation: ObjectGeneration,
    pub owner_generation: AuthorityOwnerGeneration,
}

/// An authority row.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Row {
    pub kind: ObjectKind,
    pub stable_type: StableType,
    pub execution_mode: Option<ExecutionMode>,
    pub object_generation: ObjectGeneration,
    /// The row's own pair; a member of a SpotWide Spot follows the Spot instead (STORE-13).
    pub owner: NodeFence,
    pub owner_generation: AuthorityOwnerGeneration,
    pub version: StoreVersion,
    pub phase: Phase,
}

impl Row {
    pub(crate) fn bundle(&self) -> Bundle {
        Bundle::of(self.kind, &self.stable_type)
    }

    pub(crate) fn ready(&self) -> Option<&Ready> {
        match &self.phase {
            Phase::Ready(ready) => Some(ready),
            Phase::Creating(_) => None,
        }
    }

    pub(crate) fn ready_mut(&mut self) -> Option<&mut Ready> {
        match &mut self.phase {
            Phase::Ready(ready) => Some(ready),
            Phase::Creating(_) => None,
        }
    }

    pub(crate) fn pending(&self) -> Option<&PendingCreation> {
        match &self.phase {
            Phase::Creating(pending) => Some(pending),
            Phase::Ready(_) => None,
        }
    }

    pub(crate) fn mark(&self) -> Option<&Mark> {
        self.ready().and_then(|ready| ready.object.mark.as_ref())
    }

    pub(crate) fn relocation(&self) -> Option<&RelocationMark> {
        match self.mark() {
            Some(Mark::Relocating(mark)) => Some(mark),
            _ => None,
        }
    }

    /// The Spot an Actor is a member of.
    pub(crate) fn spot(&self) -> Option<&SpotId> {
        match self.ready().map(|ready| &ready.member) {
            Some(Member::Entry(spot) | Member::User { spot, .. }) => Some(spot),
            _ => None,
        }
    }

    pub(crate) fn members(&self) -> Option<&Members> {
        match self.ready().map(|ready| &ready.member) {
            Some(Member::Spot(members)) => Some(members),
            _ => None,
        }
    }
}

/// What a row is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Phase {
    Creating(PendingCreation),
    Ready(Ready),
}

/// What only a Ready row has.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub object: ReadyObject,
    pub member: Member,
}

/// The membership side of a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Member {
    /// An Instance Spot.
    None,
    /// An Actor in an Entry Spot.
    Entry(SpotId),
    /// An Actor in a User Spot.
    User {
        spot: SpotId,
        mode: ExecutionMode,
        /// The Spot's owner generation at the join: a different one now means the aggregate moved since.
        joined_under: AuthorityOwnerGeneration,
    },
    /// A User Spot.
    Spot(Members),
}

/// Membership of a User Spot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Members {
    pub count: u64,
    pub generation: AggregateGeneration,
    pub aggregate: Option<Aggregate>,
}

/// Immutable bytes with the reservation that holds them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Blob {
    pub bytes: Bytes,
    pub sha256: Sha256Digest,
    pub retain_until: StoreTime,
    pub linked: Option<ReservationId>,
}

/// An activation record.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ActivationRow {
    pub blob: Blob,
    pub inbox_sequence: Option<u64>,
    pub cursor: Option<u64>,
}

/// An inventory chunk.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ChunkRow {
    pub bytes: Bytes,
    pub retain_until: StoreTime,
}

impl State {
    /// An empty namespace.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn lease(&self, lease: LeaseRef) -> Option<&LeaseRow> {
        self.leases.get(&lease.owner).filter(|row| row.lease == lease)
    }

    pub(crate) fn is_live(&self, lease: LeaseRef, now: StoreTime) -> bool {
        self.lease(lease).is_some_and(|row| row.view().is_live(now))
    }

    /// The claim of exactly this lifecycle and lease.
    pub(crate) fn claim_of(&self, node: &NodeFence) -> Option<&Claim> {
        self.claims
            .get(&(node.mesh.clone(), node.rid.clone()))
            .filter(|claim| claim.lifecycle == node.lifecycle && claim.lease == node.lease)
    }

    /// The published descriptor of exactly this lifecycle and lease.
    pub(crate) fn published(&self, node: &NodeFence) -> Option<&Descriptor> {
        self.claim_of(node)?.published.as_ref().map(|published| &*published.descriptor)
    }

    /// Lifecycle published under a node's name.
    pub(crate) fn published_lifecycle(&self, node: &NodeFence) -> Option<LifecycleGeneration> {
        let claim = self.claims.get(&(node.mesh.clone(), node.rid.clone()))?;
        claim.published.as_ref().map(|_| claim.lifecycle)
    }

    /// Owner and owner generation that count for a row (STORE-13).
    pub(crate) fn effective<'s>(&'s self, row: &'s Row) -> (&'s NodeFence, AuthorityOwnerGeneration) {
        if let Some(Member::User { spot, mode: ExecutionMode::SpotWide, joined_under }) =
            row.ready().map(|ready| &ready.member)
            && let Some(spot) = self.rows.get(&ObjectKey::Spot(spot.clone()))
        {
            let moved = spot.owner_generation != *joined_under;
            return (&spot.owner, if moved { spot.owner_generation } else { row.owner_generation });
        }
        (&row.owner, row.owner_generation)
    }

    /// Takes over how far another state's sequences and change stamp are, so that an emptied namespace can be
    /// compared with one that never held anything.
    pub fn take_over_sequences(&mut self, from: &Self) {
        self.sequences = from.sequences;
        self.change_stamp = from.change_stamp;
    }

    /// Lets only `remaining` more values be issued of every sequence, for tests of STORE-10.
    pub fn leave_generations(&mut self, remaining: u64) {
        self.sequences.leave(remaining);
    }
}
