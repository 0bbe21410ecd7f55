//! What a socket's I/O thread reports about its connections.

use std::os::fd::RawFd;

use crate::message::Multipart;
use crate::socket::Socket;
use crate::{Error, IntOption, Kind};

/// Kinds of events that are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MonitorKind {
    /// An outgoing TCP connection is up; the value is its descriptor.
    Connected,
    /// An outgoing connection attempt failed and will not be repeated unless configured; its descriptor.
    Closed,
    /// A TCP connection was accepted; its descriptor.
    Accepted,
    /// A connection ended; its descriptor, closed right after this.
    Disconnected,
    /// The ZMTP handshake is done; no value.
    HandshakeSucceeded,
    /// The handshake failed for a reason of the system; an error number.
    HandshakeFailed,
    /// The handshake broke the protocol, such as another mechanism; a number of libzmq.
    HandshakeBroken,
    /// The ZAP handler refused the peer; its status code.
    HandshakeRefused,
}

impl MonitorKind {
    const ALL: [(u16, Self); 8] = [
        (0x0001, Self::Connected),
        (0x0080, Self::Closed),
        (0x0020, Self::Accepted),
        (0x0200, Self::Disconnected),
        (0x1000, Self::HandshakeSucceeded),
        (0x0800, Self::HandshakeFailed),
        (0x2000, Self::HandshakeBroken),
        (0x4000, Self::HandshakeRefused),
    ];

    fn of(number: u16) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == number).map(|(_, kind)| *kind)
    }

    /// The bits of all kinds, for `zmq_socket_monitor`.
    pub(crate) fn mask() -> i32 {
        Self::ALL.iter().fold(0, |mask, (bit, _)| mask | i32::from(*bit))
    }
}

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MonitorEvent {
    /// What happened.
    pub kind: MonitorKind,
    /// See the kind.
    pub value: u32,
}

/// The events of one socket, in the order in which they happened.
///
/// Its queue is not bounded: a bound would stop the I/O thread, and with it every other connection.
#[derive(Debug)]
pub(crate) struct Monitor {
    socket: Socket,
    message: Multipart,
}

impl Monitor {
    pub(crate) fn connect(socket: Socket, address: &str) -> Result<Self, Error> {
        socket.set(IntOption::ReceiveHighWaterMark, 0)?;
        socket.set(IntOption::Linger, 0)?;
        socket.connect(address)?;
        Ok(Self { socket, message: Multipart::default() })
    }

    /// The next event, [`Error::WouldBlock`] where there is none now.
    pub(crate) fn recv(&mut self) -> Result<MonitorEvent, Error> {
        loop {
            self.socket.recv(&mut self.message)?;
            if let Some(event) = self.message.frames().first().and_then(|frame| parse(frame)) {
                return Ok(event);
            }
        }
    }

    pub(crate) fn fd(&self) -> Result<RawFd, Error> {
        self.socket.fd()
    }
}

/// Reads the first frame: number and value, in the byte order of this machine.
fn parse(frame: &[u8]) -> Option<MonitorEvent> {
    let (number, value) = frame.split_first_chunk::<2>()?;
    let value: [u8; 4] = value.try_into().ok()?;
    Some(MonitorEvent {
        kind: MonitorKind::of(u16::from_ne_bytes(*number))?,
        value: u32::from_ne_bytes(value),
    })
}

/// The kind of socket a monitor is read with.
pub(crate) const KIND: Kind = Kind::Pair;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_known_events_are_read() {
        let mut frame = 0x0200u16.to_ne_bytes().to_vec();
        frame.extend(17u32.to_ne_bytes());
        assert_eq!(parse(&frame), Some(MonitorEvent { kind: MonitorKind::Disconnected, value: 17 }));
        assert_eq!(parse(&frame[..5]), None);
        assert_eq!(parse(&[]), None);
        frame.push(0);
        assert_eq!(parse(&frame), None);
        let mut unknown = 0x8000u16.to_ne_bytes().to_vec();
        unknown.extend([0; 4]);
        assert_eq!(parse(&unknown), None);
        assert_eq!(MonitorKind::mask(), 0x7aa1);
    }
}
