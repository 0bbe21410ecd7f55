//! NODE-106..110.

use super::*;
use crate::mesh::peers::EndReason;

/// A ready peer `b`, and the time its link became ready.
fn ready() -> (Scene, LinkId) {
    let mut a = Scene::automatic("z");
    let link = a.admit(hello("b", 1, 1));
    (a, link)
}

#[test]
fn node_t42_one_id_is_outstanding_and_repeated_until_acknowledged() {
    let (mut a, link) = ready();
    a.pass(ms(4_999));
    assert_eq!(a.probes(link), 0);
    a.pass(ms(1));
    let first = a.last_probe(link).unwrap();
    assert_ne!(first, 0);
    a.pass(ms(5_000));
    assert_eq!((a.probes(link), a.last_probe(link)), (2, Some(first)), "the id still unanswered is repeated");
    a.receive(link, Message::ProbeAck(first));
    a.pass(ms(5_000));
    assert_eq!(a.probes(link), 3);
    assert_ne!(a.last_probe(link), Some(first), "a fresh id after the acknowledgement");
}

#[test]
fn node_t42_only_the_first_matching_acknowledgement_renews_the_deadline() {
    let (mut a, link) = ready();
    let other = a.admit(hello("c", 1, 1));
    let start = a.now;
    let dead = |a: &Scene| a.timers[&PeerTimer::Dead(link)];
    assert_eq!(dead(&a), start + ms(15_000));
    a.pass(ms(7_000));
    let id = a.last_probe(link).unwrap();
    assert_ne!(Some(id), a.last_probe(other));
    // Foreign ids, other connections, the peer's own probes and its updates do not renew.
    a.receive(link, Message::ProbeAck(id ^ 1));
    a.receive(other, Message::ProbeAck(id));
    a.receive(link, Message::Probe(77));
    assert_eq!(a.sent(link), [Message::ProbeAck(77)]);
    assert_eq!(dead(&a), start + ms(15_000));
    // The first matching one does, from now; its duplicate does not.
    a.receive(link, Message::ProbeAck(id));
    let renewed = a.now + ms(15_000);
    assert_eq!(dead(&a), renewed);
    a.pass(ms(1));
    a.receive(link, Message::ProbeAck(id));
    assert_eq!(dead(&a), renewed);
    // Nor does an id of an earlier round.
    a.pass(ms(5_000));
    assert_ne!(a.last_probe(link), Some(id));
    a.receive(link, Message::ProbeAck(id));
    assert_eq!(dead(&a), renewed);
}

#[test]
fn node_t42_a_half_open_connection_is_found_within_15_s_whatever_else_arrives() {
    let (mut a, link) = ready();
    let start = a.now;
    // The peer's own probes keep coming: traffic, but no acknowledgement.
    for _ in 0..14 {
        a.pass(ms(1_000));
        a.receive(link, Message::Probe(3));
        assert_eq!(a.ready("b"), Some(link));
    }
    a.pass(ms(1_000));
    assert_eq!(a.now, start + ms(15_000));
    assert_eq!(a.ready("b"), None);
    assert!(a.closed_link(link));
    assert!(
        a.out.iter().any(|effect| matches!(effect, PeerEffect::PeerLost { reason: EndReason::Silent, .. }))
    );
    assert!(a.timers.is_empty(), "no probe of a connection that is gone: {:?}", a.timers);
}

#[test]
fn close_error_and_silence_are_told_apart() {
    use crate::link::LinkDownReason as Down;
    for reason in [Down::Closed, Down::Broken("reset".to_owned()), Down::Stalled] {
        let (mut a, link) = ready();
        a.on(PeerEvent::LinkDown { link, reason: reason.clone() });
        let expected = EndReason::Down(reason);
        assert!(a.out.iter().any(|effect| matches!(effect,
            PeerEffect::PeerLost { reason, .. } if *reason == expected)));
        assert!(!a.closed_link(link), "it is gone already");
    }
}

#[test]
fn an_answering_peer_stays_for_ever_and_probes_are_answered() {
    let (mut a, link) = ready();
    for _ in 0..40 {
        a.pass(ms(5_000));
        let id = a.last_probe(link).unwrap();
        a.receive(link, Message::ProbeAck(id));
    }
    assert_eq!(a.ready("b"), Some(link));
    a.receive(link, Message::Probe(0));
    assert!(a.closed_link(link), "NODE-107: ids are non-zero");
}
