//! The determinism canary: equal runs give equal hashes, whatever ran before in the process.

use std::sync::Arc;

use spotmesh_sim::outcome::execute;
use spotmesh_sim::plan;

#[test]
fn two_runs_of_a_seed_give_the_same_trace_hash() {
    for seed in 0..12 {
        let run = Arc::new(plan::draw(seed));
        let (first, second) = (execute(&run), execute(&run));
        assert_eq!(first.trace_hash, second.trace_hash, "seed {seed}");
        assert_eq!(first.inputs, second.inputs, "seed {seed}");
        assert_eq!(first.violations, second.violations, "seed {seed}");
    }
}

#[test]
fn a_run_from_its_own_action_list_gives_the_same_trace_hash() {
    for seed in 0..6 {
        let run = plan::draw(seed);
        let copy = spotmesh_sim::action::Run::from_ron(&run.to_ron()).unwrap();
        assert_eq!(execute(&Arc::new(run)).trace_hash, execute(&Arc::new(copy)).trace_hash, "seed {seed}");
    }
}

#[test]
fn other_seeds_give_other_hashes() {
    let hash = |seed| execute(&Arc::new(plan::draw(seed))).trace_hash;
    assert_ne!(hash(1), hash(2));
}
