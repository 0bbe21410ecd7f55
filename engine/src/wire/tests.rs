//! What the decoder takes and refuses (design §2.2).

mod golden;
mod hostile;
mod samples;

use bytes::Bytes;
use proptest::prelude::*;

use super::{CallKind, Message, Metadata, WIRE_VERSION, WireError, decode, encode};
use crate::link::Record;
use crate::model::ErrorKind;
use crate::model::limits::{METADATA_MAX, PAYLOAD_MAX};
use samples::{any_message, every_variant, may_have_body};

fn record(header: impl Into<Bytes>) -> Record {
    Record { header: header.into(), body: None }
}

proptest! {
    #[test]
    fn what_is_encoded_decodes_to_the_same(message in any_message(), body in prop::collection::vec(any::<u8>(), 0..64)) {
        let bare = encode(&message, None);
        prop_assert_eq!(bare.header[0], WIRE_VERSION);
        prop_assert_eq!(decode(&bare), Ok((message.clone(), None)));
        let body = Bytes::from(body);
        let carrying = encode(&message, Some(body.clone()));
        prop_assert_eq!(&carrying.header, &bare.header, "the body is no part of the header");
        if may_have_body(&message) {
            let (found, passed_on) = decode(&carrying).unwrap();
            prop_assert_eq!(found, message);
            let passed_on = passed_on.unwrap();
            prop_assert_eq!(passed_on.as_ptr(), body.as_ptr(), "the body is not copied");
            prop_assert_eq!(passed_on, body);
        } else {
            prop_assert_eq!(decode(&carrying), Err(WireError::UnexpectedBody));
        }
    }

    #[test]
    fn whatever_decodes_encodes_to_what_decodes_the_same(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut header = vec![WIRE_VERSION];
        header.extend(bytes);
        if let Ok((message, None)) = decode(&record(header)) {
            prop_assert_eq!(decode(&encode(&message, None)), Ok((message, None)));
        }
    }
}

#[test]
fn another_version_is_refused_before_anything_else_is_read() {
    for message in every_variant() {
        let good = encode(&message, None);
        for version in (0..=u8::MAX).filter(|version| *version != WIRE_VERSION) {
            let mut header = good.header.to_vec();
            header[0] = version;
            assert_eq!(decode(&record(header)), Err(WireError::Version { found: Some(version) }));
            assert_eq!(decode(&record(vec![version])), Err(WireError::Version { found: Some(version) }));
        }
    }
    assert_eq!(decode(&record(Bytes::new())), Err(WireError::Version { found: None }));
}

#[test]
fn an_unknown_variant_is_refused() {
    let variants = every_variant().len() as u8;
    for variant in variants..=127 {
        let found = decode(&record(vec![WIRE_VERSION, variant]));
        assert!(matches!(found, Err(WireError::Malformed(_))), "variant {variant}: {found:?}");
    }
    // Two bytes and more of variant number.
    for variant in [&[0x80, 0x01][..], &[0xff, 0xff, 0xff, 0xff, 0x0f], &[0xff; 12]] {
        let found = decode(&record([&[WIRE_VERSION], variant].concat()));
        assert!(matches!(found, Err(WireError::Malformed(_))), "variant {variant:?}: {found:?}");
    }
}

#[test]
fn a_header_cut_at_any_byte_is_refused() {
    for message in every_variant() {
        let whole = encode(&message, None).header;
        for cut in 1..whole.len() {
            let found = decode(&record(whole.slice(..cut)));
            assert!(matches!(found, Err(WireError::Malformed(_))), "{} at {cut}: {found:?}", message.name());
        }
    }
}

#[test]
fn bytes_behind_the_message_are_refused() {
    for message in every_variant() {
        for more in [1, 2, 500] {
            let mut header = encode(&message, None).header.to_vec();
            header.extend(std::iter::repeat_n(0, more));
            assert_eq!(
                decode(&record(header)),
                Err(WireError::Trailing { found: more }),
                "{}",
                message.name()
            );
        }
    }
}

#[test]
fn a_header_over_its_bound_is_refused_and_one_at_it_is_not() {
    let max = 512 << 10;
    let mut header = encode(&Message::Welcome, None).header.to_vec();
    let short = header.len();
    header.resize(max, 0);
    assert_eq!(decode(&record(header.clone())), Err(WireError::Trailing { found: max - short }));
    header.push(0);
    assert_eq!(decode(&record(header)), Err(WireError::TooLarge { found: max + 1, max }));
}

#[test]
fn a_body_over_its_bound_is_refused_and_one_at_it_is_not() {
    let mut carried = 0;
    let body = Bytes::from(vec![0; PAYLOAD_MAX + 1]);
    for message in every_variant() {
        let fitting = encode(&message, Some(body.slice(..PAYLOAD_MAX)));
        let over = encode(&message, Some(body.clone()));
        let too_large = Err(WireError::TooLarge { found: PAYLOAD_MAX + 1, max: PAYLOAD_MAX });
        assert_eq!(decode(&over), too_large, "{}", message.name());
        if may_have_body(&message) {
            carried += 1;
            assert_eq!(decode(&fitting), Ok((message, Some(body.slice(..PAYLOAD_MAX)))));
        } else {
            assert_eq!(decode(&fitting), Err(WireError::UnexpectedBody), "{}", message.name());
            let empty = encode(&message, Some(Bytes::new()));
            assert_eq!(decode(&empty), Err(WireError::UnexpectedBody), "even an empty one");
        }
    }
    assert_eq!(carried, 3, "Actor, Reply and CreateAnswer");
}

#[test]
fn metadata_ends_at_1024_encoded_bytes_and_takes_no_nul() {
    // 2 bytes of count, 4 of lengths, 1 of key.
    let longest = "v".repeat(METADATA_MAX - 7);
    let mut metadata = Metadata::none();
    metadata.insert("k", &longest).unwrap();
    assert_eq!(metadata.value("k"), Some(&*longest));
    let full = metadata.clone();
    for (key, value) in [("k", format!("{longest}v")), ("l", String::new()), ("kk", longest.clone())] {
        assert_eq!(metadata.insert(key, &value).unwrap_err().kind(), ErrorKind::InvalidOperation);
        assert_eq!(metadata, full, "nothing changed");
    }
    metadata.insert("k", "last wins").unwrap();
    assert_eq!(metadata.iter().collect::<Vec<_>>(), [("k", "last wins")]);
    metadata.insert("l", "room again").unwrap();
    for (key, value) in [("nul\0", "v"), ("k", "nul\0")] {
        assert_eq!(metadata.insert(key, value).unwrap_err().kind(), ErrorKind::InvalidOperation);
    }
    metadata.insert("", "").unwrap();

    // The same bounds hold for what a peer sent.
    let too_long = format!("{longest}v");
    let refused = [
        [("k", &*too_long)].to_vec(),
        [("nul\0", "v")].to_vec(),
        [("k", "nul\0")].to_vec(),
        [("k", &*longest), ("l", "")].to_vec(),
    ];
    for entries in refused {
        let header = samples::actor_header_with_metadata(&entries);
        assert!(matches!(decode(&record(header)), Err(WireError::Malformed(_))), "{entries:?}");
    }
    let header = samples::actor_header_with_metadata(&[("k", &longest)]);
    let (Message::Actor(found), None) = decode(&record(header)).unwrap() else { panic!("an Actor message") };
    assert_eq!(found.metadata, full);
    let header = samples::actor_header_with_metadata(&[("k", "first"), ("k", "last")]);
    let (Message::Actor(found), None) = decode(&record(header)).unwrap() else { panic!("an Actor message") };
    assert_eq!(found.metadata.value("k"), Some("last"));
    assert_eq!(found.kind, CallKind::Send);
}

#[test]
fn an_unknown_error_kind_of_a_peer_is_a_protocol_error() {
    let sample = samples::reply(Some(ErrorKind::NotFound));
    let header = encode(&Message::Reply(sample), None).header;
    let place = header.len() - 2;
    assert_eq!(header[place], ErrorKind::NotFound.code());
    for code in 15..=u8::MAX {
        let mut header = header.to_vec();
        header[place] = code;
        let (Message::Reply(reply), None) = decode(&record(header)).unwrap() else { panic!("a Reply") };
        assert_eq!(reply.error, Some(ErrorKind::ProtocolError));
    }
}
