//! Hosts in one process and on one thread, in virtual time: for tests, examples and a first look.
//!
//! [`LocalRuntime`] is a Clock and an Executor, [`LocalNetwork`] makes Transports that reach each other. Both
//! are complete implementations of the driver's traits; nothing of them is meant for production, which needs
//! real time, threads and sockets.

mod network;
mod runtime;

pub use network::{LocalNetwork, LocalTransport};
pub use runtime::LocalRuntime;
