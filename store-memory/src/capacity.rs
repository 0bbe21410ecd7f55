//! Capacity counters of a node lifecycle (STORE-15..17).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spotmesh::model::{LifecycleGeneration, MeshName, NodeFence, Rid};
use spotmesh::store::{Bundle, Component, NodeLimits, SpotType, StoreError};

use crate::state::State;

/// Which counters: a node's, of one lifecycle.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeKey {
    /// The RouteMesh.
    pub mesh: MeshName,
    /// The node.
    pub rid: Rid,
    /// Its lifecycle.
    pub lifecycle: LifecycleGeneration,
}

impl NodeKey {
    /// The counters of a fence's lifecycle.
    #[must_use]
    pub fn of(node: &NodeFence) -> Self {
        Self { mesh: node.mesh.clone(), rid: node.rid.clone(), lifecycle: node.lifecycle }
    }
}

/// Slots of one component.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Slots {
    /// In use.
    pub active: u64,
    /// Promised.
    pub reserved: u64,
    /// Most of both, 0 is none.
    pub limit: u32,
}

/// Counters of one node lifecycle.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Counters {
    /// Actors.
    pub actors: Slots,
    /// User and Instance Spots.
    pub spots: Slots,
    /// Spots by type.
    pub types: BTreeMap<SpotType, Slots>,
}

/// What happens to a bundle's slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// They are promised.
    Reserve,
    /// A promise is kept.
    Activate,
    /// A promise ends.
    ReturnReserved,
    /// Their use ends.
    ReturnActive,
}

impl Slots {
    fn fits(self, need: u64) -> bool {
        self.limit == 0 || self.active + self.reserved + need <= u64::from(self.limit)
    }

    fn changed(self, by: u64, change: Change) -> Option<Self> {
        let Self { mut active, mut reserved, limit } = self;
        match change {
            Change::Reserve => reserved = reserved.checked_add(by)?,
            Change::Activate => {
                reserved = reserved.checked_sub(by)?;
                active = active.checked_add(by)?;
            }
            Change::ReturnReserved => reserved = reserved.checked_sub(by)?,
            Change::ReturnActive => active = active.checked_sub(by)?,
        }
        Some(Self { active, reserved, limit })
    }

    pub(crate) fn is_empty(self) -> bool {
        self.active == 0 && self.reserved == 0
    }
}

impl Counters {
    pub(crate) fn new(limits: &NodeLimits) -> Self {
        let slots = |limit| Slots { limit, ..Slots::default() };
        Self {
            actors: slots(limits.actors),
            spots: slots(limits.spots),
            types: limits.types.iter().map(|(spot_type, limit)| (spot_type.clone(), slots(*limit))).collect(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.actors.is_empty() && self.spots.is_empty() && self.types.values().all(|slots| slots.is_empty())
    }

    fn of_type(&self, spot_type: &SpotType) -> Slots {
        self.types.get(spot_type).copied().unwrap_or_default()
    }

    /// Whether every slot of the bundle fits (STORE-16).
    pub(crate) fn fit(&self, bundle: &Bundle) -> Result<(), StoreError> {
        if bundle.actors > 0 && !self.actors.fits(bundle.actors) {
            return Err(StoreError::CapacityExceeded(Component::Actors));
        }
        if let Some(spot_type) = &bundle.spot {
            if !self.spots.fits(1) {
                return Err(StoreError::CapacityExceeded(Component::Spots));
            }
            if !self.of_type(spot_type).fits(1) {
                return Err(StoreError::CapacityExceeded(Component::SpotType(spot_type.clone())));
            }
        }
        Ok(())
    }

    /// Whether the change keeps every counter at zero or above.
    fn allows(&self, bundle: &Bundle, change: Change) -> bool {
        self.actors.changed(bundle.actors, change).is_some()
            && bundle.spot.as_ref().is_none_or(|spot_type| {
                self.spots.changed(1, change).is_some()
                    && self.of_type(spot_type).changed(1, change).is_some()
            })
    }

    fn apply(&mut self, bundle: &Bundle, change: Change) {
        let step = |slots: &mut Slots, by| {
            // `allows` was asked before; were it not, nothing would change.
            if let Some(changed) = slots.changed(by, change) {
                *slots = changed;
            }
        };
        step(&mut self.actors, bundle.actors);
        if let Some(spot_type) = &bundle.spot {
            step(&mut self.spots, 1);
            match self.types.get_mut(spot_type) {
                Some(slots) => step(slots, 1),
                None => step(self.types.entry(spot_type.clone()).or_default(), 1),
            }
        }
    }
}

impl State {
    /// Checks a change of a bundle without making it. Counters that are gone allow any return (CREATE-95).
    pub(crate) fn check_capacity(
        &self,
        node: &NodeFence,
        bundle: &Bundle,
        change: Change,
    ) -> Result<(), StoreError> {
        let returns = matches!(change, Change::ReturnReserved | Change::ReturnActive);
        match self.counters.get(&NodeKey::of(node)) {
            Some(counters) if counters.allows(bundle, change) => Ok(()),
            None if returns => Ok(()),
            found => Err(StoreError::Corrupt(format!(
                "counters of {} in {}: {change:?} of {bundle:?} does not go with {found:?}",
                node.rid, node.mesh
            ))),
        }
    }

    /// Makes a change that [`Self::check_capacity`] allowed.
    pub(crate) fn change_capacity(&mut self, node: &NodeFence, bundle: &Bundle, change: Change) {
        if let Some(counters) = self.counters.get_mut(&NodeKey::of(node)) {
            counters.apply(bundle, change);
        }
    }

    /// Whether a bundle fits at a node (STORE-16).
    pub(crate) fn fits(&self, node: &NodeFence, bundle: &Bundle) -> Result<(), StoreError> {
        match self.counters.get(&NodeKey::of(node)) {
            Some(counters) => counters.fit(bundle),
            None => Err(StoreError::Corrupt(format!("no counters of {} in {}", node.rid, node.mesh))),
        }
    }
}

/// Slots in use of one component, as [`State::node_use`] shows them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SlotUse {
    /// In use by Ready objects.
    pub active: u64,
    /// Promised to creations and moves.
    pub reserved: u64,
}

/// Slots in use at one node lifecycle.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeUse {
    /// Actors.
    pub actors: SlotUse,
    /// User and Instance Spots.
    pub spots: SlotUse,
    /// Spots of each type that has any.
    pub types: BTreeMap<SpotType, SlotUse>,
}

impl From<Slots> for SlotUse {
    fn from(slots: Slots) -> Self {
        Self { active: slots.active, reserved: slots.reserved }
    }
}

impl State {
    /// What a node lifecycle's counters hold, for oracles and tests; zero where there are none.
    #[must_use]
    pub fn node_use(&self, node: &NodeFence) -> NodeUse {
        let Some(counters) = self.counters.get(&NodeKey::of(node)) else { return NodeUse::default() };
        let types = counters.types.iter().filter(|(_, slots)| !slots.is_empty());
        NodeUse {
            actors: counters.actors.into(),
            spots: counters.spots.into(),
            types: types.map(|(spot_type, slots)| (spot_type.clone(), (*slots).into())).collect(),
        }
    }
}
