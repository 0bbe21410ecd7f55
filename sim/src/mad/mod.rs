//! Clusters under madsim: the async driver and the embedding API on simulated nodes, in virtual time.
//!
//! What the stepped world cannot see lives between core and application: task order, cancellation, handlers
//! that hang or panic, a process killed in the middle of an await. This driver runs the production loop, byte
//! for byte, over the same [`Network`](crate::net::Network) the stepped world uses, so links stay ordered and
//! break in the same ways (madsim's own endpoint is unordered). Users can run their own Actors in it.

mod clock;
mod cluster;
mod network;
mod store;

pub use clock::{MadClock, MadExecutor};
pub use cluster::{Cluster, with_seed};
pub use network::{MadNetwork, MadTransport};
pub use store::MadStore;
