//! What can be read of a host at one moment (spec 11 §2): values, never handles.

use super::Host;
use crate::event::PeerState;
use crate::link::NodeIndex;
use crate::mark::Marks;
use crate::model::{Error, HostState, LifecycleGeneration, MeshName, Rid, SpotId, Weight};

/// One MeshNode as seen now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    /// Its place in the configuration.
    pub index: NodeIndex,
    /// Its Mesh.
    pub mesh: MeshName,
    /// Its RID.
    pub rid: Rid,
    /// Its lifecycle.
    pub lifecycle: LifecycleGeneration,
    /// Its advertised endpoint, empty before step 3 of startup.
    pub endpoint: String,
    /// Its Entry Spot; Object Servers only.
    pub entry_spot: Option<SpotId>,
    /// Its placement weight.
    pub placement_weight: Weight,
    /// Peers admitted on their selected route.
    pub ready_peers: Vec<Rid>,
    /// Every peer wanted, connected or refused, with its state and the last error (NODE-140).
    pub peers: Vec<(Rid, PeerState, Option<Error>)>,
    /// Attempts that count against its pending-activation limit.
    pub pending_activations: u32,
}

impl Host {
    /// State of the host.
    #[must_use]
    pub fn state(&self) -> HostState {
        self.state
    }

    /// Rare branches this host has passed.
    #[must_use]
    pub fn marks(&self) -> Marks {
        self.marks
    }

    /// Its nodes, in configuration order.
    pub fn nodes(&self) -> impl Iterator<Item = NodeView> {
        self.nodes.iter().map(|node| NodeView {
            index: node.local.node,
            mesh: node.local.mesh.clone(),
            rid: node.local.rid.clone(),
            lifecycle: node.local.lifecycle,
            endpoint: node.local.endpoint.clone(),
            entry_spot: node.entry_spot.clone(),
            placement_weight: node.weight,
            ready_peers: node.peers().ready_peers().map(|peer| peer.rid.clone()).collect(),
            peers: node
                .peers()
                .views()
                .map(|peer| (peer.rid.clone(), peer.state, peer.last_error.cloned()))
                .collect(),
            pending_activations: node.pending_activations,
        })
    }

    /// Objects this host owns and can run.
    #[must_use]
    pub fn object_count(&self) -> usize {
        self.objects.len()
    }

    /// Whether no call, turn, job or attempt is in progress.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.coordinators.is_empty()
            && self.attempts.is_empty()
            && self.calls.is_empty()
            && self.turns.is_empty()
            && self.held.is_empty()
            && self.objects.all_idle()
            && self.routes.is_empty()
    }

    /// Plants a deliberate fault; simulations only.
    #[cfg(feature = "planted")]
    pub fn plant(&mut self, mutant: crate::planted::Mutant) {
        self.mutant = Some(mutant);
    }
}
