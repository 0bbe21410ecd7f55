//! Any bytes as a record: the decoder neither panics nor takes anything it would not encode again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spotmesh::link::Record;
use spotmesh::wire::{decode, encode};

// The first bit says whether the record has a body, the next seven how many bytes of it.
fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let has_body = first & 1 == 1;
    let cut = if has_body { rest.len().saturating_sub(usize::from(first >> 1)) } else { rest.len() };
    let body = has_body.then(|| rest[cut..].to_vec().into());
    let record = Record { header: rest[..cut].to_vec().into(), body };
    if let Ok((message, body)) = decode(&record) {
        assert_eq!(body, record.body);
        assert_eq!(decode(&encode(&message, body.clone())), Ok((message, body)));
    }
});
