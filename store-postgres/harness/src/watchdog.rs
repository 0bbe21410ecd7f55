use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::HarnessError;

const SCRIPT: &str = include_str!("watchdog.sh");

/// A shell that ends the server and removes its directory when its standard input closes. The other end of that pipe
/// lives in this process alone (no child inherits it), so that it closes however this process ends.
#[derive(Debug)]
pub(crate) struct Watchdog {
    shell: Child,
}

impl Watchdog {
    /// Watches over `directory`, which need not exist yet, for this process.
    pub(crate) fn start(directory: &Path) -> Result<Watchdog, HarnessError> {
        Ok(Watchdog { shell: spawn(directory, Stdio::piped())? })
    }

    /// Lets go of the server and waits until it is gone, and its directory.
    pub(crate) fn finish(&mut self) -> Result<(), HarnessError> {
        drop(self.shell.stdin.take());
        self.shell.wait().map(drop).map_err(HarnessError::system("wait for the watchdog"))
    }

    /// Ends what a dead owner left in `directory`, whose own watchdog may be dead too.
    pub(crate) fn clear(directory: &Path) -> Result<(), HarnessError> {
        spawn(directory, Stdio::null())?
            .wait()
            .map(drop)
            .map_err(HarnessError::system("wait for the watchdog"))
    }
}

fn spawn(directory: &Path, stdin: Stdio) -> Result<Child, HarnessError> {
    // A session of its own keeps the terminal's signals away. Where there is no `setsid`, a process group must do.
    let has_setsid = Command::new("setsid").arg("true").stderr(Stdio::null()).status().is_ok();
    let mut command = Command::new(if has_setsid { "setsid" } else { "sh" });
    if has_setsid {
        command.arg("sh");
    } else {
        command.process_group(0);
    }
    command.args(["-c", SCRIPT, "spotmesh-postgres-watchdog"]).arg(directory).current_dir("/");
    command.stdin(stdin).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map_err(HarnessError::system("start the watchdog's shell"))
}
