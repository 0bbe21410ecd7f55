//! What application code is lent for the time of one turn.

use std::marker::PhantomData;
use std::time::Duration;

use super::Actor;
use super::address::{Address, IntoActorId};
use super::calls::{Caller, FindCall};
use super::create::Actors;
use super::host::HostHandle;
use super::target::{ActorTarget, AnyTarget};
use crate::driver::TurnScope;
use crate::model::{ActorId, AuthorityOwnerGeneration, ObjectGeneration};
use crate::wire::Metadata;

/// Proof of ownership for the application's own databases.
///
/// Put both numbers into the `WHERE` clause of a conditional write: a former owner that resumes carries an
/// older owner generation and changes nothing (MODEL-20, MODEL-21).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The incarnation; compare for equality.
    pub object_generation: ObjectGeneration,
    /// Grows with every change of owner inside one incarnation.
    pub owner_generation: AuthorityOwnerGeneration,
}

macro_rules! shared_by_contexts {
    () => {
        /// The Actor's id.
        #[must_use]
        pub fn id(&self) -> &'a ActorId {
            &self.scope.id
        }

        /// The Actor's incarnation.
        #[must_use]
        pub fn object_generation(&self) -> ObjectGeneration {
            self.scope.object_generation
        }

        /// What to guard external writes with.
        #[must_use]
        pub fn fence(&self) -> Fence {
            Fence {
                object_generation: self.scope.object_generation,
                owner_generation: self.scope.owner_generation,
            }
        }

        /// Time left of the caller's deadline, or of the creation attempt (MODEL-106).
        #[must_use]
        pub fn remaining(&self) -> Duration {
            self.scope.until.since(self.scope.port.clock().now())
        }

        /// Another Actor, to be called from this turn. The turn stays occupied while it awaits (MODEL-67).
        #[must_use]
        pub fn actor<B: Actor>(&self, id: impl IntoActorId) -> ActorTarget<'a, B> {
            ActorTarget::new(self.caller(), id)
        }

        /// The Actor of a typed address, to be called.
        #[must_use]
        pub fn at<B: Actor>(&self, address: &Address<B>) -> ActorTarget<'a, B> {
            ActorTarget::new(self.caller(), address)
        }

        /// Another Actor of a type this program need not know.
        #[must_use]
        pub fn address(&self, id: impl IntoActorId) -> AnyTarget<'a> {
            AnyTarget::new(self.caller(), id)
        }

        /// Creates Actors from this turn.
        #[must_use]
        pub fn actors(&self) -> Actors<'a> {
            Actors::new(self.caller())
        }

        /// Looks an Actor up (CREATE-151).
        pub fn find(&self, id: impl IntoActorId) -> FindCall<'a> {
            FindCall::new(self.caller(), id)
        }

        /// The host, for calls of tasks that outlive the turn. The core does not see that the turn waits for
        /// such a call: awaiting one that needs this Actor ends with its deadline.
        #[must_use]
        pub fn host(&self) -> HostHandle {
            HostHandle::new(self.scope.port.clone())
        }

        fn caller(&self) -> Caller<'a> {
            Caller::turn(self.scope)
        }
    };
}

/// Context of [`Actor::create`].
pub struct CreateContext<'a> {
    scope: &'a TurnScope,
}

impl<'a> CreateContext<'a> {
    pub(crate) fn new(scope: &'a TurnScope) -> Self {
        Self { scope }
    }

    shared_by_contexts!();
}

/// Context of a message handler.
pub struct ActorContext<'a, A> {
    scope: &'a TurnScope,
    actor: PhantomData<fn() -> A>,
}

impl<'a, A: Actor> ActorContext<'a, A> {
    pub(crate) fn new(scope: &'a TurnScope) -> Self {
        Self { scope, actor: PhantomData }
    }

    /// The message's metadata (MODEL-116).
    #[must_use]
    pub fn metadata(&self) -> &'a Metadata {
        &self.scope.metadata
    }

    /// This Actor's own address, to be given to others.
    #[must_use]
    pub fn own_address(&self) -> Address<A> {
        Address::of(self.scope.id.clone())
    }

    shared_by_contexts!();
}
