use super::*;
use crate::agenda::millis;
use bytes::Bytes;
use spotmesh::link::NodeIndex;

fn node(seat: u8) -> NodeOf {
    NodeOf { run: RunOf { seat: Seat(seat), run: 1 }, node: NodeIndex(0) }
}

fn record(n: u8) -> Record {
    Record { header: Bytes::copy_from_slice(&[n]), body: None }
}

struct Bench {
    net: Network,
    agenda: Agenda<NetEvent>,
}

impl Bench {
    fn new() -> Self {
        let spec = NetworkSpec { latency_us: (100, 5_000), ..NetworkSpec::default() };
        let mut net = Network::new(spec, 11);
        net.bind(node(1), "sim://1");
        Self { net, agenda: Agenda::default() }
    }

    /// Runs until `until` and returns what each host was told.
    fn run(&mut self, until: Nanos) -> Vec<(Nanos, u8, TransportEvent)> {
        let mut seen = Vec::new();
        while let Some(event) = self.agenda.next(until) {
            let told = match event {
                NetEvent::Arrive { link, from, lane } => self.net.arrive(link, from, lane),
                NetEvent::DialEnds { by, dial } => {
                    self.net.dial_ends(&mut self.agenda, by, dial);
                    None
                }
                NetEvent::Report { to, event } => Some((to, event)),
                NetEvent::Unblock => {
                    self.net.unblock(&mut self.agenda);
                    None
                }
            };
            if let Some((to, event)) = told
                && self.net.admit(to, &event)
            {
                seen.push((self.agenda.now(), to.seat.0, event));
            }
        }
        self.agenda.advance(until);
        seen
    }

    fn linked() -> (Self, LinkId, LinkId) {
        let mut bench = Self::new();
        bench.net.dial(&mut bench.agenda, node(0), DialId(1), "sim://1");
        let ids: Vec<LinkId> = bench
            .run(millis(100))
            .into_iter()
            .map(|(_, _, event)| match event {
                TransportEvent::LinkUp { link, .. } => link,
                other => panic!("expected LinkUp, found {other:?}"),
            })
            .collect();
        let [a, b] = ids[..] else { panic!("expected two sides, found {ids:?}") };
        (bench, a, b)
    }

    fn send(&mut self, seat: u8, link: LinkId, lane: Lane, n: u8) {
        self.net.send(&mut self.agenda, node(seat).run, link, lane, record(n));
    }
}

fn received(seen: &[(Nanos, u8, TransportEvent)], lane_wanted: Lane) -> Vec<u8> {
    seen.iter()
        .filter_map(|(_, _, event)| match event {
            TransportEvent::Received { lane, record, .. } if *lane == lane_wanted => Some(record.header[0]),
            _ => None,
        })
        .collect()
}

#[test]
fn lanes_keep_their_order_under_uneven_latency() {
    let (mut bench, a, _) = Bench::linked();
    for n in 0..50 {
        bench.send(0, a, Lane::Application, n);
        bench.send(0, a, Lane::Completion, 100 + n);
    }
    let seen = bench.run(millis(1_000));
    assert_eq!(received(&seen, Lane::Application), (0..50).collect::<Vec<_>>());
    assert_eq!(received(&seen, Lane::Completion), (100..150).collect::<Vec<_>>());
}

#[test]
fn a_break_loses_what_is_in_flight_and_each_side_learns_in_its_own_time() {
    let (mut bench, a, b) = Bench::linked();
    bench.send(0, a, Lane::Application, 1);
    bench.net.break_between(&mut bench.agenda, Seat(0), Seat(1), Notice::After(5), Notice::Never);
    bench.send(1, b, Lane::Application, 2);
    let seen = bench.run(millis(1_000));
    assert_eq!(received(&seen, Lane::Application), Vec::<u8>::new());
    assert!(
        matches!(&seen[..], [(_, 0, TransportEvent::LinkDown { link, .. })] if *link == a),
        "only host 0 hears of it: {seen:?}"
    );
    // Host 1 gives the half-open link up itself and hears nothing more.
    bench.net.close(&mut bench.agenda, node(1).run, b);
    assert!(bench.run(millis(2_000)).is_empty());
    assert_eq!(bench.net.links().count(), 0);
}

#[test]
fn a_blocked_direction_holds_records_and_keeps_their_order() {
    let (mut bench, a, b) = Bench::linked();
    let until = bench.agenda.now() + millis(50);
    bench.net.block(&mut bench.agenda, Seat(0), Seat(1), until);
    for n in 0..10 {
        bench.send(0, a, Lane::Application, n);
    }
    bench.send(1, b, Lane::Application, 99);
    let seen = bench.run(until - 1);
    assert_eq!(received(&seen, Lane::Application), [99], "the other direction is open");
    bench.send(0, a, Lane::Application, 10);
    let seen = bench.run(until + millis(100));
    assert_eq!(received(&seen, Lane::Application), (0..=10).collect::<Vec<_>>());
    assert!(seen.iter().all(|(at, ..)| *at >= until));
}

#[test]
fn a_close_reaches_the_other_side_after_what_was_sent() {
    let (mut bench, a, b) = Bench::linked();
    bench.send(0, a, Lane::Application, 1);
    bench.send(1, b, Lane::Application, 2);
    bench.net.close(&mut bench.agenda, node(0).run, a);
    bench.send(0, a, Lane::Application, 3);
    let seen = bench.run(millis(1_000));
    assert_eq!(received(&seen, Lane::Application), [1]);
    assert!(matches!(
        seen.last(),
        Some((_, 1, TransportEvent::LinkDown { reason: LinkDownReason::Closed, .. }))
    ));
}

#[test]
fn dials_fail_without_listener_and_time_out_into_a_partition() {
    let mut bench = Bench::new();
    bench.net.dial(&mut bench.agenda, node(0), DialId(1), "sim://nobody");
    let seen = bench.run(millis(10));
    assert!(matches!(&seen[..], [(_, 0, TransportEvent::DialFailed { dial: DialId(1), .. })]), "{seen:?}");
    bench.net.block(&mut bench.agenda, Seat(1), Seat(0), millis(60_000));
    bench.net.dial(&mut bench.agenda, node(0), DialId(2), "sim://1");
    bench.net.dial(&mut bench.agenda, node(0), DialId(3), "sim://1");
    bench.net.drop_dial(node(0).run, DialId(3));
    let seen = bench.run(millis(10_000));
    assert!(
        matches!(&seen[..], [(at, 0, TransportEvent::DialFailed { .. })] if *at >= millis(3_000)),
        "{seen:?}"
    );
}

#[test]
fn a_dead_process_is_gone_and_its_peer_hears_it_only_where_the_kernel_lives() {
    for (notice, flush, events) in
        [(Notice::After(1), true, 2), (Notice::After(1), false, 1), (Notice::Never, false, 0)]
    {
        let (mut bench, a, b) = Bench::linked();
        bench.send(0, a, Lane::Application, 7);
        bench.net.process_died(&mut bench.agenda, node(0).run, notice, flush);
        bench.send(1, b, Lane::Application, 8);
        let seen = bench.run(millis(1_000));
        assert_eq!(seen.len(), events, "{notice:?} {flush}: {seen:?}");
        assert!(seen.iter().all(|(_, seat, _)| *seat == 1));
    }
}
