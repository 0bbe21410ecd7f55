//! Describing one MeshNode.

use super::Actor;
use super::factory::{Factory, Registered, stable_type_of};
use super::typed::Registry;
use crate::config::{ManualIntent, NodeConfig, RidChoice, TypeRegistration};
use crate::link::{NodeIndex, PublicKey};
use crate::model::{
    ChannelName, MeshName, ObjectKind, ObjectRole, Prefix, Rid, RoutingMode, SecurityIdentity, Weight,
};

/// Adds one type to the registry of a host, under the node it belongs to.
pub(crate) type Register = Box<dyn FnOnce(&mut Registry, NodeIndex) + Send>;

/// Describes one MeshNode, lent to the closure of [`HostBuilder::mesh`](super::HostBuilder::mesh).
///
/// Without [`Self::server`] or [`Self::client`] the node has no object role. A value out of range is reported
/// by [`HostBuilder::build`](super::HostBuilder::build).
#[must_use = "the configure closure returns it"]
pub struct MeshBuilder {
    node: NodeConfig,
    roles: usize,
    fixed_rid: Option<Rid>,
    prefix: Option<Prefix>,
    types: Vec<Register>,
    problem: Option<String>,
}

impl MeshBuilder {
    pub(crate) fn new(mesh: MeshName) -> Self {
        Self {
            node: NodeConfig::new(mesh, ObjectRole::None),
            roles: 0,
            fixed_rid: None,
            prefix: None,
            types: Vec::new(),
            problem: None,
        }
    }

    /// The node runs objects. A role is chosen at most once (NODE-25).
    pub fn server(self) -> Self {
        self.role(ObjectRole::Server)
    }

    /// The node creates, finds and messages objects and runs none.
    pub fn client(self) -> Self {
        self.role(ObjectRole::Client)
    }

    fn role(mut self, role: ObjectRole) -> Self {
        self.node.role = role;
        self.roles += 1;
        self
    }

    /// A type of Actors the node can own; the closure registers handlers and exactly one relocation policy
    /// (NODE-31).
    pub fn actor<A: Actor>(self, configure: impl FnOnce(Factory<A>) -> Registered<A>) -> Self {
        let stable_type = stable_type_of::<A>();
        let Registered { policy, table, problem } = configure(Factory::new());
        let mut this = self.check(problem);
        let registration =
            TypeRegistration { kind: ObjectKind::Actor, stable_type: stable_type.clone(), policy, limit: 0 };
        this.node.types.push(registration);
        this.types.push(Box::new(move |registry, node| registry.add(node, stable_type, table)));
        this
    }

    /// Placement weight, 0..=10000; 100 by default, 0 takes the node out of new placements.
    pub fn weight(mut self, weight: i64) -> Self {
        match Weight::new(weight) {
            Some(weight) => self.node.placement_weight = weight,
            None => self.complain(format!("placement weight: expected 0..=10000, found {weight}")),
        }
        self
    }

    /// Actors at most, 0..2^31−1; 0, the default, is unlimited.
    pub fn max_actors(mut self, limit: i64) -> Self {
        self.node.actor_limit = self.limit("max_actors", 0, limit);
        self
    }

    /// User and Instance Spots at most, 0..2^31−1; 0, the default, is unlimited.
    pub fn max_spots(mut self, limit: i64) -> Self {
        self.node.spot_limit = self.limit("max_spots", 0, limit);
        self
    }

    /// Concurrent activations at most, 1..2^31−1; 128 by default (NODE-45).
    pub fn max_pending_activations(mut self, limit: i64) -> Self {
        self.node.pending_activation_limit = self.limit("max_pending_activations", 1, limit);
        self
    }

    fn limit(&mut self, name: &str, min: u32, limit: i64) -> u32 {
        match u32::try_from(limit) {
            Ok(limit) if limit >= min && limit >> 31 == 0 => limit,
            _ => {
                self.complain(format!("{name}: expected {min}..2^31-1, found {limit}"));
                min
            }
        }
    }

    /// A Channel the node serves, with its weight, 0..=10000.
    pub fn channel(mut self, name: impl AsRef<str>, weight: i64) -> Self {
        match (ChannelName::new(name), Weight::new(weight)) {
            (Ok(name), Some(weight)) => {
                if self.node.channels.insert(name.clone(), weight).is_some() {
                    self.complain(format!("ChannelName {name} is registered twice"));
                }
            }
            (Err(illegal), _) => self.complain(illegal.to_string()),
            (_, None) => self.complain(format!("Channel weight: expected 0..=10000, found {weight}")),
        }
        self
    }

    /// A fixed RID of 1..=255 bytes instead of an automatic one (NODE-12).
    pub fn rid(mut self, rid: impl AsRef<[u8]>) -> Self {
        match Rid::new(rid) {
            Ok(rid) => self.fixed_rid = Some(rid),
            Err(illegal) => self.complain(illegal.to_string()),
        }
        self
    }

    /// The prefix of the automatic RID, 1..=64 of `A-Z a-z 0-9 . _ -`; `mesh` by default (NODE-11).
    pub fn prefix(mut self, prefix: impl AsRef<str>) -> Self {
        match Prefix::new(prefix) {
            Ok(prefix) => self.prefix = Some(prefix),
            Err(illegal) => self.complain(illegal.to_string()),
        }
        self
    }

    /// Manual mode: the node finds no peers by itself and dials these (NODE-74).
    pub fn manual(mut self, intents: impl IntoIterator<Item = ManualIntent>) -> Self {
        self.node.routing = RoutingMode::Manual;
        self.node.manual_intents.extend(intents);
        self
    }

    /// The security identity its trust profile can prove, 1..=255 bytes; `anonymous` by default (NODE-78).
    pub fn identity(mut self, identity: impl AsRef<str>) -> Self {
        match SecurityIdentity::new(identity) {
            Ok(identity) => self.node.identity = identity,
            Err(illegal) => self.complain(illegal.to_string()),
        }
        self
    }

    /// The public key of its transport, published so that peers know whom they dial.
    pub fn public_key(mut self, key: PublicKey) -> Self {
        self.node.public_key = Some(key);
        self
    }

    fn check(mut self, problem: Option<String>) -> Self {
        if let Some(problem) = problem {
            self.complain(problem);
        }
        self
    }

    fn complain(&mut self, problem: String) {
        self.problem.get_or_insert(problem);
    }

    /// The node and its types, or the first mistake in them.
    pub(crate) fn finish(mut self) -> Result<(NodeConfig, Vec<Register>), String> {
        if self.roles > 1 {
            self.complain(format!("object role: expected at most one choice, found {}", self.roles));
        }
        match (self.fixed_rid.take(), self.prefix.take()) {
            (Some(_), Some(_)) => {
                self.complain("expected a fixed RID or a RID prefix, found both".to_owned());
            }
            (Some(rid), None) => self.node.rid = RidChoice::Fixed(rid),
            (None, Some(prefix)) => self.node.rid = RidChoice::Automatic { prefix },
            (None, None) => {}
        }
        match self.problem {
            Some(problem) => Err(format!("{}: {problem}", self.node.mesh)),
            None => Ok((self.node, self.types)),
        }
    }
}
