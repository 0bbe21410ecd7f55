//! The intent's table, its waits, and what its owner sees of it.

use super::*;
use crate::mesh::intent::{Fate, Intent, IntentAct, IntentEvent, IntentState, Target};
use crate::model::ErrorKind;

const DIAL: DialId = DialId(7);
const LINK: LinkId = LinkId(70);
const OTHER: LinkId = LinkId(71);
const AT: Instant = Instant::from_nanos(9);

/// The diagram of spec 02 §12. `!` cannot happen; after a colon what is done: d dial, x drop the dial, c
/// close its link. `Dialling.` has its transport up; `Linked.` is linked by its own dial.
const TABLE: &str = "
             Reconciled  Up         Own      Other     Refused  Lost   NotReq          Suspended  Removed
Idle         Dialling:d  !          !        Linked    !        !      NotRequired     Idle       gone
Dialling     !           Dialling.  Linked.  Dialling  Idle     !      NotRequired:x   Idle:x     gone:x
Dialling.    !           !          Linked.  Dialling. Idle     !      NotRequired:xc  Idle:xc    gone:xc
Linked       !           !          !        !         !        Idle   Linked          Linked     gone
Linked.      !           !          !        !         !        Idle   Linked.         Linked.    gone:xc
NotRequired  !           !          !        NotRequired !      !      NotRequired     NotRequired gone
";

fn state(name: &str) -> IntentState {
    match name {
        "Idle" => IntentState::Idle { redial: Some(AT) },
        "Dialling" => IntentState::Dialling { dial: DIAL, link: None },
        "Dialling." => IntentState::Dialling { dial: DIAL, link: Some(LINK) },
        "Linked" => IntentState::Linked { link: OTHER, dial: None },
        "Linked." => IntentState::Linked { link: LINK, dial: Some(DIAL) },
        "NotRequired" => IntentState::NotRequired,
        other => panic!("no state {other}"),
    }
}

fn event(name: &str) -> IntentEvent {
    match name {
        "Reconciled" => IntentEvent::Reconciled { dial: DIAL },
        "Up" => IntentEvent::Up { link: LINK },
        "Own" => IntentEvent::Admitted { link: LINK, dial: Some(DIAL) },
        "Other" => IntentEvent::Admitted { link: OTHER, dial: None },
        "Refused" => IntentEvent::Refused { redial: Some(AT) },
        "Lost" => IntentEvent::Lost { redial: Some(AT) },
        "NotReq" => IntentEvent::PairNotRequired,
        "Suspended" => IntentEvent::Suspended,
        "Removed" => IntentEvent::Removed,
        other => panic!("no event {other}"),
    }
}

fn intent() -> Intent {
    let target =
        Target { endpoint: "tcp://b".to_owned(), rid: Some(rid("b")), lifecycle: None, identity: None };
    Intent::new(target, true)
}

#[test]
fn every_pair_of_state_and_event_does_what_the_table_says() {
    let cells = table(TABLE);
    assert_eq!(cells.len(), 6 * 9);
    for (row, column, cell) in cells {
        let mut intent = intent();
        intent.state = state(&row);
        let mut acts = Vec::new();
        let fate = intent.on(event(&column), &mut acts);
        let next = match &fate {
            Err(defect) => {
                assert_eq!(intent.state, state(&row), "a defect changes nothing");
                assert_eq!(defect.state, row.trim_end_matches('.'));
                "!".to_owned()
            }
            Ok(Fate::Gone) => "gone".to_owned(),
            Ok(Fate::Kept) => match intent.state {
                IntentState::Idle { redial } => {
                    let stopped = column == "Suspended";
                    assert_eq!(redial, (!stopped).then_some(AT), "{row} {column}");
                    "Idle".to_owned()
                }
                IntentState::Dialling { dial, link } => {
                    assert_eq!(dial, DIAL);
                    assert!(link.is_none_or(|link| link == LINK));
                    if link.is_some() { "Dialling.".to_owned() } else { "Dialling".to_owned() }
                }
                IntentState::Linked { link, dial } => {
                    assert_eq!(link, if dial.is_some() { LINK } else { OTHER });
                    if dial.is_some() { "Linked.".to_owned() } else { "Linked".to_owned() }
                }
                IntentState::NotRequired => "NotRequired".to_owned(),
            },
        };
        let done: String = acts
            .iter()
            .map(|act| match act {
                IntentAct::Dial(dial) => {
                    assert_eq!(*dial, DIAL);
                    'd'
                }
                IntentAct::DropDial(dial) => {
                    assert_eq!(*dial, DIAL);
                    'x'
                }
                IntentAct::Close(link) => {
                    assert_eq!(*link, LINK);
                    'c'
                }
            })
            .collect();
        let found = if done.is_empty() { next } else { format!("{next}:{done}") };
        assert_eq!(found, cell, "{row} on {column}");
    }
}

#[test]
fn redial_waits_double_from_100_ms_to_5_s_with_up_to_20_percent_taken_off() {
    let mut entropy = Entropy::new([1; 32]);
    for (failures, base) in
        [(0, 100), (1, 200), (2, 400), (5, 3_200), (6, 5_000), (7, 5_000), (u32::MAX, 5_000)]
    {
        let waits: Vec<Duration> = (0..200).map(|_| Intent::redial_wait(failures, &mut entropy)).collect();
        assert!(waits.iter().all(|wait| (ms(base * 8 / 10)..=ms(base)).contains(wait)), "{failures}");
        let (least, most) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
        assert!(*most - *least > ms(base / 10), "the jitter is spread out");
    }
}

#[test]
fn node_t39_refused_connects_keep_the_intent_surface_the_error_and_succeed_later() {
    let mut a = Scene::manual("a", vec![manual("tcp://b", Some("b"))]);
    let mut dial = a.dial();
    for wait in [100, 200, 400, 800] {
        a.on(PeerEvent::DialFailed { dial, reason: "connection refused".to_owned() });
        let errors = a.errors();
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].0, Some(rid("b")));
        assert_eq!(errors[0].1.kind(), ErrorKind::Unavailable);
        assert!(errors[0].1.description().contains("connection refused"), "{:?}", errors[0].1);
        assert_eq!(a.state("b"), Some(PeerState::NotConnected));
        a.pass(ms(wait * 8 / 10 - 1));
        assert!(a.timers.contains_key(&PeerTimer::Redial(key())), "waits at least 80 %");
        a.pass(ms(wait * 2 / 10 + 1));
        dial = a.dial();
        assert_eq!(a.state("b"), Some(PeerState::Connecting));
    }
    let view = a.peers.views().find(|view| *view.rid == rid("b")).unwrap();
    assert_eq!(view.last_error.map(Error::kind), Some(ErrorKind::Unavailable));
    // The listener appears.
    let link = a.up(Some(dial));
    a.hear(link, hello("b", 1, 0));
    a.receive(link, Message::Welcome);
    assert_eq!(a.ready("b"), Some(link));
    // An admission counts the failures anew.
    a.on(PeerEvent::LinkDown { link, reason: crate::link::LinkDownReason::Closed });
    let at = a.timers[&PeerTimer::Redial(key())];
    assert!(at - a.now <= ms(100));
}

fn key() -> crate::mesh::IntentKey {
    crate::mesh::IntentKey::Application("tcp://b".to_owned())
}

#[test]
fn node_t39_a_refused_admission_is_a_typed_error_of_that_attempt_only() {
    let mut a = Scene::manual("a", vec![manual("tcp://b", None), manual("tcp://c", None)]);
    let [b, c] = a.dials()[..] else { panic!("{:?}", a.out) };
    let (to_b, to_c) = (a.up(Some(b)), a.up(Some(c)));
    a.hear(to_c, hello("c", 1, 0));
    a.receive(to_c, Message::Welcome);
    for (refusal, kind) in [
        (Refusal::NotReady, ErrorKind::Unavailable),
        (Refusal::ShuttingDown, ErrorKind::ShuttingDown),
        (Refusal::Incompatible, ErrorKind::ProtocolError),
        (Refusal::Unexpected, ErrorKind::Rejected),
    ] {
        let to_b = if refusal == Refusal::NotReady {
            to_b
        } else {
            a.pass(ms(5_000));
            a.up(Some(a.last_dial()))
        };
        a.receive(to_b, Message::Refused(refusal));
        assert_eq!(a.errors().iter().map(|(_, error)| error.kind()).collect::<Vec<_>>(), [kind]);
        assert!(a.errors()[0].1.description().contains(&format!("{refusal:?}")));
        assert!(a.timers.contains_key(&PeerTimer::Redial(key())), "the intent stays");
        assert_eq!(a.ready("c"), Some(to_c), "no other peer is harmed");
        // Keep c alive over the waits.
        if let Some(probe) = a.last_probe(to_c) {
            a.receive(to_c, Message::ProbeAck(probe));
        }
    }
}

#[test]
fn node_t22_a_late_link_of_a_removed_intent_is_closed_and_admits_nothing() {
    let mut a = Scene::manual("a", vec![manual("tcp://b", Some("b"))]);
    let dial = a.dial();
    a.on(PeerEvent::ManualIntents(Vec::new()));
    assert!(a.out.contains(&PeerEffect::DropDial(dial)), "in the same decision: {:?}", a.out);
    assert_eq!(a.state("b"), None);
    // The transport's READY crossed with the removal.
    let link = a.up(Some(dial));
    let marked = PeerEffect::Mark(crate::mark::Mark::PeerLateLink);
    assert_eq!(a.out, [marked, PeerEffect::Close(link)]);
    for message in [Message::Hello(Box::new(hello("b", 1, 0))), Message::Welcome] {
        assert!(a.receive(link, message).is_empty());
    }
    assert_eq!((a.ready("b"), a.state("b")), (None, None));
    // A late failure is ignored as well, and only a new intent connects.
    assert!(a.on(PeerEvent::DialFailed { dial, reason: "late".to_owned() }).is_empty());
    a.on(PeerEvent::ManualIntents(vec![manual("tcp://b", Some("b"))]));
    assert_ne!(a.dial(), dial);
}

#[test]
fn node_t22_removal_during_the_handshake_ends_it() {
    let mut a = Scene::manual("a", vec![manual("tcp://b", Some("b"))]);
    let dial = a.dial();
    let link = a.up(Some(dial));
    a.hear(link, hello("b", 1, 0));
    a.on(PeerEvent::ManualIntents(Vec::new()));
    assert!(a.out.contains(&PeerEffect::DropDial(dial)) && a.closed_link(link));
    assert!(a.errors().is_empty(), "taking a wish back is no failure");
    assert!(a.receive(link, Message::Welcome).is_empty());
    assert_eq!(a.ready("b"), None);
}

#[test]
fn removal_drops_what_was_dialled_and_keeps_an_inbound_connection_until_it_ends() {
    // NODE-98, NODE-103: dialled.
    let mut a = Scene::manual("a", vec![manual("tcp://b", Some("b"))]);
    let dial = a.dial();
    let link = a.up(Some(dial));
    a.hear(link, hello("b", 1, 0));
    a.receive(link, Message::Welcome);
    a.on(PeerEvent::ManualIntents(Vec::new()));
    assert!(a.out.contains(&PeerEffect::DropDial(dial)) && a.closed_link(link));
    assert_eq!(a.ended(), [(rid("b"), life(1))]);
    // Inbound, while the intent's own dial still runs.
    let mut a = Scene::manual("a", vec![manual("tcp://b", Some("b"))]);
    let dial = a.dial();
    let link = a.admit(hello("b", 1, 1));
    a.on(PeerEvent::ManualIntents(Vec::new()));
    assert!(a.out.contains(&PeerEffect::DropDial(dial)));
    assert_eq!(a.ready("b"), Some(link));
    assert!(a.ended().is_empty(), "an admitted connection remains");
    a.on(PeerEvent::LinkDown { link, reason: crate::link::LinkDownReason::Closed });
    assert_eq!(a.ended(), [(rid("b"), life(1))]);
}

#[test]
fn an_endpoint_that_answers_under_a_new_rid_is_dialled_again_beside_the_inbound_peer() {
    // NODE-T21 as far as this machine goes: the new Hello leaves and the admission completes.
    let mut a = Scene::manual("a", vec![manual("tcp://b", Some("b"))]);
    a.dial();
    let inbound = a.admit(hello("b", 1, 1));
    a.on(PeerEvent::ManualIntents(vec![manual("tcp://b", Some("b2"))]));
    let dial = a.dial();
    assert!(matches!(a.out.iter().find(|e| matches!(e, PeerEffect::Dial { .. })),
        Some(PeerEffect::Dial { target, .. }) if target.expected_rid == Some(rid("b2"))));
    let link = a.up(Some(dial));
    assert!(matches!(&a.sent(link)[..], [Message::Hello(_)]));
    a.hear(link, hello("b2", 9, 0));
    a.receive(link, Message::Welcome);
    assert_eq!((a.ready("b2"), a.ready("b")), (Some(link), Some(inbound)));
}

#[test]
fn a_new_endpoint_or_lifecycle_in_the_listing_replaces_the_intent() {
    let mut a = Scene::automatic("a");
    a.on(listed(&[descriptor("b", 1)]));
    let first = a.dial();
    // Nothing changed: nothing happens.
    a.on(listed(&[descriptor("b", 1)]));
    assert!(a.out.is_empty(), "{:?}", a.out);
    a.on(listed(&[descriptor("b", 2)]));
    assert!(a.out.contains(&PeerEffect::DropDial(first)));
    let second = a.dial();
    assert_eq!(a.ended(), [(rid("b"), life(1))]);
    let moved = Descriptor { endpoint: "tcp://elsewhere".to_owned(), ..descriptor("b", 2) };
    a.on(listed(&[moved]));
    assert!(a.out.contains(&PeerEffect::DropDial(second)));
    assert!(a.out.iter().any(|effect| matches!(effect,
        PeerEffect::Dial { target, .. } if target.endpoint == "tcp://elsewhere")));
    assert!(a.ended().is_empty(), "the lifecycle goes on");
    a.on(listed(&[]));
    assert_eq!(a.ended(), [(rid("b"), life(2))]);
    assert_eq!(a.state("b"), None);
}

#[test]
fn a_node_kept_over_a_recovery_keeps_its_intent_and_new_ones_connect_at_once() {
    let mut a = Scene::automatic("a");
    a.on(listed(&[descriptor("b", 1)]));
    a.dial();
    let descriptors = vec![Arc::new(descriptor("c", 1))];
    a.on(PeerEvent::Listed { descriptors: descriptors.clone(), keep_absent: true });
    a.dial();
    assert!(!a.out.iter().any(|effect| matches!(effect, PeerEffect::DropDial(_))));
    assert_eq!(a.state("b"), Some(PeerState::Connecting));
    a.on(PeerEvent::Listed { descriptors, keep_absent: false });
    assert_eq!(a.ended(), [(rid("b"), life(1))]);
}

#[test]
fn nothing_is_dialled_before_admission_opens_nor_after_draining_begins() {
    let mut a = Scene::closed(local("a", RoutingMode::Automatic));
    a.on(listed(&[descriptor("b", 1), descriptor("c", 1)]));
    assert!(a.dials().is_empty());
    a.on(PeerEvent::AdmissionOpened);
    let [b, c] = a.dials()[..] else { panic!("{:?}", a.out) };
    let link = a.up(Some(b));
    a.hear(link, hello("b", 1, 0));
    a.receive(link, Message::Welcome);
    a.on(PeerEvent::HostStateChanged { state: HostState::Draining, revision: revision(2) });
    assert!(a.out.contains(&PeerEffect::DropDial(c)));
    assert_eq!(a.ready("b"), Some(link), "accepted work still completes over it");
    assert!(
        matches!(&a.sent(link)[..], [Message::NodeUpdate(update)] if update.host_state == HostState::Draining)
    );
    a.on(PeerEvent::LinkDown { link, reason: crate::link::LinkDownReason::Closed });
    a.pass(ms(60_000));
    assert_eq!((a.ready("b"), a.dials().len()), (None, 0));
    a.on(PeerEvent::HostStateChanged { state: HostState::Stopped, revision: revision(3) });
    assert!(a.timers.is_empty());
}
