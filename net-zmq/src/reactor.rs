//! The host's loop and its clock, on the thread that owns the sockets.
//!
//! One future is polled; while it is pending the thread sleeps in epoll on all sockets' descriptors, one event
//! descriptor written by wakers of other threads, and one timer on the boot clock.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::os::fd::RawFd;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures::future::BoxFuture;
use spotmesh::driver::Clock;
use spotmesh::model::{Error, ErrorKind, Instant};
use spotmesh_zmq_ffi::{Epoll, EventFd, TimerFd, boottime_nanos};

/// Tokens of the reactor's own descriptors; sockets are numbered from [`FIRST_SOURCE`].
const WAKE: u64 = 0;
const TIMER: u64 = 1;
const FIRST_SOURCE: u64 = 2;
/// Turns of a busy loop that go by without a look at the descriptors.
const BUSY_TURNS: u32 = 8;

/// Wakes the loop, from any thread.
struct Bell {
    /// The future is to be polled.
    rung: AtomicBool,
    /// The loop sleeps or is about to.
    asleep: AtomicBool,
    event: EventFd,
}

impl Bell {
    /// Ends the sleep; without effect while the loop runs.
    fn interrupt(&self) {
        if self.asleep.load(Ordering::SeqCst) {
            self.event.signal();
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Only the first of several wakes writes the descriptor.
        if !self.rung.swap(true, Ordering::SeqCst) {
            self.interrupt();
        }
    }
}

/// Sleepers by wake-up time; the number tells sleepers of one time apart.
#[derive(Default)]
struct Queue {
    sleepers: BTreeMap<(Instant, u64), Waker>,
    next: u64,
}

/// The timers of one reactor, shared with its clocks.
struct Timers {
    queue: Mutex<Queue>,
    bell: Arc<Bell>,
}

impl Timers {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No code of others runs under the lock, so its content is whole even after a panic.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn earliest(&self) -> Option<Instant> {
        self.lock().sleepers.keys().next().map(|(at, _)| *at)
    }

    /// Wakes whoever's time has come.
    fn fire(&self, now: Instant) {
        loop {
            let due = {
                let mut queue = self.lock();
                match queue.sleepers.first_entry() {
                    Some(entry) if entry.key().0 <= now => entry.remove(),
                    _ => return,
                }
            };
            due.wake();
        }
    }
}

fn now() -> Instant {
    Instant::from_nanos(boottime_nanos())
}

/// A clock whose sleeps end on the reactor it came from; it may be used from any thread.
///
/// It counts nanoseconds since boot, also while the system is suspended (STORE-32).
#[derive(Clone)]
pub struct ReactorClock {
    timers: Arc<Timers>,
}

impl ReactorClock {
    /// The present time.
    #[must_use]
    pub fn now(&self) -> Instant {
        now()
    }

    /// Ends at `at`, at once where that has passed.
    pub fn sleep_until(&self, at: Instant) -> Sleep {
        Sleep { timers: Arc::clone(&self.timers), at, number: None }
    }
}

impl Clock for ReactorClock {
    fn now(&self) -> Instant {
        now()
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        Box::pin(Self::sleep_until(self, at))
    }
}

impl std::fmt::Debug for ReactorClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReactorClock")
    }
}

/// A wait for a point of time; dropping it ends it.
#[must_use = "a sleep does nothing unless it is awaited"]
pub struct Sleep {
    timers: Arc<Timers>,
    at: Instant,
    number: Option<u64>,
}

impl Sleep {
    /// The point waited for.
    #[must_use]
    pub fn at(&self) -> Instant {
        self.at
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if now() >= self.at {
            return Poll::Ready(());
        }
        let at = self.at;
        let (number, first) = {
            let mut queue = self.timers.lock();
            let number = self.number.unwrap_or_else(|| {
                queue.next += 1;
                queue.next
            });
            queue.sleepers.insert((at, number), cx.waker().clone());
            (number, queue.sleepers.keys().next() == Some(&(at, number)))
        };
        self.number = Some(number);
        if first {
            // The loop may sleep for a later one.
            self.timers.bell.interrupt();
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.timers.lock().sleepers.remove(&(self.at, number));
        }
    }
}

/// Descriptors of one owner: which of them are readable, and whom to wake.
pub(crate) struct Sources {
    reactor: Weak<Core>,
    ready: RefCell<Vec<u64>>,
    waker: RefCell<Option<Waker>>,
}

impl Sources {
    /// Watches `fd`; answers its token.
    pub(crate) fn add(self: &Rc<Self>, fd: RawFd) -> Result<u64, Error> {
        let Some(core) = self.reactor.upgrade() else { return Err(failed("the reactor is gone")) };
        let token = {
            let mut watched = core.watched.borrow_mut();
            watched.next += 1;
            let token = watched.next;
            watched.owners.insert(token, Rc::downgrade(self));
            token
        };
        match core.epoll.add(fd, token) {
            Ok(()) => Ok(token),
            Err(error) => {
                core.watched.borrow_mut().owners.remove(&token);
                Err(failed(&error.to_string()))
            }
        }
    }

    /// Forgets `fd`, which must still be open.
    pub(crate) fn remove(&self, fd: RawFd, token: u64) {
        if let Some(core) = self.reactor.upgrade() {
            core.watched.borrow_mut().owners.remove(&token);
            if let Err(error) = core.epoll.remove(fd) {
                tracing::warn!(%error, fd, "a descriptor was not watched");
            }
        }
        self.ready.borrow_mut().retain(|ready| *ready != token);
    }

    /// Moves the tokens of readable descriptors into `tokens` and has `cx` woken for the next.
    pub(crate) fn take_ready(&self, cx: &Context<'_>, tokens: &mut Vec<u64>) {
        tokens.append(&mut self.ready.borrow_mut());
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
    }

    fn mark(&self, token: u64) {
        let mut ready = self.ready.borrow_mut();
        if !ready.contains(&token) {
            ready.push(token);
        }
        drop(ready);
        self.wake();
    }

    /// Wakes the owner, as a readable descriptor does.
    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }
}

struct Watched {
    owners: BTreeMap<u64, Weak<Sources>>,
    next: u64,
}

struct Core {
    epoll: Epoll,
    timer: TimerFd,
    bell: Arc<Bell>,
    timers: Arc<Timers>,
    watched: RefCell<Watched>,
    /// What the timer descriptor is set to.
    armed: RefCell<Option<Instant>>,
}

/// Runs one future at a time on the calling thread. Cloning gives another handle of the same reactor.
#[derive(Clone)]
pub struct Reactor {
    core: Rc<Core>,
}

fn failed(what: &str) -> Error {
    Error::new(ErrorKind::InternalFailure, "reactor", what.to_owned())
}

impl Reactor {
    /// A new one.
    ///
    /// # Errors
    /// `InternalFailure` where the kernel gives no descriptor.
    pub fn new() -> Result<Self, Error> {
        let kernel = |error: spotmesh_zmq_ffi::Error| failed(&error.to_string());
        let event = EventFd::new().map_err(kernel)?;
        let bell = Arc::new(Bell { rung: AtomicBool::new(true), asleep: AtomicBool::new(false), event });
        let epoll = Epoll::new().map_err(kernel)?;
        let timer = TimerFd::new().map_err(kernel)?;
        epoll.add(bell.event.fd(), WAKE).map_err(kernel)?;
        epoll.add(timer.fd(), TIMER).map_err(kernel)?;
        let timers = Arc::new(Timers { queue: Mutex::default(), bell: Arc::clone(&bell) });
        let watched = RefCell::new(Watched { owners: BTreeMap::new(), next: FIRST_SOURCE });
        let core = Core { epoll, timer, bell, timers, watched, armed: RefCell::new(None) };
        Ok(Self { core: Rc::new(core) })
    }

    /// The clock of this reactor.
    #[must_use]
    pub fn clock(&self) -> ReactorClock {
        ReactorClock { timers: Arc::clone(&self.core.timers) }
    }

    /// A set of descriptors to watch.
    pub(crate) fn sources(&self) -> Rc<Sources> {
        Rc::new(Sources {
            reactor: Rc::downgrade(&self.core),
            ready: RefCell::default(),
            waker: RefCell::default(),
        })
    }

    /// Runs `future` to its end on this thread, sleeping while it waits.
    ///
    /// # Panics
    /// Where the kernel refuses to wait, which it does only when the reactor's own descriptors were closed.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let core = &self.core;
        let waker = Waker::from(Arc::clone(&core.bell));
        let mut cx = Context::from_waker(&waker);
        let mut future = pin!(future);
        core.bell.rung.store(true, Ordering::SeqCst);
        let mut busy = 0;
        loop {
            if core.bell.rung.swap(false, Ordering::SeqCst) {
                if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                    return output;
                }
                busy += 1;
            }
            let idle = !core.bell.rung.load(Ordering::SeqCst);
            if idle || busy >= BUSY_TURNS {
                busy = 0;
                core.wait().expect("epoll and timer descriptors of the reactor are open");
            }
        }
    }
}

impl Core {
    /// Takes note of what is readable and due; sleeps for it where nobody has rung.
    fn wait(&self) -> Result<(), spotmesh_zmq_ffi::Error> {
        self.timers.fire(now());
        // From here on a waker of another thread writes the descriptor; one that rang before is seen below.
        self.bell.asleep.store(true, Ordering::SeqCst);
        let block = !self.bell.rung.load(Ordering::SeqCst);
        let mut tokens = Vec::new();
        let waited =
            if block { self.arm() } else { Ok(()) }.and_then(|()| self.epoll.wait(block, &mut tokens));
        self.bell.asleep.store(false, Ordering::SeqCst);
        waited?;
        for token in tokens {
            match token {
                WAKE => self.bell.event.clear(),
                TIMER => {
                    self.timer.clear();
                    *self.armed.borrow_mut() = None;
                }
                source => {
                    let owner = self.watched.borrow().owners.get(&source).and_then(Weak::upgrade);
                    if let Some(owner) = owner {
                        owner.mark(source);
                    }
                }
            }
        }
        self.timers.fire(now());
        Ok(())
    }

    /// Sets the timer descriptor where the earliest sleeper is earlier than what it is set to.
    fn arm(&self) -> Result<(), spotmesh_zmq_ffi::Error> {
        let Some(at) = self.timers.earliest() else { return Ok(()) };
        let mut armed = self.armed.borrow_mut();
        if armed.is_none_or(|armed| at < armed) {
            self.timer.arm(at.as_nanos())?;
            *armed = Some(at);
        }
        Ok(())
    }
}

impl std::fmt::Debug for Reactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reactor")
    }
}

#[cfg(test)]
#[path = "reactor_tests.rs"]
mod tests;
