//! The Actor that the tests create and call.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use spotmesh::app::*;

/// Factory runs by id in this process. Tests use ids of their own.
static FACTORY_RUNS: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

/// How often the factory ran for an id.
pub fn factory_runs(id: &str) -> u64 {
    FACTORY_RUNS.lock().unwrap_or_else(PoisonError::into_inner).get(id).copied().unwrap_or(0)
}

/// Counts and notes.
pub struct Counter {
    value: u64,
    notes: Vec<u64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Start {
    At(u64),
    Decline,
    Fail,
    Panic,
}

impl Actor for Counter {
    const TYPE: &'static str = "test.counter";
    type Create = Start;
    type Accepted = u64;
    type Rejected = String;

    async fn create(start: Start, ctx: &mut CreateContext<'_>) -> Result<Admission<Self>, Error> {
        *FACTORY_RUNS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(ctx.id().to_string())
            .or_default() += 1;
        match start {
            Start::At(value) => Ok(Admission::accept(Self { value, notes: Vec::new() }, value)),
            Start::Decline => Ok(Admission::reject("not today".to_owned())),
            Start::Fail => Err(Error::new(ErrorKind::DataLost, "create", "the test wants it")),
            Start::Panic => panic!("the test wants it"),
        }
    }
}

/// Adds and answers the sum.
#[derive(Serialize, Deserialize)]
pub struct Add(pub u64);
spotmesh::message!(Add, "counter.add", reply = u64);

/// [`Add`] in a version nobody handles.
#[derive(Serialize, Deserialize)]
pub struct AddOfTomorrow(pub u64);
spotmesh::message!(AddOfTomorrow, "counter.add", reply = u64, version = 2);

/// Says it is [`Add`] and carries something else.
#[derive(Serialize, Deserialize)]
pub struct Garbled(pub String);
spotmesh::message!(Garbled, "counter.add", reply = u64);

/// Is [`Add`] to the Actor but expects another reply.
#[derive(Serialize, Deserialize)]
pub struct AddAndExpectText(pub u64);
spotmesh::message!(AddAndExpectText, "counter.add", reply = (String, String));

/// Notes a number; [`Notes`] answers all of them in the order of their arrival.
#[derive(Serialize, Deserialize)]
pub struct Note(pub u64);
spotmesh::message!(Note, "counter.note", reply = ());

#[derive(Serialize, Deserialize)]
pub struct Notes;
spotmesh::message!(Notes, "counter.notes", reply = Vec<u64>);

#[derive(Serialize, Deserialize)]
pub struct Panic;
spotmesh::message!(Panic, "counter.panic", reply = ());

/// Fails with this kind.
#[derive(Serialize, Deserialize)]
pub struct Fail(pub ErrorKind);
spotmesh::message!(Fail, "counter.fail", reply = ());

/// Answers what it got.
#[derive(Serialize, Deserialize)]
pub struct Echo(pub Vec<u8>);
spotmesh::message!(Echo, "counter.echo", reply = Vec<u8>);

/// Adds to another counter and answers its sum.
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
        self.notes.push(number);
        Ok(())
    }
}

impl Handle<Notes> for Counter {
    async fn handle(&mut self, _: Notes, _: &mut ActorContext<'_, Self>) -> Result<Vec<u64>, Error> {
        Ok(self.notes.clone())
    }
}

impl Handle<Panic> for Counter {
    async fn handle(&mut self, _: Panic, _: &mut ActorContext<'_, Self>) -> Result<(), Error> {
        self.value += 1_000;
        panic!("the test wants it");
    }
}

impl Handle<Fail> for Counter {
    async fn handle(&mut self, Fail(kind): Fail, _: &mut ActorContext<'_, Self>) -> Result<(), Error> {
        Err(Error::new(kind, "fail", "a text that stays at home"))
    }
}

impl Handle<Echo> for Counter {
    async fn handle(&mut self, Echo(bytes): Echo, _: &mut ActorContext<'_, Self>) -> Result<Vec<u8>, Error> {
        Ok(bytes)
    }
}

impl Handle<Hang> for Counter {
    async fn handle(&mut self, _: Hang, _: &mut ActorContext<'_, Self>) -> Result<(), Error> {
        std::future::pending().await
    }
}

impl Handle<AddTo> for Counter {
    async fn handle(&mut self, to: AddTo, ctx: &mut ActorContext<'_, Self>) -> Result<u64, Error> {
        ctx.actor::<Self>(to.0).request(Add(to.1)).await
    }
}

/// Registers the type with all its handlers.
pub fn registered(factory: Factory<Counter>) -> Registered<Counter> {
    factory
        .handles::<Add>()
        .handles::<Note>()
        .handles::<Notes>()
        .handles::<Panic>()
        .handles::<Fail>()
        .handles::<Echo>()
        .handles::<AddTo>()
        .handles::<Hang>()
        .disable_relocation()
}
