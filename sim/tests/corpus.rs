//! Seeds that must stay clean, regressions of bugs once found, and the example scenarios.

use std::path::Path;
use std::sync::Arc;

use spotmesh_sim::action::Run;
use spotmesh_sim::exhaust::{explore, scopes};
use spotmesh_sim::outcome::execute;
use spotmesh_sim::plan;
use spotmesh_sim::scenario::Scenario;

fn files(folder: &str) -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files: Vec<(String, String)> = std::fs::read_dir(&path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "ron"))
        .map(|path| (path.display().to_string(), std::fs::read_to_string(&path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn a_small_corpus_of_seeds_is_clean() {
    for seed in 0..60 {
        let outcome = execute(&Arc::new(plan::draw(seed)));
        assert!(outcome.violations.is_empty(), "seed {seed}: {:?}", outcome.violations);
    }
}

#[test]
fn regressions_stay_fixed() {
    for (path, text) in files("regressions") {
        let run = Run::from_ron(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
        let outcome = execute(&Arc::new(run));
        assert!(outcome.violations.is_empty(), "{path}: {:?}", outcome.violations);
    }
}

#[test]
fn small_scopes_are_clean_in_every_order() {
    let small = ["create-2", "create-loss", "create-kill", "create-break", "reject-compete", "request-break"];
    for scope in scopes().iter().filter(|scope| small.contains(&scope.name)) {
        let explored = explore(scope, 20_000).unwrap();
        assert!(explored.found.is_none(), "{}: {:?}", scope.name, explored.found);
        assert!(explored.complete && explored.states > 300, "{}: {} states", scope.name, explored.states);
    }
}

#[test]
fn a_planted_bug_is_found_shrunk_and_its_action_list_still_shows_it() {
    let mut run = plan::draw(0);
    run.plant = Some("OverlapsTurns".to_owned());
    let run = (0..50)
        .map(|seed| Run { plant: run.plant.clone(), ..plan::draw(seed) })
        .find(|run| execute(&Arc::new(run.clone())).oracle() == Some("gate"))
        .unwrap();
    let shrunk = spotmesh_sim::shrink::shrink(&run, 400).unwrap();
    assert!(shrunk.run.actions.len() < run.actions.len());
    let again = Run::from_ron(&shrunk.run.to_ron()).unwrap();
    assert_eq!(execute(&Arc::new(again)).oracle(), Some("gate"));
}

#[test]
fn example_scenarios_pass() {
    let scenarios = files("scenarios");
    assert!(scenarios.len() >= 3, "expected at least 3 examples, found {}", scenarios.len());
    for (path, text) in scenarios {
        let scenario = Scenario::from_ron(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
        let verdicts = scenario.run(None).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(verdicts.passed, "{path}: {:?}", verdicts.failed_expectations);
    }
}

#[test]
fn a_scenario_whose_expectation_does_not_hold_fails() {
    let text = r#"(
        name: "wrong",
        cluster: (hosts: [(nodes: [()])]),
        steps: [Wait(500), Create(call: "c", host: 0, actor: "a"), Settle, Expect(Call("c", Rejected))],
    )"#;
    let verdicts = Scenario::from_ron(text).unwrap().run(None).unwrap();
    assert!(!verdicts.passed);
    assert!(verdicts.failed_expectations[0].starts_with("step 4: "), "{:?}", verdicts.failed_expectations);
}
