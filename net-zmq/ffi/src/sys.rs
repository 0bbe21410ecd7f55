//! The declarations of libzmq that are used, as in its `zmq.h`. Linux only: descriptors are plain `int`s.

use std::ffi::{c_char, c_int, c_void};

/// A message as libzmq lays it out: 64 bytes, aligned like a pointer.
#[repr(C, align(8))]
pub(crate) struct Msg {
    bytes: [u8; 64],
}

impl Msg {
    /// Storage that one of the `zmq_msg_init` functions is to fill.
    pub(crate) const fn blank() -> Self {
        Self { bytes: [0; 64] }
    }
}

pub(crate) const IO_THREADS: c_int = 1;
pub(crate) const MAX_SOCKETS: c_int = 2;

pub(crate) const PAIR: c_int = 0;
pub(crate) const REP: c_int = 4;
pub(crate) const DEALER: c_int = 5;
pub(crate) const ROUTER: c_int = 6;

pub(crate) const ROUTING_ID: c_int = 5;
pub(crate) const FD: c_int = 14;
pub(crate) const EVENTS: c_int = 15;
pub(crate) const LINGER: c_int = 17;
pub(crate) const RECONNECT_IVL: c_int = 18;
pub(crate) const BACKLOG: c_int = 19;
pub(crate) const MAXMSGSIZE: c_int = 22;
pub(crate) const SNDHWM: c_int = 23;
pub(crate) const RCVHWM: c_int = 24;
pub(crate) const RCVTIMEO: c_int = 27;
pub(crate) const LAST_ENDPOINT: c_int = 32;
pub(crate) const ROUTER_MANDATORY: c_int = 33;
pub(crate) const IPV6: c_int = 42;
pub(crate) const CURVE_SERVER: c_int = 47;
pub(crate) const CURVE_PUBLICKEY: c_int = 48;
pub(crate) const CURVE_SECRETKEY: c_int = 49;
pub(crate) const CURVE_SERVERKEY: c_int = 50;
pub(crate) const ZAP_DOMAIN: c_int = 55;
pub(crate) const ROUTER_HANDOVER: c_int = 56;
pub(crate) const CONNECT_ROUTING_ID: c_int = 61;
pub(crate) const HANDSHAKE_IVL: c_int = 66;
pub(crate) const HEARTBEAT_IVL: c_int = 75;
pub(crate) const HEARTBEAT_TTL: c_int = 76;
pub(crate) const HEARTBEAT_TIMEOUT: c_int = 77;
pub(crate) const CONNECT_TIMEOUT: c_int = 79;
pub(crate) const ZAP_ENFORCE_DOMAIN: c_int = 93;

pub(crate) const DONTWAIT: c_int = 1;
pub(crate) const SNDMORE: c_int = 2;
pub(crate) const MSG_SRCFD: c_int = 2;
pub(crate) const POLLIN: c_int = 1;

/// Numbers libzmq adds to the system's error numbers start here.
const HAUSNUMERO: c_int = 156_384_712;
pub(crate) const ETERM: c_int = HAUSNUMERO + 53;

pub(crate) type FreeFn = unsafe extern "C" fn(data: *mut c_void, hint: *mut c_void);

unsafe extern "C" {
    pub(crate) fn zmq_errno() -> c_int;
    pub(crate) fn zmq_strerror(errnum: c_int) -> *const c_char;
    pub(crate) fn zmq_version(major: *mut c_int, minor: *mut c_int, patch: *mut c_int);
    pub(crate) fn zmq_has(capability: *const c_char) -> c_int;

    pub(crate) fn zmq_ctx_new() -> *mut c_void;
    pub(crate) fn zmq_ctx_term(context: *mut c_void) -> c_int;
    pub(crate) fn zmq_ctx_shutdown(context: *mut c_void) -> c_int;
    pub(crate) fn zmq_ctx_set(context: *mut c_void, option: c_int, value: c_int) -> c_int;

    pub(crate) fn zmq_socket(context: *mut c_void, kind: c_int) -> *mut c_void;
    pub(crate) fn zmq_close(socket: *mut c_void) -> c_int;
    pub(crate) fn zmq_setsockopt(
        socket: *mut c_void,
        option: c_int,
        value: *const c_void,
        len: usize,
    ) -> c_int;
    pub(crate) fn zmq_getsockopt(
        socket: *mut c_void,
        option: c_int,
        value: *mut c_void,
        len: *mut usize,
    ) -> c_int;
    pub(crate) fn zmq_bind(socket: *mut c_void, address: *const c_char) -> c_int;
    pub(crate) fn zmq_connect(socket: *mut c_void, address: *const c_char) -> c_int;
    pub(crate) fn zmq_unbind(socket: *mut c_void, address: *const c_char) -> c_int;
    pub(crate) fn zmq_disconnect(socket: *mut c_void, address: *const c_char) -> c_int;
    pub(crate) fn zmq_socket_monitor(socket: *mut c_void, address: *const c_char, events: c_int) -> c_int;

    pub(crate) fn zmq_msg_init(msg: *mut Msg) -> c_int;
    pub(crate) fn zmq_msg_init_size(msg: *mut Msg, size: usize) -> c_int;
    pub(crate) fn zmq_msg_init_data(
        msg: *mut Msg,
        data: *mut c_void,
        size: usize,
        free: Option<FreeFn>,
        hint: *mut c_void,
    ) -> c_int;
    pub(crate) fn zmq_msg_send(msg: *mut Msg, socket: *mut c_void, flags: c_int) -> c_int;
    pub(crate) fn zmq_msg_recv(msg: *mut Msg, socket: *mut c_void, flags: c_int) -> c_int;
    pub(crate) fn zmq_msg_close(msg: *mut Msg) -> c_int;
    pub(crate) fn zmq_msg_move(to: *mut Msg, from: *mut Msg) -> c_int;
    pub(crate) fn zmq_msg_data(msg: *mut Msg) -> *mut c_void;
    pub(crate) fn zmq_msg_size(msg: *const Msg) -> usize;
    pub(crate) fn zmq_msg_more(msg: *const Msg) -> c_int;
    pub(crate) fn zmq_msg_get(msg: *const Msg, property: c_int) -> c_int;
    pub(crate) fn zmq_msg_gets(msg: *const Msg, property: *const c_char) -> *const c_char;

    pub(crate) fn zmq_z85_encode(to: *mut c_char, from: *const u8, len: usize) -> *mut c_char;
    pub(crate) fn zmq_z85_decode(to: *mut u8, from: *const c_char) -> *mut u8;
    pub(crate) fn zmq_curve_keypair(public: *mut c_char, secret: *mut c_char) -> c_int;
    pub(crate) fn zmq_curve_public(public: *mut c_char, secret: *const c_char) -> c_int;
}
