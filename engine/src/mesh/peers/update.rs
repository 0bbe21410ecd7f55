//! Weights and host state, told to peers and heard from them (spec 02 §13).

use super::{Decision, PeerEffect, Peers};
use crate::link::LinkId;
use crate::mesh::admission::Admission;
use crate::store::Descriptor;
use crate::wire::{Message, NodeUpdate};

impl Peers {
    /// Tells every admitted peer the new weights and state (NODE-112).
    pub(super) fn announce(&mut self, d: &mut Decision<'_>) {
        let ready: Vec<LinkId> = self.peers.values().filter_map(|peer| peer.route).collect();
        for link in ready {
            self.update(link, d);
        }
    }

    pub(super) fn update(&mut self, id: LinkId, d: &mut Decision<'_>) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.stated = self.local.revision;
        let message = Message::NodeUpdate(NodeUpdate {
            lifecycle: self.local.lifecycle,
            revision: self.local.revision,
            channels: self.local.channels.clone(),
            host_state: self.local.host_state,
        });
        d.out.push(PeerEffect::Send { link: id, message });
    }

    /// Applies an update of the current generation with a larger revision and the complete set (NODE-113).
    pub(super) fn apply_update(&mut self, id: LinkId, update: NodeUpdate, d: &mut Decision<'_>) {
        let Some(Admission::Ready(link)) = self.links.get_mut(&id).map(|link| &mut link.admission) else {
            return;
        };
        let hello = &mut link.hello;
        let complete = hello.channels.keys().eq(update.channels.keys());
        if hello.lifecycle == update.lifecycle && hello.revision < update.revision && complete {
            hello.revision = update.revision;
            hello.channels = update.channels;
            hello.host_state = update.host_state;
            d.touch(&hello.rid, "announced by the peer");
        }
    }

    /// A descriptor repairs an update that was lost (NODE-114).
    pub(super) fn apply_descriptor(&mut self, descriptor: &Descriptor, d: &mut Decision<'_>) {
        let route = self.peers.get(&descriptor.rid).and_then(|peer| peer.route);
        if let Some(route) = route {
            let update = NodeUpdate {
                lifecycle: descriptor.lifecycle,
                revision: descriptor.revision,
                channels: descriptor.channels.clone(),
                host_state: descriptor.host_state,
            };
            self.apply_update(route, update, d);
        }
    }
}
