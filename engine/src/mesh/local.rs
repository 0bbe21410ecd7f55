//! What a node states about itself, and what follows from that for a pair of nodes.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::link::{DialId, NodeIndex};
use crate::model::{
    ChannelName, DescriptorRevision, HostState, LifecycleGeneration, MeshName, ObjectRole, Rid, RoutingMode,
    SecurityIdentity, Weight,
};
use crate::wire::Hello;

/// Issues dial numbers for all nodes of a host, never the same twice.
///
/// The number is also the attempt number of NODE-82: it grows per peer because it grows altogether, and it
/// starts at 1 because the side that did not dial states 0.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct DialIds(u64);

impl DialIds {
    pub(crate) fn issue(&mut self) -> DialId {
        // 2^64 dials are out of reach of any host run.
        self.0 += 1;
        DialId(self.0)
    }
}

/// The local node as its peers see it, plus how it finds them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct LocalNode {
    /// Its place in the host, for events.
    pub(crate) node: NodeIndex,
    pub(crate) mesh: MeshName,
    pub(crate) rid: Rid,
    pub(crate) lifecycle: LifecycleGeneration,
    pub(crate) revision: DescriptorRevision,
    pub(crate) channels: BTreeMap<ChannelName, Weight>,
    pub(crate) identity: SecurityIdentity,
    pub(crate) trust_profile: String,
    pub(crate) role: ObjectRole,
    pub(crate) host_state: HostState,
    pub(crate) endpoint: String,
    pub(crate) protocol: u16,
    /// Capabilities a peer must have, a bit each.
    pub(crate) required_capabilities: u64,
    /// Capabilities this node has.
    pub(crate) capabilities: u64,
    pub(crate) routing: RoutingMode,
}

impl LocalNode {
    /// The Hello for a connection, which this node dialled as `dial` or which came in (NODE-81, NODE-82).
    pub(crate) fn hello(&self, dial: Option<DialId>) -> Hello {
        Hello {
            mesh: self.mesh.clone(),
            rid: self.rid.clone(),
            lifecycle: self.lifecycle,
            revision: self.revision,
            channels: self.channels.clone(),
            identity: self.identity.clone(),
            trust_profile: self.trust_profile.clone(),
            role: self.role,
            host_state: self.host_state,
            endpoint: self.endpoint.clone(),
            protocol: self.protocol,
            required_capabilities: self.required_capabilities,
            dialled: dial.is_some(),
            attempt: dial.map_or(0, |dial| dial.0),
        }
    }

    /// Whether the pair with a node of this role needs a connection (NODE-70, NODE-71).
    ///
    /// Weights do not matter: a Channel served at weight 0 is still served (NODE-115).
    pub(crate) fn needs(&self, role: ObjectRole, serves_channels: bool) -> bool {
        let clients = self.role == ObjectRole::Client && role == ObjectRole::Client;
        !clients || serves_channels || !self.channels.is_empty()
    }

    /// Whether this node is the one that dials `rid` (NODE-72, NODE-74).
    pub(crate) fn dials(&self, rid: &Rid) -> bool {
        match self.routing {
            RoutingMode::Automatic => self.rid < *rid,
            RoutingMode::Manual => true,
        }
    }
}
