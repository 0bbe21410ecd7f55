//! The Actor the tests call, and worlds of hosts that own it.

use std::cell::Cell;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use spotmesh::app::*;
use spotmesh::driver::Clock;
use spotmesh_store_memory::MemoryStore;

thread_local! {
    /// How often the factory of [`Counter`] ran on this thread, which runs a whole world.
    pub static FACTORIES: Cell<usize> = const { Cell::new(0) };
}

/// Counts.
pub struct Counter {
    value: u64,
    seen: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
pub enum Start {
    At(u64),
    Refuse,
    Fail,
    Panic,
}

impl Actor for Counter {
    const TYPE: &'static str = "test.counter";
    type Create = Start;
    type Accepted = u64;
    type Rejected = String;

    async fn create(start: Start, _: &mut CreateContext<'_>) -> Result<Admission<Self>, Error> {
        FACTORIES.set(FACTORIES.get() + 1);
        match start {
            Start::At(value) => Ok(Admission::accept(Counter { value, seen: Vec::new() }, value)),
            Start::Refuse => Ok(Admission::reject("not today".to_owned())),
            Start::Fail => Err(Error::new(ErrorKind::DataLost, "create", "says the test")),
            Start::Panic => panic!("the test wants it"),
        }
    }
}

#[derive(Serialize, Deserialize)]
pub struct Add(pub u64);
spotmesh::message!(Add, "counter.add", reply = u64);

/// Notes a number; the order of notes can be asked for.
#[derive(Serialize, Deserialize)]
pub struct Note(pub u64);
spotmesh::message!(Note, "counter.note", reply = ());

#[derive(Serialize, Deserialize)]
pub struct Notes;
spotmesh::message!(Notes, "counter.notes", reply = Vec<u64>);

#[derive(Serialize, Deserialize)]
pub struct Panic;
spotmesh::message!(Panic, "counter.panic", reply = ());

/// Fails with a kind of the application's choice.
#[derive(Serialize, Deserialize)]
pub struct Fail;
spotmesh::message!(Fail, "counter.fail", reply = ());

/// Adds to another counter and returns its value.
#[derive(Serialize, Deserialize)]
pub struct AddTo(pub String, pub u64);
spotmesh::message!(AddTo, "counter.add_to", reply = u64);

/// Never answers.
#[derive(Serialize, Deserialize)]
pub struct Hang;
spotmesh::message!(Hang, "counter.hang", reply = ());

/// Handled by nobody.
#[derive(Serialize, Deserialize)]
pub struct Unknown;
spotmesh::message!(Unknown, "counter.unknown", reply = ());

impl Handle<Add> for Counter {
    async fn handle(&mut self, Add(by): Add, _: &mut ActorContext<'_, Self>) -> Result<u64, Error> {
        self.value += by;
        Ok(self.value)
    }
}

impl Handle<Note> for Counter {
    async fn handle(&mut self, Note(number): Note, _: &mut ActorContext<'_, Self>) -> Result<(), Error> {
        self.seen.push(number);
        Ok(())
    }
}

impl Handle<Notes> for Counter {
    async fn handle(&mut self, _: Notes, _: &mut ActorContext<'_, Self>) -> Result<Vec<u64>, Error> {
        Ok(self.seen.clone())
    }
}

impl Handle<Panic> for Counter {
    async fn handle(&mut self, _: Panic, _: &mut ActorContext<'_, Self>) -> Result<(), Error> {
        panic!("the test wants it");
    }
}

impl Handle<Fail> for Counter {
    async fn handle(&mut self, _: Fail, _: &mut ActorContext<'_, Self>) -> Result<(), Error> {
        Err(Error::new(ErrorKind::StateIncompatible, "fail", "says the test"))
    }
}

impl Handle<AddTo> for Counter {
    async fn handle(&mut self, m: AddTo, ctx: &mut ActorContext<'_, Self>) -> Result<u64, Error> {
        ctx.actor::<Counter>(m.0).request(Add(m.1)).await
    }
}

impl Handle<Hang> for Counter {
    async fn handle(&mut self, _: Hang, _: &mut ActorContext<'_, Self>) -> Result<(), Error> {
        std::future::pending().await
    }
}

/// A world with a Store in its own time.
pub struct World {
    pub local: LocalWorld,
    pub store: MemoryStore,
}

impl World {
    pub fn new() -> Self {
        let local = LocalWorld::new();
        let store = MemoryStore::with_clock(local.store_clock());
        Self { local, store }
    }

    /// Starts a server of the Mesh `game`.
    pub fn server(&self) -> HostHandle {
        self.local.start(self.describe(|m| m)).expect("a host that serves")
    }

    /// A server of the Mesh `game` with something special.
    pub fn describe(&self, more: impl FnOnce(MeshBuilder) -> MeshBuilder) -> HostBuilder {
        HostBuilder::new()
            .store(self.store.clone())
            .mesh("game", |m| more(m.server().actor::<Counter>(registered)))
    }

    pub async fn sleep(&self, duration: Duration) {
        let runtime = self.local.runtime();
        runtime.sleep_until(runtime.now() + duration).await;
    }
}

fn registered(factory: Factory<Counter>) -> Registered<Counter> {
    factory
        .handles::<Add>()
        .handles::<Note>()
        .handles::<Notes>()
        .handles::<Panic>()
        .handles::<Fail>()
        .handles::<AddTo>()
        .handles::<Hang>()
        .disable_relocation()
}

/// Creates a counter that must be accepted.
pub async fn create(host: &HostHandle, id: &str, value: u64) {
    match host.actors().create::<Counter>(id, Start::At(value)).await {
        Ok(Created::Accepted { actor, reply }) => {
            assert_eq!((actor.id.as_str(), reply), (id, value));
        }
        other => panic!("{id}: expected an accepted creation, found {other:?}"),
    }
}

/// The kind of a failure.
pub fn kind<T>(result: Result<T, Error>) -> ErrorKind {
    match result {
        Ok(_) => panic!("expected a failure"),
        Err(error) => error.kind(),
    }
}
