//! Records to messages and back.

use std::fmt;

use bytes::Bytes;

use super::message::Message;
use crate::link::Record;
use crate::model::limits::PAYLOAD_MAX;

/// Version byte of every header.
pub const WIRE_VERSION: u8 = 1;

/// Largest header: a message without its body holds ids and metadata only.
const HEADER_MAX: usize = 512 << 10;

/// Why a record is unusable; the peer's fault, so its link is closed (ProtocolError).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WireError {
    /// Another version byte than [`WIRE_VERSION`].
    Version {
        /// The byte found, `None` where the header is empty.
        found: Option<u8>,
    },
    /// Header or body over its bound.
    TooLarge {
        /// Bytes found.
        found: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// The header is not a message: truncated, an unknown variant, an illegal value.
    Malformed(String),
    /// Bytes follow the message in its header.
    Trailing {
        /// How many.
        found: usize,
    },
    /// A body where the message has none.
    UnexpectedBody,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { found: Some(found) } => {
                write!(f, "wire version: expected {WIRE_VERSION}, found {found}")
            }
            Self::Version { found: None } => {
                write!(f, "wire version: expected {WIRE_VERSION}, found no byte")
            }
            Self::TooLarge { found, max } => write!(f, "expected at most {max} bytes, found {found}"),
            Self::Malformed(what) => write!(f, "expected a message, found {what}"),
            Self::Trailing { found } => write!(f, "expected the end of the header, found {found} more bytes"),
            Self::UnexpectedBody => write!(f, "expected no body"),
        }
    }
}

impl std::error::Error for WireError {}

/// Headers up to this size, in bytes, are built on the stack: one allocation of the right size then holds them.
const SMALL: usize = 512;

/// Encodes a message with the body it carries. Bodies are not copied.
#[must_use]
pub fn encode(message: &Message, body: Option<Bytes>) -> Record {
    let mut small = [0; SMALL];
    small[0] = WIRE_VERSION;
    if let Ok(encoded) = postcard::to_slice(message, &mut small[1..]) {
        let len = 1 + encoded.len();
        return Record { header: Bytes::copy_from_slice(&small[..len]), body };
    }
    let header = postcard::to_extend(message, vec![WIRE_VERSION]);
    // Serializing plain data into a growing buffer has no failing case.
    let header = header.unwrap_or_default();
    debug_assert!(header.len() > 1, "a message always encodes");
    Record { header: Bytes::from(header), body }
}

/// Decodes a record.
///
/// Allocates no more than the record's own bytes: ids are built from slices of it, maps grow entry by entry.
///
/// # Errors
/// [`WireError`]; nothing is kept then.
pub fn decode(record: &Record) -> Result<(Message, Option<Bytes>), WireError> {
    if record.header.len() > HEADER_MAX {
        return Err(WireError::TooLarge { found: record.header.len(), max: HEADER_MAX });
    }
    let (version, rest) = match record.header.split_first() {
        Some((version, rest)) if *version == WIRE_VERSION => (*version, rest),
        found => return Err(WireError::Version { found: found.map(|(version, _)| *version) }),
    };
    debug_assert_eq!(version, WIRE_VERSION);
    let (message, trailing) = postcard::take_from_bytes::<Message>(rest)
        .map_err(|error| WireError::Malformed(error.to_string()))?;
    if !trailing.is_empty() {
        return Err(WireError::Trailing { found: trailing.len() });
    }
    if let Some(body) = &record.body {
        if body.len() > PAYLOAD_MAX {
            return Err(WireError::TooLarge { found: body.len(), max: PAYLOAD_MAX });
        }
        if !matches!(message, Message::Actor(_) | Message::Reply(_) | Message::CreateAnswer(_)) {
            return Err(WireError::UnexpectedBody);
        }
    }
    Ok((message, record.body.clone()))
}
