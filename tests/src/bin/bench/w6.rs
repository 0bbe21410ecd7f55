//! W6: creating idle Actors, and what one costs.
//!
//! The rate is measured with the store in the same process. The bytes are measured in a child whose store is in this
//! process, so that its resident memory holds the engine's side only; and they are the growth between two numbers of
//! Actors, so that buffers and code do not count. The floor, a table from ids to boxed user states, is measured the
//! same way.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use serde_json::json;
use spotmesh::app::{Created, HostBuilder, HostHandle};
use spotmesh::driver::LocationStore;
use spotmesh::model::ActorId;
use spotmesh::store::{StoreEvent, StoreRequest, StoreResult, WatchScope};
use spotmesh_net_zmq::{ZmqConfig, ZmqHost};
use spotmesh_store_memory::MemoryStore;

use crate::Outcome;
use crate::actor::{Subject, server};
use crate::measure::{cpu_of, resident};
use crate::ping::Elsewhere;
use crate::remote_store::{self, RemoteStore};

const ACTORS: u64 = 100_000;
/// Created before the first look at the memory.
const FIRST: u64 = 20_000;
/// Creations under way at a time.
const WIDTH: usize = 64;
/// What the host still does after the last creation.
const SETTLE: Duration = Duration::from_secs(3);

/// How long a host of a round may take to end.
const STOP: Duration = Duration::from_secs(60);

/// A memory store that counts its calls and the time spent in them.
#[derive(Clone)]
struct Counted {
    store: MemoryStore,
    calls: Arc<AtomicU64>,
    nanos: Arc<AtomicU64>,
}

impl LocationStore for Counted {
    fn call(&self, request: StoreRequest) -> BoxFuture<'static, StoreResult> {
        let this = self.clone();
        Box::pin(async move {
            let begin = Instant::now();
            let result = this.store.apply(&request);
            this.calls.fetch_add(1, Ordering::Relaxed);
            let spent = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
            this.nanos.fetch_add(spent, Ordering::Relaxed);
            result
        })
    }

    fn watch(&self, scope: WatchScope) -> BoxStream<'static, StoreEvent> {
        self.store.watch(scope)
    }
}

fn id(number: u64) -> String {
    format!("idle-{number:08}")
}

async fn create(host: &HostHandle, numbers: std::ops::Range<u64>) -> Outcome<()> {
    futures::stream::iter(numbers)
        .map(|number| async move {
            match host.actors().create::<Subject>(id(number), number).await {
                Ok(Created::Accepted { .. }) => Ok(()),
                Ok(_) => Err("expected a new Actor".into()),
                Err(error) => Err(Box::<dyn std::error::Error>::from(error)),
            }
        })
        .buffer_unordered(WIDTH)
        .try_for_each(async |()| Ok(()))
        .await
}

fn runtime() -> Outcome<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// The room the benchmark asks for in the node's descriptor.
fn node(mesh: spotmesh::app::MeshBuilder) -> spotmesh::app::MeshBuilder {
    server(mesh).max_actors(1_000_000)
}

/// The child: a host that owns the Actors; writes its memory at both numbers.
pub(crate) fn serve(store: &str, count: u64) -> Outcome<()> {
    let host = HostBuilder::new().store(RemoteStore::connect(store)?).mesh("bench", node);
    let running = ZmqHost::start(host, ZmqConfig::default())?;
    runtime()?.block_on(async {
        running.handle().wait_serving().await?;
        let mut from = 0;
        for until in [FIRST, count] {
            create(running.handle(), from..until).await?;
            from = until;
            tokio::time::sleep(SETTLE).await;
            println!("{}", resident()?);
            std::io::stdout().flush()?;
        }
        Outcome::Ok(())
    })
}

/// The child of the floor: ids and boxed states in one table.
pub(crate) fn table(count: u64) -> Outcome<()> {
    let mut table: BTreeMap<ActorId, Box<u64>> = BTreeMap::new();
    let mut from = 0;
    for until in [FIRST, count] {
        for number in from..until {
            table.insert(ActorId::new(id(number))?, Box::new(number));
        }
        from = until;
        println!("{}", resident()?);
        std::io::stdout().flush()?;
    }
    // The table is read after the last look at the memory, so it was there.
    if table.len() as u64 == count { Ok(()) } else { Err("expected one entry each".into()) }
}

/// Bytes an entry: the growth between the two numbers a child tells.
fn growth(mut child: Elsewhere) -> Outcome<f64> {
    let first: i64 = child.line()?.parse()?;
    let last: i64 = child.line()?.parse()?;
    Ok((last - first) as f64 / (ACTORS - FIRST) as f64)
}

struct Rate {
    per_second: f64,
    cpu_us: f64,
    store_us: f64,
    store_calls: f64,
}

fn rate() -> Outcome<Rate> {
    let store = Counted { store: MemoryStore::new(), calls: Arc::default(), nanos: Arc::default() };
    let host = HostBuilder::new().store(store.clone()).mesh("bench", node);
    let running = ZmqHost::start(host, ZmqConfig::default())?;
    runtime()?.block_on(async {
        running.handle().wait_serving().await?;
        let (cpu, begin) = (cpu_of("self")?, Instant::now());
        create(running.handle(), 0..ACTORS).await?;
        let (wall, cpu) = (begin.elapsed(), cpu_of("self")? - cpu);
        let each = |total: u64| total as f64 / ACTORS as f64;
        // Ended before the next round reads the clocks of all threads: a thread takes its time along.
        running.stop(STOP).await?;
        Ok(Rate {
            per_second: ACTORS as f64 / wall.as_secs_f64(),
            cpu_us: cpu.as_nanos() as f64 / 1_000.0 / ACTORS as f64,
            store_us: each(store.nanos.load(Ordering::Relaxed)) / 1_000.0,
            store_calls: each(store.calls.load(Ordering::Relaxed)),
        })
    })
}

pub(crate) fn run(rounds: usize) -> Outcome<serde_json::Value> {
    let (mut floors, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..rounds.min(3) {
        floors.push(growth(Elsewhere::start("W6", &["table", &ACTORS.to_string()])?)?);
        let address = remote_store::serve(MemoryStore::new())?;
        ours.push(growth(Elsewhere::start("W6", &["host", &address, &ACTORS.to_string()])?)?);
    }
    let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    let (floor, own) = (least(&floors), least(&ours));
    println!("floor: {floor:.0} bytes an entry {floors:.0?}");
    println!("ours:  {own:.0} bytes an idle Actor, user state included {ours:.0?}");
    // The box of the state: its 8 bytes and the table of its type's handlers, in the least block of the allocator.
    let user = 32.0;
    println!("beyond user state ({user} bytes): {:.0} | times the floor {:.2}", own - user, own / floor);

    let mut rates = Vec::new();
    for _ in 0..rounds {
        rates.push(rate()?);
    }
    let top = rates.iter().max_by(|a, b| a.per_second.total_cmp(&b.per_second)).ok_or("no round")?;
    let slowest = rates.iter().map(|rate| rate.per_second).fold(f64::INFINITY, f64::min);
    println!(
        "creations: {:.0}/s [{slowest:.0}..{:.0}] | cpu {:.1} us each, of which {:.1} us in {:.2} store calls",
        top.per_second, top.per_second, top.cpu_us, top.store_us, top.store_calls
    );
    Ok(json!({
        "workload": "W6", "actors": ACTORS,
        "floor": {"bytes": floor, "all": floors, "store_us_per_creation": top.store_us},
        "ours": {
            "bytes": own, "all": ours, "creates_per_second": top.per_second,
            "creates_per_second_least": slowest, "cpu_us_per_creation": top.cpu_us,
            "store_calls_per_creation": top.store_calls,
        },
        "ratio": own / floor,
        "bytes_per_idle_actor": own - user,
        "creates_per_second": top.per_second,
    }))
}
