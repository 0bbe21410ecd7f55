//! Three hosts on real sockets in one process: players are created through all of them at once, walk from zone
//! to zone, and every message is accounted for in the end.
//!
//! `cargo run --release -p spotmesh-net-zmq --example zone-world -- --seconds 10`

mod game;
mod play;
mod report;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use spotmesh::app::ShutdownOutcome;
use spotmesh_net_zmq::{ZmqConfig, ZmqHost};
use spotmesh_store_memory::MemoryStore;

use play::Seat;
use report::{Report, Tally};

const NAMES: [&str; 3] = ["ash", "elm", "oak"];
const SHUTDOWN: Duration = Duration::from_secs(15);

/// A small game world on three hosts.
#[derive(Debug, Parser)]
struct Arguments {
    /// How long the players walk.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// How many players there are, each with one request under way at a time.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    players: u64,
    /// How many zones there are.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    zones: u32,
    /// Print one JSON object as the last line.
    #[arg(long)]
    json: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments).await {
        Ok(report) => {
            report.show();
            if arguments.json {
                match serde_json::to_string(&report) {
                    Ok(line) => println!("{line}"),
                    Err(error) => eprintln!("zone-world: {error}"),
                }
            }
            if report.passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("zone-world: {error}");
            ExitCode::from(2)
        }
    }
}

async fn run(arguments: &Arguments) -> Result<Report, String> {
    let store = MemoryStore::new();
    let seats = NAMES.map(|name| {
        let running = ZmqHost::start(game::node(name, store.clone()), ZmqConfig::default());
        running.map(|running| Seat::new(name, running)).map_err(|error| format!("{name}: {error}"))
    });
    let mut seats = seats.into_iter().collect::<Result<Vec<_>, _>>()?;
    play::meet(&mut seats).await?;
    let seats = Arc::new(seats);
    println!("{} serve and are connected", NAMES.join(", "));

    let mut tally = Tally::default();
    let objects = arguments.players + u64::from(arguments.zones);
    let bar = progress(objects, "{elapsed_precise} {wide_bar} {pos}/{len} created through 3 nodes each");
    let owners = play::populate(&seats, arguments.players, arguments.zones, &bar, &mut tally).await;
    bar.finish_and_clear();
    for (number, seat) in seats.iter().enumerate() {
        let owned = owners.values().filter(|owner| **owner == number).count();
        println!("{} owns {owned} of {objects} players and zones", seat.name);
    }

    let begun = Instant::now();
    let end = begun + Duration::from_secs(arguments.seconds);
    let bar = progress(arguments.seconds * 1_000, "{elapsed_precise} {wide_bar} {msg}");
    let walked = play::play(&seats, &owners, end, &bar).await;
    bar.finish_and_clear();
    let seconds = begun.elapsed().as_secs_f64();
    println!("the players walked for {seconds:.1} s; asking everybody for their books");
    let bar = progress(objects, "{elapsed_precise} {wide_bar} {pos}/{len} books checked");
    play::audit(&seats, &walked, arguments.zones, &bar, &mut tally).await;
    bar.finish_and_clear();

    let owning = owners.values().collect::<BTreeSet<_>>().len() as u64;
    let stops = stop(seats).await?;
    println!("all hosts have ended");
    Ok(tally.report(NAMES.len() as u64, objects, owning, &game::factory_runs(), stops, seconds))
}

/// Shuts all hosts down at once.
async fn stop(seats: Arc<Vec<Seat>>) -> Result<Vec<Result<(), String>>, String> {
    let seats = Arc::into_inner(seats).ok_or("a player still walks after the end")?;
    let stops = seats.into_iter().map(|Seat { name, running, .. }| async move {
        match running.stop(SHUTDOWN).await {
            Ok(ShutdownOutcome::Stopped) => Ok(()),
            Ok(forced) => Err(format!("{name}: expected a clean shutdown, found {forced:?}")),
            Err(error) => Err(format!("{name}: {error}")),
        }
    });
    Ok(futures::future::join_all(stops).await)
}

fn progress(length: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style)
}
