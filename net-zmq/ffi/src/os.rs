//! Kernel calls that std has no safe form of: the boot clock, event and timer descriptors, epoll, random bytes.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::Error;

/// Nanoseconds of the clock that counts since boot, also while the system is suspended (STORE-32).
#[must_use]
pub fn boottime_nanos() -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is a valid place for one timespec; the clock exists on every Linux since 2.6.39.
    let rc = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut at) };
    assert_eq!(rc, 0, "CLOCK_BOOTTIME is not to be had on this kernel");
    // Neither part of the boot clock is negative.
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

/// Fills `into` with bytes nobody can predict.
///
/// # Errors
/// The kernel's answer where it has no randomness to give.
pub fn random_bytes(into: &mut [u8]) -> Result<(), Error> {
    let mut done = 0;
    while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
        // SAFETY: `rest` is writable for the length given.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(got) {
            Ok(got) => done += got,
            Err(_) if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
            Err(_) => return Err(Error::kernel("getrandom")),
        }
    }
    Ok(())
}

fn owned(fd: c_int, call: &'static str) -> Result<OwnedFd, Error> {
    if fd < 0 {
        return Err(Error::kernel(call));
    }
    // SAFETY: the kernel has just returned this descriptor to the caller, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Reads the eight bytes that event and timer descriptors hold; how many there were is of no interest.
fn drain(fd: &OwnedFd) {
    let mut count = 0u64;
    // SAFETY: `count` is writable for 8 bytes. The descriptor does not block; failing means it was drained.
    unsafe { libc::read(fd.as_raw_fd(), (&raw mut count).cast(), 8) };
}

/// A descriptor that any thread can make readable.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A new one, not readable.
    ///
    /// # Errors
    /// The kernel's answer, such as too many open descriptors.
    pub fn new() -> Result<Self, Error> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        owned(fd, "eventfd").map(Self)
    }

    /// Makes it readable.
    pub fn signal(&self) {
        let one = 1u64;
        // SAFETY: `one` is readable for 8 bytes. Failing means the counter is full, hence readable already.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Makes it unreadable again.
    pub fn clear(&self) {
        drain(&self.0);
    }

    /// The descriptor, to wait for.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A descriptor that becomes readable at a point of the boot clock, also where that passed during a suspend.
#[derive(Debug)]
pub struct TimerFd(OwnedFd);

impl TimerFd {
    /// A new one, not armed.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn new() -> Result<Self, Error> {
        // SAFETY: no pointers.
        let fd =
            unsafe { libc::timerfd_create(libc::CLOCK_BOOTTIME, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) };
        owned(fd, "timerfd_create").map(Self)
    }

    /// Arms it for the given nanoseconds since boot; a past point makes it readable at once.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn arm(&self, at_nanos: u64) -> Result<(), Error> {
        // Zero would disarm.
        let at = at_nanos.max(1);
        let spec = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec {
                // 2^64 ns are 18 thousand million seconds: both parts fit.
                tv_sec: (at / 1_000_000_000) as libc::time_t,
                tv_nsec: (at % 1_000_000_000) as libc::c_long,
            },
        };
        // SAFETY: `spec` is a valid itimerspec; the old setting is not asked for.
        let rc = unsafe {
            libc::timerfd_settime(
                self.0.as_raw_fd(),
                libc::TFD_TIMER_ABSTIME,
                &raw const spec,
                std::ptr::null_mut(),
            )
        };
        if rc == 0 { Ok(()) } else { Err(Error::kernel("timerfd_settime")) }
    }

    /// Makes it unreadable again after it fired.
    pub fn clear(&self) {
        drain(&self.0);
    }

    /// The descriptor, to wait for.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Waits for many descriptors to become readable.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

/// Descriptors reported by one wait at most; the rest comes with the next.
const EPOLL_BATCH: usize = 64;

impl Epoll {
    /// A new one that waits for nothing.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn new() -> Result<Self, Error> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        owned(fd, "epoll_create1").map(Self)
    }

    /// Reports `token` whenever `fd` is readable (level-triggered). `fd` must be removed before it is closed.
    ///
    /// # Errors
    /// The kernel's answer, such as a descriptor that is added already.
    pub fn add(&self, fd: RawFd, token: u64) -> Result<(), Error> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: token };
        // SAFETY: `event` is a valid epoll_event; the kernel checks `fd` itself.
        let rc = unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        if rc == 0 { Ok(()) } else { Err(Error::kernel("epoll_ctl add")) }
    }

    /// Forgets `fd`.
    ///
    /// # Errors
    /// The kernel's answer, such as a descriptor that was not added.
    pub fn remove(&self, fd: RawFd) -> Result<(), Error> {
        // SAFETY: removing takes no event.
        let rc =
            unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) };
        if rc == 0 { Ok(()) } else { Err(Error::kernel("epoll_ctl del")) }
    }

    /// Appends the tokens of readable descriptors. With `block` it waits for the first; a signal ends the wait
    /// early and with nothing.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn wait(&self, block: bool, tokens: &mut Vec<u64>) -> Result<(), Error> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EPOLL_BATCH];
        let timeout = if block { -1 } else { 0 };
        // SAFETY: `events` is writable for EPOLL_BATCH entries, a small number.
        let got = unsafe {
            libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), EPOLL_BATCH as c_int, timeout)
        };
        match usize::try_from(got) {
            Ok(got) => {
                tokens.extend(events.iter().take(got).map(|event| event.u64));
                Ok(())
            }
            Err(_) if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => Ok(()),
            Err(_) => Err(Error::kernel("epoll_wait")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_runs() {
        let first = boottime_nanos();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(boottime_nanos() >= first + 2_000_000);
    }

    #[test]
    fn random_bytes_differ_and_fill_all() {
        let (mut a, mut b) = ([0u8; 64], [0u8; 64]);
        random_bytes(&mut a).unwrap();
        random_bytes(&mut b).unwrap();
        assert_ne!(a, b);
        assert_ne!(a[48..], [0; 16]);
        random_bytes(&mut []).unwrap();
    }

    #[test]
    fn events_and_timers_wake_an_epoll() {
        let (epoll, event, timer) = (Epoll::new().unwrap(), EventFd::new().unwrap(), TimerFd::new().unwrap());
        epoll.add(event.fd(), 7).unwrap();
        epoll.add(timer.fd(), 8).unwrap();
        assert!(epoll.add(event.fd(), 9).is_err(), "added twice");
        let mut tokens = Vec::new();
        epoll.wait(false, &mut tokens).unwrap();
        assert!(tokens.is_empty());

        event.signal();
        event.signal();
        epoll.wait(true, &mut tokens).unwrap();
        assert_eq!(tokens, [7]);
        event.clear();
        event.clear();

        tokens.clear();
        let at = boottime_nanos() + 3_000_000;
        timer.arm(at).unwrap();
        epoll.wait(true, &mut tokens).unwrap();
        assert_eq!(tokens, [8]);
        assert!(boottime_nanos() >= at);
        timer.clear();

        timer.arm(0).unwrap();
        tokens.clear();
        epoll.wait(true, &mut tokens).unwrap();
        assert_eq!(tokens, [8], "a past point fires at once");
        epoll.remove(timer.fd()).unwrap();
        tokens.clear();
        epoll.wait(false, &mut tokens).unwrap();
        assert!(tokens.is_empty());
        assert!(epoll.remove(timer.fd()).is_err(), "removed twice");
    }
}
