//! Store-wide sequences of generations and versions (STORE-10).

use serde::{Deserialize, Serialize};
use spotmesh::model::{AuthorityOwnerGeneration, LeaseGeneration, ObjectGeneration, StoreVersion};
use spotmesh::store::StoreError;

/// The largest value of a sequence.
const LARGEST: u64 = (1 << 63) - 2;

/// The last value issued of each sequence.
///
/// It is `Copy`: an operation draws from a copy and stores it back when nothing can fail any more, so a
/// failure shows no generation (STORE-22).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Sequences {
    lease: u64,
    object: u64,
    owner: u64,
    version: u64,
}

fn step(last: &mut u64) -> Result<u64, StoreError> {
    if *last >= LARGEST {
        return Err(StoreError::GenerationExhausted);
    }
    *last += 1;
    Ok(*last)
}

impl Sequences {
    pub(crate) fn lease(&mut self) -> Result<LeaseGeneration, StoreError> {
        LeaseGeneration::new(step(&mut self.lease)?).ok_or(StoreError::GenerationExhausted)
    }

    pub(crate) fn object(&mut self) -> Result<ObjectGeneration, StoreError> {
        ObjectGeneration::new(step(&mut self.object)?).ok_or(StoreError::GenerationExhausted)
    }

    pub(crate) fn owner(&mut self) -> Result<AuthorityOwnerGeneration, StoreError> {
        AuthorityOwnerGeneration::new(step(&mut self.owner)?).ok_or(StoreError::GenerationExhausted)
    }

    pub(crate) fn version(&mut self) -> Result<StoreVersion, StoreError> {
        StoreVersion::new(step(&mut self.version)?).ok_or(StoreError::GenerationExhausted)
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
