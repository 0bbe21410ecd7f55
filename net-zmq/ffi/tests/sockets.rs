//! The safe API over real sockets; also run under valgrind by `valgrind.sh`.

use std::time::{Duration, Instant};

use bytes::Bytes;
use spotmesh_zmq_ffi::{
    BytesOption, COPY_MAX, Context, Error, FRAMES_MAX, IntOption, KeyPair, Kind, MonitorKind, Multipart,
    Socket,
};

/// Long enough for valgrind on a busy machine.
const LONG: Duration = Duration::from_secs(20);

fn received(socket: &Socket, message: &mut Multipart) {
    socket.set(IntOption::ReceiveTimeout, LONG.as_millis() as i32).unwrap();
    socket.recv_blocking(message).unwrap();
}

fn tcp_pair(context: &Context) -> (Socket, Socket) {
    let (router, dealer) = (context.socket(Kind::Router).unwrap(), context.socket(Kind::Dealer).unwrap());
    router.set(IntOption::RouterMandatory, 1).unwrap();
    router.set(IntOption::Linger, 0).unwrap();
    dealer.set(IntOption::Linger, 0).unwrap();
    dealer.set_bytes(BytesOption::RoutingId, b"dealer").unwrap();
    router.bind("tcp://127.0.0.1:0").unwrap();
    dealer.connect(&router.last_endpoint().unwrap()).unwrap();
    (router, dealer)
}

#[test]
fn frames_of_every_size_survive_both_ways() {
    let context = Context::new().unwrap();
    let (router, dealer) = tcp_pair(&context);
    let mut message = Multipart::default();
    for size in [0, 1, 29, 33, 34, 512, 513, COPY_MAX, COPY_MAX + 1, 8_192, 100_000, 1 << 20] {
        let body = Bytes::from((0..size).map(|at| (at * 31) as u8).collect::<Vec<_>>());
        dealer.send(b"header", true).unwrap();
        dealer.send_bytes(body.clone(), false).unwrap();
        received(&router, &mut message);
        assert_eq!(message.frames(), [&b"dealer"[..], b"header", &body]);
        assert_eq!(message.len(), 12 + size);
        // Kept while the message is used again, and sent back as it is.
        let kept = message.frames()[2].clone();
        router.send(b"dealer", true).unwrap();
        router.send_bytes(kept.clone(), false).unwrap();
        received(&dealer, &mut message);
        assert_eq!(message.frames(), [&body]);
        drop(body);
        assert_eq!(kept.len(), size);
    }
}

#[test]
fn a_sent_owner_is_released_once_the_bytes_are_gone() {
    struct Owner {
        _alive: std::sync::Arc<()>,
        bytes: Vec<u8>,
    }
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }
    let owner = |alive: &std::sync::Arc<()>| {
        Bytes::from_owner(Owner { _alive: std::sync::Arc::clone(alive), bytes: vec![5; 100_000] })
    };
    let context = Context::new().unwrap();
    let (router, dealer) = tcp_pair(&context);
    let alive = std::sync::Arc::new(());
    dealer.send_bytes(owner(&alive), false).unwrap();
    let mut message = Multipart::default();
    received(&router, &mut message);
    assert_eq!(message.frames()[1], vec![5; 100_000]);
    let start = Instant::now();
    while std::sync::Arc::strong_count(&alive) > 1 && start.elapsed() < LONG {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(std::sync::Arc::strong_count(&alive), 1);
    // Also where it cannot be sent, and where it is still queued when everything is closed.
    assert_eq!(router.send_bytes(owner(&alive), true), Err(Error::HostUnreachable));
    assert_eq!(std::sync::Arc::strong_count(&alive), 1);
    let unconnected = context.socket(Kind::Dealer).unwrap();
    unconnected.set(IntOption::Linger, 0).unwrap();
    unconnected.connect("tcp://127.0.0.1:1").unwrap();
    unconnected.send_bytes(owner(&alive), false).unwrap();
    drop((unconnected, router, dealer, message));
    drop(context);
    assert_eq!(std::sync::Arc::strong_count(&alive), 1);
}

#[test]
fn received_bytes_outlive_socket_and_context() {
    let kept = {
        let context = Context::new().unwrap();
        let (router, dealer) = tcp_pair(&context);
        dealer.send_bytes(Bytes::from(vec![9; 50_000]), false).unwrap();
        let mut message = Multipart::default();
        received(&router, &mut message);
        message.frames()[1].clone()
    };
    let elsewhere = std::thread::spawn(move || kept.iter().all(|byte| *byte == 9));
    assert!(elsewhere.join().unwrap());
}

#[test]
fn many_frames_are_cut_and_the_next_message_is_whole() {
    let context = Context::new().unwrap();
    let (router, dealer) = tcp_pair(&context);
    for _ in 0..50 {
        dealer.send(b"part", true).unwrap();
    }
    dealer.send(b"end", false).unwrap();
    dealer.send(b"next", false).unwrap();
    let mut message = Multipart::default();
    received(&router, &mut message);
    assert!(message.overlong());
    assert_eq!(message.frames().len(), FRAMES_MAX);
    received(&router, &mut message);
    assert!(!message.overlong());
    assert_eq!(message.frames(), [&b"dealer"[..], b"next"]);
    assert!(matches!(router.recv(&mut message), Err(Error::WouldBlock)));
    assert!(message.is_empty());
}

#[test]
fn a_monitor_tells_descriptors_and_ends() {
    let context = Context::new().unwrap();
    let mut router = context.socket(Kind::Router).unwrap();
    router.set(IntOption::Linger, 0).unwrap();
    assert!(router.next_event().is_err(), "no monitor yet");
    router.start_monitor().unwrap();
    router.start_monitor().unwrap();
    router.bind("tcp://127.0.0.1:0").unwrap();
    let dealer = context.socket(Kind::Dealer).unwrap();
    dealer.connect(&router.last_endpoint().unwrap()).unwrap();
    dealer.send(b"x", false).unwrap();
    let mut message = Multipart::default();
    received(&router, &mut message);
    let fd = message.source_fd().unwrap();
    drop(dealer);
    let (mut accepted, start) = (None, Instant::now());
    loop {
        match router.next_event() {
            Ok(event) if event.kind == MonitorKind::Accepted => accepted = Some(event.value as i32),
            Ok(event) if event.kind == MonitorKind::Disconnected => {
                assert_eq!((accepted, event.value as i32), (Some(fd), fd));
                return;
            }
            Ok(_) => {}
            Err(Error::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
        assert!(start.elapsed() < LONG);
    }
}

#[test]
fn dropping_a_monitored_socket_in_the_middle_of_events_stops_no_other() {
    let context = Context::new().unwrap();
    let (router, dealer) = tcp_pair(&context);
    let mut message = Multipart::default();
    // Nobody listens at a port that was just closed: each attempt ends in an event.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for round in 0..50 {
        let mut dialler = context.socket(Kind::Router).unwrap();
        dialler.set(IntOption::Linger, 0).unwrap();
        dialler.set(IntOption::ReconnectInterval, 1).unwrap();
        dialler.start_monitor().unwrap();
        for _ in 0..4 {
            dialler.connect(&format!("tcp://{closed}")).unwrap();
        }
        if round % 2 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(dialler);
        dealer.send(b"alive", false).unwrap();
        received(&router, &mut message);
        assert_eq!(message.frames()[1], "alive");
    }
}

#[test]
fn a_shutdown_ends_a_blocking_receive_on_another_thread() {
    let context = Context::new().unwrap();
    let rep = context.socket(Kind::Rep).unwrap();
    rep.bind("inproc://shutdown").unwrap();
    let thread = std::thread::spawn(move || rep.recv_blocking(&mut Multipart::default()));
    std::thread::sleep(Duration::from_millis(20));
    context.shutdown();
    assert_eq!(thread.join().unwrap(), Err(Error::Terminated));
}

#[test]
fn a_zap_handler_names_the_user_of_each_frame() {
    let context = Context::new().unwrap();
    let (server, known, unknown) =
        (KeyPair::generate().unwrap(), KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let zap = context.socket(Kind::Rep).unwrap();
    zap.bind("inproc://zeromq.zap.01").unwrap();
    let allowed = known.public;
    let handler = std::thread::spawn(move || {
        let mut request = Multipart::default();
        while zap.recv_blocking(&mut request).is_ok() {
            let frames = request.frames();
            assert_eq!(frames[5], "CURVE");
            let good = frames[6] == allowed[..];
            let (status, user): (&[u8], &[u8]) =
                if good { (b"200", b"the known one") } else { (b"400", b"") };
            let id = frames[1].clone();
            for (frame, more) in [(&b"1.0"[..], true), (&id, true), (status, true), (b"", true), (user, true)]
            {
                zap.send(frame, more).unwrap();
            }
            zap.send(b"", false).unwrap();
        }
    });
    let router = context.socket(Kind::Router).unwrap();
    router.set(IntOption::Linger, 0).unwrap();
    router.set_bytes(BytesOption::ZapDomain, b"d").unwrap();
    router.set(IntOption::ZapEnforceDomain, 1).unwrap();
    router.set(IntOption::CurveServer, 1).unwrap();
    router.set_bytes(BytesOption::CurveSecretKey, &server.secret).unwrap();
    router.bind("tcp://127.0.0.1:0").unwrap();
    let client = |keys: &KeyPair, name: &[u8]| {
        let dealer = context.socket(Kind::Dealer).unwrap();
        dealer.set(IntOption::Linger, 0).unwrap();
        dealer.set_bytes(BytesOption::RoutingId, name).unwrap();
        dealer.set_bytes(BytesOption::CurveServerKey, &server.public).unwrap();
        dealer.set_bytes(BytesOption::CurvePublicKey, &keys.public).unwrap();
        dealer.set_bytes(BytesOption::CurveSecretKey, &keys.secret).unwrap();
        dealer.connect(&router.last_endpoint().unwrap()).unwrap();
        dealer.send(b"x", false).unwrap();
        dealer
    };
    let stranger = client(&unknown, b"stranger");
    let friend = client(&known, b"friend");
    let mut message = Multipart::default();
    received(&router, &mut message);
    assert_eq!(message.frames(), [&b"friend"[..], b"x"]);
    assert_eq!(message.user_id(), Some(&b"the known one"[..]));
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(router.recv(&mut message), Err(Error::WouldBlock));
    assert_eq!((message.user_id(), message.source_fd()), (None, None));
    drop((stranger, friend, router));
    context.shutdown();
    handler.join().unwrap();
}

#[test]
fn bad_arguments_are_errors() {
    let context = Context::new().unwrap();
    let socket = context.socket(Kind::Router).unwrap();
    assert!(socket.bind("tcp://127.0.0.1:0\0").is_err());
    assert!(socket.bind("nonsense").is_err());
    assert!(socket.connect("tcp://").is_err());
    assert!(socket.disconnect("tcp://127.0.0.1:1").is_err());
    assert!(socket.unbind("tcp://127.0.0.1:1").is_err());
    assert!(socket.set(IntOption::HandshakeInterval, -5).is_err());
    assert!(socket.set_bytes(BytesOption::CurveSecretKey, b"short").is_err());
    assert!(socket.set_bytes(BytesOption::RoutingId, &[1; 256]).is_err());
    assert!(!socket.readable().unwrap());
    let text = socket.bind("nonsense").unwrap_err().to_string();
    assert!(text.contains("zmq_bind"), "{text}");
}

#[test]
fn a_frame_over_the_bound_ends_its_connection_only() {
    let context = Context::new().unwrap();
    let mut router = context.socket(Kind::Router).unwrap();
    router.set(IntOption::Linger, 0).unwrap();
    router.set_max_frame(1_000).unwrap();
    router.start_monitor().unwrap();
    router.bind("tcp://127.0.0.1:0").unwrap();
    let endpoint = router.last_endpoint().unwrap();
    let dealer = |size: usize| {
        let dealer = context.socket(Kind::Dealer).unwrap();
        dealer.set(IntOption::Linger, 0).unwrap();
        dealer.set(IntOption::ReconnectInterval, -1).unwrap();
        dealer.connect(&endpoint).unwrap();
        dealer.send_bytes(Bytes::from(vec![1; size]), false).unwrap();
        dealer
    };
    let mut message = Multipart::default();
    let good = dealer(1_000);
    received(&router, &mut message);
    let bad = dealer(1_001);
    let start = Instant::now();
    while router.next_event().map(|event| event.kind) != Ok(MonitorKind::Disconnected) {
        std::thread::sleep(Duration::from_millis(1));
        assert!(start.elapsed() < LONG);
    }
    good.send(b"still", false).unwrap();
    received(&router, &mut message);
    assert_eq!(message.frames()[1], "still");
    drop(bad);
}
