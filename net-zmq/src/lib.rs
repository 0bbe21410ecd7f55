//! The production Transport: links between MeshNodes over ZeroMQ, and the reactor a host's loop runs on.
//!
//! [`ZmqHost::start`] is what a service needs: a host on a thread of its own, with Tokio for what waits. Below
//! it, [`ZmqTransport`] implements [`spotmesh::driver::Transport`]. Its sockets belong to the thread that made it;
//! [`Reactor::block_on`] runs the host's loop on that thread and sleeps on the sockets themselves, so that a
//! record crosses no thread of ours on its way. [`ReactorClock`] is the clock that goes with it.
//!
//! How a link is made of connections, which options are set and why is told in `README.md`.
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod asked;
mod config;
mod frame;
mod host;
mod keys;
mod lane;
mod link;
mod port;
mod reactor;
mod receive;
mod transport;
mod zap;

pub use config::{Bounds, Listen, Security, Timing, ZmqConfig};
pub use frame::{FRAME_MAX, Malformed, PACK_MAX, WHOLE_BODY_MIN, decode_pack};
pub use host::{Running, TokioExecutor, ZmqHost};
pub use keys::{KeyRing, PeerKeys};
pub use reactor::{Reactor, ReactorClock, Sleep};
pub use spotmesh_zmq_ffi::{KeyPair, key_from_z85, key_to_z85};
pub use transport::{Counters, ZmqTransport};

/// The README's code runs as it stands there.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
