//! Benchmarks with their floors in the same run: `bench <W2|W4|W6> [--json]`; see docs/performance.md.
//!
//! Nothing here asserts a time. Every figure is one of five rounds, floor and subject in turn, and what is compared is
//! the ratio.

mod actor;
mod measure;
mod ping;
mod remote_store;
mod w2;
mod w4;
mod w6;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};

/// What goes wrong in a benchmark is told and ends it.
pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

#[derive(Parser)]
#[command(about = "Benchmarks of Spotmesh, each against a floor measured in the same run")]
struct Options {
    /// Which one.
    workload: Workload,
    /// One JSON object on the last line.
    #[arg(long)]
    json: bool,
    /// Rounds; the best one counts, the spread is shown.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Runs only the subject at this many outstanding requests, once and for this many seconds, for a profiler.
    #[arg(long, num_args = 2, value_names = ["OUTSTANDING", "SECONDS"])]
    profile: Option<Vec<u64>>,
    /// What a child process serves, and its arguments.
    #[arg(long, hide = true, num_args = 1..=3)]
    child: Option<Vec<String>>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Workload {
    /// Local ask against a Tokio channel.
    #[value(name = "W2")]
    W2,
    /// Remote ask against a bare ZeroMQ ping.
    #[value(name = "W4")]
    W4,
    /// 100,000 idle Actors.
    #[value(name = "W6")]
    W6,
}

fn run(options: &Options) -> Outcome<serde_json::Value> {
    if let Some(child) = &options.child {
        let arguments: Vec<&str> = child.iter().map(String::as_str).collect();
        match (options.workload, arguments.as_slice()) {
            (Workload::W4, ["echo"]) => ping::serve()?,
            (Workload::W4, ["host", store]) => w4::serve(store)?,
            (Workload::W6, ["host", store, count]) => w6::serve(store, count.parse()?)?,
            (Workload::W6, ["table", count]) => w6::table(count.parse()?)?,
            (_, other) => return Err(format!("expected a child's role, found {other:?}").into()),
        }
        return Ok(serde_json::Value::Null);
    }
    println!("load before: {}", measure::load());
    let profile = match options.profile.as_deref() {
        Some([outstanding, seconds]) => Some((usize::try_from(*outstanding)?, *seconds)),
        _ => None,
    };
    let result = match options.workload {
        Workload::W2 => w2::run(options.rounds, profile),
        Workload::W4 => w4::run(options.rounds, profile),
        Workload::W6 => w6::run(options.rounds),
    };
    println!("load after: {}", measure::load());
    result
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(result) => {
            if options.json {
                println!("{result}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
