//! Stateful services whose live objects move between machines without losing a message.
//!
//! ```text
//!                  application: Actors, handlers
//!                               │  turns
//!  ┌────────────────────────────▼───────────────────────────┐
//!  │ app/      embedding API: traits, contexts, builders     │  async, futures only
//!  │ driver/   moves Input and Output between the core and   │  (no runtime named)
//!  │           Transport, LocationStore, Clock, Executor     │
//!  │ ┌────────────────────────────────────────────────────┐  │
//!  │ │ host/ over creation/ lease/ mesh/: sans-IO state   │  │
//!  │ │ machines; no async, clock, randomness of its own,  │  │
//!  │ │ sockets or threads; plain data throughout          │  │
//!  │ └────────────────────────────────────────────────────┘  │
//!  └─────────────────────────────────────────────────────────┘
//! ```
//!
//! The core promises: equal inputs at equal times with an equal seed give equal outputs, whatever runs it.
//! Simulations and production share every line above the Transport and the LocationStore.
//! `--no-default-features` builds the core alone.
//!
//! # A first Actor
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

/// The README's code runs as it stands there.
#[cfg(all(doctest, feature = "driver"))]
#[doc = include_str!("../../README.md")]
struct Readme;
