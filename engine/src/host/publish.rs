//! Publication of descriptor changes after startup (NODE-48, STORE-49): one update at a time, the newest last.

use super::store_calls::StoreUse;
use super::{Host, TimerKey};
use crate::input::CallId;
use crate::link::NodeIndex;
use crate::model::limits::WAITER_BACKOFF_MAX;
use crate::model::{Error, ErrorKind, MeshName, ObjectRole, Weight};
use crate::output::Answer;
use crate::store::{StoreError, StoreResult, UpdateDescriptor};

impl Host {
    pub(super) fn weight_called(&mut self, call: CallId, mesh: Option<&MeshName>, weight: Weight) {
        if let Err(error) = self.check_admission("set_placement_weight") {
            return self.answer(call, Answer::Failed(error));
        }
        let chosen: Vec<_> = self
            .nodes
            .iter()
            .filter(|node| node.local.role == ObjectRole::Server && mesh.is_none_or(|name| node.local.mesh == *name))
            .map(|node| node.local.node)
            .collect();
        if chosen.is_empty() {
            let error = Error::new(ErrorKind::NotFound, "set_placement_weight", "no Object Server of that Mesh");
            return self.answer(call, Answer::Failed(error));
        }
        for node in chosen {
            let at = usize::from(node.0);
            if self.nodes[at].weight != weight {
                self.nodes[at].weight = weight;
                self.nodes[at].raise_revision();
                self.nodes[at].unpublished = true;
                self.publish(node);
            }
        }
        self.answer(call, Answer::Set);
    }

    /// Publishes the node's current descriptor unless an update is out already.
    pub(super) fn publish(&mut self, node: NodeIndex) {
        let Some(lease) = self.lease.lease() else { return };
        let (state, at) = (self.state, usize::from(node.0));
        if !self.nodes[at].unpublished || self.nodes[at].publishing {
            return;
        }
        let descriptor = self.nodes[at].descriptor(&self.config, state);
        self.nodes[at].unpublished = false;
        self.nodes[at].publishing = true;
        self.call_store(StoreUse::Publish(node), UpdateDescriptor { descriptor, lease }.into());
    }

    pub(super) fn published(&mut self, node: NodeIndex, result: &StoreResult) {
        let at = usize::from(node.0);
        self.nodes[at].publishing = false;
        match result {
            Err(StoreError::Unavailable | StoreError::Indeterminate) => {
                self.nodes[at].unpublished = true;
                self.timers.set(TimerKey::Publish(node), self.now + WAITER_BACKOFF_MAX);
            }
            Err(StoreError::LeaseLost) => {
                // Expired, not fenced as far as known: the lease machine finds out.
                self.nodes[at].unpublished = true;
                self.timers.set(TimerKey::Publish(node), self.now + WAITER_BACKOFF_MAX);
            }
            Err(error) => self.violated(format!("descriptor update: {error}")),
            Ok(_) => self.publish(node),
        }
    }
}
