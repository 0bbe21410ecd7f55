//! Simulated Spotmesh clusters under faults.
//!
//! The stepped world drives any number of [`spotmesh`] cores over a simulated network, the memory store's pure
//! `apply`, scripted applications and clocks of its own: one heap of (time, sequence, event), no threads, no
//! real clock. A run is a list of actions, drawn from a seed or read from a file, so it replays and shrinks.

#[cfg(not(madsim))]
compile_error!("needs --cfg madsim: run cargo from the workspace root, or add `--cfg madsim` to RUSTFLAGS");

pub mod action;
pub mod agenda;
pub mod cli;
pub mod clock;
pub mod cluster;
pub mod digest;
pub mod draw;
pub mod exhaust;
pub mod mad;
pub mod net;
pub mod oracle;
pub mod outcome;
pub mod page;
pub mod place;
pub mod plan;
pub mod scenario;
pub mod script;
pub mod shrink;
pub mod store;
pub mod trace;
pub mod world;
