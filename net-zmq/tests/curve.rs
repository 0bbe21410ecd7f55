//! Proven identities: CURVE keys, whom they let in, and that nobody speaks for another.

mod support;

use std::sync::Arc;

use bytes::Bytes;
use spotmesh::link::{Lane, ProvenPeer, TransportEvent};
use spotmesh::model::SecurityIdentity;
use spotmesh_net_zmq::{KeyPair, KeyRing, Security, ZmqConfig};
use spotmesh_zmq_ffi::{BytesOption, Context, IntOption, Kind, Multipart, Socket};
use support::*;

fn identity(name: &str) -> Option<SecurityIdentity> {
    Some(SecurityIdentity::new(name).unwrap())
}

fn curve(keys: &KeyPair, ring: KeyRing) -> ZmqConfig {
    ZmqConfig { security: Security::Curve { keys: keys.clone(), peers: Arc::new(ring) }, ..brisk() }
}

/// Keys of three hosts that know each other by RID.
struct Three {
    a: KeyPair,
    b: KeyPair,
    d: KeyPair,
}

impl Three {
    fn new() -> Self {
        let key = || KeyPair::generate().unwrap();
        Self { a: key(), b: key(), d: key() }
    }

    fn ring(&self) -> KeyRing {
        KeyRing::new()
            .allow(self.a.public, Some(rid("a")), identity("host a"))
            .allow(self.b.public, Some(rid("b")), identity("host b"))
            .allow(self.d.public, Some(rid("d")), identity("host d"))
    }
}

fn no_link(rig: &Rig, at: usize) {
    let known = |event: &&TransportEvent| {
        matches!(event, TransportEvent::LinkUp { .. } | TransportEvent::Received { .. })
    };
    assert_eq!(rig.hosts[at].events.iter().find(known), None);
}

#[test]
fn the_right_keys_make_a_link_and_prove_rid_and_identity_on_both_sides() {
    let keys = Three::new();
    let mut rig = Rig::new([curve(&keys.a, keys.ring()), curve(&keys.b, keys.ring())]);
    let endpoint = rig.bind(0);
    let dial = rig.dial_as(1, &endpoint, Some("a"), "b");
    assert!(rig.until(LONG, |h| h.iter().all(|h| !h.links_up().is_empty())), "{:?}", rig.hosts[1].events);
    let (dialler, of, proven) = rig.hosts[1].links_up()[0].clone();
    assert_eq!(of, Some(dial));
    assert_eq!(proven, ProvenPeer { rid: Some(rid("a")), identity: identity("host a") });
    let (listener, _, proven) = rig.hosts[0].links_up()[0].clone();
    assert_eq!(proven, ProvenPeer { rid: Some(rid("b")), identity: identity("host b") });
    rig.send(1, dialler, Lane::Application, numbered(1, 100_000));
    rig.send(0, listener, Lane::Completion, small("reply"));
    (0..2).for_each(|at| rig.flush(at));
    assert!(rig.until(LONG, |h| h[0].received_count(listener) == 1 && h[1].received_count(dialler) == 1));
    assert_eq!(rig.hosts[0].received(listener, Lane::Application), [numbered(1, 100_000)]);
}

#[test]
fn a_key_bound_to_no_rid_proves_only_its_identity() {
    let keys = Three::new();
    let ring = KeyRing::new().allow(keys.b.public, None, identity("zone servers"));
    let mut rig = Rig::new([curve(&keys.a, ring)]);
    let endpoint = rig.bind(0);
    let dialler = KeyRing::new().allow(keys.a.public, None, None).at(endpoint.clone(), keys.a.public);
    rig.add(curve(&keys.b, dialler));
    rig.dial_as(1, &endpoint, None, "zone-17");
    assert!(rig.until(LONG, |h| h.iter().all(|h| !h.links_up().is_empty())));
    let proven = rig.hosts[0].links_up()[0].2.clone();
    assert_eq!(proven, ProvenPeer { rid: None, identity: identity("zone servers") });
}

#[test]
fn node_t37_an_unknown_key_is_refused_and_harms_no_other_link() {
    let keys = Three::new();
    let stranger = KeyPair::generate().unwrap();
    let mut rig =
        Rig::new([curve(&keys.a, keys.ring()), curve(&keys.b, keys.ring()), curve(&stranger, keys.ring())]);
    let endpoint = rig.bind(0);
    rig.dial_as(1, &endpoint, Some("a"), "b");
    assert!(rig.until(LONG, |h| h[0].links_up().len() == 1 && h[1].links_up().len() == 1));
    let dial = rig.dial_as(2, &endpoint, Some("a"), "d");
    assert!(rig.until(LONG, |h| h[2].failed(dial).is_some()));
    no_link(&rig, 2);
    rig.settle(100 * MS);
    assert_eq!(rig.hosts[0].links_up().len(), 1);
    let (link, listener) = (rig.hosts[1].links_up()[0].0, rig.hosts[0].links_up()[0].0);
    rig.send(1, link, Lane::Application, small("still here"));
    rig.flush(1);
    assert!(rig.until(LONG, |h| h[0].received_count(listener) == 1));
}

#[test]
fn a_server_without_the_expected_key_is_refused() {
    let keys = Three::new();
    // The dialler means to reach `a`, but `d` listens there.
    let mut rig = Rig::new([curve(&keys.d, keys.ring()), curve(&keys.b, keys.ring())]);
    let endpoint = rig.bind(0);
    let dial = rig.dial_as(1, &endpoint, Some("a"), "b");
    assert!(rig.until(LONG, |h| h[1].failed(dial).is_some()));
    no_link(&rig, 0);
    no_link(&rig, 1);
    // And a peer whose key is not known at all is not dialled.
    let dial = rig.dial_as(1, &endpoint, Some("nobody"), "b");
    assert!(rig.until(LONG, |h| h[1].failed(dial).is_some()));
    let text = rig.hosts[1].failed(dial).unwrap();
    assert!(text.contains("no key is known for RID nobody"), "{text}");
    assert_eq!(rig.hosts[1].transport.registered(), (0, 0));
}

#[test]
fn an_authorised_peer_that_claims_anothers_rid_gets_no_link() {
    let keys = Three::new();
    let mut rig = Rig::new([curve(&keys.b, keys.ring()), curve(&keys.d, keys.ring())]);
    let endpoint = rig.bind(0);
    let dial = rig.dial_as(1, &endpoint, Some("b"), "a");
    assert!(rig.until(LONG, |h| h[1].failed(dial).is_some()));
    let text = rig.hosts[1].failed(dial).unwrap();
    assert!(text.contains("expected RID d of this key, found a"), "{text}");
    no_link(&rig, 0);
    assert!(rig.hosts[0].transport.counters().refused_hellos >= 1);
}

#[test]
fn peers_without_curve_do_not_reach_a_curve_listener_nor_the_other_way() {
    let keys = Three::new();
    let mut rig = Rig::new([curve(&keys.a, keys.ring()), brisk()]);
    let endpoints = [rig.bind(0), rig.bind(1)];
    let to_curve = rig.dial_as(1, &endpoints[0], None, "b");
    assert!(rig.until(LONG, |h| h[1].failed(to_curve).is_some()));
    let ring = KeyRing::new().at(endpoints[1].clone(), keys.b.public);
    let at = rig.add(curve(&keys.a, ring));
    let to_null = rig.dial_as(at, &endpoints[1], None, "a");
    assert!(rig.until(LONG, |h| h[at].failed(to_null).is_some()));
    (0..3).for_each(|at| no_link(&rig, at));
}

#[test]
fn a_key_pair_that_does_not_belong_together_is_a_configuration_error() {
    let keys = Three::new();
    let wrong = KeyPair { public: keys.b.public, secret: keys.a.secret };
    let reactor = spotmesh_net_zmq::Reactor::new().unwrap();
    let made = spotmesh_net_zmq::ZmqTransport::new(curve(&wrong, keys.ring()), &reactor);
    assert_eq!(made.err().unwrap().kind(), spotmesh::model::ErrorKind::Configuration);
}

/// A peer written by hand, so that it can say what no honest one does.
struct Forger {
    socket: Socket,
    _context: Context,
}

impl Forger {
    fn connect(endpoint: &str, keys: &KeyPair, server: &KeyPair, route: &[u8]) -> Self {
        let context = Context::new().unwrap();
        let socket = context.socket(Kind::Dealer).unwrap();
        socket.set(IntOption::Linger, 0).unwrap();
        socket.set_bytes(BytesOption::RoutingId, route).unwrap();
        socket.set_bytes(BytesOption::CurveServerKey, &server.public).unwrap();
        socket.set_bytes(BytesOption::CurvePublicKey, &keys.public).unwrap();
        socket.set_bytes(BytesOption::CurveSecretKey, &keys.secret).unwrap();
        socket.connect(endpoint).unwrap();
        Self { socket, _context: context }
    }

    fn hello(&self, lane: u8, token: &[u8; 16], rid: &str) {
        let mut hello = vec![1, 1];
        hello.extend_from_slice(b"SPOTMESH");
        hello.push(lane);
        hello.extend_from_slice(token);
        hello.extend_from_slice(rid.as_bytes());
        self.socket.send(&hello, false).unwrap();
    }

    fn record(&self, text: &[u8]) {
        let mut pack = vec![1, 4];
        pack.extend_from_slice(&(text.len() as u32).to_le_bytes());
        pack.extend_from_slice(&0u32.to_le_bytes());
        pack.extend_from_slice(text);
        self.socket.send(&pack, false).unwrap();
    }

    /// The kind byte of the next message, waiting for it.
    fn answer(&self, rig: &mut Rig) -> Option<u8> {
        let mut message = Multipart::default();
        for _ in 0..200 {
            rig.settle(5 * MS);
            if self.socket.recv(&mut message).is_ok() {
                return message.frames()[0].get(1).copied();
            }
        }
        None
    }
}

const ACCEPT: u8 = 2;
const REFUSE: u8 = 3;

#[test]
fn nobody_joins_the_second_lane_of_anothers_link() {
    let keys = Three::new();
    let open = KeyRing::new().allow(keys.a.public, None, None).allow(keys.d.public, None, None);
    let mut rig = Rig::new([curve(&keys.b, open)]);
    let endpoint = rig.bind(0);
    let token = [7; 16];
    let a = Forger::connect(&endpoint, &keys.a, &keys.b, b"first");
    a.hello(b'A', &token, "a");
    assert_eq!(a.answer(&mut rig), Some(ACCEPT));
    // Same token, same RID, another key; then the right key, to show that only the key was wrong.
    let d = Forger::connect(&endpoint, &keys.d, &keys.b, b"second");
    d.hello(b'C', &token, "a");
    assert_eq!(d.answer(&mut rig), Some(REFUSE));
    no_link(&rig, 0);
    let a2 = Forger::connect(&endpoint, &keys.a, &keys.b, b"third");
    a2.hello(b'C', &token, "a");
    assert_eq!(a2.answer(&mut rig), Some(ACCEPT));
    assert_eq!(rig.hosts[0].links_up().len(), 1);
}

#[test]
fn nobody_speaks_on_a_link_by_taking_over_its_routing_id() {
    let keys = Three::new();
    let mut rig = Rig::new([curve(&keys.b, keys.ring())]);
    let endpoint = rig.bind(0);
    let token = [9; 16];
    let a = Forger::connect(&endpoint, &keys.a, &keys.b, b"route");
    let a2 = Forger::connect(&endpoint, &keys.a, &keys.b, b"other");
    a.hello(b'A', &token, "a");
    a2.hello(b'C', &token, "a");
    assert_eq!((a.answer(&mut rig), a2.answer(&mut rig)), (Some(ACCEPT), Some(ACCEPT)));
    let link = rig.hosts[0].links_up()[0].0;
    a.record(b"honest");
    assert!(rig.until(LONG, |h| h[0].received_count(link) == 1));

    // While the connection lives, and right after its end, before the listener has looked again.
    let early = Forger::connect(&endpoint, &keys.d, &keys.b, b"route");
    early.record(b"forged");
    rig.settle(200 * MS);
    drop(a);
    let late = Forger::connect(&endpoint, &keys.d, &keys.b, b"route");
    late.record(b"forged");
    std::thread::sleep(200 * MS);
    rig.settle(300 * MS);
    assert_eq!(rig.hosts[0].received(link, Lane::Application), [small("honest")]);
    assert!(rig.hosts[0].down(link).is_some(), "the link ended with its connection");
    let bytes: Bytes = rig.hosts[0]
        .received(link, Lane::Completion)
        .into_iter()
        .map(|r| r.header)
        .collect::<Vec<_>>()
        .concat()
        .into();
    assert!(bytes.is_empty());
}
