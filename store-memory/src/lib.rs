//! The Location Store in memory.
//!
//! [`apply`] is the executable reference of the Store contract (spec 03): a pure function of a [`State`], the Store
//! time and a request. [`MemoryStore`] wraps it for use as a [`spotmesh::driver::LocationStore`].
//!
//! ```
//! use spotmesh::model::{OwnerId, StoreTime};
//! use spotmesh::store::{AcquireLease, StoreReply};
//! use spotmesh_store_memory::{State, apply};
//!
//! let mut state = State::new();
//! let owner = OwnerId::new(7).expect("not zero");
//! let request = AcquireLease { owner, ttl: std::time::Duration::from_secs(15) }.into();
//! let now = StoreTime::from_micros(1_000_000);
//! let Ok(StoreReply::Granted(grant)) = apply(&mut state, now, &request) else { unreachable!() };
//! assert_eq!(grant.expires_at, StoreTime::from_micros(16_000_000));
//! state.check().expect("counters equal rows");
//! ```
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod aggregate;
mod apply;
mod capacity;
mod check;
mod close;
mod content;
mod creation;
mod lease;
mod membership;
mod node;
mod page;
mod per_actor;
mod read;
mod relocation;
mod sequence;
pub mod slice;
mod state;
mod store;
mod sweep;
mod table;
mod view;
mod watch;

pub use apply::{apply, apply_with_hints};
pub use capacity::{NodeUse, SlotUse};
pub use state::State;
pub use store::MemoryStore;
