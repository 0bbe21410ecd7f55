//! Headers of somebody who means harm.

use bytes::Bytes;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::samples::every_variant;
use crate::link::Record;
use crate::wire::{WIRE_VERSION, WireError, decode, encode};

/// What decodes is the whole header: it cannot be cut and nothing may follow it.
fn check(record: &Record, decoded: &mut usize) {
    let Ok((message, body)) = decode(record) else { return };
    *decoded += 1;
    assert_eq!(body, record.body);
    let mut longer = record.clone();
    longer.header = [&record.header[..], &[0]].concat().into();
    assert_eq!(decode(&longer), Err(WireError::Trailing { found: 1 }), "{message:?}");
    let again = encode(&message, body);
    assert_eq!(decode(&again).map(|(message, _)| message), Ok(message));
}

#[test]
fn a_hundred_thousand_random_or_damaged_records_never_panic() {
    let mut rng = ChaCha8Rng::from_seed([42; 32]);
    let good: Vec<_> = every_variant().iter().map(|message| encode(message, None).header).collect();
    let mut decoded = 0;
    for round in 0..100_000u32 {
        let mut header = if round % 3 == 0 {
            let mut bytes = vec![0; (rng.next_u32() % 300) as usize];
            rng.fill_bytes(&mut bytes);
            bytes
        } else {
            good[rng.next_u32() as usize % good.len()].to_vec()
        };
        if let Some(first) = header.first_mut()
            && round % 16 != 0
        {
            *first = WIRE_VERSION;
        }
        let damages = if round % 3 == 0 { 0 } else { 1 + rng.next_u32() % 4 };
        for _ in 0..damages {
            let at = rng.next_u32() as usize % (header.len() + 1);
            match rng.next_u32() % 5 {
                0 if at < header.len() => header[at] ^= 1 << (rng.next_u32() % 8),
                1 if at < header.len() => header[at] = rng.next_u32() as u8,
                2 => header.insert(at, rng.next_u32() as u8),
                3 if at < header.len() => {
                    header.remove(at);
                }
                _ => header.truncate(at),
            }
        }
        let body = (rng.next_u32() % 4 == 0).then(|| Bytes::from_static(b"body"));
        check(&Record { header: header.into(), body }, &mut decoded);
    }
    assert!(decoded > 1_000, "only {decoded} records decoded: the damage says nothing");
}

/// A varint that claims `value`.
fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

#[test]
fn a_claimed_length_is_refused_at_once() {
    // At every place of every message: a length, a count or a number far beyond what follows. Where the place
    // holds a length, a decoder that believed it would ask for terabytes and abort the test.
    let mut refused = 0;
    for message in every_variant() {
        let header = encode(&message, None).header;
        for at in 1..header.len() {
            for claim in [1 << 20, u64::from(u32::MAX), 1 << 40, u64::MAX >> 1, u64::MAX] {
                for keep_rest in [false, true] {
                    let mut bytes = [&header[..at], &varint(claim)].concat();
                    if keep_rest {
                        bytes.extend_from_slice(&header[at + 1..]);
                    }
                    refused += usize::from(decode(&Record { header: bytes.into(), body: None }).is_err());
                }
            }
        }
    }
    assert!(refused > 1_000, "{refused}");
}
