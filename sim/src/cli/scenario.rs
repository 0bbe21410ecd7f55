//! `run`: a scenario file.

use std::path::PathBuf;

use clap::Args;

use super::{print_json, read_file, write_file};
use crate::scenario::Scenario;

#[derive(Debug, Args)]
pub(super) struct RunScenario {
    /// The file; see SCENARIOS.md.
    file: PathBuf,
    /// Write a readable trace there.
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Print one JSON object as the last line.
    #[arg(long)]
    json: bool,
}

impl RunScenario {
    pub(super) fn run(self) -> Result<bool, String> {
        let scenario = Scenario::from_ron(&read_file(&self.file)?)?;
        let mut lines = Vec::new();
        let verdicts = scenario.run(self.trace.as_ref().map(|_| &mut lines))?;
        if let Some(path) = &self.trace {
            write_file(path, &(lines.join("\n") + "\n"))?;
        }
        println!("{}: {}", verdicts.scenario, if verdicts.passed { "passed" } else { "FAILED" });
        for text in &verdicts.failed_expectations {
            println!("  {text}");
        }
        if self.json {
            print_json(&verdicts)?;
        }
        Ok(verdicts.passed)
    }
}
