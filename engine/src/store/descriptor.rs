//! What a node tells the Mesh about itself (NODE-66, NODE-39) and how a listing shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::error::StoreError;
use super::record::LeaseView;
use crate::link::PublicKey;
use crate::model::limits::{CAPABILITIES_MAX, DESCRIPTOR_MAX};
use crate::model::{
    ChannelName, DescriptorRevision, HostState, LifecycleGeneration, MeshName, ObjectKind, ObjectRole,
    RelocationPolicy, Rid, SecurityIdentity, SpotId, StableType, StoreTime, StoreVersion, Weight,
};

/// Largest limit of a node or type (STORE-16); 0 stands for no limit.
pub const LIMIT_MAX: u32 = (1 << 31) - 1;

/// A type the node can own objects of, with its projected use (NODE-39).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TypeCapability {
    /// Actor, User Spot or Instance Spot.
    pub kind: ObjectKind,
    /// The type.
    pub stable_type: StableType,
    /// What a move does with it.
    pub policy: RelocationPolicy,
    /// Most Spots of this type, 0 is unlimited; always 0 for Actors (NODE-41).
    pub limit: u32,
    /// Active plus reserved when this revision was made: a projection, for Spots only (STORE-17).
    pub count: u32,
}

/// A published node (NODE-66). At most 1 MiB encoded and 1,024 capabilities (NODE-64).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Descriptor {
    /// The RouteMesh.
    pub mesh: MeshName,
    /// The node.
    pub rid: Rid,
    /// Its lifecycle.
    pub lifecycle: LifecycleGeneration,
    /// Raised by every publication of this lifecycle, starting at 1.
    pub revision: DescriptorRevision,
    /// Address peers dial.
    pub endpoint: String,
    /// What the node is for objects.
    pub role: ObjectRole,
    /// Channels it serves, with weights.
    pub channels: BTreeMap<ChannelName, Weight>,
    /// Entry Spot of an Object Server, `None` for other roles.
    pub entry_spot_id: Option<SpotId>,
    /// Types it can own, each (kind, stable type) once; empty unless Object Server.
    pub capabilities: Vec<TypeCapability>,
    /// Share of new placements.
    pub placement_weight: Weight,
    /// Actors, active plus reserved, when this revision was made (STORE-17).
    pub actors: u32,
    /// Most Actors, 0 is unlimited.
    pub actor_limit: u32,
    /// User and Instance Spots, active plus reserved, when this revision was made.
    pub spots: u32,
    /// Most User and Instance Spots, 0 is unlimited.
    pub spot_limit: u32,
    /// Activations in progress when this revision was made.
    pub pending_activations: u32,
    /// Most concurrent activations (NODE-45).
    pub pending_activation_limit: u32,
    /// State of its host.
    pub host_state: HostState,
    /// Identity it proves to peers.
    pub identity: SecurityIdentity,
    /// Name of its trust profile.
    pub trust_profile: String,
    /// Key of its transport, where the transport has keys.
    pub public_key: Option<PublicKey>,
    /// Version of the peer protocol it speaks.
    pub protocol: u16,
    /// Protocol capabilities, one bit each.
    pub protocol_capabilities: u64,
    /// Ordered deployment number, 0..2^63−1 (HOST-14).
    pub application_version: u64,
    /// Maintenance wave, 1..=255 bytes (HOST-21).
    pub maintenance_wave: Option<String>,
}

impl Descriptor {
    /// Bytes of the encoded form, for the bound of NODE-64.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        // Plain data with known lengths always encodes; were it not so, the size would be illegal.
        postcard::to_stdvec(self).map_or(usize::MAX, |bytes| bytes.len())
    }

    /// Checks what needs no Store: NODE-64, ranges, and that only Object Servers carry object data.
    ///
    /// # Errors
    /// `InvalidArgument` saying what was expected and what was found.
    pub fn check(&self) -> Result<(), StoreError> {
        let refuse = |text: String| Err(StoreError::InvalidArgument(format!("descriptor: {text}")));
        if self.capabilities.len() > CAPABILITIES_MAX {
            return refuse(format!(
                "expected at most {CAPABILITIES_MAX} capabilities, found {}",
                self.capabilities.len()
            ));
        }
        let server = self.role == ObjectRole::Server;
        if self.entry_spot_id.is_some() != server {
            return refuse(format!(
                "expected an Entry Spot id exactly for role Server, found {:?} with role {:?}",
                self.entry_spot_id, self.role
            ));
        }
        if !server && !self.capabilities.is_empty() {
            return refuse(format!("expected no capabilities for role {:?}", self.role));
        }
        let mut seen = BTreeSet::new();
        for capability in &self.capabilities {
            if !seen.insert((capability.kind, &capability.stable_type)) {
                return refuse(format!("{:?} {} is listed twice", capability.kind, capability.stable_type));
            }
            if capability.limit > LIMIT_MAX {
                return refuse(format!("type limit: expected 0..={LIMIT_MAX}, found {}", capability.limit));
            }
        }
        for (name, limit) in [("actor limit", self.actor_limit), ("spot limit", self.spot_limit)] {
            if limit > LIMIT_MAX {
                return refuse(format!("{name}: expected 0..={LIMIT_MAX}, found {limit}"));
            }
        }
        if self.application_version >> 63 != 0 {
            return refuse(format!(
                "application version: expected 0..2^63-1, found {}",
                self.application_version
            ));
        }
        if let Some(wave) = &self.maintenance_wave
            && !(1..=255).contains(&wave.len())
        {
            return refuse(format!("maintenance wave: expected 1..=255 bytes, found {}", wave.len()));
        }
        let size = self.encoded_len();
        if size > DESCRIPTOR_MAX {
            return refuse(format!("expected at most {DESCRIPTOR_MAX} encoded bytes, found {size}"));
        }
        Ok(())
    }

    /// The capability for this kind and type.
    #[must_use]
    pub fn capability(&self, kind: ObjectKind, stable_type: &StableType) -> Option<&TypeCapability> {
        self.capabilities.iter().find(|entry| entry.kind == kind && entry.stable_type == *stable_type)
    }

    /// Whether `next` differs from this descriptor only in what may change by revision (STORE-47).
    ///
    /// Limits belong to the claim, so they are fixed as well.
    #[must_use]
    pub fn keeps_immutable_part(&self, next: &Self) -> bool {
        let fixed = |descriptor: &Self| {
            let types: BTreeMap<_, _> = descriptor
                .capabilities
                .iter()
                .map(|entry| ((entry.kind, entry.stable_type.clone()), (entry.policy, entry.limit)))
                .collect();
            (types, descriptor.actor_limit, descriptor.spot_limit)
        };
        self.mesh == next.mesh
            && self.rid == next.rid
            && self.lifecycle == next.lifecycle
            && self.role == next.role
            && self.entry_spot_id == next.entry_spot_id
            && self.identity == next.identity
            && self.channels.keys().eq(next.channels.keys())
            && fixed(self) == fixed(next)
    }
}

/// One descriptor of a listing with the view of its owner lease in the same observation (STORE-48).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DescriptorEntry {
    /// The descriptor.
    pub descriptor: Arc<Descriptor>,
    /// Its owner lease.
    pub lease: LeaseView,
    /// Version of the claim's row.
    pub version: StoreVersion,
}

/// Where the next page starts; at most 4,096 opaque bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PageToken(pub Bytes);

/// One page of a listing, at most 4 MiB (STORE-54).
///
/// A listing may be used only when the change stamp is equal on its first and last page.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DescriptorPage {
    /// Published descriptors in (mesh, RID) order.
    pub entries: Vec<DescriptorEntry>,
    /// Where to go on, `None` on the last page.
    pub next: Option<PageToken>,
    /// Stepped by every publication, update and removal.
    pub change_stamp: u64,
    /// Store time of the observation.
    pub store_now: StoreTime,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SpotKind;

    fn server(capabilities: usize) -> Descriptor {
        let capability = |n: usize| TypeCapability {
            kind: ObjectKind::Spot(SpotKind::User),
            stable_type: StableType::new(format!("{n}")).unwrap(),
            policy: RelocationPolicy::DisableRelocation,
            limit: 0,
            count: 0,
        };
        Descriptor {
            mesh: MeshName::new("mesh").unwrap(),
            rid: Rid::new("n").unwrap(),
            lifecycle: LifecycleGeneration::from_u64(1).unwrap(),
            revision: DescriptorRevision::FIRST,
            endpoint: "tcp://n".to_owned(),
            role: ObjectRole::Server,
            channels: BTreeMap::new(),
            entry_spot_id: Some(SpotId::new("entry").unwrap()),
            capabilities: (0..capabilities).map(capability).collect(),
            placement_weight: Weight::DEFAULT,
            actors: 0,
            actor_limit: 0,
            spots: 0,
            spot_limit: 0,
            pending_activations: 0,
            pending_activation_limit: 128,
            host_state: HostState::Serving,
            identity: SecurityIdentity::new("anonymous").unwrap(),
            trust_profile: "open".to_owned(),
            public_key: Some([0; 32]),
            protocol: 1,
            protocol_capabilities: 0,
            application_version: 0,
            maintenance_wave: None,
        }
    }

    #[test]
    fn a_descriptor_is_refused_beyond_its_bounds() {
        assert_eq!(server(CAPABILITIES_MAX).check(), Ok(()));
        let refused: [fn(&mut Descriptor); 7] = [
            |d| d.capabilities = server(CAPABILITIES_MAX + 1).capabilities,
            |d| d.capabilities = [server(1).capabilities, server(1).capabilities].concat(),
            |d| d.entry_spot_id = None,
            |d| d.role = ObjectRole::Client,
            |d| d.actor_limit = LIMIT_MAX + 1,
            |d| d.application_version = 1 << 63,
            |d| d.maintenance_wave = Some(String::new()),
        ];
        for change in refused {
            let mut descriptor = server(1);
            change(&mut descriptor);
            assert!(matches!(descriptor.check(), Err(StoreError::InvalidArgument(_))), "{descriptor:?}");
        }
        // NODE-64 to the byte.
        let mut descriptor = server(1);
        let room = DESCRIPTOR_MAX - descriptor.encoded_len();
        // The longer text also needs two more bytes of length.
        descriptor.endpoint = "x".repeat(room + "tcp://n".len() - 2);
        assert_eq!((descriptor.encoded_len(), descriptor.check()), (DESCRIPTOR_MAX, Ok(())));
        descriptor.endpoint.push('x');
        assert!(descriptor.check().is_err());
    }

    #[test]
    fn only_weights_states_and_projections_change_within_a_lifecycle() {
        let old = server(2);
        let may: [fn(&mut Descriptor); 5] = [
            |d| d.placement_weight = Weight::new(0).unwrap(),
            |d| d.host_state = HostState::Draining,
            |d| d.actors = 7,
            |d| d.capabilities[0].count = 7,
            |d| d.endpoint = "tcp://m".to_owned(),
        ];
        for change in may {
            let mut next = old.clone();
            change(&mut next);
            assert!(old.keeps_immutable_part(&next), "{next:?}");
        }
        let must_not: [fn(&mut Descriptor); 4] = [
            |d| d.capabilities[0].policy = RelocationPolicy::PreserveState,
            |d| drop(d.capabilities.pop()),
            |d| d.spot_limit = 1,
            |d| d.rid = Rid::new("m").unwrap(),
        ];
        for change in must_not {
            let mut next = old.clone();
            change(&mut next);
            assert!(!old.keeps_immutable_part(&next), "{next:?}");
        }
    }
}
