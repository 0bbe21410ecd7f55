//! A fixed RID under another lifecycle (NODE-87, NODE-88), and what ends a lifecycle (NODE-103).

use super::*;
use crate::link::LinkDownReason;
use crate::mesh::peers::EndReason;

/// Lifecycle tokens have no order: every scene runs with the new one smaller and larger.
const GENERATIONS: [(u64, u64); 2] = [(5, 9), (9, 5)];

fn lost(scene: &Scene, link: LinkId) -> Option<EndReason> {
    scene.out.iter().find_map(|effect| match effect {
        PeerEffect::PeerLost { link: lost, reason, .. } if *lost == link => Some(reason.clone()),
        _ => None,
    })
}

#[test]
fn node_t38_automatic_mode_waits_for_the_descriptor_then_hands_over() {
    for (old, new) in GENERATIONS {
        let mut z = Scene::automatic("z");
        z.on(listed(&[descriptor("b", old)]));
        let first = z.admit(hello("b", old, 1));
        // (a) fails: the descriptor in force names the old lifecycle.
        let second = z.up(None);
        z.hear(second, hello("b", new, 1));
        z.receive(second, Message::Welcome);
        assert_eq!(z.peers.ready(&rid("b")), Some((first, life(old))), "held, not selectable");
        assert_eq!((z.refusal(second), z.closed_link(second)), (None, false));
        // The next listing agrees: the old connection is closed, the route advances.
        let before = z.peers.peer_of(first).unwrap().route;
        z.on(listed(&[descriptor("b", new)]));
        assert_eq!(lost(&z, first), Some(EndReason::Returned));
        assert!(z.closed_link(first));
        assert_eq!(z.sent(second), [Message::Welcome]);
        assert_eq!(z.peers.ready(&rid("b")), Some((second, life(new))));
        assert!(z.peers.peer_of(second).unwrap().route > before);
        assert_eq!(z.ended(), [(rid("b"), life(old))]);
    }
}

#[test]
fn node_t38_automatic_mode_accepts_nothing_from_the_old_lifecycle_after_the_listing() {
    for (old, new) in GENERATIONS {
        let mut z = Scene::automatic("z");
        z.on(listed(&[descriptor("b", old)]));
        z.admit(hello("b", old, 1));
        z.on(listed(&[descriptor("b", new)]));
        assert_eq!(z.ready("b"), None, "the old connection is closed");
        let late = z.up(None);
        z.hear(late, hello("b", old, 2));
        z.receive(late, Message::Welcome);
        assert_eq!(z.ready("b"), None, "having been admitted before is not enough");
        // The wait is bounded; the peer is told to come again.
        z.pass(ms(5_000));
        assert!(z.log.iter().any(|effect| matches!(effect,
            PeerEffect::Send { link, message: Message::Refused(Refusal::Held) } if *link == late)));
        assert!(z.closed_link(late));
    }
}

#[test]
fn node_t38_manual_mode_needs_a_live_intent() {
    for (old, new) in GENERATIONS {
        // With an intent the returning node takes over at once.
        let mut z = Scene::manual("z", vec![manual("tcp://b", Some("b"))]);
        let first = z.admit(hello("b", old, 1));
        let second = z.up(None);
        z.hear(second, hello("b", new, 1));
        assert_eq!(z.ready("b"), Some(first), "the handover is not complete yet");
        z.receive(second, Message::Welcome);
        assert_eq!(lost(&z, first), Some(EndReason::Returned));
        assert_eq!(z.peers.ready(&rid("b")), Some((second, life(new))));
        assert_eq!(z.ended(), [(rid("b"), life(old))]);

        // Without one it waits until the old connection is gone.
        let mut z = Scene::manual("z", Vec::new());
        let first = z.admit(hello("b", old, 1));
        let second = z.up(None);
        z.hear(second, hello("b", new, 1));
        z.receive(second, Message::Welcome);
        assert_eq!(z.ready("b"), Some(first));
        z.on(PeerEvent::LinkDown { link: first, reason: LinkDownReason::Closed });
        assert_eq!(z.peers.ready(&rid("b")), Some((second, life(new))));
        assert_eq!(z.ended(), [(rid("b"), life(old))]);

        // Registering the intent is what (a) asks for as well.
        let mut z = Scene::manual("z", Vec::new());
        z.admit(hello("b", old, 1));
        let second = z.up(None);
        z.hear(second, hello("b", new, 1));
        z.receive(second, Message::Welcome);
        z.on(PeerEvent::ManualIntents(vec![manual("tcp://b", Some("b"))]));
        assert_eq!(z.peers.ready(&rid("b")), Some((second, life(new))));
    }
}

#[test]
fn node_t38_another_identity_is_no_handover() {
    for (old, new) in GENERATIONS {
        let mut z = Scene::manual("z", vec![manual("tcp://b", Some("b"))]);
        let first = z.admit(hello("b", old, 1));
        let second = z.up(None);
        z.hear(second, Hello { identity: identity("somebody else"), ..hello("b", new, 1) });
        z.receive(second, Message::Welcome);
        assert_eq!(z.peers.ready(&rid("b")), Some((first, life(old))));
        z.pass(ms(5_000));
        assert_eq!(z.ready("b"), Some(first));
        assert!(!z.closed_link(first));
    }
}

#[test]
fn node_t38_the_route_advances_only_with_the_peers_welcome() {
    for (old, new) in GENERATIONS {
        let mut z = Scene::manual("z", vec![manual("tcp://b", Some("b"))]);
        let first = z.admit(hello("b", old, 1));
        let second = z.up(None);
        z.hear(second, hello("b", new, 1));
        // The new connection breaks before its handshake ends: nothing changed.
        z.on(PeerEvent::LinkDown { link: second, reason: LinkDownReason::Closed });
        assert_eq!(z.peers.ready(&rid("b")), Some((first, life(old))));
        assert!(z.ended().is_empty());
    }
}

#[test]
fn an_unlisted_node_may_come_before_the_listing_that_shows_it() {
    let mut z = Scene::automatic("z");
    let link = z.admit(hello("b", 1, 1));
    assert_eq!(z.ready("b"), Some(link));
    z.on(listed(&[descriptor("b", 1)]));
    assert_eq!(z.ready("b"), Some(link));
    // Without the listing, another generation is not meant by anything (NODE-88 a).
    let mut z = Scene::automatic("z");
    let link = z.admit(hello("b", 1, 1));
    let other = z.up(None);
    z.hear(other, hello("b", 2, 1));
    z.receive(other, Message::Welcome);
    assert_eq!(z.peers.ready(&rid("b")), Some((link, life(1))));
}

#[test]
fn a_lifecycle_ends_only_without_intent_and_without_connection() {
    // Loss alone is transient.
    let mut z = Scene::automatic("z");
    z.on(listed(&[descriptor("b", 1)]));
    let link = z.admit(hello("b", 1, 1));
    z.on(PeerEvent::LinkDown { link, reason: LinkDownReason::Broken("cable".to_owned()) });
    assert!(z.ended().is_empty());
    // Absence alone is not the end while the connection is admitted.
    let link = z.admit(hello("b", 1, 2));
    z.on(listed(&[]));
    assert!(z.ended().is_empty());
    assert_eq!(z.ready("b"), Some(link));
    z.on(PeerEvent::LinkDown { link, reason: LinkDownReason::Closed });
    assert_eq!(z.ended(), [(rid("b"), life(1))]);
    assert_eq!(z.state("b"), None);
    // A node that was wished for and never reached ends with its intent.
    z.on(listed(&[descriptor("c", 4)]));
    z.on(listed(&[]));
    assert_eq!(z.ended(), [(rid("c"), life(4))]);
}

#[test]
fn held_links_of_a_stranger_leave_nothing_behind() {
    let mut z = Scene::manual("z", Vec::new());
    let first = z.admit(hello("b", 1, 1));
    for attempt in 1..20 {
        let held = z.up(None);
        z.hear(held, hello("b", 2, attempt));
    }
    z.pass(ms(5_000));
    assert_eq!(z.timers.len(), 2, "only the ready link's");
    z.on(PeerEvent::LinkDown { link: first, reason: LinkDownReason::Closed });
    assert!(z.timers.is_empty());
    assert_eq!(z.peers.views().count(), 0);
}
