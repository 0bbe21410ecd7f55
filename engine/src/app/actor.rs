//! What an application implements: Actors, their handlers and their state adapters.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::context::{ActorContext, CreateContext};
use super::message::Message;
use crate::model::Error;

/// A stateful object with a global id, a queue of its own and one turn at a time (MODEL-53).
pub trait Actor: Sized + Send + 'static {
    /// Stable type: selects the factory on every node, 1..=255 bytes (MODEL-16). Checked when the program is
    /// compiled.
    const TYPE: &'static str;
    /// The creation request, at most 1 MiB encoded (CREATE-11).
    type Create: Serialize + DeserializeOwned + Send + 'static;
    /// The reply to an accepted creation, at most 1 MiB encoded.
    type Accepted: Serialize + DeserializeOwned + Send + 'static;
    /// The reply to a declined creation, at most 1 MiB encoded.
    type Rejected: Serialize + DeserializeOwned + Send + 'static;

    /// Builds the Actor, or declines to (CREATE-64..66). May run more than once for one object and must
    /// converge then (CREATE-9).
    ///
    /// # Errors
    /// An error ends the attempt Failed (CREATE-67). To decline is no error but [`Admission::reject`].
    fn create(
        request: Self::Create,
        ctx: &mut CreateContext<'_>,
    ) -> impl Future<Output = Result<Admission<Self>, Error>> + Send;
}

/// What a creation came to (CREATE-21).
pub enum Admission<A: Actor> {
    /// The Actor exists from now on.
    Accept {
        /// Its state.
        actor: A,
        /// The reply to whoever created it.
        reply: A::Accepted,
    },
    /// There will be no Actor; the id stays free (CREATE-24).
    Reject {
        /// The reply to whoever tried.
        reply: A::Rejected,
    },
}

impl<A: Actor> Admission<A> {
    /// The Actor exists from now on.
    pub fn accept(actor: A, reply: A::Accepted) -> Self {
        Self::Accept { actor, reply }
    }

    /// There will be no Actor.
    pub fn reject(reply: A::Rejected) -> Self {
        Self::Reject { reply }
    }
}

/// Handles one type of message. Implementations are plain `async fn`.
pub trait Handle<M: Message>: Actor {
    /// Runs as one turn: until it ends, no other turn of this Actor starts, also while it awaits (MODEL-67).
    ///
    /// # Errors
    /// The kind reaches the requester, the text does not (ERR-17). Refusals of the application belong into
    /// the reply.
    fn handle(
        &mut self,
        message: M,
        ctx: &mut ActorContext<'_, Self>,
    ) -> impl Future<Output = Result<M::Reply, Error>> + Send;
}

/// The state an Actor takes along when it moves; required by `preserve_state()` (NODE-36).
pub trait PreserveState: Actor {
    /// What travels.
    type State: Serialize + DeserializeOwned + Send + 'static;
    /// Version of `State`'s encoding.
    const VERSION: u16;

    /// The state as of now. Does not change the Actor: the move may still be called off.
    ///
    /// # Errors
    /// An error ends the move and leaves the Actor where it is.
    fn capture(&self) -> Result<Self::State, Error>;

    /// An Actor with that state.
    ///
    /// # Errors
    /// StateIncompatible where this version cannot take the state of that version (MODEL-130).
    fn restore(state: Versioned<Self::State>) -> Result<Self, Error>;
}

/// A captured state with the version its sender gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned<S> {
    /// [`PreserveState::VERSION`] at the sender.
    pub version: u16,
    /// The state.
    pub state: S,
}
