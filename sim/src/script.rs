//! What scripted application code does, carried inside the payloads themselves.
//!
//! A creation request and a message hold the script of the callback they will meet, so behaviour is plain data
//! of the action list and needs no table on the side.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use spotmesh::model::ErrorKind;

/// What a create callback does.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CreateScript {
    /// How long factory, initialise and callback take together, in microseconds.
    #[serde(default = "default_takes")]
    pub takes_us: u64,
    /// How it ends.
    #[serde(default)]
    pub verdict: Verdict,
    /// Bytes of padding in the request.
    #[serde(default)]
    pub padding: u32,
}

impl Default for CreateScript {
    fn default() -> Self {
        Self { takes_us: default_takes(), verdict: Verdict::default(), padding: 0 }
    }
}

/// End of a create callback.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Verdict {
    /// Approves.
    #[default]
    Accept,
    /// Declines: a normal result.
    Decline,
    /// Returns an error.
    Fail,
    /// Panics.
    Panic,
    /// Never ends.
    Hang,
}

/// What a message handler does.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HandlerScript {
    /// How long it works, in microseconds.
    #[serde(default = "default_takes")]
    pub takes_us: u64,
    /// How it ends.
    #[serde(default)]
    pub ending: Ending,
    /// What it calls half-way.
    #[serde(default)]
    pub nested: Option<Nested>,
}

impl Default for HandlerScript {
    fn default() -> Self {
        Self { takes_us: default_takes(), ending: Ending::default(), nested: None }
    }
}

/// A call made by a handler.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Nested {
    /// The Actor it calls.
    pub to: String,
    /// A request it waits for, or a send it does not wait for.
    pub waits: bool,
    /// Deadline of the call, in milliseconds.
    pub timeout_ms: u32,
}

/// End of a message handler.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Ending {
    /// Replies with the Actor's counter.
    #[default]
    Reply,
    /// Returns `NotFound`, an error kind a handler may choose.
    Fail,
    /// Panics.
    Panic,
    /// Does not end before the faults of the run have ended.
    Hang,
    /// The type has no handler for it.
    NoHandler,
    /// The payload cannot be decoded.
    Undecodable,
}

impl Ending {
    /// The kind a requester sees, `None` for a reply (ERR-17, MODEL-111).
    #[must_use]
    pub fn kind(self) -> Option<ErrorKind> {
        match self {
            Self::Reply | Self::Hang => None,
            Self::Fail | Self::NoHandler => Some(ErrorKind::NotFound),
            Self::Panic => Some(ErrorKind::InternalFailure),
            Self::Undecodable => Some(ErrorKind::ProtocolError),
        }
    }
}

const fn default_takes() -> u64 {
    300
}

/// Number of a call in a run; every call of the workload and every nested call has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Uid(pub u64);

/// Encodes a script with the call that carries it.
pub fn encode<T: Serialize>(uid: Uid, script: &T) -> Bytes {
    let body = postcard::to_extend(script, uid.0.to_le_bytes().to_vec());
    Bytes::from(body.unwrap_or_else(|error| unreachable!("plain data encodes: {error}")))
}

/// The call that carries these bytes, where they come from [`encode`].
#[must_use]
pub fn uid_of(bytes: &[u8]) -> Option<Uid> {
    let head: [u8; 8] = bytes.get(..8)?.try_into().ok()?;
    Some(Uid(u64::from_le_bytes(head)))
}

/// The call and its script.
#[must_use]
pub fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Option<(Uid, T)> {
    let uid = uid_of(bytes)?;
    let (script, _) = postcard::take_from_bytes(&bytes[8..]).ok()?;
    Some((uid, script))
}

/// What a handler replies: whose request it was and the Actor's counter after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CounterReply {
    /// The request.
    pub uid: Uid,
    /// Messages the instance handled so far, this one included.
    pub counter: u64,
}

impl CounterReply {
    /// 16 bytes.
    #[must_use]
    pub fn encode(self) -> Bytes {
        let mut bytes = self.uid.0.to_le_bytes().to_vec();
        bytes.extend(self.counter.to_le_bytes());
        Bytes::from(bytes)
    }

    /// Reads exactly what [`Self::encode`] wrote.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (uid, counter) = (uid_of(bytes)?, uid_of(bytes.get(8..)?)?);
        (bytes.len() == 16).then_some(Self { uid, counter: counter.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_and_replies_round_trip() {
        let script = HandlerScript {
            takes_us: 5,
            ending: Ending::Fail,
            nested: Some(Nested { to: "a1".to_owned(), waits: true, timeout_ms: 9 }),
        };
        let bytes = encode(Uid(77), &script);
        assert_eq!(uid_of(&bytes), Some(Uid(77)));
        assert_eq!(decode::<HandlerScript>(&bytes), Some((Uid(77), script)));
        let reply = CounterReply { uid: Uid(3), counter: 4 };
        assert_eq!(CounterReply::decode(&reply.encode()), Some(reply));
        assert_eq!(CounterReply::decode(&reply.encode()[..15]), None);
        assert_eq!(decode::<HandlerScript>(&[1, 2]), None);
    }
}
