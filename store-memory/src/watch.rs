//! Streams of hints.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use futures::Stream;
use spotmesh::store::{StoreEvent, WatchScope};

/// Hints a watcher may leave unread; past that they are merged into one `Resync` (STORE-112).
const UNREAD_MAX: usize = 256;

#[derive(Default)]
struct Unread {
    events: VecDeque<StoreEvent>,
    waker: Option<Waker>,
}

/// The reading end. Dropping it ends the watch.
pub(crate) struct Watch(Arc<Mutex<Unread>>);

/// The writing end, kept by the store.
pub(crate) struct Watcher {
    scope: WatchScope,
    unread: Weak<Mutex<Unread>>,
}

fn lock(unread: &Mutex<Unread>) -> MutexGuard<'_, Unread> {
    // Hints may be lost, so a panic elsewhere under the lock does no harm.
    unread.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Both ends of a new watch.
pub(crate) fn watch(scope: WatchScope) -> (Watcher, Watch) {
    let unread = Arc::new(Mutex::new(Unread::default()));
    (Watcher { scope, unread: Arc::downgrade(&unread) }, Watch(unread))
}

impl Watcher {
    /// Whether anybody still reads.
    pub(crate) fn is_read(&self) -> bool {
        self.unread.strong_count() > 0
    }

    /// Hands an event over if the scope covers it; tells whether anybody still reads.
    pub(crate) fn tell(&self, event: &StoreEvent) -> bool {
        let Some(unread) = self.unread.upgrade() else { return false };
        if self.scope.covers(event) {
            let mut unread = lock(&unread);
            if unread.events.back() != Some(event) {
                if unread.events.len() == UNREAD_MAX {
                    unread.events.clear();
                    unread.events.push_back(StoreEvent::Resync);
                } else {
                    unread.events.push_back(event.clone());
                }
            }
            if let Some(waker) = unread.waker.take() {
                waker.wake();
            }
        }
        true
    }
}

impl Stream for Watch {
    type Item = StoreEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<StoreEvent>> {
        let mut unread = lock(&self.0);
        match unread.events.pop_front() {
            Some(event) => Poll::Ready(Some(event)),
            None => {
                unread.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}
