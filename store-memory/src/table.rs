//! One kind of record, whole or as far as it was loaded.

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Index, RangeBounds};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Records by key.
///
/// A whole table knows every record, so a key it does not hold has none. A partial table is a slice of records
/// kept elsewhere: it knows the keys that were loaded, and a look-up of any other key is noted as a miss, since
/// "no record" would be a guess. It also keeps what each record was before its first change. Equality, hash and
/// encoding see the records only.
pub(crate) struct Table<K, V> {
    entries: BTreeMap<K, V>,
    part: Option<Box<Part<K, V>>>,
}

struct Part<K, V> {
    loaded: BTreeSet<K>,
    missed: Mutex<BTreeSet<K>>,
    before: BTreeMap<K, Option<V>>,
}

impl<K: Ord + Clone, V: Clone> Part<K, V> {
    fn new() -> Self {
        Self { loaded: BTreeSet::new(), missed: Mutex::new(BTreeSet::new()), before: BTreeMap::new() }
    }

    fn looked_up(&self, key: &K) {
        if !self.loaded.contains(key) {
            // A set of keys is whole after any panic.
            self.missed.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
        }
    }

    fn missed(&self) -> BTreeSet<K> {
        self.missed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<K: Ord + Clone, V: Clone> Table<K, V> {
    pub(crate) fn partial() -> Self {
        Self { entries: BTreeMap::new(), part: Some(Box::new(Part::new())) }
    }

    /// Notes what is known of a key: its record, or that there is none.
    pub(crate) fn load(&mut self, key: K, record: Option<V>) {
        if let Some(record) = record {
            self.entries.insert(key.clone(), record);
        }
        if let Some(part) = &mut self.part {
            part.loaded.insert(key);
        }
    }

    /// Keys that were looked up and not loaded.
    pub(crate) fn missed(&self) -> BTreeSet<K> {
        self.part.as_ref().map(|part| part.missed()).unwrap_or_default()
    }

    /// Keys changed since they were loaded, with the record before and after; a change undone is none.
    pub(crate) fn changes(&self) -> Vec<(&K, Option<&V>, Option<&V>)>
    where
        V: PartialEq,
    {
        let before = self.part.iter().flat_map(|part| &part.before);
        before
            .map(|(key, before)| (key, before.as_ref(), self.entries.get(key)))
            .filter(|(_, before, after)| before != after)
            .collect()
    }

    fn changing(&mut self, key: &K) {
        if let Some(part) = &mut self.part {
            part.looked_up(key);
            if !part.before.contains_key(key) {
                part.before.insert(key.clone(), self.entries.get(key).cloned());
            }
        }
    }

    #[inline]
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        if let Some(part) = &self.part {
            part.looked_up(key);
        }
        self.entries.get(key)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.changing(key);
        self.entries.get_mut(key)
    }

    #[inline]
    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    #[inline]
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.changing(&key);
        self.entries.insert(key, value)
    }

    #[inline]
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.changing(key);
        self.entries.remove(key)
    }

    pub(crate) fn iter(&self) -> btree_map::Iter<'_, K, V> {
        self.entries.iter()
    }

    pub(crate) fn keys(&self) -> btree_map::Keys<'_, K, V> {
        self.entries.keys()
    }

    pub(crate) fn values(&self) -> btree_map::Values<'_, K, V> {
        self.entries.values()
    }

    pub(crate) fn range(&self, range: impl RangeBounds<K>) -> btree_map::Range<'_, K, V> {
        self.entries.range(range)
    }
}

impl<'a, K, V> IntoIterator for &'a Table<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = btree_map::Iter<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.iter()
    }
}

impl<K: Ord, V> Index<&K> for Table<K, V> {
    type Output = V;

    fn index(&self, key: &K) -> &V {
        &self.entries[key]
    }
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), part: None }
    }
}

impl<K: Ord + Clone, V: Clone> Clone for Table<K, V> {
    fn clone(&self) -> Self {
        let part = self.part.as_ref().map(|part| {
            Box::new(Part {
                loaded: part.loaded.clone(),
                missed: Mutex::new(part.missed()),
                before: part.before.clone(),
            })
        });
        Self { entries: self.entries.clone(), part }
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entries.fmt(f)
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for Table<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl<K: Eq, V: Eq> Eq for Table<K, V> {}

impl<K: Hash, V: Hash> Hash for Table<K, V> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.entries.hash(hasher);
    }
}

impl<K: Serialize, V: Serialize> Serialize for Table<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.entries.serialize(serializer)
    }
}

impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> Deserialize<'de> for Table<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self { entries: BTreeMap::deserialize(deserializer)?, part: None })
    }
}
