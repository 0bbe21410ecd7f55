//! Lost answers: every mutation settles to one effect by re-issue (STORE-23..25).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;

use super::fixture::*;
use super::provider::{Capacity, Provider};
use super::settle_script;
use crate::driver::{FaultPlan, FaultyStore, LocationStore, StoreFault};
use crate::model::{LeaseRef, ObjectKey, StoreVersion};
use crate::store::*;

/// How every mutation of a run is treated before it is re-issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// No fault, no re-issue.
    Nothing,
    /// The request is lost.
    Request,
    /// The answer is lost.
    Answer,
    /// The request arrives a second time, right after its re-issue.
    LateBySteps,
    /// The request arrives a second time after everything else.
    LateAtEnd,
}

/// The fault of the next call.
#[derive(Default)]
struct Next(Mutex<StoreFault>);

impl FaultPlan for Next {
    fn on_call(&self, _: &StoreRequest) -> (StoreFault, Duration) {
        (std::mem::take(&mut *self.0.lock().expect("not poisoned")), Duration::ZERO)
    }

    fn drops_event(&self, _: &WatchScope, _: &StoreEvent) -> bool {
        false
    }
}

/// What was seen after a step: its name, the counters of the nodes, the row concerned.
type Seen = (&'static str, Vec<Capacity>, Option<String>);

/// One run of the script under one kind of loss.
pub(crate) struct Run<'w, 'p, P> {
    pub world: &'w World<'p, P>,
    pub loss: Loss,
    store: FaultyStore<Arc<dyn LocationStore>, Next>,
    seen: Mutex<Vec<Seen>>,
    nodes: Mutex<Vec<Node>>,
}

impl<P: Provider> Run<'_, '_, P> {
    /// A node id that no other run uses.
    pub(crate) fn name(&self, text: &str) -> String {
        format!("{text}-{:?}", self.loss)
    }

    pub(crate) fn watch_node(&self, node: &Node) {
        self.nodes.lock().expect("not poisoned").push(node.clone());
    }

    /// Leases of the first two nodes, which live through the whole run.
    pub(crate) fn living_leases(&self) -> Vec<LeaseRef> {
        self.nodes.lock().expect("not poisoned").iter().take(2).map(|node| node.fence.lease).collect()
    }

    /// Issues a mutation under this run's loss, settles it by re-issue and records what is seen of `key`.
    pub(crate) async fn step(
        &self,
        request: impl Into<StoreRequest>,
        key: Option<&ObjectKey>,
    ) -> StoreResult {
        let request: StoreRequest = request.into();
        let fault = match self.loss {
            Loss::Nothing => StoreFault::None,
            Loss::Request => StoreFault::LoseRequest,
            Loss::Answer => StoreFault::LoseAnswer,
            // Content that arrives again long after its creation ended would let a late reserve arrive again as
            // well. The target's own scan ends such a row (CREATE-93); a store alone cannot.
            Loss::LateAtEnd if matches!(request, StoreRequest::PutCreationContent(_)) => {
                StoreFault::LoseAnswer
            }
            Loss::LateBySteps | Loss::LateAtEnd => StoreFault::ApplyLate,
        };
        let mut result = {
            *self.store.plan().0.lock().expect("not poisoned") = fault;
            self.store.call(request.clone()).await
        };
        if self.loss != Loss::Nothing {
            assert_eq!(result, Err(StoreError::Indeterminate));
            result = self.store.call(request.clone()).await;
        }
        if self.loss == Loss::LateBySteps {
            self.store.deliver_late().await;
        }
        let row = match key {
            Some(key) => self.world.read(key).await.found().map(summary),
            None => None,
        };
        let seen = (request.name(), self.capacities().await, row);
        self.seen.lock().expect("not poisoned").push(seen);
        result
    }

    /// As [`Self::step`], with the reply every run must get.
    pub(crate) async fn done<O: StoreOperation>(&self, operation: O, key: Option<&ObjectKey>) -> O::Output {
        let request = operation.into_request();
        let name = request.name();
        let reply = self.step(request, key).await;
        let reply = reply.unwrap_or_else(|error| panic!("{name} under {:?}: {error:?}", self.loss));
        O::from_reply(reply).expect("the operation's own output")
    }

    /// A removal whose re-issue may find nothing left to remove: absence is enough (STORE-25).
    pub(crate) async fn gone(&self, request: impl Into<StoreRequest>, key: &ObjectKey) {
        let result = self.step(request, Some(key)).await;
        let settled = match &result {
            Ok(_) => true,
            Err(error) => error.conflict_reason() == Some(ConflictReason::VersionMismatch),
        };
        assert!(settled, "{key} under {:?}: {result:?}", self.loss);
        self.world.assert_missing(key).await;
    }

    async fn capacities(&self) -> Vec<Capacity> {
        let nodes = self.nodes.lock().expect("not poisoned").clone();
        let mut capacities = Vec::new();
        for node in &nodes {
            capacities.push(self.world.capacity(node).await);
        }
        capacities
    }
}

/// What two runs must agree on of a row: everything but its identities.
fn summary(row: &AuthorityView) -> String {
    let mark = match row.mark() {
        None => "unmarked".to_owned(),
        Some(Mark::Closing(_)) => "Closing".to_owned(),
        Some(Mark::Relocating(mark)) => format!("{:?} {} {:?}", mark.phase, mark.attempt, mark.move_counts),
    };
    let membership = match &row.membership {
        Membership::None => "no membership".to_owned(),
        Membership::Entry { .. } => "in the Entry Spot".to_owned(),
        Membership::User { .. } => "in a User Spot".to_owned(),
        Membership::Members { count, generation, .. } => format!("{count} members, {generation:?}"),
    };
    format!("{:?}, {mark}, {membership}", row.allocation)
}

/// STORE-T22.
pub async fn every_mutation_settles_to_one_effect(provider: &impl Provider) {
    let world = World::new(provider);
    let mut expected: Option<Vec<Seen>> = None;
    for loss in [Loss::Nothing, Loss::Request, Loss::Answer, Loss::LateBySteps, Loss::LateAtEnd] {
        let sleep: crate::driver::Sleep = Arc::new(|_| futures::future::ready(()).boxed());
        let store = FaultyStore::new(provider.store(), Next::default(), sleep);
        let run = Run { world: &world, loss, store, seen: Mutex::default(), nodes: Mutex::default() };
        let keys = settle_script::run(&run).await;
        let before = (run.capacities().await, rows(&world, &keys).await);
        run.store.deliver_late().await;
        let after = (run.capacities().await, rows(&world, &keys).await);
        assert_eq!(before, after, "late requests after the end changed something");
        provider.check().await;
        let seen = std::mem::take(&mut *run.seen.lock().expect("not poisoned"));
        match &expected {
            None => {
                let named: BTreeSet<_> = seen.iter().map(|(name, ..)| *name).collect();
                let all: BTreeSet<_> = StoreRequest::OPERATIONS
                    .iter()
                    .filter(|(_, mutates)| *mutates)
                    .map(|(name, _)| *name)
                    .collect();
                assert_eq!(named, all, "the script issues every mutation");
                expected = Some(seen);
            }
            Some(expected) => {
                assert_eq!(seen.len(), expected.len());
                for (found, expected) in seen.iter().zip(expected) {
                    assert_eq!(found, expected, "under {loss:?}");
                }
            }
        }
    }
}

async fn rows<P: Provider>(world: &World<'_, P>, keys: &[ObjectKey]) -> Vec<Option<(StoreVersion, String)>> {
    let mut rows = Vec::new();
    for key in keys {
        rows.push(world.read(key).await.found().map(|row| (row.version, summary(row))));
    }
    rows
}
