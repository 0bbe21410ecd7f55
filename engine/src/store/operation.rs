//! Typed calls: which request has which output.

use bytes::Bytes;

use super::descriptor::DescriptorPage;
use super::record::{
    Activation, AuthorityPage, AuthorityRead, AuthorityView, Content, CreationView, LeaseGrant, LeaseView,
    ReservationFence, Stamped, TerminalRecord,
};
use super::reply::{PrepareOutcome, PutOutcome, StoreReply, UpdateOutcome};
use super::request::*;
use crate::model::StoreVersion;

/// A request together with the type of its output.
pub trait StoreOperation: Into<StoreRequest> + Send + 'static {
    /// What the operation returns.
    type Output;

    /// The request as data.
    fn into_request(self) -> StoreRequest {
        self.into()
    }

    /// The output, `None` where the reply belongs to another operation.
    fn from_reply(reply: StoreReply) -> Option<Self::Output>;
}

macro_rules! operations {
    ($($variant:ident($output:ty): $($request:ident),+;)+) => {
        $($(
            impl StoreOperation for $request {
                type Output = $output;

                fn from_reply(reply: StoreReply) -> Option<$output> {
                    match reply {
                        StoreReply::$variant(output) => Some(output),
                        _ => None,
                    }
                }
            }
        )+)+
    };
}

operations! {
    Granted(LeaseGrant): AcquireLease, RenewLease;
    Lease(Stamped<LeaseView>): ReadLease;
    Flag(Stamped<bool>): ReleaseLease, RemoveDescriptor;
    Version(Stamped<StoreVersion>): ClaimNode, PublishDescriptor;
    Updated(Stamped<UpdateOutcome>): UpdateDescriptor;
    Descriptors(DescriptorPage): ListDescriptors;
    Authority(AuthorityRead): ReadAuthority;
    Creation(Box<CreationView>): ReadCreation;
    Terminal(Stamped<Box<TerminalRecord>>): ReadTerminal;
    Authorities(AuthorityPage): ListAuthorities, ScanStaleCreating, ScanStaleClosing, ScanOwnRows;
    Put(Stamped<PutOutcome>): PutCreationContent, PutInventoryChunk, PutActivation;
    Content(Stamped<Content>): GetCreationContent;
    Reserved(Stamped<Box<ReservationFence>>): Reserve;
    Row(Box<AuthorityView>): CommitCreated, ChangeMembership, BeginClose, ReserveRelocation, MarkRelocation,
        AbortRelocation, ClearRelocation, CommitRelocation, CommitAggregate, AbortAggregate,
        CommitSpotAuthority;
    Done(Stamped<()>): CommitRejected, AbortFailed, AbortNotExecuted, AbortRecovery, FinishClose,
        FinishStaleClose, RecordActivationProgress, ClearActivation;
    Count(Stamped<u64>): RemoveOwnerRows, RetireOwner, Sweep;
    Chunk(Stamped<Bytes>): GetInventoryChunk;
    Prepared(Box<PrepareOutcome>): PrepareAggregate;
    Activation(Stamped<Activation>): GetActivation;
}
