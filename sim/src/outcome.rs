//! Runs worlds and says how they ended.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde::Serialize;
use spotmesh::mark::Marks;

use crate::action::Run;
use crate::oracle::Violation;
use crate::oracle::calls::{Calls, End};
use crate::trace::Trace;
use crate::world::World;

/// How a run ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// What the oracles found; empty for a good run.
    pub violations: Vec<Violation>,
    /// Inputs and wake-ups given to hosts.
    pub inputs: u64,
    /// Running hash over everything; of a panicked run, 0.
    pub trace_hash: u64,
    /// Marks reached.
    pub marks: Marks,
    /// Virtual time, in nanoseconds.
    pub virtual_ns: u64,
    /// How calls ended.
    pub calls: CallCounts,
}

/// How the calls of a run ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CallCounts {
    /// Calls made.
    pub made: u64,
    /// Ended in a result.
    pub succeeded: u64,
    /// Ended in an error.
    pub failed: u64,
    /// Given up by their caller, or lost with its process.
    pub lost: u64,
}

impl CallCounts {
    fn of(calls: &Calls) -> Self {
        let mut counts = Self::default();
        for call in calls.iter() {
            counts.made += 1;
            match &call.end {
                Some((_, End::Answered(spotmesh::output::Answer::Failed(_)))) => counts.failed += 1,
                Some((_, End::Answered(_))) => counts.succeeded += 1,
                Some(_) => counts.lost += 1,
                None => {}
            }
        }
        counts
    }
}

impl std::ops::AddAssign for CallCounts {
    fn add_assign(&mut self, other: Self) {
        self.made += other.made;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.lost += other.lost;
    }
}

impl Outcome {
    fn of(world: &World) -> Self {
        Self {
            violations: world.violations().to_vec(),
            inputs: world.inputs(),
            trace_hash: world.trace_hash(),
            marks: world.marks(),
            virtual_ns: world.now(),
            calls: CallCounts::of(&world.oracles().calls),
        }
    }

    fn refused(oracle: &'static str, text: String) -> Self {
        Self {
            violations: vec![Violation { oracle, at: 0, text }],
            inputs: 0,
            trace_hash: 0,
            marks: Marks::default(),
            virtual_ns: 0,
            calls: CallCounts::default(),
        }
    }

    /// The oracle that failed first.
    #[must_use]
    pub fn oracle(&self) -> Option<&'static str> {
        self.violations.first().map(|violation| violation.oracle)
    }
}

/// Runs a list to its end. A panic of the engine is a violation like any other.
#[must_use]
pub fn execute(run: &Arc<Run>) -> Outcome {
    execute_traced(run, false).0
}

/// As [`execute`], and keeps a readable trace where asked to.
#[must_use]
pub fn execute_traced(run: &Arc<Run>, trace: bool) -> (Outcome, Trace) {
    let mut world = match World::new(Arc::clone(run)) {
        Ok(world) => world,
        Err(text) => return (Outcome::refused("run", text), Trace::default()),
    };
    if trace {
        world.keep_trace();
    }
    let ended = catch_unwind(AssertUnwindSafe(|| world.run_to_end()));
    let kept = world.trace().cloned().unwrap_or_default();
    match ended {
        Ok(()) => (Outcome::of(&world), kept),
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                .unwrap_or_else(|| "no message".to_owned());
            let mut outcome = Outcome::refused("panic", text);
            outcome.inputs = world.inputs();
            outcome.violations[0].at = world.now();
            (outcome, kept)
        }
    }
}
