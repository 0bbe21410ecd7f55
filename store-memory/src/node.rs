//! Node claims and descriptors (STORE-50..53).

use spotmesh::model::{LeaseRef, LifecycleGeneration, ObjectKey, ObjectRole};
use spotmesh::store::{
    ClaimNode, ConflictReason, Descriptor, LIMIT_MAX, NodeLimits, PublishDescriptor, RemoveDescriptor,
    SpotType, StoreError, StoreEvent, StoreReply, StoreResult, UpdateDescriptor, UpdateOutcome,
};

use crate::apply::Tx;
use crate::capacity::{Counters, NodeKey};
use crate::state::{Claim, EntrySpot, NodeName, Published};

fn invalid(text: String) -> StoreError {
    StoreError::InvalidArgument(text)
}

fn check_claim(r: &ClaimNode) -> Result<(), StoreError> {
    let types = r.limits.types.values();
    for limit in [&r.limits.actors, &r.limits.spots].into_iter().chain(types) {
        if *limit > LIMIT_MAX {
            return Err(invalid(format!("limit: expected 0..={LIMIT_MAX}, found {limit}")));
        }
    }
    if r.entry_spot_id.is_some() != (r.role == ObjectRole::Server) {
        return Err(invalid(format!(
            "claim: expected an Entry Spot id exactly for role Server, found {:?} with role {:?}",
            r.entry_spot_id, r.role
        )));
    }
    Ok(())
}

/// Whether descriptor and claim say the same of what both hold.
fn check_agrees(descriptor: &Descriptor, claim: &Claim) -> Result<(), StoreError> {
    if descriptor.role != claim.role {
        return Err(invalid(format!(
            "role: expected {:?} as claimed, found {:?}",
            claim.role, descriptor.role
        )));
    }
    if descriptor.entry_spot_id != claim.entry_spot_id {
        return Err(invalid(format!(
            "Entry Spot id: expected {:?} as claimed, found {:?}",
            claim.entry_spot_id, descriptor.entry_spot_id
        )));
    }
    let stated = NodeLimits {
        actors: descriptor.actor_limit,
        spots: descriptor.spot_limit,
        types: descriptor
            .capabilities
            .iter()
            .filter_map(|entry| match entry.kind {
                spotmesh::model::ObjectKind::Spot(kind) if entry.limit > 0 => {
                    Some((SpotType { kind, stable_type: entry.stable_type.clone() }, entry.limit))
                }
                _ => None,
            })
            .collect(),
    };
    let claimed_types = claim.limits.types.iter().filter(|(_, limit)| **limit > 0);
    if (stated.actors, stated.spots) != (claim.limits.actors, claim.limits.spots)
        || !claimed_types.eq(stated.types.iter())
    {
        return Err(invalid(format!("limits: expected {:?} as claimed, found {stated:?}", claim.limits)));
    }
    Ok(())
}

impl Tx<'_> {
    pub(crate) fn claim_node(&mut self, r: &ClaimNode) -> StoreResult {
        check_claim(r)?;
        let name: NodeName = (r.mesh.clone(), r.rid.clone());
        let found = self.state.claims.get(&name);
        if let Some(claim) = found
            && claim.lifecycle == r.lifecycle
            && claim.lease == r.lease
        {
            if (claim.role, &claim.limits, &claim.entry_spot_id) != (r.role, &r.limits, &r.entry_spot_id) {
                return Err(StoreError::conflict(ConflictReason::DifferentContent));
            }
            return Ok(StoreReply::Version(self.stamp(claim.claim_version)));
        }
        self.need_live(r.lease)?;
        if found.is_some_and(|claim| self.state.is_live(claim.lease, self.now)) {
            return Err(StoreError::conflict(ConflictReason::RidInUse));
        }
        // A repeated lifecycle would take over the counters of an earlier one.
        let counters = NodeKey { mesh: r.mesh.clone(), rid: r.rid.clone(), lifecycle: r.lifecycle };
        if self.state.counters.contains_key(&counters) {
            return Err(StoreError::conflict(ConflictReason::LifecycleMismatch));
        }
        if let Some(entry) = &r.entry_spot_id {
            let key = ObjectKey::Spot(entry.clone());
            let foreign = self.state.entries.get(entry).is_some_and(|entry| entry.node != name);
            if foreign || self.state.rows.contains_key(&key) {
                return Err(StoreError::conflict(ConflictReason::EntrySpotIdInUse));
            }
        }
        let mut sequences = self.state.sequences;
        let version = sequences.version()?;
        let entry = match &r.entry_spot_id {
            Some(id) => Some((id.clone(), sequences.object()?, sequences.owner()?)),
            None => None,
        };
        self.state.sequences = sequences;
        if let Some(predecessor) = self.drop_claim(&name) {
            self.fence(predecessor.lease);
        }
        if let Some((id, object_generation, owner_generation)) = entry {
            let node = name.clone();
            self.state.entries.insert(id, EntrySpot { node, object_generation, owner_generation });
        }
        self.state.counters.insert(counters, Counters::new(&r.limits));
        let claim = Claim {
            lifecycle: r.lifecycle,
            role: r.role,
            limits: r.limits.clone(),
            entry_spot_id: r.entry_spot_id.clone(),
            lease: r.lease,
            claim_version: version,
            published: None,
        };
        self.state.claims.insert(name, claim);
        Ok(StoreReply::Version(self.stamp(version)))
    }

    /// Removes a claim with descriptor and Entry identity, with the hints of what was visible.
    fn drop_claim(&mut self, name: &NodeName) -> Option<Claim> {
        let claim = self.state.claims.remove(name)?;
        if let Some(entry) = &claim.entry_spot_id {
            self.state.entries.remove(entry);
        }
        if claim.published.is_some() {
            self.descriptors_changed(claim.entry_spot_id.clone());
        }
        Some(claim)
    }

    fn descriptors_changed(&mut self, entry: Option<spotmesh::model::SpotId>) {
        self.state.change_stamp += 1;
        self.hints.push(StoreEvent::Descriptors);
        if let Some(entry) = entry {
            self.hint(&ObjectKey::Spot(entry));
        }
    }

    /// The claim a publication is for.
    fn claim_for(
        &self,
        name: &NodeName,
        lifecycle: LifecycleGeneration,
        lease: LeaseRef,
    ) -> Result<&Claim, StoreError> {
        let claim = self.state.claims.get(name).ok_or(StoreError::NotFound)?;
        if claim.lifecycle != lifecycle || claim.lease != lease {
            return Err(StoreError::conflict(ConflictReason::LifecycleMismatch));
        }
        Ok(claim)
    }

    pub(crate) fn publish_descriptor(&mut self, r: &PublishDescriptor) -> StoreResult {
        let descriptor = &r.descriptor;
        descriptor.check()?;
        let name = (descriptor.mesh.clone(), descriptor.rid.clone());
        let claim = self.claim_for(&name, descriptor.lifecycle, r.lease)?;
        check_agrees(descriptor, claim)?;
        if let Some(published) = &claim.published {
            let reason = if published.descriptor.revision != descriptor.revision {
                ConflictReason::VersionMismatch
            } else if published.descriptor != *descriptor {
                ConflictReason::DifferentContent
            } else {
                return Ok(StoreReply::Version(self.stamp(published.version)));
            };
            return Err(StoreError::conflict(reason));
        }
        let entry = claim.entry_spot_id.clone();
        self.need_live(r.lease)?;
        let version = self.state.sequences.version()?;
        let published =
            Published { descriptor: descriptor.clone(), encoded_len: descriptor.encoded_len(), version };
        if let Some(claim) = self.state.claims.get_mut(&name) {
            claim.published = Some(published);
        }
        self.descriptors_changed(entry);
        Ok(StoreReply::Version(self.stamp(version)))
    }

    pub(crate) fn update_descriptor(&mut self, r: &UpdateDescriptor) -> StoreResult {
        let descriptor = &r.descriptor;
        descriptor.check()?;
        let name = (descriptor.mesh.clone(), descriptor.rid.clone());
        let claim = self.claim_for(&name, descriptor.lifecycle, r.lease)?;
        let published = claim.published.as_ref().ok_or(StoreError::NotFound)?;
        if descriptor.revision <= published.descriptor.revision {
            return Ok(StoreReply::Updated(self.stamp(UpdateOutcome::Ignored(published.version))));
        }
        if !published.descriptor.keeps_immutable_part(descriptor) {
            return Err(StoreError::conflict(ConflictReason::ImmutableField));
        }
        self.need_live(r.lease)?;
        let version = self.state.sequences.version()?;
        let published =
            Published { descriptor: descriptor.clone(), encoded_len: descriptor.encoded_len(), version };
        if let Some(claim) = self.state.claims.get_mut(&name) {
            claim.published = Some(published);
        }
        self.descriptors_changed(None);
        Ok(StoreReply::Updated(self.stamp(UpdateOutcome::Applied(version))))
    }

    pub(crate) fn remove_descriptor(&mut self, r: &RemoveDescriptor) -> StoreResult {
        let name = (r.mesh.clone(), r.rid.clone());
        let present = match self.claim_for(&name, r.lifecycle, r.lease) {
            Ok(_) => true,
            Err(StoreError::NotFound) => false,
            Err(error) => return Err(error),
        };
        self.drop_claim(&name);
        Ok(StoreReply::Flag(self.stamp(present)))
    }
}
