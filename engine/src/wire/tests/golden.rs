//! The bytes of every message: a difference here is another wire version.

use std::fmt::Write as _;

use super::samples::every_variant;
use crate::model::{ErrorKind, ObjectGeneration};
use crate::wire::{CreateVerdict, Message, Refusal, encode};

#[test]
fn every_refusal_and_verdict_has_its_golden_byte() {
    use CreateVerdict as V;
    use Refusal as R;
    let refusals = [
        R::NotReady,
        R::ShuttingDown,
        R::Incompatible,
        R::WrongMesh,
        R::TrustProfile,
        R::OwnRid,
        R::Unexpected,
        R::NotRequired,
        R::Held,
        R::Duplicate,
    ];
    for (byte, refusal) in (0..).zip(refusals) {
        assert_eq!(&encode(&Message::Refused(refusal), None).header[..], &[1, 2, byte]);
    }
    let object_generation = ObjectGeneration::new(11).unwrap();
    let verdicts: [(V, &[u8]); 6] = [
        (V::Created { object_generation }, &[0, 11]),
        (V::Rejected { object_generation }, &[1, 11]),
        (V::Failed(ErrorKind::InternalFailure), &[2, 13]),
        (V::NotAdmitted, &[3]),
        (V::ReservationGone, &[4]),
        (V::Unavailable, &[5]),
    ];
    for (verdict, bytes) in verdicts {
        assert_eq!(postcard::to_stdvec(&verdict).unwrap(), bytes);
    }
}

#[test]
fn every_message_has_its_golden_bytes() {
    let mut table = String::new();
    for message in every_variant() {
        let header = encode(&message, None).header;
        let hex = header.iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").unwrap();
            hex
        });
        writeln!(table, "{}: {hex}", message.name()).unwrap();
    }
    insta::assert_snapshot!(table, @"
    Hello: 010005616c70686102ff0007010104636861746409616e6f6e796d6f7573046f70656e0201147463703a2f2f3132372e302e302e313a3730303101000103
    Welcome: 0101
    Refused: 010208
    Probe: 010301
    ProbeAck: 0104ffffffffffffffffff01
    NodeUpdate: 010507020104636861746404
    CreateOrder: 0106016107edfd030008706c617965722d310006706c617965720008706c617965722d31050b010c05616c706861016208a3020980897a1e00
    CreateAnswer: 0107016107edfd0305000b
    Actor: 010808706c617965722d3107a30209000180cab5ee0103736179020000
    Reply: 0109ac020001
    StaleRoute: 010a08706c617965722d3107
    ");
}
