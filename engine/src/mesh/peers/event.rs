//! What happens to the peers of a node, and what they want done.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::config::ManualIntent;
use crate::event::{Event, PeerState};
use crate::link::{DialId, DialTarget, LinkDownReason, LinkId, ProvenPeer};
use crate::mark::Mark;
use crate::mesh::intent::IntentKey;
use crate::model::{
    ChannelName, DescriptorRevision, Error, HostState, Instant, LifecycleGeneration, ObjectRole, Rid, Weight,
};
use crate::store::Descriptor;
use crate::wire::{Message, Refusal};

/// Node-local number of a selected route, raised by every change of one (NODE-86).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub(crate) struct RouteGeneration(pub(crate) u64);

impl RouteGeneration {
    pub(crate) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum PeerEvent {
    /// Startup step 5: peers may be admitted and dialled.
    AdmissionOpened,
    /// The host's state changed, with the descriptor revision that says so.
    HostStateChanged { state: HostState, revision: DescriptorRevision },
    /// Own Channel weights changed: the complete new set and its descriptor revision.
    WeightsChanged { channels: BTreeMap<ChannelName, Weight>, revision: DescriptorRevision },
    /// One complete listing of this Mesh, nodes with a live lease only (STORE-48).
    Listed {
        descriptors: Vec<Arc<Descriptor>>,
        /// Absent nodes keep their intents: the Store recovered a moment ago (STORE-126).
        keep_absent: bool,
    },
    /// The complete set of intents of the application, in Manual mode.
    ManualIntents(Vec<ManualIntent>),
    /// A link is up.
    LinkUp { link: LinkId, dial: Option<DialId>, proven: ProvenPeer },
    /// A link is gone.
    LinkDown { link: LinkId, reason: LinkDownReason },
    /// A dial ended without a link.
    DialFailed { dial: DialId, reason: String },
    /// A message arrived. Of a ready link only messages up to `NodeUpdate` belong here; of any other link
    /// every message does, so that a premature one ends it.
    Received { link: LinkId, message: Message },
    /// A deadline passed.
    TimerFired(PeerTimer),
}

/// The deadlines of this machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub(crate) enum PeerTimer {
    /// The next attempt of an intent.
    Redial(IntentKey),
    /// The end of a handshake.
    Handshake(LinkId),
    /// The next liveness probe of a ready link.
    Probe(LinkId),
    /// The liveness deadline of a ready link.
    Dead(LinkId),
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum PeerEffect {
    /// Start a dial.
    Dial { dial: DialId, target: DialTarget },
    /// Forget a dial and what it registered, also where its link is up already (NODE-98).
    DropDial(DialId),
    /// Send a message on its lane.
    Send { link: LinkId, message: Message },
    /// Close a link after what was sent on it left.
    Close(LinkId),
    /// Set or move a deadline.
    SetTimer { timer: PeerTimer, at: Instant },
    /// Forget a deadline.
    CancelTimer(PeerTimer),
    /// A connection is admitted: the selected route of the RID from now on. Once per connection (NODE-93).
    PeerReady { rid: Rid, lifecycle: LifecycleGeneration, link: LinkId, route: RouteGeneration },
    /// An admitted connection ended. Nothing of it may be reused (NODE-89).
    PeerLost { rid: Rid, lifecycle: LifecycleGeneration, link: LinkId, reason: EndReason },
    /// No intent and no admitted connection of this lifecycle is left (NODE-103).
    LifecycleEnded { rid: Rid, lifecycle: LifecycleGeneration },
    /// For observers.
    Event(Event),
    /// A rare branch was passed.
    Mark(Mark),
}

/// Why a link ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(crate) enum EndReason {
    /// The transport says so: orderly close or error (NODE-109).
    Down(LinkDownReason),
    /// The liveness deadline passed (NODE-109).
    Silent,
    /// We refused it.
    Refused(Refusal),
    /// The peer refused it.
    RefusedByPeer(Refusal),
    /// The handshake took too long.
    HandshakeTimedOut,
    /// The peer broke the protocol.
    Violated(String),
    /// Another lifecycle of the RID is the current one (NODE-87).
    Returned,
    /// The intent that dialled it was removed (NODE-98).
    IntentRemoved,
    /// The host admits no peers any more, or stopped.
    HostClosed,
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down(LinkDownReason::Closed) => f.write_str("closed by the other side"),
            Self::Down(LinkDownReason::Broken(what)) => write!(f, "connection broke: {what}"),
            Self::Down(LinkDownReason::Violated(what)) => write!(f, "transport violation: {what}"),
            Self::Down(LinkDownReason::Stalled) => f.write_str("the other side takes nothing"),
            Self::Silent => f.write_str("liveness deadline passed"),
            Self::Refused(refusal) => write!(f, "refused: {refusal:?}"),
            Self::RefusedByPeer(refusal) => write!(f, "refused by the peer: {refusal:?}"),
            Self::HandshakeTimedOut => f.write_str("handshake not finished in time"),
            Self::Violated(found) => write!(f, "protocol violation: {found}"),
            Self::Returned => f.write_str("the RID returned under another lifecycle"),
            Self::IntentRemoved => f.write_str("connection intent removed"),
            Self::HostClosed => f.write_str("this host stopped admitting peers"),
        }
    }
}

/// An admitted peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadyPeer<'a> {
    pub(crate) rid: &'a Rid,
    pub(crate) lifecycle: LifecycleGeneration,
    pub(crate) link: LinkId,
    pub(crate) route: RouteGeneration,
    pub(crate) role: ObjectRole,
    /// As the peer last announced it.
    pub(crate) host_state: HostState,
    pub(crate) channels: &'a BTreeMap<ChannelName, Weight>,
    pub(crate) endpoint: &'a str,
}

/// A peer as monitoring shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeerView<'a> {
    pub(crate) rid: &'a Rid,
    pub(crate) lifecycle: Option<LifecycleGeneration>,
    pub(crate) state: PeerState,
    pub(crate) last_error: Option<&'a Error>,
}
