//! What can be seen of a scene, and what must hold after every step.

use std::time::Duration;

use spotmesh::event::Event;
use spotmesh::host::{Host, NodeView};
use spotmesh::model::{ActorId, LeaseRef, NodeFence, ObjectKey};
use spotmesh::store::StoreRequest;
use spotmesh_store_memory::State;

use super::Scene;

impl Scene {
    pub fn store(&self) -> &State {
        &self.state
    }

    pub fn host(&self, at: usize) -> &Host {
        self.seats[at].host.as_ref().expect("the host lives")
    }

    pub fn is_alive(&self, at: usize) -> bool {
        self.seats[at].host.is_some()
    }

    pub fn node(&self, at: usize) -> NodeView {
        self.host(at).nodes().next().expect("one node a host")
    }

    pub fn events(&self) -> &[(usize, Event)] {
        &self.events
    }

    /// The row of an Actor.
    pub fn actor(&mut self, id: &str) -> Option<spotmesh::store::AuthorityView> {
        self.row(&key(id))
    }

    pub fn is_creating(&mut self, id: &str) -> bool {
        self.actor(id).is_some_and(|row| row.pending().is_some())
    }

    pub fn is_ready(&mut self, id: &str) -> bool {
        self.actor(id).is_some_and(|row| row.pending().is_none())
    }

    /// Terminal records written so far.
    pub fn records(&self) -> usize {
        let names = ["commit_created", "commit_rejected", "abort(Failed)"];
        let uses = names.iter().flat_map(|name| self.all_store_uses(name));
        uses.filter(|it| matches!(it.result, Some(Ok(_)))).count()
    }

    /// The fence of a host's node as reservations name it.
    pub fn fence(&self, at: usize) -> NodeFence {
        let node = self.node(at);
        NodeFence { mesh: node.mesh, rid: node.rid, lifecycle: node.lifecycle, lease: self.lease(at) }
    }

    /// The lease a host's node was claimed under.
    pub fn lease(&self, at: usize) -> LeaseRef {
        let claims = self.store.log.iter().rev().filter(|it| it.host == at);
        let claimed = claims.filter_map(|it| match &it.request {
            StoreRequest::ClaimNode(claim) => Some(claim.lease),
            _ => None,
        });
        claimed.into_iter().next().expect("the host claimed its node")
    }

    /// (active, reserved) Actors of a host's node.
    pub fn used(&self, at: usize) -> (u64, u64) {
        self.actors_of(&self.fence(at))
    }

    /// What must hold whenever nothing is under way.
    pub(super) fn check(&mut self) {
        self.state.check().unwrap_or_else(|what| panic!("store at {:?}: {what}", self.now));
        self.check_create_153();
    }

    /// CREATE-153: no key is Creating for a dead target for longer than TTL + two scan intervals while some
    /// host lives.
    fn check_create_153(&mut self) {
        let settings = self.seats[0].spec.settings.clone();
        let allowed = settings.owner_lease_ttl + settings.recovery_scan_interval * 2;
        for key in self.keys.clone() {
            let pinned = self.row(&key).filter(|row| row.pending().is_some()).is_some_and(|row| {
                !self.seats.iter().any(|seat| {
                    seat.host.as_ref().is_some_and(|host| {
                        host.nodes()
                            .any(|node| (&node.rid, node.lifecycle) == (&row.owner.rid, row.owner.lifecycle))
                    })
                })
            });
            let witness = self.seats.iter().any(|seat| seat.host.is_some() && !seat.paused);
            if !pinned || !witness {
                self.orphans.remove(&key);
                continue;
            }
            let since = *self.orphans.entry(key.clone()).or_insert(self.now);
            let pinned = self.now.since(since);
            assert!(pinned <= allowed, "{key} is Creating for a dead target for {pinned:?}");
        }
    }

    /// Waits until nobody can hold a row for a dead target any more, and checks that nobody does.
    pub fn let_recovery_finish(&mut self) {
        let settings = &self.seats[0].spec.settings;
        let allowed = settings.owner_lease_ttl + settings.recovery_scan_interval * 2;
        self.advance(allowed + Duration::from_secs(1));
    }
}

pub fn key(id: &str) -> ObjectKey {
    ObjectKey::Actor(ActorId::new(id).unwrap())
}
