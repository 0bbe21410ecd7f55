//! The one source of randomness of a host: a ChaCha stream seeded once, kept as plain data.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

/// Deterministic randomness as plain data: the seed and how many 64-bit words were drawn.
///
/// Every draw builds the generator anew at the stored position, so that the state stays comparable,
/// hashable and serializable; draws are rare (identities, jitter, placement), never per message.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Entropy {
    seed: [u8; 32],
    drawn: u64,
}

impl Entropy {
    /// A stream that depends on `seed` only.
    #[must_use]
    pub fn new(seed: [u8; 32]) -> Self {
        Self { seed, drawn: 0 }
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let mut rng = ChaCha8Rng::from_seed(self.seed);
        rng.set_word_pos(u128::from(self.drawn) * 2);
        self.drawn += 1;
        rng.next_u64()
    }

    /// 64 random bits, never zero.
    pub fn non_zero_u64(&mut self) -> std::num::NonZeroU64 {
        loop {
            if let Some(value) = std::num::NonZeroU64::new(self.next_u64()) {
                return value;
            }
        }
    }

    /// 128 random bits, never zero.
    pub fn non_zero_u128(&mut self) -> std::num::NonZeroU128 {
        loop {
            let value = (u128::from(self.next_u64()) << 64) | u128::from(self.next_u64());
            if let Some(value) = std::num::NonZeroU128::new(value) {
                return value;
            }
        }
    }

    /// A number in `0..bound`; 0 where `bound` is 0. The bias of the modulo is below `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next_u64() % bound }
    }

    /// A fresh RFC 4122 version-4 UUID in canonical lowercase text (MODEL-10).
    pub fn uuid_text(&mut self) -> String {
        let bytes = self.non_zero_u128().get().to_be_bytes();
        uuid::Builder::from_random_bytes(bytes).into_uuid().hyphenated().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::text::is_canonical_uuid_v4;

    #[test]
    fn equal_seeds_give_equal_streams_and_a_copy_goes_on_alike() {
        let mut a = Entropy::new([3; 32]);
        let mut b = Entropy::new([3; 32]);
        assert_eq!(a.next_u64(), b.next_u64());
        let mut c = a.clone();
        assert_eq!(a.next_u64(), c.next_u64());
        assert_ne!(a.next_u64(), Entropy::new([4; 32]).next_u64());
        assert!(is_canonical_uuid_v4(&a.uuid_text()));
    }
}
