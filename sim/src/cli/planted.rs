//! `planted`: how many seeds until an oracle sees each known bug.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;
use spotmesh::planted::Mutant;

use super::print_json;
use crate::outcome::execute;
use crate::plan;

#[derive(Debug, Args)]
pub(super) struct Planted {
    /// Only this bug.
    #[arg(long)]
    only: Option<String>,
    /// Seeds to try for each bug at most.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    start: u64,
    /// Worker threads.
    #[arg(long, default_value_t = 2)]
    jobs: u64,
    /// Print one JSON object as the last line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Bug {
    name: &'static str,
    caught: bool,
    seeds: u64,
    seconds: f64,
    oracle: Option<&'static str>,
    seed: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Report {
    planted: u64,
    caught: u64,
    bugs: Vec<Bug>,
}

impl Planted {
    pub(super) fn run(self) -> Result<bool, String> {
        let mutants: Vec<Mutant> = match &self.only {
            Some(name) => vec![Mutant::from_name(name).ok_or_else(|| {
                let names: Vec<&str> = Mutant::ALL.iter().map(|mutant| mutant.name()).collect();
                format!("no bug is called {name}; there are {}", names.join(", "))
            })?],
            None => Mutant::ALL.to_vec(),
        };
        let bar = ProgressBar::new(mutants.len() as u64);
        let next = AtomicUsize::new(0);
        let (send, receive) = mpsc::channel();
        let mut bugs: Vec<(usize, Bug)> = std::thread::scope(|scope| {
            for _ in 0..self.jobs.clamp(1, 64) {
                let (send, next, mutants, this) = (send.clone(), &next, &mutants, &self);
                scope.spawn(move || {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(mutant) = mutants.get(at) else { return };
                        if send.send((at, this.hunt(*mutant))).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(send);
            receive.into_iter().inspect(|_| bar.inc(1)).collect()
        });
        bar.finish_and_clear();
        bugs.sort_by_key(|(at, _)| *at);
        let bugs: Vec<Bug> = bugs.into_iter().map(|(_, bug)| bug).collect();
        let report = Report {
            planted: bugs.len() as u64,
            caught: bugs.iter().filter(|bug| bug.caught).count() as u64,
            bugs,
        };
        println!("{:<28} {:>8} {:>8} {:>9}  oracle", "bug", "caught", "seeds", "seconds");
        for bug in &report.bugs {
            let caught = if bug.caught { "yes" } else { "NO" };
            let oracle = bug.oracle.unwrap_or("-");
            println!("{:<28} {caught:>8} {:>8} {:>9.2}  {oracle}", bug.name, bug.seeds, bug.seconds);
        }
        println!("{} of {} caught", report.caught, report.planted);
        if self.json {
            print_json(&report)?;
        }
        Ok(report.caught == report.planted)
    }

    /// Runs seeds with the bug planted until an oracle objects that does not object without it.
    fn hunt(&self, mutant: Mutant) -> Bug {
        let begun = Instant::now();
        for seeds in 0..self.seeds {
            let seed = self.start + seeds;
            let mut run = plan::draw(seed);
            run.plant = Some(mutant.name().to_owned());
            let outcome = execute(&Arc::new(run));
            if outcome.violations.is_empty() || !execute(&Arc::new(plan::draw(seed))).violations.is_empty() {
                continue;
            }
            return Bug {
                name: mutant.name(),
                caught: true,
                seeds: seeds + 1,
                seconds: begun.elapsed().as_secs_f64(),
                oracle: outcome.oracle(),
                seed: Some(seed),
            };
        }
        Bug {
            name: mutant.name(),
            caught: false,
            seeds: self.seeds,
            seconds: begun.elapsed().as_secs_f64(),
            oracle: None,
            seed: None,
        }
    }
}
