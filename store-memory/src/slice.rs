//! A slice of a namespace kept elsewhere: records are loaded by key, [`crate::apply`] runs over them, and what it
//! looked up without knowing and what it changed is told.
//!
//! A provider that keeps its records in a database decides every operation with the same code as the memory store:
//! load what the operation needs, apply it, load what it missed and start over, else write the changes.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use spotmesh::model::{
    ActivationId, AggregateId, ContentId, ObjectKey, OperationIdentity, OwnerId, ReservationId, Sha256Digest,
    SpotId,
};
use spotmesh::store::TerminalRecord;

pub use crate::capacity::{Counters, NodeKey, Slots};
use crate::state::State;
pub use crate::state::{
    ActivationRow, Blob, ChunkRow, Claim, EntrySpot, LeaseRow, Member, Members, NodeName, Phase, Published,
    Ready, Row,
};
use crate::table::Table;

macro_rules! tables {
    ($($(#[$doc:meta])* $name:ident: $field:ident, $key:ty => $record:ty;)+) => {
        /// Names one record.
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Key {
            $($(#[$doc])* $name($key),)+
        }

        /// One record.
        #[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Record {
            $($(#[$doc])* $name($record),)+
        }

        impl State {
            /// A slice of which nothing is loaded yet.
            #[must_use]
            pub fn partial() -> Self {
                Self { $($field: Table::partial(),)+ ..Self::default() }
            }

            /// Notes that there is no record of a key.
            pub fn load_absent(&mut self, key: Key) {
                match key {
                    $(Key::$name(key) => self.$field.load(key, None),)+
                }
            }

            /// Keys that were looked up and not loaded: what was answered on their account is not to be used.
            #[must_use]
            pub fn missed(&self) -> Vec<Key> {
                let mut missed = Vec::new();
                $(missed.extend(self.$field.missed().into_iter().map(Key::$name));)+
                missed
            }

            /// Every record that differs from what was loaded.
            #[must_use]
            pub fn changes(&self) -> Vec<Change> {
                let mut changes = Vec::new();
                $(changes.extend(self.$field.changes().into_iter().map(|(key, before, after)| Change {
                    key: Key::$name(key.clone()),
                    before: before.cloned().map(Record::$name),
                    after: after.cloned().map(Record::$name),
                }));)+
                changes
            }

            /// Every record there is, or that was loaded, in key order of each kind.
            #[must_use]
            pub fn records(&self) -> Vec<(Key, Record)> {
                let mut records = Vec::new();
                $(records.extend(self.$field.iter().map(|(key, record)| {
                    (Key::$name(key.clone()), Record::$name(record.clone()))
                }));)+
                records
            }

            /// Notes the record of a key. A record of another kind is refused.
            ///
            /// # Errors
            /// The key, where the record is of another kind.
            pub fn load(&mut self, key: Key, record: Record) -> Result<(), Key> {
                match (key, record) {
                    $((Key::$name(key), Record::$name(record)) => self.$field.load(key, Some(record)),)+
                    (key, _) => return Err(key),
                }
                Ok(())
            }
        }
    };
}

tables! {
    /// An owner lease.
    Lease: leases, OwnerId => LeaseRow;
    /// A node's claim with its descriptor.
    Claim: claims, NodeName => Claim;
    /// Identity of an Entry Spot.
    Entry: entries, SpotId => EntrySpot;
    /// Capacity counters of a node lifecycle.
    Counters: counters, NodeKey => Counters;
    /// An authority row.
    Row: rows, ObjectKey => Row;
    /// Creation content.
    Content: contents, ContentId => Blob;
    /// An activation record.
    Activation: activations, ActivationId => ActivationRow;
    /// The terminal record of an operation.
    Terminal: terminals, OperationIdentity => TerminalRecord;
    /// Which operation's record an attempt ended in.
    Ended: ended, ReservationId => OperationIdentity;
    /// An inventory chunk.
    Chunk: chunks, (AggregateId, Sha256Digest) => ChunkRow;
}

/// What became of one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The record's key.
    pub key: Key,
    /// As it was loaded; `None` where there was none.
    pub before: Option<Record>,
    /// As it is now; `None` where it was deleted.
    pub after: Option<Record>,
}

impl State {
    /// Goes on issuing generations and versions from a block drawn elsewhere, of every sequence the same values.
    /// Behind the block's end they count as exhausted (STORE-10).
    pub fn draw_from(&mut self, block: &Range<u64>) {
        self.sequences.draw(block);
    }

    /// Stamp of listings: steps with every visible change of a descriptor.
    #[must_use]
    pub const fn change_stamp(&self) -> u64 {
        self.change_stamp
    }

    /// Sets the stamp as loaded.
    pub const fn load_change_stamp(&mut self, stamp: u64) {
        self.change_stamp = stamp;
    }

    /// Owner lease and node that count for a row, members of a SpotWide Spot included (STORE-13).
    #[must_use]
    pub fn effective_owner<'s>(&'s self, row: &'s Row) -> &'s spotmesh::model::NodeFence {
        self.effective(row).0
    }
}
