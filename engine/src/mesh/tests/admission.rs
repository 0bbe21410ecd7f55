//! The handshake's table, the checks of NODE-83 and the pair table.

use super::*;
use crate::link::LinkDownReason;
use crate::mesh::admission::{Act, Admission, AdmissionEvent, Refused, Verdict};
use crate::mesh::peers::RouteGeneration;
use crate::model::ErrorKind;

/// `!` cannot happen; after a colon what is done: W Welcome, R ready, r refuse, p refused by the peer, t timed
/// out, v violation. `Held.` has the peer's Welcome already. h/ is a Hello, j/ a repetition of the checks.
const TABLE: &str = "
                 h/admit             h/hold  h/refuse  Welcome  Refused  Traffic  j/admit            j/hold  j/refuse  TimedOut  Superseded
AwaitingHello    AwaitingWelcome:W   Held    gone:r    gone:v   gone:p   gone:v   !                  !       !         gone:t    !
Held             gone:v              gone:v  gone:v    Held.    gone:p   gone:v   AwaitingWelcome:W  Held    gone:r    gone:r    !
Held.            gone:v              gone:v  gone:v    gone:v   gone:p   gone:v   Ready:WR           Held.   gone:r    gone:r    !
AwaitingWelcome  gone:v              gone:v  gone:v    Ready:R  gone:p   gone:v   !                  !       !         gone:t    gone:r
Ready            gone:v              gone:v  gone:v    gone:v   gone:p   Ready    !                  !       !         !         gone:r
";

fn state(name: &str) -> Admission {
    let hello = Box::new(hello("b", 1, 1));
    match name {
        "AwaitingHello" => Admission::AwaitingHello,
        "Held" => Admission::Held { hello, welcomed: false },
        "Held." => Admission::Held { hello, welcomed: true },
        "AwaitingWelcome" => Admission::AwaitingWelcome { hello },
        "Ready" => {
            let (ready, _) =
                state("AwaitingWelcome").on(AdmissionEvent::Welcome, Instant::ZERO, RouteGeneration(4));
            ready.unwrap()
        }
        other => panic!("no state {other}"),
    }
}

fn event(name: &str) -> AdmissionEvent {
    let verdict = |name: &str| match name {
        "admit" => Verdict::Admit,
        "hold" => Verdict::Hold,
        "refuse" => Verdict::Refuse(Refused { refusal: Refusal::WrongMesh, why: String::new() }),
        other => panic!("no verdict {other}"),
    };
    match name.split_once('/') {
        Some(("h", name)) => AdmissionEvent::Hello(Box::new(hello("b", 1, 1)), verdict(name)),
        Some((_, name)) => AdmissionEvent::Rejudged(verdict(name)),
        None => match name {
            "Welcome" => AdmissionEvent::Welcome,
            "Refused" => AdmissionEvent::Refused(Refusal::NotReady),
            "Traffic" => AdmissionEvent::Traffic,
            "TimedOut" => AdmissionEvent::TimedOut,
            "Superseded" => AdmissionEvent::Superseded,
            other => panic!("no event {other}"),
        },
    }
}

#[test]
fn every_pair_of_state_and_event_does_what_the_table_says() {
    let cells = table(TABLE);
    assert_eq!(cells.len(), 5 * 11);
    for (row, column, cell) in cells {
        let before = state(&row);
        let (next, act) = before.clone().on(event(&column), Instant::from_nanos(5), RouteGeneration(4));
        if let Some(Admission::Ready(link)) = &next {
            assert_eq!(link.route, RouteGeneration(4));
        }
        let name = match &next {
            None => "gone",
            Some(Admission::Held { welcomed: true, .. }) => "Held.",
            Some(next) => next.name(),
        };
        let act = match act {
            Act::Nothing => "",
            Act::Welcome => ":W",
            Act::Ready { welcome: true } => ":WR",
            Act::Ready { welcome: false } => ":R",
            Act::Refuse(_) => ":r",
            Act::RefusedByPeer(Refusal::NotReady) => ":p",
            Act::RefusedByPeer(other) => panic!("{other:?}"),
            Act::TimedOut => ":t",
            Act::Violated(_) => ":v",
            Act::Defect(_) => {
                assert_eq!(next, Some(before), "a defect changes nothing");
                assert_eq!(cell, "!", "{row} on {column}");
                continue;
            }
        };
        assert_eq!(format!("{name}{act}"), cell, "{row} on {column}");
    }
}

/// A scene with a healthy peer `ok`, which no refused admission may harm (NODE-90).
fn with_healthy_peer() -> (Scene, LinkId) {
    let mut scene = Scene::automatic("m");
    let healthy = scene.admit(hello("ok", 1, 1));
    (scene, healthy)
}

fn refused(scene: &mut Scene, hello: Hello, proven: ProvenPeer) -> Option<Refusal> {
    let link = scene.up_proven(None, proven);
    scene.hear(link, hello);
    scene.refusal(link)
}

#[test]
fn node_t37_a_mismatch_refuses_admission_and_harms_no_other_peer() {
    type Change = fn(&mut Hello);
    let cases: [(Refusal, ErrorKind, Change); 6] = [
        (Refusal::Incompatible, ErrorKind::ProtocolError, |h| h.protocol = 2),
        (Refusal::Incompatible, ErrorKind::ProtocolError, |h| h.required_capabilities = 1),
        (Refusal::WrongMesh, ErrorKind::Rejected, |h| h.mesh = mesh("other")),
        (Refusal::TrustProfile, ErrorKind::Rejected, |h| h.trust_profile = "shared-key".to_owned()),
        (Refusal::OwnRid, ErrorKind::Rejected, |h| h.rid = rid("m")),
        // The descriptor's identity. Its generation counts for a node we dialled (below).
        (Refusal::Unexpected, ErrorKind::Rejected, |h| h.identity = identity("other")),
    ];
    for (refusal, kind, change) in cases {
        let (mut a, healthy) = with_healthy_peer();
        a.on(listed(&[descriptor("b", 1), descriptor("ok", 1)]));
        let mut hello = hello("b", 1, 1);
        change(&mut hello);
        assert_eq!(refused(&mut a, hello, NOBODY), Some(refusal));
        assert_eq!(a.errors().iter().map(|(_, error)| error.kind()).collect::<Vec<_>>(), [kind]);
        assert_eq!((a.ready("ok"), a.ready("b")), (Some(healthy), None));
        // The same peer without the mismatch is welcome.
        let link = a.admit(super::hello("b", 1, 2));
        assert_eq!(a.ready("b"), Some(link));
    }
    // The transport's proof contradicts the Hello.
    for proven in [
        ProvenPeer { rid: Some(rid("x")), identity: None },
        ProvenPeer { rid: Some(rid("b")), identity: Some(identity("x")) },
    ] {
        let (mut a, healthy) = with_healthy_peer();
        assert_eq!(refused(&mut a, hello("b", 1, 1), proven), Some(Refusal::Unexpected));
        assert_eq!((a.ready("ok"), a.ready("b")), (Some(healthy), None));
    }
}

#[test]
fn node_t37_a_dialled_node_must_be_the_expected_one() {
    // Expected RID of an application intent.
    let mut a = Scene::manual("a", vec![manual("tcp://b", Some("b")), manual("tcp://ok", None)]);
    let [b, ok] = a.dials()[..] else { panic!("{:?}", a.out) };
    let (to_b, to_ok) = (a.up(Some(b)), a.up(Some(ok)));
    a.hear(to_ok, hello("ok", 1, 0));
    a.receive(to_ok, Message::Welcome);
    a.hear(to_b, hello("c", 1, 0));
    assert_eq!(a.refusal(to_b), Some(Refusal::Unexpected));
    assert_eq!((a.ready("ok"), a.ready("c")), (Some(to_ok), None));
    // RID, generation and identity of a descriptor.
    type Change = fn(&mut Hello);
    let changes: [Change; 3] =
        [|h| h.rid = rid("c"), |h| h.lifecycle = life(2), |h| h.identity = identity("other")];
    for change in changes {
        let mut a = Scene::automatic("a");
        a.on(listed(&[descriptor("b", 1)]));
        let link = a.up(Some(a.last_dial()));
        let mut hello = hello("b", 1, 0);
        change(&mut hello);
        a.hear(link, hello);
        assert_eq!(a.refusal(link), Some(Refusal::Unexpected));
        assert!(a.timers.keys().any(|timer| matches!(timer, PeerTimer::Redial(_))), "the intent stays");
    }
}

#[test]
fn the_first_failing_check_decides() {
    // Each step repairs the first fault of a Hello that fails every check (NODE-83).
    let mut node = local("m", RoutingMode::Automatic);
    node.role = ObjectRole::Client;
    let mut a = Scene::new(node);
    a.on(listed(&[descriptor("b", 1)]));
    let mut hello = hello("m", 2, 1);
    hello.protocol = 9;
    hello.mesh = mesh("other");
    hello.trust_profile = "other".to_owned();
    hello.identity = identity("other");
    hello.role = ObjectRole::Client;
    let repairs: [(Refusal, fn(&mut Hello)); 5] = [
        (Refusal::Incompatible, |h| h.protocol = 1),
        (Refusal::WrongMesh, |h| h.mesh = mesh("m")),
        (Refusal::TrustProfile, |h| h.trust_profile = "open".to_owned()),
        (Refusal::OwnRid, |h| h.rid = rid("b")),
        (Refusal::NotRequired, |h| h.role = ObjectRole::Server),
    ];
    for (refusal, repair) in repairs {
        if refusal == Refusal::NotRequired {
            // Check 6 comes before 7: in the listed generation the identity is wrong.
            let listed = Hello { lifecycle: life(1), ..hello.clone() };
            assert_eq!(refused(&mut a, listed, NOBODY), Some(Refusal::Unexpected));
        }
        assert_eq!(refused(&mut a, hello.clone(), NOBODY), Some(refusal));
        repair(&mut hello);
    }
    // Check 8: another generation is listed.
    let held = a.up(None);
    a.hear(held, hello.clone());
    assert_eq!((a.refusal(held), a.sent(held).len()), (None, 0));
    // Check 9, with the listed generation.
    hello.lifecycle = life(1);
    hello.identity = identity("anonymous");
    let route = a.admit(hello.clone());
    assert_eq!(refused(&mut a, hello, NOBODY), Some(Refusal::Duplicate));
    assert_eq!(a.ready("b"), Some(route));
}

#[test]
fn a_host_that_does_not_admit_yet_or_any_more_refuses() {
    let mut a = Scene::closed(local("a", RoutingMode::Automatic));
    let link = a.up(None);
    assert_eq!(a.refusal(link), Some(Refusal::NotReady));
    a.on(PeerEvent::AdmissionOpened);
    let (before, open) = (a.admit(hello("b", 1, 1)), a.up(None));
    a.hear(open, hello("c", 1, 1));
    a.on(PeerEvent::HostStateChanged { state: HostState::Draining, revision: revision(2) });
    assert_eq!(a.refusal(open), Some(Refusal::ShuttingDown));
    let late = a.up(None);
    assert_eq!(a.refusal(late), Some(Refusal::ShuttingDown));
    assert_eq!(a.ready("b"), Some(before));
}

#[test]
fn both_sides_are_welcome_before_anything_is_ready() {
    let mut a = Scene::automatic("a");
    let link = a.up(None);
    assert!(matches!(&a.sent(link)[..], [Message::Hello(hello)] if !hello.dialled && hello.attempt == 0));
    a.hear(link, hello("b", 1, 1));
    assert_eq!(a.sent(link), [Message::Welcome]);
    assert_eq!((a.ready("b"), a.peers.peer_of(link)), (None, None));
    assert_eq!(a.state("b"), Some(PeerState::Connecting));
    a.receive(link, Message::Welcome);
    let ready: Vec<_> = a.out.iter().filter(|e| matches!(e, PeerEffect::PeerReady { .. })).collect();
    assert_eq!(ready.len(), 1);
    assert_eq!(a.peers.peer_of(link).map(|peer| peer.rid.clone()), Some(rid("b")));
    assert_eq!(a.state("b"), Some(PeerState::Ready));
}

#[test]
fn a_message_before_its_time_closes_the_link() {
    let update = Message::NodeUpdate(crate::wire::NodeUpdate {
        lifecycle: life(1),
        revision: revision(9),
        channels: BTreeMap::new(),
        host_state: HostState::Serving,
    });
    let reply = crate::wire::Reply {
        correlation: crate::model::Correlation::from_u64(1).unwrap(),
        error: None,
        stale_route: false,
    };
    for message in [Message::Welcome, Message::Probe(1), Message::ProbeAck(1), update, Message::Reply(reply)]
    {
        let mut a = Scene::automatic("a");
        let link = a.up(None);
        a.receive(link, message);
        assert!(a.closed_link(link));
        assert!(a.out.iter().any(|e| matches!(e, PeerEffect::Event(Event::ProtocolViolation { .. }))));
    }
    // A second Hello, and a Hello that misstates who dialled.
    let mut a = Scene::automatic("a");
    let link = a.admit(hello("b", 1, 1));
    a.hear(link, hello("b", 1, 1));
    assert!(a.closed_link(link));
    assert_eq!(a.ready("b"), None);
    let link = a.up(None);
    a.hear(link, hello("b", 1, 0));
    assert!(a.closed_link(link));
}

#[test]
fn a_handshake_that_never_ends_is_given_up() {
    let mut a = Scene::manual("a", vec![manual("tcp://b", None)]);
    let link = a.up(Some(a.last_dial()));
    a.hear(link, hello("b", 1, 0));
    a.pass(ms(4_999));
    assert!(a.out.is_empty() || !a.closed_link(link));
    a.pass(ms(1));
    assert!(a.closed_link(link));
    assert_eq!(a.errors().len(), 1);
    assert_eq!(a.state("b"), Some(PeerState::NotConnected));
}

#[test]
fn node_t35_the_pair_table() {
    use ObjectRole::{Client, None as NoRole, Server};
    for (own, own_channels, peer, peer_channels, needed) in [
        (Client, false, Client, false, false),
        (Client, true, Client, false, true),
        (Client, false, Client, true, true),
        (Client, true, Client, true, true),
        (Client, false, Server, false, true),
        (Client, false, NoRole, false, true),
        (Server, false, Client, false, true),
        (Server, false, Server, false, true),
        (Server, false, NoRole, false, true),
        (NoRole, false, Client, false, true),
        (NoRole, false, Server, false, true),
        (NoRole, false, NoRole, false, true),
    ] {
        let mut node = local("a", RoutingMode::Automatic);
        node.role = own;
        // Weight 0 keeps the need to connect.
        let served = |serves: bool| channels(if serves { &[("chat", 0)] } else { &[] });
        node.channels = served(own_channels);
        assert_eq!(
            node.needs(peer, peer_channels),
            needed,
            "{own:?} {own_channels} {peer:?} {peer_channels}"
        );
        // Through descriptors: an intent, or none at all.
        let mut a = Scene::new(node);
        let mut found = descriptor("b", 1);
        found.role = peer;
        found.channels = served(peer_channels);
        a.on(listed(&[found]));
        assert_eq!(a.dials().len(), usize::from(needed));
        let state = if needed { PeerState::Connecting } else { PeerState::NotRequired };
        assert_eq!(a.state("b"), Some(state), "visible either way");
    }
}

#[test]
fn node_t35_only_the_smaller_rid_dials() {
    for (own, peer, dials) in [
        ("a", "b", true),
        ("b", "a", false),
        ("ab", "abc", true),
        ("abc", "ab", false),
        ("abc", "b", true),
        ("b", "abc", false),
    ] {
        let mut a = Scene::automatic(own);
        a.on(listed(&[descriptor(peer, 1)]));
        assert_eq!(a.dials().len(), usize::from(dials), "{own} {peer}");
        a.pass(ms(60_000));
        assert_eq!(a.log.iter().any(|e| matches!(e, PeerEffect::Dial { .. })), dials);
    }
    let mut local = local("a", RoutingMode::Automatic);
    local.rid = Rid::new([0x7f]).unwrap();
    assert!(local.dials(&Rid::new([0x80]).unwrap()), "bytes are unsigned");
}

#[test]
fn node_t35_not_required_found_at_the_handshake_ends_the_intent() {
    for refused_by_peer in [false, true] {
        let mut node = local("a", RoutingMode::Manual);
        node.role = ObjectRole::Client;
        let mut a = Scene::new(node);
        a.on(PeerEvent::ManualIntents(vec![manual("tcp://b", Some("b"))]));
        let link = a.up(Some(a.last_dial()));
        if refused_by_peer {
            a.receive(link, Message::Refused(Refusal::NotRequired));
        } else {
            a.hear(link, Hello { role: ObjectRole::Client, ..hello("b", 1, 0) });
            assert_eq!(a.refusal(link), Some(Refusal::NotRequired));
        }
        assert!(a.errors().is_empty(), "no failure");
        assert_eq!(a.state("b"), Some(PeerState::NotRequired));
        // Not retried, not probed.
        a.pass(ms(600_000));
        assert_eq!(a.dials(), []);
        assert!(a.timers.is_empty());
        // The same configuration again changes nothing, another expected RID does.
        a.on(PeerEvent::ManualIntents(vec![manual("tcp://b", Some("b"))]));
        assert_eq!(a.dials(), []);
        a.on(PeerEvent::ManualIntents(vec![manual("tcp://b", None)]));
        assert_eq!(a.dials().len(), 1);
    }
}

#[test]
fn a_broken_handshake_is_an_error_with_the_transports_words() {
    let mut a = Scene::manual("a", vec![manual("tcp://b", None)]);
    let link = a.up(Some(a.last_dial()));
    a.on(PeerEvent::LinkDown { link, reason: LinkDownReason::Broken("reset".to_owned()) });
    let errors = a.errors();
    assert_eq!((errors.len(), errors[0].1.kind()), (1, ErrorKind::Unavailable));
    assert!(errors[0].1.description().contains("reset"));
    // A stranger that connects and leaves is nobody's error.
    let link = a.up(None);
    a.on(PeerEvent::LinkDown { link, reason: LinkDownReason::Closed });
    assert!(a.errors().is_empty());
}
