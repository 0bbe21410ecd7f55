//! What to do: everything the core tells a driver, in the imperative.

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::event::Event;
use crate::input::{CallId, InstanceId, StoreCallId, TurnId};
use crate::link::{DialId, DialTarget, Lane, LinkId, NodeIndex, Record};
use crate::model::{
    ActorRef, AuthorityOwnerGeneration, Error, MeshName, ObjectGeneration, ObjectKey, PacketName, StableType,
};
use crate::store::{StoreRequest, WatchScope};
use crate::wire::{Metadata, PayloadCodec};

/// Something the driver has to do. Outputs are carried out in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub enum Output {
    /// Open the listener of a node; report `Bound` or `BindFailed`.
    Bind(NodeIndex),
    /// Close the listener of a node.
    Unbind(NodeIndex),
    /// Start one dial.
    Dial {
        /// The node that dials.
        node: NodeIndex,
        /// The dial.
        dial: DialId,
        /// Whom.
        target: DialTarget,
    },
    /// Forget a dial.
    DropDial(DialId),
    /// Send a record.
    Send {
        /// The link.
        link: LinkId,
        /// The lane.
        lane: Lane,
        /// The record.
        record: Record,
    },
    /// Close a link after what was sent on it left.
    CloseLink(LinkId),
    /// Call the Store; report `StoreAnswered`.
    CallStore {
        /// The call.
        call: StoreCallId,
        /// What to call.
        request: Box<StoreRequest>,
        /// The core stops waiting after this long; the driver may cancel the call then.
        timeout: Duration,
    },
    /// Report hints of this scope from now on.
    Watch(WatchScope),
    /// No more hints of this scope are wanted.
    Unwatch(WatchScope),
    /// Run application code; report `TurnEnded`.
    StartTurn(Box<Turn>),
    /// Stop waiting for a turn and drop its future; no report is wanted (CREATE-68).
    AbandonTurn(TurnId),
    /// The instance is no longer needed: drop it after its running turn, if any.
    DropInstance(InstanceId),
    /// Answer a call of the application.
    Answer {
        /// The call.
        call: CallId,
        /// Its one result.
        answer: Answer,
    },
    /// Something an observer may want to see (spec 11).
    Record(Event),
}

/// One application callback occupying a gate.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Turn {
    /// The turn.
    pub turn: TurnId,
    /// The instance it runs on. A creating turn makes it.
    pub instance: InstanceId,
    /// The node that owns the object.
    pub node: NodeIndex,
    /// The object.
    pub key: ObjectKey,
    /// Its type, which selects the factory and the handlers.
    pub stable_type: StableType,
    /// Incarnation and owner generation, the fence handed to application code (`ctx.fence()`).
    pub object_generation: ObjectGeneration,
    /// See `object_generation`.
    pub owner_generation: AuthorityOwnerGeneration,
    /// What to run.
    pub work: Work,
}

/// What a turn runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub enum Work {
    /// Factory, initialise and create callback of a staging instance (CREATE-64).
    Create {
        /// The encoded creation request.
        request: Bytes,
        /// Time left of the attempt.
        remaining: Duration,
    },
    /// A message handler.
    Message {
        /// Whether a reply is wanted.
        wants_reply: bool,
        /// Wire name of the message type.
        packet: PacketName,
        /// Version of the message type.
        version: u16,
        /// Encoding of the payload, and of the reply.
        codec: PayloadCodec,
        /// The encoded message.
        payload: Bytes,
        /// Read-only metadata.
        metadata: Metadata,
        /// Time left of the caller's deadline.
        remaining: Duration,
    },
}

/// The one result of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub enum Answer {
    /// This operation created the object (CREATE-47).
    Created {
        /// The new object.
        actor: ActorRef,
        /// The callback's reply.
        reply: Option<Bytes>,
    },
    /// The object existed already; no reply (spec 04 §3).
    Existing {
        /// The object found.
        actor: ActorRef,
    },
    /// The create callback declined: a normal result (ERR-4).
    Rejected {
        /// Names the refused attempt only (CREATE-25).
        actor: ActorRef,
        /// The callback's reply.
        reply: Option<Bytes>,
    },
    /// Result of a find.
    Found(Option<ActorRef>),
    /// A send was admitted.
    Sent,
    /// The encoded reply of a request.
    Replied(Bytes),
    /// A setter took effect.
    Set,
    /// Shutdown ended; `forced` where something had to be given up (HOST-2).
    ShutDown {
        /// Whether the outcome is ForceStopped.
        forced: bool,
    },
    /// The operation failed.
    Failed(Error),
}

/// Where a node listens and what it is called, known once it serves. Part of `Event::NodeServing`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct NodeAddress {
    /// The Mesh.
    pub mesh: MeshName,
    /// The advertised endpoint.
    pub endpoint: String,
}
