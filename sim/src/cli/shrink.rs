//! `shrink`: a small action list from a failing run.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::replay::load;
use super::{print_json, program, write_file};
use crate::shrink::shrink;

#[derive(Debug, Args)]
pub(super) struct Shrink {
    /// The seed.
    #[arg(long, required_unless_present = "actions", conflicts_with = "actions")]
    seed: Option<u64>,
    /// An action list that fails.
    #[arg(long)]
    actions: Option<PathBuf>,
    /// Where the small list goes.
    #[arg(long)]
    out: Option<PathBuf>,
    /// The seed draws nothing but this incident.
    #[arg(long)]
    incident: Option<String>,
    /// Plant this bug first.
    #[arg(long)]
    plant: Option<String>,
    /// Runs to try at most.
    #[arg(long, default_value_t = 2_000)]
    budget: u32,
    /// Print one JSON object as the last line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    seed: u64,
    oracle: String,
    actions_before: usize,
    actions: usize,
    tried: u32,
    file: String,
}

impl Shrink {
    pub(super) fn run(self) -> Result<bool, String> {
        let mut run = load(self.seed, self.actions.as_ref(), self.incident.as_deref())?;
        if self.plant.is_some() {
            run.plant = self.plant;
        }
        let before = run.actions.len();
        let Some(shrunk) = shrink(&run, self.budget) else {
            println!("seed {} does not fail", run.seed);
            return Ok(true);
        };
        let path = self.out.unwrap_or_else(|| PathBuf::from(format!("seed-{}.ron", run.seed)));
        write_file(&path, &shrunk.run.to_ron())?;
        let violation = &shrunk.outcome.violations[0];
        println!(
            "{} actions left of {before} after {} runs; oracle `{}` at {:.6} s:\n  {}\n  {} replay --actions {}",
            shrunk.run.actions.len(),
            shrunk.tried,
            violation.oracle,
            violation.at as f64 / 1e9,
            violation.text,
            program(),
            path.display()
        );
        if self.json {
            print_json(&Report {
                seed: run.seed,
                oracle: violation.oracle.to_owned(),
                actions_before: before,
                actions: shrunk.run.actions.len(),
                tried: shrunk.tried,
                file: path.display().to_string(),
            })?;
        }
        Ok(false)
    }
}
