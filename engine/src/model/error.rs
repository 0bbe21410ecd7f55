//! The one error enum of every public operation (spec 10 §1–2).

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The closed set of failures a caller can see (ERR-1); code branches on the kind, never on a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// Target, handler, Channel, Mesh or authority does not exist.
    NotFound,
    /// An exclusive Create met an existing identity.
    AlreadyExists,
    /// The id exists with another kind or stable type.
    TypeMismatch,
    /// The process lacks the needed role, Mesh or handler registration.
    NotConfigured,
    /// A filter or policy refused, without a typed result.
    Rejected,
    /// Route, owner, Store or eligible node cannot be used now.
    Unavailable,
    /// The one fixed target node has no room for the object.
    CapacityExceeded,
    /// The completion condition was not met in time; the outcome may be unknown.
    DeadlineExceeded,
    /// This runtime admits no new operation.
    ShuttingDown,
    /// Frame, payload, content type or reply contract unusable.
    ProtocolError,
    /// Not allowed in the present state, scope or generation, or an argument over a fixed limit.
    InvalidOperation,
    /// Stored bytes are missing or fail their check.
    DataLost,
    /// Captured state cannot be restored by the target's adapter or type.
    StateIncompatible,
    /// Framework or application-callback failure outside the kinds above.
    InternalFailure,
    /// Invalid setting or registration; never travels to a peer (ERR-14).
    Configuration,
}

impl ErrorKind {
    /// All 15 kinds, in the order of spec 10 §2.
    pub const ALL: [Self; 15] = [
        Self::NotFound,
        Self::AlreadyExists,
        Self::TypeMismatch,
        Self::NotConfigured,
        Self::Rejected,
        Self::Unavailable,
        Self::CapacityExceeded,
        Self::DeadlineExceeded,
        Self::ShuttingDown,
        Self::ProtocolError,
        Self::InvalidOperation,
        Self::DataLost,
        Self::StateIncompatible,
        Self::InternalFailure,
        Self::Configuration,
    ];

    /// The kind as it may appear to a peer: Configuration becomes InternalFailure (ERR-14).
    #[must_use]
    pub const fn for_peer(self) -> Self {
        match self {
            Self::Configuration => Self::InternalFailure,
            kind => kind,
        }
    }

    /// The kind's stable number on the wire, its place in [`Self::ALL`].
    #[must_use]
    pub fn code(self) -> u8 {
        // The position of a member of a 15-element array fits.
        Self::ALL.iter().position(|kind| *kind == self).unwrap_or_default() as u8
    }

    /// The kind of a number; an unknown one is ProtocolError (ERR-13).
    #[must_use]
    pub fn from_code(code: u8) -> Self {
        Self::ALL.get(usize::from(code)).copied().unwrap_or(Self::ProtocolError)
    }
}

impl Serialize for ErrorKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(self.code())
    }
}

impl<'de> Deserialize<'de> for ErrorKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from_code(u8::deserialize(deserializer)?))
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A failed operation: kind, operation and a short description (ERR-2).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Error {
    kind: ErrorKind,
    operation: Cow<'static, str>,
    description: Cow<'static, str>,
}

impl Error {
    /// An error of `kind` met by `operation`, saying what was expected and what was found.
    pub fn new(
        kind: ErrorKind,
        operation: impl Into<Cow<'static, str>>,
        description: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { kind, operation: operation.into(), description: description.into() }
    }

    /// The kind, the only part code may branch on.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Name of the operation that failed.
    #[must_use]
    pub fn operation(&self) -> &str {
        &self.operation
    }

    /// What was expected and what was found, for a person.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.operation, self.kind, self.description)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn err_t1_the_enum_has_exactly_15_kinds_and_no_retry_hint() {
        assert_eq!(ErrorKind::ALL.len(), 15);
        for kind in ErrorKind::ALL {
            assert_eq!(ErrorKind::from_code(kind.code()), kind);
            // An exhaustive match: a sixteenth kind would not compile here.
            match kind {
                ErrorKind::NotFound
                | ErrorKind::AlreadyExists
                | ErrorKind::TypeMismatch
                | ErrorKind::NotConfigured
                | ErrorKind::Rejected
                | ErrorKind::Unavailable
                | ErrorKind::CapacityExceeded
                | ErrorKind::DeadlineExceeded
                | ErrorKind::ShuttingDown
                | ErrorKind::ProtocolError
                | ErrorKind::InvalidOperation
                | ErrorKind::DataLost
                | ErrorKind::StateIncompatible
                | ErrorKind::InternalFailure
                | ErrorKind::Configuration => {}
            }
        }
        // Three fields, none of them a retry hint: a fourth would not compile here.
        let Error { kind: _, operation: _, description: _ } =
            Error::new(ErrorKind::NotFound, "find", "no row");
        assert_eq!(ErrorKind::from_code(15), ErrorKind::ProtocolError);
        assert_eq!(ErrorKind::Configuration.for_peer(), ErrorKind::InternalFailure);
    }
}
