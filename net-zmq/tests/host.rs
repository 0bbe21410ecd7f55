//! Hosts as a service starts and ends them.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use spotmesh::app::*;
use spotmesh::link::NodeIndex;
use spotmesh::model::HostState;
use spotmesh_net_zmq::{Listen, Running, ZmqConfig, ZmqHost};
use spotmesh_store_memory::MemoryStore;

const LONG: Duration = Duration::from_secs(20);

#[derive(Serialize, Deserialize)]
struct WhereAmI;
spotmesh::message!(WhereAmI, "test.where_am_i", reply = Option<String>);

#[derive(Serialize, Deserialize)]
struct Sleep(u64);
spotmesh::message!(Sleep, "test.sleep", reply = ());

struct Thing;

impl Actor for Thing {
    const TYPE: &'static str = "test.thing";
    type Create = ();
    type Accepted = ();
    type Rejected = ();

    async fn create(_: (), _: &mut CreateContext<'_>) -> Result<Admission<Self>, Error> {
        Ok(Admission::accept(Self, ()))
    }
}

impl Handle<WhereAmI> for Thing {
    async fn handle(&mut self, _: WhereAmI, _: &mut ActorContext<'_, Self>) -> Result<Option<String>, Error> {
        Ok(std::thread::current().name().map(str::to_owned))
    }
}

impl Handle<Sleep> for Thing {
    async fn handle(&mut self, Sleep(ms): Sleep, _: &mut ActorContext<'_, Self>) -> Result<(), Error> {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        Ok(())
    }
}

fn host(store: &MemoryStore) -> HostBuilder {
    HostBuilder::new().store(store.clone()).mesh("game", |mesh| {
        mesh.server()
            .rid("fixed")
            .actor::<Thing>(|f| f.handles::<WhereAmI>().handles::<Sleep>().disable_relocation())
    })
}

async fn use_it(running: &Running) {
    let host = running.handle();
    host.wait_serving().await.unwrap();
    assert_eq!(host.state(), HostState::Serving);
    host.actors().create::<Thing>("thing", ()).await.unwrap();
    let thread = host.actor::<Thing>("thing").request(WhereAmI).await.unwrap();
    assert_eq!(thread.as_deref(), Some("spotmesh-host"), "a turn that does not wait never leaves the loop");
}

#[tokio::test]
async fn a_host_serves_stops_and_leaves_nothing_to_wait_for() {
    let store = MemoryStore::new();
    // Several times with one RID: each stop has freed it (NODE-16).
    for _ in 0..3 {
        let running = ZmqHost::start(host(&store), ZmqConfig::default()).unwrap();
        use_it(&running).await;
        let handle = running.handle().clone();
        assert_eq!(running.stop(LONG).await, Ok(ShutdownOutcome::Stopped));
        assert_eq!(handle.state(), HostState::Stopped);
        let late = handle.actor::<Thing>("thing").request(WhereAmI).await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::ShuttingDown);
    }
    store.state().check().unwrap();
}

#[test]
fn outside_of_any_runtime_a_host_brings_its_own() {
    let store = MemoryStore::new();
    let running = ZmqHost::start(host(&store), ZmqConfig::default()).unwrap();
    // Any way to wait will do: the calls are plain futures.
    let waiter = tokio::runtime::Builder::new_current_thread().build().unwrap();
    waiter.block_on(async {
        use_it(&running).await;
        assert_eq!(running.stop(LONG).await, Ok(ShutdownOutcome::Stopped));
    });
}

#[tokio::test]
async fn turns_may_use_tokio_wherever_they_run() {
    for placement in [TurnPlacement::Inline, TurnPlacement::SpawnedOnWait, TurnPlacement::Spawned] {
        let store = MemoryStore::new();
        let running = ZmqHost::start(host(&store).turns(placement), ZmqConfig::default()).unwrap();
        running.handle().wait_serving().await.unwrap();
        running.handle().actors().create::<Thing>("thing", ()).await.unwrap();
        let thing = running.handle().actor::<Thing>("thing");
        thing.request(Sleep(20)).await.unwrap();
        let on_the_loop = thing.request(WhereAmI).await.unwrap().as_deref() == Some("spotmesh-host");
        assert_eq!(on_the_loop, placement != TurnPlacement::Spawned, "{placement:?}");
        assert_eq!(running.stop(LONG).await, Ok(ShutdownOutcome::Stopped));
    }
}

#[tokio::test]
async fn a_shutdown_by_the_handle_ends_the_wait() {
    let store = MemoryStore::new();
    let running = ZmqHost::start(host(&store), ZmqConfig::default()).unwrap();
    let handle = running.handle().clone();
    handle.wait_serving().await.unwrap();
    let (waited, shut_down) = tokio::join!(running.wait(), handle.shutdown().into_future());
    assert_eq!((waited, shut_down), (Ok(()), Ok(ShutdownOutcome::Stopped)));
}

#[tokio::test]
async fn dropping_a_running_host_asks_it_to_end() {
    let store = MemoryStore::new();
    let running = ZmqHost::start(host(&store), ZmqConfig::default()).unwrap();
    let handle = running.handle().clone();
    handle.wait_serving().await.unwrap();
    drop(running);
    let begun = Instant::now();
    while handle.state() != HostState::Stopped {
        assert!(begun.elapsed() < LONG, "{:?}", handle.state());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    store.state().check().unwrap();
}

#[tokio::test]
async fn a_start_that_fails_says_why_and_leaves_nothing() {
    let store = MemoryStore::new();
    let kind = |started: Result<Running, Error>| started.err().map(|error| error.kind());
    let twice = host(&store).store(store.clone());
    assert_eq!(kind(ZmqHost::start(twice, ZmqConfig::default())), Some(ErrorKind::Configuration));
    let mut config = ZmqConfig::default();
    config.bounds.window = 1;
    assert_eq!(kind(ZmqHost::start(host(&store), config)), Some(ErrorKind::Configuration));

    // A failure that shows only later: the port is taken.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = Listen { port: taken.local_addr().unwrap().port(), ..Listen::default() };
    let config = ZmqConfig { listen: [(NodeIndex(0), listen)].into(), ..ZmqConfig::default() };
    let running = ZmqHost::start(host(&store), config).unwrap();
    let failed = running.handle().wait_serving().await.unwrap_err();
    assert!(failed.to_string().contains("127.0.0.1"), "{failed}");
    assert_eq!(running.handle().state(), HostState::Error);
    assert_eq!(running.stop(LONG).await, Ok(ShutdownOutcome::ForceStopped), "it never served");

    // Nothing of it is in the way of the next.
    let running = ZmqHost::start(host(&store), ZmqConfig::default()).unwrap();
    use_it(&running).await;
    assert_eq!(running.stop(LONG).await, Ok(ShutdownOutcome::Stopped));
    store.state().check().unwrap();
}

#[tokio::test]
async fn a_turn_that_never_ends_does_not_outlast_a_forced_stop() {
    let store = MemoryStore::new();
    let running =
        ZmqHost::start(host(&store).turns(TurnPlacement::SpawnedOnWait), ZmqConfig::default()).unwrap();
    running.handle().wait_serving().await.unwrap();
    running.handle().actors().create::<Thing>("thing", ()).await.unwrap();
    let sleeping = running.handle().actor::<Thing>("thing").request(Sleep(600_000)).into_future();
    let sleeping = tokio::spawn(sleeping);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let begun = Instant::now();
    assert_eq!(running.stop(Duration::from_millis(500)).await, Ok(ShutdownOutcome::ForceStopped));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(sleeping.await.unwrap().is_err());
}
