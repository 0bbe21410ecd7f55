//! What the Store shows of its records (spec 03 §3).

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::descriptor::PageToken;
use super::mark::Mark;
use crate::model::{
    ActivationId, AggregateGeneration, AggregateId, AuthorityOwnerGeneration, ContentId, ErrorKind,
    ExecutionMode, LeaseRef, LifecycleGeneration, MeshName, NodeFence, ObjectGeneration, ObjectKey,
    ObjectKind, OperationId, OperationIdentity, RelocationId, ReservationId, Rid, Sha256Digest, SpotId,
    SpotKind, StableType, StoreTime, StoreVersion,
};

/// Stable type under which the Store shows Entry Spots, which no application registers.
pub const ENTRY_STABLE_TYPE: &str = "entry";

/// State of an owner lease (STORE-36, STORE-42). Expiry is not a state: it is read off the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LeaseState {
    /// Renewable; live while `expires_at` lies ahead.
    Active,
    /// Somebody acted on its expiry; never renewable again.
    Fenced,
    /// Its owner gave it up.
    Released,
}

/// A confirmed acquire or renewal (STORE-40, STORE-41).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseGrant {
    /// The lease.
    pub lease: LeaseRef,
    /// When it expires.
    pub expires_at: StoreTime,
    /// Store time of the grant.
    pub store_now: StoreTime,
}

/// A lease as read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseView {
    /// The lease.
    pub lease: LeaseRef,
    /// Its state.
    pub state: LeaseState,
    /// When it expires, or expired.
    pub expires_at: StoreTime,
}

impl LeaseView {
    /// Whether the lease is Active and not expired at `now`; otherwise it is dead.
    #[must_use]
    pub fn is_live(&self, now: StoreTime) -> bool {
        self.state == LeaseState::Active && self.expires_at > now
    }
}

/// A value with the Store time at which it held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stamped<T> {
    /// The value.
    pub value: T,
    /// Store time of the observation or change.
    pub store_now: StoreTime,
}

/// A type of Spot with a limit of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SpotType {
    /// User or Instance.
    pub kind: SpotKind,
    /// The type.
    pub stable_type: StableType,
}

/// Slots an object takes at its owner, whole or not at all (STORE-15, NODE-42).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Bundle {
    /// Actor slots.
    pub actors: u64,
    /// The Spot's type: one Spot slot and one slot of the type. `None` takes neither.
    pub spot: Option<SpotType>,
}

impl Bundle {
    /// Bundle of one new object; empty for an Entry Spot (STORE-16).
    #[must_use]
    pub fn of(kind: ObjectKind, stable_type: &StableType) -> Self {
        match kind {
            ObjectKind::Actor => Self { actors: 1, spot: None },
            ObjectKind::Spot(SpotKind::Entry) => Self::default(),
            ObjectKind::Spot(kind) => {
                Self { actors: 0, spot: Some(SpotType { kind, stable_type: stable_type.clone() }) }
            }
        }
    }
}

/// Whether the bundle counts as reserved or as active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Allocation {
    /// Promised to a creation.
    Reserved,
    /// In use.
    Active,
}

/// Owner and owner generation, compared as one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OwnerFence {
    /// The owning lifecycle.
    pub node: NodeFence,
    /// Its generation.
    pub generation: AuthorityOwnerGeneration,
}

/// Where an object belongs, or what belongs to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Membership {
    /// Entry and Instance Spots, and anything Creating.
    None,
    /// An Actor in an Entry Spot.
    Entry {
        /// The Entry Spot.
        spot: SpotId,
    },
    /// An Actor in a User Spot.
    User {
        /// The User Spot.
        spot: SpotId,
        /// Its mode: members of a SpotWide Spot follow its owner (STORE-13).
        mode: ExecutionMode,
    },
    /// A User Spot.
    Members {
        /// Its members.
        count: u64,
        /// Steps with every membership change and aggregate move.
        generation: AggregateGeneration,
        /// Its last committed move as an aggregate.
        aggregate: Option<Aggregate>,
    },
}

/// The committed aggregate authority of a SpotWide Spot (spec 03 §3).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Aggregate {
    /// The move.
    pub id: AggregateId,
    /// Participants of that move: the Spot and its members.
    pub count: u64,
    /// Digest of the inventory's root chunk.
    pub root: Sha256Digest,
    /// Digest of the whole inventory.
    pub digest: Sha256Digest,
}

/// Stored bytes a creation starts from: identity, digest and size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CreationSource {
    /// Content of an Actor or User Spot.
    Content(ContentId, Sha256Digest, u32),
    /// Activation record of an Instance Spot.
    Activation(ActivationId, Sha256Digest, u32),
}

/// The pending creation inside a Creating row (STORE-20).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PendingCreation {
    /// The attempt.
    pub reservation: ReservationId,
    /// The operation it serves.
    pub operation: OperationIdentity,
    /// What it starts from.
    pub source: CreationSource,
    /// The operation's deadline in Store time; never revokes anything (STORE-73).
    pub deadline_at: StoreTime,
}

/// What only a Ready row has.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReadyObject {
    /// The mark, at most one (STORE-21).
    pub mark: Option<Mark>,
    /// The reservation that created it; `None` for an Entry Spot.
    pub created_by: Option<ReservationId>,
    /// Activation record still to be replayed.
    pub activation: Option<ActivationId>,
    /// Last membership change applied, for settlement (STORE-25).
    pub last_change: Option<OperationId>,
    /// Last committed move, for settlement (STORE-25).
    pub last_commit: Option<RelocationId>,
}

/// State of a row. No row is `Missing` (STORE-14).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AuthorityState {
    /// Reserved for a target, not yet an object.
    Creating(PendingCreation),
    /// An object with one owner.
    Ready(ReadyObject),
}

/// A row as read: one observation of row, effective owner and owner lease (STORE-56).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AuthorityView {
    /// The object.
    pub key: ObjectKey,
    /// Its kind.
    pub kind: ObjectKind,
    /// Its type; [`ENTRY_STABLE_TYPE`] for an Entry Spot.
    pub stable_type: StableType,
    /// Execution mode of a User Spot.
    pub execution_mode: Option<ExecutionMode>,
    /// Its state.
    pub state: AuthorityState,
    /// Its incarnation.
    pub object_generation: ObjectGeneration,
    /// Effective owner generation (STORE-13).
    pub owner_generation: AuthorityOwnerGeneration,
    /// Effective owner; of a Creating row its target.
    pub owner: NodeFence,
    /// The owner's lease.
    pub owner_lease: LeaseView,
    /// How its bundle counts.
    pub allocation: Allocation,
    /// Its slots at the owner.
    pub bundle: Bundle,
    /// Where it belongs.
    pub membership: Membership,
    /// The row's version.
    pub version: StoreVersion,
    /// Store time of the observation.
    pub store_now: StoreTime,
}

impl AuthorityView {
    /// The mark of a Ready row.
    #[must_use]
    pub fn mark(&self) -> Option<&Mark> {
        match &self.state {
            AuthorityState::Ready(ready) => ready.mark.as_ref(),
            AuthorityState::Creating(_) => None,
        }
    }

    /// The pending creation of a Creating row.
    #[must_use]
    pub fn pending(&self) -> Option<&PendingCreation> {
        match &self.state {
            AuthorityState::Creating(pending) => Some(pending),
            AuthorityState::Ready(_) => None,
        }
    }

    /// The fence of the reservation behind a Creating row, as `Reserve` returned it.
    #[must_use]
    pub fn reservation_fence(&self) -> Option<ReservationFence> {
        let pending = self.pending()?;
        Some(ReservationFence {
            key: self.key.clone(),
            reservation: pending.reservation,
            object_generation: self.object_generation,
            owner_generation: self.owner_generation,
            version: self.version,
            target: self.owner.clone(),
            deadline_at: pending.deadline_at,
        })
    }

    /// Whether the owner's lease is live in this observation.
    #[must_use]
    pub fn owner_is_live(&self) -> bool {
        self.owner_lease.is_live(self.store_now)
    }
}

/// Result of reading one key (STORE-56).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AuthorityRead {
    /// No row.
    Missing {
        /// Store time of the observation.
        store_now: StoreTime,
    },
    /// A row.
    Found(Box<AuthorityView>),
}

impl AuthorityRead {
    /// The row, if there is one.
    #[must_use]
    pub fn found(&self) -> Option<&AuthorityView> {
        match self {
            Self::Found(view) => Some(view),
            Self::Missing { .. } => None,
        }
    }

    /// Store time of the observation.
    #[must_use]
    pub fn store_now(&self) -> StoreTime {
        match self {
            Self::Missing { store_now } => *store_now,
            Self::Found(view) => view.store_now,
        }
    }
}

/// One observation of a key and an operation (STORE-57).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CreationView {
    /// The row, with the target's lease where it is Creating.
    pub authority: AuthorityRead,
    /// Record of the operation while it is retained.
    pub terminal: Option<TerminalRecord>,
    /// Lease of the row's owner or target; `None` without a row.
    pub target_lease: Option<LeaseView>,
    /// Lifecycle published now under the target's (mesh, RID); `None` without a row or descriptor.
    pub target_lifecycle: Option<LifecycleGeneration>,
    /// Store time of the observation.
    pub store_now: StoreTime,
}

impl CreationView {
    /// The Creating row whose target is gone: lease dead, descriptor absent or of another lifecycle (CREATE-34).
    #[must_use]
    pub fn abandoned(&self) -> Option<&AuthorityView> {
        let row = self.authority.found().filter(|row| row.pending().is_some())?;
        let gone = !row.owner_is_live() || self.target_lifecycle != Some(row.owner.lifecycle);
        gone.then_some(row)
    }
}

/// Fixes one reservation; every later step of the attempt compares all of it (CREATE-2).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReservationFence {
    /// The object.
    pub key: ObjectKey,
    /// The attempt.
    pub reservation: ReservationId,
    /// Its incarnation.
    pub object_generation: ObjectGeneration,
    /// Its first owner generation.
    pub owner_generation: AuthorityOwnerGeneration,
    /// Version of the Creating row.
    pub version: StoreVersion,
    /// The node that will own the object.
    pub target: NodeFence,
    /// Deadline of the operation in Store time.
    pub deadline_at: StoreTime,
}

/// How a creation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TerminalOutcome {
    /// The object became Ready.
    Created,
    /// The application declined.
    Rejected,
    /// Application code or stored content failed (CREATE-22).
    Failed(ErrorKind),
}

/// The answer of an ended creation, at most 1 MiB encoded (STORE-72). It holds no route and no correlation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TerminalEnvelope {
    /// How it ended.
    pub outcome: TerminalOutcome,
    /// The object, or the refused attempt (CREATE-25).
    pub key: ObjectKey,
    /// Its incarnation.
    pub object_generation: ObjectGeneration,
    /// Mesh of its owner.
    pub mesh: MeshName,
    /// Its owner.
    pub rid: Rid,
    /// The application's reply.
    pub reply: Option<Bytes>,
}

impl TerminalEnvelope {
    /// The encoded form, which digest and size bound refer to.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // Plain data with known lengths always encodes.
        postcard::to_stdvec(self).unwrap_or_default()
    }
}

/// A retained terminal record, readable only under its full operation identity (STORE-72).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TerminalRecord {
    /// The operation.
    pub operation: OperationIdentity,
    /// The attempt that ended it.
    pub reservation: ReservationId,
    /// Its answer.
    pub envelope: TerminalEnvelope,
    /// Digest of the encoded envelope.
    pub sha256: Sha256Digest,
    /// Past this the record is gone: original deadline + 5 min.
    pub retain_until: StoreTime,
}

/// Immutable creation content (STORE-63).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Content {
    /// The bytes, at most 1 MiB.
    pub bytes: Bytes,
    /// Their digest.
    pub sha256: Sha256Digest,
}

/// An activation record (STORE-105).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Activation {
    /// First message, creation info and operation, encoded by its writer; at most 16 MiB.
    pub envelope: Bytes,
    /// Digest of the envelope.
    pub sha256: Sha256Digest,
    /// Inbox sequence of the first message once it is fixed (CREATE-126).
    pub inbox_sequence: Option<u64>,
    /// Up to which inbox sequence handlers have completed (CREATE-129).
    pub cursor: Option<u64>,
}

/// One page of rows, at most 4 MiB (STORE-59, STORE-109, STORE-110).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AuthorityPage {
    /// Rows in key order. Of a scan they are candidates only (STORE-114).
    pub rows: Vec<AuthorityView>,
    /// Where to go on, `None` on the last page.
    pub next: Option<PageToken>,
    /// Store time of the observation.
    pub store_now: StoreTime,
}
