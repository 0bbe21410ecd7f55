//! The peers of one MeshNode: who is wanted, who is dialled, who is admitted, who is alive (spec 02 §5–§6, §8–§12).
//!
//! ```text
//!             Store pages                       descriptors, intents
//! Discovery ───────────────▶ Listing ──────────▶ Peers ─┬─ Intent     one per wish to stay connected (§12)
//!                               │                       ├─ Admission  one per link: the handshake (§11)
//!                               ▼                       └─ Liveness   one per ready link (§12.1)
//!                       placement::choose
//! ```
//!
//! Everything here is plain data: time and randomness are parameters, and what should happen is returned
//! as effects for the host to carry out in order.

mod admission;
mod discovery;
mod intent;
mod liveness;
mod local;
mod peers;
mod placement;

pub(crate) use discovery::{Discovery, DiscoveryEffect, DiscoveryEvent, DiscoveryTimer, ListedNode, Listing};
#[cfg(test)]
pub(crate) use intent::IntentKey;
pub(crate) use local::{DialIds, LocalNode};
pub(crate) use peers::{PeerEffect, PeerEvent, PeerTimer, Peers};
pub(crate) use placement::{Choice, choose};

#[cfg(test)]
mod tests;
