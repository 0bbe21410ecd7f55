//! Pages and their tokens.

use std::hash::{Hash, Hasher};

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use spotmesh::model::limits::{PAGE_MAX, PAGE_TOKEN_MAX};
use spotmesh::store::{PageToken, StoreError};

/// Checks the entry limit of a page or batch.
pub(crate) fn check_limit(limit: u32) -> Result<usize, StoreError> {
    if limit == 0 || limit > PAGE_MAX {
        return Err(StoreError::InvalidArgument(format!("limit: expected 1..={PAGE_MAX}, found {limit}")));
    }
    Ok(limit as usize)
}

/// FNV-1a, 64 bits: tells listings apart in tokens; stable between runs and builds.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

/// Names a listing: its operation and filter. A token goes on with this listing only.
pub(crate) fn listing(operation: &str, filter: impl Hash) -> u64 {
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    operation.hash(&mut hasher);
    filter.hash(&mut hasher);
    hasher.finish()
}

/// A token that goes on behind `last`.
pub(crate) fn token(listing: u64, last: &impl Serialize) -> PageToken {
    // A key and a number always encode, in far less than 4,096 bytes.
    PageToken(Bytes::from(postcard::to_stdvec(&(listing, last)).unwrap_or_default()))
}

/// The key to go on behind.
pub(crate) fn resume<K: DeserializeOwned>(
    expected: u64,
    token: Option<&PageToken>,
) -> Result<Option<K>, StoreError> {
    let Some(PageToken(bytes)) = token else { return Ok(None) };
    if bytes.len() > PAGE_TOKEN_MAX {
        return Err(StoreError::ScanExpired);
    }
    match postcard::from_bytes::<(u64, K)>(bytes) {
        Ok((found, last)) if found == expected => Ok(Some(last)),
        _ => Err(StoreError::ScanExpired),
    }
}
