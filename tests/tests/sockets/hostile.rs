//! Peers that send what no honest one does: their link ends, everybody else is served.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use spotmesh::app::*;
use spotmesh::driver::Transport;
use spotmesh::event::Event;
use spotmesh::link::{DialId, DialTarget, Lane, LinkId, NodeIndex, Record, TransportEvent};
use spotmesh::model::{
    ActorId, ChannelName, Correlation, DescriptorRevision, HostState, LifecycleGeneration, MeshName,
    ObjectGeneration, ObjectRole, OperationId, OperationIdentity, ReservationId, Rid, SecurityIdentity,
};
use spotmesh::wire::{
    CreateAnswer, CreateVerdict, Hello, Message, NodeUpdate, Refusal, Reply, StaleRoute, encode,
};
use spotmesh_net_zmq::{Reactor, TokioExecutor, ZmqConfig, ZmqTransport};
use spotmesh_store_memory::MemoryStore;
use tokio::task::{JoinHandle, spawn_blocking};

use super::counter::*;
use super::world::*;

fn header(bytes: impl Into<Bytes>) -> Record {
    Record { header: bytes.into(), body: None }
}

fn lifecycle(number: u64) -> LifecycleGeneration {
    LifecycleGeneration::from_u64(number).unwrap()
}

/// The Hello of a node that no Store knows.
fn hello(mesh: &str, rid: &str) -> Hello {
    Hello {
        mesh: MeshName::new(mesh).unwrap(),
        rid: Rid::new(rid).unwrap(),
        lifecycle: lifecycle(77),
        revision: DescriptorRevision::FIRST,
        channels: [].into(),
        identity: SecurityIdentity::new("anonymous").unwrap(),
        trust_profile: "open".to_owned(),
        role: ObjectRole::Server,
        host_state: HostState::Serving,
        endpoint: "tcp://127.0.0.1:1".to_owned(),
        protocol: 1,
        required_capabilities: 0,
        dialled: true,
        attempt: 1,
    }
}

fn as_record(message: &Message) -> Record {
    encode(message, None)
}

/// Bytes that repeat in every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Records that nobody may accept, whether their sender was admitted or not.
fn garbage() -> Vec<(Lane, Record)> {
    let good = as_record(&Message::Hello(Box::new(hello("game", "rude")))).header;
    let other_version = [&[2], &good[1..]].concat();
    let trailing = [&good[..], &[0]].concat();
    let mut bad = vec![
        header(Bytes::new()),
        header(other_version),
        header(vec![1]),
        header(vec![1, 200, 1, 1]),
        header(vec![1, 0xff, 0xff, 0xff, 0xff, 0xff]),
        header(trailing),
        header(vec![0; (512 << 10) + 1]),
        // A Hello whose mesh name claims 2^32 bytes.
        header(vec![1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]),
        Record { header: as_record(&Message::Probe(1)).header, body: Some(Bytes::from_static(b"body")) },
    ];
    bad.extend([2, good.len() / 3, good.len() - 1].map(|end| header(good.slice(..end))));
    let mut noise = Noise(0x5eed_5eed_5eed_5eed);
    for _ in 0..12 {
        let len = noise.next() as usize % 2_000;
        let body = noise.next().is_multiple_of(2).then(|| noise.bytes(100).into());
        bad.push(Record { header: noise.bytes(len).into(), body });
    }
    let mut bad: Vec<_> = bad.into_iter().map(|record| (Lane::Application, record)).collect();
    let reply = Reply { correlation: Correlation::from_u64(1).unwrap(), error: None, stale_route: false };
    // Good messages on the wrong lane.
    bad.push((Lane::Application, as_record(&Message::Reply(reply))));
    bad.push((Lane::Completion, as_record(&Message::Probe(1))));
    bad
}

/// Connects without a host, says this and waits for the end of the link.
fn say_and_lose(endpoint: String, records: Vec<(Lane, Record)>) -> JoinHandle<Vec<TransportEvent>> {
    spawn_blocking(move || {
        let reactor = Reactor::new().unwrap();
        let mut transport = ZmqTransport::new(ZmqConfig::default(), &reactor).unwrap();
        let local_rid = Rid::new("rude").unwrap();
        transport.dial(NodeIndex(0), DialId(1), DialTarget { endpoint, expected_rid: None, local_rid });
        let clock = reactor.clock();
        let mut end = pin!(clock.sleep_until(clock.now() + LONG));
        let mut events = Vec::new();
        let mut over = false;
        reactor.block_on(poll_fn(|cx| {
            while let Poll::Ready(event) = transport.poll_event(cx) {
                if let TransportEvent::LinkUp { link, .. } = &event {
                    for (lane, record) in &records {
                        transport.send(*link, *lane, record.clone());
                    }
                    transport.flush();
                }
                over |= matches!(event, TransportEvent::LinkDown { .. } | TransportEvent::DialFailed { .. });
                events.push(event);
            }
            if over || end.as_mut().poll(cx).is_ready() { Poll::Ready(()) } else { Poll::Pending }
        }));
        events
    })
}

/// Requests from one host to Actors of all others that go on until they are asked to end; all must succeed.
struct Bystanders {
    task: JoinHandle<u64>,
    end: Arc<std::sync::atomic::AtomicBool>,
}

impl Bystanders {
    /// On Actors that are not on the node `not`.
    async fn begin(from: &Seat, prefix: &str, not: &str) -> Self {
        let ids = owned_by_others(from, prefix, not).await;
        let (host, end) = (from.host().clone(), Arc::new(std::sync::atomic::AtomicBool::new(false)));
        let ended = end.clone();
        let task = tokio::spawn(async move {
            let mut rounds = 0;
            while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                rounds += 1;
                for id in &ids {
                    assert_eq!(host.actor::<Counter>(id).request(Add(1)).await, Ok(rounds), "{id}");
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            rounds
        });
        Self { task, end }
    }

    /// All of them were served all the time.
    async fn end(self) {
        self.end.store(true, std::sync::atomic::Ordering::Relaxed);
        let rounds = self.task.await.expect("every request succeeded");
        assert!(rounds > 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_stranger_says_ends_its_own_link_only() {
    let store = MemoryStore::new();
    let mut seats = servers::<2>(&store).await;
    let (victim, endpoint) = endpoints(&store).await.swap_remove(0);
    let others = Bystanders::begin(&seats[1], "calm", "rude").await;

    let greeting = |mesh: &str, rid: &str| as_record(&Message::Hello(Box::new(hello(mesh, rid))));
    let app = |record: Record| (Lane::Application, record);
    let mut talks: Vec<Vec<(Lane, Record)>> = garbage().into_iter().map(|bad| vec![bad]).collect();
    // Good messages at the wrong time.
    let welcome = || as_record(&Message::Welcome);
    talks.push(vec![app(welcome())]);
    talks.push(vec![app(as_record(&Message::Probe(1)))]);
    talks.push(vec![app(as_record(&Message::Refused(Refusal::WrongMesh)))]);
    talks.push(vec![app(greeting("game", "rude")), app(greeting("game", "rude"))]);
    // Messages of the admitted, right after a Hello.
    talks.push(vec![app(greeting("game", "rude")), app(as_record(&Message::Probe(1)))]);
    // Another Mesh, and the RID of a node that lives (NODE-T37).
    talks.push(vec![app(greeting("other", "rude"))]);
    let theirs = seats_rid(&store, &victim).await;
    talks.push(vec![app(greeting("game", &theirs)), app(welcome())]);
    // Its own RID.
    talks.push(vec![app(greeting("game", &victim.to_string()))]);

    let count = talks.len();
    let talks: Vec<_> = talks.into_iter().map(|talk| say_and_lose(endpoint.clone(), talk)).collect();
    for (number, talk) in talks.into_iter().enumerate() {
        let events = talk.await.unwrap();
        assert!(matches!(events.first(), Some(TransportEvent::LinkUp { .. })), "{number}: {events:?}");
        assert!(
            matches!(events.last(), Some(TransportEvent::LinkDown { .. })),
            "{number} of {count}: {events:?}"
        );
    }
    others.end().await;
    for seat in &mut seats {
        assert_eq!(seat.peers().await.len(), 1, "the hosts stayed connected, and with nobody else");
        assert!(seat.host().find("nobody").await.is_ok());
    }
    store.state().check().unwrap();
    stop(seats).await;
}

/// The RID of a node that is not this one.
async fn seats_rid(store: &MemoryStore, not: &Rid) -> String {
    let all = endpoints(store).await;
    all.iter().find(|(rid, _)| rid != not).map(|(rid, _)| rid.to_string()).unwrap()
}

type Pile = Arc<Mutex<VecDeque<(Lane, Record)>>>;

/// Says on every link what lies on the pile, beside what its host says.
struct Loudmouth {
    transport: ZmqTransport,
    links: Vec<LinkId>,
    pile: Pile,
}

impl Transport for Loudmouth {
    fn bind(&mut self, node: NodeIndex) {
        self.transport.bind(node);
    }

    fn unbind(&mut self, node: NodeIndex) {
        self.transport.unbind(node);
    }

    fn dial(&mut self, node: NodeIndex, dial: DialId, target: DialTarget) {
        self.transport.dial(node, dial, target);
    }

    fn drop_dial(&mut self, dial: DialId) {
        self.transport.drop_dial(dial);
    }

    fn send(&mut self, link: LinkId, lane: Lane, record: Record) {
        self.transport.send(link, lane, record);
    }

    fn close(&mut self, link: LinkId) {
        self.links.retain(|known| *known != link);
        self.transport.close(link);
    }

    fn flush(&mut self) {
        for (lane, record) in self.pile.lock().unwrap().drain(..) {
            for link in &self.links {
                self.transport.send(*link, lane, record.clone());
            }
        }
        self.transport.flush();
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<TransportEvent> {
        let polled = self.transport.poll_event(cx);
        match &polled {
            Poll::Ready(TransportEvent::LinkUp { link, .. }) => self.links.push(*link),
            Poll::Ready(TransportEvent::LinkDown { link, .. }) => self.links.retain(|known| known != link),
            _ => {}
        }
        polled
    }
}

/// A host in good standing whose transport says more than the host does.
struct Rude {
    host: HostHandle,
    pile: Pile,
}

impl Rude {
    fn start(store: &MemoryStore, rid: &str) -> Self {
        let plan = server(store.clone(), |m| m.rid(rid)).build().unwrap();
        let (pile, executor) = (Pile::default(), TokioExecutor::new(tokio::runtime::Handle::current()));
        let (tell, told) = std::sync::mpsc::channel();
        let heap = pile.clone();
        std::thread::spawn(move || {
            let reactor = Reactor::new().unwrap();
            let transport = ZmqTransport::new(ZmqConfig::default(), &reactor).unwrap();
            let transport = Loudmouth { transport, links: Vec::new(), pile: heap };
            let (host, run) = plan.start(transport, reactor.clock(), executor, [0x66; 32]).unwrap();
            tell.send(host).unwrap();
            reactor.block_on(run);
        });
        Self { host: told.recv().unwrap(), pile }
    }

    /// Has its transport say this to all peers.
    async fn say(&self, lane: Lane, record: Record) {
        self.pile.lock().unwrap().push_back((lane, record));
        // Any call makes the loop run, and end with a flush.
        let _ = self.host.find("nobody").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admitted_peer_that_says_garbage_loses_its_link_and_comes_back_and_all_others_are_served() {
    let store = MemoryStore::new();
    let mut seats = servers::<2>(&store).await;
    let rude = Rude::start(&store, "rude");
    for seat in &mut seats {
        seat.meet(2).await;
    }
    let calm: Vec<String> = owned_by_others(&seats[0], "polite", "rude").await;
    for (lane, record) in garbage() {
        let shown = format!("{lane:?} {:?}", &record.header[..record.header.len().min(20)]);
        rude.say(lane, record).await;
        for seat in &mut seats {
            seat.event(|event| matches!(event, Event::ProtocolViolation { .. }).then_some(())).await;
            for id in &calm {
                assert!(seat.host().actor::<Counter>(id).request(Add(1)).await.is_ok(), "{shown}");
            }
            // Its host is in good standing and connects again.
            seat.meet(1).await;
            seat.meet(2).await;
        }
    }
    let id = create(&rude.host, "from-rude", 0).await.id;
    assert_eq!(seats[0].host().actor::<Counter>(&id).request(Add(1)).await, Ok(1));
    assert_eq!(rude.host.shutdown().await, Ok(ShutdownOutcome::Stopped));
    store.state().check().unwrap();
    stop(seats).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admitted_peer_that_lies_in_good_form_changes_nothing() {
    let store = MemoryStore::new();
    let mut seats = servers::<2>(&store).await;
    let rude = Rude::start(&store, "liar");
    for seat in &mut seats {
        seat.meet(2).await;
    }
    let calm = owned_by_others(&seats[0], "steady", "liar").await;
    let from = || OperationIdentity {
        source_rid: Rid::new("liar").unwrap(),
        source_lifecycle: lifecycle(1),
        operation: OperationId::new(5).unwrap(),
    };
    let mut lies = Vec::new();
    // Replies to requests that nobody made of this peer, over all numbers in use.
    for number in 1..200 {
        let correlation = Correlation::from_u64(number).unwrap();
        let reply = Reply { correlation, error: Some(ErrorKind::DataLost), stale_route: true };
        lies.push((Lane::Completion, as_record(&Message::Reply(reply))));
    }
    let verdict = CreateVerdict::Created { object_generation: ObjectGeneration::FIRST };
    let answer = CreateAnswer { operation: from(), reservation: ReservationId::new(9).unwrap(), verdict };
    lies.push((Lane::Completion, as_record(&Message::CreateAnswer(Box::new(answer)))));
    for id in &calm {
        let stale = StaleRoute { target: ActorId::new(id).unwrap(), lifecycle: lifecycle(3) };
        lies.push((Lane::Application, as_record(&Message::StaleRoute(Box::new(stale)))));
    }
    let update = NodeUpdate {
        lifecycle: lifecycle(999),
        revision: DescriptorRevision::new(1 << 40).unwrap(),
        channels: [(ChannelName::new("channel").unwrap(), spotmesh::model::Weight::DEFAULT)].into(),
        host_state: HostState::Draining,
    };
    lies.push((Lane::Application, as_record(&Message::NodeUpdate(update))));
    lies.push((Lane::Application, as_record(&Message::ProbeAck(u64::MAX))));

    let others = Bystanders::begin(&seats[1], "unmoved", "liar").await;
    for (lane, record) in lies {
        rude.say(lane, record).await;
    }
    for seat in &mut seats {
        for id in &calm {
            assert!(seat.host().actor::<Counter>(id).request(Add(1)).await.is_ok());
        }
        assert_eq!(seat.peers().await.len(), 2, "nobody lost a link");
    }
    others.end().await;
    assert_eq!(rude.host.shutdown().await, Ok(ShutdownOutcome::Stopped));
    store.state().check().unwrap();
    stop(seats).await;
}

/// Actors that are not on `node`.
async fn owned_by_others(seat: &Seat, prefix: &str, node: &str) -> Vec<String> {
    let mut ids = Vec::new();
    for number in 0..20 {
        let id = format!("{prefix}-{number}");
        if create(seat.host(), &id, 0).await.node != Rid::new(node).unwrap() {
            ids.push(id);
        }
    }
    assert!(ids.len() >= 5);
    ids
}
