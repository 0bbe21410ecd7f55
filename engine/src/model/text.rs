//! Textual identifiers (MODEL-8..12) and RIDs: compared byte for byte, never normalised, never parsed for a place.

use std::fmt;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::entropy::Entropy;

/// Why a text or byte string is not a legal identifier (MODEL-8, MODEL-13).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum IllegalId {
    /// Length in bytes outside `1..=max`.
    Length {
        /// The value's name, such as `ActorId`.
        what: &'static str,
        /// Bytes found.
        found: usize,
        /// Bytes allowed at most.
        max: usize,
    },
    /// U+0000 inside the text.
    Nul {
        /// The value's name.
        what: &'static str,
    },
    /// Not well-formed UTF-8.
    NotUtf8 {
        /// The value's name.
        what: &'static str,
    },
    /// A character outside the allowed alphabet.
    Alphabet {
        /// The value's name.
        what: &'static str,
    },
}

impl fmt::Display for IllegalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { what, found, max } => write!(f, "{what}: expected 1..={max} bytes, found {found}"),
            Self::Nul { what } => write!(f, "{what}: U+0000 is not allowed"),
            Self::NotUtf8 { what } => write!(f, "{what}: not well-formed UTF-8"),
            Self::Alphabet { what } => write!(f, "{what}: expected only A-Z a-z 0-9 . _ -"),
        }
    }
}

impl std::error::Error for IllegalId {}

fn checked(what: &'static str, text: &str, max: usize, nul_allowed: bool) -> Result<(), IllegalId> {
    if text.is_empty() || text.len() > max {
        return Err(IllegalId::Length { what, found: text.len(), max });
    }
    if !nul_allowed && text.contains('\0') {
        return Err(IllegalId::Nul { what });
    }
    Ok(())
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, max $max:expr, nul $nul:expr $(, $extra:expr)?) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks and takes a text.
            ///
            /// # Errors
            /// [`IllegalId`] where length, U+0000 or alphabet break MODEL-8; nothing is kept then.
            pub fn new(text: impl AsRef<str>) -> Result<Self, IllegalId> {
                let text = text.as_ref();
                checked(stringify!($name), text, $max, $nul)?;
                $(let extra: fn(&str) -> bool = $extra;
                if !extra(text) {
                    return Err(IllegalId::Alphabet { what: stringify!($name) });
                })?
                Ok(Self(Arc::from(text)))
            }

            /// Checks and takes bytes that claim to be UTF-8.
            ///
            /// # Errors
            /// As [`Self::new`], and [`IllegalId::NotUtf8`].
            pub fn from_utf8(bytes: &[u8]) -> Result<Self, IllegalId> {
                match std::str::from_utf8(bytes) {
                    Ok(text) => Self::new(text),
                    Err(_) => Err(IllegalId::NotUtf8 { what: stringify!($name) }),
                }
            }

            /// The text, exactly as given.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<&str> for $name {
            type Error = IllegalId;
            fn try_from(text: &str) -> Result<Self, IllegalId> {
                Self::new(text)
            }
        }

        impl std::str::FromStr for $name {
            type Err = IllegalId;
            fn from_str(text: &str) -> Result<Self, IllegalId> {
                Self::new(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        write!(f, "a legal {}", stringify!($name))
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        $name::new(text).map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Visitor)
            }
        }
    };
}

text_id!(
    /// Global id of an Actor: UTF-8 without U+0000, 1..=255 bytes, chosen by the caller (MODEL-8).
    ActorId, max 255, nul false
);
text_id!(
    /// Global id of a Spot of any kind: UTF-8 without U+0000, 1..=255 bytes (MODEL-8).
    ///
    /// The reserved Entry form of MODEL-12 is a legal text; whether a caller may use it is asked with
    /// [`SpotId::is_reserved_entry_form`].
    SpotId, max 255, nul false
);
text_id!(
    /// Deployment-independent type name that selects a factory: UTF-8, 1..=255 bytes (MODEL-8, MODEL-16).
    StableType, max 255, nul true
);
text_id!(
    /// Name of a RouteMesh: UTF-8, 1..=255 bytes.
    MeshName, max 255, nul true
);
text_id!(
    /// Name of a Channel: UTF-8, 1..=255 bytes.
    ChannelName, max 255, nul true
);
text_id!(
    /// Wire name of a message type, the key of a handler (NODE-128): UTF-8, 1..=255 bytes.
    PacketName, max 255, nul true
);
text_id!(
    /// Identity a trust profile can prove, opaque, 1..=255 bytes of text (NODE-78).
    SecurityIdentity, max 255, nul true
);
text_id!(
    /// Diagnostic prefix of automatic RIDs and Entry Spot ids: 1..=64 of `A-Z a-z 0-9 . _ -` (MODEL-8).
    Prefix, max 64, nul false,
    |text| text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
);

impl SpotId {
    /// A fresh Entry Spot id `<prefix>-entry-<uuid>` (NODE-19) with a UUID of its own.
    #[must_use]
    pub fn entry(prefix: &Prefix, entropy: &mut Entropy) -> Self {
        Self(Arc::from(format!("{prefix}-entry-{}", entropy.uuid_text())))
    }

    /// Whether the text has the reserved form `<prefix>-entry-<uuid v4>` with a legal prefix (MODEL-12).
    #[must_use]
    pub fn is_reserved_entry_form(&self) -> bool {
        let text = self.as_str();
        // `-entry-` and a 36-character UUID end the text; at least one character of prefix comes first.
        let Some(at) = text.len().checked_sub(36 + "-entry-".len()) else { return false };
        let (Some(prefix), Some(rest)) = (text.get(..at), text.get(at..)) else { return false };
        let Some(uuid) = rest.strip_prefix("-entry-") else { return false };
        Prefix::new(prefix).is_ok() && is_canonical_uuid_v4(uuid)
    }
}

/// Whether `text` is an RFC 4122 version-4 UUID in lowercase canonical form (MODEL-10).
pub(crate) fn is_canonical_uuid_v4(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 36
        && bytes.iter().enumerate().all(|(at, b)| match at {
            8 | 13 | 18 | 23 => *b == b'-',
            14 => *b == b'4',
            19 => matches!(b, b'8' | b'9' | b'a' | b'b'),
            _ => matches!(b, b'0'..=b'9' | b'a'..=b'f'),
        })
}

/// Transport identity of a MeshNode lifecycle inside its RouteMesh: 1..=255 arbitrary bytes (NODE-10, NODE-12).
///
/// RIDs order as unsigned bytes, a proper prefix being smaller (NODE-72): exactly the derived order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rid(Arc<[u8]>);

impl Rid {
    /// Checks and takes bytes.
    ///
    /// # Errors
    /// [`IllegalId::Length`] outside 1..=255 bytes.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, IllegalId> {
        let bytes = bytes.as_ref();
        if bytes.is_empty() || bytes.len() > 255 {
            return Err(IllegalId::Length { what: "Rid", found: bytes.len(), max: 255 });
        }
        Ok(Self(Arc::from(bytes)))
    }

    /// A fresh automatic RID `<prefix>-<uuid>` (NODE-10).
    #[must_use]
    pub fn automatic(prefix: &Prefix, entropy: &mut Entropy) -> Self {
        Self(Arc::from(format!("{prefix}-{}", entropy.uuid_text()).into_bytes()))
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Rid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for Rid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl Serialize for Rid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Rid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Rid;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("1..=255 bytes")
            }
            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Rid, E> {
                Rid::new(bytes).map_err(E::custom)
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Rid, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = seq.next_element::<u8>()? {
                    if bytes.len() == 255 {
                        return Err(A::Error::custom("Rid: more than 255 bytes"));
                    }
                    bytes.push(byte);
                }
                Rid::new(bytes).map_err(A::Error::custom)
            }
        }
        deserializer.deserialize_bytes(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_t20_id_lengths_encoding_and_case() {
        for (len, legal) in [(0, false), (1, true), (255, true), (256, false)] {
            let text = "a".repeat(len);
            assert_eq!(ActorId::new(&text).is_ok(), legal, "ActorId of {len}");
            assert_eq!(SpotId::new(&text).is_ok(), legal, "SpotId of {len}");
            assert_eq!(StableType::new(&text).is_ok(), legal, "StableType of {len}");
            assert_eq!(MeshName::new(&text).is_ok(), legal, "MeshName of {len}");
            assert_eq!(Rid::new(&text).is_ok(), legal, "Rid of {len}");
        }
        // Bytes count, not characters.
        assert!(ActorId::new("é".repeat(127)).is_ok());
        assert!(ActorId::new("é".repeat(128)).is_err());
        assert_eq!(ActorId::from_utf8(&[0xff, 0x41]), Err(IllegalId::NotUtf8 { what: "ActorId" }));
        assert_eq!(StableType::from_utf8(&[0xc3]), Err(IllegalId::NotUtf8 { what: "StableType" }));
        assert_eq!(ActorId::new("a\0b"), Err(IllegalId::Nul { what: "ActorId" }));
        assert_ne!(ActorId::new("Ann").unwrap(), ActorId::new("ann").unwrap());
        // MODEL-9: other control characters are legal.
        assert!(ActorId::new("a\u{1}\n").is_ok());
    }

    #[test]
    fn model_t20_illegal_ids_do_not_deserialize() {
        let long = postcard::to_stdvec(&"x".repeat(256)).unwrap();
        assert!(postcard::from_bytes::<ActorId>(&long).is_err());
        let nul = postcard::to_stdvec("a\0").unwrap();
        assert!(postcard::from_bytes::<SpotId>(&nul).is_err());
        let invalid = postcard::to_stdvec(&[0xffu8, 0xfe][..]).unwrap();
        assert!(postcard::from_bytes::<ActorId>(&invalid).is_err());
        let empty = postcard::to_stdvec(&[0u8; 0][..]).unwrap();
        assert!(postcard::from_bytes::<Rid>(&empty).is_err());
        let ok = Rid::new([0xff, 0x00, 0x01]).unwrap();
        assert_eq!(postcard::from_bytes::<Rid>(&postcard::to_stdvec(&ok).unwrap()).unwrap(), ok);
    }

    #[test]
    fn model_t21_reserved_entry_form_and_its_near_misses() {
        let uuid = "0b6d3b9e-6c1f-4f0a-9d3e-2f6a7c8b9d01";
        let reserved = |text: &str| SpotId::new(text).unwrap().is_reserved_entry_form();
        assert!(reserved(&format!("mesh-entry-{uuid}")));
        assert!(reserved(&format!("{}-entry-{uuid}", "p".repeat(64))));
        assert!(reserved(&format!("a-entry-b-entry-{uuid}")));
        assert!(!reserved(&format!("mesh-entry-{}", uuid.to_uppercase())), "uppercase UUID");
        assert!(!reserved("mesh-entry-0b6d3b9e-6c1f-1f0a-9d3e-2f6a7c8b9d01"), "version 1");
        assert!(!reserved("mesh-entry-0b6d3b9e-6c1f-4f0a-cd3e-2f6a7c8b9d01"), "variant");
        assert!(!reserved(&format!("{}-entry-{uuid}", "p".repeat(65))), "prefix of 65");
        assert!(!reserved(&format!("-entry-{uuid}")), "no prefix");
        assert!(!reserved(&format!("m@sh-entry-{uuid}")), "alphabet");
        assert!(!reserved(&format!("é-entry-{uuid}")), "alphabet");
        let mut entropy = Entropy::new([7; 32]);
        assert!(SpotId::entry(&Prefix::new("game").unwrap(), &mut entropy).is_reserved_entry_form());
    }

    #[test]
    fn rids_order_as_unsigned_bytes_with_a_prefix_smaller() {
        let rid = |bytes: &[u8]| Rid::new(bytes).unwrap();
        assert!(rid(&[0x7f]) < rid(&[0x80]));
        assert!(rid(b"ab") < rid(b"abc"));
        assert!(rid(b"abc") < rid(b"b"));
    }
}
