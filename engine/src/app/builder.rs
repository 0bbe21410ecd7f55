//! Describing a host: its store, its nodes and what they can own; checked whole by [`HostBuilder::build`].

use std::sync::Arc;

use super::mesh_builder::MeshBuilder;
use super::plan::HostPlan;
use super::typed::Registry;
use crate::config::{HostConfig, NodeConfig};
use crate::driver::{LocationStore, TurnPlacement};
use crate::link::NodeIndex;
use crate::model::limits::Settings;
use crate::model::{Error, ErrorKind, MeshName};

/// Describes a host.
///
/// Mistakes are collected and reported by [`Self::build`], before anything is started (ERR-21).
#[must_use = "a builder starts nothing"]
pub struct HostBuilder {
    store: Option<Arc<dyn LocationStore>>,
    stores: usize,
    nodes: Vec<NodeConfig>,
    settings: Settings,
    application_version: u64,
    maintenance_wave: Option<String>,
    placement: TurnPlacement,
    registry: Registry,
    problem: Option<String>,
}

impl Default for HostBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl HostBuilder {
    /// A host without nodes and without a Store.
    pub fn new() -> Self {
        Self {
            store: None,
            stores: 0,
            nodes: Vec::new(),
            settings: Settings::default(),
            application_version: 0,
            maintenance_wave: None,
            placement: TurnPlacement::default(),
            registry: Registry::default(),
            problem: None,
        }
    }

    /// The Location Store, required by every node with an object role or in Automatic mode (STORE-2).
    pub fn store(mut self, store: impl LocationStore) -> Self {
        self.store = Some(Arc::new(store));
        self.stores += 1;
        self
    }

    /// One more MeshNode, a member of the RouteMesh `name` (NODE-4).
    pub fn mesh(mut self, name: impl AsRef<str>, configure: impl FnOnce(MeshBuilder) -> MeshBuilder) -> Self {
        let index = u16::try_from(self.nodes.len());
        let (name, index) = match (MeshName::new(name), index) {
            (Ok(name), Ok(index)) => (name, NodeIndex(index)),
            (Err(illegal), _) => return self.with_problem(illegal.to_string()),
            (_, Err(_)) => {
                return self.with_problem("expected at most 65,536 nodes, found one more".to_owned());
            }
        };
        let mesh = configure(MeshBuilder::new(name)).finish();
        match mesh {
            Ok((node, types)) => {
                for register in types {
                    register(&mut self.registry, index);
                }
                self.nodes.push(node);
                self
            }
            Err(problem) => self.with_problem(problem),
        }
    }

    /// Durations; see [`Settings`] for the defaults.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Ordered deployment number, 0..2^63−1; 0 by default.
    pub fn application_version(mut self, version: u64) -> Self {
        self.application_version = version;
        self
    }

    /// Maintenance wave, 1..=255 bytes; none by default.
    pub fn maintenance_wave(mut self, wave: impl Into<String>) -> Self {
        self.maintenance_wave = Some(wave.into());
        self
    }

    /// Where turns run that wait.
    pub fn turns(mut self, placement: TurnPlacement) -> Self {
        self.placement = placement;
        self
    }

    /// Checks the whole description (NODE-58).
    ///
    /// # Errors
    /// `Configuration` with the first mistake found; nothing is kept then.
    pub fn build(self) -> Result<HostPlan, Error> {
        let refuse = |text: String| Err(Error::new(ErrorKind::Configuration, "startup", text));
        if let Some(problem) = self.problem {
            return refuse(problem);
        }
        if self.stores > 1 {
            return refuse(format!("expected at most one Location Store, found {}", self.stores));
        }
        let config = HostConfig {
            nodes: self.nodes,
            has_store: self.store.is_some(),
            settings: self.settings,
            application_version: self.application_version,
            maintenance_wave: self.maintenance_wave,
        };
        config.check()?;
        Ok(HostPlan::new(config, Arc::new(self.registry), self.store, self.placement))
    }

    fn with_problem(mut self, problem: String) -> Self {
        self.problem.get_or_insert(problem);
        self
    }
}
