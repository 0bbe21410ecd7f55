use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::HarnessError;

const POLL: Duration = Duration::from_millis(5);
const PAUSE_LIMIT: Duration = Duration::from_secs(5);

/// Sends `signal`; a process that is gone already is no error.
pub(crate) fn signal(process: u32, signal: Signal) -> Result<(), HarnessError> {
    let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) else { return Ok(()) };
    match rustix::process::kill_process(pid, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(HarnessError::system(format!("send a signal to process {process}"))(error.into())),
    }
}

/// Stops the process and all its children, and returns once none of them runs.
pub(crate) fn pause(parent: u32) -> Result<(), HarnessError> {
    // The parent first: from then on there are no new children.
    signal(parent, Signal::STOP)?;
    let deadline = Instant::now() + PAUSE_LIMIT;
    loop {
        let family = family(parent)?;
        let running: Vec<_> = family.iter().filter(|process| process.runs).collect();
        if running.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(HarnessError::State {
                expected: "a server stopped by SIGSTOP",
                found: "one that runs on",
            });
        }
        for process in running {
            signal(process.id, Signal::STOP)?;
        }
        std::thread::sleep(POLL);
    }
}

/// Lets the process and all its children run again.
pub(crate) fn resume(parent: u32) -> Result<(), HarnessError> {
    for process in family(parent)?.iter().filter(|process| process.id != parent) {
        signal(process.id, Signal::CONT)?;
    }
    signal(parent, Signal::CONT)
}

struct Process {
    id: u32,
    parent: u32,
    runs: bool,
}

/// The process and its direct children; PostgreSQL's have none of their own.
fn family(parent: u32) -> Result<Vec<Process>, HarnessError> {
    let mut all = if Path::new("/proc/self/stat").exists() { from_proc()? } else { from_ps()? };
    all.retain(|process| process.id == parent || process.parent == parent);
    Ok(all)
}

fn from_proc() -> Result<Vec<Process>, HarnessError> {
    let entries = std::fs::read_dir("/proc").map_err(HarnessError::system("list processes"))?;
    Ok(entries
        .flatten()
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            // The name in parentheses may hold anything, so the fields are read from its end on.
            let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
            let state = fields.next()?;
            Some(Process { id, parent: fields.next()?.parse().ok()?, runs: runs(state) })
        })
        .collect())
}

fn from_ps() -> Result<Vec<Process>, HarnessError> {
    let output = Command::new("ps")
        .args(["-A", "-o", "pid=,ppid=,state="])
        .output()
        .map_err(HarnessError::system("list processes with ps"))?;
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            let (id, parent, state) = (fields.next()?, fields.next()?, fields.next()?);
            Some(Process { id: id.parse().ok()?, parent: parent.parse().ok()?, runs: runs(state) })
        })
        .collect())
}

/// Neither stopped nor dead.
fn runs(state: &str) -> bool {
    !state.starts_with(['T', 't', 'Z', 'X'])
}
