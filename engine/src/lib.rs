//! Spotmesh.
#![cfg_attr(feature = "driver", doc = "", doc = include_str!("app/first_actor.md"))]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod config;
mod creation;
pub mod event;
pub mod host;
pub mod input;
mod lease;
pub mod link;
pub mod mark;
mod mesh;
pub mod model;
pub mod output;
pub mod planted;
pub mod store;
mod timers;
pub mod wire;

#[cfg(feature = "driver")]
pub mod driver;

#[cfg(feature = "driver")]
pub mod app;
