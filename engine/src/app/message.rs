//! Messages: serde types with a wire name, a version and a reply type.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::limits::PAYLOAD_MAX;
use crate::model::{Error, ErrorKind, PacketName};
use crate::wire::PayloadCodec;

/// Something that can be sent to an Actor.
///
/// The wire knows a message by [`Self::NAME`] and [`Self::VERSION`], never by its Rust name (MODEL-16), and a
/// handler takes exactly the version it was written for. The reply type belongs to the message, so that a
/// caller needs no Actor type. [`message!`](crate::message!) writes the implementation.
pub trait Message: Serialize + DeserializeOwned + Send + 'static {
    /// Wire name, 1..=255 bytes; checked when the program is compiled.
    const NAME: &'static str;
    /// Version of the type's encoding.
    const VERSION: u16 = 1;
    /// Encoding of message and reply.
    const CODEC: PayloadCodec = PayloadCodec::Postcard;
    /// What a request gets back; `()` for messages that are only sent.
    type Reply: Serialize + DeserializeOwned + Send + 'static;

    /// [`Self::NAME`] as the core knows it. `message!` keeps it, so that a call does not build it anew.
    #[must_use]
    fn packet() -> PacketName {
        packet_of::<Self>()
    }
}

/// Implements [`Message`](crate::app::Message) for a serde type.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use spotmesh::app::Message;
///
/// #[derive(Serialize, Deserialize)]
/// struct Hit { damage: u32 }
/// spotmesh::message!(Hit, "player.hit", reply = u32);
///
/// #[derive(Serialize, Deserialize)]
/// struct Heal { by: u32 }
/// spotmesh::message!(Heal, "player.heal", reply = (), version = 2);
///
/// assert_eq!((Hit::NAME, Hit::VERSION), ("player.hit", 1));
/// assert_eq!((Heal::NAME, Heal::VERSION), ("player.heal", 2));
/// ```
///
/// A name that is no legal wire name does not compile:
///
/// ```compile_fail
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Hit;
/// spotmesh::message!(Hit, "", reply = ());
/// ```
#[macro_export]
macro_rules! message {
    ($type:ty, $name:expr, reply = $reply:ty $(, version = $version:expr)? $(,)?) => {
        const _: () = ::core::assert!($crate::app::is_legal_name($name), "expected a name of 1..=255 bytes");

        impl $crate::app::Message for $type {
            const NAME: &'static str = $name;
            $(const VERSION: u16 = $version;)?
            type Reply = $reply;

            fn packet() -> $crate::model::PacketName {
                static PACKET: ::std::sync::OnceLock<$crate::model::PacketName> = ::std::sync::OnceLock::new();
                PACKET.get_or_init($crate::app::packet_of::<Self>).clone()
            }
        }
    };
}

/// Whether a text can be a stable type or the wire name of a message: 1..=255 bytes (MODEL-8).
#[must_use]
pub const fn is_legal_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 255
}

/// The wire name of a message type; does not compile where [`Message::NAME`] is not legal.
#[doc(hidden)]
#[must_use]
pub fn packet_of<M: Message>() -> PacketName {
    const { assert!(is_legal_name(M::NAME), "Message::NAME: expected 1..=255 bytes") };
    // Length is the only rule a packet name has, and it was checked.
    PacketName::new(M::NAME).unwrap_or_else(|_| unreachable!())
}

/// Encodings up to this size are built on the stack, so that they cost one allocation of the right size.
const SMALL: usize = 256;

/// The encoding of a value, `Err` with the reason where it has none.
pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Bytes, String> {
    let mut small = [0; SMALL];
    match postcard::to_slice(value, &mut small) {
        Ok(encoded) => Ok(Bytes::copy_from_slice(encoded)),
        Err(postcard::Error::SerializeBufferFull) => {
            postcard::to_stdvec(value).map(Bytes::from).map_err(|error| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// The value of an encoding; bytes left over are an error too.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(format!("expected the end of the encoding, found {} more bytes", rest.len())),
        Err(error) => Err(error.to_string()),
    }
}

/// The payload of an outgoing message.
pub(crate) fn payload_of<M: Message>(message: &M) -> Result<Bytes, Error> {
    let refuse = |text: String| Err(Error::new(ErrorKind::InvalidOperation, M::NAME, text));
    if M::CODEC != PayloadCodec::Postcard {
        return refuse(format!("expected the codec Postcard, found {:?}", M::CODEC));
    }
    match encode(message) {
        Ok(bytes) if bytes.len() <= PAYLOAD_MAX => Ok(bytes),
        Ok(bytes) => refuse(format!("expected at most {PAYLOAD_MAX} bytes, found {}", bytes.len())),
        Err(error) => refuse(format!("cannot be encoded: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailing_and_missing_bytes_are_no_value() {
        assert_eq!(decode::<(u8, bool)>(&[7, 1]), Ok((7, true)));
        assert!(decode::<(u8, bool)>(&[7]).is_err());
        assert!(decode::<(u8, bool)>(&[7, 1, 0]).is_err());
        assert_eq!(decode::<()>(&[]), Ok(()));
    }

    #[test]
    fn small_and_large_values_have_the_same_encoding() {
        for length in [0, 1, SMALL - 3, SMALL - 2, SMALL - 1, SMALL, 10 * SMALL] {
            let value = "x".repeat(length);
            assert_eq!(encode(&value), Ok(postcard::to_stdvec(&value).unwrap().into()), "{length}");
        }
    }

    #[test]
    fn names_have_one_to_255_bytes() {
        assert!(is_legal_name("a") && is_legal_name(&"a".repeat(255)));
        assert!(!is_legal_name("") && !is_legal_name(&"a".repeat(256)));
    }
}
