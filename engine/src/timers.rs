//! The deadlines of a host: one ordered set, whatever their number.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::model::Instant;

/// Deadlines by key; a key has at most one. Every operation is O(log n).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct Timers<K: Ord> {
    due: BTreeSet<(Instant, K)>,
    at: BTreeMap<K, Instant>,
}

impl<K: Ord + Clone> Timers<K> {
    pub(crate) fn new() -> Self {
        Self { due: BTreeSet::new(), at: BTreeMap::new() }
    }

    /// Sets or moves the deadline of a key.
    pub(crate) fn set(&mut self, key: K, at: Instant) {
        if let Some(before) = self.at.insert(key.clone(), at) {
            self.due.remove(&(before, key.clone()));
        }
        self.due.insert((at, key));
    }

    /// Forgets the deadline of a key.
    pub(crate) fn cancel(&mut self, key: &K) {
        if let Some(at) = self.at.remove(key) {
            self.due.remove(&(at, key.clone()));
        }
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<(Instant, &K)> {
        self.due.first().map(|(at, key)| (*at, key))
    }

    /// Takes the earliest deadline that is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<K> {
        if self.next()?.0 > now {
            return None;
        }
        let (_, key) = self.due.pop_first()?;
        self.at.remove(&key);
        Some(key)
    }

    pub(crate) fn is_set(&self, key: &K) -> bool {
        self.at.contains_key(key)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.at.len()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.at.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_deadline_and_due_ones_come_in_order() {
        let at = Instant::from_nanos;
        let mut timers = Timers::new();
        timers.set("a", at(5));
        timers.set("b", at(3));
        timers.set("a", at(1));
        assert_eq!(timers.next(), Some((at(1), &"a")));
        assert_eq!(timers.len(), 2);
        timers.cancel(&"b");
        assert_eq!(timers.pop_due(at(0)), None);
        assert_eq!(timers.pop_due(at(9)), Some("a"));
        assert_eq!(timers.pop_due(at(9)), None);
        assert!(!timers.is_set(&"b"));
    }
}
