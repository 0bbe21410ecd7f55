//! Creating Actors.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::Actor;
use super::address::IntoActorId;
use super::calls::{Caller, timeout_or, unexpected};
use super::factory::stable_type_of;
use super::message::{decode, encode};
use crate::driver::CallFuture;
use crate::input::{Command, CreateActor, CreateMode};
use crate::model::limits::CREATION_REQUEST_MAX;
use crate::model::{ActorRef, Error, ErrorKind, MeshName};
use crate::output::Answer;

/// Creates Actors.
#[derive(Clone)]
pub struct Actors<'a> {
    caller: Caller<'a>,
}

impl<'a> Actors<'a> {
    pub(crate) fn new(caller: Caller<'a>) -> Self {
        Self { caller }
    }

    /// Creates an Actor that must not exist yet: an existing one ends the call AlreadyExists.
    pub fn create<A: Actor>(&self, id: impl IntoActorId, request: A::Create) -> CreateCall<'a, A> {
        CreateCall::new(self.caller.clone(), CreateMode::Create, id, &request)
    }

    /// Creates an Actor, or finds it where it exists with the same type.
    pub fn get_or_create<A: Actor>(&self, id: impl IntoActorId, request: A::Create) -> CreateCall<'a, A> {
        CreateCall::new(self.caller.clone(), CreateMode::GetOrCreate, id, &request)
    }
}

/// How a creation ended, machinery aside (spec 04 §3).
pub enum Created<A: Actor> {
    /// This call created the Actor.
    Accepted {
        /// The new Actor.
        actor: ActorRef,
        /// Its reply.
        reply: A::Accepted,
    },
    /// It existed already; only get-or-create ends so, and never with a reply (CREATE-23).
    Existing {
        /// The Actor found.
        actor: ActorRef,
    },
    /// The Actor's type declined (CREATE-21).
    Rejected {
        /// Its reply.
        reply: A::Rejected,
    },
}

impl<A: Actor> Created<A> {
    /// The Actor that exists now, `None` where the creation was declined.
    #[must_use]
    pub fn actor(&self) -> Option<&ActorRef> {
        match self {
            Self::Accepted { actor, .. } | Self::Existing { actor } => Some(actor),
            Self::Rejected { .. } => None,
        }
    }
}

impl<A: Actor> fmt::Debug for Created<A>
where
    A::Accepted: fmt::Debug,
    A::Rejected: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accepted { actor, reply } => {
                f.debug_struct("Accepted").field("actor", actor).field("reply", reply).finish()
            }
            Self::Existing { actor } => f.debug_struct("Existing").field("actor", actor).finish(),
            Self::Rejected { reply } => f.debug_struct("Rejected").field("reply", reply).finish(),
        }
    }
}

/// A creation that was not submitted yet. An option set twice ends it InvalidOperation (CREATE-12).
#[must_use = "a call does nothing until it is awaited"]
pub struct CreateCall<'a, A> {
    caller: Caller<'a>,
    create: Result<Box<CreateActor>, Error>,
    timeout: Option<Duration>,
    actor: PhantomData<fn() -> A>,
}

impl<'a, A: Actor> CreateCall<'a, A> {
    fn new(caller: Caller<'a>, mode: CreateMode, id: impl IntoActorId, request: &A::Create) -> Self {
        let timeout = caller.settings().create_timeout;
        let create = id.into_actor_id().and_then(|id| {
            let (stable_type, request) = (stable_type_of::<A>(), request_bytes(request)?);
            Ok(Box::new(CreateActor { id, stable_type, mode, mesh: None, request, timeout }))
        });
        Self { caller, create, timeout: None, actor: PhantomData }
    }

    /// Where candidates are looked for; by default the one Mesh with an object role (CREATE-15).
    pub fn in_mesh(mut self, mesh: impl AsRef<str>) -> Self {
        let name = MeshName::new(mesh).map_err(|illegal| invalid(illegal.to_string()));
        self.create = self.create.and_then(|mut create| {
            if create.mesh.is_some() {
                return Err(invalid("in_mesh: expected at most once, found twice".to_owned()));
            }
            create.mesh = Some(name?);
            Ok(create)
        });
        self
    }

    /// Deadline of the whole operation, 1 ms..2^31−1 ms; 30 s by default (CREATE-5).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        if self.timeout.replace(timeout).is_some() && self.create.is_ok() {
            self.create = Err(invalid("timeout: expected at most once, found twice".to_owned()));
        }
        self
    }
}

impl<'a, A: Actor> IntoFuture for CreateCall<'a, A> {
    type Output = Result<Created<A>, Error>;
    type IntoFuture = CallFuture<'a, Created<A>>;

    fn into_future(self) -> Self::IntoFuture {
        let command = self.create.and_then(|mut create| {
            create.timeout = timeout_or(self.timeout, create.timeout, "create")?;
            Ok(Command::CreateActor(*create))
        });
        self.caller.call(command, created)
    }
}

fn created<A: Actor>(answer: Answer) -> Result<Created<A>, Error> {
    match answer {
        Answer::Created { actor, reply } => Ok(Created::Accepted { actor, reply: reply_of(reply)? }),
        Answer::Existing { actor } => Ok(Created::Existing { actor }),
        Answer::Rejected { reply, .. } => Ok(Created::Rejected { reply: reply_of(reply)? }),
        Answer::Failed(error) => Err(error),
        other => Err(unexpected("create", &other)),
    }
}

fn reply_of<R: DeserializeOwned>(reply: Option<Bytes>) -> Result<R, Error> {
    decode(&reply.unwrap_or_default()).map_err(|error| {
        Error::new(ErrorKind::ProtocolError, "create", format!("expected its reply type, found {error}"))
    })
}

fn request_bytes<R: serde::Serialize>(request: &R) -> Result<Bytes, Error> {
    match encode(request) {
        Ok(bytes) if bytes.len() <= CREATION_REQUEST_MAX => Ok(bytes),
        Ok(bytes) => Err(invalid(format!(
            "request: expected at most {CREATION_REQUEST_MAX} bytes, found {}",
            bytes.len()
        ))),
        Err(error) => Err(invalid(format!("request cannot be encoded: {error}"))),
    }
}

fn invalid(found: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, "create", found)
}
