//! Round trips, and that no bytes whatsoever make the decoder panic or take more than it was given.

use super::*;
use proptest::prelude::*;

fn record(header: &[u8], body: Option<&[u8]>) -> Record {
    Record { header: Bytes::copy_from_slice(header), body: body.map(Bytes::copy_from_slice) }
}

fn one(frame: Bytes) -> Result<Message, Malformed> {
    decode(&[frame])
}

#[test]
fn control_messages_survive_their_encoding() {
    let rid = Rid::new([0xff, 0x00, 0x01]).unwrap();
    for lane in [Lane::Application, Lane::Completion] {
        let expected = Message::Hello { lane, token: [9; 16], rid: rid.clone() };
        assert_eq!(one(hello(lane, &[9; 16], &rid)), Ok(expected));
        assert_eq!(lane_of_route(&dialler_route(lane)), Some(lane));
    }
    assert_eq!(one(accept()), Ok(Message::Accept));
    assert_eq!(one(refuse("no")), Ok(Message::Refuse("no".to_owned())));
    assert!(one(refuse(&"é".repeat(400))).is_ok(), "a long reason is cut");
    assert_eq!(one(ack(u64::MAX)), Ok(Message::Ack(u64::MAX)));
    assert_eq!(one(bye()), Ok(Message::Bye));
}

#[test]
fn a_record_with_large_parts_keeps_its_frames() {
    let body = Bytes::from(vec![7; WHOLE_BODY_MIN]);
    let header = Bytes::from_static(b"h");
    let Ok(Message::Whole(found)) = decode(&[whole(), header.clone(), body.clone()]) else { panic!() };
    assert_eq!(found.body.as_ref().unwrap().as_ptr(), body.as_ptr(), "not copied");
    assert_eq!(found, Record { header: header.clone(), body: Some(body) });
    assert_eq!(decode(&[whole(), header.clone()]), Ok(Message::Whole(record(b"h", None))));
    assert!(decode(&[whole()]).is_err());
    assert!(decode(&[whole(), header.clone(), header.clone(), header]).is_err());
}

#[test]
fn lies_about_lengths_are_refused_whole() {
    let mut good = PACK_START.to_vec();
    pack(&record(b"header", Some(b"body")), &mut good);
    assert_eq!(decode_pack(good.clone().into()).unwrap(), [record(b"header", Some(b"body"))]);
    // A good record before a bad one is not given either.
    let mut second = good.clone();
    second.extend_from_slice(&u32::MAX.to_le_bytes());
    second.extend_from_slice(&u32::MAX.to_le_bytes());
    assert!(decode_pack(second.into()).is_err());
    for cut in 0..good.len() {
        assert!(decode_pack(good[..cut].to_vec().into()).is_err(), "cut at {cut}");
    }
    let mut version = good.clone();
    version[0] = 2;
    let text = decode_pack(version.into()).unwrap_err().to_string();
    assert!(text.contains("expected adapter version 1, found 2"), "{text}");
    let mut long = PACK_START.to_vec();
    while long.len() <= PACK_MAX + 8 {
        pack(&record(&[1; 1_000], None), &mut long);
    }
    assert!(decode_pack(long.into()).is_err());
    assert!(decode(&[good.clone().into(), good.into()]).is_err(), "a pack is one frame");
    assert!(decode(&[]).is_err());
}

#[test]
fn the_largest_small_records_fit_a_pack() {
    let largest = record(&[1; WHOLE_BODY_MIN - 1], Some(&[2; WHOLE_BODY_MIN - 1]));
    assert!(is_small(&largest));
    let mut alone = PACK_START.to_vec();
    pack(&largest, &mut alone);
    assert_eq!(decode_pack(alone.into()).unwrap(), [largest]);
    assert!(!is_small(&record(&[1; WHOLE_BODY_MIN], None)));
    assert!(!is_small(&record(b"", Some(&[1; WHOLE_BODY_MIN]))));
}

proptest! {
    #[test]
    fn packs_survive_their_encoding(
        parts in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..64), prop::option::of(prop::collection::vec(any::<u8>(), 0..64))),
            1..40,
        )
    ) {
        let records: Vec<Record> = parts.iter().map(|(h, b)| record(h, b.as_deref())).collect();
        let mut bytes = PACK_START.to_vec();
        let mut sum = bytes.len();
        for record in &records {
            pack(record, &mut bytes);
            sum += packed_len(record);
        }
        prop_assert_eq!(sum, bytes.len());
        prop_assert_eq!(decode_pack(bytes.into()).unwrap(), records);
    }

    #[test]
    fn any_frames_are_answered_without_panic(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..5),
        kind in 0u8..9,
    ) {
        let raw: Vec<Bytes> = frames.iter().map(|f| Bytes::from(f.clone())).collect();
        let _ = decode(&raw);
        // The same with a start that passes the first checks, so that the rest is reached.
        let mut near: Vec<Bytes> = raw.clone();
        if let Some(first) = near.first_mut() {
            let mut bytes = vec![VERSION, kind];
            if kind <= 3 {
                bytes.extend_from_slice(MAGIC);
            }
            bytes.extend_from_slice(first);
            *first = bytes.into();
        }
        if let Ok(Message::Pack(pack)) = decode(&near) {
            let mut total = 0;
            unpack(&pack, |record| total += record.len());
            prop_assert!(total <= pack.len());
        }
    }

    #[test]
    fn changed_bytes_of_a_pack_never_yield_more_than_was_received(
        sizes in prop::collection::vec(0usize..50, 1..20),
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let mut bytes = PACK_START.to_vec();
        for size in sizes {
            pack(&record(&vec![1; size], Some(&vec![2; size])), &mut bytes);
        }
        let at = at.index(bytes.len());
        bytes[at] = value;
        let len = bytes.len();
        if let Ok(records) = decode_pack(bytes.into()) {
            prop_assert!(records.iter().map(packed_len).sum::<usize>() + PACK_START.len() == len);
        }
    }
}
