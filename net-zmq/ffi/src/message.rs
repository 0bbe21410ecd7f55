//! Messages: sent without copying large frames, received without copying large frames.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;

use bytes::Bytes;

use crate::{Error, sys};

/// Received frames up to this size are copied: they may lie in a buffer libzmq shares among many messages.
pub const COPY_MAX: usize = 4_096;
/// Frames kept of one message; a longer one is read to its end and marked.
pub const FRAMES_MAX: usize = 8;
/// Frames sent up to this size are copied: that is cheaper than keeping the owner alive.
const SEND_COPY_MAX: usize = 512;

/// A message of libzmq, always initialised, closed when dropped.
pub(crate) struct Message(sys::Msg);

// SAFETY: libzmq allows a message to be used by another thread than the one that made it, one at a time.
unsafe impl Send for Message {}
// SAFETY: through a shared reference it is only read, and reading content or properties changes nothing.
unsafe impl Sync for Message {}

impl Message {
    pub(crate) fn empty() -> Self {
        let mut msg = sys::Msg::blank();
        // SAFETY: a valid place for a message; the function cannot fail.
        unsafe { sys::zmq_msg_init(&raw mut msg) };
        Self(msg)
    }

    /// A copy of `data`.
    pub(crate) fn copy_of(data: &[u8]) -> Result<Self, Error> {
        let mut msg = sys::Msg::blank();
        // SAFETY: a valid place for a message.
        if unsafe { sys::zmq_msg_init_size(&raw mut msg, data.len()) } != 0 {
            return Err(Error::last("zmq_msg_init_size"));
        }
        let mut message = Self(msg);
        if !data.is_empty() {
            // SAFETY: an initialised message.
            let to = unsafe { sys::zmq_msg_data(&raw mut message.0) };
            // SAFETY: the message has room for exactly `data.len()` bytes, in memory of its own.
            unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to.cast::<u8>(), data.len()) };
        }
        Ok(message)
    }

    /// `data` itself, kept alive until libzmq has no more use for it; small frames are copied.
    pub(crate) fn owning(data: Bytes) -> Result<Self, Error> {
        if data.len() <= SEND_COPY_MAX {
            return Self::copy_of(&data);
        }
        let mut msg = sys::Msg::blank();
        let (ptr, len) = (data.as_ptr(), data.len());
        let hint = Box::into_raw(Box::new(data)).cast::<c_void>();
        // SAFETY: `ptr` is readable for `len` bytes as long as the boxed owner lives, libzmq only reads content
        // of messages that are sent, and `release` is called once, after the last use.
        let rc = unsafe {
            sys::zmq_msg_init_data(&raw mut msg, ptr.cast_mut().cast::<c_void>(), len, Some(release), hint)
        };
        if rc != 0 {
            let error = Error::last("zmq_msg_init_data");
            // SAFETY: the call failed, so libzmq did not take the owner.
            drop(unsafe { Box::from_raw(hint.cast::<Bytes>()) });
            return Err(error);
        }
        Ok(Self(msg))
    }

    pub(crate) fn raw(&mut self) -> *mut sys::Msg {
        &raw mut self.0
    }

    pub(crate) fn data(&self) -> &[u8] {
        // SAFETY: an initialised message; neither function changes it, although one takes a mutable pointer.
        let ptr = unsafe { sys::zmq_msg_data((&raw const self.0).cast_mut()) };
        // SAFETY: as above.
        let len = unsafe { sys::zmq_msg_size(&raw const self.0) };
        if len == 0 || ptr.is_null() {
            return &[];
        }
        // SAFETY: the content is `len` initialised bytes that stay in place while the message is borrowed.
        unsafe { std::slice::from_raw_parts(ptr.cast::<u8>(), len) }
    }

    pub(crate) fn more(&self) -> bool {
        // SAFETY: an initialised message.
        unsafe { sys::zmq_msg_more(&raw const self.0) == 1 }
    }

    /// The content: a copy of a small frame, else this message itself as owner of its memory.
    fn take(&mut self) -> Bytes {
        if self.data().len() <= COPY_MAX {
            return Bytes::copy_from_slice(self.data());
        }
        let mut taken = Self::empty();
        // SAFETY: two initialised messages; the source is left empty.
        unsafe { sys::zmq_msg_move(taken.raw(), self.raw()) };
        Bytes::from_owner(taken)
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        self.data()
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // SAFETY: an initialised message, closed once.
        unsafe { sys::zmq_msg_close(&raw mut self.0) };
    }
}

/// Called by libzmq, on any of its threads, when it has no more use for a frame.
unsafe extern "C" fn release(_data: *mut c_void, hint: *mut c_void) {
    // SAFETY: `hint` is the box given to zmq_msg_init_data, and libzmq calls this once.
    drop(unsafe { Box::from_raw(hint.cast::<Bytes>()) });
}

/// A received message: its frames and what libzmq knows about the connection it came over.
///
/// Meant to be used again for the next message.
#[derive(Default)]
pub struct Multipart {
    frames: Vec<Bytes>,
    overlong: bool,
    /// The first frame as received: on a ROUTER it carries the properties of the connection.
    first: Option<Message>,
}

impl Multipart {
    /// The frames, at most [`FRAMES_MAX`].
    #[must_use]
    pub fn frames(&self) -> &[Bytes] {
        &self.frames
    }

    /// Whether there were more than [`FRAMES_MAX`] frames; the others are dropped.
    #[must_use]
    pub fn overlong(&self) -> bool {
        self.overlong
    }

    /// Bytes of the kept frames together.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames.iter().map(Bytes::len).sum()
    }

    /// Whether no frame was received.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Number of the descriptor the message came over, as monitor events name it.
    #[must_use]
    pub fn source_fd(&self) -> Option<RawFd> {
        let first = self.first.as_ref()?;
        // SAFETY: an initialised message.
        let fd: c_int = unsafe { sys::zmq_msg_get(&raw const first.0, sys::MSG_SRCFD) };
        (fd >= 0).then_some(fd)
    }

    /// The `User-Id` the ZAP handler gave to the connection.
    #[must_use]
    pub fn user_id(&self) -> Option<&[u8]> {
        let first = self.first.as_ref()?;
        // SAFETY: an initialised message and a static NUL-terminated text.
        let text = unsafe { sys::zmq_msg_gets(&raw const first.0, c"User-Id".as_ptr()) };
        if text.is_null() {
            return None;
        }
        // SAFETY: a NUL-terminated text that lives as long as the message, which is borrowed.
        Some(unsafe { std::ffi::CStr::from_ptr(text) }.to_bytes())
    }

    pub(crate) fn clear(&mut self) {
        self.frames.clear();
        self.first = None;
        self.overlong = false;
    }

    /// Adds a received frame; answers whether more belong to the message.
    pub(crate) fn push(&mut self, mut message: Message) -> bool {
        let more = message.more();
        if self.frames.is_empty() {
            // Kept for its properties, so it is copied whatever its size.
            self.frames.push(Bytes::copy_from_slice(message.data()));
            self.first = Some(message);
        } else if self.frames.len() < FRAMES_MAX {
            self.frames.push(message.take());
        } else {
            self.overlong = true;
        }
        more
    }
}

impl std::fmt::Debug for Multipart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Multipart").field("frames", &self.frames).field("overlong", &self.overlong).finish()
    }
}
