//! One direction of one lane: what waits to be sent, packed and bounded in bytes.

use std::collections::VecDeque;

use bytes::Bytes;
use spotmesh::link::Record;
use spotmesh_zmq_ffi::{Error, Socket};

use crate::config::ACK_EVERY;
use crate::frame;

/// Messages given to libzmq before the other side has taken them, at most. Fewer than the high water mark: a
/// connection whose receiving queue is full is not read, so that its pings stay unanswered and end it.
pub(crate) const FLIGHT_MESSAGES: usize = 512;

/// A message ready to leave.
enum Outgoing {
    Pack(Bytes),
    Whole(Record),
}

impl Outgoing {
    /// Bytes as both sides count them.
    fn len(&self) -> usize {
        match self {
            Self::Pack(pack) => pack.len(),
            Self::Whole(record) => record.len(),
        }
    }
}

/// How a pump ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pumped {
    /// Everything was given to libzmq.
    Empty,
    /// The other side must first take what it was sent; its acknowledgement goes on with it.
    Window,
    /// The connection's queue in libzmq is full.
    Full,
}

/// The sending half of a lane.
#[derive(Default)]
pub(crate) struct OutLane {
    /// Routing id of the lane's connection, once known.
    pub(crate) route: Bytes,
    /// The message that opens the lane.
    open_due: Option<Bytes>,
    /// Bytes taken from the other direction, to be told.
    ack_due: Option<u64>,
    bye_due: bool,
    /// Records being packed.
    pack: Vec<u8>,
    queue: VecDeque<Outgoing>,
    /// Bytes in `pack` and `queue`.
    queued: usize,
    /// Bytes given to libzmq since the lane was opened, and how many of them the other side has taken.
    sent: u64,
    acked: u64,
    /// What `sent` was after each message that the other side has not taken whole.
    flight: VecDeque<u64>,
}

impl OutLane {
    pub(crate) fn open_with(&mut self, message: Bytes) {
        self.open_due = Some(message);
    }

    pub(crate) fn acknowledge(&mut self, taken: u64) {
        self.ack_due = Some(taken);
    }

    pub(crate) fn end_with_bye(&mut self) {
        self.bye_due = true;
    }

    /// Bytes that wait here or were not taken by the other side yet.
    pub(crate) fn pending(&self) -> usize {
        self.queued + self.in_flight()
    }

    fn in_flight(&self) -> usize {
        // At most the window, or one record and what is not acknowledged by itself.
        (self.sent - self.acked) as usize
    }

    /// Queues a record.
    pub(crate) fn push(&mut self, record: Record) {
        if !frame::is_small(&record) {
            self.seal();
            self.queued += record.len();
            self.queue.push_back(Outgoing::Whole(record));
            return;
        }
        let len = frame::packed_len(&record);
        if !self.pack.is_empty() && self.pack.len() + len > frame::PACK_MAX {
            self.seal();
        }
        if self.pack.is_empty() {
            self.pack.extend_from_slice(&frame::PACK_START);
            self.queued += frame::PACK_START.len();
        }
        frame::pack(&record, &mut self.pack);
        self.queued += len;
    }

    /// Ends the pack that is being filled.
    fn seal(&mut self) {
        if self.pack.is_empty() {
            return;
        }
        // A small pack is copied and its buffer kept; a large one is handed over as it is.
        let pack = if self.pack.len() <= 4_096 {
            let copy = Bytes::copy_from_slice(&self.pack);
            self.pack.clear();
            copy
        } else {
            Bytes::from(std::mem::take(&mut self.pack))
        };
        self.queue.push_back(Outgoing::Pack(pack));
    }

    /// Takes note that the other side has taken `taken` bytes; `false` where it cannot have.
    pub(crate) fn acked(&mut self, taken: u64) -> bool {
        if taken < self.acked || taken > self.sent {
            return false;
        }
        self.acked = taken;
        while self.flight.front().is_some_and(|end| *end <= taken) {
            self.flight.pop_front();
        }
        true
    }

    /// Gives to libzmq what it and the window take.
    pub(crate) fn pump(&mut self, socket: &Socket, window: usize) -> Result<Pumped, Error> {
        match self.pump_all(socket, window) {
            Err(Error::WouldBlock) => Ok(Pumped::Full),
            other => other,
        }
    }

    fn pump_all(&mut self, socket: &Socket, window: usize) -> Result<Pumped, Error> {
        if let Some(open) = &self.open_due {
            socket.send(&self.route, true)?;
            socket.send(open, false)?;
            self.open_due = None;
        }
        if let Some(taken) = self.ack_due {
            socket.send(&self.route, true)?;
            socket.send(&frame::ack(taken), false)?;
            self.ack_due = None;
        }
        loop {
            let len = self.queue.front().map_or(self.pack.len(), Outgoing::len);
            if len == 0 {
                break;
            }
            let in_flight = self.in_flight();
            let too_many = self.flight.len() >= FLIGHT_MESSAGES;
            // Less than this may stay unacknowledged for good: waiting for it would hold a large record back
            // until the link is given up.
            let told_of = in_flight as u64 >= ACK_EVERY;
            if too_many || (told_of && in_flight + len > window) {
                return Ok(Pumped::Window);
            }
            if self.queue.is_empty() {
                // Not sealed before there is room for it, so that a pack fills while the lane waits.
                self.seal();
            }
            socket.send(&self.route, true)?;
            // The first frame was taken, so the others are.
            match self.queue.pop_front() {
                Some(Outgoing::Pack(pack)) => socket.send_bytes(pack, false)?,
                Some(Outgoing::Whole(record)) => {
                    socket.send_bytes(frame::whole(), true)?;
                    socket.send_bytes(record.header, record.body.is_some())?;
                    if let Some(body) = record.body {
                        socket.send_bytes(body, false)?;
                    }
                }
                None => break,
            }
            self.queued -= len;
            self.sent += len as u64;
            self.flight.push_back(self.sent);
        }
        if self.bye_due {
            socket.send(&self.route, true)?;
            socket.send(&frame::bye(), false)?;
            self.bye_due = false;
        }
        Ok(Pumped::Empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::WINDOW_MIN;
    use spotmesh_zmq_ffi::{Context, IntOption, Kind, Multipart};

    fn record(len: usize) -> Record {
        Record { header: Bytes::from(vec![1; len]), body: None }
    }

    /// A ROUTER that knows one peer by the name `B`, and that peer.
    fn routed() -> (Socket, Socket) {
        let context = Context::new().unwrap();
        let (router, peer) = (context.socket(Kind::Router).unwrap(), context.socket(Kind::Dealer).unwrap());
        router.set(IntOption::RouterMandatory, 1).unwrap();
        peer.set_bytes(spotmesh_zmq_ffi::BytesOption::RoutingId, b"B").unwrap();
        router.bind("inproc://lane").unwrap();
        peer.connect("inproc://lane").unwrap();
        (router, peer)
    }

    #[test]
    fn small_records_share_a_message_and_large_ones_keep_their_place() {
        let (router, peer) = routed();
        let mut lane = OutLane { route: Bytes::from_static(b"B"), ..OutLane::default() };
        for _ in 0..3 {
            lane.push(record(10));
        }
        lane.push(record(frame::WHOLE_BODY_MIN));
        lane.push(record(20));
        assert_eq!(lane.pump(&router, 1 << 20), Ok(Pumped::Empty));
        let mut message = Multipart::default();
        let mut sizes = Vec::new();
        while peer.recv(&mut message).is_ok() {
            match frame::decode(message.frames()).unwrap() {
                frame::Message::Pack(pack) => {
                    frame::unpack(&pack, |record| sizes.push(record.len()));
                    sizes.push(0);
                }
                frame::Message::Whole(record) => sizes.push(record.len()),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(sizes, [10, 10, 10, 0, frame::WHOLE_BODY_MIN, 20, 0]);
    }

    #[test]
    fn a_full_pack_is_followed_by_another_and_none_is_over_its_bound() {
        let mut lane = OutLane::default();
        for _ in 0..100 {
            lane.push(record(frame::WHOLE_BODY_MIN - 1));
        }
        lane.seal();
        assert!(lane.queue.iter().all(|m| m.len() <= frame::PACK_MAX + 8));
        assert_eq!(lane.queue.iter().map(Outgoing::len).sum::<usize>(), lane.queued);
    }

    #[test]
    fn the_window_bounds_what_is_in_flight_and_an_ack_goes_on() {
        let (router, _peer) = routed();
        let mut lane = OutLane { route: Bytes::from_static(b"B"), ..OutLane::default() };
        let size = 100_000;
        for _ in 0..10 {
            lane.push(record(size));
        }
        assert_eq!(lane.pump(&router, 250_000), Ok(Pumped::Window));
        assert_eq!((lane.sent, lane.pending()), (2 * size as u64, 10 * size));
        assert!(!lane.acked(2 * size as u64 + 1), "more than was sent");
        assert!(lane.acked(size as u64));
        assert!(!lane.acked(0), "less than before");
        assert_eq!(lane.pump(&router, 250_000), Ok(Pumped::Window));
        assert_eq!((lane.sent, lane.pending()), (3 * size as u64, 9 * size));
        // One record larger than the window passes alone.
        let mut lane = OutLane { route: Bytes::from_static(b"B"), ..OutLane::default() };
        lane.push(record(size));
        assert_eq!(lane.pump(&router, 1_000), Ok(Pumped::Empty));
    }

    #[test]
    fn a_record_larger_than_the_window_never_waits_for_an_acknowledgement_that_is_not_due() {
        let (router, _peer) = routed();
        let mut lane = OutLane { route: Bytes::from_static(b"B"), ..OutLane::default() };
        // As much as the other side takes without a word.
        lane.push(record(ACK_EVERY as usize - 1));
        assert_eq!(lane.pump(&router, WINDOW_MIN), Ok(Pumped::Empty));
        lane.push(record(2 * WINDOW_MIN));
        assert_eq!(lane.pump(&router, WINDOW_MIN), Ok(Pumped::Empty));
        // Of this it tells.
        lane.push(record(2 * WINDOW_MIN));
        assert_eq!(lane.pump(&router, WINDOW_MIN), Ok(Pumped::Window));
        assert!(lane.acked(lane.sent));
        assert_eq!(lane.pump(&router, WINDOW_MIN), Ok(Pumped::Empty));
    }

    #[test]
    fn the_number_of_messages_in_flight_is_bounded_too() {
        let (router, _peer) = routed();
        let mut lane = OutLane { route: Bytes::from_static(b"B"), ..OutLane::default() };
        let mut ends = Vec::new();
        for _ in 0..FLIGHT_MESSAGES {
            lane.push(record(1));
            assert_eq!(lane.pump(&router, 1 << 20), Ok(Pumped::Empty));
            ends.push(lane.sent);
        }
        for _ in 0..100 {
            lane.push(record(1));
            assert_eq!(lane.pump(&router, 1 << 20), Ok(Pumped::Window));
        }
        assert!(lane.acked(ends[0] + 1));
        assert_eq!(lane.pump(&router, 1 << 20), Ok(Pumped::Empty), "what waited left as one message");
        assert!(lane.acked(lane.sent));
        assert_eq!((lane.pending(), lane.flight.len()), (0, 0));
    }

    #[test]
    fn an_unknown_peer_is_an_error_and_takes_nothing() {
        let (router, _peer) = routed();
        let mut lane = OutLane { route: Bytes::from_static(b"nobody"), ..OutLane::default() };
        lane.push(record(5));
        assert_eq!(lane.pump(&router, 1_000), Err(Error::HostUnreachable));
        assert_eq!(lane.sent, 0);
    }
}
