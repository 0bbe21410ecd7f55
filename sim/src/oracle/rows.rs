//! Rows of the Store over time: generations only grow, and when each incarnation was Ready (STORE-10, MODEL-21).

use std::collections::{BTreeMap, BTreeSet};

use spotmesh::model::{AuthorityOwnerGeneration, LeaseRef, ObjectGeneration, ObjectKey, StoreVersion};
use spotmesh::store::{AuthorityView, StoreRequest};

use super::Verdicts;
use crate::agenda::Nanos;
use crate::store::{Applied, StoreSide};

/// A row as it was last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its incarnation.
    pub object_generation: ObjectGeneration,
    /// Its owner generation.
    pub owner_generation: AuthorityOwnerGeneration,
    /// Its owner's lease.
    pub lease: LeaseRef,
    /// Its version.
    pub version: StoreVersion,
    /// Ready rather than Creating.
    pub ready: bool,
}

/// One life of a key, from Ready on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    /// The incarnation.
    pub object_generation: ObjectGeneration,
    /// When it became Ready.
    pub from: Nanos,
    /// When its row went, if it did.
    pub until: Option<Nanos>,
}

/// Everything known of one key.
#[derive(Debug, Clone, Default)]
struct History {
    row: Option<Seen>,
    newest: Option<ObjectGeneration>,
    newest_version: Option<StoreVersion>,
    lives: Vec<Life>,
    ended_without_life: BTreeSet<ObjectGeneration>,
}

/// Rows over time.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    keys: BTreeMap<ObjectKey, History>,
}

/// The key a request can change, `None` where it can change any.
fn key_of(request: &StoreRequest) -> Option<&ObjectKey> {
    Some(match request {
        StoreRequest::Reserve(r) => &r.key,
        StoreRequest::CommitCreated(r) => &r.fence.key,
        StoreRequest::CommitRejected(r) => &r.fence.key,
        StoreRequest::AbortFailed(r) => &r.fence.key,
        StoreRequest::AbortNotExecuted(r) => &r.fence.key,
        StoreRequest::AbortRecovery(r) => &r.key,
        StoreRequest::BeginClose(r) => &r.fence.key,
        StoreRequest::FinishClose(r) => &r.fence.key,
        StoreRequest::FinishStaleClose(r) => &r.key,
        _ => return None,
    })
}

fn changes_many(request: &StoreRequest) -> bool {
    matches!(request, StoreRequest::RemoveOwnerRows(_) | StoreRequest::RetireOwner(_))
}

impl Rows {
    /// The Store carried something out. Returns the key that may have changed.
    pub fn applied(
        &mut self,
        verdicts: &mut Verdicts,
        at: Nanos,
        applied: &Applied,
        store: &mut StoreSide,
    ) -> Option<ObjectKey> {
        if applied.result.is_err() {
            return None;
        }
        if let Some(key) = key_of(&applied.request) {
            let row = store.row(key, at);
            self.observe(verdicts, at, key, row.as_deref());
            return Some(key.clone());
        } else if changes_many(&applied.request) {
            let keys: Vec<ObjectKey> = self.keys.keys().cloned().collect();
            for key in keys {
                let row = store.row(&key, at);
                self.observe(verdicts, at, &key, row.as_deref());
            }
        }
        None
    }

    fn observe(&mut self, verdicts: &mut Verdicts, at: Nanos, key: &ObjectKey, row: Option<&AuthorityView>) {
        let history = self.keys.entry(key.clone()).or_default();
        let now = row.map(|row| Seen {
            object_generation: row.object_generation,
            owner_generation: row.owner_generation,
            lease: row.owner.lease,
            version: row.version,
            ready: row.pending().is_none(),
        });
        let mut report = |text: String| verdicts.report("generations", at, format!("{key}: {text}"));
        if let Some(now) = &now {
            if history.newest.is_some_and(|newest| now.object_generation < newest) {
                report(format!("generation {} after {:?}", now.object_generation, history.newest));
            }
            if history.newest_version.is_some_and(|newest| now.version < newest) {
                report(format!("version {} after {:?}", now.version, history.newest_version));
            }
            history.newest = Some(now.object_generation);
            history.newest_version = Some(now.version);
        }
        let before = history.row.take();
        if let (Some(before), Some(now)) = (&before, &now)
            && before.object_generation == now.object_generation
        {
            if now.owner_generation < before.owner_generation {
                report(format!(
                    "owner generation {} after {}",
                    now.owner_generation, before.owner_generation
                ));
            }
            if before.lease != now.lease {
                report("the owner changed inside an incarnation, and nothing moves here".to_owned());
            }
            if before.ready && !now.ready {
                report("Ready turned into Creating".to_owned());
            }
        }
        let ended = before.filter(|before| {
            now.as_ref().is_none_or(|now| now.object_generation != before.object_generation)
        });
        if let Some(before) = ended {
            if before.ready {
                if let Some(life) = history.lives.last_mut() {
                    life.until = Some(at);
                }
            } else {
                history.ended_without_life.insert(before.object_generation);
            }
        }
        if let Some(now) = now.as_ref().filter(|now| now.ready) {
            if history.ended_without_life.contains(&now.object_generation) {
                report(format!("generation {} became Ready after it had ended", now.object_generation));
            }
            if history.lives.last().is_none_or(|life| life.object_generation != now.object_generation) {
                history.lives.push(Life { object_generation: now.object_generation, from: at, until: None });
            }
        }
        history.row = now;
    }

    /// The row as it was last seen.
    #[must_use]
    pub fn row(&self, key: &ObjectKey) -> Option<&Seen> {
        self.keys.get(key)?.row.as_ref()
    }

    /// All lives of a key, oldest first.
    #[must_use]
    pub fn lives(&self, key: &ObjectKey) -> &[Life] {
        self.keys.get(key).map_or(&[], |history| &history.lives)
    }

    /// Whether this incarnation was Ready at some time in `from..=until`.
    #[must_use]
    pub fn was_ready(
        &self,
        key: &ObjectKey,
        generation: ObjectGeneration,
        from: Nanos,
        until: Nanos,
    ) -> bool {
        self.lives(key).iter().any(|life| {
            life.object_generation == generation
                && life.from <= until
                && life.until.is_none_or(|ended| ended >= from)
        })
    }

    /// Whether the key was not Ready at some time in `from..=until`.
    #[must_use]
    pub fn was_absent(&self, key: &ObjectKey, from: Nanos, until: Nanos) -> bool {
        // Ready throughout: one life covers the whole interval.
        !self.lives(key).iter().any(|life| life.from <= from && life.until.is_none_or(|ended| ended > until))
    }

    /// Every key that ever had a row.
    pub fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.keys.keys()
    }
}
