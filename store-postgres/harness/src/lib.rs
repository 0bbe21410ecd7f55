//! Throw-away PostgreSQL servers for tests, and ways to hurt them.
//!
//! [`Server::shared`] gives a test process one server; [`Server::start`] gives a test one of its own, which it may
//! stop, restart and pause. Nothing of a server outlives the process that started it, however that process ends.
//! [`Proxy`] stands between clients and a server and cuts connections at a named [`Phase`] of an operation.

mod cluster;
mod directory;
mod error;
mod faults;
mod processes;
mod programs;
mod proxy;
mod server;
mod settings;
mod user;
mod watchdog;

pub use error::HarnessError;
pub use faults::Exhaustion;
pub use proxy::{Phase, Proxy};
pub use server::{Server, URL_VARIABLE};
pub use settings::Settings;
