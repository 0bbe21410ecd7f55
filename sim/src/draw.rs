//! Where chance comes from: one ChaCha stream for plans, and a keyed noise function for everything fine-grained.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The stream a plan is drawn from.
#[derive(Debug, Clone)]
pub struct Draw(ChaCha8Rng);

impl Draw {
    /// The stream of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::from_seed(seed_bytes(seed, 0)))
    }

    /// A number in `0..bound`, 0 where `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.0.next_u64() % bound }
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True so many times in a hundred.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// One of the given values.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        let at = self.below(from.len() as u64) as usize;
        from[at].clone()
    }

    /// An index, in proportion to the weights; 0 where all of them are 0.
    pub fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut at = self.below(weights.iter().sum());
        for (index, weight) in weights.iter().enumerate() {
            if at < *weight {
                return index;
            }
            at -= weight;
        }
        0
    }
}

/// 32 bytes for a ChaCha seed, different for every (seed, stream).
#[must_use]
pub fn seed_bytes(seed: u64, stream: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (at, chunk) in bytes.chunks_exact_mut(8).enumerate() {
        chunk.copy_from_slice(&noise(seed, stream, at as u64).to_le_bytes());
    }
    bytes
}

/// 64 bits that depend on nothing but their key.
///
/// Latencies and durations are drawn with this instead of from a stream, so that deleting one action from a
/// recorded list leaves the noise of everything else as it was. That is what makes shrinking converge.
#[must_use]
pub fn noise(seed: u64, stream: u64, count: u64) -> u64 {
    let mut z = seed ^ mix(stream.wrapping_add(0x51f1_5eed)).wrapping_add(mix(count ^ 0x00c0_ffee));
    z = mix(z.wrapping_add(0x9e37_79b9_7f4a_7c15));
    mix(z ^ stream.rotate_left(32) ^ count)
}

/// A bijective finalizer with full avalanche (two multiply-xorshift rounds).
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    z = (z ^ (z >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    z ^ (z >> 32)
}

/// A keyed number in `low..=high`.
#[must_use]
pub fn noise_between(seed: u64, stream: u64, count: u64, low: u64, high: u64) -> u64 {
    let span = high.saturating_sub(low).saturating_add(1);
    low + noise(seed, stream, count) % span
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_draw_alike_and_others_do_not() {
        let (mut a, mut b, mut c) = (Draw::new(7), Draw::new(7), Draw::new(8));
        let drawn: Vec<u64> = (0..20).map(|_| a.below(1_000_000)).collect();
        assert_eq!(drawn, (0..20).map(|_| b.below(1_000_000)).collect::<Vec<_>>());
        assert_ne!(drawn, (0..20).map(|_| c.below(1_000_000)).collect::<Vec<_>>());
        assert_ne!(seed_bytes(1, 0), seed_bytes(1, 1));
        assert_ne!(seed_bytes(1, 0), seed_bytes(2, 0));
    }

    #[test]
    fn noise_is_spread_over_its_range_for_every_part_of_the_key() {
        for fixed in 0..3 {
            let mut buckets = [0u32; 10];
            for n in 0..10_000u64 {
                let (seed, stream, count) = match fixed {
                    0 => (n, 1, 1),
                    1 => (1, n, 1),
                    _ => (1, 1, n),
                };
                buckets[noise_between(seed, stream, count, 0, 9) as usize] += 1;
            }
            assert!(buckets.iter().all(|n| (850..1_150).contains(n)), "key part {fixed}: {buckets:?}");
        }
    }

    #[test]
    fn weighted_draws_follow_their_weights() {
        let mut draw = Draw::new(1);
        let mut hits = [0u32; 3];
        for _ in 0..10_000 {
            hits[draw.weighted(&[1, 0, 3])] += 1;
        }
        assert_eq!(hits[1], 0);
        assert!((2_200..2_800).contains(&hits[0]), "{hits:?}");
    }
}
