//! Safe binding of the part of libzmq and of the kernel that the transport needs.
//!
//! The one crate of the project that may contain `unsafe`. What it promises to safe code:
//!
//! - a [`Socket`] is used by one thread at a time (it is `Send` and not `Sync`) and keeps its [`Context`] alive;
//! - frames are [`bytes::Bytes`]: large ones are neither copied when sent nor when received;
//! - nothing blocks, except [`Socket::recv_blocking`] and dropping the last handle of a context, which waits
//!   until lingering records have left.
//!
//! ```
//! use spotmesh_zmq_ffi::{Context, Kind, Multipart};
//!
//! let context = Context::new()?;
//! let (a, b) = (context.socket(Kind::Pair)?, context.socket(Kind::Pair)?);
//! a.bind("inproc://example")?;
//! b.connect("inproc://example")?;
//! b.send(b"hello", false)?;
//! let mut message = Multipart::default();
//! a.recv(&mut message)?;
//! assert_eq!(&message.frames()[0][..], b"hello");
//! # Ok::<(), spotmesh_zmq_ffi::Error>(())
//! ```
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

#[cfg(not(target_os = "linux"))]
compile_error!("the ZeroMQ transport needs Linux: epoll, eventfd, timerfd and CLOCK_BOOTTIME");

// Linked for its build script: it provides libsodium to the libzmq built from source.
#[cfg(zmq_vendored)]
use libsodium_sys as _;

mod context;
mod curve;
mod error;
mod message;
mod monitor;
mod os;
mod socket;
mod sys;

pub use context::{Context, require_curve, version};
pub use curve::{Key, KeyPair, key_from_z85, key_to_z85, public_key};
pub use error::Error;
pub use message::{COPY_MAX, FRAMES_MAX, Multipart};
pub use monitor::{MonitorEvent, MonitorKind};
pub use os::{Epoll, EventFd, TimerFd, boottime_nanos, random_bytes};
pub use socket::{BytesOption, IntOption, Kind, Socket};
