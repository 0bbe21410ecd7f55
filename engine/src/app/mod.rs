//! The embedding API: what a service implements, describes, starts and calls.
//!
//! An [`Actor`] is a type with state; [`Handle`] gives it one message at a time. A [`HostBuilder`] says which
//! types which node can own, a [`HostHandle`] creates Actors and talks to them, and handlers do the same
//! through their context. Everything that can fail fails with one [`Error`].

mod actor;
mod adapter;
mod address;
mod builder;
mod calls;
mod context;
mod create;
mod factory;
mod host;
mod local_world;
mod mesh_builder;
mod message;
mod plan;
mod start;
mod target;
mod typed;

#[cfg(test)]
mod tests;

pub use actor::{Actor, Admission, Handle, PreserveState, Versioned};
pub use adapter::StateAdapter;
pub use address::{Address, IntoActorId};
pub use builder::HostBuilder;
pub use calls::FindCall;
pub use context::{ActorContext, CreateContext, Fence};
pub use create::{Actors, CreateCall, Created};
pub use factory::{Factory, Registered};
pub use host::{HostHandle, ShutdownCall, ShutdownOutcome};
pub use local_world::LocalWorld;
pub use mesh_builder::MeshBuilder;
pub use message::{Message, is_legal_name, packet_of};
pub use plan::HostPlan;
pub use target::{ActorTarget, AnyTarget, RequestCall, SendCall};

pub use crate::driver::{CallFuture, Observer, TurnPlacement};
pub use crate::model::{Error, ErrorKind};
