//! Who is who in a world: hosts, their runs, their nodes.

use serde::{Deserialize, Serialize};
use spotmesh::link::NodeIndex;

/// A host's seat in the cluster. A seat outlives the processes that run on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seat(pub u8);

/// One process run on a seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunOf {
    /// The seat.
    pub seat: Seat,
    /// 1 for the first process on it.
    pub run: u32,
}

/// One MeshNode of one process run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeOf {
    /// The process.
    pub run: RunOf,
    /// The node in its host's configuration.
    pub node: NodeIndex,
}

impl std::fmt::Display for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "h{}", self.0)
    }
}

impl std::fmt::Display for RunOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.seat, self.run)
    }
}
