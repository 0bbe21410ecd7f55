//! User objects and their turns with the types erased: what the loop knows of the application.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;

use super::port::Port;
use crate::input::{TurnEnd, TurnId};
use crate::link::NodeIndex;
use crate::model::{ActorId, AuthorityOwnerGeneration, Instant, ObjectGeneration, PacketName, StableType};
use crate::wire::{Metadata, PayloadCodec};

/// The registered types of a host.
pub(crate) trait Application: Send + Sync + 'static {
    /// Begins a creation: factory and create callback (CREATE-64).
    fn create(&self, stable_type: &StableType, request: Bytes, scope: TurnScope) -> Started;
}

/// One user object.
pub(crate) trait Instance: Send + 'static {
    /// Begins a message turn. The object travels with it and comes back in the outcome.
    fn handle(self: Box<Self>, message: EncodedMessage, scope: TurnScope) -> Started;
}

/// A message before its handler is known.
pub(crate) struct EncodedMessage {
    pub(crate) wants_reply: bool,
    pub(crate) packet: PacketName,
    pub(crate) version: u16,
    pub(crate) codec: PayloadCodec,
    pub(crate) payload: Bytes,
}

/// A turn that was begun.
pub(crate) enum Started {
    /// Nothing had to run.
    Ended(Outcome),
    /// Not polled yet. Panics of application code end in its outcome, they never leave the future (MODEL-63).
    Running(TurnFuture),
}

/// One box a turn.
pub(crate) type TurnFuture = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// How a turn ended, with the object if there is one.
pub(crate) struct Outcome {
    pub(crate) instance: Option<Box<dyn Instance>>,
    pub(crate) end: TurnEnd,
}

/// What a turn knows about itself; contexts borrow it.
pub(crate) struct TurnScope {
    pub(crate) turn: TurnId,
    pub(crate) node: NodeIndex,
    pub(crate) id: ActorId,
    pub(crate) object_generation: ObjectGeneration,
    pub(crate) owner_generation: AuthorityOwnerGeneration,
    pub(crate) metadata: Metadata,
    /// Deadline of the caller, or of the creation attempt.
    pub(crate) until: Instant,
    pub(crate) port: Arc<Port>,
}
