//! Makes a failing run small: drops actions, then simplifies what is left, as long as the same oracle objects.

use std::sync::Arc;

use crate::action::{Action, Run};
use crate::clock::RATE_ONE;
use crate::net::NetworkSpec;
use crate::outcome::{Outcome, execute};

/// What shrinking reached.
#[derive(Debug, Clone)]
pub struct Shrunk {
    /// The smallest failing run found.
    pub run: Run,
    /// Its outcome.
    pub outcome: Outcome,
    /// Runs tried.
    pub tried: u32,
}

/// Shrinks a failing run; `None` where it does not fail. At most `budget` runs are tried.
#[must_use]
pub fn shrink(run: &Run, budget: u32) -> Option<Shrunk> {
    shrink_with(run, budget, |run| execute(&Arc::new(run.clone())))
}

/// As [`shrink`], judged by any function.
pub fn shrink_with(run: &Run, budget: u32, judge: impl Fn(&Run) -> Outcome) -> Option<Shrunk> {
    let outcome = judge(run);
    let oracle = outcome.oracle()?;
    let mut state = Search { oracle, best: run.clone(), outcome, tried: 0, budget, judge };
    loop {
        let before = state.best.clone();
        state.delete_actions();
        state.simplify();
        state.drop_hosts();
        if state.best == before || state.tried >= state.budget {
            break;
        }
    }
    Some(Shrunk { run: state.best, outcome: state.outcome, tried: state.tried })
}

struct Search<J> {
    oracle: &'static str,
    best: Run,
    outcome: Outcome,
    tried: u32,
    budget: u32,
    judge: J,
}

impl<J: Fn(&Run) -> Outcome> Search<J> {
    /// Keeps the candidate where the same oracle objects to it.
    fn attempt(&mut self, candidate: Run) -> bool {
        if self.tried >= self.budget || candidate == self.best {
            return false;
        }
        self.tried += 1;
        let outcome = (self.judge)(&candidate);
        if outcome.oracle() != Some(self.oracle) {
            return false;
        }
        self.best = candidate;
        self.outcome = outcome;
        true
    }

    /// Delta debugging: drops ever smaller chunks of the list.
    fn delete_actions(&mut self) {
        let mut chunk = self.best.actions.len().div_ceil(2);
        while chunk > 0 {
            let mut at = 0;
            while at < self.best.actions.len() {
                let mut candidate = self.best.clone();
                let end = (at + chunk).min(candidate.actions.len());
                candidate.actions.drain(at..end);
                if !self.attempt(candidate) {
                    at += chunk;
                }
            }
            if chunk == 1 {
                break;
            }
            chunk = chunk.div_ceil(2);
        }
    }

    fn simplify(&mut self) {
        let edits: [fn(&mut Run); 5] = [
            |run| run.cluster.network = NetworkSpec { latency_us: (500, 500), ..NetworkSpec::default() },
            |run| run.cluster.store = crate::cluster::StoreSpec { way_us: (300, 300), ..Default::default() },
            |run| run.cluster.hosts.iter_mut().for_each(|host| host.clock_rate = RATE_ONE),
            |run| run.cluster.hosts.iter_mut().for_each(|host| host.start_ms = 0),
            |run| {
                let last = run.actions.last().map_or(0, |timed| timed.at_us / 1_000);
                run.chaos_ms = run.chaos_ms.min(last + 1_000);
            },
        ];
        for edit in edits {
            let mut candidate = self.best.clone();
            edit(&mut candidate);
            self.attempt(candidate);
        }
        for at in 0..self.best.actions.len() {
            for edit in [plain_script, no_cancel, round_time] {
                let mut candidate = self.best.clone();
                edit(&mut candidate, at);
                self.attempt(candidate);
            }
        }
    }

    /// Drops hosts from the end of the cluster together with what they do.
    fn drop_hosts(&mut self) {
        while self.best.cluster.hosts.len() > 1 {
            let mut candidate = self.best.clone();
            candidate.cluster.hosts.pop();
            let left = candidate.cluster.hosts.len();
            candidate
                .actions
                .retain(|timed| seats(&timed.action).iter().all(|seat| usize::from(*seat) < left));
            if !self.attempt(candidate) {
                break;
            }
        }
    }
}

fn plain_script(run: &mut Run, at: usize) {
    match &mut run.actions[at].action {
        Action::Create { script, .. } => {
            script.takes_us = 300;
            script.padding = 0;
        }
        Action::Message { script, .. } => *script = Default::default(),
        _ => {}
    }
}

fn no_cancel(run: &mut Run, at: usize) {
    if let Action::Create { cancel_ms, .. } | Action::Message { cancel_ms, .. } = &mut run.actions[at].action
    {
        *cancel_ms = None;
    }
}

fn round_time(run: &mut Run, at: usize) {
    let floor = if at == 0 { 0 } else { run.actions[at - 1].at_us };
    let rounded = run.actions[at].at_us / 100_000 * 100_000;
    if rounded >= floor {
        run.actions[at].at_us = rounded;
    }
}

fn seats(action: &Action) -> Vec<u8> {
    match action {
        Action::Create { host, .. }
        | Action::Find { host, .. }
        | Action::Message { host, .. }
        | Action::Weight { host, .. }
        | Action::Shutdown { host, .. }
        | Action::Kill { host, .. }
        | Action::Crash { host, .. }
        | Action::Pause { host, .. }
        | Action::PauseAt { host, .. }
        | Action::ClockRate { host, .. }
        | Action::ClockJump { host, .. } => vec![host.0],
        Action::Break { a, b, .. } => vec![a.0, b.0],
        Action::BreakOneWay { from, to, .. } | Action::Block { from, to, .. } => vec![from.0, to.0],
        Action::Congest { from, to, .. } => vec![from.0, to.0],
        Action::Partition { group, .. } => group.iter().map(|seat| seat.0).collect(),
        Action::StoreFault { host, .. } | Action::StoreOutage { host, .. } => {
            host.iter().map(|seat| seat.0).collect()
        }
        Action::StoreSlow { .. } | Action::DropHints { .. } => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::Violation;
    use crate::outcome::CallCounts;
    use crate::plan;
    use spotmesh::mark::Marks;

    /// Objects where a kill comes before a message, whatever surrounds them.
    fn judge(run: &Run) -> Outcome {
        let kill = run.actions.iter().position(|timed| matches!(timed.action, Action::Kill { .. }));
        let message = run.actions.iter().rposition(|timed| matches!(timed.action, Action::Message { .. }));
        let fails = kill.zip(message).is_some_and(|(kill, message)| kill < message);
        let violation = Violation { oracle: "test", at: 0, text: String::new() };
        Outcome {
            violations: if fails { vec![violation] } else { Vec::new() },
            inputs: 0,
            trace_hash: 0,
            marks: Marks::default(),
            virtual_ns: 0,
            calls: CallCounts::default(),
        }
    }

    #[test]
    fn shrinking_keeps_just_what_the_failure_needs() {
        let run = (0..500).map(plan::draw).find(|run| !judge(run).violations.is_empty()).unwrap();
        assert!(run.actions.len() > 10);
        let shrunk = shrink_with(&run, 5_000, judge).unwrap();
        assert_eq!(shrunk.run.actions.len(), 2, "{:?}", shrunk.run.actions);
        assert_eq!(shrunk.outcome.oracle(), Some("test"));
    }

    #[test]
    fn a_good_run_does_not_shrink_and_a_budget_is_kept() {
        let mut run = plan::draw(1);
        run.actions.clear();
        assert!(shrink_with(&run, 100, judge).is_none());
        let run = (0..500).map(plan::draw).find(|run| !judge(run).violations.is_empty()).unwrap();
        assert!(shrink_with(&run, 3, judge).unwrap().tried <= 3);
    }
}
