//! `explore`: many seeds, their violations, and the marks nobody reached.

use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use spotmesh::mark::{Mark, Marks};

use super::{print_json, program};
use crate::digest::Digest;
use crate::outcome::{CallCounts, Outcome, execute};
use crate::plan;

/// Seeds from which on a corpus from 0 has to reach every required mark.
const STANDARD_CORPUS: u64 = 200;

#[derive(Debug, Args)]
pub(super) struct Explore {
    /// How many seeds.
    #[arg(long, default_value_t = STANDARD_CORPUS)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    start: u64,
    /// Worker threads.
    #[arg(long, default_value_t = 2)]
    jobs: u64,
    /// Draw runs in which nothing but this incident goes wrong.
    #[arg(long)]
    incident: Option<String>,
    /// Show how many seeds reached each mark.
    #[arg(long)]
    marks: bool,
    /// Print one JSON object as the last line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Found {
    seed: u64,
    oracle: String,
    text: String,
    replay: String,
}

#[derive(Debug, Serialize)]
struct Report {
    seeds: u64,
    failed: u64,
    violations: Vec<Found>,
    inputs: u64,
    inputs_per_second: u64,
    inputs_per_core_second: u64,
    virtual_seconds: u64,
    calls: CallCounts,
    marks_reached: u64,
    marks_missed: Vec<&'static str>,
    marks_missed_optional: Vec<&'static str>,
    /// Seeds that reached each mark.
    marks: BTreeMap<&'static str, u64>,
    /// One hash over the trace hashes of all seeds: equal for equal code, in debug and release.
    trace_hash: String,
    seconds: f64,
}

impl Explore {
    pub(super) fn run(self) -> Result<bool, String> {
        if let Some(name) = &self.incident
            && !plan::incidents().any(|known| known == name)
        {
            let names: Vec<&str> = plan::incidents().collect();
            return Err(format!("no incident is called {name}; there are {}", names.join(", ")));
        }
        let begun = Instant::now();
        let report = self.collect(begun);
        let standard = self.start == 0 && self.seeds >= STANDARD_CORPUS && self.incident.is_none();
        self.print(&report, standard);
        let good = report.failed == 0 && (!standard || report.marks_missed.is_empty());
        if self.json {
            print_json(&report)?;
        }
        Ok(good)
    }

    fn replay(&self, seed: u64) -> String {
        let incident = self.incident.as_ref().map(|name| format!(" --incident {name}")).unwrap_or_default();
        format!("{} replay --seed {seed}{incident}", program())
    }

    fn collect(&self, begun: Instant) -> Report {
        let bar = ProgressBar::new(self.seeds);
        let style = "{elapsed_precise} {wide_bar} {pos}/{len} seeds, {per_sec}, eta {eta}{msg}";
        bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
        let next = AtomicU64::new(self.start);
        let end = self.start + self.seeds;
        let (send, receive) = mpsc::channel::<(u64, Outcome)>();
        let jobs = self.jobs.clamp(1, 64);
        let mut report = Report {
            seeds: self.seeds,
            failed: 0,
            violations: Vec::new(),
            inputs: 0,
            inputs_per_second: 0,
            inputs_per_core_second: 0,
            virtual_seconds: 0,
            calls: CallCounts::default(),
            marks_reached: 0,
            marks_missed: Vec::new(),
            marks_missed_optional: Vec::new(),
            trace_hash: String::new(),
            marks: Mark::ALL.iter().map(|mark| (mark.name(), 0)).collect(),
            seconds: 0.0,
        };
        let mut marks = Marks::default();
        let mut virtual_ns: u128 = 0;
        let mut hashes = BTreeMap::new();
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                let (send, next, incident) = (send.clone(), &next, self.incident.as_deref());
                scope.spawn(move || {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= end {
                            return;
                        }
                        let run = match incident {
                            Some(name) => plan::draw_incident(seed, name),
                            None => plan::draw(seed),
                        };
                        let outcome = execute(&Arc::new(run));
                        if send.send((seed, outcome)).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(send);
            for (seed, outcome) in receive {
                bar.inc(1);
                report.inputs += outcome.inputs;
                report.calls += outcome.calls;
                hashes.insert(seed, outcome.trace_hash);
                virtual_ns += u128::from(outcome.virtual_ns);
                marks |= outcome.marks;
                for mark in outcome.marks.iter() {
                    *report.marks.entry(mark.name()).or_default() += 1;
                }
                if let Some(first) = outcome.violations.first() {
                    report.failed += 1;
                    bar.set_message(format!(", {} failed", report.failed));
                    report.violations.push(Found {
                        seed,
                        oracle: first.oracle.to_owned(),
                        text: first.text.clone(),
                        replay: self.replay(seed),
                    });
                }
            }
        });
        bar.finish_and_clear();
        let mut digest = Digest::default();
        digest.add(&hashes);
        report.trace_hash = format!("{:016x}", digest.finish());
        report.violations.sort_by_key(|found| found.seed);
        report.seconds = begun.elapsed().as_secs_f64();
        report.inputs_per_second = (report.inputs as f64 / report.seconds) as u64;
        report.inputs_per_core_second = report.inputs_per_second / jobs;
        report.virtual_seconds = u64::try_from(virtual_ns / 1_000_000_000).unwrap_or(u64::MAX);
        report.marks_reached = marks.iter().count() as u64;
        for mark in Mark::ALL.iter().filter(|mark| !marks.contains(**mark)) {
            let list =
                if mark.required() { &mut report.marks_missed } else { &mut report.marks_missed_optional };
            list.push(mark.name());
        }
        report
    }

    fn print(&self, report: &Report, standard: bool) {
        println!(
            "{} seeds from {}: {} failed; {} inputs in {:.1} s ({} inputs/s, {} per core), {} virtual seconds",
            report.seeds,
            self.start,
            report.failed,
            report.inputs,
            report.seconds,
            report.inputs_per_second,
            report.inputs_per_core_second,
            report.virtual_seconds
        );
        let calls = &report.calls;
        println!(
            "{} calls: {} succeeded, {} failed with an error, {} given up or lost with their process",
            calls.made, calls.succeeded, calls.failed, calls.lost
        );
        println!(
            "{} of {} marks reached; trace hash {}",
            report.marks_reached,
            Mark::ALL.len(),
            report.trace_hash
        );
        if !report.marks_missed.is_empty() {
            let weight = if standard { "required here" } else { "required in the standard corpus" };
            println!("marks never reached ({weight}): {}", report.marks_missed.join(", "));
        }
        if !report.marks_missed_optional.is_empty() {
            println!("marks never reached (optional): {}", report.marks_missed_optional.join(", "));
        }
        if self.marks {
            for (mark, seeds) in &report.marks {
                println!("{seeds:>8}  {mark}");
            }
        }
        let mut oracles: BTreeMap<&str, u64> = BTreeMap::new();
        for found in &report.violations {
            *oracles.entry(&found.oracle).or_default() += 1;
        }
        if !oracles.is_empty() {
            println!("violations by oracle: {oracles:?}");
        }
        for found in report.violations.iter().take(20) {
            println!(
                "\nseed {} fails, oracle `{}`:\n  {}\n  {}",
                found.seed, found.oracle, found.text, found.replay
            );
        }
        if report.violations.len() > 20 {
            println!("\n... and {} more", report.violations.len() - 20);
        }
    }
}
