//! What only the inside of a transport can show.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use spotmesh::driver::Transport;
use spotmesh::link::{DialId, DialTarget, NodeIndex};
use spotmesh_zmq_ffi::KeyPair;

use super::*;
use crate::config::ZmqConfig;
use crate::keys::KeyRing;
use crate::reactor::Reactor;

const NODE: NodeIndex = NodeIndex(0);

/// Polls both until `done` has found what it looks for.
fn until<T>(
    reactor: &Reactor,
    both: &mut [ZmqTransport; 2],
    mut done: impl FnMut(usize, TransportEvent) -> Option<T>,
) -> T {
    reactor.block_on(poll_fn(|cx| {
        for (at, transport) in both.iter_mut().enumerate() {
            while let Poll::Ready(event) = transport.poll_event(cx) {
                if let Some(found) = done(at, event) {
                    return Poll::Ready(found);
                }
            }
        }
        Poll::Pending
    }))
}

/// A CURVE link between two transports: the second dialled the first. Answers both link ids.
fn linked(reactor: &Reactor) -> ([ZmqTransport; 2], LinkId, LinkId) {
    let keys = [KeyPair::generate().unwrap(), KeyPair::generate().unwrap()];
    let rid = Rid::new("server").unwrap();
    let ring =
        KeyRing::new().allow(keys[0].public, Some(rid.clone()), None).allow(keys[1].public, None, None);
    let config = |keys: &KeyPair| ZmqConfig {
        security: Security::Curve { keys: keys.clone(), peers: Arc::new(ring.clone()) },
        ..ZmqConfig::default()
    };
    let mut both = keys.map(|keys| ZmqTransport::new(config(&keys), reactor).unwrap());
    both[0].bind(NODE);
    let endpoint = until(reactor, &mut both, |_, event| match event {
        TransportEvent::Bound { endpoint, .. } => Some(endpoint),
        _ => None,
    });
    let local_rid = Rid::new("client").unwrap();
    both[1].dial(NODE, DialId(1), DialTarget { endpoint, expected_rid: Some(rid), local_rid });
    let mut up = [None, None];
    until(reactor, &mut both, |at, event| {
        if let TransportEvent::LinkUp { link, .. } = event {
            up[at] = Some(link);
        }
        up.iter().all(Option::is_some).then_some(())
    });
    (both, up[0].unwrap(), up[1].unwrap())
}

fn record(text: &'static str) -> Record {
    Record { header: Bytes::from_static(text.as_bytes()), body: None }
}

#[test]
fn each_frame_is_compared_with_the_key_of_its_link() {
    let reactor = Reactor::new().unwrap();
    let (mut both, listener, dialler) = linked(&reactor);
    both[1].send(dialler, Lane::Application, record("proven"));
    both[1].flush();
    let text = until(&reactor, &mut both, |at, event| match event {
        TransportEvent::Received { record, .. } if at == 0 => Some(record.header),
        _ => None,
    });
    assert_eq!(text, "proven");
    // As if the link belonged to another key than the one that still sends on its connection.
    let other = KeyPair::generate().unwrap().public;
    let user = other.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    both[0].links.get_mut(&listener).unwrap().user = Some(user.into_bytes());
    both[1].send(dialler, Lane::Application, record("foreign"));
    both[1].flush();
    let reason = until(&reactor, &mut both, |at, event| match event {
        TransportEvent::Received { .. } => panic!("a foreign frame was delivered"),
        TransportEvent::LinkDown { link, reason } if at == 0 && link == listener => Some(reason),
        _ => None,
    });
    assert!(matches!(reason, LinkDownReason::Violated(_)), "{reason:?}");
    assert_eq!(both[0].counters().foreign_messages, 1);
}

#[test]
fn an_ended_link_leaves_nothing_behind() {
    let reactor = Reactor::new().unwrap();
    let (mut both, listener, dialler) = linked(&reactor);
    both[1].close(dialler);
    until(&reactor, &mut both, |at, event| match event {
        TransportEvent::LinkDown { link, .. } if at == 0 && link == listener => Some(()),
        _ => None,
    });
    let clock = reactor.clock();
    let later = clock.now() + Duration::from_secs(2);
    // The connections end a moment after the link.
    while clock.now() < later && !both[1].links.is_empty() {
        let soon = clock.now() + Duration::from_millis(5);
        let mut sleep = std::pin::pin!(clock.sleep_until(soon));
        reactor.block_on(poll_fn(|cx| {
            for transport in &mut both {
                while transport.poll_event(cx).is_ready() {}
            }
            std::future::Future::poll(sleep.as_mut(), cx)
        }));
    }
    for transport in &both {
        assert!(transport.links.is_empty() && transport.timed.is_empty() && transport.unsent.is_empty());
        assert!(transport.dials.is_empty() && transport.full.is_empty());
    }
    assert!(both[1].ports.is_empty() && both[1].tokens.is_empty());
    let listeners = both[0].ports.values_mut().filter_map(|port| port.listener_mut());
    for listener in listeners {
        assert!(listener.routes.is_empty() && listener.fds.is_empty() && listener.opening.is_empty());
    }
}
