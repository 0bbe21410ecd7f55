//! Captured state in its encoded form.

use bytes::Bytes;

use super::message::{decode, encode};
use super::{Actor, PreserveState, Versioned};
use crate::model::{Error, ErrorKind};

/// A type's way to capture and restore state, as a move uses it.
///
/// Tests of an application can drive it directly, to see that what one version captures another one restores.
pub struct StateAdapter<A: Actor> {
    version: u16,
    capture: fn(&A) -> Result<Bytes, Error>,
    restore: fn(u16, &[u8]) -> Result<A, Error>,
}

impl<A: PreserveState> StateAdapter<A> {
    /// The adapter of a type.
    #[must_use]
    pub fn new() -> Self {
        Self {
            version: A::VERSION,
            capture: |actor| {
                encode(&actor.capture()?)
                    .map_err(|error| Error::new(ErrorKind::InternalFailure, "capture", error))
            },
            restore: |version, bytes| {
                let state = decode(bytes)
                    .map_err(|error| Error::new(ErrorKind::StateIncompatible, "restore", error))?;
                A::restore(Versioned { version, state })
            },
        }
    }
}

impl<A: PreserveState> Default for StateAdapter<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Actor> StateAdapter<A> {
    /// Version of what [`Self::capture`] returns.
    #[must_use]
    pub fn version(&self) -> u16 {
        self.version
    }

    /// The encoded state of an Actor.
    ///
    /// # Errors
    /// What the type's own capture returns; InternalFailure where the state cannot be encoded.
    pub fn capture(&self, actor: &A) -> Result<Bytes, Error> {
        (self.capture)(actor)
    }

    /// An Actor with a state that was captured as `version`.
    ///
    /// # Errors
    /// StateIncompatible where the bytes are not the type's state; what the type's own restore returns.
    pub fn restore(&self, version: u16, bytes: &[u8]) -> Result<A, Error> {
        (self.restore)(version, bytes)
    }
}
