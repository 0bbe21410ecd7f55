//! Hosts on real sockets with one Store, and what tests ask of them.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use spotmesh::app::*;
use spotmesh::driver::{LocationStore, LocationStoreExt};
use spotmesh::event::{Event, PeerState};
use spotmesh::model::{ActorRef, Rid};
use spotmesh::store::ListDescriptors;
use spotmesh_net_zmq::{Running, ZmqConfig, ZmqHost};
use spotmesh_store_memory::MemoryStore;

use super::counter::{Counter, Start, registered};

/// Every wait ends when its condition holds; this long on a slow machine at most.
pub const LONG: Duration = Duration::from_secs(30);

/// A running host and what it told since its start.
pub struct Seat {
    running: Running,
    events: Observer,
    peers: BTreeSet<Rid>,
}

impl Seat {
    /// Starts a host.
    pub fn start(host: HostBuilder, transport: ZmqConfig) -> Self {
        let running = ZmqHost::start(host, transport).expect("a host that starts");
        let events = running.handle().observe(100_000);
        Self { running, events, peers: BTreeSet::new() }
    }

    pub fn host(&self) -> &HostHandle {
        self.running.handle()
    }

    /// Waits until the host serves and exactly `peers` others are connected with it.
    pub async fn meet(&mut self, peers: usize) {
        let waited = tokio::time::timeout(LONG, async {
            self.host().wait_serving().await.expect("a host that serves");
            while self.peers.len() != peers {
                self.next_event().await;
            }
        });
        if waited.await.is_err() {
            panic!("expected {peers} connected peers, found {:?} after {LONG:?}", self.peers);
        }
    }

    /// Who is connected with it now.
    pub async fn peers(&mut self) -> BTreeSet<Rid> {
        while let Some(event) = self.events.next().now_or_never() {
            self.note(&event.expect("a host that goes on"));
        }
        self.peers.clone()
    }

    /// The first event from here on that `wanted` answers something for.
    pub async fn event<T>(&mut self, mut wanted: impl FnMut(&Event) -> Option<T>) -> T {
        let waited = tokio::time::timeout(LONG, async {
            loop {
                if let Some(found) = wanted(&self.next_event().await) {
                    return found;
                }
            }
        });
        waited.await.expect("an event that comes in time")
    }

    async fn next_event(&mut self) -> Event {
        let event = self.events.next().await.expect("a host that goes on");
        self.note(&event);
        event
    }

    fn note(&mut self, event: &Event) {
        assert!(!matches!(event, Event::Violation(_)), "{event:?}");
        assert_eq!(self.events.missed(), 0, "every event is seen");
        if let Event::Peer { rid, state, .. } = event {
            match state {
                PeerState::Ready => self.peers.insert(rid.clone()),
                _ => self.peers.remove(rid),
            };
        }
    }

    /// Ends the host in order.
    pub async fn stop(self) {
        assert_eq!(self.running.stop(LONG).await, Ok(ShutdownOutcome::Stopped));
    }
}

/// A description of a server of the Mesh `game` that can own counters, with something special.
pub fn server(store: impl LocationStore, more: impl FnOnce(MeshBuilder) -> MeshBuilder) -> HostBuilder {
    HostBuilder::new().store(store).mesh("game", |mesh| more(mesh.server().actor::<Counter>(registered)))
}

/// Starts servers with one Store and lets them connect.
pub async fn servers<const N: usize>(store: &MemoryStore) -> [Seat; N] {
    let mut seats = [(); N].map(|()| Seat::start(server(store.clone(), |m| m), ZmqConfig::default()));
    for seat in &mut seats {
        seat.meet(N - 1).await;
    }
    seats
}

/// Ends all hosts in order, at the same time.
pub async fn stop(seats: impl IntoIterator<Item = Seat>) {
    futures::future::join_all(seats.into_iter().map(Seat::stop)).await;
}

/// Creates a counter that must be new; answers its ref.
pub async fn create(host: &HostHandle, id: &str, value: u64) -> ActorRef {
    match host.actors().create::<Counter>(id, Start::At(value)).await {
        Ok(Created::Accepted { actor, reply }) => {
            assert_eq!((actor.id.as_str(), reply), (id, value));
            actor
        }
        other => panic!("{id}: expected an accepted creation, found {other:?}"),
    }
}

/// The kind of a failure.
pub fn kind<T>(result: Result<T, Error>) -> ErrorKind {
    match result {
        Ok(_) => panic!("expected a failure, found a success"),
        Err(error) => error.kind(),
    }
}

/// RID and endpoint of every published node.
pub async fn endpoints(store: &impl LocationStore) -> Vec<(Rid, String)> {
    let list = ListDescriptors { mesh: None, token: None, limit: 100 };
    let page = store.execute(list).await.expect("a listing");
    page.entries.into_iter().map(|e| (e.descriptor.rid.clone(), e.descriptor.endpoint.clone())).collect()
}
