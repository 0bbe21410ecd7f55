//! What happens next: a heap of (time, sequence, event).

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// World time, in nanoseconds since the start of a run.
pub type Nanos = u64;

/// Nanoseconds of so many microseconds.
#[must_use]
pub const fn micros(value: u64) -> Nanos {
    value.saturating_mul(1_000)
}

/// Nanoseconds of so many milliseconds.
#[must_use]
pub const fn millis(value: u64) -> Nanos {
    value.saturating_mul(1_000_000)
}

#[derive(Debug, Clone)]
struct Entry<E> {
    at: Nanos,
    seq: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.seq == other.seq
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.seq).cmp(&(other.at, other.seq))
    }
}

/// Pending events in the order in which they will happen.
///
/// Events of one instant happen in the order in which they were scheduled, so a run depends on nothing else.
#[derive(Debug, Clone)]
pub struct Agenda<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    now: Nanos,
    seq: u64,
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), now: 0, seq: 0 }
    }
}

impl<E> Agenda<E> {
    /// The time of the event taken last.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Schedules an event; a time in the past means now.
    pub fn at(&mut self, at: Nanos, event: E) {
        self.seq += 1;
        self.heap.push(Reverse(Entry { at: at.max(self.now), seq: self.seq, event }));
    }

    /// Schedules an event `delay` nanoseconds from now.
    pub fn after(&mut self, delay: Nanos, event: E) {
        self.at(self.now.saturating_add(delay), event);
    }

    /// When the next event happens.
    #[must_use]
    pub fn peek(&self) -> Option<Nanos> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    /// Takes the next event that happens no later than `until` and moves the time to it.
    pub fn next(&mut self, until: Nanos) -> Option<E> {
        if self.peek()? > until {
            return None;
        }
        let Reverse(entry) = self.heap.pop()?;
        self.now = entry.at;
        Some(entry.event)
    }

    /// Moves the time forward to `at` when nothing is left to happen before.
    pub fn advance(&mut self, at: Nanos) {
        debug_assert!(self.peek().is_none_or(|next| next >= at), "an event would be skipped");
        self.now = self.now.max(at);
    }

    /// Every pending event with its time and sequence number, in no particular order.
    pub fn pending(&self) -> impl Iterator<Item = (Nanos, u64, &E)> {
        self.heap.iter().map(|Reverse(entry)| (entry.at, entry.seq, &entry.event))
    }

    /// Takes one event out of its turn. The time stays.
    pub fn take(&mut self, seq: u64) -> Option<(Nanos, E)> {
        let mut taken = None;
        let entries = std::mem::take(&mut self.heap).into_vec();
        for Reverse(entry) in entries {
            if entry.seq == seq {
                taken = Some((entry.at, entry.event));
            } else {
                self.heap.push(Reverse(entry));
            }
        }
        taken
    }

    /// Moves the time forward, whatever is pending before.
    pub fn overtake(&mut self, at: Nanos) {
        self.now = self.now.max(at);
    }

    /// Number of pending events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether nothing is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_instant_keep_their_order_and_time_never_goes_back() {
        let mut agenda = Agenda::default();
        for name in ["a", "b", "c"] {
            agenda.at(10, name);
        }
        agenda.at(5, "first");
        assert_eq!(agenda.next(4), None);
        assert_eq!(agenda.next(100), Some("first"));
        agenda.at(1, "late");
        assert_eq!(agenda.next(100), Some("late"));
        assert_eq!(agenda.now(), 5);
        assert_eq!([agenda.next(100), agenda.next(100), agenda.next(100)], [Some("a"), Some("b"), Some("c")]);
        assert!(agenda.is_empty());
    }
}
