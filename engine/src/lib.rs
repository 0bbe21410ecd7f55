//! Spotmesh.
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod config;
pub mod event;
pub mod input;
pub mod link;
pub mod model;
pub mod output;
pub mod store;
pub mod wire;

#[cfg(feature = "driver")]
pub mod driver;

#[cfg(feature = "driver")]
pub mod app;
