//! What must hold of a state between two operations.

use std::collections::{BTreeMap, BTreeSet};

use spotmesh::model::{ObjectKey, ReservationId};
use spotmesh::store::{Bundle, CreationSource, SpotType};

use crate::capacity::NodeKey;
use crate::close::promised;
use crate::content::linked_activation;
use crate::state::{Member, Row, State};

/// Slots in use by rows: (active, reserved) of each component.
#[derive(Default)]
struct Used {
    actors: (u64, u64),
    spots: (u64, u64),
    types: BTreeMap<SpotType, (u64, u64)>,
}

impl Used {
    fn add(&mut self, bundle: &Bundle, reserved: bool) {
        let add = |slots: &mut (u64, u64), by| {
            if reserved {
                slots.1 += by;
            } else {
                slots.0 += by;
            }
        };
        add(&mut self.actors, bundle.actors);
        if let Some(spot_type) = &bundle.spot {
            add(&mut self.spots, 1);
            add(self.types.entry(spot_type.clone()).or_default(), 1);
        }
    }
}

impl State {
    /// Checks everything that holds between two operations: counters equal the rows (CREATE-153), member counts
    /// equal the members, links and leases have both their ends, and no value is ahead of its sequence.
    ///
    /// # Errors
    /// The first thing found that does not hold.
    pub fn check(&self) -> Result<(), String> {
        self.check_counters()?;
        self.check_members()?;
        self.check_claims()?;
        self.check_links()?;
        for (key, row) in &self.rows {
            let (owner, generation) = self.effective(row);
            if self.lease(owner.lease).is_none() {
                return Err(format!("{key}: the lease of its owner {owner:?} has no record"));
            }
            if !self.sequences.issued(row.version, row.object_generation, generation) {
                return Err(format!("{key}: version or generation was never issued: {row:?}"));
            }
            if !key.fits(row.kind) {
                return Err(format!("{key}: kind {:?} does not fit the key", row.kind));
            }
        }
        Ok(())
    }

    fn check_counters(&self) -> Result<(), String> {
        let mut used: BTreeMap<NodeKey, Used> = BTreeMap::new();
        for row in self.rows.values() {
            let owner = NodeKey::of(self.effective(row).0);
            used.entry(owner).or_default().add(&row.bundle(), row.ready().is_none());
            if let Some((target, bundle)) = promised(row) {
                used.entry(NodeKey::of(target)).or_default().add(bundle, true);
            }
        }
        if let Some(node) = used.keys().find(|node| !self.counters.contains_key(node)) {
            return Err(format!("rows count at {node:?}, which has no counters"));
        }
        for (node, counters) in &self.counters {
            let used = used.remove(node).unwrap_or_default();
            let types: BTreeMap<_, _> = counters
                .types
                .iter()
                .filter(|(_, slots)| !slots.is_empty())
                .map(|(spot_type, slots)| (spot_type.clone(), (slots.active, slots.reserved)))
                .collect();
            let held = (
                (counters.actors.active, counters.actors.reserved),
                (counters.spots.active, counters.spots.reserved),
                types,
            );
            let rows = (used.actors, used.spots, used.types);
            if held != rows {
                return Err(format!("{node:?}: rows use {rows:?}, counters hold {held:?}"));
            }
            let slots = counters.types.values().chain([&counters.actors, &counters.spots]);
            for slots in slots {
                if slots.limit > 0 && slots.active + slots.reserved > u64::from(slots.limit) {
                    return Err(format!("{node:?}: above a limit: {slots:?}"));
                }
            }
        }
        Ok(())
    }

    fn check_members(&self) -> Result<(), String> {
        let mut counted: BTreeMap<&ObjectKey, u64> = BTreeMap::new();
        let keys: BTreeMap<_, _> = self
            .rows
            .keys()
            .filter_map(|key| match key {
                ObjectKey::Spot(id) => Some((id, key)),
                ObjectKey::Actor(_) => None,
            })
            .collect();
        for (key, row) in &self.rows {
            let Some(Member::User { spot, mode, .. }) = row.ready().map(|ready| &ready.member) else {
                continue;
            };
            let Some(spot_key) = keys.get(spot) else {
                return Err(format!("{key}: member of {spot}, which has no row"));
            };
            if self.rows[*spot_key].execution_mode != Some(*mode) {
                return Err(format!("{key}: holds mode {mode:?} of {spot}, which has another"));
            }
            *counted.entry(spot_key).or_default() += 1;
        }
        for (key, row) in &self.rows {
            let Some(members) = row.members() else { continue };
            let found = counted.get(key).copied().unwrap_or_default();
            if found != members.count {
                return Err(format!("{key}: {found} members, its count says {}", members.count));
            }
            self.check_move_counts(key, row, found)?;
        }
        Ok(())
    }

    fn check_move_counts(&self, key: &ObjectKey, row: &Row, members: u64) -> Result<(), String> {
        let Some(mark) = row.relocation() else { return Ok(()) };
        let Some(counts) = mark.move_counts else { return Ok(()) };
        let at_source = self
            .rows
            .values()
            .filter(|member| {
                member.spot().is_some_and(|spot| spot.as_str() == key.id())
                    && member.owner == mark.source.node
            })
            .count() as u64;
        if (counts.source, counts.source + counts.target) != (at_source, members) {
            return Err(format!("{key}: {at_source} of {members} members at the source, found {counts:?}"));
        }
        Ok(())
    }

    fn check_claims(&self) -> Result<(), String> {
        for ((mesh, rid), claim) in &self.claims {
            if self.lease(claim.lease).is_none() {
                return Err(format!("claim of {rid} in {mesh}: its lease has no record"));
            }
            let counters = NodeKey { mesh: mesh.clone(), rid: rid.clone(), lifecycle: claim.lifecycle };
            if !self.counters.contains_key(&counters) {
                return Err(format!("claim of {rid} in {mesh}: it has no counters"));
            }
            if let Some(entry) = &claim.entry_spot_id
                && self.entries.get(entry).is_none_or(|entry| entry.node != (mesh.clone(), rid.clone()))
            {
                return Err(format!("claim of {rid} in {mesh}: its Entry Spot {entry} is not held"));
            }
        }
        for (id, entry) in &self.entries {
            let claim = self.claims.get(&entry.node);
            if claim.is_none_or(|claim| claim.entry_spot_id.as_ref() != Some(id)) {
                return Err(format!("Entry Spot {id}: no claim holds it"));
            }
            if self.rows.contains_key(&ObjectKey::Spot(id.clone())) {
                return Err(format!("Entry Spot {id}: its key has a row as well"));
            }
        }
        Ok(())
    }

    fn check_links(&self) -> Result<(), String> {
        let mut holders: BTreeSet<ReservationId> = BTreeSet::new();
        for (key, row) in &self.rows {
            if let Some(pending) = row.pending() {
                holders.insert(pending.reservation);
                let held = match pending.source {
                    CreationSource::Content(id, ..) => self.contents.get(&id).map(|blob| blob.linked),
                    CreationSource::Activation(id, ..) => {
                        self.activations.get(&id).map(|row| row.blob.linked)
                    }
                };
                if held != Some(Some(pending.reservation)) {
                    return Err(format!(
                        "{key}: what its creation starts from is not linked, found {held:?}"
                    ));
                }
            } else if let Some(activation) = linked_activation(row) {
                holders.extend(row.ready().and_then(|ready| ready.object.created_by));
                if !self.activations.contains_key(&activation) {
                    return Err(format!("{key}: its activation record {activation} is gone"));
                }
            }
        }
        let blobs = self.contents.values().chain(self.activations.values().map(|row| &row.blob));
        for blob in blobs {
            if blob.linked.is_some_and(|linked| !holders.contains(&linked)) {
                return Err(format!("bytes linked to {:?}, which no row carries", blob.linked));
            }
        }
        let ended: BTreeMap<_, _> = self
            .terminals
            .iter()
            .map(|(operation, record)| (record.reservation, operation.clone()))
            .collect();
        if !ended.iter().eq(self.ended.iter()) {
            return Err("the index of ended attempts differs from the terminal records".to_owned());
        }
        Ok(())
    }
}
