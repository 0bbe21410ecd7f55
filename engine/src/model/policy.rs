//! Choices an application makes: roles, modes, policies and weights.

use serde::{Deserialize, Serialize};

/// What a MeshNode is for objects (NODE-25).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ObjectRole {
    /// No objects: node-direct messages and Channels only.
    #[default]
    None,
    /// Creates, finds and messages objects, runs none.
    Client,
    /// Runs objects as well.
    Server,
}

/// How a node finds its peers (NODE-4).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RoutingMode {
    /// Through descriptors in the Location Store.
    #[default]
    Automatic,
    /// Through intents the application registers.
    Manual,
}

/// What a move does with an object; chosen at registration, there is no default (NODE-31).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RelocationPolicy {
    /// The object never changes its node.
    DisableRelocation,
    /// Queue and timers travel, the state is built anew.
    RecreateOnRelocation,
    /// State, queue and timers travel.
    PreserveState,
}

/// Execution mode of a User Spot (MODEL-39).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ExecutionMode {
    /// One gate for the Spot and all its members.
    #[default]
    SpotWide,
    /// A gate per member.
    PerActor,
}

/// State of a host (spec 09 §1); part of every descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum HostState {
    /// Starting: nothing is accepted.
    Preparing,
    /// Accepts new work.
    Serving,
    /// Moves its objects away.
    Relocating,
    /// Holds no stateful object any more.
    Relocated,
    /// Shutdown closed admission.
    Draining,
    /// Everything is released.
    Stopped,
    /// Cannot serve; waits for Shutdown.
    Error,
}

/// A placement or Channel weight, `0..=10_000`; 0 takes a node out of new selections (NODE-39).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct Weight(u16);

impl Weight {
    /// The default weight, 100.
    pub const DEFAULT: Self = Self(100);

    /// Takes `0..=10_000`, `None` for anything else (NODE-40).
    #[must_use]
    pub fn new(value: i64) -> Option<Self> {
        u16::try_from(value).ok().filter(|value| *value <= 10_000).map(Self)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl From<Weight> for u16 {
    fn from(weight: Weight) -> u16 {
        weight.0
    }
}

impl TryFrom<u16> for Weight {
    type Error = String;
    fn try_from(value: u16) -> Result<Self, String> {
        Self::new(i64::from(value)).ok_or_else(|| format!("weight: expected 0..=10000, found {value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::Weight;

    #[test]
    fn node_t11_placement_weight_bounds() {
        for legal in [0, 100, 10_000] {
            assert_eq!(i64::from(Weight::new(legal).unwrap().get()), legal);
        }
        for illegal in [-1, 10_001, i64::MAX] {
            assert!(Weight::new(illegal).is_none(), "{illegal}");
        }
        assert_eq!(Weight::default().get(), 100);
    }
}
