//! What a provider lends the suite besides its store.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::driver::LocationStore;
use crate::model::NodeFence;
use crate::store::SpotType;

/// Active and reserved slots of one component.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slots {
    /// In use.
    pub active: u64,
    /// Promised.
    pub reserved: u64,
}

/// Capacity counters of one node lifecycle. A component without a counter is at zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Actors.
    pub actors: Slots,
    /// User and Instance Spots.
    pub spots: Slots,
    /// Spots of each type that has any.
    pub types: BTreeMap<SpotType, Slots>,
}

/// One fresh Store namespace, with the few powers over it that no client has.
///
/// Every test of the suite gets a provider of its own.
pub trait Provider: Send + Sync {
    /// The store. Every call gives access to the same namespace.
    fn store(&self) -> Arc<dyn LocationStore>;

    /// Moves the Store clock forward. Time may also pass by itself, but by little during a test.
    fn advance(&self, by: Duration) -> impl Future<Output = ()> + Send;

    /// The counters of a node lifecycle as stored; they never show in the contract itself.
    fn capacity(&self, node: &NodeFence) -> impl Future<Output = Capacity> + Send;

    /// Checks the stored records for consistency; panics with what does not hold.
    fn check(&self) -> impl Future<Output = ()> + Send;

    /// Lets only `remaining` more values be issued of every sequence (STORE-10).
    fn leave_generations(&self, remaining: u64) -> impl Future<Output = ()> + Send;

    /// Breaks what the provider hears of changes through, and lets it reconnect (STORE-112).
    fn interrupt_watches(&self) -> impl Future<Output = ()> + Send;
}
