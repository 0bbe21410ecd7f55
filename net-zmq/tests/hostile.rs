//! Bytes of clients that mean no good: the process lives, memory stays, others are served.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use spotmesh::link::{Lane, TransportEvent};
use spotmesh_zmq_ffi::{Context, IntOption, Kind, Socket};
use support::*;

/// A greeting of ZMTP 3.1 with the mechanism NULL.
fn greeting() -> Vec<u8> {
    let mut out = vec![0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 1];
    out.extend_from_slice(b"NULL");
    out.resize(64, 0);
    out
}

/// The READY command of a DEALER with a routing id.
fn ready(route: &[u8]) -> Vec<u8> {
    let mut body = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity".to_vec();
    body.extend_from_slice(&(route.len() as u32).to_be_bytes());
    body.extend_from_slice(route);
    let mut out = vec![0x04, body.len() as u8];
    out.extend_from_slice(&body);
    out
}

/// A frame header that announces `size` bytes.
fn long_frame(size: u64) -> Vec<u8> {
    let mut out = vec![0x02];
    out.extend_from_slice(&size.to_be_bytes());
    out
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4_096
}

fn client(endpoint: &str) -> TcpStream {
    let stream = TcpStream::connect(endpoint.strip_prefix("tcp://").unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream
}

/// Whether the server ends the connection within the read timeout.
fn is_closed(stream: &mut TcpStream) -> bool {
    let mut buffer = [0; 4_096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// A link of host 1 to host 0 that must not notice anything.
struct Witness {
    rig: Rig,
    endpoint: String,
    sent: u32,
}

impl Witness {
    fn new() -> Self {
        let (rig, _, _, endpoint) = Rig::pair(brisk());
        Self { rig, endpoint, sent: 0 }
    }

    /// The link there was still works, and a new one can be made.
    fn is_served(&mut self) {
        let (listener, dialler) = (self.rig.hosts[0].links_up()[0].0, self.rig.hosts[1].links_up()[0].0);
        self.sent += 1;
        let sent = self.sent as usize;
        self.rig.send(1, dialler, Lane::Application, numbered(self.sent, 50));
        self.rig.flush(1);
        assert!(self.rig.until(LONG, |h| h[0].received_count(listener) == sent));
        let endpoint = self.endpoint.clone();
        self.rig.link(1, 0, &endpoint);
        let down = |event: &TransportEvent| matches!(event, TransportEvent::LinkDown { .. });
        assert!(!self.rig.hosts.iter().any(|host| host.events.iter().any(down)));
    }
}

#[test]
fn garbage_before_admission_is_survived() {
    let mut witness = Witness::new();
    let mut random = vec![0u8; 4_096];
    let mut cases: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        greeting()[..5].to_vec(),
        greeting()[..11].to_vec(),
        vec![0xff; 1 << 16],
        vec![0; 1 << 16],
        [greeting(), vec![0x04, 0x05]].concat(),
        [greeting(), vec![0x04, 0xff], vec![0; 300]].concat(),
        [greeting(), ready(&[1; 200]), vec![0x7f; 500]].concat(),
    ];
    for _ in 0..16 {
        spotmesh_zmq_ffi::random_bytes(&mut random).unwrap();
        cases.push(random.clone());
        cases.push([greeting(), random.clone()].concat());
        cases.push([greeting(), ready(b"x"), random.clone()].concat());
    }
    for case in &cases {
        let mut stream = client(&witness.endpoint);
        // The server may close while this is written.
        let _ = stream.write_all(case);
    }
    witness.is_served();
    for case in &cases {
        let mut stream = client(&witness.endpoint);
        let _ = stream.write_all(case);
        let _ = stream.shutdown(std::net::Shutdown::Write);
    }
    witness.is_served();
}

#[test]
fn announced_lengths_take_no_memory_and_end_the_connection() {
    let mut witness = Witness::new();
    let before = resident_bytes();
    let too_long = spotmesh_net_zmq::FRAME_MAX as u64 + 1;
    for size in [too_long, 1 << 30, 64 << 30, 8 << 40, 1 << 62, 1 << 63, u64::MAX - 9, u64::MAX] {
        for start in [greeting(), [greeting(), ready(b"y")].concat()] {
            let mut stream = client(&witness.endpoint);
            stream.write_all(&[start, long_frame(size)].concat()).unwrap();
            assert!(is_closed(&mut stream), "a frame of {size} bytes was waited for");
        }
    }
    // One that also delivers does not get far.
    let mut stream = client(&witness.endpoint);
    stream.write_all(&[greeting(), ready(b"z"), long_frame(1 << 30)].concat()).unwrap();
    let block = vec![0; 1 << 20];
    let written = (0..256).take_while(|_| stream.write_all(&block).is_ok()).count();
    assert!(written < 64, "{written} MiB were taken");
    witness.is_served();
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "grew by {grown} bytes");
}

#[test]
fn half_open_clients_are_ended_and_cost_little() {
    let mut witness = Witness::new();
    let before = resident_bytes();
    let start = Instant::now();
    let mut clients: Vec<TcpStream> = (0..200).map(|_| client(&witness.endpoint)).collect();
    for (at, stream) in clients.iter_mut().enumerate() {
        let part = at % 64;
        stream.write_all(&greeting()[..part]).unwrap();
    }
    witness.is_served();
    assert!(resident_bytes().saturating_sub(before) < 32 << 20);
    for stream in &mut clients {
        assert!(is_closed(stream), "a silent client is kept");
    }
    // `brisk` gives a handshake one second.
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    witness.is_served();
}

/// A ZeroMQ peer that speaks no Spotmesh, or speaks it wrong.
fn rude(context: &Context, endpoint: &str) -> Socket {
    let socket = context.socket(Kind::Dealer).unwrap();
    socket.set(IntOption::Linger, 500).unwrap();
    socket.connect(endpoint).unwrap();
    socket
}

fn hello(lane: u8, token: u8, rid: &[u8]) -> Vec<u8> {
    let mut out = vec![1, 1];
    out.extend_from_slice(b"SPOTMESH");
    out.push(lane);
    out.extend_from_slice(&[token; 16]);
    out.extend_from_slice(rid);
    out
}

#[test]
fn messages_of_no_link_are_counted_and_dropped() {
    let mut witness = Witness::new();
    let context = Context::new().unwrap();
    let before = witness.rig.hosts[0].transport.counters();
    let events = witness.rig.hosts[0].events.len();
    let mut sent = 0;
    let mut random = vec![0u8; 300];
    let mut messages: Vec<Vec<u8>> = vec![
        vec![],
        vec![1],
        vec![2, 1],
        vec![1, 4, 0xff, 0xff, 0xff, 0xff],
        vec![1, 5],
        vec![1, 7],
        vec![1, 6, 0, 0, 0, 0, 0, 0, 0, 1],
        hello(b'X', 1, b"rid"),
        hello(b'A', 1, b""),
        hello(b'A', 1, &[1; 256]),
    ];
    for _ in 0..50 {
        spotmesh_zmq_ffi::random_bytes(&mut random).unwrap();
        messages.push(random.clone());
    }
    let socket = rude(&context, &witness.endpoint);
    for message in &messages {
        socket.send(message, false).unwrap();
        // And the same in many frames.
        for _ in 0..20 {
            socket.send(message, true).unwrap();
        }
        socket.send(message, false).unwrap();
        sent += 2;
    }
    assert!(
        witness.rig.until(LONG, |h| h[0].transport.counters().stray_messages >= before.stray_messages + sent)
    );
    assert_eq!(witness.rig.hosts[0].events.len(), events, "nothing of it was reported");
    witness.is_served();
}

#[test]
fn half_made_links_are_bounded_and_end_by_themselves() {
    let mut witness = Witness::new();
    let context = Context::new().unwrap();
    let links = witness.rig.hosts[0].transport.registered().1;
    // One lane of each of many links, and twice the same lane.
    let sockets: Vec<Socket> = (0..40)
        .map(|at| {
            let socket = rude(&context, &witness.endpoint);
            socket.send(&hello(b'A', at, b"half"), false).unwrap();
            socket
        })
        .collect();
    let twice = rude(&context, &witness.endpoint);
    twice.send(&hello(b'A', 0, b"half"), false).unwrap();
    assert!(witness.rig.until(LONG, |h| h[0].transport.registered().1 == links + 40));
    assert!(witness.rig.until(LONG, |h| h[0].transport.counters().refused_hellos >= 1));
    witness.is_served();
    let links = witness.rig.hosts[1].transport.registered().1;
    assert!(witness.rig.until(LONG, |h| h[0].transport.registered().1 == links), "half links stay");
    drop(sockets);
    witness.is_served();
}

#[test]
fn an_admitted_peer_that_breaks_the_rules_loses_its_link_only() {
    let mut witness = Witness::new();
    let context = Context::new().unwrap();
    for (token, bad) in [
        vec![1, 4, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0],
        vec![1, 6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        vec![9, 9, 9],
        hello(b'A', 99, b"again"),
        vec![1, 2],
    ]
    .into_iter()
    .enumerate()
    {
        let token = 100 + token as u8;
        let known = witness.rig.hosts[0].links_up().len();
        let (app, completion) = (rude(&context, &witness.endpoint), rude(&context, &witness.endpoint));
        app.send(&hello(b'A', token, b"rude"), false).unwrap();
        completion.send(&hello(b'C', token, b"rude"), false).unwrap();
        assert!(witness.rig.until(LONG, |h| h[0].links_up().len() == known + 1));
        let link = witness.rig.hosts[0].links_up()[known].0;
        app.send(&bad, false).unwrap();
        assert!(witness.rig.until(LONG, |h| h[0].down(link).is_some()));
        let reason = witness.rig.hosts[0].down(link);
        assert!(matches!(reason, Some(spotmesh::link::LinkDownReason::Violated(_))), "{reason:?}");
    }
    let listener = witness.rig.hosts[0].links_up()[0].0;
    assert_eq!(witness.rig.hosts[0].down(listener), None);
}
