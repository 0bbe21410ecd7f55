//! Moves Input and Output between the core and Transport, LocationStore, Clock and Executor.

mod transport;

pub use transport::Transport;
