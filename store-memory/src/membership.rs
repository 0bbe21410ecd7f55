//! Membership of Actors in Spots (STORE-76, STORE-102).

use spotmesh::model::{NodeFence, ObjectKey, SpotId, StoreVersion};
use spotmesh::store::{ChangeMembership, ConflictReason, Mark, MoveCounts, StoreError, StoreResult};

use crate::apply::Tx;
use crate::sequence::Sequences;
use crate::state::{Member, Members};

/// One member more or less in a User Spot, worked out and checked but not yet made.
pub(crate) struct SpotStep {
    key: ObjectKey,
    members: Members,
    counts: Option<MoveCounts>,
    version: StoreVersion,
}

impl SpotStep {
    /// The step of a moving PerActor Spot whose members stay the same but change sides.
    pub(crate) fn transfer(
        key: ObjectKey,
        members: Members,
        counts: MoveCounts,
        version: StoreVersion,
    ) -> Self {
        Self { key, members, counts: Some(counts), version }
    }
}

/// Whether somebody comes or goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Join,
    Leave,
}

impl Tx<'_> {
    /// Works out a step of the Spot's count; nothing for an Entry Spot. `at` is the member's owner, whose side
    /// of a moving PerActor Spot counts it.
    pub(crate) fn plan_step(
        &self,
        spot: &SpotId,
        step: Step,
        at: &NodeFence,
        sequences: &mut Sequences,
    ) -> Result<Option<SpotStep>, StoreError> {
        let key = ObjectKey::Spot(spot.clone());
        let Some(row) = self.state.rows.get(&key) else { return Ok(None) };
        let corrupt = |text: &str| StoreError::Corrupt(format!("{key}: {text}"));
        let members = row.members().ok_or_else(|| corrupt("has a member but is no Ready User Spot"))?;
        let stepped = |count: u64| match step {
            Step::Join => count.checked_add(1),
            Step::Leave => count.checked_sub(1),
        };
        let count = stepped(members.count).ok_or_else(|| corrupt("member count below zero"))?;
        let generation = members.generation.next().ok_or(StoreError::GenerationExhausted)?;
        let mut counts = None;
        if let Some(mark) = row.relocation()
            && let Some(mut moving) = mark.move_counts
        {
            let side = if *at == mark.source.node { &mut moving.source } else { &mut moving.target };
            *side = stepped(*side).ok_or_else(|| corrupt("move count below zero"))?;
            counts = Some(moving);
        }
        let members = Members { count, generation, aggregate: members.aggregate.clone() };
        Ok(Some(SpotStep { key, members, counts, version: sequences.version()? }))
    }

    /// Makes a planned step.
    pub(crate) fn make_step(&mut self, step: Option<SpotStep>) {
        let Some(step) = step else { return };
        let Some(row) = self.state.rows.get_mut(&step.key) else { return };
        row.version = step.version;
        if let Some(ready) = row.ready_mut() {
            ready.member = Member::Spot(step.members);
            if let (Some(Mark::Relocating(mark)), Some(_)) = (&mut ready.object.mark, step.counts) {
                mark.move_counts = step.counts;
            }
        }
        self.hint(&step.key);
    }

    /// The membership an Actor owned by `owner` gets in `to`: a published Entry Spot or a Ready, unmarked
    /// User Spot of the same owner. A PerActor Spot takes members again once its own move is committed.
    pub(crate) fn joinable(&self, to: &SpotId, owner: &NodeFence) -> Result<Member, StoreError> {
        let key = ObjectKey::Spot(to.clone());
        let conflict = |reason| Err(self.conflict(reason, &key));
        if let Some(entry) = self.state.entries.get(to) {
            let claim = self.state.claim_of(owner).filter(|claim| claim.published.is_some());
            return match claim {
                Some(claim) if claim.entry_spot_id.as_ref() == Some(to) => Ok(Member::Entry(to.clone())),
                _ if self.state.claims.get(&entry.node).is_none_or(|claim| claim.published.is_none()) => {
                    Err(StoreError::NotFound)
                }
                _ => conflict(ConflictReason::OwnerMismatch),
            };
        }
        let row = self.state.rows.get(&key).ok_or(StoreError::NotFound)?;
        let (Some(_), Some(mode)) = (row.members(), row.execution_mode) else {
            return conflict(ConflictReason::StateMismatch);
        };
        match row.mark() {
            None => {}
            Some(Mark::Closing(_)) => return conflict(ConflictReason::Closing),
            Some(Mark::Relocating(mark)) if mark.move_counts.is_some() => {}
            Some(Mark::Relocating(_)) => return conflict(ConflictReason::Moving),
        }
        if row.owner != *owner {
            return conflict(ConflictReason::OwnerMismatch);
        }
        Ok(Member::User { spot: to.clone(), mode, joined_under: row.owner_generation })
    }

    pub(crate) fn change_membership(&mut self, r: &ChangeMembership) -> StoreResult {
        let key = &r.fence.key;
        if r.from == r.to || !matches!(key, ObjectKey::Actor(_)) {
            let text = format!("change_membership: expected an Actor and two Spots, found {key}, {:?}", r.to);
            return Err(StoreError::InvalidArgument(text));
        }
        let row =
            self.state.rows.get(key).ok_or_else(|| self.conflict(ConflictReason::StateMismatch, key))?;
        if row.object_generation == r.fence.object_generation
            && let Some(ready) = row.ready()
            && ready.object.last_change == Some(r.join)
        {
            return match row.spot() {
                Some(spot) if *spot == r.to => self.row(key),
                _ => Err(self.conflict(ConflictReason::DifferentContent, key)),
            };
        }
        self.check_owned(&r.fence, r.lease)?;
        match row.mark() {
            None => {}
            Some(Mark::Closing(_)) => return Err(self.conflict(ConflictReason::Closing, key)),
            Some(Mark::Relocating(_)) => return Err(self.conflict(ConflictReason::Moving, key)),
        }
        if row.spot() != Some(&r.from) {
            return Err(self.conflict(ConflictReason::StateMismatch, key));
        }
        let (owner, owner_generation) = self.state.effective(row);
        let owner = owner.clone();
        let member = self.joinable(&r.to, &owner)?;
        self.need_live(r.lease)?;
        let mut sequences = self.state.sequences;
        let left = self.plan_step(&r.from, Step::Leave, &owner, &mut sequences)?;
        let joined = self.plan_step(&r.to, Step::Join, &owner, &mut sequences)?;
        let version = sequences.version()?;
        self.state.sequences = sequences;
        self.make_step(left);
        self.make_step(joined);
        if let Some(row) = self.state.rows.get_mut(key) {
            // Leaving a SpotWide Spot writes the pair that counted there (STORE-13).
            row.owner = owner;
            row.owner_generation = owner_generation;
            row.version = version;
            if let Some(ready) = row.ready_mut() {
                ready.member = member;
                ready.object.last_change = Some(r.join);
            }
        }
        self.hint(key);
        self.row(key)
    }
}
