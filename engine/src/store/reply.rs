//! Outputs of operations, and the hints a Store sends.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::descriptor::DescriptorPage;
use super::error::StoreError;
use super::record::{
    Activation, AuthorityPage, AuthorityRead, AuthorityView, Content, CreationView, LeaseGrant, LeaseView,
    ReservationFence, Stamped, TerminalRecord,
};
use crate::model::{ObjectKey, StoreVersion};

/// End of a Store call: one output or one typed failure (STORE-22).
pub type StoreResult = Result<StoreReply, StoreError>;

/// Every output of an operation. Which operation has which output is in [`super::operation`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StoreReply {
    /// A lease was acquired or renewed.
    Granted(LeaseGrant),
    /// A lease was read.
    Lease(Stamped<LeaseView>),
    /// Whether the record is in the wished state.
    Flag(Stamped<bool>),
    /// Version of a claim or descriptor.
    Version(Stamped<StoreVersion>),
    /// Outcome of a descriptor update.
    Updated(Stamped<UpdateOutcome>),
    /// A page of descriptors.
    Descriptors(DescriptorPage),
    /// A key was read.
    Authority(AuthorityRead),
    /// A key and an operation were read.
    Creation(Box<CreationView>),
    /// A terminal record.
    Terminal(Stamped<Box<TerminalRecord>>),
    /// A page of rows.
    Authorities(AuthorityPage),
    /// Outcome of storing immutable bytes.
    Put(Stamped<PutOutcome>),
    /// Creation content.
    Content(Stamped<Content>),
    /// A reservation was made.
    Reserved(Stamped<Box<ReservationFence>>),
    /// The row after a change.
    Row(Box<AuthorityView>),
    /// Done.
    Done(Stamped<()>),
    /// A number of rows or records.
    Count(Stamped<u64>),
    /// An inventory chunk, encoded.
    Chunk(Stamped<Bytes>),
    /// An aggregate move was prepared.
    Prepared(Box<PrepareOutcome>),
    /// An activation record.
    Activation(Stamped<Activation>),
}

/// What became of a descriptor update (STORE-52); either way the stored descriptor is at least as new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum UpdateOutcome {
    /// Stored, at this version.
    Applied(StoreVersion),
    /// The stored revision is not lower, at this version. Also the answer to a re-issue.
    Ignored(StoreVersion),
}

/// What became of immutable bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PutOutcome {
    /// Stored now.
    Stored,
    /// The same bytes were there.
    AlreadyStored,
}

/// What became of `PrepareAggregate`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PrepareOutcome {
    /// Prepared now; the row.
    Prepared(AuthorityView),
    /// This move was prepared; a higher attempt replaced the former one. The row.
    AlreadyPrepared(AuthorityView),
}

/// A hint that something changed: it may be lost, repeated or merged, so re-read before acting (STORE-112).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StoreEvent {
    /// State or owner of this key changed.
    Authority(ObjectKey),
    /// A descriptor was published, updated or removed.
    Descriptors,
    /// Hints may have been missed.
    Resync,
}

/// What to get hints about (STORE-55, STORE-108).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum WatchScope {
    /// Descriptors of every Mesh.
    Descriptors,
    /// One key.
    Authority(ObjectKey),
}

impl WatchScope {
    /// Whether a watcher of this scope gets the event; everybody gets `Resync`.
    #[must_use]
    pub fn covers(&self, event: &StoreEvent) -> bool {
        match (self, event) {
            (_, StoreEvent::Resync) | (Self::Descriptors, StoreEvent::Descriptors) => true,
            (Self::Authority(watched), StoreEvent::Authority(changed)) => watched == changed,
            _ => false,
        }
    }
}
