//! What a host is: its nodes, what they register, and its settings. Checked whole before anything happens.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::link::PublicKey;
use crate::model::limits::{CAPABILITIES_MAX, Settings};
use crate::model::{
    ChannelName, Error, ErrorKind, MeshName, ObjectKind, ObjectRole, Prefix, RelocationPolicy, Rid,
    RoutingMode, SecurityIdentity, StableType, Weight,
};

/// How a node gets its RID (NODE-10..13). Fixed together with a prefix cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RidChoice {
    /// `<prefix>-<uuid>`, new for every lifecycle.
    Automatic {
        /// The diagnostic prefix, also of the Entry Spot id; `mesh` by default.
        prefix: Prefix,
    },
    /// These bytes.
    Fixed(Rid),
}

/// One type a node can own objects of (NODE-31).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TypeRegistration {
    /// Actor, User Spot or Instance Spot.
    pub kind: ObjectKind,
    /// Its name.
    pub stable_type: StableType,
    /// What a move does with it.
    pub policy: RelocationPolicy,
    /// Limit per node of a Spot type, 0 is unlimited; 0 for Actors (NODE-41).
    pub limit: u32,
}

/// A wish to stay connected, registered by the application in Manual mode (NODE-74, NODE-97).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ManualIntent {
    /// Where to dial.
    pub endpoint: String,
    /// The RID that must answer.
    pub expected_rid: Option<Rid>,
}

/// One MeshNode (NODE-4).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeConfig {
    /// The RouteMesh.
    pub mesh: MeshName,
    /// Its RID.
    pub rid: RidChoice,
    /// What it is for objects.
    pub role: ObjectRole,
    /// How it finds peers.
    pub routing: RoutingMode,
    /// Peers of Manual mode; empty in Automatic mode.
    pub manual_intents: Vec<ManualIntent>,
    /// Channels it serves.
    pub channels: BTreeMap<ChannelName, Weight>,
    /// Types it can own objects of; Object Servers only.
    pub types: Vec<TypeRegistration>,
    /// Share of new placements.
    pub placement_weight: Weight,
    /// Actors at most, 0 is unlimited; up to 2^31−1.
    pub actor_limit: u32,
    /// User and Instance Spots at most, 0 is unlimited; up to 2^31−1.
    pub spot_limit: u32,
    /// Concurrent activations at most, 1..2^31−1 (NODE-45).
    pub pending_activation_limit: u32,
    /// Name of its trust profile.
    pub trust_profile: String,
    /// Its security identity.
    pub identity: SecurityIdentity,
    /// Its transport's public key, published in the descriptor so that peers know whom to dial.
    pub public_key: Option<PublicKey>,
}

impl NodeConfig {
    /// A node of `mesh` in `role` with every other value at its default.
    #[must_use]
    pub fn new(mesh: MeshName, role: ObjectRole) -> Self {
        Self {
            mesh,
            rid: RidChoice::Automatic { prefix: default_prefix() },
            role,
            routing: RoutingMode::Automatic,
            manual_intents: Vec::new(),
            channels: BTreeMap::new(),
            types: Vec::new(),
            placement_weight: Weight::DEFAULT,
            actor_limit: 0,
            spot_limit: 0,
            pending_activation_limit: 128,
            trust_profile: "open".to_owned(),
            identity: anonymous(),
            public_key: None,
        }
    }

    /// Whether the node needs a Location Store (NODE-25, NODE-27).
    #[must_use]
    pub fn needs_store(&self) -> bool {
        self.role != ObjectRole::None || self.routing == RoutingMode::Automatic
    }

    /// The prefix of its Entry Spot id (NODE-19).
    pub(crate) fn prefix(&self) -> Prefix {
        match &self.rid {
            RidChoice::Automatic { prefix } => prefix.clone(),
            RidChoice::Fixed(_) => default_prefix(),
        }
    }
}

fn default_prefix() -> Prefix {
    // Four letters are a legal prefix.
    Prefix::new("mesh").unwrap_or_else(|_| unreachable!())
}

fn anonymous() -> SecurityIdentity {
    // Nine letters are a legal identity.
    SecurityIdentity::new("anonymous").unwrap_or_else(|_| unreachable!())
}

/// One host: a process run with one owner lease and any number of MeshNodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostConfig {
    /// Its nodes, addressed by [`crate::link::NodeIndex`] in this order.
    pub nodes: Vec<NodeConfig>,
    /// Whether the application registered a Location Store (STORE-2, STORE-3).
    pub has_store: bool,
    /// Durations.
    pub settings: Settings,
    /// Ordered deployment number, 0..2^63−1.
    pub application_version: u64,
    /// Maintenance wave, 1..=255 bytes.
    pub maintenance_wave: Option<String>,
}

impl HostConfig {
    /// A host with these nodes, a Store and default settings.
    #[must_use]
    pub fn new(nodes: Vec<NodeConfig>) -> Self {
        Self {
            nodes,
            has_store: true,
            settings: Settings::default(),
            application_version: 0,
            maintenance_wave: None,
        }
    }

    /// Startup step 1: every check that needs no I/O (NODE-58, ERR-21).
    ///
    /// # Errors
    /// `Configuration` naming what was expected and what was found.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |text: String| Err(Error::new(ErrorKind::Configuration, "startup", text));
        self.settings.check()?;
        if self.application_version >> 63 != 0 {
            return refuse(format!(
                "application_version: expected 0..2^63-1, found {}",
                self.application_version
            ));
        }
        if let Some(wave) = &self.maintenance_wave
            && !(1..=255).contains(&wave.len())
        {
            return refuse(format!("maintenance_wave: expected 1..=255 bytes, found {}", wave.len()));
        }
        let mut meshes = BTreeSet::new();
        let mut channels = BTreeSet::new();
        for node in &self.nodes {
            if !meshes.insert(&node.mesh) {
                return refuse(format!("MeshName {} is registered twice in this process", node.mesh));
            }
            for channel in node.channels.keys() {
                if !channels.insert(channel) {
                    return refuse(format!("ChannelName {channel} is registered twice in this process"));
                }
            }
            self.check_node(node)?;
        }
        Ok(())
    }

    fn check_node(&self, node: &NodeConfig) -> Result<(), Error> {
        let refuse = |text: String| {
            Err(Error::new(ErrorKind::Configuration, "startup", format!("{}: {text}", node.mesh)))
        };
        if node.needs_store() && !self.has_store {
            return refuse(format!(
                "role {:?} in {:?} mode needs a Location Store, none is registered",
                node.role, node.routing
            ));
        }
        if node.routing == RoutingMode::Manual && node.role != ObjectRole::None {
            return refuse(format!("Manual mode offers no object runtime, found role {:?}", node.role));
        }
        if node.routing == RoutingMode::Automatic && !node.manual_intents.is_empty() {
            return refuse("connection intents of the application exist in Manual mode only".to_owned());
        }
        if node.role != ObjectRole::Server && !node.types.is_empty() {
            return refuse(format!("factories need role Server, found {:?}", node.role));
        }
        if node.types.len() > CAPABILITIES_MAX {
            return refuse(format!("expected at most {CAPABILITIES_MAX} types, found {}", node.types.len()));
        }
        let mut seen = BTreeSet::new();
        for registration in &node.types {
            if !seen.insert((registration.kind, &registration.stable_type)) {
                return refuse(format!(
                    "{:?} {} is registered twice",
                    registration.kind, registration.stable_type
                ));
            }
        }
        let limits = [("actor_limit", node.actor_limit), ("spot_limit", node.spot_limit)];
        let per_type = node.types.iter().map(|registration| ("type limit", registration.limit));
        for (name, limit) in limits.into_iter().chain(per_type) {
            if limit >> 31 != 0 {
                return refuse(format!("{name}: expected 0..2^31-1, found {limit}"));
            }
        }
        if node.pending_activation_limit == 0 || node.pending_activation_limit >> 31 != 0 {
            return refuse(format!(
                "pending_activation_limit: expected 1..2^31-1, found {}",
                node.pending_activation_limit
            ));
        }
        if node.trust_profile != "open" {
            return refuse(format!("trust profile: expected `open`, found `{}`", node.trust_profile));
        }
        Ok(())
    }
}
