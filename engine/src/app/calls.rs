//! What all calls share: who calls, the timeout, the find.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use super::address::IntoActorId;
use crate::driver::{CallFuture, Port, TurnScope};
use crate::input::{Command, TurnId};
use crate::model::limits::{Settings, call_timeout};
use crate::model::{ActorId, ActorRef, Error, ErrorKind};
use crate::output::Answer;

/// Who calls: a turn, for as long as it lives, or somebody outside of any turn.
#[derive(Clone)]
pub(crate) struct Caller<'a> {
    port: Arc<Port>,
    from: Option<TurnId>,
    turn: PhantomData<&'a TurnScope>,
}

impl<'a> Caller<'a> {
    pub(crate) fn outside(port: Arc<Port>) -> Caller<'static> {
        Caller { port, from: None, turn: PhantomData }
    }

    pub(crate) fn turn(scope: &'a TurnScope) -> Self {
        Self { port: scope.port.clone(), from: Some(scope.turn), turn: PhantomData }
    }

    pub(crate) fn settings(&self) -> &Settings {
        self.port.settings()
    }

    pub(crate) fn call<R>(
        self,
        command: Result<Command, Error>,
        decode: fn(Answer) -> Result<R, Error>,
    ) -> CallFuture<'a, R> {
        CallFuture::new(self.port, self.from, command, decode)
    }
}

/// A timeout of a call: the given one, checked, or the default.
pub(crate) fn timeout_or(
    given: Option<Duration>,
    default: Duration,
    operation: &'static str,
) -> Result<Duration, Error> {
    match given {
        None => Ok(default),
        Some(timeout) => call_timeout(timeout).ok_or_else(|| {
            let found = format!("timeout: expected 1 ms..2^31-1 ms, found {timeout:?}");
            Error::new(ErrorKind::InvalidOperation, operation, found)
        }),
    }
}

/// The error of an answer that does not fit its call: a defect of the core.
pub(crate) fn unexpected(operation: &'static str, answer: &Answer) -> Error {
    Error::new(ErrorKind::InternalFailure, operation, format!("unexpected answer {answer:?}"))
}

/// A lookup; awaiting it gives the ref of a Ready Actor or nothing (CREATE-151).
#[must_use = "a call does nothing until it is awaited"]
pub struct FindCall<'a> {
    caller: Caller<'a>,
    id: Result<ActorId, Error>,
    timeout: Option<Duration>,
}

impl<'a> FindCall<'a> {
    pub(crate) fn new(caller: Caller<'a>, id: impl IntoActorId) -> Self {
        Self { caller, id: id.into_actor_id(), timeout: None }
    }

    /// Deadline, 1 ms..2^31−1 ms; by default that of requests.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

impl<'a> IntoFuture for FindCall<'a> {
    type Output = Result<Option<ActorRef>, Error>;
    type IntoFuture = CallFuture<'a, Option<ActorRef>>;

    fn into_future(self) -> Self::IntoFuture {
        let timeout = timeout_or(self.timeout, self.caller.settings().request_timeout, "find");
        let command = self.id.and_then(|id| Ok(Command::FindActor { id, timeout: timeout? }));
        self.caller.call(command, |answer| match answer {
            Answer::Found(found) => Ok(found),
            Answer::Failed(error) => Err(error),
            other => Err(unexpected("find", &other)),
        })
    }
}
