//! Hosts as a whole: placement, activation limits, what a shutdown leaves behind, and what is watched.

use std::collections::{BTreeMap, BTreeSet};

use spotmesh::input::TurnId;
use spotmesh::link::NodeIndex;
use spotmesh::model::{LifecycleGeneration, ObjectKey};
use spotmesh::output::{Turn, Work};
use spotmesh::store::{ReadLease, StoreReply, StoreRequest, UpdateOutcome};

use super::ownership::Ownership;
use super::rows::Rows;
use super::{Verdicts, describe};
use crate::agenda::Nanos;
use crate::place::RunOf;
use crate::store::{Applied, StoreSide};

/// How long an old weight may still be in somebody's listing: polls, a slow answer, a retry.
const LISTING_AGE: Nanos = 3_000_000_000;

/// What is remembered of hosts.
#[derive(Debug, Clone, Default)]
pub struct Hosts {
    /// Published placement weights over time, newest last.
    weights: BTreeMap<LifecycleGeneration, Vec<(Nanos, u16)>>,
    /// Create turns that run, per node.
    creating: BTreeMap<(RunOf, NodeIndex), Vec<TurnId>>,
    /// Admitted messages that were dropped later, as observers were told.
    dropped: BTreeMap<(RunOf, ObjectKey), u64>,
    /// Since when a process drains, in both clocks' one world time.
    draining: BTreeMap<RunOf, Nanos>,
    /// Processes that saw the grant of their owner lease.
    confirmed: BTreeSet<RunOf>,
}

impl Hosts {
    /// A process saw the grant of its owner lease.
    pub fn confirmed(&mut self, run: RunOf) {
        self.confirmed.insert(run);
    }

    /// Whether a process saw the grant of its owner lease.
    #[must_use]
    pub fn is_confirmed(&self, run: RunOf) -> bool {
        self.confirmed.contains(&run)
    }

    /// A process began to drain (HOST-52 step 1).
    pub fn drains(&mut self, at: Nanos, run: RunOf) {
        self.draining.entry(run).or_insert(at);
    }

    /// Since when a process drains.
    #[must_use]
    pub fn draining_since(&self, run: RunOf) -> Option<Nanos> {
        self.draining.get(&run).copied()
    }

    /// A reservation succeeds: its target must not have been draining for long (CREATE-79, STORE-75).
    ///
    /// `free` is since when nothing kept the target from telling the Store.
    pub fn reserved(
        &mut self,
        verdicts: &mut Verdicts,
        at: Nanos,
        target: RunOf,
        free: Nanos,
        key: &ObjectKey,
    ) {
        let Some(since) = self.draining_since(target) else { return };
        if free < since && since + LISTING_AGE < at {
            verdicts.report(
                "placement",
                at,
                format!("{key} is reserved at {target}, which drains since {since}"),
            );
        }
    }

    /// The Store carried something out. `free` is since when nothing kept the caller from reading listings.
    pub fn applied(&mut self, verdicts: &mut Verdicts, at: Nanos, applied: &Applied, free: Nanos) {
        match (&applied.request, &applied.result) {
            (StoreRequest::PublishDescriptor(publish), Ok(_)) => {
                let descriptor = &publish.descriptor;
                self.weights
                    .entry(descriptor.lifecycle)
                    .or_default()
                    .push((at, descriptor.placement_weight.get()));
            }
            (StoreRequest::UpdateDescriptor(update), Ok(StoreReply::Updated(updated)))
                if matches!(updated.value, UpdateOutcome::Applied(_)) =>
            {
                let descriptor = &update.descriptor;
                self.weights
                    .entry(descriptor.lifecycle)
                    .or_default()
                    .push((at, descriptor.placement_weight.get()));
            }
            (StoreRequest::Reserve(reserve), Ok(_)) => {
                let from = at.saturating_sub(LISTING_AGE);
                let history = self.weights.get(&reserve.target.lifecycle).map_or(&[][..], Vec::as_slice);
                let before = history.iter().rev().find(|(when, _)| *when <= from);
                let recent = history.iter().filter(|(when, _)| *when > from);
                let any = before.into_iter().chain(recent).any(|(_, weight)| *weight > 0);
                if !any && free + 1_000_000_000 < from {
                    let text =
                        format!("{} reserves at {}, whose weight is 0", applied.by, reserve.target.rid);
                    verdicts.report("placement", at, text);
                }
            }
            _ => {}
        }
    }

    /// A turn starts on a node that accepts so many activations at once (NODE-45).
    pub fn started(&mut self, verdicts: &mut Verdicts, at: Nanos, run: RunOf, turn: &Turn, limit: u32) {
        if !matches!(turn.work, Work::Create { .. }) {
            return;
        }
        let running = self.creating.entry((run, turn.node)).or_default();
        running.push(turn.turn);
        if running.len() > limit as usize {
            let text =
                format!("{}: {} activations, the limit is {limit}", describe(run, turn), running.len());
            verdicts.report("limit", at, text);
        }
    }

    /// A turn ended or was given up.
    pub fn ended(&mut self, run: RunOf, turn: TurnId) {
        for ((owner, _), running) in &mut self.creating {
            if *owner == run {
                running.retain(|other| *other != turn);
            }
        }
    }

    /// A process is gone.
    pub fn process_died(&mut self, run: RunOf) {
        self.creating.retain(|(owner, _), _| *owner != run);
    }

    /// An admitted message was dropped, and an observer told (ERR-10).
    pub fn message_dropped(&mut self, run: RunOf, key: ObjectKey) {
        *self.dropped.entry((run, key)).or_default() += 1;
    }

    /// How many admitted messages for a key a process dropped.
    #[must_use]
    pub fn dropped(&self, run: RunOf, key: &ObjectKey) -> u64 {
        self.dropped.get(&(run, key.clone())).copied().unwrap_or_default()
    }
}

/// A host says that its Shutdown ended in order: nothing of it may be left in the Store (HOST-52).
pub fn check_shutdown(
    verdicts: &mut Verdicts,
    at: Nanos,
    run: RunOf,
    (ownership, rows): (&Ownership, &Rows),
    store: &mut StoreSide,
) {
    let Some(lease) = ownership.lease(run) else { return };
    for key in rows.keys() {
        if store.row(key, at).is_some_and(|row| row.owner.lease == lease) {
            verdicts.report("shutdown", at, format!("{run} has stopped in order and still owns {key}"));
        }
    }
    if let Ok(StoreReply::Lease(view)) = store.ask(at, &StoreRequest::ReadLease(ReadLease { lease }))
        && view.value.is_live(StoreSide::time(at))
    {
        verdicts.report("shutdown", at, format!("{run} has stopped in order and keeps its lease"));
    }
}
