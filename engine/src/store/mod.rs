//! The Location Store contract as plain data (spec 03): requests, replies, records, failures.
//!
//! The Store alone decides which node runs an object (STORE-1). A provider turns a [`StoreRequest`] into a
//! [`StoreResult`]; how it does so is its own business, and the shared contract suite checks it. Nothing
//! here does I/O or reads a clock.

#[cfg(feature = "contract-tests")]
pub mod contract;
mod descriptor;
mod error;
mod mark;
mod operation;
mod record;
mod reply;
mod request;
mod resolve;

pub use descriptor::{Descriptor, DescriptorEntry, DescriptorPage, LIMIT_MAX, PageToken, TypeCapability};
pub use error::{Component, ConflictReason, StoreError};
pub use mark::{
    InventoryChunk, InventoryEntry, Mark, MoveCounts, PreparedAggregate, RelocationMark, RelocationPhase,
};
pub use operation::StoreOperation;
pub use record::{
    Activation, Aggregate, Allocation, AuthorityPage, AuthorityRead, AuthorityState, AuthorityView, Bundle,
    Content, CreationSource, CreationView, ENTRY_STABLE_TYPE, LeaseGrant, LeaseState, LeaseView, Membership,
    OwnerFence, PendingCreation, ReadyObject, ReservationFence, SpotType, Stamped, TerminalEnvelope,
    TerminalOutcome, TerminalRecord,
};
pub use reply::{PrepareOutcome, PutOutcome, StoreEvent, StoreReply, StoreResult, UpdateOutcome, WatchScope};
pub use request::*;
pub use resolve::{Resolution, resolve};
