//! Who takes part in a run, and how fast network and Store are.

use serde::{Deserialize, Serialize};
use spotmesh::model::ObjectRole;
use spotmesh::model::limits::Settings;

use crate::clock::RATE_ONE;
use crate::net::NetworkSpec;

/// Who takes part in a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// The hosts, addressed as 0, 1, 2…
    pub hosts: Vec<HostSpec>,
    /// How fast the network is.
    #[serde(default)]
    pub network: NetworkSpec,
    /// How fast the Store is.
    #[serde(default)]
    pub store: StoreSpec,
    /// Durations of every host.
    #[serde(default)]
    pub settings: Settings,
}

/// One host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostSpec {
    /// Its nodes.
    pub nodes: Vec<NodeSpec>,
    /// Rate of its monotonic clock, in parts per million of the world's.
    #[serde(default = "rate_one")]
    pub clock_rate: u32,
    /// When it starts, in milliseconds.
    #[serde(default)]
    pub start_ms: u64,
    /// Whether a restarted process listens where its predecessor did.
    #[serde(default)]
    pub same_endpoint: bool,
}

/// One MeshNode of a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// The Mesh.
    #[serde(default = "default_mesh")]
    pub mesh: String,
    /// What it is for objects.
    #[serde(default = "server")]
    pub role: ObjectRole,
    /// A fixed RID; automatic when absent.
    #[serde(default)]
    pub rid: Option<String>,
    /// Actor types it can own.
    #[serde(default = "default_types")]
    pub types: Vec<String>,
    /// Actors at most, 0 is unlimited.
    #[serde(default)]
    pub actor_limit: u32,
    /// Concurrent activations at most.
    #[serde(default = "default_pending")]
    pub pending_limit: u32,
    /// Placement weight.
    #[serde(default = "default_weight")]
    pub weight: u16,
}

impl Default for NodeSpec {
    fn default() -> Self {
        Self {
            mesh: default_mesh(),
            role: server(),
            rid: None,
            types: default_types(),
            actor_limit: 0,
            pending_limit: default_pending(),
            weight: default_weight(),
        }
    }
}

/// How fast the Store is. Times in microseconds.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StoreSpec {
    /// Shortest and longest way to the Store and back, each.
    pub way_us: (u64, u64),
    /// So many of a thousand calls take `spike_us` longer.
    #[serde(default)]
    pub spike_permille: u64,
    /// See `spike_permille`.
    #[serde(default)]
    pub spike_us: u64,
    /// Delay of a hint.
    pub hint_us: (u64, u64),
}

impl Default for StoreSpec {
    fn default() -> Self {
        Self { way_us: (100, 800), spike_permille: 0, spike_us: 0, hint_us: (100, 3_000) }
    }
}

const fn rate_one() -> u32 {
    RATE_ONE
}

fn default_mesh() -> String {
    "alpha".to_owned()
}

const fn server() -> ObjectRole {
    ObjectRole::Server
}

fn default_types() -> Vec<String> {
    vec!["counter".to_owned()]
}

const fn default_pending() -> u32 {
    128
}

const fn default_weight() -> u16 {
    100
}
