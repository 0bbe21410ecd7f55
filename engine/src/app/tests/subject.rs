//! The Actor the tests call.

use std::cell::RefCell;
use std::sync::Mutex;
use std::time::Duration;

use serde::ser::Error as _;
use serde::{Deserialize, Serialize, Serializer};

use crate::app::{
    Actor, ActorContext, Admission, CreateContext, Error, ErrorKind, Factory, Handle, PreserveState,
    Registered, Versioned,
};
use crate::driver::Clock;
use crate::driver::local::LocalRuntime;

thread_local! {
    static RUNTIME: RefCell<Option<LocalRuntime>> = const { RefCell::new(None) };
    static DROPPED: Mutex<Vec<u32>> = const { Mutex::new(Vec::new()) };
}

/// Lets handlers on this thread sleep.
pub fn use_runtime(runtime: &LocalRuntime) {
    RUNTIME.set(Some(runtime.clone()));
    dropped();
}

/// Values of the Actors dropped on this thread since the last question.
pub fn dropped() -> Vec<u32> {
    DROPPED.with(|dropped| std::mem::take(&mut *dropped.lock().unwrap()))
}

async fn sleep(ms: u64) {
    let sleep = RUNTIME.with_borrow(|runtime| {
        let runtime = runtime.as_ref().unwrap();
        runtime.sleep_until(runtime.now() + Duration::from_millis(ms))
    });
    sleep.await;
}

/// A number.
pub struct Subject {
    pub value: u32,
}

impl Drop for Subject {
    fn drop(&mut self) {
        DROPPED.with(|dropped| dropped.lock().unwrap().push(self.value));
        assert_ne!(self.value, 666, "a destructor that panics");
    }
}

#[derive(Serialize, Deserialize)]
pub enum Begin {
    With(u32),
    Decline(String),
    Fail,
    Panic,
    After(u64, u32),
    BigReply,
}

impl Actor for Subject {
    const TYPE: &'static str = "test.subject";
    type Create = Begin;
    type Accepted = Vec<u8>;
    type Rejected = String;

    async fn create(begin: Begin, ctx: &mut CreateContext<'_>) -> Result<Admission<Self>, Error> {
        let accept = |value| Ok(Admission::accept(Subject { value }, ctx.id().as_str().into()));
        match begin {
            Begin::With(value) => accept(value),
            Begin::After(ms, value) => {
                sleep(ms).await;
                accept(value)
            }
            Begin::Decline(why) => Ok(Admission::reject(why)),
            Begin::Fail => Err(Error::new(ErrorKind::Rejected, "create", "by a filter")),
            Begin::Panic => panic!("in create"),
            Begin::BigReply => Ok(Admission::accept(Subject { value: 9 }, vec![0; (1 << 20) + 1])),
        }
    }
}

#[derive(Serialize, Deserialize)]
pub struct Add(pub u32);
crate::message!(Add, "test.add", reply = u32);

#[derive(Serialize, Deserialize)]
pub struct AddLater(pub u64, pub u32);
crate::message!(AddLater, "test.add_later", reply = u32);

#[derive(Serialize, Deserialize)]
pub struct Panic {
    pub after: u64,
}
crate::message!(Panic, "test.panic", reply = ());

/// Adds to the other Actor and returns its value.
#[derive(Serialize, Deserialize)]
pub struct AddTo(pub String, pub u32);
crate::message!(AddTo, "test.add_to", reply = u32);

/// Creates another Actor.
#[derive(Serialize, Deserialize)]
pub struct Beget(pub String);
crate::message!(Beget, "test.beget", reply = bool);

/// What the context says.
#[derive(Serialize, Deserialize)]
pub struct Describe;
crate::message!(Describe, "test.describe", reply = (String, Option<String>, u64, (u64, u64)));

#[derive(Debug, Deserialize)]
pub struct Unencodable;

impl Serialize for Unencodable {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(S::Error::custom("never"))
    }
}

#[derive(Serialize, Deserialize)]
pub struct Break;
crate::message!(Break, "test.break", reply = Unencodable);

/// Known to nobody.
#[derive(Serialize, Deserialize)]
pub struct Unknown;
crate::message!(Unknown, "test.unknown", reply = ());

/// Version 2 of [`Add`], which the Actor does not know.
#[derive(Serialize, Deserialize)]
pub struct Add2(pub u32);
crate::message!(Add2, "test.add", reply = u32, version = 2);

impl Handle<Add> for Subject {
    async fn handle(&mut self, Add(by): Add, _: &mut ActorContext<'_, Self>) -> Result<u32, Error> {
        self.value += by;
        Ok(self.value)
    }
}

impl Handle<AddLater> for Subject {
    async fn handle(&mut self, m: AddLater, _: &mut ActorContext<'_, Self>) -> Result<u32, Error> {
        sleep(m.0).await;
        self.value += m.1;
        Ok(self.value)
    }
}

impl Handle<Panic> for Subject {
    async fn handle(&mut self, m: Panic, _: &mut ActorContext<'_, Self>) -> Result<(), Error> {
        if m.after > 0 {
            sleep(m.after).await;
        }
        panic!("in a handler");
    }
}

impl Handle<AddTo> for Subject {
    async fn handle(&mut self, m: AddTo, ctx: &mut ActorContext<'_, Self>) -> Result<u32, Error> {
        ctx.actor::<Subject>(m.0).request(Add(m.1)).await
    }
}

impl Handle<Beget> for Subject {
    async fn handle(&mut self, m: Beget, ctx: &mut ActorContext<'_, Self>) -> Result<bool, Error> {
        let created = ctx.actors().create::<Subject>(&m.0, Begin::With(1)).await?;
        Ok(created.actor().is_some() && ctx.find(&m.0).await?.is_some())
    }
}

impl Handle<Describe> for Subject {
    async fn handle(
        &mut self,
        _: Describe,
        ctx: &mut ActorContext<'_, Self>,
    ) -> Result<(String, Option<String>, u64, (u64, u64)), Error> {
        let fence = ctx.fence();
        assert_eq!(fence.object_generation, ctx.object_generation());
        assert_eq!(ctx.own_address().id(), ctx.id());
        sleep(10).await;
        Ok((
            ctx.id().to_string(),
            ctx.metadata().value("trace").map(str::to_owned),
            u64::try_from(ctx.remaining().as_millis()).unwrap(),
            (fence.object_generation.get(), fence.owner_generation.get()),
        ))
    }
}

impl Handle<Break> for Subject {
    async fn handle(&mut self, _: Break, _: &mut ActorContext<'_, Self>) -> Result<Unencodable, Error> {
        Ok(Unencodable)
    }
}

impl PreserveState for Subject {
    type State = u32;
    const VERSION: u16 = 2;

    fn capture(&self) -> Result<u32, Error> {
        Ok(self.value)
    }

    fn restore(state: Versioned<u32>) -> Result<Self, Error> {
        match state.version {
            // Version 1 counted in tens.
            1 => Ok(Self { value: state.state * 10 }),
            2 => Ok(Self { value: state.state }),
            found => {
                let found = format!("expected version 1 or 2, found {found}");
                Err(Error::new(ErrorKind::StateIncompatible, "restore", found))
            }
        }
    }
}

pub fn registered(factory: Factory<Subject>) -> Registered<Subject> {
    factory
        .handles::<Add>()
        .handles::<AddLater>()
        .handles::<Panic>()
        .handles::<AddTo>()
        .handles::<Beget>()
        .handles::<Describe>()
        .handles::<Break>()
        .preserve_state()
}
