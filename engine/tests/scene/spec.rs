//! What a host of a scene is.

use spotmesh::config::{HostConfig, NodeConfig, RidChoice, TypeRegistration};
use spotmesh::model::limits::Settings;
use spotmesh::model::{
    ChannelName, MeshName, ObjectKind, ObjectRole, Prefix, RelocationPolicy, Rid, RoutingMode, StableType,
    Weight,
};

/// One host with one node on Mesh `alpha`.
#[derive(Debug, Clone)]
pub struct HostSpec {
    pub role: ObjectRole,
    /// Prefix of its automatic RID.
    pub prefix: String,
    pub types: Vec<&'static str>,
    pub actor_limit: u32,
    pub pending_limit: u32,
    pub weight: u16,
    /// Its fixed RID, instead of an automatic one.
    pub fixed: Option<&'static str>,
    pub routing: RoutingMode,
    /// Channels it serves, at the default weight.
    pub channels: Vec<&'static str>,
    pub settings: Settings,
}

/// A node that owns Actors of type `counter`.
pub fn server(prefix: &str) -> HostSpec {
    HostSpec {
        role: ObjectRole::Server,
        prefix: prefix.to_owned(),
        types: vec!["counter"],
        actor_limit: 0,
        pending_limit: 128,
        weight: 100,
        fixed: None,
        routing: RoutingMode::Automatic,
        channels: Vec::new(),
        settings: Settings::default(),
    }
}

/// A node that creates and messages Actors and owns none.
pub fn client(prefix: &str) -> HostSpec {
    HostSpec { role: ObjectRole::Client, types: Vec::new(), ..server(prefix) }
}

impl HostSpec {
    pub fn types(mut self, types: &[&'static str]) -> Self {
        self.types = types.to_vec();
        self
    }

    pub fn fixed(mut self, rid: &'static str) -> Self {
        self.fixed = Some(rid);
        self
    }

    pub fn channels(mut self, names: &[&'static str]) -> Self {
        self.channels = names.to_vec();
        self
    }

    pub fn actor_limit(mut self, limit: u32) -> Self {
        self.actor_limit = limit;
        self
    }

    pub fn pending_limit(mut self, limit: u32) -> Self {
        self.pending_limit = limit;
        self
    }

    pub fn weight(mut self, weight: u16) -> Self {
        self.weight = weight;
        self
    }

    pub(super) fn config(&self) -> HostConfig {
        let mut node = NodeConfig::new(MeshName::new("alpha").unwrap(), self.role);
        node.rid = RidChoice::Automatic { prefix: Prefix::new(&self.prefix).unwrap() };
        if let Some(rid) = self.fixed {
            node.rid = RidChoice::Fixed(Rid::new(rid).unwrap());
        }
        node.routing = self.routing;
        for name in &self.channels {
            node.channels.insert(ChannelName::new(name).unwrap(), Weight::DEFAULT);
        }
        for name in &self.types {
            node.types.push(TypeRegistration {
                kind: ObjectKind::Actor,
                stable_type: StableType::new(name).unwrap(),
                policy: RelocationPolicy::PreserveState,
                limit: 0,
            });
        }
        node.actor_limit = self.actor_limit;
        node.pending_activation_limit = self.pending_limit;
        node.placement_weight = Weight::new(i64::from(self.weight)).unwrap();
        let mut config = HostConfig::new(vec![node]);
        config.settings = self.settings.clone();
        config
    }
}
