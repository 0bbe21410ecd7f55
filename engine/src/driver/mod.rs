//! Moves Input and Output between the core and Transport, LocationStore, Clock and Executor.
//!
//! One loop a host (design §3): it collects what is ready (transport events, Store answers, calls of handles,
//! ended turns, the deadline), feeds the core one input at a time and carries out what follows before the next
//! one, so that the core is mutated from a single place. A turn is polled inside the loop the moment the core
//! starts it; only a turn that waits costs more than that, and [`TurnPlacement`] says where it goes then.

mod call;
mod calls;
mod clock;
mod core;
mod drive;
mod executor;
mod fault;
mod inbox;
mod instance;
pub mod local;
mod observe;
mod pending;
mod port;
mod store;
mod transport;
mod turns;

pub use call::CallFuture;
pub use clock::Clock;
pub use executor::Executor;
pub use fault::{FaultPlan, FaultyStore, Sleep, StoreFault};
pub use observe::Observer;
pub use store::{LocationStore, LocationStoreExt};
pub use transport::Transport;
pub use turns::TurnPlacement;

#[cfg(test)]
mod sizes_tests;
#[cfg(test)]
pub(crate) use self::core::Core;
pub(crate) use call::loop_is_gone;
pub(crate) use drive::{Driver, Surroundings};
pub(crate) use inbox::Arrival;
pub(crate) use instance::{Application, EncodedMessage, Instance, Outcome, Started, TurnFuture, TurnScope};
pub(crate) use port::Port;
