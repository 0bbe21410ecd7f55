//! The running hash of a run: equal for equal runs, in debug and release, on every platform.

use std::hash::{Hash, Hasher};

/// A 64-bit hash with a defined result: integers count as little-endian, `usize` and `isize` as 64 bits.
///
/// The multiply-rotate construction has no cryptographic strength; it tells runs apart, nothing more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    a: u64,
    b: u64,
}

const K: u64 = 0x9fb2_1c65_1e98_df25;

impl Default for Digest {
    fn default() -> Self {
        Self { a: 0x243f_6a88_85a3_08d3, b: 0x1319_8a2e_0370_7344 }
    }
}

impl Digest {
    fn word(&mut self, word: u64) {
        self.a = (self.a ^ word).wrapping_mul(K).rotate_left(29);
        self.b = self.b.wrapping_add(self.a).rotate_left(17) ^ word;
    }

    /// Both halves of the state: 128 bits that tell states apart.
    #[must_use]
    pub fn wide(&self) -> u128 {
        u128::from(self.finish()) << 64 | u128::from(self.a.wrapping_mul(K) ^ self.b)
    }

    /// Adds a value.
    pub fn add(&mut self, value: &impl Hash) {
        value.hash(self);
    }
}

impl Hasher for Digest {
    fn finish(&self) -> u64 {
        let mut z = self.a ^ self.b.rotate_left(32);
        z = (z ^ (z >> 32)).wrapping_mul(K);
        z ^ (z >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
        let rest = chunks.remainder();
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.word(u64::from_le_bytes(word) ^ ((rest.len() as u64) << 56));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.word(u64::from(value));
    }
    fn write_u16(&mut self, value: u16) {
        self.word(u64::from(value));
    }
    fn write_u32(&mut self, value: u32) {
        self.word(u64::from(value));
    }
    fn write_u64(&mut self, value: u64) {
        self.word(value);
    }
    fn write_u128(&mut self, value: u128) {
        self.word(value as u64);
        self.word((value >> 64) as u64);
    }
    fn write_usize(&mut self, value: usize) {
        self.word(value as u64);
    }
    fn write_i8(&mut self, value: i8) {
        self.word(value as u64);
    }
    fn write_i16(&mut self, value: i16) {
        self.word(value as u64);
    }
    fn write_i32(&mut self, value: i32) {
        self.word(value as u64);
    }
    fn write_i64(&mut self, value: i64) {
        self.word(value as u64);
    }
    fn write_i128(&mut self, value: i128) {
        self.write_u128(value as u128);
    }
    fn write_isize(&mut self, value: isize) {
        self.word(value as i64 as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_known_values_never_changes() {
        let mut digest = Digest::default();
        digest.add(&(1u8, "text", Some(7u64), [1u16, 2, 3], -1i32));
        // A changed figure here would make every recorded trace hash worthless.
        assert_eq!(format!("{:016x}", digest.finish()), "ce151afb42027cf4");
    }

    #[test]
    fn order_and_boundaries_count() {
        let of = |values: &[&str]| {
            let mut digest = Digest::default();
            values.iter().for_each(|value| digest.add(value));
            digest.finish()
        };
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_ne!(of(&["a", "b"]), of(&["b", "a"]));
        assert_ne!(of(&["a"]), of(&["a", ""]));
    }
}
