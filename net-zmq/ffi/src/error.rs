//! What can go wrong in a call.

use std::ffi::{CStr, c_int};
use std::fmt;

use crate::sys;

/// Why a call of libzmq or of the kernel failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// Nothing to receive, or no room to send: try again later.
    WouldBlock,
    /// A ROUTER knows no such peer, or the peer's connection is gone.
    HostUnreachable,
    /// The context is shutting down.
    Terminated,
    /// A text or byte string cannot be given to this call.
    Argument(&'static str),
    /// The linked library lacks something that is needed.
    Missing(String),
    /// Everything else.
    Other {
        /// The function that failed.
        call: &'static str,
        /// The error number, `errno` or one of libzmq's own.
        number: i32,
        /// Its text.
        text: String,
    },
}

impl Error {
    /// The error of the libzmq call that has just failed on this thread.
    pub(crate) fn last(call: &'static str) -> Self {
        // SAFETY: no arguments; reads the calling thread's error number.
        let number = unsafe { sys::zmq_errno() };
        match number {
            libc::EAGAIN => Self::WouldBlock,
            libc::EHOSTUNREACH => Self::HostUnreachable,
            sys::ETERM => Self::Terminated,
            number => Self::Other { call, number, text: text(number) },
        }
    }

    /// The error of the kernel call that has just failed on this thread.
    pub(crate) fn kernel(call: &'static str) -> Self {
        let error = std::io::Error::last_os_error();
        Self::Other { call, number: error.raw_os_error().unwrap_or(0), text: error.to_string() }
    }
}

fn text(number: c_int) -> String {
    // SAFETY: takes any number and answers with a static text.
    let text = unsafe { sys::zmq_strerror(number) };
    if text.is_null() {
        return format!("error {number}");
    }
    // SAFETY: a non-null answer is a NUL-terminated text that is never freed.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WouldBlock => f.write_str("would block"),
            Self::HostUnreachable => f.write_str("the peer is not connected"),
            Self::Terminated => f.write_str("the context is shutting down"),
            Self::Argument(what) => write!(f, "bad argument: {what}"),
            Self::Missing(what) => write!(f, "{what}"),
            Self::Other { call, number, text } => write!(f, "{call}: {text} ({number})"),
        }
    }
}

impl std::error::Error for Error {}
