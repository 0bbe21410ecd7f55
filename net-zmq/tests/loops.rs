//! Loops as a driver runs them: each on its own thread, sleeping as soon as it has nothing to do.

mod support;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::mpsc;
use std::task::Poll;
use std::time::Instant;

use spotmesh::driver::Transport;
use spotmesh::link::{DialId, DialTarget, Lane, LinkDownReason, LinkId, TransportEvent};
use spotmesh_net_zmq::{Reactor, ZmqTransport};
use support::*;

/// Events taken before others get their turn, as in the driver.
const BATCH: usize = 16;

/// Drives a transport until `each` says so. Sends and the flush come after the last look at the sockets, and
/// nobody polls again unless woken: a lost wake-up stops the test.
fn drive(
    reactor: &Reactor,
    transport: &mut ZmqTransport,
    mut each: impl FnMut(&mut ZmqTransport, TransportEvent) -> bool,
) {
    let done = Cell::new(false);
    let clock = reactor.clock();
    let mut watchdog = pin!(clock.sleep_until(clock.now() + LONG));
    reactor.block_on(poll_fn(|cx| {
        assert!(watchdog.as_mut().poll(cx).is_pending(), "a wake-up was lost");
        let mut taken = Vec::new();
        while taken.len() < BATCH {
            let Poll::Ready(event) = transport.poll_event(cx) else { break };
            taken.push(event);
        }
        let full = taken.len() == BATCH;
        for event in taken {
            if each(transport, event) {
                done.set(true);
            }
        }
        transport.flush();
        if done.get() {
            return Poll::Ready(());
        }
        if full {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }));
}

/// Sends `burst` records and waits for all of them to come back, `rounds` times.
fn echo(rounds: u32, burst: u32, body: usize) -> std::time::Duration {
    let (told, endpoint) = mpsc::channel();
    let server = std::thread::spawn(move || {
        let reactor = Reactor::new().unwrap();
        let mut transport = ZmqTransport::new(brisk(), &reactor).unwrap();
        transport.bind(NODE);
        drive(&reactor, &mut transport, |transport, event| {
            match event {
                TransportEvent::Bound { endpoint, .. } => told.send(endpoint).unwrap(),
                TransportEvent::Received { link, lane, record } => transport.send(link, lane, record),
                TransportEvent::LinkDown { .. } => return true,
                _ => {}
            }
            false
        });
    });
    let reactor = Reactor::new().unwrap();
    let mut transport = ZmqTransport::new(brisk(), &reactor).unwrap();
    let target =
        DialTarget { endpoint: endpoint.recv().unwrap(), expected_rid: None, local_rid: rid("client") };
    transport.dial(NODE, DialId(1), target);
    let (mut round, mut back, mut start) = (0, 0, Instant::now());
    let mut up: Option<LinkId> = None;
    let send = |transport: &mut ZmqTransport, link| {
        for number in 0..burst {
            transport.send(link, Lane::Application, numbered(number, body));
        }
    };
    drive(&reactor, &mut transport, |transport, event| {
        match event {
            TransportEvent::LinkUp { link, .. } => {
                up = Some(link);
                start = Instant::now();
                send(transport, link);
            }
            TransportEvent::Received { link, record, .. } => {
                assert_eq!(record, numbered(back, body));
                back += 1;
                if back == burst {
                    (round, back) = (round + 1, 0);
                    if round < rounds {
                        send(transport, link);
                    }
                }
            }
            TransportEvent::Congested { .. } | TransportEvent::Writable { .. } => {}
            other => panic!("{other:?}"),
        }
        round == rounds
    });
    let took = start.elapsed();
    transport.close(up.unwrap());
    drop(transport);
    server.join().unwrap();
    took
}

#[test]
fn no_wake_up_is_lost_in_single_exchanges() {
    let rounds = 5_000;
    let took = echo(rounds, 1, 64);
    println!("{rounds} exchanges of 64 bytes in {took:?}");
}

#[test]
fn no_wake_up_is_lost_in_bursts() {
    for (rounds, burst, body) in [(200, 100, 64), (50, 30, 40_000), (3, 5_000, 200), (4, 6, 3 << 20)] {
        let took = echo(rounds, burst, body);
        println!("{rounds} bursts of {burst} records of {body} bytes in {took:?}");
    }
}

/// What the other side of a link got from one that sent, closed and went away at once.
struct Got {
    bodies: usize,
    last: bool,
    reason: Option<LinkDownReason>,
}

const BODIES: u32 = 20;

/// One side sends everything and drops its transport, the other reads to the end.
fn side(sends: bool, reactor: &Reactor, mut transport: ZmqTransport, mut bound: impl FnMut(String)) -> Got {
    let mut got = Got { bodies: 0, last: false, reason: None };
    drive(reactor, &mut transport, |transport, event| {
        match event {
            TransportEvent::Bound { endpoint, .. } => bound(endpoint),
            TransportEvent::LinkUp { link, .. } if sends => {
                for number in 0..BODIES {
                    transport.send(link, Lane::Application, numbered(number, 1 << 20));
                }
                transport.send(link, Lane::Completion, small("last"));
                transport.close(link);
                return true;
            }
            TransportEvent::Received { lane: Lane::Application, record, .. } => {
                assert_eq!(record, numbered(got.bodies as u32, 1 << 20));
                got.bodies += 1;
            }
            TransportEvent::Received { lane: Lane::Completion, .. } => got.last = true,
            TransportEvent::LinkDown { reason, .. } => {
                got.reason = Some(reason);
                return true;
            }
            _ => {}
        }
        false
    });
    got
}

#[test]
fn what_a_closed_link_had_queued_leaves_although_its_transport_is_dropped_at_once() {
    for dialler_sends in [true, false] {
        let (told, endpoint) = mpsc::channel();
        let server = std::thread::spawn(move || {
            let reactor = Reactor::new().unwrap();
            let mut transport = ZmqTransport::new(brisk(), &reactor).unwrap();
            transport.bind(NODE);
            side(!dialler_sends, &reactor, transport, |endpoint| told.send(endpoint).unwrap())
        });
        let reactor = Reactor::new().unwrap();
        let mut transport = ZmqTransport::new(brisk(), &reactor).unwrap();
        let target =
            DialTarget { endpoint: endpoint.recv().unwrap(), expected_rid: None, local_rid: rid("client") };
        transport.dial(NODE, DialId(1), target);
        let dialler = side(dialler_sends, &reactor, transport, |_| ());
        let listener = server.join().unwrap();
        let reader = if dialler_sends { listener } else { dialler };
        assert_eq!((reader.bodies, reader.last), (BODIES as usize, true), "dialler sends: {dialler_sends}");
        assert_eq!(reader.reason, Some(LinkDownReason::Closed));
    }
}

#[test]
fn an_idle_transport_sleeps() {
    let (rig, _, _, _) = Rig::pair(brisk());
    let Rig { reactor, mut hosts, .. } = rig;
    let clock = reactor.clock();
    let mut polls = 0;
    let mut end = pin!(clock.sleep_until(clock.now() + 1_500 * MS));
    reactor.block_on(poll_fn(|cx| {
        polls += 1;
        for host in &mut hosts {
            let event = host.transport.poll_event(cx);
            assert!(event.is_pending(), "{event:?}");
        }
        end.as_mut().poll(cx)
    }));
    // Pings of both connections went by in libzmq's own thread meanwhile.
    assert!(polls < 20, "polled {polls} times");
}
