/// A message of the PostgreSQL protocol, with its head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// The whole message as on the wire.
    pub(super) bytes: Vec<u8>,
    typed: bool,
}

impl Frame {
    /// The type byte, or 0 for a connection's first messages, which have none.
    pub(super) fn tag(&self) -> u8 {
        if self.typed { self.bytes[0] } else { 0 }
    }

    /// What follows type and length.
    pub(super) fn body(&self) -> &[u8] {
        &self.bytes[if self.typed { 5 } else { 4 }..]
    }
}

/// Cuts a stream of bytes into messages.
#[derive(Debug)]
pub(super) struct Frames {
    pending: Vec<u8>,
    typed: bool,
}

impl Frames {
    /// A client's stream until it has logged in.
    pub(super) fn untyped() -> Frames {
        Frames { pending: Vec::new(), typed: false }
    }

    /// A client's stream after that, or a server's.
    pub(super) fn typed() -> Frames {
        Frames { pending: Vec::new(), typed: true }
    }

    /// Where bytes are read to.
    pub(super) fn pending(&mut self) -> &mut Vec<u8> {
        &mut self.pending
    }

    /// The next whole message, if it is there. A length below the protocol's least counts as the least: what follows
    /// is nonsense then, for its receiver to refuse.
    pub(super) fn next(&mut self) -> Option<Frame> {
        let head = usize::from(self.typed);
        let length = self.pending.get(head..head + 4)?;
        let length = u32::from_be_bytes(length.try_into().ok()?).max(4) as usize;
        if self.pending.len() < head + length {
            return None;
        }
        let bytes = self.pending.drain(..head + length).collect();
        Some(Frame { bytes, typed: self.typed })
    }
}

/// A message for tests.
#[cfg(test)]
pub(super) fn frame(tag: u8, body: &[u8]) -> Frame {
    let mut frames = Frames::typed();
    frames.pending.push(tag);
    frames.pending.extend((body.len() as u32 + 4).to_be_bytes());
    frames.pending.extend(body);
    frames.next().expect("a whole message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_whole_however_the_bytes_arrive() {
        let (query, sync) = (frame(b'Q', b"SELECT 1\0"), frame(b'S', b""));
        let stream = [&query.bytes[..], &sync.bytes].concat();
        for size in 1..=stream.len() {
            let mut frames = Frames::typed();
            let mut out = Vec::new();
            for bytes in stream.chunks(size) {
                frames.pending().extend(bytes);
                out.extend(std::iter::from_fn(|| frames.next()));
            }
            assert_eq!(out, [query.clone(), sync.clone()], "in pieces of {size}");
            assert!(frames.pending().is_empty());
        }
    }

    #[test]
    fn a_first_message_has_no_type() {
        let mut frames = Frames::untyped();
        frames.pending().extend([0, 0, 0, 8, 4, 210, 22, 47]);
        let frame = frames.next().unwrap();
        assert_eq!((frame.tag(), frame.body()), (0, &[4, 210, 22, 47][..]));
    }
}
