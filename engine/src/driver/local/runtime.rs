//! A single-threaded executor whose clock jumps to the next deadline when nothing is left to run.

use std::collections::{BTreeMap, VecDeque};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures::future::BoxFuture;

use crate::driver::{Clock, Executor};
use crate::model::Instant;

/// Runs tasks in the order in which they were woken, in virtual time; a run repeats exactly.
///
/// Clones share tasks and clock. Virtual time stands still while a task can run and jumps to the earliest
/// sleeper otherwise, so tasks must wait for one another and for this clock only: to a task that waits for
/// another thread or for a socket, the jumps look like timeouts.
#[derive(Clone, Default)]
pub struct LocalRuntime(Arc<Mutex<Shared>>);

#[derive(Default)]
struct Shared {
    now: Instant,
    next: u64,
    tasks: BTreeMap<u64, Task>,
    ready: VecDeque<u64>,
    sleepers: BTreeMap<(Instant, u64), Waker>,
}

struct Task {
    /// Away while it is polled.
    future: Option<BoxFuture<'static, ()>>,
    waker: Arc<TaskWaker>,
}

/// Number of the future that [`LocalRuntime::block_on`] runs.
const MAIN: u64 = u64::MAX;

struct TaskWaker {
    task: u64,
    queued: AtomicBool,
    runtime: LocalRuntime,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.runtime.lock().ready.push_back(self.task);
        }
    }
}

impl LocalRuntime {
    /// A runtime without tasks; its clock starts one second after its origin.
    #[must_use]
    pub fn new() -> Self {
        let runtime = Self::default();
        runtime.lock().now = Instant::from_nanos(1_000_000_000);
        runtime
    }

    /// Runs `future` and all tasks until `future` ends. Tasks that have not ended stay and go on with the next
    /// `block_on`.
    ///
    /// # Panics
    /// Where `future` has not ended and neither a task nor a sleeper is left that could wake it.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut main = pin!(future);
        let main_waker = self.task_waker(MAIN);
        main_waker.clone().wake();
        loop {
            let Some(task) = self.next_ready() else {
                assert!(self.jump(), "every task waits for something that no task and no deadline will do");
                continue;
            };
            if task == MAIN {
                main_waker.queued.store(false, Ordering::Release);
                let waker = Waker::from(main_waker.clone());
                if let Poll::Ready(output) = main.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return output;
                }
            } else {
                self.run(task);
            }
        }
    }

    /// Tasks that have not ended.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.lock().tasks.len()
    }

    /// Drops a task that has not ended, as an executor does that goes down.
    #[cfg(test)]
    pub(crate) fn lose_youngest_task(&self) {
        let task = self.lock().tasks.pop_last();
        drop(task);
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn task_waker(&self, task: u64) -> Arc<TaskWaker> {
        Arc::new(TaskWaker { task, queued: AtomicBool::new(false), runtime: self.clone() })
    }

    fn next_ready(&self) -> Option<u64> {
        self.lock().ready.pop_front()
    }

    fn run(&self, task: u64) {
        let taken = {
            let mut shared = self.lock();
            shared.tasks.get_mut(&task).and_then(|task| Some((task.future.take()?, task.waker.clone())))
        };
        let Some((mut future, waker)) = taken else { return };
        waker.queued.store(false, Ordering::Release);
        let poll = future.as_mut().poll(&mut Context::from_waker(&Waker::from(waker)));
        let ended = {
            let mut shared = self.lock();
            match (poll, shared.tasks.get_mut(&task)) {
                (Poll::Pending, Some(task)) => {
                    task.future = Some(future);
                    return;
                }
                _ => shared.tasks.remove(&task),
            }
        };
        // Destructors run without the lock: they may wake or spawn.
        drop((ended, future));
    }

    /// Moves the clock to the earliest sleeper and wakes it; `false` where there is none.
    fn jump(&self) -> bool {
        let waker = {
            let mut shared = self.lock();
            let Some(((at, _), waker)) = shared.sleepers.pop_first() else { return false };
            shared.now = shared.now.max(at);
            waker
        };
        waker.wake();
        true
    }
}

impl Executor for LocalRuntime {
    fn spawn(&self, future: BoxFuture<'static, ()>) {
        let waker = {
            let mut shared = self.lock();
            shared.next += 1;
            let task = shared.next;
            let waker = self.task_waker(task);
            shared.tasks.insert(task, Task { future: Some(future), waker: waker.clone() });
            waker
        };
        waker.wake();
    }
}

impl Clock for LocalRuntime {
    fn now(&self) -> Instant {
        self.lock().now
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        Box::pin(Sleep { runtime: self.clone(), at, place: None })
    }
}

struct Sleep {
    runtime: LocalRuntime,
    at: Instant,
    /// Its number among the sleepers.
    place: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let (at, place) = (self.at, self.place);
        let mut shared = self.runtime.lock();
        if shared.now >= at {
            return Poll::Ready(());
        }
        let place = place.unwrap_or_else(|| {
            shared.next += 1;
            shared.next
        });
        shared.sleepers.insert((at, place), cx.waker().clone());
        drop(shared);
        self.place = Some(place);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let sleeper = self.runtime.lock().sleepers.remove(&(self.at, place));
            drop(sleeper);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::channel::oneshot;

    use super::*;

    #[test]
    fn time_jumps_to_the_earliest_sleeper_once_nothing_can_run() {
        let runtime = LocalRuntime::new();
        let start = runtime.now();
        let (tell, told) = oneshot::channel();
        let inside = runtime.clone();
        runtime.spawn(Box::pin(async move {
            inside.sleep_until(start + Duration::from_secs(7)).await;
            tell.send(inside.now()).unwrap();
        }));
        let dropped = runtime.sleep_until(start + Duration::from_secs(1));
        drop(dropped);
        let at = runtime.block_on(told).unwrap();
        assert_eq!(at.since(start), Duration::from_secs(7));
        assert_eq!(runtime.tasks(), 0);
    }

    #[test]
    #[should_panic(expected = "every task waits")]
    fn a_wait_that_nothing_can_end_is_reported() {
        LocalRuntime::new().block_on(std::future::pending::<()>());
    }
}
