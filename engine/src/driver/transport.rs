//! The Transport trait: bytes and links, nothing else (MODEL-3).

use std::task::{Context, Poll};

use crate::link::{DialId, DialTarget, Lane, LinkId, NodeIndex, Record, TransportEvent};

/// Moves records between MeshNodes.
///
/// Owned by one driver and used from the one task (and, for ZeroMQ, the one thread) that runs it, so the
/// methods take `&mut self` and never block. Each dial is one attempt: redialling with backoff is the core's
/// decision (NODE-97, NODE-105). Records of one lane of one link arrive in order or the link goes down.
pub trait Transport {
    /// Opens the listener of a node; answered by `Bound` or `BindFailed`.
    fn bind(&mut self, node: NodeIndex);

    /// Closes the listener of a node. Its links stay.
    fn unbind(&mut self, node: NodeIndex);

    /// Starts one dial; answered by exactly one `LinkUp` or `DialFailed`, or nothing after [`Self::drop_dial`].
    fn dial(&mut self, node: NodeIndex, dial: DialId, target: DialTarget);

    /// Ends a dial: no event of it follows, and nothing of it stays registered (NODE-98).
    fn drop_dial(&mut self, dial: DialId);

    /// Queues a record. On a link that is gone this does nothing: its `LinkDown` is on the way or was seen.
    ///
    /// Past the lane's soft byte bound the transport reports `Congested`, later `Writable`; past its hard
    /// bound it gives the link up as `Stalled`.
    fn send(&mut self, link: LinkId, lane: Lane, record: Record);

    /// Closes one link after what was queued on it had a chance to leave; other links are not touched.
    /// No event follows for it.
    fn close(&mut self, link: LinkId);

    /// Ends a batch of sends: what was held back for packing must leave now.
    fn flush(&mut self);

    /// The next event, in the order in which things happened on each link.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<TransportEvent>;
}
