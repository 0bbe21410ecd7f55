//! A host in a process of its own, killed.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use spotmesh::app::*;
use spotmesh::model::Rid;
use spotmesh::model::limits::Settings;
use spotmesh_net_zmq::ZmqConfig;
use spotmesh_store_memory::MemoryStore;

use super::counter::*;
use super::store_server::{RemoteStore, serve};
use super::world::*;

/// Tells the child where the Store is.
const STORE: &str = "SPOTMESH_TEST_STORE";
const TTL: Duration = Duration::from_secs(5);

/// A short lease, with room for a slow machine.
fn short_lease() -> Settings {
    Settings {
        owner_lease_ttl: TTL,
        owner_lease_renew_interval: Duration::from_secs(1),
        owner_lease_renew_timeout: Duration::from_secs(1),
        owner_lease_fencing_margin: Duration::from_secs(1),
        recovery_scan_interval: Duration::from_secs(1),
        ..Settings::default()
    }
}

/// A host in a process of its own, killed when dropped.
struct Elsewhere {
    child: Child,
    rid: Rid,
    _output: BufReader<ChildStdout>,
}

impl Elsewhere {
    /// Starts this test binary again as a host with this RID.
    fn start(store: &str, rid: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["killed::child_entry", "--exact", "--nocapture", "--test-threads=1"])
            .env(STORE, format!("{store} {rid}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut told = String::new();
        while !told.contains("SERVING") {
            told.clear();
            assert_ne!(output.read_line(&mut told).unwrap(), 0, "the child ended early");
        }
        Self { child, rid: Rid::new(rid).unwrap(), _output: output }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The child's main function; does nothing in the parent.
#[test]
fn child_entry() {
    let Ok(told) = std::env::var(STORE) else { return };
    let (store, rid) = told.split_once(' ').unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _inside = runtime.enter();
    let host = server(RemoteStore::new(store.to_owned()), |m| m.rid(rid)).settings(short_lease());
    let seat = Seat::start(host, ZmqConfig::default());
    runtime.block_on(seat.host().wait_serving()).unwrap();
    println!("SERVING");
    // The parent closes it when it ends, however it ends.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn actors_of_a_killed_host_are_unavailable_and_all_others_go_on() {
    let store = MemoryStore::new();
    let address = serve(store.clone()).await;
    let mut seats = [(); 2]
        .map(|()| Seat::start(server(store.clone(), |m| m).settings(short_lease()), ZmqConfig::default()));
    for seat in &mut seats {
        seat.meet(1).await;
    }
    let mut victim = tokio::task::spawn_blocking(move || Elsewhere::start(&address, "victim")).await.unwrap();
    for seat in &mut seats {
        seat.meet(2).await;
    }
    let [a, b] = [seats[0].host().clone(), seats[1].host().clone()];
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for number in 0..60 {
        let id = format!("mortal-{number}");
        let owner = create(&a, &id, 0).await.node;
        assert_eq!(b.actor::<Counter>(&id).request(Add(1)).await, Ok(1));
        if owner == victim.rid { theirs.push(id) } else { ours.push(id) }
    }
    assert!(theirs.len() >= 5 && ours.len() >= 10, "{} and {}", theirs.len(), ours.len());

    // One request is under way when its host dies.
    let under_way = b.actor::<Counter>(&theirs[0]).request(Hang).into_future();
    let under_way = tokio::spawn(under_way);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let killed = Instant::now();
    tokio::task::block_in_place(|| victim.kill());
    let ended = tokio::time::timeout(LONG, under_way).await.expect("an end").unwrap();
    assert_eq!(kind(ended), ErrorKind::Unavailable, "MODEL-108");

    // At once and after the end of the lease: no other host takes over, nothing is created anew (HOST-T20).
    let after_the_lease = killed + TTL + Duration::from_secs(2);
    let mut rounds = 0;
    loop {
        for id in &theirs {
            let request = a.actor::<Counter>(id).request(Add(1)).timeout(Duration::from_secs(10)).await;
            assert_eq!(kind(request), ErrorKind::Unavailable, "{id}");
        }
        for id in &ours {
            assert_eq!(a.actor::<Counter>(id).request(Add(1)).await, Ok(2 + 2 * rounds));
            assert_eq!(b.actor::<Counter>(id).request(Add(1)).await, Ok(3 + 2 * rounds));
        }
        rounds += 1;
        if Instant::now() > after_the_lease {
            break;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    for (id, host) in theirs.iter().zip([&a, &b].into_iter().cycle()) {
        let again = host.actors().get_or_create::<Counter>(id, Start::At(9)).timeout(TTL).await;
        assert_eq!(kind(again), ErrorKind::Unavailable, "{id}");
        assert_eq!(factory_runs(id), 0, "{id}: no factory ran in this process");
    }
    // New ones go to the hosts that live.
    for number in 0..10 {
        let id = format!("later-{number}");
        assert_ne!(create(&b, &id, 0).await.node, victim.rid);
        assert_eq!(a.actor::<Counter>(&id).request(Add(1)).await, Ok(1));
    }
    for seat in &mut seats {
        seat.meet(1).await;
    }
    store.state().check().unwrap();
    stop(seats).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fixed_rid_is_free_again_when_the_lease_of_its_killed_host_has_ended() {
    let store = MemoryStore::new();
    let address = serve(store.clone()).await;
    let from = address.clone();
    let mut victim = tokio::task::spawn_blocking(move || Elsewhere::start(&from, "phoenix")).await.unwrap();
    tokio::task::block_in_place(|| victim.kill());
    let killed = Instant::now();
    // Inside the lease it is taken.
    let early = Seat::start(
        server(store.clone(), |m| m.rid("phoenix")).settings(short_lease()),
        ZmqConfig::default(),
    );
    assert_eq!(kind(early.host().wait_serving().await), ErrorKind::Configuration);
    tokio::time::sleep((killed + TTL + Duration::from_millis(500)).saturating_duration_since(Instant::now()))
        .await;
    let late = Seat::start(
        server(store.clone(), |m| m.rid("phoenix")).settings(short_lease()),
        ZmqConfig::default(),
    );
    late.host().wait_serving().await.unwrap();
    create(late.host(), "reborn", 1).await;
    late.stop().await;
    store.state().check().unwrap();
}
