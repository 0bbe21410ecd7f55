//! Messages to Actors: requests and sends.

use std::marker::PhantomData;
use std::time::Duration;

use super::address::IntoActorId;
use super::calls::{Caller, timeout_or, unexpected};
use super::message::{Message, decode, payload_of};
use super::{Actor, Handle};
use crate::driver::CallFuture;
use crate::input::{ActorCall, Command};
use crate::model::{ActorId, Error, ErrorKind};
use crate::output::Answer;
use crate::wire::Metadata;

/// An Actor of a known type, ready to be called; only messages it handles compile.
pub struct ActorTarget<'a, A> {
    any: AnyTarget<'a>,
    actor: PhantomData<fn() -> A>,
}

impl<'a, A: Actor> ActorTarget<'a, A> {
    pub(crate) fn new(caller: Caller<'a>, id: impl IntoActorId) -> Self {
        Self { any: AnyTarget::new(caller, id), actor: PhantomData }
    }

    /// A request; awaiting it gives the reply (MODEL-103).
    pub fn request<M: Message>(&self, message: M) -> RequestCall<'a, M>
    where
        A: Handle<M>,
    {
        self.any.request(message)
    }

    /// A one-way message; awaiting it tells that it was admitted, not that it was handled (MODEL-102).
    pub fn send<M: Message>(&self, message: M) -> SendCall<'a>
    where
        A: Handle<M>,
    {
        self.any.send(message)
    }
}

/// An Actor whose type the program need not know, ready to be called: the reply type is the message's.
pub struct AnyTarget<'a> {
    caller: Caller<'a>,
    id: Result<ActorId, Error>,
}

impl<'a> AnyTarget<'a> {
    pub(crate) fn new(caller: Caller<'a>, id: impl IntoActorId) -> Self {
        Self { caller, id: id.into_actor_id() }
    }

    /// A request; awaiting it gives the reply (MODEL-103), NotFound where the Actor has no handler for it.
    pub fn request<M: Message>(&self, message: M) -> RequestCall<'a, M> {
        let timeout = self.caller.settings().request_timeout;
        RequestCall {
            call: self.prepare(&message, timeout),
            caller: self.caller.clone(),
            message: PhantomData,
        }
    }

    /// A one-way message; awaiting it tells that it was admitted, not that it was handled (MODEL-102).
    pub fn send<M: Message>(&self, message: M) -> SendCall<'a> {
        let timeout = self.caller.settings().send_timeout;
        SendCall { call: self.prepare(&message, timeout), caller: self.caller.clone() }
    }

    fn prepare<M: Message>(&self, message: &M, timeout: Duration) -> Result<ActorCall, Error> {
        Ok(ActorCall {
            target: self.id.clone()?,
            packet: M::packet(),
            version: M::VERSION,
            codec: M::CODEC,
            payload: payload_of(message)?,
            metadata: Metadata::none(),
            timeout,
        })
    }
}

/// Sets an option of a call that is not refused yet.
fn set(call: &mut Result<ActorCall, Error>, option: impl FnOnce(&mut ActorCall) -> Result<(), Error>) {
    if let Ok(prepared) = call
        && let Err(error) = option(prepared)
    {
        *call = Err(error);
    }
}

macro_rules! message_options {
    ($operation:literal) => {
        /// Deadline, 1 ms..2^31−1 ms, rounded up to whole milliseconds (MODEL-105).
        pub fn timeout(mut self, timeout: Duration) -> Self {
            set(&mut self.call, |call| {
                call.timeout = timeout_or(Some(timeout), timeout, $operation)?;
                Ok(())
            });
            self
        }

        /// Adds an entry of metadata, at most 1,024 encoded bytes in all; the last value of a key wins
        /// (MODEL-116).
        pub fn metadata(mut self, key: &str, value: &str) -> Self {
            set(&mut self.call, |call| call.metadata.insert(key, value));
            self
        }
    };
}

/// A request that was not submitted yet.
#[must_use = "a call does nothing until it is awaited"]
pub struct RequestCall<'a, M> {
    caller: Caller<'a>,
    call: Result<ActorCall, Error>,
    message: PhantomData<fn() -> M>,
}

impl<M> RequestCall<'_, M> {
    message_options!("request");
}

impl<'a, M: Message> IntoFuture for RequestCall<'a, M> {
    type Output = Result<M::Reply, Error>;
    type IntoFuture = CallFuture<'a, M::Reply>;

    fn into_future(self) -> Self::IntoFuture {
        self.caller.call(self.call.map(Command::RequestActor), |answer| match answer {
            Answer::Replied(reply) => decode(&reply).map_err(|error| {
                Error::new(
                    ErrorKind::ProtocolError,
                    M::NAME,
                    format!("expected its reply type, found {error}"),
                )
            }),
            Answer::Failed(error) => Err(error),
            other => Err(unexpected("request", &other)),
        })
    }
}

/// A one-way message that was not submitted yet.
#[must_use = "a call does nothing until it is awaited"]
pub struct SendCall<'a> {
    caller: Caller<'a>,
    call: Result<ActorCall, Error>,
}

impl SendCall<'_> {
    message_options!("send");
}

impl<'a> IntoFuture for SendCall<'a> {
    type Output = Result<(), Error>;
    type IntoFuture = CallFuture<'a, ()>;

    fn into_future(self) -> Self::IntoFuture {
        self.caller.call(self.call.map(Command::SendToActor), |answer| match answer {
            Answer::Sent => Ok(()),
            Answer::Failed(error) => Err(error),
            other => Err(unexpected("send", &other)),
        })
    }
}
