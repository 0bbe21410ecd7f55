//! W4: an ask between two hosts in two processes, over loopback, against a bare ZeroMQ ping.
//!
//! `loop`: the callers run on the thread of the host's loop, as those of Actors do. `threads`: they run on another one.

use std::io::{Read, Write};
use std::time::Duration;

use futures::future::{Either, select};
use serde_json::json;
use spotmesh::app::{Created, HostBuilder, HostHandle};
use spotmesh_net_zmq::{Reactor, TokioExecutor, ZmqConfig, ZmqHost, ZmqTransport};
use spotmesh_store_memory::MemoryStore;

use crate::Outcome;
use crate::actor::{Echo, Subject, server};
use crate::measure::{Figures, best, closed_loop, json as figures_json, show};
use crate::ping::{Elsewhere, Ping};
use crate::remote_store::{self, RemoteStore};

const OUTSTANDING: [usize; 3] = [1, 16, 256];
const PAYLOAD: usize = 100;
const SPAN: Duration = Duration::from_millis(600);
const ID: &str = "subject-of-the-remote-ask";
const PLACEMENTS: [&str; 2] = ["threads", "loop"];

/// The child: a host that owns the Actor.
pub(crate) fn serve(store: &str) -> Outcome<()> {
    let host = HostBuilder::new().store(RemoteStore::connect(store)?).mesh("bench", server);
    let running = ZmqHost::start(host, ZmqConfig::default())?;
    tokio::runtime::Builder::new_current_thread().build()?.block_on(running.handle().wait_serving())?;
    println!("serving");
    std::io::stdout().flush()?;
    // The parent closes it when it ends, however it ends.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}

fn caller(store: &MemoryStore) -> HostBuilder {
    HostBuilder::new().store(store.clone()).mesh("bench", spotmesh::app::MeshBuilder::client)
}

async fn ask(host: &HostHandle, id: &str, payload: &str) -> Result<(), spotmesh::model::Error> {
    host.actor::<Subject>(id).request(Echo(payload.to_owned())).await.map(|_| ())
}

/// Creates the Actor, which can only be elsewhere, and waits for the first answer.
async fn prepare(host: &HostHandle, id: &str) -> Outcome<()> {
    host.wait_serving().await?;
    let mut left = 100;
    loop {
        match host.actors().create::<Subject>(id, 0).await {
            Ok(Created::Accepted { .. }) => break,
            Ok(_) => return Err("expected a new Actor".into()),
            Err(error) if left == 0 => return Err(error.into()),
            // The other host may not be connected yet.
            Err(_) => left -= 1,
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(ask(host, id, "").await?)
}

/// The rounds of one placement at one number of requests under way.
struct Cell {
    placement: &'static str,
    outstanding: usize,
    floor: Vec<Figures>,
    ours: Vec<Figures>,
}

/// Floor and subject in turn, so that both meet the machine's moods.
async fn rounds_of(
    host: &HostHandle,
    id: &str,
    placement: &'static str,
    rounds: usize,
    target: &Elsewhere,
    ping: &mut Ping,
) -> Outcome<Vec<Cell>> {
    let payload = "x".repeat(PAYLOAD);
    let mut cells = Vec::new();
    for outstanding in OUTSTANDING {
        let (mut floor, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            floor.push(ping.round(outstanding, SPAN, payload.as_bytes())?);
            let children = [&target.child];
            ours.push(closed_loop(outstanding, SPAN, &children, || ask(host, id, &payload)).await?);
        }
        cells.push(Cell { placement, outstanding, floor, ours });
    }
    Ok(cells)
}

pub(crate) fn run(rounds: usize, profile: Option<(usize, u64)>) -> Outcome<serde_json::Value> {
    let store = MemoryStore::new();
    let address = remote_store::serve(store.clone())?;
    let mut target = Elsewhere::start("W4", &["host", &address])?;
    if target.line()? != "serving" {
        return Err("expected a child that serves".into());
    }
    let mut ping = Ping::start()?;

    if let Some((outstanding, seconds)) = profile {
        println!("target process {}", target.child.id());
        let payload = "x".repeat(PAYLOAD);
        let figures = beside_a_loop(&store, async |host| {
            prepare(&host, ID).await?;
            let span = Duration::from_secs(seconds);
            closed_loop(outstanding, span, &[&target.child], || ask(&host, ID, &payload)).await
        })?;
        show("profiled loop", &[figures]);
        return Ok(serde_json::Value::Null);
    }

    let mut cells = {
        let running = ZmqHost::start(caller(&store), ZmqConfig::default())?;
        let host = running.handle().clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            prepare(&host, ID).await?;
            let cells = rounds_of(&host, ID, PLACEMENTS[0], rounds, &target, &mut ping).await?;
            running.stop(Duration::from_secs(10)).await?;
            Outcome::Ok(cells)
        })?
    };
    cells.extend(beside_a_loop(&store, async |host| {
        const OTHER: &str = "subject-of-the-loop";
        prepare(&host, OTHER).await?;
        rounds_of(&host, OTHER, PLACEMENTS[1], rounds, &target, &mut ping).await
    })?);
    Ok(report(&cells))
}

fn beside_a_loop<R>(store: &MemoryStore, work: impl AsyncFnOnce(HostHandle) -> Outcome<R>) -> Outcome<R> {
    let calls = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let reactor = Reactor::new()?;
    let transport = ZmqTransport::new(ZmqConfig::default(), &reactor)?;
    let executor = TokioExecutor::new(calls.handle().clone());
    let (host, driver) = caller(store).build()?.start(transport, reactor.clock(), executor, [9; 32])?;
    reactor.block_on(async {
        let work = std::pin::pin!(work(host.clone()));
        match select(work, std::pin::pin!(driver)).await {
            Either::Left((result, _)) => result,
            Either::Right(_) => Err("the host ended".into()),
        }
    })
}

fn report(cells: &[Cell]) -> serde_json::Value {
    let mut result = json!({"workload": "W4", "ours": {}, "floor": {}, "ratio": {}});
    for Cell { placement, outstanding, floor, ours } in cells {
        let name = format!("{placement}_{outstanding}");
        show(&format!("floor {name}"), floor);
        show(&format!("ours  {name}"), ours);
        let (low, top) = (best(floor), best(ours));
        let (p50, p99) = (top.p50_us / low.p50_us, top.p99_us / low.p99_us);
        let (rate, cpu) = (top.rate / low.rate, top.cpu_ns / low.cpu_ns);
        println!("ratio {name:<28} | p50 {p50:.2} | p99 {p99:.2} | rate {rate:.2} | cpu {cpu:.2}");
        result["floor"][&name] = figures_json(floor);
        result["ours"][&name] = figures_json(ours);
        for (what, ratio) in [("p50", p50), ("p99", p99), ("throughput", rate), ("cpu", cpu)] {
            result["ratio"][format!("{what}_{name}")] = json!(ratio);
            if *placement == PLACEMENTS[0] {
                result[format!("ratio_{what}_{outstanding}")] = json!(ratio);
            }
        }
    }
    result
}
