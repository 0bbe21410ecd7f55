//! Transports that reach each other inside one process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures::StreamExt;
use futures::channel::mpsc;

use crate::driver::Transport;
use crate::link::{
    DialId, DialTarget, Lane, LinkDownReason, LinkId, NodeIndex, ProvenPeer, Record, TransportEvent,
};

/// A network of one process: reliable, ordered, without delay and without bounds.
///
/// It proves nothing about a peer and reports neither `Congested` nor `Writable`. Clones are the same network.
#[derive(Clone, Default)]
pub struct LocalNetwork(Arc<Mutex<Shared>>);

#[derive(Default)]
struct Shared {
    endpoints: u64,
    links: u64,
    listeners: BTreeMap<String, (NodeIndex, mpsc::UnboundedSender<Arrival>)>,
}

/// What one transport tells another.
enum Arrival {
    Event(TransportEvent),
    /// A link opened by a dial of the other side.
    Opened {
        node: NodeIndex,
        link: LinkId,
        back: Back,
    },
    /// The other side ended a link.
    Ended {
        link: LinkId,
        reason: LinkDownReason,
    },
}

/// The way to the other end of a link.
#[derive(Clone)]
struct Back {
    inbox: mpsc::UnboundedSender<Arrival>,
    /// The link's number there; the ends have different ones, for a host may dial itself.
    link: LinkId,
}

impl Back {
    fn tell(&self, arrival: Arrival) -> bool {
        self.inbox.unbounded_send(arrival).is_ok()
    }
}

impl LocalNetwork {
    /// A network without hosts.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The transport of one more host.
    #[must_use]
    pub fn transport(&self) -> LocalTransport {
        let (inbox, arrivals) = mpsc::unbounded();
        LocalTransport {
            network: self.clone(),
            inbox,
            arrivals,
            bound: BTreeMap::new(),
            links: BTreeMap::new(),
            dropped: Vec::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One host's place in a [`LocalNetwork`]. Its links break when it is dropped.
pub struct LocalTransport {
    network: LocalNetwork,
    inbox: mpsc::UnboundedSender<Arrival>,
    arrivals: mpsc::UnboundedReceiver<Arrival>,
    bound: BTreeMap<NodeIndex, String>,
    links: BTreeMap<LinkId, Back>,
    /// Dials dropped while their event may be on the way.
    dropped: Vec<DialId>,
}

impl LocalTransport {
    fn tell_self(&self, event: TransportEvent) {
        // The receiving end is in `self` too.
        let _ = self.inbox.unbounded_send(Arrival::Event(event));
    }

    fn end(&mut self, link: LinkId, reason: LinkDownReason) {
        if let Some(back) = self.links.remove(&link) {
            // A host that has gone needs no news of its links.
            let _ = back.tell(Arrival::Ended { link: back.link, reason });
        }
    }

    /// The event of an arrival, `None` where it concerns something that has ended here.
    fn accept(&mut self, arrival: Arrival) -> Option<TransportEvent> {
        match arrival {
            Arrival::Opened { node, link, back } => {
                self.links.insert(link, back);
                Some(TransportEvent::LinkUp { node, link, dial: None, proven: nothing() })
            }
            Arrival::Ended { link, reason } => {
                self.links.remove(&link)?;
                Some(TransportEvent::LinkDown { link, reason })
            }
            Arrival::Event(event) => match &event {
                TransportEvent::Received { link, .. } if !self.links.contains_key(link) => None,
                TransportEvent::LinkUp { dial: Some(dial), link, .. } if self.forget(*dial) => {
                    self.end(*link, LinkDownReason::Closed);
                    None
                }
                TransportEvent::DialFailed { dial, .. } if self.forget(*dial) => None,
                _ => Some(event),
            },
        }
    }

    fn forget(&mut self, dial: DialId) -> bool {
        let place = self.dropped.iter().position(|dropped| *dropped == dial);
        place.map(|place| self.dropped.swap_remove(place)).is_some()
    }
}

fn nothing() -> ProvenPeer {
    ProvenPeer { rid: None, identity: None }
}

impl Transport for LocalTransport {
    fn bind(&mut self, node: NodeIndex) {
        let endpoint = {
            let mut shared = self.network.lock();
            shared.endpoints += 1;
            let endpoint = format!("local://{}", shared.endpoints);
            shared.listeners.insert(endpoint.clone(), (node, self.inbox.clone()));
            endpoint
        };
        self.unbind(node);
        self.bound.insert(node, endpoint.clone());
        self.tell_self(TransportEvent::Bound { node, endpoint });
    }

    fn unbind(&mut self, node: NodeIndex) {
        if let Some(endpoint) = self.bound.remove(&node) {
            self.network.lock().listeners.remove(&endpoint);
        }
    }

    fn dial(&mut self, node: NodeIndex, dial: DialId, target: DialTarget) {
        let found = {
            let mut shared = self.network.lock();
            shared.links += 2;
            let (here, there) = (LinkId(shared.links - 1), LinkId(shared.links));
            let listener = shared.listeners.get(&target.endpoint).cloned();
            listener.map(|(peer, inbox)| (here, peer, Back { inbox, link: there }))
        };
        let opened = found.filter(|(here, peer, back)| {
            let here = Back { inbox: self.inbox.clone(), link: *here };
            back.tell(Arrival::Opened { node: *peer, link: back.link, back: here })
        });
        match opened {
            Some((link, _, back)) => {
                self.links.insert(link, back);
                self.tell_self(TransportEvent::LinkUp { node, link, dial: Some(dial), proven: nothing() });
            }
            None => {
                let reason = format!("nobody listens at {}", target.endpoint);
                self.tell_self(TransportEvent::DialFailed { dial, reason });
            }
        }
    }

    fn drop_dial(&mut self, dial: DialId) {
        self.dropped.push(dial);
    }

    fn send(&mut self, link: LinkId, lane: Lane, record: Record) {
        if let Some(back) = self.links.get(&link) {
            // The link of a host that has gone goes down by itself.
            let _ = back.tell(Arrival::Event(TransportEvent::Received { link: back.link, lane, record }));
        }
    }

    fn close(&mut self, link: LinkId) {
        self.end(link, LinkDownReason::Closed);
    }

    fn flush(&mut self) {}

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<TransportEvent> {
        loop {
            match self.arrivals.poll_next_unpin(cx) {
                Poll::Ready(Some(arrival)) => {
                    if let Some(event) = self.accept(arrival) {
                        return Poll::Ready(event);
                    }
                }
                // `self` holds a sender, so the channel never ends.
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl Drop for LocalTransport {
    fn drop(&mut self) {
        for node in self.bound.keys().copied().collect::<Vec<_>>() {
            self.unbind(node);
        }
        for link in self.links.keys().copied().collect::<Vec<_>>() {
            self.end(link, LinkDownReason::Broken("the host ended".to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use bytes::Bytes;

    use super::*;
    use crate::model::Rid;

    fn next(transport: &mut LocalTransport) -> Option<TransportEvent> {
        match transport.poll_event(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(event) => Some(event),
            Poll::Pending => None,
        }
    }

    fn to(endpoint: &str) -> DialTarget {
        let local_rid = Rid::new("a").unwrap();
        DialTarget { endpoint: endpoint.to_owned(), expected_rid: None, local_rid }
    }

    fn record(text: &'static str) -> Record {
        Record { header: Bytes::from_static(text.as_bytes()), body: None }
    }

    fn bound(transport: &mut LocalTransport) -> String {
        transport.bind(NodeIndex(0));
        match next(transport) {
            Some(TransportEvent::Bound { endpoint, .. }) => endpoint,
            other => panic!("expected Bound, found {other:?}"),
        }
    }

    #[test]
    fn records_arrive_in_order_and_a_close_comes_after_them() {
        let network = LocalNetwork::new();
        let (mut a, mut b) = (network.transport(), network.transport());
        let endpoint = bound(&mut b);
        a.dial(NodeIndex(0), DialId(1), to(&endpoint));
        let Some(TransportEvent::LinkUp { link, dial: Some(DialId(1)), .. }) = next(&mut a) else {
            panic!("expected LinkUp")
        };
        a.send(link, Lane::Application, record("1"));
        a.send(link, Lane::Completion, record("2"));
        a.close(link);
        a.send(link, Lane::Application, record("too late"));
        let Some(TransportEvent::LinkUp { link: back, dial: None, .. }) = next(&mut b) else {
            panic!("expected LinkUp")
        };
        for (lane, text) in [(Lane::Application, "1"), (Lane::Completion, "2")] {
            let expected = TransportEvent::Received { link: back, lane, record: record(text) };
            assert_eq!(next(&mut b), Some(expected));
        }
        let down = TransportEvent::LinkDown { link: back, reason: LinkDownReason::Closed };
        assert_eq!(next(&mut b), Some(down));
        assert_eq!((next(&mut a), next(&mut b)), (None, None));
    }

    #[test]
    fn a_dropped_host_breaks_its_links_and_listens_no_more() {
        let network = LocalNetwork::new();
        let (mut a, mut b) = (network.transport(), network.transport());
        let endpoint = bound(&mut b);
        a.dial(NodeIndex(0), DialId(1), to(&endpoint));
        assert!(matches!(next(&mut a), Some(TransportEvent::LinkUp { .. })));
        assert!(matches!(next(&mut b), Some(TransportEvent::LinkUp { .. })));
        drop(b);
        let down = next(&mut a);
        assert!(
            matches!(down, Some(TransportEvent::LinkDown { reason: LinkDownReason::Broken(_), .. })),
            "{down:?}"
        );
        a.dial(NodeIndex(0), DialId(2), to(&endpoint));
        assert!(matches!(next(&mut a), Some(TransportEvent::DialFailed { dial: DialId(2), .. })));
    }

    #[test]
    fn a_dropped_dial_reports_nothing_and_leaves_no_link() {
        let network = LocalNetwork::new();
        let (mut a, mut b) = (network.transport(), network.transport());
        let endpoint = bound(&mut b);
        a.dial(NodeIndex(0), DialId(1), to(&endpoint));
        a.drop_dial(DialId(1));
        a.dial(NodeIndex(0), DialId(2), to("local://nowhere"));
        a.drop_dial(DialId(2));
        assert_eq!(next(&mut a), None);
        assert!(matches!(next(&mut b), Some(TransportEvent::LinkUp { .. })));
        assert!(matches!(next(&mut b), Some(TransportEvent::LinkDown { .. })));
    }
}
