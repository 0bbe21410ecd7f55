//! What happened: everything a driver tells the core, in the past tense.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::link::TransportEvent;
use crate::model::{ActorId, ChannelName, ErrorKind, MeshName, PacketName, StableType, Weight};
use crate::store::{StoreEvent, StoreResult};
use crate::wire::{Metadata, PayloadCodec};

/// One call of the application, numbered by the driver; never reused in a host run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CallId(pub u64);

/// One turn, numbered by the core; never reused in a host run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TurnId(pub u64);

/// One instance of user code, which lives in the driver; numbered by the core, never reused in a host run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InstanceId(pub u64);

/// One Store call, numbered by the core; never reused in a host run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StoreCallId(pub u64);

/// Something that happened outside the core.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Input {
    /// The transport reports.
    Transport(TransportEvent),
    /// A Store call ended. An answer after its call's deadline is ignored.
    StoreAnswered {
        /// The call of `Output::CallStore`.
        call: StoreCallId,
        /// Its result.
        result: StoreResult,
    },
    /// A watched scope may have changed (STORE-112).
    StoreHinted(StoreEvent),
    /// A turn of `Output::StartTurn` ended. Ignored after `Output::AbandonTurn`.
    TurnEnded {
        /// The turn.
        turn: TurnId,
        /// How.
        end: TurnEnd,
    },
    /// The application called something. Answered by exactly one `Output::Answer`.
    Called {
        /// The call.
        call: CallId,
        /// The turn that called and waits, `None` from outside any turn or from a turn that does not wait.
        from: Option<TurnId>,
        /// What is asked for.
        command: Command,
    },
    /// The caller stopped waiting (ERR-6). No answer follows.
    CallDropped {
        /// The call.
        call: CallId,
    },
}

/// What an application can ask a host for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Command {
    /// Create or get-or-create an Actor (spec 04).
    CreateActor(CreateActor),
    /// The ref of a Ready Actor, or nothing (CREATE-151).
    FindActor {
        /// The Actor.
        id: ActorId,
        /// Deadline, 1 ms..2^31−1 ms.
        timeout: Duration,
    },
    /// One-way message to an Actor (MODEL-102). Answered when the source admitted it.
    SendToActor(ActorCall),
    /// Request to an Actor (MODEL-103).
    RequestActor(ActorCall),
    /// Sets the placement weight of all Object Servers of a Mesh, or of the host (NODE-48).
    SetPlacementWeight {
        /// The Mesh, `None` for every node of the host.
        mesh: Option<MeshName>,
        /// The new weight.
        weight: Weight,
    },
    /// Sets the weight of a Channel this host serves (NODE-112).
    SetChannelWeight {
        /// The Channel.
        channel: ChannelName,
        /// The new weight.
        weight: Weight,
    },
    /// Ends the host in order (spec 09 §9).
    Shutdown {
        /// Absolute deadline of the whole operation, from now.
        timeout: Duration,
    },
}

/// Whether an existing object is a result or an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CreateMode {
    /// An existing object ends the call AlreadyExists.
    Create,
    /// An existing object of the same type is returned.
    GetOrCreate,
}

/// Create or get-or-create of an Actor.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CreateActor {
    /// The Actor.
    pub id: ActorId,
    /// Its type.
    pub stable_type: StableType,
    /// Exclusive or not.
    pub mode: CreateMode,
    /// Where candidates are looked for (CREATE-15).
    pub mesh: Option<MeshName>,
    /// Encoded request, at most 1 MiB (CREATE-11).
    pub request: Bytes,
    /// Deadline, 1 ms..2^31−1 ms.
    pub timeout: Duration,
}

/// A message to an Actor.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ActorCall {
    /// The Actor.
    pub target: ActorId,
    /// Wire name of the message type.
    pub packet: PacketName,
    /// Version of the message type.
    pub version: u16,
    /// Encoding of the payload.
    pub codec: PayloadCodec,
    /// The encoded message, at most 16 MiB.
    pub payload: Bytes,
    /// Read-only metadata.
    pub metadata: Metadata,
    /// Deadline, 1 ms..2^31−1 ms.
    pub timeout: Duration,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TurnEnd {
    /// A create callback approved; the staging instance is complete (CREATE-65).
    Accepted {
        /// The application's reply, at most 1 MiB.
        reply: Option<Bytes>,
    },
    /// A create callback declined (CREATE-66).
    Declined {
        /// The application's reply, at most 1 MiB.
        reply: Option<Bytes>,
    },
    /// A message was handled; the encoded reply of a request, empty for a send.
    Handled {
        /// The encoded reply.
        reply: Bytes,
    },
    /// Handler or callback returned an error of this kind (ERR-17).
    Failed(ErrorKind),
    /// Handler or callback panicked (MODEL-63).
    Panicked,
    /// The instance's type has no handler for the packet.
    NoHandler,
    /// The payload could not be decoded.
    Undecodable,
}
