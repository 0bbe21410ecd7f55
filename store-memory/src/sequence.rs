//! Store-wide sequences of generations and versions (STORE-10).

use std::hash::{Hash, Hasher};
use std::ops::Range;

use serde::{Deserialize, Serialize};
use spotmesh::model::{AuthorityOwnerGeneration, LeaseGeneration, ObjectGeneration, StoreVersion};
use spotmesh::store::StoreError;

/// The largest value of a sequence.
const LARGEST: u64 = (1 << 63) - 2;

/// The last value issued of each sequence.
///
/// It is `Copy`: an operation draws from a copy and stores it back when nothing can fail any more, so a
/// failure shows no generation (STORE-22).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sequences {
    lease: u64,
    object: u64,
    owner: u64,
    version: u64,
    /// The last value that may be issued: of a slice, the end of the block drawn for it.
    #[serde(skip, default = "largest")]
    end: u64,
}

const fn largest() -> u64 {
    LARGEST
}

impl Default for Sequences {
    fn default() -> Self {
        Self { lease: 0, object: 0, owner: 0, version: 0, end: LARGEST }
    }
}

impl Hash for Sequences {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.lease, self.object, self.owner, self.version).hash(hasher);
    }
}

fn step(last: &mut u64, end: u64) -> Result<u64, StoreError> {
    if *last >= end {
        return Err(StoreError::GenerationExhausted);
    }
    *last += 1;
    Ok(*last)
}

impl Sequences {
    pub(crate) fn lease(&mut self) -> Result<LeaseGeneration, StoreError> {
        LeaseGeneration::new(step(&mut self.lease, self.end)?).ok_or(StoreError::GenerationExhausted)
    }

    pub(crate) fn object(&mut self) -> Result<ObjectGeneration, StoreError> {
        ObjectGeneration::new(step(&mut self.object, self.end)?).ok_or(StoreError::GenerationExhausted)
    }

    pub(crate) fn owner(&mut self) -> Result<AuthorityOwnerGeneration, StoreError> {
        AuthorityOwnerGeneration::new(step(&mut self.owner, self.end)?).ok_or(StoreError::GenerationExhausted)
    }

    pub(crate) fn version(&mut self) -> Result<StoreVersion, StoreError> {
        StoreVersion::new(step(&mut self.version, self.end)?).ok_or(StoreError::GenerationExhausted)
    }

    /// Goes on with a block of values, of every sequence the same.
    pub(crate) fn draw(&mut self, block: &Range<u64>) {
        let last = block.start.saturating_sub(1);
        let end = block.end.saturating_sub(1).min(LARGEST);
        *self = Self { lease: last, object: last, owner: last, version: last, end };
    }

    pub(crate) fn leave(&mut self, remaining: u64) {
        let last = LARGEST.saturating_sub(remaining);
        for sequence in [&mut self.lease, &mut self.object, &mut self.owner, &mut self.version] {
            *sequence = last.max(*sequence);
        }
    }

    /// Whether every value was issued, for [`crate::State::check`].
    pub(crate) fn issued(
        &self,
        version: StoreVersion,
        object: ObjectGeneration,
        owner: AuthorityOwnerGeneration,
    ) -> bool {
        version.get() <= self.version && object.get() <= self.object && owner.get() <= self.owner
    }
}
