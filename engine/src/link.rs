//! What the core and a transport tell each other about links.
//!
//! A *link* is one logical connection between two MeshNodes: an Application lane and a Completion lane
//! (NODE-91) that come and go together (NODE-95). Ordered per link and lane; loss shows only as `LinkDown`.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::model::{Rid, SecurityIdentity};

/// A MeshNode's place in its host's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeIndex(pub u16);

/// One link, numbered by the transport; never reused in a host run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LinkId(pub u64);

/// One dial attempt, numbered by the core; never reused in a host run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DialId(pub u64);

/// The lanes of a link (NODE-91).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Lane {
    /// Everything but terminal replies.
    Application,
    /// Terminal replies and error replies.
    Completion,
}

/// One record on a lane: frame 0 is the encoded header, an application payload follows as its own frame.
///
/// Payload frames are never copied or re-encoded on their way.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Record {
    /// Version byte and postcard header.
    pub header: Bytes,
    /// The application payload, where the message has one.
    pub body: Option<Bytes>,
}

impl Record {
    /// Bytes of all frames.
    #[must_use]
    pub fn len(&self) -> usize {
        self.header.len() + self.body.as_ref().map_or(0, Bytes::len)
    }

    /// Whether there is not one byte in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Public CURVE key of a peer, 32 bytes.
pub type PublicKey = [u8; 32];

/// Whom to dial.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DialTarget {
    /// Address such as `tcp://127.0.0.1:7001`.
    pub endpoint: String,
    /// The RID that must answer, where it is known.
    pub expected_rid: Option<Rid>,
    /// Local RID, so that the other side can tell links of several lifecycles apart in its logs.
    pub local_rid: Rid,
}

/// What the transport itself could prove about the other side, such as the owner of a CURVE key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProvenPeer {
    /// The RID bound to the proven key, where the transport has such a binding.
    pub rid: Option<Rid>,
    /// The security identity bound to it.
    pub identity: Option<SecurityIdentity>,
}

/// Why a link ended (NODE-109: the reasons stay distinguishable).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LinkDownReason {
    /// The other side, or this one, closed it in order.
    Closed,
    /// The connection broke.
    Broken(String),
    /// A frame did not belong to the proven peer, or could not be unpacked.
    Violated(String),
    /// The other side took nothing for too long: the lane passed its hard byte bound.
    Stalled,
}

/// What a transport reports.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TransportEvent {
    /// The listener is open.
    Bound {
        /// The node.
        node: NodeIndex,
        /// The address to advertise, with the really bound port (NODE-8).
        endpoint: String,
    },
    /// The listener could not be opened.
    BindFailed {
        /// The node.
        node: NodeIndex,
        /// What the transport said.
        reason: String,
    },
    /// Both lanes are up; nothing has been received on them yet.
    LinkUp {
        /// The node whose link it is.
        node: NodeIndex,
        /// The new link.
        link: LinkId,
        /// The dial that led to it, `None` on an inbound link.
        dial: Option<DialId>,
        /// What the transport proved.
        proven: ProvenPeer,
    },
    /// The link is gone with everything in flight on it. Nothing follows for this link.
    LinkDown {
        /// The link.
        link: LinkId,
        /// Why.
        reason: LinkDownReason,
    },
    /// A dial ended without a link. One event ends each dial: this one or `LinkUp`.
    DialFailed {
        /// The dial.
        dial: DialId,
        /// What the transport said.
        reason: String,
    },
    /// A record arrived.
    Received {
        /// The link.
        link: LinkId,
        /// The lane.
        lane: Lane,
        /// The record as it came.
        record: Record,
    },
    /// The link's Application lane passed its soft byte bound: hold application messages back.
    Congested {
        /// The link.
        link: LinkId,
    },
    /// The lane drained to half its soft bound: go on.
    Writable {
        /// The link.
        link: LinkId,
    },
}
