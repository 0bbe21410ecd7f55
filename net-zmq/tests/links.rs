//! Links over real sockets: made, used, closed and lost.

mod support;

use std::time::Duration;

use spotmesh::driver::Transport;
use spotmesh::link::{Lane, LinkDownReason, TransportEvent};
use support::*;

const LANES: [Lane; 2] = [Lane::Application, Lane::Completion];

#[test]
fn a_link_comes_up_on_both_sides_and_carries_records_both_ways() {
    let (mut rig, listener, dialler, endpoint) = Rig::pair(brisk());
    assert!(endpoint.starts_with("tcp://127.0.0.1:") && !endpoint.ends_with(":0"), "{endpoint}");
    assert_eq!(rig.hosts[0].links_up()[0].1, None, "inbound links come of no dial");
    for lane in LANES {
        rig.send(1, dialler, lane, small("to listener"));
        rig.send(0, listener, lane, small("to dialler"));
    }
    rig.flush(0);
    rig.flush(1);
    assert!(rig.until(LONG, |h| h[0].received_count(listener) == 2 && h[1].received_count(dialler) == 2));
    for lane in LANES {
        assert_eq!(rig.hosts[0].received(listener, lane), [small("to listener")]);
        assert_eq!(rig.hosts[1].received(dialler, lane), [small("to dialler")]);
    }
}

#[test]
fn several_nodes_of_one_host_have_listeners_and_links_of_their_own() {
    let mut rig = Rig::new([brisk(), brisk()]);
    let other = spotmesh::link::NodeIndex(7);
    let first = rig.bind(0);
    rig.hosts[0].transport.bind(other);
    let mut second = None;
    assert!(rig.until(LONG, |h| {
        second = h[0].events.iter().find_map(|event| match event {
            TransportEvent::Bound { node, endpoint } if *node == other => Some(endpoint.clone()),
            _ => None,
        });
        second.is_some()
    }));
    let second = second.unwrap();
    assert_ne!(first, second);
    rig.link(1, 0, &second);
    let nodes = |rig: &Rig| -> Vec<u16> {
        let up = |event: &TransportEvent| match event {
            TransportEvent::LinkUp { node, .. } => Some(node.0),
            _ => None,
        };
        rig.hosts[0].events.iter().filter_map(up).collect()
    };
    assert_eq!(nodes(&rig), [7]);
    rig.hosts[0].transport.unbind(NODE);
    rig.link(1, 0, &second);
    assert_eq!(nodes(&rig), [7, 7]);
}

#[test]
fn records_of_a_lane_keep_their_order_whatever_their_size() {
    let (mut rig, listener, dialler, _) = Rig::pair(brisk());
    let sizes = [0usize, 1, 100, 40_000, 0, 200_000, 7, 31_000, 31_000, 31_000, 1 << 20, 3];
    let count = 600u32;
    for number in 0..count {
        let record = numbered(number, sizes[number as usize % sizes.len()]);
        rig.send(1, dialler, LANES[number as usize % 2], record);
        if number % 50 == 49 {
            rig.flush(1);
            rig.settle(MS);
        }
    }
    rig.flush(1);
    assert!(rig.until(LONG, |h| h[0].received_count(listener) == count as usize));
    for (odd, lane) in LANES.iter().enumerate() {
        let numbers: Vec<u32> = rig.hosts[0].received(listener, *lane).iter().map(number_of).collect();
        let expected: Vec<u32> = (0..count).filter(|n| *n as usize % 2 == odd).collect();
        assert_eq!(numbers, expected);
    }
    let bodies = rig.hosts[0].received(listener, Lane::Application);
    assert!(
        bodies.iter().all(|r| r.body.as_ref().is_none_or(|b| b.iter().all(|x| *x == number_of(r) as u8)))
    );
}

#[test]
fn ten_thousand_small_records_arrive_in_order() {
    let (mut rig, listener, dialler, _) = Rig::pair(brisk());
    for number in 0..10_000 {
        rig.send(1, dialler, Lane::Application, numbered(number, 16));
    }
    rig.flush(1);
    assert!(rig.until(LONG, |h| h[0].received_count(listener) == 10_000));
    let records = rig.hosts[0].received(listener, Lane::Application);
    assert!(records.iter().enumerate().all(|(at, record)| *record == numbered(at as u32, 16)));
}

#[test]
fn large_bodies_arrive_whole() {
    let (mut rig, listener, dialler, _) = Rig::pair(brisk());
    let sizes = [1 << 20, spotmesh::model::limits::PAYLOAD_MAX];
    for (number, size) in sizes.into_iter().enumerate() {
        rig.send(1, dialler, Lane::Application, numbered(number as u32, size));
        rig.flush(1);
    }
    assert!(rig.until(LONG, |h| h[0].received_count(listener) == 2), "{:?}", rig.hosts[0].down(listener));
    let records = rig.hosts[0].received(listener, Lane::Application);
    for (number, size) in sizes.into_iter().enumerate() {
        assert_eq!(records[number], numbered(number as u32, size));
    }
}

#[test]
fn a_record_larger_than_the_window_follows_small_ones_at_once() {
    let (mut rig, listener, dialler, _) = Rig::pair(brisk());
    for number in 0..20 {
        // Few small bytes are not acknowledged by themselves.
        rig.send(1, dialler, Lane::Application, numbered(2 * number, 10));
        rig.flush(1);
        assert!(rig.until(LONG, |h| h[0].received_count(listener) == 2 * number as usize + 1));
        rig.send(1, dialler, Lane::Application, numbered(2 * number + 1, 6 << 20));
        rig.flush(1);
        assert!(rig.until(LONG, |h| h[0].received_count(listener) == 2 * number as usize + 2));
    }
    assert_eq!(rig.hosts[0].down(listener), None);
}

#[test]
fn a_record_over_the_frame_limit_ends_its_link_with_a_reason() {
    let (mut rig, _, dialler, _) = Rig::pair(brisk());
    rig.send(1, dialler, Lane::Application, numbered(1, spotmesh_net_zmq::FRAME_MAX + 1));
    assert!(rig.until(LONG, |h| h[1].down(dialler).is_some()));
    let Some(LinkDownReason::Violated(text)) = rig.hosts[1].down(dialler) else { panic!() };
    assert!(text.contains("expected frames of at most"), "{text}");
}

#[test]
fn closing_lets_queued_records_leave_and_ends_the_other_side_in_order() {
    for closer_is_dialler in [true, false] {
        let (mut rig, listener, dialler, _) = Rig::pair(brisk());
        let (closer, link, other, peer) =
            if closer_is_dialler { (1, dialler, 0, listener) } else { (0, listener, 1, dialler) };
        // More than the window takes at once, so that the close has to wait for room.
        for number in 0..12 {
            rig.send(closer, link, Lane::Application, numbered(number, 1 << 20));
        }
        rig.send(closer, link, Lane::Completion, small("last"));
        rig.flush(closer);
        let seen = rig.hosts[closer].events.len();
        rig.hosts[closer].transport.close(link);
        assert!(rig.until(LONG, |h| h[other].down(peer).is_some()));
        assert_eq!(rig.hosts[other].down(peer), Some(LinkDownReason::Closed));
        assert_eq!(rig.hosts[other].received(peer, Lane::Application).len(), 12);
        assert_eq!(rig.hosts[other].received(peer, Lane::Completion).len(), 1);
        assert!(rig.until(LONG, |h| h.iter().all(|h| h.transport.registered().1 == 0)));
        let after = &rig.hosts[closer].events[seen..];
        assert!(after.is_empty(), "no event follows a close: {after:?}");
        assert_eq!(rig.hosts[1].transport.registered(), (0, 0));
    }
}

#[test]
fn dropping_a_transport_with_links_ends_them_for_the_others() {
    for dropped_dials in [true, false] {
        let (mut rig, listener, dialler, _) = Rig::pair(brisk());
        let (dropped, peer) = if dropped_dials { (1, listener) } else { (0, dialler) };
        drop(rig.hosts.remove(dropped));
        assert!(rig.until(LONG, |h| h[0].down(peer).is_some()));
        assert!(matches!(rig.hosts[0].down(peer), Some(LinkDownReason::Broken(_))));
    }
}

#[test]
fn closing_one_link_touches_no_other() {
    let mut rig = Rig::new([brisk(), brisk(), brisk()]);
    let endpoint = rig.bind(0);
    let (first, first_in) = rig.link(1, 0, &endpoint);
    // The same pair twice, and another peer: all to one endpoint.
    let (second, second_in) = rig.link(1, 0, &endpoint);
    let (third, third_in) = rig.link(2, 0, &endpoint);
    rig.hosts[1].transport.close(first);
    assert!(rig.until(LONG, |h| h[0].down(first_in) == Some(LinkDownReason::Closed)));
    rig.send(1, second, Lane::Application, small("second"));
    rig.send(2, third, Lane::Completion, small("third"));
    rig.send(0, second_in, Lane::Application, small("back"));
    (0..3).for_each(|at| rig.flush(at));
    assert!(rig.until(LONG, |h| {
        h[0].received_count(second_in) == 1
            && h[0].received_count(third_in) == 1
            && h[1].received_count(second) == 1
    }));
    assert_eq!((rig.hosts[0].down(second_in), rig.hosts[0].down(third_in)), (None, None));
}

#[test]
fn node_t39_a_refused_dial_fails_and_the_next_succeeds_once_there_is_a_listener() {
    let mut rig = Rig::new([brisk(), brisk()]);
    let endpoint = rig.bind(0);
    rig.hosts[0].transport.unbind(NODE);
    rig.settle(50 * MS);
    let dial = rig.dial(1, &endpoint, None);
    assert!(rig.until(LONG, |h| h[1].failed(dial).is_some()));
    assert!(rig.hosts[1].failed(dial).unwrap().contains("nobody answers"), "{:?}", rig.hosts[1].events);
    assert_eq!(rig.hosts[1].transport.registered(), (0, 0));

    let port: u16 = endpoint.rsplit(':').next().unwrap().parse().unwrap();
    let listen = spotmesh_net_zmq::Listen { port, ..Default::default() };
    let at = rig.add(spotmesh_net_zmq::ZmqConfig { listen: [(NODE, listen)].into(), ..brisk() });
    assert_eq!(rig.bind(at), endpoint);
    rig.link(1, at, &endpoint);
}

#[test]
fn a_dial_that_nobody_answers_fails_in_time() {
    let mut rig = Rig::new([brisk()]);
    // Accepts connections and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("tcp://{}", silent.local_addr().unwrap());
    let start = std::time::Instant::now();
    let dial = rig.dial(0, &endpoint, None);
    assert!(rig.until(LONG, |h| h[0].failed(dial).is_some()));
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    let ends =
        |e: &&TransportEvent| matches!(e, TransportEvent::DialFailed { .. } | TransportEvent::LinkUp { .. });
    rig.settle(200 * MS);
    assert_eq!(rig.hosts[0].events.iter().filter(ends).count(), 1, "one event ends a dial");
    for bad in ["", "tcp://127.0.0.1:0", "ipc:///tmp/spotmesh", "tcp://no port"] {
        let dial = rig.dial(0, bad, None);
        assert!(rig.until(LONG, |h| h[0].failed(dial).is_some()), "{bad}");
    }
    assert_eq!(rig.hosts[0].transport.registered(), (0, 0));
}

#[test]
fn node_98_a_dropped_dial_leaves_no_registration_and_no_event() {
    let mut rig = Rig::new([brisk(), brisk()]);
    let endpoint = rig.bind(0);
    // Dropped at once, and dropped at every stage of its way.
    for wait in [0u32, 1, 2, 5, 20] {
        let dial = rig.dial(1, &endpoint, None);
        let until = rig.hosts[1].events.len();
        if wait > 0 {
            // Only the listener is driven, so that the dialler's events stay unseen.
            std::thread::sleep(wait * MS);
        }
        rig.hosts[1].transport.drop_dial(dial);
        rig.settle(50 * MS);
        assert_eq!(rig.hosts[1].events.len(), until, "{:?}", &rig.hosts[1].events[until..]);
    }
    assert!(rig.until(LONG, |h| h[1].transport.registered() == (0, 0) && h[0].transport.registered().1 == 0));
    let port: u16 = endpoint.rsplit(':').next().unwrap().parse().unwrap();
    rig.link(1, 0, &format!("tcp://127.0.0.1:{port}"));
}

#[test]
fn unbinding_keeps_links_and_refuses_new_ones() {
    let (mut rig, listener, dialler, endpoint) = Rig::pair(brisk());
    rig.hosts[0].transport.unbind(NODE);
    let dial = rig.dial(1, &endpoint, None);
    assert!(rig.until(LONG, |h| h[1].failed(dial).is_some()));
    rig.send(1, dialler, Lane::Application, small("still"));
    rig.flush(1);
    assert!(rig.until(LONG, |h| h[0].received_count(listener) == 1));
    // Bound again at the same address while links are left.
    assert_eq!(rig.bind(0), endpoint);
    rig.link(1, 0, &endpoint);
    rig.hosts[0].transport.unbind(NODE);
    for link in rig.hosts[1].links_up() {
        rig.hosts[1].transport.close(link.0);
    }
    assert!(
        rig.until(LONG, |h| h[0].transport.registered() == (0, 0)),
        "the port is closed with the last link"
    );
    let dial = rig.dial(1, &endpoint, None);
    assert!(rig.until(LONG, |h| h[1].failed(dial).is_some()));
}

#[test]
fn a_second_host_on_a_taken_port_fails_to_bind() {
    let mut rig = Rig::new([brisk()]);
    let endpoint = rig.bind(0);
    let port: u16 = endpoint.rsplit(':').next().unwrap().parse().unwrap();
    let listen = spotmesh_net_zmq::Listen { port, ..Default::default() };
    let at = rig.add(spotmesh_net_zmq::ZmqConfig { listen: [(NODE, listen)].into(), ..brisk() });
    rig.hosts[at].transport.bind(NODE);
    assert!(rig.until(LONG, |h| !h[at].events.is_empty()));
    let [TransportEvent::BindFailed { reason, .. }] = &rig.hosts[at].events[..] else { panic!() };
    assert!(reason.contains("in use"), "{reason}");
}
