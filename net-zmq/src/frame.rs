//! Messages of the adapter: how a link is opened and closed, and how records are packed.
//!
//! Each starts with a version byte and a kind byte. Small records of one lane share a message of up to
//! [`PACK_MAX`] bytes; a record with a large part travels alone, its parts as frames of their own that are
//! never copied. Decoding checks every length against what was received before anything is taken.

use bytes::{BufMut, Bytes};
use spotmesh::link::{Lane, Record};
use spotmesh::model::Rid;
use spotmesh::model::limits::PAYLOAD_MAX;

/// Version of these messages; the other side must have the same.
pub(crate) const VERSION: u8 = 1;
/// Bytes of a message of packed records at most.
pub const PACK_MAX: usize = 64 << 10;
/// A header or body of this many bytes or more is not packed but travels as a frame of its own.
pub const WHOLE_BODY_MIN: usize = 32 << 10;
/// Largest frame that is sent or accepted: an application payload and room for a header.
pub const FRAME_MAX: usize = PAYLOAD_MAX + (1 << 20);

const MAGIC: &[u8; 8] = b"SPOTMESH";
/// Longest refusal text, in bytes.
const REASON_MAX: usize = 200;

const HELLO: u8 = 1;
const ACCEPT: u8 = 2;
const REFUSE: u8 = 3;
const PACK: u8 = 4;
const WHOLE: u8 = 5;
const ACK: u8 = 6;
const BYE: u8 = 7;

/// Identifies one link while its two connections are being made: random, known to its two sides only.
pub(crate) type Token = [u8; 16];

/// Input that is not a message of this adapter: what was expected and what was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed(pub(crate) String);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Malformed {}

fn malformed<T>(text: impl Into<String>) -> Result<T, Malformed> {
    Err(Malformed(text.into()))
}

/// A decoded message; what it holds are slices of the received frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    /// The dialler opens one lane of a link.
    Hello { lane: Lane, token: Token, rid: Rid },
    /// The listener has opened it too.
    Accept,
    /// The listener will not open it, or has given the link up.
    Refuse(String),
    /// Records packed together; checked, and unpacked with [`unpack`].
    Pack(Bytes),
    /// One record with large parts.
    Whole(Record),
    /// Bytes of records taken from this lane since it was opened.
    Ack(u64),
    /// Nothing follows on this lane: the link was closed in order.
    Bye,
}

fn lane_byte(lane: Lane) -> u8 {
    match lane {
        Lane::Application => b'A',
        Lane::Completion => b'C',
    }
}

/// Routing id of a lane's connection on the dialler's own socket.
pub(crate) fn dialler_route(lane: Lane) -> Bytes {
    match lane {
        Lane::Application => Bytes::from_static(b"A"),
        Lane::Completion => Bytes::from_static(b"C"),
    }
}

/// The lane of a routing id made by [`dialler_route`].
pub(crate) fn lane_of_route(route: &[u8]) -> Option<Lane> {
    match route {
        b"A" => Some(Lane::Application),
        b"C" => Some(Lane::Completion),
        _ => None,
    }
}

/// Routing id under which the listener sees a lane's connection.
pub(crate) fn listener_route(lane: Lane, secret: &Token) -> Vec<u8> {
    let mut route = vec![lane_byte(lane)];
    route.extend_from_slice(secret);
    route
}

pub(crate) fn hello(lane: Lane, token: &Token, rid: &Rid) -> Bytes {
    let mut out = vec![VERSION, HELLO];
    out.extend_from_slice(MAGIC);
    out.push(lane_byte(lane));
    out.extend_from_slice(token);
    out.extend_from_slice(rid.as_bytes());
    out.into()
}

pub(crate) fn accept() -> Bytes {
    let mut out = vec![VERSION, ACCEPT];
    out.extend_from_slice(MAGIC);
    out.into()
}

pub(crate) fn refuse(reason: &str) -> Bytes {
    let mut out = vec![VERSION, REFUSE];
    out.extend_from_slice(MAGIC);
    out.extend(reason.bytes().take(REASON_MAX));
    out.into()
}

pub(crate) fn ack(taken: u64) -> Bytes {
    let mut out = vec![VERSION, ACK];
    out.extend_from_slice(&taken.to_le_bytes());
    out.into()
}

pub(crate) fn bye() -> Bytes {
    Bytes::from_static(&[VERSION, BYE])
}

/// First frame of a record that travels alone.
pub(crate) fn whole() -> Bytes {
    Bytes::from_static(&[VERSION, WHOLE])
}

/// Bytes before the first record of a pack.
pub(crate) const PACK_START: [u8; 2] = [VERSION, PACK];
/// Bytes before each record of a pack: length of the header, and length of the body plus one or zero.
const RECORD_PREFIX: usize = 8;

/// Whether a record is packed with others.
pub(crate) fn is_small(record: &Record) -> bool {
    record.header.len() < WHOLE_BODY_MIN
        && record.body.as_ref().is_none_or(|body| body.len() < WHOLE_BODY_MIN)
}

/// Bytes a small record takes in a pack; less than [`PACK_MAX`] by more than [`PACK_START`].
pub(crate) fn packed_len(record: &Record) -> usize {
    RECORD_PREFIX + record.len()
}

const _: () =
    assert!(PACK_START.len() + RECORD_PREFIX + 2 * (WHOLE_BODY_MIN - 1) <= PACK_MAX + RECORD_PREFIX);

/// Appends a small record to a pack.
pub(crate) fn pack(record: &Record, into: &mut Vec<u8>) {
    // Both lengths are below WHOLE_BODY_MIN.
    into.put_u32_le(record.header.len() as u32);
    into.put_u32_le(record.body.as_ref().map_or(0, |body| body.len() as u32 + 1));
    into.extend_from_slice(&record.header);
    if let Some(body) = &record.body {
        into.extend_from_slice(body);
    }
}

/// One step through a pack: lengths of header and body, and where the next record starts.
fn step(pack: &[u8], at: usize) -> Result<(usize, Option<usize>, usize), Malformed> {
    let rest = pack.get(at..).unwrap_or_default();
    let Some((prefix, rest)) = rest.split_first_chunk::<RECORD_PREFIX>() else {
        return malformed(format!("pack: expected {RECORD_PREFIX} bytes of lengths, found {}", rest.len()));
    };
    let [h0, h1, h2, h3, b0, b1, b2, b3] = *prefix;
    let header = u32::from_le_bytes([h0, h1, h2, h3]) as usize;
    let body = (u32::from_le_bytes([b0, b1, b2, b3]) as usize).checked_sub(1);
    let needed = header.saturating_add(body.unwrap_or(0));
    if needed > rest.len() {
        return malformed(format!("pack: expected a record of {needed} bytes, found {}", rest.len()));
    }
    Ok((header, body, at + RECORD_PREFIX + needed))
}

fn check_pack(pack: &[u8]) -> Result<(), Malformed> {
    if pack.len() > PACK_MAX + RECORD_PREFIX {
        return malformed(format!("pack: expected at most {PACK_MAX} bytes, found {}", pack.len()));
    }
    let mut at = PACK_START.len();
    if at >= pack.len() {
        return malformed("pack: expected a record, found none");
    }
    while at < pack.len() {
        at = step(pack, at)?.2;
    }
    Ok(())
}

/// Gives each record of a pack that was checked by [`decode`], as slices of it.
pub(crate) fn unpack(pack: &Bytes, mut each: impl FnMut(Record)) {
    let mut at = PACK_START.len();
    while at < pack.len() {
        let Ok((header, body, next)) = step(pack, at) else { return };
        let start = at + RECORD_PREFIX;
        each(Record {
            header: pack.slice(start..start + header),
            body: body.map(|len| pack.slice(start + header..start + header + len)),
        });
        at = next;
    }
}

/// Reads a message of packed records, as the transport does with what it receives on a link.
///
/// # Errors
/// [`Malformed`] where a length, the version or the kind is wrong; no record is given then.
pub fn decode_pack(message: Bytes) -> Result<Vec<Record>, Malformed> {
    match decode(std::slice::from_ref(&message))? {
        Message::Pack(pack) => {
            let mut records = Vec::new();
            unpack(&pack, |record| records.push(record));
            Ok(records)
        }
        other => malformed(format!("expected a pack, found {other:?}")),
    }
}

/// Reads the frames of one message, without the routing id.
pub(crate) fn decode(frames: &[Bytes]) -> Result<Message, Malformed> {
    let Some((first, more)) = frames.split_first() else { return malformed("expected a frame, found none") };
    let Some(([version, kind], rest)) = first.split_first_chunk::<2>() else {
        return malformed(format!("expected version and kind, found {} bytes", first.len()));
    };
    if *version != VERSION {
        return malformed(format!("expected adapter version {VERSION}, found {version}"));
    }
    if *kind == WHOLE {
        return whole_of(rest, more);
    }
    if !more.is_empty() {
        return malformed(format!("kind {kind}: expected one frame, found {}", more.len() + 1));
    }
    match *kind {
        HELLO => hello_of(rest),
        ACCEPT => match rest.strip_prefix(MAGIC) {
            Some([]) => Ok(Message::Accept),
            _ => malformed("accept: expected the magic and nothing else"),
        },
        REFUSE => match rest.strip_prefix(MAGIC) {
            Some(text) if text.len() <= REASON_MAX => {
                Ok(Message::Refuse(String::from_utf8_lossy(text).into_owned()))
            }
            _ => malformed("refuse: expected the magic and a short text"),
        },
        PACK => check_pack(first).map(|()| Message::Pack(first.clone())),
        ACK => match rest.try_into() {
            Ok(taken) => Ok(Message::Ack(u64::from_le_bytes(taken))),
            Err(_) => malformed(format!("ack: expected 8 bytes, found {}", rest.len())),
        },
        BYE if rest.is_empty() => Ok(Message::Bye),
        BYE => malformed("bye: expected nothing else"),
        other => malformed(format!("expected a known kind, found {other}")),
    }
}

fn whole_of(rest: &[u8], more: &[Bytes]) -> Result<Message, Malformed> {
    let (header, body) = match more {
        [header] => (header, None),
        [header, body] => (header, Some(body.clone())),
        other => return malformed(format!("record: expected one or two frames, found {}", other.len())),
    };
    if !rest.is_empty() {
        return malformed(format!("record: expected its parts in own frames, found {} bytes", rest.len()));
    }
    Ok(Message::Whole(Record { header: header.clone(), body }))
}

fn hello_of(rest: &[u8]) -> Result<Message, Malformed> {
    let Some(rest) = rest.strip_prefix(MAGIC) else { return malformed("hello: expected the magic") };
    let Some(([lane], rest)) = rest.split_first_chunk::<1>() else {
        return malformed("hello: expected a lane, found the end");
    };
    let lane = match lane {
        b'A' => Lane::Application,
        b'C' => Lane::Completion,
        other => return malformed(format!("hello: expected a lane, found {other}")),
    };
    let Some((token, rid)) = rest.split_first_chunk::<16>() else {
        return malformed(format!("hello: expected a token of 16 bytes, found {}", rest.len()));
    };
    match Rid::new(rid) {
        Ok(rid) => Ok(Message::Hello { lane, token: *token, rid }),
        Err(error) => malformed(format!("hello: {error}")),
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
