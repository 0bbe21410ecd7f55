//! Moves Input and Output between the core and Transport, LocationStore, Clock and Executor.

mod store;
mod transport;

pub use store::{LocationStore, LocationStoreExt};
pub use transport::Transport;
