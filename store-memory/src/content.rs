//! Immutable bytes: creation content and activation records (STORE-62, STORE-63, STORE-104..107).

use bytes::Bytes;
use spotmesh::model::limits::{ACTIVATION_MAX, CREATION_REQUEST_MAX};
use spotmesh::model::{
    ActivationId, AuthorityOwnerGeneration, ObjectGeneration, ObjectKey, ReservationId, Sha256Digest,
    StoreTime,
};
use spotmesh::store::{
    Activation, ClearActivation, ConflictReason, Content, CreationSource, GetActivation, GetCreationContent,
    PutActivation, PutCreationContent, PutOutcome, RecordActivationProgress, StoreError, StoreReply,
    StoreResult,
};

use crate::apply::Tx;
use crate::state::{ActivationRow, Blob, Row};

fn check_bytes(what: &str, bytes: &Bytes, max: usize, sha256: Sha256Digest) -> Result<(), StoreError> {
    if bytes.len() > max {
        let text = format!("{what}: expected at most {max} bytes, found {}", bytes.len());
        return Err(StoreError::InvalidArgument(text));
    }
    let found = Sha256Digest::of(bytes);
    if found != sha256 {
        let text = format!("{what}: expected bytes of digest {sha256:?}, found {found:?}");
        return Err(StoreError::InvalidArgument(text));
    }
    Ok(())
}

/// A repeated put of the same bytes may lengthen their retention.
fn put_again(
    held: &mut Blob,
    sha256: Sha256Digest,
    retain_until: StoreTime,
) -> Result<PutOutcome, StoreError> {
    if held.sha256 != sha256 {
        return Err(StoreError::conflict(ConflictReason::DifferentContent));
    }
    held.retain_until = held.retain_until.max(retain_until);
    Ok(PutOutcome::AlreadyStored)
}

fn verified(blob: &Blob) -> Result<&Blob, StoreError> {
    if Sha256Digest::of(&blob.bytes) == blob.sha256 { Ok(blob) } else { Err(StoreError::DataLost) }
}

impl Tx<'_> {
    pub(crate) fn put_creation_content(&mut self, r: &PutCreationContent) -> StoreResult {
        check_bytes("creation content", &r.bytes, CREATION_REQUEST_MAX, r.sha256)?;
        let retain_until = self.now + r.retention;
        let outcome = match self.state.contents.get_mut(&r.content) {
            Some(held) => put_again(held, r.sha256, retain_until)?,
            None => {
                let blob = Blob::unlinked(r.bytes.clone(), r.sha256, retain_until);
                self.state.contents.insert(r.content, blob);
                PutOutcome::Stored
            }
        };
        Ok(StoreReply::Put(self.stamp(outcome)))
    }

    pub(crate) fn get_creation_content(&self, r: &GetCreationContent) -> StoreResult {
        let blob = verified(self.state.contents.get(&r.content).ok_or(StoreError::NotFound)?)?;
        Ok(StoreReply::Content(self.stamp(Content { bytes: blob.bytes.clone(), sha256: blob.sha256 })))
    }

    /// Whether what a creation starts from is there, equal, and not held by another reservation.
    pub(crate) fn check_source(&self, source: &CreationSource) -> Result<(), StoreError> {
        let (blob, sha256, size) = match source {
            CreationSource::Content(id, sha256, size) => (self.state.contents.get(id), sha256, size),
            CreationSource::Activation(id, sha256, size) => {
                (self.state.activations.get(id).map(|row| &row.blob), sha256, size)
            }
        };
        let blob = blob.ok_or(StoreError::NotFound)?;
        if blob.sha256 != *sha256 || blob.size != *size {
            return Err(StoreError::conflict(ConflictReason::DifferentContent));
        }
        if blob.linked.is_some() {
            return Err(StoreError::conflict(ConflictReason::ReservationMismatch));
        }
        Ok(())
    }

    /// Ties the bytes to a reservation, or lets go of them where it is `None`.
    pub(crate) fn link_source(&mut self, source: &CreationSource, to: Option<ReservationId>) {
        let blob = match source {
            CreationSource::Content(id, ..) => self.state.contents.get_mut(id),
            CreationSource::Activation(id, ..) => self.state.activations.get_mut(id).map(|row| &mut row.blob),
        };
        if let Some(blob) = blob {
            blob.linked = to;
        }
    }

    /// Deletes the bytes a creation started from.
    pub(crate) fn remove_source(&mut self, source: &CreationSource) {
        match source {
            CreationSource::Content(id, ..) => drop(self.state.contents.remove(id)),
            CreationSource::Activation(id, ..) => drop(self.state.activations.remove(id)),
        }
    }

    pub(crate) fn put_activation(&mut self, r: &PutActivation) -> StoreResult {
        check_bytes("activation record", &r.envelope, ACTIVATION_MAX, r.sha256)?;
        let retain_until = self.now + r.retention;
        let outcome = match self.state.activations.get_mut(&r.activation) {
            Some(held) => put_again(&mut held.blob, r.sha256, retain_until)?,
            None => {
                let blob = Blob::unlinked(r.envelope.clone(), r.sha256, retain_until);
                let row = ActivationRow { blob, inbox_sequence: None, cursor: None };
                self.state.activations.insert(r.activation, row);
                PutOutcome::Stored
            }
        };
        Ok(StoreReply::Put(self.stamp(outcome)))
    }

    pub(crate) fn get_activation(&self, r: &GetActivation) -> StoreResult {
        let row = self.state.activations.get(&r.activation).ok_or(StoreError::NotFound)?;
        let blob = verified(&row.blob)?;
        Ok(StoreReply::Activation(self.stamp(Activation {
            envelope: blob.bytes.clone(),
            sha256: blob.sha256,
            inbox_sequence: row.inbox_sequence,
            cursor: row.cursor,
        })))
    }

    /// The Spot's row of exactly these generations.
    fn activated(
        &self,
        key: &ObjectKey,
        object_generation: ObjectGeneration,
        owner_generation: AuthorityOwnerGeneration,
    ) -> Result<&Row, StoreError> {
        match self.state.rows.get(key) {
            None => Err(self.conflict(ConflictReason::StateMismatch, key)),
            Some(row)
                if row.object_generation != object_generation || row.owner_generation != owner_generation =>
            {
                Err(self.conflict(ConflictReason::GenerationMismatch, key))
            }
            Some(row) => Ok(row),
        }
    }

    pub(crate) fn record_activation_progress(&mut self, r: &RecordActivationProgress) -> StoreResult {
        let key = ObjectKey::Spot(r.spot.clone());
        let row = self.activated(&key, r.object_generation, r.owner_generation)?;
        if linked_activation(row) != Some(r.activation) {
            return Err(self.conflict(ConflictReason::ReservationMismatch, &key));
        }
        if row.owner.lease != r.lease {
            return Err(self.conflict(ConflictReason::OwnerMismatch, &key));
        }
        let record = self.state.activations.get(&r.activation).ok_or(StoreError::NotFound)?;
        let grows = |held: Option<u64>, new: Option<u64>| new.is_none() || new >= held;
        if !grows(record.inbox_sequence, r.inbox_sequence) || !grows(record.cursor, r.cursor) {
            return Err(self.conflict(ConflictReason::StateMismatch, &key));
        }
        self.need_live(r.lease)?;
        if let Some(record) = self.state.activations.get_mut(&r.activation) {
            record.inbox_sequence = record.inbox_sequence.max(r.inbox_sequence);
            record.cursor = record.cursor.max(r.cursor);
        }
        self.done()
    }

    pub(crate) fn clear_activation(&mut self, r: &ClearActivation) -> StoreResult {
        let key = ObjectKey::Spot(r.spot.clone());
        let row = self.activated(&key, r.object_generation, r.owner_generation)?;
        let Some(ready) = row.ready() else {
            return Err(self.conflict(ConflictReason::StateMismatch, &key));
        };
        match ready.object.activation {
            None if !self.state.activations.contains_key(&r.activation) => return self.done(),
            Some(linked) if linked == r.activation => {}
            _ => return Err(self.conflict(ConflictReason::ReservationMismatch, &key)),
        }
        if row.owner.lease != r.lease {
            return Err(self.conflict(ConflictReason::OwnerMismatch, &key));
        }
        let record = self.state.activations.get(&r.activation).ok_or(StoreError::NotFound)?;
        if record.inbox_sequence.is_none() || record.cursor < record.inbox_sequence {
            return Err(self.conflict(ConflictReason::StateMismatch, &key));
        }
        self.need_live(r.lease)?;
        let version = self.state.sequences.version()?;
        if let Some(row) = self.state.rows.get_mut(&key) {
            row.version = version;
            if let Some(ready) = row.ready_mut() {
                ready.object.activation = None;
            }
        }
        self.state.activations.remove(&r.activation);
        self.done()
    }
}

/// The activation record a row links, Creating or Ready.
pub(crate) fn linked_activation(row: &Row) -> Option<ActivationId> {
    match (row.pending().map(|pending| pending.source), row.ready()) {
        (Some(CreationSource::Activation(id, ..)), _) => Some(id),
        (_, Some(ready)) => ready.object.activation,
        _ => None,
    }
}
