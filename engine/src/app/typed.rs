//! From typed Actors and handlers to the erased ones of the driver, and back.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use serde::Serialize;

use super::adapter::StateAdapter;
use super::message::{Message, decode, encode};
use super::{Actor, ActorContext, Admission, CreateContext, Handle};
use crate::driver::{Application, EncodedMessage, Instance, Outcome, Started, TurnFuture, TurnScope};
use crate::input::TurnEnd;
use crate::link::NodeIndex;
use crate::model::limits::{CREATION_REQUEST_MAX, PAYLOAD_MAX};
use crate::model::{ErrorKind, PacketName, StableType};
use crate::wire::PayloadCodec;

/// What all Actors of one registration share.
pub(crate) struct Table<A: Actor> {
    pub(crate) handlers: BTreeMap<PacketName, HandlerEntry<A>>,
    pub(crate) adapter: Option<StateAdapter<A>>,
}

/// One handler with its message type erased.
pub(crate) struct HandlerEntry<A: Actor> {
    version: u16,
    codec: PayloadCodec,
    begin: fn(Box<TypedActor<A>>, EncodedMessage, TurnScope) -> TurnFuture,
}

impl<A: Actor> HandlerEntry<A> {
    pub(crate) fn of<M: Message>() -> Self
    where
        A: Handle<M>,
    {
        Self { version: M::VERSION, codec: M::CODEC, begin: begin_message::<A, M> }
    }
}

/// One Actor with its registration.
pub(crate) struct TypedActor<A: Actor> {
    actor: A,
    table: Arc<Table<A>>,
}

impl<A: Actor> Instance for TypedActor<A> {
    fn handle(self: Box<Self>, message: EncodedMessage, scope: TurnScope) -> Started {
        let begin = match self.table.handlers.get(&message.packet) {
            None => Err(TurnEnd::NoHandler),
            // JSON has no decoder yet, so no handler takes it.
            Some(handler)
                if handler.version != message.version
                    || handler.codec != message.codec
                    || message.codec != PayloadCodec::Postcard =>
            {
                Err(TurnEnd::Undecodable)
            }
            Some(handler) => Ok(handler.begin),
        };
        match begin {
            Ok(begin) => Started::Running(begin(self, message, scope)),
            Err(end) => Started::Ended(Outcome { instance: Some(self), end }),
        }
    }
}

fn begin_message<A: Handle<M>, M: Message>(
    mut typed: Box<TypedActor<A>>,
    message: EncodedMessage,
    scope: TurnScope,
) -> TurnFuture {
    Box::pin(async move {
        let turn = async {
            let Ok(decoded) = decode::<M>(&message.payload) else { return TurnEnd::Undecodable };
            let mut ctx = ActorContext::new(&scope);
            match typed.actor.handle(decoded, &mut ctx).await {
                Ok(_) if !message.wants_reply => TurnEnd::Handled { reply: Bytes::new() },
                Ok(reply) => match encode_reply(&reply, PAYLOAD_MAX) {
                    Ok(reply) => TurnEnd::Handled { reply },
                    Err(end) => end,
                },
                Err(error) => TurnEnd::Failed(error.kind()),
            }
        };
        // The Actor is kept after a panic: it is its handler's business to leave it usable (MODEL-63).
        let end = AssertUnwindSafe(turn).catch_unwind().await.unwrap_or(TurnEnd::Panicked);
        Outcome { instance: Some(typed), end }
    })
}

fn begin_create<A: Actor>(table: Arc<Table<A>>, request: Bytes, scope: TurnScope) -> TurnFuture {
    Box::pin(async move {
        let turn = async {
            let Ok(decoded) = decode::<A::Create>(&request) else { return (None, TurnEnd::Undecodable) };
            match A::create(decoded, &mut CreateContext::new(&scope)).await {
                // An Actor whose reply does not fit is dropped with its attempt (CREATE-22).
                Ok(Admission::Accept { actor, reply }) => match encode_reply(&reply, CREATION_REQUEST_MAX) {
                    Ok(reply) => (Some(actor), TurnEnd::Accepted { reply: Some(reply) }),
                    Err(end) => (None, end),
                },
                Ok(Admission::Reject { reply }) => match encode_reply(&reply, CREATION_REQUEST_MAX) {
                    Ok(reply) => (None, TurnEnd::Declined { reply: Some(reply) }),
                    Err(end) => (None, end),
                },
                Err(error) => (None, TurnEnd::Failed(error.kind())),
            }
        };
        let (actor, end) = AssertUnwindSafe(turn).catch_unwind().await.unwrap_or((None, TurnEnd::Panicked));
        let instance = actor.map(|actor| Box::new(TypedActor { actor, table }) as Box<dyn Instance>);
        Outcome { instance, end }
    })
}

/// A reply without a usable encoding breaks the reply contract: ProtocolError (CREATE-22, spec 10 §2).
fn encode_reply<R: Serialize>(reply: &R, max: usize) -> Result<Bytes, TurnEnd> {
    encode(reply).ok().filter(|bytes| bytes.len() <= max).ok_or(TurnEnd::Failed(ErrorKind::ProtocolError))
}

/// One registration with its Actor type erased.
trait Creator: Send + Sync {
    fn create(&self, request: Bytes, scope: TurnScope) -> TurnFuture;
}

struct TypedCreator<A: Actor>(Arc<Table<A>>);

impl<A: Actor> Creator for TypedCreator<A> {
    fn create(&self, request: Bytes, scope: TurnScope) -> TurnFuture {
        begin_create(self.0.clone(), request, scope)
    }
}

/// The registered types of every node of a host.
#[derive(Default)]
pub(crate) struct Registry(BTreeMap<NodeIndex, BTreeMap<StableType, Box<dyn Creator>>>);

impl Registry {
    pub(crate) fn add<A: Actor>(&mut self, node: NodeIndex, stable_type: StableType, table: Arc<Table<A>>) {
        self.0.entry(node).or_default().insert(stable_type, Box::new(TypedCreator(table)));
    }
}

impl Application for Registry {
    fn create(&self, stable_type: &StableType, request: Bytes, scope: TurnScope) -> Started {
        match self.0.get(&scope.node).and_then(|types| types.get(stable_type)) {
            Some(creator) => Started::Running(creator.create(request, scope)),
            None => {
                let end = TurnEnd::Failed(ErrorKind::NotConfigured);
                Started::Ended(Outcome { instance: None, end })
            }
        }
    }
}
