//! Sockets.

use std::cell::Cell;
use std::ffi::{CString, c_int, c_void};
use std::marker::PhantomData;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::context::Raw;
use crate::message::{Message, Multipart};
use crate::monitor::{self, Monitor, MonitorEvent, MonitorKind};
use crate::{Error, sys};

/// Kinds of sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Addresses each message to a peer by its routing id, the first frame.
    Router,
    /// Sends to its peers in turn.
    Dealer,
    /// Two sockets of one context.
    Pair,
    /// Answers requests one by one.
    Rep,
}

impl Kind {
    pub(crate) fn number(self) -> c_int {
        match self {
            Self::Router => sys::ROUTER,
            Self::Dealer => sys::DEALER,
            Self::Pair => sys::PAIR,
            Self::Rep => sys::REP,
        }
    }
}

/// Options with a number as value. Those about connections count for later binds and connects only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntOption {
    /// How long records may still leave after the socket is closed, in milliseconds.
    Linger,
    /// Wait before a broken outgoing connection is made again, in milliseconds; −1 for never.
    ReconnectInterval,
    /// Connections waiting to be accepted.
    Backlog,
    /// Messages queued per peer for sending; 0 for no bound.
    SendHighWaterMark,
    /// Messages queued per peer after receiving; 0 for no bound.
    ReceiveHighWaterMark,
    /// How long a blocking receive waits, in milliseconds.
    ReceiveTimeout,
    /// Whether sending to an unknown peer is an error: 1 or 0.
    RouterMandatory,
    /// Whether a second connection takes over a routing id: 1 or 0.
    RouterHandover,
    /// Whether addresses may be IPv6: 1 or 0.
    Ipv6,
    /// Whether this side is the CURVE server: 1 or 0.
    CurveServer,
    /// Whether a connection is refused while the ZAP handler cannot be asked: 1 or 0.
    ZapEnforceDomain,
    /// A ZMTP handshake not done after this many milliseconds ends the connection.
    HandshakeInterval,
    /// Milliseconds between two pings.
    HeartbeatInterval,
    /// A ping not answered after this many milliseconds ends the connection.
    HeartbeatTimeout,
    /// What the peer is told to apply as its own timeout, in milliseconds.
    HeartbeatTtl,
    /// A TCP connection not up after this many milliseconds has failed.
    ConnectTimeout,
}

impl IntOption {
    fn number(self) -> c_int {
        match self {
            Self::Linger => sys::LINGER,
            Self::ReconnectInterval => sys::RECONNECT_IVL,
            Self::Backlog => sys::BACKLOG,
            Self::SendHighWaterMark => sys::SNDHWM,
            Self::ReceiveHighWaterMark => sys::RCVHWM,
            Self::ReceiveTimeout => sys::RCVTIMEO,
            Self::RouterMandatory => sys::ROUTER_MANDATORY,
            Self::RouterHandover => sys::ROUTER_HANDOVER,
            Self::Ipv6 => sys::IPV6,
            Self::CurveServer => sys::CURVE_SERVER,
            Self::ZapEnforceDomain => sys::ZAP_ENFORCE_DOMAIN,
            Self::HandshakeInterval => sys::HANDSHAKE_IVL,
            Self::HeartbeatInterval => sys::HEARTBEAT_IVL,
            Self::HeartbeatTimeout => sys::HEARTBEAT_TIMEOUT,
            Self::HeartbeatTtl => sys::HEARTBEAT_TTL,
            Self::ConnectTimeout => sys::CONNECT_TIMEOUT,
        }
    }
}

/// Options with bytes as value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BytesOption {
    /// What peers connected to later see as this socket's routing id, 1..=255 bytes, the first not zero.
    RoutingId,
    /// Name by which the peer of the next connect is addressed; must be unused on this socket.
    ConnectRoutingId,
    /// Domain named to the ZAP handler.
    ZapDomain,
    /// Own public CURVE key, 32 bytes.
    CurvePublicKey,
    /// Own secret CURVE key, 32 bytes.
    CurveSecretKey,
    /// Public CURVE key of the server of the next connect, 32 bytes.
    CurveServerKey,
}

impl BytesOption {
    fn number(self) -> c_int {
        match self {
            Self::RoutingId => sys::ROUTING_ID,
            Self::ConnectRoutingId => sys::CONNECT_ROUTING_ID,
            Self::ZapDomain => sys::ZAP_DOMAIN,
            Self::CurvePublicKey => sys::CURVE_PUBLICKEY,
            Self::CurveSecretKey => sys::CURVE_SECRETKEY,
            Self::CurveServerKey => sys::CURVE_SERVERKEY,
        }
    }
}

/// A socket, closed when dropped. One thread at a time may use it.
pub struct Socket {
    raw: NonNull<c_void>,
    context: Arc<Raw>,
    monitor: Option<Box<Monitor>>,
    /// Not `Sync`: libzmq sockets are not thread safe.
    single: PhantomData<Cell<()>>,
}

// SAFETY: libzmq allows a socket to move to another thread with a full fence between, as safe Rust always has.
unsafe impl Send for Socket {}

impl Socket {
    pub(crate) fn new(raw: NonNull<c_void>, context: Arc<Raw>) -> Self {
        Self { raw, context, monitor: None, single: PhantomData }
    }

    fn ptr(&self) -> *mut c_void {
        self.raw.as_ptr()
    }

    fn set_raw(&self, option: c_int, value: *const c_void, len: usize) -> Result<(), Error> {
        // SAFETY: a live socket; the callers give a value that is readable for `len` bytes.
        let rc = unsafe { sys::zmq_setsockopt(self.ptr(), option, value, len) };
        if rc == 0 { Ok(()) } else { Err(Error::last("zmq_setsockopt")) }
    }

    fn get_int(&self, option: c_int) -> Result<c_int, Error> {
        let (mut value, mut len): (c_int, usize) = (0, size_of::<c_int>());
        // SAFETY: a live socket and a place for one int, whose size is given.
        let rc = unsafe {
            sys::zmq_getsockopt(self.ptr(), option, (&raw mut value).cast::<c_void>(), &raw mut len)
        };
        if rc == 0 { Ok(value) } else { Err(Error::last("zmq_getsockopt")) }
    }

    /// Sets an option.
    ///
    /// # Errors
    /// [`Error::Other`] where libzmq refuses the value.
    pub fn set(&self, option: IntOption, value: i32) -> Result<(), Error> {
        let value: c_int = value;
        self.set_raw(option.number(), (&raw const value).cast::<c_void>(), size_of::<c_int>())
    }

    /// Sets an option.
    ///
    /// # Errors
    /// [`Error::Other`] where libzmq refuses the value.
    pub fn set_bytes(&self, option: BytesOption, value: &[u8]) -> Result<(), Error> {
        self.set_raw(option.number(), value.as_ptr().cast::<c_void>(), value.len())
    }

    /// Bounds the size of one received frame, in bytes: a peer that announces more is disconnected.
    ///
    /// # Errors
    /// [`Error::Other`] where libzmq refuses the value.
    pub fn set_max_frame(&self, bytes: usize) -> Result<(), Error> {
        let value = i64::try_from(bytes).map_err(|_| Error::Argument("frame bound beyond 2^63"))?;
        self.set_raw(sys::MAXMSGSIZE, (&raw const value).cast::<c_void>(), size_of::<i64>())
    }

    fn with_address(
        &self,
        address: &str,
        call: &'static str,
        function: unsafe extern "C" fn(*mut c_void, *const std::ffi::c_char) -> c_int,
    ) -> Result<(), Error> {
        let address = CString::new(address).map_err(|_| Error::Argument("an address with NUL inside"))?;
        // SAFETY: a live socket and a NUL-terminated text; `function` is one of the address functions.
        let rc = unsafe { function(self.ptr(), address.as_ptr()) };
        if rc == 0 { Ok(()) } else { Err(Error::last(call)) }
    }

    /// Opens a listener.
    ///
    /// # Errors
    /// [`Error::Other`] such as an address in use.
    pub fn bind(&self, address: &str) -> Result<(), Error> {
        self.with_address(address, "zmq_bind", sys::zmq_bind)
    }

    /// Closes a listener and every connection accepted by it.
    ///
    /// # Errors
    /// [`Error::Other`] where nothing is bound to the address.
    pub fn unbind(&self, address: &str) -> Result<(), Error> {
        self.with_address(address, "zmq_unbind", sys::zmq_unbind)
    }

    /// Starts a connection.
    ///
    /// # Errors
    /// [`Error::Other`] where the address is malformed; that nobody listens shows later, in the monitor.
    pub fn connect(&self, address: &str) -> Result<(), Error> {
        self.with_address(address, "zmq_connect", sys::zmq_connect)
    }

    /// Ends all connections made to an address.
    ///
    /// # Errors
    /// [`Error::Other`] where there is none.
    pub fn disconnect(&self, address: &str) -> Result<(), Error> {
        self.with_address(address, "zmq_disconnect", sys::zmq_disconnect)
    }

    /// The last bound address, with the really bound port.
    ///
    /// # Errors
    /// [`Error::Other`] where libzmq cannot say.
    pub fn last_endpoint(&self) -> Result<String, Error> {
        let mut text = [0u8; 1_024];
        let mut len = text.len();
        // SAFETY: a live socket and a place of the size given.
        let rc = unsafe {
            sys::zmq_getsockopt(
                self.ptr(),
                sys::LAST_ENDPOINT,
                text.as_mut_ptr().cast::<c_void>(),
                &raw mut len,
            )
        };
        if rc != 0 {
            return Err(Error::last("zmq_getsockopt"));
        }
        let text = text.iter().take(len).take_while(|byte| **byte != 0).copied().collect::<Vec<_>>();
        String::from_utf8(text).map_err(|_| Error::Argument("an endpoint that is not UTF-8"))
    }

    /// The descriptor that becomes readable when there is something to do.
    ///
    /// It tells of changes only: after every send and receive [`Self::readable`] must be asked, or received
    /// until [`Error::WouldBlock`], before it is waited for.
    ///
    /// # Errors
    /// [`Error::Terminated`] after a shutdown.
    pub fn fd(&self) -> Result<RawFd, Error> {
        self.get_int(sys::FD)
    }

    /// Whether a message can be received now.
    ///
    /// # Errors
    /// [`Error::Terminated`] after a shutdown.
    pub fn readable(&self) -> Result<bool, Error> {
        Ok(self.get_int(sys::EVENTS)? & sys::POLLIN != 0)
    }

    fn send_message(&self, mut message: Message, more: bool) -> Result<(), Error> {
        let flags = if more { sys::DONTWAIT | sys::SNDMORE } else { sys::DONTWAIT };
        loop {
            // SAFETY: an initialised message, emptied by a success, and a live socket.
            let rc = unsafe { sys::zmq_msg_send(message.raw(), self.ptr(), flags) };
            if rc >= 0 {
                return Ok(());
            }
            match Error::last("zmq_msg_send") {
                Error::Other { number: libc::EINTR, .. } => {}
                error => return Err(error),
            }
        }
    }

    /// Sends a copy of one frame; `more` says that others of the same message follow.
    ///
    /// Once the first frame of a message is taken the others are too: no later one answers
    /// [`Error::WouldBlock`].
    ///
    /// # Errors
    /// [`Error::WouldBlock`] where the peer's queue is full, [`Error::HostUnreachable`] where a ROUTER knows no
    /// such peer.
    pub fn send(&self, frame: &[u8], more: bool) -> Result<(), Error> {
        self.send_message(Message::copy_of(frame)?, more)
    }

    /// Sends one frame without copying it, unless it is small.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn send_bytes(&self, frame: Bytes, more: bool) -> Result<(), Error> {
        self.send_message(Message::owning(frame)?, more)
    }

    fn recv_with(&self, into: &mut Multipart, flags: c_int) -> Result<(), Error> {
        into.clear();
        loop {
            let mut message = Message::empty();
            // SAFETY: an initialised message, whose content is replaced, and a live socket.
            let rc = unsafe { sys::zmq_msg_recv(message.raw(), self.ptr(), flags) };
            if rc < 0 {
                match Error::last("zmq_msg_recv") {
                    Error::Other { number: libc::EINTR, .. } => continue,
                    error => return Err(error),
                }
            }
            // Messages arrive whole, so the frames after the first never block.
            if !into.push(message) {
                return Ok(());
            }
        }
    }

    /// Receives one message, replacing what `into` holds.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] where there is none; every command for the socket is then processed.
    pub fn recv(&self, into: &mut Multipart) -> Result<(), Error> {
        self.recv_with(into, sys::DONTWAIT)
    }

    /// Waits for one message, at most for the receive timeout.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] after the timeout, [`Error::Terminated`] after a shutdown.
    pub fn recv_blocking(&self, into: &mut Multipart) -> Result<(), Error> {
        self.recv_with(into, 0)
    }

    /// Starts reporting what happens to this socket's connections; a second call changes nothing.
    ///
    /// # Errors
    /// [`Error::Other`] where there are too many sockets.
    pub fn start_monitor(&mut self) -> Result<(), Error> {
        /// Numbers the in-process addresses, so that none is used twice in any context.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if self.monitor.is_some() {
            return Ok(());
        }
        let address = format!("inproc://spotmesh-monitor-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let text =
            CString::new(address.as_str()).map_err(|_| Error::Argument("an address with NUL inside"))?;
        // SAFETY: a live context.
        let raw = unsafe { sys::zmq_socket(self.context.ptr(), monitor::KIND.number()) };
        let Some(raw) = NonNull::new(raw) else { return Err(Error::last("zmq_socket")) };
        let reader = Self::new(raw, Arc::clone(&self.context));
        // SAFETY: a live socket and a NUL-terminated text.
        let rc = unsafe { sys::zmq_socket_monitor(self.ptr(), text.as_ptr(), MonitorKind::mask()) };
        if rc < 0 {
            return Err(Error::last("zmq_socket_monitor"));
        }
        match Monitor::connect(reader, &address) {
            Ok(monitor) => {
                self.monitor = Some(Box::new(monitor));
                Ok(())
            }
            Err(error) => {
                self.stop_monitor();
                Err(error)
            }
        }
    }

    /// The next event of this socket's connections.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] where there is none now, [`Error::Argument`] without a monitor.
    pub fn next_event(&mut self) -> Result<MonitorEvent, Error> {
        match &mut self.monitor {
            Some(monitor) => monitor.recv(),
            None => Err(Error::Argument("expected a monitor to be started")),
        }
    }

    /// The descriptor that becomes readable when there is an event to read; as [`Self::fd`].
    ///
    /// # Errors
    /// [`Error::Argument`] without a monitor.
    pub fn monitor_fd(&self) -> Result<RawFd, Error> {
        match &self.monitor {
            Some(monitor) => monitor.fd(),
            None => Err(Error::Argument("expected a monitor to be started")),
        }
    }

    fn stop_monitor(&mut self) {
        // SAFETY: a live socket; no address ends the reports.
        unsafe { sys::zmq_socket_monitor(self.ptr(), std::ptr::null(), 0) };
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.monitor.is_some() {
            // Before its reader goes: an I/O thread that reports to nobody would wait for ever.
            self.stop_monitor();
        }
        // SAFETY: a live socket, closed once.
        unsafe { sys::zmq_close(self.ptr()) };
    }
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Socket")
    }
}
