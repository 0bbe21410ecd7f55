//! The context: the I/O thread and the space of in-process names.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::socket::{Kind, Socket};
use crate::{Error, sys};

/// Version of the linked libzmq.
#[must_use]
pub fn version() -> (i32, i32, i32) {
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: three valid places for an int.
    unsafe { sys::zmq_version(&raw mut major, &raw mut minor, &raw mut patch) };
    (major, minor, patch)
}

/// Checks that the linked libzmq is not older than 4.3.4 and was built with CURVE.
///
/// # Errors
/// [`Error::Missing`] saying what was expected and what is linked.
pub fn require_curve() -> Result<(), Error> {
    let found = version();
    // SAFETY: a static NUL-terminated text.
    let curve = unsafe { sys::zmq_has(c"curve".as_ptr()) } == 1;
    judge(found, curve)
}

fn judge(found: (i32, i32, i32), curve: bool) -> Result<(), Error> {
    let (major, minor, patch) = found;
    if found < (4, 3, 4) {
        return Err(Error::Missing(format!(
            "libzmq: expected 4.3.4 or later, found {major}.{minor}.{patch}"
        )));
    }
    if !curve {
        return Err(Error::Missing(format!(
            "libzmq {major}.{minor}.{patch}: expected one built with CURVE (libsodium), found one without"
        )));
    }
    Ok(())
}

/// The raw context, ended when its last holder goes.
pub(crate) struct Raw(NonNull<c_void>);

// SAFETY: libzmq documents contexts as thread safe.
unsafe impl Send for Raw {}
// SAFETY: as above.
unsafe impl Sync for Raw {}

impl Raw {
    pub(crate) fn ptr(&self) -> *mut c_void {
        self.0.as_ptr()
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // Every socket holds this value, so all are closed: the call waits for lingering records only.
        loop {
            // SAFETY: the pointer came from zmq_ctx_new and is ended only here.
            let rc = unsafe { sys::zmq_ctx_term(self.ptr()) };
            if rc == 0 || Error::last("zmq_ctx_term").number() != Some(libc::EINTR) {
                return;
            }
        }
    }
}

impl Error {
    fn number(&self) -> Option<c_int> {
        match self {
            Self::Other { number, .. } => Some(*number),
            _ => None,
        }
    }
}

/// A handle of a context. Cloning it is cheap; the context ends when handles and sockets are gone.
#[derive(Clone)]
pub struct Context(Arc<Raw>);

impl Context {
    /// A new context with one I/O thread, so that all monitor events of a socket are in one order, and room for
    /// 16,000 sockets.
    ///
    /// # Errors
    /// [`Error::Other`] where libzmq cannot start one.
    pub fn new() -> Result<Self, Error> {
        // SAFETY: no arguments.
        let raw = unsafe { sys::zmq_ctx_new() };
        let Some(raw) = NonNull::new(raw) else { return Err(Error::last("zmq_ctx_new")) };
        let context = Self(Arc::new(Raw(raw)));
        context.set(sys::IO_THREADS, 1)?;
        context.set(sys::MAX_SOCKETS, 16_000)?;
        Ok(context)
    }

    fn set(&self, option: c_int, value: c_int) -> Result<(), Error> {
        // SAFETY: a live context.
        let rc = unsafe { sys::zmq_ctx_set(self.0.ptr(), option, value) };
        if rc == 0 { Ok(()) } else { Err(Error::last("zmq_ctx_set")) }
    }

    /// A new socket of this context.
    ///
    /// # Errors
    /// [`Error::Other`] where there are too many sockets or descriptors.
    pub fn socket(&self, kind: Kind) -> Result<Socket, Error> {
        // SAFETY: a live context.
        let raw = unsafe { sys::zmq_socket(self.0.ptr(), kind.number()) };
        match NonNull::new(raw) {
            Some(raw) => Ok(Socket::new(raw, Arc::clone(&self.0))),
            None => Err(Error::last("zmq_socket")),
        }
    }

    /// Lets every call on every socket of this context fail with [`Error::Terminated`], also one that blocks.
    pub fn shutdown(&self) {
        // SAFETY: a live context; calling it again is allowed.
        unsafe { sys::zmq_ctx_shutdown(self.0.ptr()) };
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Context")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linked_library_is_new_enough_and_has_curve() {
        require_curve().unwrap();
        assert!(judge((4, 3, 4), true).is_ok());
        assert!(judge((5, 0, 0), true).is_ok());
        let text = judge((4, 3, 3), true).unwrap_err().to_string();
        assert!(text.contains("expected 4.3.4") && text.contains("found 4.3.3"), "{text}");
        let text = judge((4, 3, 5), false).unwrap_err().to_string();
        assert!(text.contains("CURVE"), "{text}");
    }
}
