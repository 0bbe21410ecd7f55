//! What a random history knows of the store it runs on.

use std::collections::BTreeSet;
use std::time::Duration;

use spotmesh::model::{
    ActorId, LeaseRef, LifecycleGeneration, MeshName, NodeFence, ObjectKey, ObjectKind, Rid, SpotId,
    SpotKind, StableType, StoreTime,
};
use spotmesh::store::{
    AuthorityRead, AuthorityView, ClaimNode, ReadAuthority, RemoveDescriptor, ReservationFence, StoreReply,
    StoreRequest, StoreResult,
};
use spotmesh_store_memory::{State, apply};

/// A node that was claimed at some time.
#[derive(Clone)]
pub struct Node {
    pub fence: NodeFence,
    pub entry: SpotId,
    pub claim: ClaimNode,
    pub revision: u64,
}

pub struct World {
    pub state: State,
    pub now: StoreTime,
    pub leases: Vec<LeaseRef>,
    pub nodes: Vec<Node>,
    pub fences: Vec<ReservationFence>,
    /// Names of mutations that succeeded.
    pub succeeded: BTreeSet<&'static str>,
    next: u64,
}

/// Takes an element by a random byte.
pub fn pick<T>(items: &[T], by: u8) -> Option<&T> {
    if items.is_empty() { None } else { items.get(usize::from(by) % items.len()) }
}

pub fn stable(kind: ObjectKind) -> StableType {
    let name = match kind {
        ObjectKind::Actor => "player",
        ObjectKind::Spot(SpotKind::Instance) => "match",
        ObjectKind::Spot(_) => "zone",
    };
    StableType::new(name).expect("legal")
}

impl World {
    pub fn new() -> Self {
        Self {
            state: State::new(),
            now: StoreTime::from_micros(1_000_000),
            leases: Vec::new(),
            nodes: Vec::new(),
            fences: Vec::new(),
            succeeded: BTreeSet::new(),
            next: 1,
        }
    }

    pub fn bits(&mut self) -> u128 {
        self.next += 1;
        u128::from(self.next)
    }

    pub fn lifecycle(&mut self) -> LifecycleGeneration {
        self.next += 1;
        LifecycleGeneration::from_u64(self.next).expect("not zero")
    }

    /// The key and kind of a small universe: three Actors, two User Spots, one Instance Spot.
    pub fn key(by: u8) -> (ObjectKey, ObjectKind) {
        match by % 6 {
            n @ 0..=2 => (ObjectKey::Actor(ActorId::new(format!("a{n}")).expect("legal")), ObjectKind::Actor),
            n @ 3..=4 => (Self::spot(&format!("s{n}")), ObjectKind::Spot(SpotKind::User)),
            _ => (Self::spot("i"), ObjectKind::Spot(SpotKind::Instance)),
        }
    }

    pub fn spot(id: &str) -> ObjectKey {
        ObjectKey::Spot(SpotId::new(id).expect("legal"))
    }

    pub fn view(&self, key: &ObjectKey) -> Option<AuthorityView> {
        let mut state = self.state.clone();
        match apply(&mut state, self.now, &ReadAuthority { key: key.clone() }.into()) {
            Ok(StoreReply::Authority(AuthorityRead::Found(view))) => Some(*view),
            _ => None,
        }
    }

    pub fn mesh() -> MeshName {
        MeshName::new("mesh").expect("legal")
    }

    pub fn rid(by: u8) -> Rid {
        Rid::new([b'n', by % 3]).expect("legal")
    }

    /// The node a fence names.
    pub fn node_of(&self, fence: &NodeFence) -> Option<&Node> {
        self.nodes.iter().find(|node| node.fence == *fence)
    }

    pub fn advance(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }

    /// Learns from a result.
    pub fn saw(&mut self, request: &StoreRequest, result: &StoreResult) {
        let Ok(reply) = result else { return };
        self.succeeded.insert(request.name());
        match (request, reply) {
            (StoreRequest::AcquireLease(_), StoreReply::Granted(grant)) => self.leases.push(grant.lease),
            (StoreRequest::ClaimNode(claim), _) => {
                let fence = NodeFence {
                    mesh: claim.mesh.clone(),
                    rid: claim.rid.clone(),
                    lifecycle: claim.lifecycle,
                    lease: claim.lease,
                };
                let entry = claim.entry_spot_id.clone().expect("a Server's");
                self.nodes.push(Node { fence, entry, claim: claim.clone(), revision: 0 });
            }
            (_, StoreReply::Reserved(fence)) => self.fences.push((*fence.value).clone()),
            _ => {}
        }
    }

    /// Removals of every claim that still stands.
    pub fn claims(&self) -> Vec<StoreRequest> {
        let mut requests = Vec::new();
        let mut state = self.state.clone();
        for node in &self.nodes {
            let request: StoreRequest = RemoveDescriptor {
                mesh: node.fence.mesh.clone(),
                rid: node.fence.rid.clone(),
                lifecycle: node.fence.lifecycle,
                lease: node.fence.lease,
            }
            .into();
            if matches!(apply(&mut state, self.now, &request), Ok(StoreReply::Flag(flag)) if flag.value) {
                requests.push(request);
            }
        }
        requests
    }
}
