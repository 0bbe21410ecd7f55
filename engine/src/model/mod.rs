//! Types without behaviour: identifiers, generations, refs, policies, limits, errors and time.
//!
//! A value of one of these types is legal by construction (spec 01 §1–3, spec 10 §2 and §5): the
//! constructors refuse everything else, and deserialization goes through the constructors, so a
//! decoder cannot build an illegal value either.

mod entropy;
mod error;
mod generation;
mod id128;
mod key;
pub mod limits;
mod policy;
mod text;
mod time;

pub use entropy::Entropy;
pub use error::{Error, ErrorKind};
pub use generation::{
    AggregateGeneration, AuthorityOwnerGeneration, Correlation, DescriptorRevision, LeaseGeneration,
    LifecycleGeneration, ObjectGeneration, StoreVersion,
};
pub use id128::{
    ActivationId, AggregateId, ContentId, OperationId, OwnerId, RelocationId, ReservationId, Sha256Digest,
};
pub use key::{ActorRef, LeaseRef, NodeFence, ObjectKey, ObjectKind, OperationIdentity, SpotKind, SpotRef};
pub use policy::{ExecutionMode, HostState, ObjectRole, RelocationPolicy, RoutingMode, Weight};
pub use text::{
    ActorId, ChannelName, IllegalId, MeshName, PacketName, Prefix, Rid, SecurityIdentity, SpotId, StableType,
};
pub use time::{Instant, StoreTime};
