//! Object keys, refs and the fences made of several identities.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::generation::{LeaseGeneration, LifecycleGeneration, ObjectGeneration};
use super::id128::{OperationId, OwnerId};
use super::text::{ActorId, MeshName, Rid, SpotId};

/// The three kinds of Spot (MODEL-39).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SpotKind {
    /// One per Object Server; the initial home of its Actors.
    Entry,
    /// Created through a manager; Actors join it.
    User,
    /// Activated by its first message; has no Actors.
    Instance,
}

/// The kind of an object (MODEL-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ObjectKind {
    /// An Actor.
    Actor,
    /// A Spot of the given kind.
    Spot(SpotKind),
}

/// Key of an object in the Store namespace; Actors and Spots are separate key spaces (MODEL-5, MODEL-7).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ObjectKey {
    /// An Actor's key.
    Actor(ActorId),
    /// A Spot's key, whatever its kind.
    Spot(SpotId),
}

impl ObjectKey {
    /// The id's text.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Actor(id) => id.as_str(),
            Self::Spot(id) => id.as_str(),
        }
    }

    /// Whether this key can name an object of `kind`.
    #[must_use]
    pub fn fits(&self, kind: ObjectKind) -> bool {
        matches!((self, kind), (Self::Actor(_), ObjectKind::Actor) | (Self::Spot(_), ObjectKind::Spot(_)))
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Actor(id) => write!(f, "actor/{id}"),
            Self::Spot(id) => write!(f, "spot/{id}"),
        }
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Names one owner lease: which host run, under which claim (MODEL-26).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseRef {
    /// The host run.
    pub owner: OwnerId,
    /// Its claim.
    pub generation: LeaseGeneration,
}

/// Names one lifecycle of one MeshNode together with the lease it hangs on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeFence {
    /// The RouteMesh.
    pub mesh: MeshName,
    /// The node.
    pub rid: Rid,
    /// Its lifecycle.
    pub lifecycle: LifecycleGeneration,
    /// The owner lease of its host.
    pub lease: LeaseRef,
}

/// Full identity of an operation: all three parts must match (CREATE-10, CREATE-100).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OperationIdentity {
    /// RID of the node on which the operation was started.
    pub source_rid: Rid,
    /// That node's lifecycle.
    pub source_lifecycle: LifecycleGeneration,
    /// The operation inside that lifecycle.
    pub operation: OperationId,
}

/// Immutable snapshot of an Actor at read time; addresses lifecycle control on one incarnation, never a message (MODEL-19).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ActorRef {
    /// The Actor.
    pub id: ActorId,
    /// Its incarnation.
    pub object_generation: ObjectGeneration,
    /// Mesh of its owner when the snapshot was taken.
    pub mesh: MeshName,
    /// Owner when the snapshot was taken.
    pub node: Rid,
}

/// Immutable snapshot of a Spot at read time (MODEL-19).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SpotRef {
    /// The Spot.
    pub id: SpotId,
    /// Its incarnation.
    pub object_generation: ObjectGeneration,
    /// Mesh of its owner when the snapshot was taken.
    pub mesh: MeshName,
    /// Owner when the snapshot was taken.
    pub node: Rid,
}
