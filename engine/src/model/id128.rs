//! 128-bit identities: distinct types, never zero, never substituted for one another (MODEL-17, MODEL-18).

use std::fmt;
use std::num::NonZeroU128;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::entropy::Entropy;

macro_rules! id128 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(NonZeroU128);

        impl $name {
            /// A fresh random id.
            pub fn random(entropy: &mut Entropy) -> Self {
                Self(entropy.non_zero_u128())
            }

            /// Wraps 128 bits, `None` where all are zero (MODEL-18).
            #[must_use]
            pub const fn new(value: u128) -> Option<Self> {
                match NonZeroU128::new(value) {
                    Some(value) => Some(Self(value)),
                    None => None,
                }
            }

            /// The 128 bits.
            #[must_use]
            pub const fn get(self) -> u128 {
                self.0.get()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                // The first 32 bits tell ids of one trace apart.
                write!(f, "{:08x}", self.0.get() >> 96)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }
    };
}

id128!(
    /// One operation of a source lifecycle (CREATE-10).
    OperationId
);
id128!(
    /// One relocation execution.
    RelocationId
);
id128!(
    /// One User Spot aggregate move.
    AggregateId
);
id128!(
    /// One placement reservation.
    ReservationId
);
id128!(
    /// One host process run; never reused (MODEL-27).
    OwnerId
);
id128!(
    /// Immutable creation content in the Store.
    ContentId
);
id128!(
    /// One activation record of an Instance Spot.
    ActivationId
);

/// A SHA-256 digest, 32 bytes; guards creation content, terminal records and inventories.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Sha256Digest(pub [u8; 32]);

impl Sha256Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in &self.0[..4] {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}
