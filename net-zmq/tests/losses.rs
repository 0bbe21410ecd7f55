//! Peers that die or fall silent, in processes of their own.

#[path = "support/child.rs"]
mod child;
mod support;

use std::time::{Duration, Instant};

use child::Peer;
use spotmesh::link::{DialId, Lane, LinkDownReason, LinkId, TransportEvent};
use support::*;

#[test]
fn child_entry() {
    child::child_main();
}

/// Noticed well before the core's own peer deadline of 15 s; `brisk` pings every 400 ms and waits 1.2 s.
const NOTICED: Duration = Duration::from_millis(4_000);

/// A host with a link to a child that listens.
fn dialled() -> (Rig, Peer, LinkId) {
    let peer = Peer::start("listen 0");
    let mut rig = Rig::new([brisk()]);
    let dial = rig.dial(0, &peer.endpoint, None);
    let mut link = None;
    assert!(rig.until(LONG, |h| {
        link = link_of(&h[0], dial);
        link.is_some()
    }));
    (rig, peer, link.unwrap())
}

/// A host with a link from a child that dials.
fn listening() -> (Rig, Peer, LinkId) {
    let mut rig = Rig::new([brisk()]);
    let endpoint = rig.bind(0);
    let peer = Peer::start(&format!("dial {endpoint}"));
    assert!(rig.until(LONG, |h| !h[0].links_up().is_empty()));
    let link = rig.hosts[0].links_up()[0].0;
    (rig, peer, link)
}

/// The link of a dial, once it is up.
fn link_of(host: &Host, dial: DialId) -> Option<LinkId> {
    host.links_up().iter().find(|(_, of, _)| *of == Some(dial)).map(|(link, _, _)| *link)
}

fn echo_works(rig: &mut Rig, link: LinkId) {
    let before = rig.hosts[0].received_count(link);
    for lane in [Lane::Application, Lane::Completion] {
        rig.send(0, link, lane, small("echo"));
    }
    rig.flush(0);
    assert!(rig.until(LONG, |h| h[0].received_count(link) == before + 2));
}

fn is_lost_within(rig: &mut Rig, link: LinkId, limit: Duration) {
    let start = Instant::now();
    assert!(rig.until(LONG, |h| h[0].down(link).is_some()), "never noticed");
    assert!(start.elapsed() < limit, "noticed after {:?}", start.elapsed());
    assert!(
        matches!(rig.hosts[0].down(link), Some(LinkDownReason::Broken(_))),
        "{:?}",
        rig.hosts[0].down(link)
    );
}

#[test]
fn a_killed_peer_is_noticed_by_the_dialler() {
    let (mut rig, peer, link) = dialled();
    echo_works(&mut rig, link);
    peer.signal("KILL");
    is_lost_within(&mut rig, link, NOTICED);
    assert_eq!(rig.hosts[0].transport.registered(), (0, 0));
}

#[test]
fn a_killed_peer_is_noticed_by_the_listener() {
    let (mut rig, peer, link) = listening();
    echo_works(&mut rig, link);
    peer.signal("KILL");
    is_lost_within(&mut rig, link, NOTICED);
    assert_eq!(rig.hosts[0].transport.registered().1, 0);
}

#[test]
fn a_silent_peer_is_noticed_by_the_dialler_even_while_it_sends() {
    let (mut rig, peer, link) = dialled();
    echo_works(&mut rig, link);
    peer.signal("STOP");
    let start = Instant::now();
    while rig.hosts[0].down(link).is_none() && start.elapsed() < NOTICED {
        rig.send(0, link, Lane::Application, small("into the void"));
        rig.flush(0);
        rig.settle(MS);
    }
    is_lost_within(&mut rig, link, NOTICED);
}

#[test]
fn a_silent_peer_is_noticed_by_the_listener() {
    let (mut rig, peer, link) = listening();
    echo_works(&mut rig, link);
    peer.signal("STOP");
    is_lost_within(&mut rig, link, NOTICED);
}

#[test]
fn loss_of_one_peer_touches_no_other() {
    let (mut rig, first, link) = listening();
    let second = Peer::start(&format!("dial {}", endpoint_of(&rig)));
    assert!(rig.until(LONG, |h| h[0].links_up().len() == 2));
    let other = rig.hosts[0].links_up()[1].0;
    first.signal("KILL");
    is_lost_within(&mut rig, link, NOTICED);
    echo_works(&mut rig, other);
    drop(second);
    is_lost_within(&mut rig, other, NOTICED);
}

fn endpoint_of(rig: &Rig) -> String {
    let bound = |event: &TransportEvent| match event {
        TransportEvent::Bound { endpoint, .. } => Some(endpoint.clone()),
        _ => None,
    };
    rig.hosts[0].events.iter().find_map(bound).unwrap()
}

#[test]
fn node_89_a_link_after_a_loss_is_a_new_one_and_gets_nothing_of_the_old() {
    let (mut rig, peer, old) = dialled();
    echo_works(&mut rig, old);
    let endpoint = peer.endpoint.clone();
    let port = endpoint.rsplit(':').next().unwrap().to_owned();
    peer.signal("STOP");
    for number in 0..100 {
        rig.send(0, old, Lane::Application, numbered(number, 100));
        rig.flush(0);
    }
    peer.signal("KILL");
    is_lost_within(&mut rig, old, NOTICED);
    drop(peer);
    let peer = Peer::start(&format!("listen {port}"));
    assert_eq!(peer.endpoint, endpoint);
    let dial = rig.dial(0, &endpoint, None);
    let mut new = None;
    assert!(rig.until(LONG, |h| {
        new = link_of(&h[0], dial);
        new.is_some()
    }));
    let new = new.unwrap();
    assert_ne!(new, old);
    rig.settle(200 * MS);
    assert_eq!(rig.hosts[0].received_count(new), 0, "an echo of what was sent to the former life");
    echo_works(&mut rig, new);
}
