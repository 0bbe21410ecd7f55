//! The messages two MeshNodes exchange.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::link::Lane;
use crate::model::limits::METADATA_MAX;
use crate::model::{
    ActorId, ChannelName, Correlation, DescriptorRevision, Error, ErrorKind, HostState, LeaseRef,
    LifecycleGeneration, MeshName, ObjectGeneration, ObjectKey, ObjectKind, ObjectRole, OperationIdentity,
    PacketName, ReservationId, Rid, SecurityIdentity, StableType, Weight,
};
use crate::store::ReservationFence;

/// Everything that travels on a link. Variants are only ever appended: their order is the wire format.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// First message of either side (NODE-81, NODE-82).
    Hello(Box<Hello>),
    /// The sender admitted this connection.
    Welcome,
    /// The sender refused this connection and closes it (NODE-83).
    Refused(Refusal),
    /// Liveness probe (NODE-107).
    Probe(u64),
    /// Acknowledges the probe of that id (NODE-108).
    ProbeAck(u64),
    /// Changed weights or host state of the sender (NODE-112, NODE-113).
    NodeUpdate(NodeUpdate),
    /// A reserved creation is handed to its target (CREATE-44).
    CreateOrder(Box<CreateOrder>),
    /// The one answer of a create order; an application reply is the record's body.
    CreateAnswer(Box<CreateAnswer>),
    /// An application message to an Actor; its payload is the record's body.
    Actor(Box<ActorMessage>),
    /// Terminal reply of a request; its payload is the record's body.
    Reply(Reply),
    /// A one-way message met a node that does not own its target (MODEL-123, MODEL-126).
    StaleRoute(Box<StaleRoute>),
}

impl Message {
    /// The lane the message travels on (NODE-91).
    #[must_use]
    pub fn lane(&self) -> Lane {
        match self {
            Self::Reply(_) | Self::CreateAnswer(_) => Lane::Completion,
            _ => Lane::Application,
        }
    }

    /// The variant's name, for traces.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Hello(_) => "Hello",
            Self::Welcome => "Welcome",
            Self::Refused(_) => "Refused",
            Self::Probe(_) => "Probe",
            Self::ProbeAck(_) => "ProbeAck",
            Self::NodeUpdate(_) => "NodeUpdate",
            Self::CreateOrder(_) => "CreateOrder",
            Self::CreateAnswer(_) => "CreateAnswer",
            Self::Actor(_) => "Actor",
            Self::Reply(_) => "Reply",
            Self::StaleRoute(_) => "StaleRoute",
        }
    }
}

/// What a node states about itself at a handshake (NODE-81, NODE-82).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Hello {
    /// The RouteMesh.
    pub mesh: MeshName,
    /// The sender.
    pub rid: Rid,
    /// Its lifecycle.
    pub lifecycle: LifecycleGeneration,
    /// Revision of its descriptor.
    pub revision: DescriptorRevision,
    /// Channels it serves, with weights.
    pub channels: BTreeMap<ChannelName, Weight>,
    /// Its security identity.
    pub identity: SecurityIdentity,
    /// Name of its trust profile.
    pub trust_profile: String,
    /// Its object role.
    pub role: ObjectRole,
    /// Its host's state.
    pub host_state: HostState,
    /// Its advertised endpoint.
    pub endpoint: String,
    /// Version of the protocol it speaks.
    pub protocol: u16,
    /// Capabilities the other side must have, a bit each.
    pub required_capabilities: u64,
    /// Whether the sender dialled this connection.
    pub dialled: bool,
    /// The dialler's attempt number, growing per peer within a lifecycle; 0 from the side that did not dial.
    pub attempt: u64,
}

/// Why a connection was not admitted (NODE-83).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Refusal {
    /// The host is not serving peers yet; dial again.
    NotReady,
    /// Check 1: Draining or later.
    ShuttingDown,
    /// Check 2: protocol version or capabilities.
    Incompatible,
    /// Check 3: another MeshName.
    WrongMesh,
    /// Check 4: another trust profile, or no valid proof.
    TrustProfile,
    /// Check 5: the peer's RID is one's own.
    OwnRid,
    /// Check 6: RID, generation or identity is not the expected one.
    Unexpected,
    /// Check 7: the pair needs no connection (NODE-76).
    NotRequired,
    /// Check 8: another generation of the RID is known and NODE-87 does not hold yet.
    Held,
    /// Check 9: another connection is the selected route (NODE-85).
    Duplicate,
}

/// A change of what a handshake stated; replaces the old set whole (NODE-113).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeUpdate {
    /// The sender's lifecycle.
    pub lifecycle: LifecycleGeneration,
    /// Larger than any revision applied before, or the update is ignored.
    pub revision: DescriptorRevision,
    /// The complete weight set.
    pub channels: BTreeMap<ChannelName, Weight>,
    /// The host's state.
    pub host_state: HostState,
}

/// Hands a reserved creation to its target (CREATE-44). The request itself is read from the Store (CREATE-11).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CreateOrder {
    /// The operation that reserved.
    pub operation: OperationIdentity,
    /// What is created.
    pub key: ObjectKey,
    /// Its kind.
    pub kind: ObjectKind,
    /// Its type.
    pub stable_type: StableType,
    /// The reservation; names the target's lifecycle too.
    pub fence: ReservationFence,
    /// Time left of the operation's deadline.
    pub remaining: Duration,
}

/// The one answer of a create order. The application's reply, if any, is the body.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CreateAnswer {
    /// The operation.
    pub operation: OperationIdentity,
    /// The attempt.
    pub reservation: ReservationId,
    /// What happened.
    pub verdict: CreateVerdict,
}

/// How an attempt ended at its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CreateVerdict {
    /// Created and recorded.
    Created {
        /// The incarnation.
        object_generation: ObjectGeneration,
    },
    /// The callback declined; recorded.
    Rejected {
        /// The refused attempt's incarnation.
        object_generation: ObjectGeneration,
    },
    /// Application code failed; recorded.
    Failed(ErrorKind),
    /// Refused before execution, nothing started here (CREATE-62).
    NotAdmitted,
    /// No row with this reservation and no record (CREATE-60).
    ReservationGone,
    /// The fence differs, or the attempt was discarded: Unavailable, nothing is known (CREATE-61, CREATE-73).
    Unavailable,
}

/// Whether a message waits for a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CallKind {
    /// One-way (MODEL-102).
    Send,
    /// Ends exactly once with a reply or an error (MODEL-103).
    Request(Correlation),
}

/// How a payload is encoded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PayloadCodec {
    /// postcard.
    #[default]
    Postcard,
    /// JSON, for peers that are not Rust.
    Json,
}

/// An application message to an Actor.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ActorMessage {
    /// The Actor.
    pub target: ActorId,
    /// Lifecycle of the node the sender believes to be the owner (MODEL-124).
    pub lifecycle: LifecycleGeneration,
    /// Lease of that owner.
    pub lease: LeaseRef,
    /// One-way or request.
    pub kind: CallKind,
    /// Time left of the deadline (MODEL-106).
    pub remaining: Duration,
    /// Wire name of the message type.
    pub packet: PacketName,
    /// Version of the message type.
    pub version: u16,
    /// Encoding of the payload.
    pub codec: PayloadCodec,
    /// Read-only metadata.
    pub metadata: Metadata,
}

/// Terminal reply of a request (NODE-91). The body is the application's reply where `error` is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reply {
    /// The pending reply slot at the requester.
    pub correlation: Correlation,
    /// The kind the request failed with, without its text (ERR-17).
    pub error: Option<ErrorKind>,
    /// Whether the sender of the reply does not own the target: the cached route is stale (MODEL-123).
    pub stale_route: bool,
}

/// Tells the sender of a one-way message that its cached route is stale.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StaleRoute {
    /// The Actor.
    pub target: ActorId,
    /// The lifecycle the message was fenced with.
    pub lifecycle: LifecycleGeneration,
}

/// Metadata of a message: UTF-8 keys and values without NUL, at most 1,024 encoded bytes (MODEL-116).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Metadata(BTreeMap<Arc<str>, Arc<str>>);

impl Metadata {
    /// No entries.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Sets a value; the last one of a key wins.
    ///
    /// # Errors
    /// InvalidOperation where key or value contains NUL or the encoding would pass 1,024 bytes; the
    /// metadata is unchanged then.
    pub fn insert(&mut self, key: &str, value: &str) -> Result<(), Error> {
        let mut entries = self.0.clone();
        entries.insert(Arc::from(key), Arc::from(value));
        let candidate = Self(entries);
        candidate.check().map_err(|found| Error::new(ErrorKind::InvalidOperation, "metadata", found))?;
        *self = candidate;
        Ok(())
    }

    /// The value of a key.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(AsRef::as_ref)
    }

    /// All entries in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    fn check(&self) -> Result<(), String> {
        // A length prefix of two bytes covers every legal entry; one more for the count.
        let encoded = 2 + self.0.iter().map(|(k, v)| k.len() + v.len() + 4).sum::<usize>();
        if encoded > METADATA_MAX {
            return Err(format!("expected at most {METADATA_MAX} encoded bytes, found {encoded}"));
        }
        if self.0.iter().any(|(k, v)| k.contains('\0') || v.contains('\0')) {
            return Err("expected keys and values without U+0000".to_owned());
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let candidate = Self(BTreeMap::deserialize(deserializer)?);
        candidate.check().map_err(D::Error::custom)?;
        Ok(candidate)
    }
}
