//! W2: a local ask against an echo task behind a Tokio channel.
//!
//! `threads`: the caller on one thread, the host's loop or the echo task on another. `loop`: both on one thread, so
//! that no wake-up of a thread is in the figure.

use std::future::Future;
use std::time::Duration;

use futures::future::{Either, select};
use serde_json::json;
use spotmesh::app::{Created, HostBuilder, HostHandle};
use spotmesh_net_zmq::{Reactor, TokioExecutor, ZmqConfig, ZmqHost, ZmqTransport};
use spotmesh_store_memory::MemoryStore;
use tokio::sync::{mpsc, oneshot};

use crate::Outcome;
use crate::actor::{Ask, Subject, server};
use crate::measure::{Figures, best, closed_loop, json as figures_json, show};

const OUTSTANDING: [usize; 2] = [1, 64];
const SPAN: Duration = Duration::from_millis(400);
const ID: &str = "subject-of-the-local-ask";

/// What the echo task gets: a number, and where the next one goes.
type Question = (u64, oneshot::Sender<u64>);

#[derive(Debug)]
pub(crate) struct Gone;

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the echo task has ended")
    }
}

impl std::error::Error for Gone {}

async fn echo(mut questions: mpsc::Receiver<Question>) {
    while let Some((number, answer)) = questions.recv().await {
        // A caller that has gone needs no answer.
        let _ = answer.send(number + 1);
    }
}

async fn ask_channel(questions: &mpsc::Sender<Question>) -> Result<(), Gone> {
    let (answer, answered) = oneshot::channel();
    questions.send((1, answer)).await.map_err(|_| Gone)?;
    answered.await.map_err(|_| Gone).map(|_| ())
}

fn plan() -> HostBuilder {
    HostBuilder::new().store(MemoryStore::new()).mesh("bench", server)
}

async fn prepare(host: &HostHandle) -> Outcome<()> {
    host.wait_serving().await?;
    match host.actors().create::<Subject>(ID, 0).await? {
        Created::Accepted { .. } => Ok(()),
        _ => Err("expected a new Actor".into()),
    }
}

async fn ask_host(host: &HostHandle) -> Result<(), spotmesh::model::Error> {
    host.actor::<Subject>(ID).request(Ask).await.map(|_| ())
}

fn small_runtime() -> Outcome<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Runs `work` on this thread together with a host on the same thread.
fn beside_a_loop<F: Future<Output = Outcome<R>>, R>(work: impl FnOnce(HostHandle) -> F) -> Outcome<R> {
    let calls = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let reactor = Reactor::new()?;
    let transport = ZmqTransport::new(ZmqConfig::default(), &reactor)?;
    let executor = TokioExecutor::new(calls.handle().clone());
    let (host, driver) = plan().build()?.start(transport, reactor.clock(), executor, [7; 32])?;
    reactor.block_on(async {
        let work = std::pin::pin!(async {
            prepare(&host).await?;
            work(host.clone()).await
        });
        match select(work, std::pin::pin!(driver)).await {
            Either::Left((result, _)) => result,
            Either::Right(_) => Err("the host ended".into()),
        }
    })
}

pub(crate) fn run(rounds: usize, profile: Option<(usize, u64)>) -> Outcome<serde_json::Value> {
    if let Some((outstanding, seconds)) = profile {
        let figures = beside_a_loop(async |host| {
            closed_loop(outstanding, Duration::from_secs(seconds), &[], || ask_host(&host)).await
        })?;
        show("profiled loop", &[figures]);
        return Ok(serde_json::Value::Null);
    }
    let mut all: Vec<(&str, usize, Vec<Figures>, Vec<Figures>)> = Vec::new();
    threads(rounds, &mut all)?;
    one_thread(rounds, &mut all)?;
    let mut result = json!({"workload": "W2", "ours": {}, "floor": {}, "ratio": {}});
    for (placement, outstanding, floor, ours) in &all {
        let name = format!("{placement}_{outstanding}");
        show(&format!("floor {name}"), floor);
        show(&format!("ours  {name}"), ours);
        let (low, top) = (best(floor), best(ours));
        let (cpu, p50) = (top.cpu_ns / low.cpu_ns, top.p50_us / low.p50_us);
        println!("ratio {name:<28} | cpu {cpu:.2} | p50 {p50:.2} | rate {:.2}", top.rate / low.rate);
        result["floor"][&name] = figures_json(floor);
        result["ours"][&name] = figures_json(ours);
        result["ratio"][format!("cpu_{name}")] = json!(cpu);
        result["ratio"][format!("p50_{name}")] = json!(p50);
    }
    for outstanding in OUTSTANDING {
        result[format!("ratio_cpu_{outstanding}")] =
            result["ratio"][format!("cpu_threads_{outstanding}")].clone();
    }
    result["ratio_cpu"] = result["ratio_cpu_1"].clone();
    Ok(result)
}

type Table = Vec<(&'static str, usize, Vec<Figures>, Vec<Figures>)>;

fn threads(rounds: usize, all: &mut Table) -> Outcome<()> {
    // Started outside of a runtime, so the host has one of its own for Store calls.
    let running = ZmqHost::start(plan(), ZmqConfig::default())?;
    let host = running.handle().clone();
    let (questions, asked) = mpsc::channel(1_024);
    let echo_runtime = small_runtime()?;
    let thread = std::thread::spawn(move || echo_runtime.block_on(echo(asked)));
    let runtime = small_runtime()?;
    runtime.block_on(async {
        prepare(&host).await?;
        for outstanding in OUTSTANDING {
            let (mut floor, mut ours) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                floor.push(closed_loop(outstanding, SPAN, &[], || ask_channel(&questions)).await?);
                ours.push(closed_loop(outstanding, SPAN, &[], || ask_host(&host)).await?);
            }
            all.push(("threads", outstanding, floor, ours));
        }
        running.stop(Duration::from_secs(10)).await?;
        Outcome::Ok(())
    })?;
    drop(questions);
    thread.join().map_err(|_| "the echo thread panicked")?;
    Ok(())
}

fn one_thread(rounds: usize, all: &mut Table) -> Outcome<()> {
    for outstanding in OUTSTANDING {
        let (mut floor, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let runtime = small_runtime()?;
            floor.push(runtime.block_on(async {
                let (questions, asked) = mpsc::channel(1_024);
                tokio::spawn(echo(asked));
                closed_loop(outstanding, SPAN, &[], || ask_channel(&questions)).await
            })?);
            ours.push(beside_a_loop(async |host| {
                closed_loop(outstanding, SPAN, &[], || ask_host(&host)).await
            })?);
        }
        all.push(("loop", outstanding, floor, ours));
    }
    Ok(())
}
