//! `replay`: one run again.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use serde::Serialize;

use super::{print_json, read_file, write_file};
use crate::action::Run;
use crate::oracle::Violation;
use crate::outcome::execute_traced;
use crate::page;
use crate::plan;

#[derive(Debug, Args)]
pub(super) struct Replay {
    /// The seed.
    #[arg(long, required_unless_present = "actions", conflicts_with = "actions")]
    seed: Option<u64>,
    /// An action list, as `shrink` writes it.
    #[arg(long)]
    actions: Option<PathBuf>,
    /// Write a readable trace there.
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Write a page with the trace there, to be opened in a browser.
    #[arg(long)]
    html: Option<PathBuf>,
    /// Write the run's action list there.
    #[arg(long)]
    out: Option<PathBuf>,
    /// The seed draws nothing but this incident.
    #[arg(long)]
    incident: Option<String>,
    /// Plant this bug first.
    #[arg(long)]
    plant: Option<String>,
    /// Print one JSON object as the last line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    seed: u64,
    trace_hash: String,
    inputs: u64,
    violations: Vec<Violation>,
}

/// The run of a seed or of a file.
pub(super) fn load(
    seed: Option<u64>,
    actions: Option<&PathBuf>,
    incident: Option<&str>,
) -> Result<Run, String> {
    match (seed, actions, incident) {
        (_, Some(path), _) => Run::from_ron(&read_file(path)?),
        (Some(seed), None, Some(name)) => Ok(plan::draw_incident(seed, name)),
        (Some(seed), None, None) => Ok(plan::draw(seed)),
        (None, None, _) => Err("expected a seed or an action list".to_owned()),
    }
}

impl Replay {
    pub(super) fn run(self) -> Result<bool, String> {
        let mut run = load(self.seed, self.actions.as_ref(), self.incident.as_deref())?;
        if self.plant.is_some() {
            run.plant = self.plant;
        }
        if let Some(path) = &self.out {
            write_file(path, &run.to_ron())?;
        }
        let seed = run.seed;
        let wanted = self.trace.is_some() || self.html.is_some();
        let (outcome, trace) = execute_traced(&Arc::new(run), wanted);
        if let Some(path) = &self.trace {
            write_file(path, &(trace.lines().join("\n") + "\n"))?;
            println!("trace of {} lines: {}", trace.entries().len(), path.display());
        }
        if let Some(path) = &self.html {
            write_file(path, &page::render(&format!("seed {seed}"), &trace, &outcome.violations)?)?;
            println!("page: {}", path.display());
        }
        println!(
            "seed {seed}: {} inputs in {:.3} virtual seconds, trace hash {:016x}",
            outcome.inputs,
            outcome.virtual_ns as f64 / 1e9,
            outcome.trace_hash
        );
        for violation in &outcome.violations {
            println!(
                "at {:.6} s, oracle `{}`: {}",
                violation.at as f64 / 1e9,
                violation.oracle,
                violation.text
            );
        }
        let good = outcome.violations.is_empty();
        if good {
            println!("no violation");
        }
        if self.json {
            print_json(&Report {
                seed,
                trace_hash: format!("{:016x}", outcome.trace_hash),
                inputs: outcome.inputs,
                violations: outcome.violations,
            })?;
        }
        Ok(good)
    }
}
