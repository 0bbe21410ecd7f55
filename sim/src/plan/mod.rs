//! Draws a run from a seed: a cluster, a workload, a set of fault classes and the faults themselves.

mod cluster;
mod faults;
mod incidents;
mod workload;

use crate::action::{Action, Run, Timed};
use crate::cluster::Cluster;
use crate::draw::Draw;

/// What the drawing functions share.
struct Plan {
    draw: Draw,
    cluster: Cluster,
    chaos_ms: u64,
    actors: Vec<(String, String)>,
    actions: Vec<Timed>,
}

impl Plan {
    fn at(&mut self, at_us: u64, action: Action) {
        self.actions.push(Timed { at_us, action });
    }

    /// A time within the chaos phase, in microseconds.
    fn sometime(&mut self) -> u64 {
        self.draw.between(500_000, self.chaos_ms * 1_000 - 300_000)
    }
}

/// The run of a seed.
#[must_use]
pub fn draw(seed: u64) -> Run {
    draw_with(seed, None)
}

/// The run of a seed in which nothing goes wrong but one incident of that name; see [`incidents`].
#[must_use]
pub fn draw_incident(seed: u64, name: &str) -> Run {
    draw_with(seed, Some(name))
}

/// Names of incidents: faults that belong together.
pub fn incidents() -> impl Iterator<Item = &'static str> {
    incidents::names()
}

fn draw_with(seed: u64, incident: Option<&str>) -> Run {
    let mut draw = Draw::new(seed);
    let calm = draw.percent(10) && incident.is_none();
    let cluster = cluster::draw(&mut draw, calm);
    let chaos_ms = draw.between(4_000, 22_000);
    let mut plan = Plan { draw, cluster, chaos_ms, actors: Vec::new(), actions: Vec::new() };
    workload::draw(&mut plan, calm);
    // Faults alone, an incident alone, or both: together they hide each other's traces too often.
    let mix = plan.draw.below(10);
    if !calm && mix < 7 && incident.is_none() {
        faults::draw(&mut plan);
    }
    if !calm && (mix >= 5 || incident.is_some()) {
        incidents::draw(&mut plan, incident);
    }
    plan.actions.sort_by_key(|timed| timed.at_us);
    Run { seed, cluster: plan.cluster, chaos_ms: plan.chaos_ms, actions: plan.actions, plant: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_draws_the_same_run_and_the_run_survives_its_file() {
        for seed in 0..50 {
            let run = draw(seed);
            assert_eq!(run, draw(seed));
            assert_eq!(Run::from_ron(&run.to_ron()).as_ref(), Ok(&run));
            assert!(run.actions.is_sorted_by_key(|timed| timed.at_us));
        }
        assert_ne!(draw(1), draw(2));
    }
}
