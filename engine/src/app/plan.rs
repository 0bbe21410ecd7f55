//! A checked description of a host.

use std::sync::Arc;

use super::typed::Registry;
use crate::config::HostConfig;
use crate::driver::{LocationStore, TurnPlacement};

/// A host that was checked and not started.
#[must_use = "a plan starts nothing"]
pub struct HostPlan {
    pub(super) config: HostConfig,
    pub(super) registry: Arc<Registry>,
    pub(super) store: Option<Arc<dyn LocationStore>>,
    pub(super) placement: TurnPlacement,
}

impl HostPlan {
    pub(crate) fn new(
        config: HostConfig,
        registry: Arc<Registry>,
        store: Option<Arc<dyn LocationStore>>,
        placement: TurnPlacement,
    ) -> Self {
        Self { config, registry, store, placement }
    }

    /// What the core will be told.
    #[must_use]
    pub fn config(&self) -> &HostConfig {
        &self.config
    }
}
