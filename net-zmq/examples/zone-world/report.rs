//! What was counted, what was expected of it, and how it is shown.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::game::{Books, PlayerBooks, STEPS_A_ZONE};
use crate::play::Walked;

/// Failures that are told one by one; the rest is counted.
const TOLD: usize = 20;

/// Everything that was counted.
#[derive(Debug, Default)]
pub struct Tally {
    created: u64,
    /// Objects with another number of creators or generations than one.
    contested: u64,
    requests: u64,
    cross_node: u64,
    cheers: u64,
    failed: u64,
    lost: u64,
    duplicated: u64,
    visits_expected: u64,
    visits: Books,
    latencies: Vec<u32>,
    failures: Vec<String>,
}

/// The numbers of a run; the last line under `--json`.
#[derive(Debug, Serialize)]
pub struct Report {
    pub nodes: u64,
    /// Players and zones created, each through all nodes at once.
    pub created: u64,
    /// Factory runs of all hosts.
    pub factory_runs: u64,
    /// Steps answered with exactly the number expected.
    pub requests: u64,
    /// Of them those that crossed from one node to another.
    pub cross_node: u64,
    /// Requests of players to zones.
    pub visits: u64,
    /// One-way messages.
    pub sends: u64,
    pub failed: u64,
    pub lost: u64,
    pub duplicated: u64,
    pub seconds: f64,
    pub requests_per_second: u64,
    pub p50_us: u32,
    pub p99_us: u32,
    pub max_us: u32,
    pub stopped: u64,
    pub passed: bool,
    pub failures: Vec<String>,
}

impl Tally {
    fn fail(&mut self, what: String) {
        if self.failures.len() < TOLD {
            self.failures.push(what);
        }
    }

    pub fn fail_creation(&mut self, id: &str, error: &str) {
        self.failed += 1;
        self.fail(format!("{id} could not be created: {error}"));
    }

    pub fn fail_audit(&mut self, id: &str, error: &spotmesh::app::Error) {
        self.failed += 1;
        self.fail(format!("{id} did not show its books: {error}"));
    }

    /// All calls of one id have ended.
    pub fn creation(&mut self, id: &str, created: u64, generations: usize) {
        self.created += created;
        if created != 1 || generations != 1 {
            self.contested += 1;
            self.fail(format!(
                "{id}: expected one Created and one generation, found {created} and {generations}"
            ));
        }
    }

    /// A player's books against what was asked of it.
    pub fn player(&mut self, walked: &Walked, books: PlayerBooks) {
        self.requests += walked.steps;
        self.cross_node += walked.cross_node;
        self.cheers += walked.cheers;
        self.failed += walked.wrong.len() as u64;
        self.latencies.extend(&walked.latencies);
        self.visits_expected += walked.steps / STEPS_A_ZONE;
        for wrong in &walked.wrong {
            self.fail(format!("{}: {wrong}", walked.id));
        }
        let steps = books.steps;
        self.lost += steps.lost + walked.steps.saturating_sub(steps.last);
        self.duplicated += steps.duplicated;
        self.lost += walked.cheers.saturating_sub(books.cheers);
        self.duplicated += books.cheers.saturating_sub(walked.cheers);
        if (steps.handled, steps.lost, steps.duplicated) != (walked.steps, 0, 0) {
            self.fail(format!("{}: expected {} steps, found {steps:?}", walked.id, walked.steps));
        }
        if (books.cheers, books.cheers_sum) != (walked.cheers, walked.cheers_sum) {
            self.fail(format!(
                "{}: expected {} cheers, found {} (or others)",
                walked.id, walked.cheers, books.cheers
            ));
        }
    }

    /// The sum of a zone's books.
    pub fn zone(&mut self, books: Books) {
        self.visits.handled += books.handled;
        self.visits.lost += books.lost;
        self.visits.duplicated += books.duplicated;
    }

    /// Judges the run.
    pub fn report(
        mut self,
        nodes: u64,
        objects: u64,
        owning_nodes: u64,
        runs: &BTreeMap<String, u64>,
        stops: Vec<Result<(), String>>,
        seconds: f64,
    ) -> Report {
        self.lost += self.visits.lost + self.visits_expected.saturating_sub(self.visits.handled);
        self.duplicated += self.visits.duplicated;
        if self.visits.handled != self.visits_expected {
            self.fail(format!("expected {} visits, found {:?}", self.visits_expected, self.visits));
        }
        if self.created != objects {
            self.fail(format!("expected {objects} objects created, found {}", self.created));
        }
        let twice: Vec<_> = runs.iter().filter(|(_, runs)| **runs != 1).collect();
        if !twice.is_empty() || runs.len() as u64 != objects {
            self.fail(format!(
                "expected one factory run of {objects} ids, found {} ids, more than one: {twice:?}",
                runs.len()
            ));
        }
        if self.cross_node == 0 {
            self.fail("expected requests from node to node, found none".to_owned());
        }
        if owning_nodes != nodes {
            self.fail(format!("expected players on {nodes} nodes, found them on {owning_nodes}"));
        }
        let stopped = stops.iter().filter(|stop| stop.is_ok()).count() as u64;
        for stop in stops {
            if let Err(why) = stop {
                self.fail(why);
            }
        }
        self.latencies.sort_unstable();
        let at = |share: f64| {
            let last = self.latencies.len().saturating_sub(1);
            self.latencies.get((last as f64 * share) as usize).copied().unwrap_or(0)
        };
        Report {
            nodes,
            created: self.created,
            factory_runs: runs.values().sum(),
            requests: self.requests,
            cross_node: self.cross_node,
            visits: self.visits.handled,
            sends: self.cheers,
            failed: self.failed,
            lost: self.lost,
            duplicated: self.duplicated,
            seconds,
            requests_per_second: (self.requests as f64 / seconds) as u64,
            p50_us: at(0.5),
            p99_us: at(0.99),
            max_us: at(1.0),
            stopped,
            passed: self.failures.is_empty() && self.failed + self.lost + self.duplicated == 0,
            failures: self.failures,
        }
    }
}

impl Report {
    /// The summary for people.
    pub fn show(&self) {
        println!();
        println!("created      {:>10}   objects, each through {} nodes at once", self.created, self.nodes);
        println!("factory runs {:>10}", self.factory_runs);
        println!(
            "requests     {:>10}   {}/s, p50 {} us, p99 {} us, longest {} us",
            self.requests, self.requests_per_second, self.p50_us, self.p99_us, self.max_us
        );
        println!("cross-node   {:>10}", self.cross_node);
        println!("zone visits  {:>10}", self.visits);
        println!("sends        {:>10}", self.sends);
        println!("failed {}, lost {}, duplicated {}", self.failed, self.lost, self.duplicated);
        for failure in &self.failures {
            println!("FAILED: {failure}");
        }
        println!("{}", if self.passed { "everything was as expected" } else { "NOT as expected" });
    }
}
