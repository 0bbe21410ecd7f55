//! Counters and tokens with their ranges and the comparisons that are legal (MODEL-20).

use std::fmt;
use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

/// The largest value the Store issues of a 63-bit generation (STORE-10).
pub const LARGEST_ISSUED: u64 = (1 << 63) - 2;

macro_rules! generation63 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "u64", into = "u64")]
        pub struct $name(NonZeroU64);

        impl $name {
            /// The value 1, where a sequence starts.
            pub const FIRST: Self = Self(NonZeroU64::MIN);

            /// Takes `1..=2^63-1`; `None` for anything else.
            #[must_use]
            pub const fn new(value: u64) -> Option<Self> {
                if value >> 63 != 0 {
                    return None;
                }
                match NonZeroU64::new(value) {
                    Some(value) => Some(Self(value)),
                    None => None,
                }
            }

            /// The number.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0.get()
            }

            /// The next value, or `None` where the counter is exhausted (MODEL-23): it never wraps.
            #[must_use]
            pub const fn next(self) -> Option<Self> {
                if self.get() >= LARGEST_ISSUED { None } else { Self::new(self.get() + 1) }
            }
        }

        impl From<$name> for u64 {
            fn from(value: $name) -> u64 {
                value.get()
            }
        }

        impl TryFrom<u64> for $name {
            type Error = String;
            fn try_from(value: u64) -> Result<Self, String> {
                Self::new(value).ok_or_else(|| format!("{}: expected 1..=2^63-1, found {value}", stringify!($name)))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

generation63!(
    /// One incarnation of a key: issued by the Store at every Reserve, kept by moves; compare for equality (MODEL-21, MODEL-22).
    ObjectGeneration
);
generation63!(
    /// Raised by every owner change of one incarnation; ordered inside that incarnation only (MODEL-21).
    AuthorityOwnerGeneration
);
generation63!(
    /// Issued when a host run claims its owner lease; compare for equality (MODEL-26).
    LeaseGeneration
);
generation63!(
    /// Revision of a published descriptor, starting at 1, ordered inside one lifecycle generation.
    DescriptorRevision
);
generation63!(
    /// Steps on every membership change and every aggregate move of a User Spot (STORE table §2).
    AggregateGeneration
);
generation63!(
    /// Version of one Store row: equality for CAS, larger is newer for one key (STORE table §2).
    StoreVersion
);

macro_rules! token64 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(NonZeroU64);

        impl $name {
            /// Wraps a non-zero value.
            #[must_use]
            pub const fn new(value: NonZeroU64) -> Self {
                Self(value)
            }

            /// Wraps a value, `None` where it is zero.
            #[must_use]
            pub const fn from_u64(value: u64) -> Option<Self> {
                match NonZeroU64::new(value) {
                    Some(value) => Some(Self(value)),
                    None => None,
                }
            }

            /// The number.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0.get()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:x}", self.0)
            }
        }
    };
}

token64!(
    /// Opaque random token of one MeshNode lifecycle; equality only, magnitude means nothing (MODEL-25, NODE-69).
    ///
    /// It is `Ord` so that it can be a key of an ordered map, never to tell newer from older.
    LifecycleGeneration
);
token64!(
    /// Identifies one pending reply slot of a source lifecycle (MODEL-17).
    Correlation
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_stay_in_63_bits_and_never_wrap() {
        assert!(ObjectGeneration::new(0).is_none());
        assert!(ObjectGeneration::new(1 << 63).is_none());
        assert_eq!(ObjectGeneration::new((1 << 63) - 1).unwrap().next(), None);
        assert_eq!(ObjectGeneration::new(LARGEST_ISSUED).unwrap().next(), None);
        assert_eq!(ObjectGeneration::FIRST.next().unwrap().get(), 2);
        let zero = postcard::to_stdvec(&0u64).unwrap();
        assert!(postcard::from_bytes::<ObjectGeneration>(&zero).is_err());
        assert!(postcard::from_bytes::<LifecycleGeneration>(&zero).is_err());
        let big = postcard::to_stdvec(&(1u64 << 63)).unwrap();
        assert!(postcard::from_bytes::<StoreVersion>(&big).is_err());
    }
}
