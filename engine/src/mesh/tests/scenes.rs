//! Duplicates, updates and states of peers, seen from one node.

use super::*;
use crate::link::LinkDownReason;
use crate::mark::Mark;
use crate::wire::NodeUpdate;

#[test]
fn node_t36_a_redial_replaces_a_half_open_connection() {
    let mut z = Scene::automatic("z");
    z.on(listed(&[descriptor("b", 1)]));
    let first = z.admit(hello("b", 1, 3));
    // An older attempt that arrives late loses; a higher one wins once its handshake is over.
    let late = z.up(None);
    z.hear(late, hello("b", 1, 2));
    assert_eq!(z.refusal(late), Some(Refusal::Duplicate));
    let second = z.up(None);
    z.hear(second, hello("b", 1, 4));
    assert_eq!(z.ready("b"), Some(first));
    let route = z.peers.peer_of(first).unwrap().route;
    z.receive(second, Message::Welcome);
    assert_eq!(z.ready("b"), Some(second));
    assert_eq!(z.refusal(first), Some(Refusal::Duplicate));
    assert!(z.peers.peer_of(second).unwrap().route > route, "NODE-86");
    assert!(z.out.contains(&PeerEffect::Mark(Mark::PeerReplaced)));
    let reported = z
        .out
        .iter()
        .filter(|effect| matches!(effect, PeerEffect::Event(Event::Peer { state: PeerState::Ready, .. })));
    assert_eq!(reported.count(), 1, "each admitted connection is reported once (OBS-13)");
    assert!(z.ended().is_empty());
    // A third attempt in the handshake gives way to a fourth.
    let (third, fourth) = (z.up(None), z.up(None));
    z.hear(third, hello("b", 1, 5));
    z.hear(fourth, hello("b", 1, 6));
    assert_eq!(z.refusal(third), Some(Refusal::Duplicate));
    // One between the admitted attempt and the one that is about to replace it loses already.
    let between = z.up(None);
    z.hear(between, hello("b", 1, 5));
    assert_eq!(z.refusal(between), Some(Refusal::Duplicate));
    z.receive(fourth, Message::Welcome);
    assert_eq!(z.ready("b"), Some(fourth));
}

#[test]
fn node_t36_the_connection_dialled_by_the_smaller_rid_beats_any_attempt_of_the_larger() {
    for (own, peer, own_wins) in
        [("a", "b", true), ("b", "a", false), ("ab", "abc", true), ("b", "abc", false)]
    {
        // The loser is admitted first, then the winner comes; and the other way round.
        for own_first in [false, true] {
            let mut scene = Scene::manual(own, vec![manual("tcp://peer", None)]);
            let (dialled, inbound) = (scene.up(Some(scene.last_dial())), scene.up(None));
            let order = if own_first { [dialled, inbound] } else { [inbound, dialled] };
            for link in order {
                scene.hear(link, hello(peer, 1, if link == dialled { 0 } else { 1_000 }));
                scene.receive(link, Message::Welcome);
            }
            let winner = if own_wins { dialled } else { inbound };
            assert_eq!(scene.ready(peer), Some(winner), "{own} {peer} own first {own_first}");
            scene.pass(ms(4_000));
            let dials = scene.log.iter().filter(|effect| matches!(effect, PeerEffect::Dial { .. }));
            assert_eq!(dials.count(), 1, "the intent is linked, whoever dialled");
            // When the connection ends, the intent dials again.
            scene.on(PeerEvent::LinkDown { link: winner, reason: LinkDownReason::Closed });
            scene.pass(ms(100));
            assert_eq!(scene.dials().len(), 1);
        }
    }
}

#[test]
fn a_duplicate_refused_by_the_peer_waits_for_the_better_connection() {
    let mut b = Scene::manual("b", vec![manual("tcp://a", Some("a"))]);
    let own = b.up(Some(b.last_dial()));
    b.hear(own, hello("a", 1, 0));
    b.receive(own, Message::Refused(Refusal::Duplicate));
    assert!(b.errors().is_empty(), "a duplicate is no failure");
    assert!(b.timers.keys().any(|timer| matches!(timer, PeerTimer::Redial(_))));
    // The connection the peer prefers arrives: no further dial.
    let link = b.admit(hello("a", 1, 7));
    assert_eq!(b.ready("a"), Some(link));
    assert!(!b.timers.keys().any(|timer| matches!(timer, PeerTimer::Redial(_))));
}

fn weights(scene: &Scene) -> BTreeMap<ChannelName, Weight> {
    scene.peers.ready_peer(&rid("b")).unwrap().channels.clone()
}

fn update(lifecycle: u64, at: u64, set: &[(&str, i64)]) -> Message {
    Message::NodeUpdate(NodeUpdate {
        lifecycle: life(lifecycle),
        revision: revision(at),
        channels: channels(set),
        host_state: HostState::Serving,
    })
}

#[test]
fn node_t40_only_a_larger_revision_of_the_current_generation_replaces_the_weights() {
    let mut z = Scene::automatic("z");
    let stated = channels(&[("chat", 100), ("mail", 100)]);
    let link = z.admit(Hello { revision: revision(5), channels: stated.clone(), ..hello("b", 1, 1) });
    assert_eq!(weights(&z), stated);
    for ignored in [
        update(1, 5, &[("chat", 1), ("mail", 1)]),
        update(1, 4, &[("chat", 1), ("mail", 1)]),
        update(2, 9, &[("chat", 1), ("mail", 1)]),
        // Not the complete set.
        update(1, 9, &[("chat", 1)]),
    ] {
        z.receive(link, ignored);
        assert_eq!(weights(&z), stated);
    }
    z.receive(link, update(1, 6, &[("chat", 0), ("mail", 300)]));
    assert_eq!(weights(&z), channels(&[("chat", 0), ("mail", 300)]));
    assert_eq!(z.ready("b"), Some(link), "without a new connection");
    // A lost update is repaired by the descriptor (NODE-114), a stale descriptor changes nothing.
    let at = |value: u64, set: &[(&str, i64)]| {
        let (revision, channels) = (revision(value), channels(set));
        listed(&[Descriptor { revision, channels, ..descriptor("b", 1) }])
    };
    z.on(at(6, &[("chat", 9), ("mail", 9)]));
    assert_eq!(weights(&z), channels(&[("chat", 0), ("mail", 300)]));
    z.on(at(7, &[("chat", 9), ("mail", 9)]));
    assert_eq!(weights(&z), channels(&[("chat", 9), ("mail", 9)]));
}

#[test]
fn own_changes_reach_ready_peers_and_those_that_become_ready_later() {
    let mut z = Scene::automatic("z");
    let ready = z.admit(hello("b", 1, 1));
    let handshaking = z.up(None);
    let changed = PeerEvent::WeightsChanged { channels: channels(&[("chat", 7)]), revision: revision(2) };
    z.on(changed);
    let expected = |message: &Message| {
        matches!(message, Message::NodeUpdate(update)
            if update.revision == revision(2) && update.channels == channels(&[("chat", 7)]) && update.lifecycle == life(100))
    };
    assert!(matches!(&z.sent(ready)[..], [message] if expected(message)));
    assert!(z.sent(handshaking).is_empty());
    z.hear(handshaking, hello("c", 1, 1));
    z.receive(handshaking, Message::Welcome);
    assert!(matches!(&z.sent(handshaking)[..], [message] if expected(message)), "our Hello was older");
    let fresh = z.up(None);
    z.hear(fresh, hello("d", 1, 1));
    z.receive(fresh, Message::Welcome);
    assert!(z.sent(fresh).is_empty(), "its Hello said it already");
}

#[test]
fn a_draining_peer_stays_connected_and_is_shown_as_draining() {
    let mut z = Scene::automatic("z");
    let link = z.admit(hello("b", 1, 1));
    let draining = NodeUpdate {
        lifecycle: life(1),
        revision: revision(2),
        channels: BTreeMap::new(),
        host_state: HostState::Draining,
    };
    z.receive(link, Message::NodeUpdate(draining));
    assert_eq!(z.state("b"), Some(PeerState::Draining));
    assert_eq!(z.ready("b"), Some(link), "replies still travel");
    assert!(!z.out.iter().any(|effect| matches!(effect, PeerEffect::PeerReady { .. })));
}

#[test]
fn observers_see_each_state_once_with_its_reason() {
    let mut a = Scene::automatic("a");
    a.on(listed(&[descriptor("b", 1)]));
    a.on(PeerEvent::DialFailed { dial: a.last_dial(), reason: "no route".to_owned() });
    a.pass(ms(100));
    let link = a.up(Some(a.last_dial()));
    a.hear(link, hello("b", 1, 0));
    a.receive(link, Message::Welcome);
    a.on(PeerEvent::LinkDown { link, reason: LinkDownReason::Stalled });
    a.on(listed(&[]));
    let seen: Vec<(PeerState, String)> = a
        .log
        .iter()
        .filter_map(|effect| match effect {
            PeerEffect::Event(Event::Peer { state, reason, .. }) => Some((*state, reason.clone())),
            _ => None,
        })
        .collect();
    let expected = [
        (PeerState::Connecting, "dialling"),
        (PeerState::NotConnected, "no route"),
        (PeerState::Connecting, "dialling"),
        (PeerState::Ready, "admitted"),
        (PeerState::NotConnected, "the other side takes nothing"),
    ];
    assert_eq!(seen.len(), expected.len(), "{seen:?}");
    for ((state, reason), (expected, text)) in seen.iter().zip(expected) {
        assert_eq!(*state, expected);
        assert!(reason.contains(text), "{reason}");
    }
}

#[test]
fn a_stopped_host_leaves_no_link_dial_timer_or_peer() {
    let mut m = Scene::automatic("m");
    m.on(listed(&[descriptor("z", 1), descriptor("a", 1), descriptor("y", 1)]));
    let [to_y, to_z] = m.dials()[..] else { panic!("{:?}", m.out) };
    let from_a = m.admit(hello("a", 1, 1));
    let up = m.up(Some(to_y));
    let stranger = m.up(None);
    m.on(PeerEvent::HostStateChanged { state: HostState::Stopped, revision: revision(2) });
    assert!(m.out.contains(&PeerEffect::DropDial(to_z)));
    assert!([from_a, up, stranger].into_iter().all(|link| m.closed_link(link)));
    assert!(m.timers.is_empty());
    assert_eq!(m.peers.views().count(), 0);
    // Whatever still arrives changes nothing.
    m.on(listed(&[descriptor("z", 1)]));
    m.on(PeerEvent::AdmissionOpened);
    let late = m.up(None);
    assert!(m.closed_link(late));
    assert_eq!(m.peers.views().count(), 0);
}
