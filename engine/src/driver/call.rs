//! One call of the application, from its submission to its one answer.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::channel::oneshot;

use super::inbox::Arrival;
use super::port::Port;
use crate::input::{CallId, Command, TurnId};
use crate::model::{Error, ErrorKind};
use crate::output::Answer;

/// A call on its way: submitted when it is first polled, ended by exactly one answer (ERR-7).
///
/// Dropping it ends the wait and undoes nothing (ERR-6, MODEL-107). `'a` ties a call that a turn made to that
/// turn, `'static` is a call from outside.
#[must_use = "a call does nothing until it is awaited"]
pub struct CallFuture<'a, R> {
    port: Arc<Port>,
    state: State,
    decode: fn(Answer) -> Result<R, Error>,
    turn: PhantomData<&'a ()>,
}

enum State {
    /// A local check failed: nothing is submitted (ERR-12).
    Refused(Error),
    Fresh(Option<TurnId>, Command),
    Waiting(CallId, oneshot::Receiver<Answer>),
    Ended,
}

impl<R> CallFuture<'_, R> {
    pub(crate) fn new(
        port: Arc<Port>,
        from: Option<TurnId>,
        command: Result<Command, Error>,
        decode: fn(Answer) -> Result<R, Error>,
    ) -> Self {
        let state = match command {
            Ok(command) => State::Fresh(from, command),
            Err(error) => State::Refused(error),
        };
        Self { port, state, decode, turn: PhantomData }
    }
}

impl<R> Future for CallFuture<'_, R> {
    type Output = Result<R, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Waiting(_, receiver) = &mut self.state {
            let Poll::Ready(answer) = receiver.poll_unpin(cx) else { return Poll::Pending };
            self.state = State::Ended;
            return Poll::Ready(answer.map_err(|_| loop_is_gone()).and_then(self.decode));
        }
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Fresh(from, command) => {
                let call = self.port.next_call();
                let (answer, receiver) = oneshot::channel();
                if let Err(error) = self.port.tell(Arrival::Call { call, from, command, answer }) {
                    return Poll::Ready(Err(error));
                }
                self.state = State::Waiting(call, receiver);
                self.poll(cx)
            }
            State::Refused(error) => Poll::Ready(Err(error)),
            State::Waiting(..) | State::Ended => {
                let error = Error::new(ErrorKind::InvalidOperation, "call", "polled after it had ended");
                Poll::Ready(Err(error))
            }
        }
    }
}

impl<R> Drop for CallFuture<'_, R> {
    fn drop(&mut self) {
        if let State::Waiting(call, _) = self.state {
            // Without a loop there is nobody left to tell.
            let _ = self.port.tell(Arrival::DropCall(call));
        }
    }
}

/// What a call meets where its host's loop has ended.
pub(crate) fn loop_is_gone() -> Error {
    Error::new(ErrorKind::ShuttingDown, "call", "expected a running host, found one that has ended")
}
