//! `exhaust`: a small scope, every order of events.

use clap::Args;
use serde::Serialize;

use super::print_json;
use crate::exhaust::{explore, scopes};
use crate::oracle::Violation;

#[derive(Debug, Args)]
pub(super) struct Exhaust {
    /// Which scope; all of them when absent.
    #[arg(long)]
    scope: Option<String>,
    /// States at most, for each scope.
    #[arg(long, default_value_t = 1_000_000)]
    states: u64,
    /// Print one JSON object as the last line, an array of them for several scopes.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    scope: &'static str,
    states: u64,
    steps: u64,
    ends: u64,
    depth: usize,
    complete: bool,
    violations: Vec<Violation>,
    seconds: f64,
}

impl Exhaust {
    pub(super) fn run(self) -> Result<bool, String> {
        let mut chosen = scopes();
        if let Some(name) = &self.scope {
            chosen.retain(|scope| scope.name == name);
            if chosen.is_empty() {
                let names: Vec<&str> = scopes().iter().map(|scope| scope.name).collect();
                return Err(format!("no scope is called {name}; there are {}", names.join(", ")));
            }
        }
        let mut reports = Vec::new();
        for scope in &chosen {
            let explored = explore(scope, self.states)?;
            println!(
                "{:<16} {:>8} states, {:>9} steps, {:>6} ends, depth {:>3}, {} in {:.1} s: {}",
                scope.name,
                explored.states,
                explored.steps,
                explored.ends,
                explored.depth,
                if explored.complete { "complete" } else { "incomplete" },
                explored.took.as_secs_f64(),
                scope.about
            );
            if let Some((violation, path)) = &explored.found {
                println!("  oracle `{}`: {}", violation.oracle, violation.text);
                println!("  after {} choices: {path:?}", path.len());
            }
            reports.push(Report {
                scope: scope.name,
                states: explored.states,
                steps: explored.steps,
                ends: explored.ends,
                depth: explored.depth,
                complete: explored.complete,
                violations: explored.found.into_iter().map(|(violation, _)| violation).collect(),
                seconds: explored.took.as_secs_f64(),
            });
        }
        let good = reports.iter().all(|report| report.violations.is_empty());
        if self.json {
            match &reports[..] {
                [one] => print_json(one)?,
                all => print_json(&all)?,
            }
        }
        Ok(good)
    }
}
