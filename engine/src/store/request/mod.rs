//! One struct per operation of the Store (spec 03 §5–§11) and the enum of them all.
//!
//! A request is plain data: it can be recorded, re-issued verbatim to settle a lost answer (STORE-24,
//! STORE-25) and faulted at one place. Times in a request are durations; only the Store turns them into
//! Store time (STORE-12).

mod activation;
mod creation;
mod lease;
mod membership;
mod node;
mod read;
mod relocation;

use serde::{Deserialize, Serialize};

pub use activation::{ClearActivation, GetActivation, PutActivation, RecordActivationProgress};
pub use creation::{
    AbortFailed, AbortNotExecuted, AbortRecovery, CommitCreated, CommitRejected, GetCreationContent,
    PutCreationContent, Reserve,
};
pub use lease::{AcquireLease, ReadLease, ReleaseLease, RenewLease};
pub use membership::{
    AuthorityFence, BeginClose, ChangeMembership, FinishClose, FinishStaleClose, RemoveOwnerRows, RetireOwner,
};
pub use node::{
    ClaimNode, ListDescriptors, NodeLimits, PublishDescriptor, RemoveDescriptor, UpdateDescriptor,
};
pub use read::{
    ListAuthorities, OwnRowFilter, ReadAuthority, ReadCreation, ReadTerminal, ScanOwnRows, ScanStaleClosing,
    ScanStaleCreating, Sweep,
};
pub use relocation::{
    AbortAggregate, AbortRelocation, ClearRelocation, CommitAggregate, CommitRelocation, CommitSpotAuthority,
    GetInventoryChunk, MarkPhase, MarkRelocation, MembershipMove, PrepareAggregate, PutInventoryChunk,
    ReserveRelocation,
};

macro_rules! requests {
    ($($name:ident => $text:literal, mutates $mutates:literal;)+) => {
        /// Every operation of the Store as data.
        #[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum StoreRequest {
            $(
                #[doc = concat!("`", $text, "`.")]
                $name($name),
            )+
        }

        impl StoreRequest {
            /// Every operation's name in spec 03, and whether it can change the Store.
            pub const OPERATIONS: &'static [(&'static str, bool)] = &[$(($text, $mutates)),+];

            /// The operation's name in spec 03.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Self::$name(_) => $text,)+
                }
            }

            /// Whether the operation can change the Store; a read needs no settlement.
            #[must_use]
            pub const fn mutates(&self) -> bool {
                match self {
                    $(Self::$name(_) => $mutates,)+
                }
            }
        }

        $(
            impl From<$name> for StoreRequest {
                fn from(request: $name) -> Self {
                    Self::$name(request)
                }
            }
        )+
    };
}

requests! {
    AcquireLease => "acquire_lease", mutates true;
    RenewLease => "renew_lease", mutates true;
    ReleaseLease => "release_lease", mutates true;
    ReadLease => "read_lease", mutates false;
    ClaimNode => "claim_node", mutates true;
    PublishDescriptor => "publish_descriptor", mutates true;
    UpdateDescriptor => "update_descriptor", mutates true;
    RemoveDescriptor => "remove_descriptor", mutates true;
    ListDescriptors => "list_descriptors", mutates false;
    ReadAuthority => "read_authority", mutates false;
    ReadCreation => "read_creation", mutates false;
    ReadTerminal => "read_terminal", mutates false;
    ListAuthorities => "list_authorities", mutates false;
    PutCreationContent => "put_creation_content", mutates true;
    GetCreationContent => "get_creation_content", mutates false;
    Reserve => "reserve", mutates true;
    CommitCreated => "commit_created", mutates true;
    CommitRejected => "commit_rejected", mutates true;
    AbortFailed => "abort(Failed)", mutates true;
    AbortNotExecuted => "abort(NotExecuted)", mutates true;
    AbortRecovery => "abort(Recovery)", mutates true;
    ChangeMembership => "change_membership", mutates true;
    BeginClose => "begin_close", mutates true;
    FinishClose => "finish_close", mutates true;
    FinishStaleClose => "finish_stale_close", mutates true;
    RemoveOwnerRows => "remove_owner_rows", mutates true;
    RetireOwner => "retire_owner", mutates true;
    ReserveRelocation => "reserve_relocation", mutates true;
    MarkRelocation => "mark_relocation", mutates true;
    AbortRelocation => "abort_relocation", mutates true;
    ClearRelocation => "clear_relocation", mutates true;
    CommitRelocation => "commit_relocation", mutates true;
    PutInventoryChunk => "put_inventory_chunk", mutates true;
    GetInventoryChunk => "get_inventory_chunk", mutates false;
    PrepareAggregate => "prepare_aggregate", mutates true;
    CommitAggregate => "commit_aggregate", mutates true;
    AbortAggregate => "abort_aggregate", mutates true;
    CommitSpotAuthority => "commit_spot_authority", mutates true;
    PutActivation => "put_activation", mutates true;
    GetActivation => "get_activation", mutates false;
    RecordActivationProgress => "record_activation_progress", mutates true;
    ClearActivation => "clear_activation", mutates true;
    ScanStaleCreating => "scan_stale_creating", mutates false;
    ScanStaleClosing => "scan_stale_closing", mutates false;
    ScanOwnRows => "scan_own_rows", mutates false;
    Sweep => "sweep", mutates true;
}
