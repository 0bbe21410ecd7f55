//! Peers that take nothing: bounded in bytes, and without effect on others.

mod support;

use spotmesh::link::{Lane, LinkDownReason, LinkId, TransportEvent};
use spotmesh_net_zmq::{Bounds, ZmqConfig};
use support::*;

const BODY: usize = 64 << 10;
const BOUNDS: Bounds = Bounds { soft: 1 << 20, hard: 8 << 20, window: 512 << 10 };

fn bounded() -> ZmqConfig {
    ZmqConfig { bounds: BOUNDS, ..brisk() }
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4_096
}

fn was_congested(host: &Host, of: LinkId) -> bool {
    host.events.iter().any(|event| matches!(event, TransportEvent::Congested { link } if *link == of))
}

fn was_writable(host: &Host, of: LinkId) -> bool {
    host.events.iter().any(|event| matches!(event, TransportEvent::Writable { link } if *link == of))
}

/// Host 0 in the middle, 1 takes nothing, 2 works. Both diallers or both listeners, seen from the middle.
fn three(middle_listens: bool) -> (Rig, LinkId, LinkId, LinkId) {
    let mut rig = Rig::new([bounded(), bounded(), bounded()]);
    if middle_listens {
        let endpoint = rig.bind(0);
        let (asleep_end, asleep) = rig.link(1, 0, &endpoint);
        let (_, awake) = rig.link(2, 0, &endpoint);
        (rig, asleep, asleep_end, awake)
    } else {
        let endpoints = [rig.bind(1), rig.bind(2)];
        let (asleep, asleep_end) = rig.link(0, 1, &endpoints[0]);
        let (awake, _) = rig.link(0, 2, &endpoints[1]);
        (rig, asleep, asleep_end, awake)
    }
}

#[test]
fn a_stalled_peer_is_congested_then_given_up_while_another_goes_on() {
    for middle_listens in [true, false] {
        let (mut rig, asleep, asleep_end, awake) = three(middle_listens);
        let other = rig.hosts[2].links_up()[0].0;
        let before = resident_bytes();
        let mut sent = 0;
        let mut congested_at = None;
        while rig.hosts[0].down(asleep).is_none() {
            rig.send(0, asleep, Lane::Application, numbered(sent, BODY));
            rig.send(0, awake, Lane::Application, numbered(sent, 10));
            rig.flush(0);
            sent += 1;
            assert!(rig.until_without(1, LONG, |h| h[2].received_count(other) == sent as usize));
            if was_congested(&rig.hosts[0], asleep) && congested_at.is_none() {
                congested_at = Some(sent as usize * BODY);
            }
            assert!(sent as usize * BODY < 4 * BOUNDS.hard, "not bounded");
        }
        assert_eq!(rig.hosts[0].down(asleep), Some(LinkDownReason::Stalled));
        let (accepted, congested_at) = (sent as usize * BODY, congested_at.unwrap());
        assert!((BOUNDS.soft..BOUNDS.soft + 2 * BODY).contains(&congested_at), "{congested_at}");
        assert!((BOUNDS.hard..BOUNDS.hard + 2 * BODY).contains(&accepted), "{accepted}");
        assert!(!was_writable(&rig.hosts[0], asleep));
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < 3 * BOUNDS.hard, "grew by {grown} bytes for {accepted}");
        assert_eq!(rig.hosts[0].transport.counters().stalled_links, 1);
        // The other goes on, and the stalled one learns of it when it looks again.
        rig.send(0, awake, Lane::Completion, small("after"));
        rig.flush(0);
        assert!(rig.until(LONG, |h| h[2].received_count(other) == sent as usize + 1));
        assert!(rig.until(LONG, |h| h[1].down(asleep_end).is_some()));
        let reason = rig.hosts[1].down(asleep_end);
        assert!(matches!(reason, Some(LinkDownReason::Broken(_))), "{reason:?}");
    }
}

#[test]
fn congestion_ends_when_the_peer_takes_what_was_sent() {
    let (mut rig, asleep, asleep_end, _) = three(true);
    let mut sent = 0;
    while !was_congested(&rig.hosts[0], asleep) {
        rig.send(0, asleep, Lane::Application, numbered(sent, BODY));
        rig.flush(0);
        rig.until_without(1, MS, |_| false);
        sent += 1;
    }
    rig.until_without(1, 50 * MS, |_| false);
    assert!(!was_writable(&rig.hosts[0], asleep));
    assert!(rig.until(LONG, |h| was_writable(&h[0], asleep)));
    assert!(rig.until(LONG, |h| h[1].received_count(asleep_end) == sent as usize));
    let numbers: Vec<u32> =
        rig.hosts[1].received(asleep_end, Lane::Application).iter().map(number_of).collect();
    assert_eq!(numbers, (0..sent).collect::<Vec<_>>());
    assert_eq!(rig.hosts[0].down(asleep), None);
}

#[test]
fn a_peer_whose_loop_is_busy_for_long_keeps_its_link() {
    let (mut rig, asleep, asleep_end, _) = three(true);
    let patience = 3 * brisk().timing.heartbeat_timeout;
    let count = 3_000u32;
    for number in 0..count {
        rig.send(0, asleep, Lane::Application, numbered(number, 8));
        rig.flush(0);
    }
    // Its loop takes nothing for longer than a ping may stay unanswered; its I/O thread answers them.
    rig.until_without(1, patience, |_| false);
    assert!(rig.until(LONG, |h| h[1].received_count(asleep_end) == count as usize));
    assert_eq!((rig.hosts[0].down(asleep), rig.hosts[1].down(asleep_end)), (None, None));
}

#[test]
fn many_small_records_to_a_sleeping_peer_are_packed_and_all_arrive() {
    let (mut rig, asleep, asleep_end, _) = three(false);
    // One flush each: libzmq's queue of 1,000 messages is full long before the bytes are many.
    let count = 20_000u32;
    for number in 0..count {
        rig.send(0, asleep, Lane::Completion, numbered(number, 8));
        rig.flush(0);
    }
    assert_eq!(rig.hosts[0].down(asleep), None);
    assert!(
        rig.until(LONG, |h| h[1].received_count(asleep_end) == count as usize),
        "{} of {count}, down: {:?}",
        rig.hosts[1].received_count(asleep_end),
        (rig.hosts[0].down(asleep), rig.hosts[1].down(asleep_end))
    );
    let records = rig.hosts[1].received(asleep_end, Lane::Completion);
    assert!(records.iter().enumerate().all(|(at, record)| number_of(record) == at as u32));
}
