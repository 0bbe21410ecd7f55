//! Addresses of Actors: ids, with or without a type.

use std::fmt;
use std::marker::PhantomData;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Actor;
use crate::model::{ActorId, Error, ErrorKind, IllegalId};

/// Address of an Actor whose type is known; encoded as the id's text alone.
///
/// It names a key, not an incarnation and not a place (MODEL-15): a message to it goes to whoever owns the
/// Actor when it is sent.
pub struct Address<A> {
    id: ActorId,
    actor: PhantomData<fn() -> A>,
}

impl<A: Actor> Address<A> {
    /// Checks and takes a text.
    ///
    /// # Errors
    /// [`IllegalId`] where the text is no ActorId (MODEL-8).
    pub fn new(id: impl AsRef<str>) -> Result<Self, IllegalId> {
        ActorId::new(id).map(Self::of)
    }

    /// The address of an id.
    #[must_use]
    pub fn of(id: ActorId) -> Self {
        Self { id, actor: PhantomData }
    }

    /// The id.
    #[must_use]
    pub fn id(&self) -> &ActorId {
        &self.id
    }
}

impl<A> Clone for Address<A> {
    fn clone(&self) -> Self {
        Self { id: self.id.clone(), actor: PhantomData }
    }
}

impl<A> PartialEq for Address<A> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl<A> Eq for Address<A> {}

impl<A> fmt::Debug for Address<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({:?})", self.id)
    }
}

impl<A> Serialize for Address<A> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.id.serialize(serializer)
    }
}

impl<'de, A> Deserialize<'de> for Address<A> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self { id: ActorId::deserialize(deserializer)?, actor: PhantomData })
    }
}

/// What names an Actor in a call: an [`ActorId`], an [`Address`], or a text that is checked by the call.
pub trait IntoActorId: sealed::Sealed {
    /// The id.
    ///
    /// # Errors
    /// InvalidOperation where a text is no ActorId (MODEL-13).
    fn into_actor_id(self) -> Result<ActorId, Error>;
}

fn checked(text: &str) -> Result<ActorId, Error> {
    ActorId::new(text)
        .map_err(|illegal| Error::new(ErrorKind::InvalidOperation, "address", illegal.to_string()))
}

impl IntoActorId for ActorId {
    fn into_actor_id(self) -> Result<ActorId, Error> {
        Ok(self)
    }
}

impl IntoActorId for &ActorId {
    fn into_actor_id(self) -> Result<ActorId, Error> {
        Ok(self.clone())
    }
}

impl<A> IntoActorId for Address<A> {
    fn into_actor_id(self) -> Result<ActorId, Error> {
        Ok(self.id)
    }
}

impl<A> IntoActorId for &Address<A> {
    fn into_actor_id(self) -> Result<ActorId, Error> {
        Ok(self.id.clone())
    }
}

impl IntoActorId for &str {
    fn into_actor_id(self) -> Result<ActorId, Error> {
        checked(self)
    }
}

impl IntoActorId for String {
    fn into_actor_id(self) -> Result<ActorId, Error> {
        checked(&self)
    }
}

impl IntoActorId for &String {
    fn into_actor_id(self) -> Result<ActorId, Error> {
        checked(self)
    }
}

mod sealed {
    use crate::model::ActorId;

    pub trait Sealed {}
    impl Sealed for ActorId {}
    impl Sealed for &ActorId {}
    impl<A> Sealed for super::Address<A> {}
    impl<A> Sealed for &super::Address<A> {}
    impl Sealed for &str {}
    impl Sealed for String {}
    impl Sealed for &String {}
}
