//! Publication of descriptor changes after startup (NODE-48, STORE-49): one update at a time, the newest last.

use super::store_calls::StoreUse;
use super::{Host, TimerKey};
use crate::input::CallId;
use crate::link::NodeIndex;
use crate::mesh::PeerEvent;
use crate::model::limits::WAITER_BACKOFF_MAX;
use crate::model::{ChannelName, Error, ErrorKind, MeshName, ObjectRole, Weight};
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
            .filter(|node| {
                node.local.role == ObjectRole::Server && mesh.is_none_or(|name| node.local.mesh == *name)
            })
            .map(|node| node.local.node)
            .collect();
        if chosen.is_empty() {
            let error =
                Error::new(ErrorKind::NotFound, "set_placement_weight", "no Object Server of that Mesh");
            return self.answer(call, Answer::Failed(error));
        }
        for node in chosen {
            let at = usize::from(node.0);
            if self.nodes[at].weight != weight {
                self.nodes[at].weight = weight;
                self.nodes[at].raise_revision();
                self.nodes[at].unpublished = true;
                let lease = self.lease.lease();
                self.nodes[at].refresh_own(&self.config, lease);
                self.publish(node);
            }
        }
        self.answer(call, Answer::Set);
    }

    /// NODE-112..115: peers learn the complete set at once; a lost update is repaired by the next descriptor.
    pub(super) fn channel_weight_called(&mut self, call: CallId, channel: &ChannelName, weight: Weight) {
        if let Err(error) = self.check_admission("set_channel_weight") {
            return self.answer(call, Answer::Failed(error));
        }
        let Some(at) = self.nodes.iter().position(|node| node.local.channels.contains_key(channel)) else {
            let error =
                Error::new(ErrorKind::NotFound, "set_channel_weight", "this host serves no such Channel");
            return self.answer(call, Answer::Failed(error));
        };
        let node = &mut self.nodes[at];
        if node.local.channels.insert(channel.clone(), weight) != Some(weight) {
            node.raise_revision();
            node.unpublished = true;
            let (channels, revision) = (node.local.channels.clone(), node.local.revision);
            let index = node.local.node;
            self.peer_event(index, PeerEvent::WeightsChanged { channels, revision });
            self.publish(index);
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
