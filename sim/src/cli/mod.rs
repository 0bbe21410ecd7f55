//! The command `spotmesh-sim`.

mod exhaust;
mod explore;
mod planted;
mod replay;
mod scenario;
mod shrink;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use serde::Serialize;

/// Simulated Spotmesh clusters under faults.
#[derive(Debug, Parser)]
#[command(name = "spotmesh-sim", version, about)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run many seeds; report violations and marks never reached.
    Explore(explore::Explore),
    /// Explore a small scope exhaustively.
    Exhaust(exhaust::Exhaust),
    /// Run one seed or action list again, with a trace if asked for.
    Replay(replay::Replay),
    /// Run a scenario file.
    Run(scenario::RunScenario),
    /// Make a failing run small and write it as an action list.
    Shrink(shrink::Shrink),
    /// Plant each known bug and count the seeds until an oracle sees it.
    Planted(planted::Planted),
}

/// Runs the command line; the exit code says whether all was well.
#[must_use]
pub fn main() -> ExitCode {
    // Panics of a simulated engine are findings, reported with their seed; the default hook would only add noise.
    std::panic::set_hook(Box::new(|_| {}));
    let result = match Cli::parse().command {
        Command::Explore(command) => command.run(),
        Command::Exhaust(command) => command.run(),
        Command::Replay(command) => command.run(),
        Command::Run(command) => command.run(),
        Command::Shrink(command) => command.run(),
        Command::Planted(command) => command.run(),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(text) => {
            eprintln!("spotmesh-sim: {text}");
            ExitCode::from(2)
        }
    }
}

/// The last line of output under `--json`.
fn print_json(value: &impl Serialize) -> Result<(), String> {
    let text = serde_json::to_string(value).map_err(|error| error.to_string())?;
    println!("{text}");
    Ok(())
}

/// How to run the program again.
fn program() -> &'static str {
    "cargo run --release -p spotmesh-sim --"
}

fn read_file(path: &std::path::Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write_file(path: &std::path::Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
