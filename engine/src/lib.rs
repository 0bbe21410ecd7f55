//! Spotmesh.
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod link;
pub mod model;
pub mod store;

#[cfg(feature = "driver")]
pub mod driver;
