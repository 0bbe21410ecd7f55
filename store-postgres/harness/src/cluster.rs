use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::directory::{Directory, random};
use crate::programs::Programs;
use crate::user::ServerUser;
use crate::watchdog::Watchdog;
use crate::{HarnessError, Settings, processes};

const PORT_TRIES: u32 = 8;
/// Below the ports that systems give to outgoing connections: a stopped server's port stays free for its restart.
const PORTS: std::ops::Range<u16> = 15_000..32_000;
const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);
/// Notes its own id, then goes on only while the watchdog has not begun to clear: see `watchdog.sh`.
const LAUNCH: &str = r#": >"$1/launched/$$"; [ -e "$1/open" ] || exit 1; shift; exec "$@""#;

/// A database cluster of this process and the server over it. Calls block.
#[derive(Debug)]
pub(crate) struct Cluster {
    programs: Programs,
    user: Option<ServerUser>,
    directory: Directory,
    watchdog: Watchdog,
    port: u16,
    condition: Condition,
}

#[derive(Debug)]
enum Condition {
    Running(Child),
    Paused(Child),
    Stopped,
}

impl Cluster {
    /// Makes a cluster and starts its server on a free port.
    pub(crate) fn start(settings: &Settings) -> Result<Cluster, HarnessError> {
        let programs = Programs::find()?;
        let user = ServerUser::find()?;
        let path = Directory::propose(user);
        let watchdog = Watchdog::start(&path)?;
        let directory = Directory::claim(path, user)?;
        let condition = Condition::Stopped;
        let mut cluster = Cluster { programs, user, directory, watchdog, port: 0, condition };
        cluster.initialise(settings)?;
        for tries in 1.. {
            cluster.port = free_port();
            match cluster.launch() {
                Err(_) if tries < PORT_TRIES && cluster.port_was_taken() => {}
                result => return result.map(|()| cluster),
            }
        }
        unreachable!("the last try returns")
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Where the socket lies.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.directory.log()
    }

    /// The id of the server's first process.
    pub(crate) fn process(&self) -> Option<u32> {
        match &self.condition {
            Condition::Running(child) | Condition::Paused(child) => Some(child.id()),
            Condition::Stopped => None,
        }
    }

    /// Ends the server as a crash would: no checkpoint, every connection cut. Nothing happens if it is stopped.
    pub(crate) fn stop_immediate(&mut self) -> Result<(), HarnessError> {
        if let Condition::Paused(_) = &self.condition {
            self.resume()?;
        }
        let Condition::Running(child) = &mut self.condition else { return Ok(()) };
        processes::signal(child.id(), Signal::QUIT)?;
        let id = child.id();
        wait(child, STOP_LIMIT)?.ok_or(HarnessError::State {
            expected: "a server that ends after SIGQUIT",
            found: "one that runs on",
        })?;
        self.condition = Condition::Stopped;
        let _ = fs::remove_file(self.directory.launched().join(id.to_string()));
        Ok(())
    }

    /// Starts the server again over the same data and on the same port, ending it first if it still runs.
    pub(crate) fn restart(&mut self) -> Result<(), HarnessError> {
        self.stop_immediate()?;
        self.launch()
    }

    pub(crate) fn pause(&mut self) -> Result<(), HarnessError> {
        match std::mem::replace(&mut self.condition, Condition::Stopped) {
            Condition::Running(child) => {
                let result = processes::pause(child.id());
                self.condition = Condition::Paused(child);
                result
            }
            other => {
                let found = other.name();
                self.condition = other;
                Err(HarnessError::State { expected: "a running server to pause", found })
            }
        }
    }

    pub(crate) fn resume(&mut self) -> Result<(), HarnessError> {
        match std::mem::replace(&mut self.condition, Condition::Stopped) {
            Condition::Paused(child) => {
                let result = processes::resume(child.id());
                self.condition = Condition::Running(child);
                result
            }
            other => {
                let found = other.name();
                self.condition = other;
                Err(HarnessError::State { expected: "a paused server to resume", found })
            }
        }
    }

    fn initialise(&self, settings: &Settings) -> Result<(), HarnessError> {
        let mut command = self.command(&self.programs.initdb);
        // Its own syncing is for clusters that must outlive the machine; the server's is untouched by it.
        command.args([
            "--no-sync",
            "--auth=trust",
            "--username=postgres",
            "--encoding=UTF8",
            "--locale=C",
            "-D",
        ]);
        let output = command
            .arg(self.directory.data())
            .stdin(Stdio::null())
            .output()
            .map_err(HarnessError::system(format!("run {}", self.programs.initdb.display())))?;
        if !output.status.success() {
            return Err(HarnessError::Program {
                expected: "initdb to make a cluster".to_owned(),
                found: format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()),
            });
        }
        let file = self.directory.data().join("postgresql.conf");
        OpenOptions::new()
            .append(true)
            .open(&file)
            .and_then(|mut file| {
                file.write_all(settings.render(&self.directory.path().to_string_lossy()).as_bytes())
            })
            .map_err(HarnessError::system(format!("write {}", file.display())))
    }

    /// Starts the server and waits until it accepts connections.
    fn launch(&mut self) -> Result<(), HarnessError> {
        let log = self.directory.log();
        let output = File::create(&log).map_err(HarnessError::system(format!("create {}", log.display())))?;
        let errors = output.try_clone().map_err(HarnessError::system("share the log"))?;
        let mut command = self.command(&self.programs.postgres);
        command.arg("-D").arg(self.directory.data()).arg("-p").arg(self.port.to_string());
        // A Ctrl-C in the terminal is the test's to handle.
        command.process_group(0).stdin(Stdio::null()).stdout(output).stderr(errors);
        let child = command
            .spawn()
            .map_err(HarnessError::system(format!("run {}", self.programs.postgres.display())))?;
        self.condition = Condition::Running(child);
        self.wait_until_ready()
    }

    fn wait_until_ready(&mut self) -> Result<(), HarnessError> {
        let deadline = Instant::now() + START_LIMIT;
        let note = self.directory.data().join("postmaster.pid");
        loop {
            let Condition::Running(child) = &mut self.condition else { return Ok(()) };
            let id = child.id().to_string();
            if let Some(status) = wait(child, Duration::ZERO)? {
                let found = format!("{status}: {}", self.end_of_log());
                self.condition = Condition::Stopped;
                return Err(HarnessError::Program { expected: "a server that starts".to_owned(), found });
            }
            // The first line is the server's process id, the eighth its status.
            let text = fs::read_to_string(&note).unwrap_or_default();
            let mut lines = text.lines();
            if lines.next() == Some(id.as_str()) && lines.nth(6).is_some_and(|line| line.trim() == "ready") {
                return Ok(());
            }
            if Instant::now() > deadline {
                let found = format!("none after {START_LIMIT:?}: {}", self.end_of_log());
                return Err(HarnessError::Program { expected: "a server that starts".to_owned(), found });
            }
            std::thread::sleep(POLL);
        }
    }

    /// A program of the server, as the server's user, known to the watchdog before it runs.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", LAUNCH, "launch"]).arg(self.directory.path()).arg(program);
        command.current_dir(self.directory.path()).env("LC_ALL", "C");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        if let Some(user) = self.user {
            command.uid(user.uid).gid(user.gid);
        }
        command
    }

    fn port_was_taken(&self) -> bool {
        self.end_of_log().contains("could not create any TCP/IP sockets")
    }

    fn end_of_log(&self) -> String {
        let text = fs::read(self.directory.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("; ")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The watchdog is asked even when the server is stopped: the directory is its to remove.
        let _ = self.watchdog.finish();
        if let Condition::Running(child) | Condition::Paused(child) = &mut self.condition {
            let _ = child.wait();
        }
    }
}

impl Condition {
    fn name(&self) -> &'static str {
        match self {
            Condition::Running(_) => "a running one",
            Condition::Paused(_) => "a paused one",
            Condition::Stopped => "a stopped one",
        }
    }
}

/// `None` when the process still runs after `limit`.
fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>, HarnessError> {
    let deadline = Instant::now() + limit;
    loop {
        let status = child.try_wait().map_err(HarnessError::system("wait for the server"))?;
        if status.is_some() || Instant::now() >= deadline {
            return Ok(status);
        }
        std::thread::sleep(POLL);
    }
}

/// Free at this moment; another process may take it before the server does.
fn free_port() -> u16 {
    loop {
        let port = PORTS.start + (random() % u64::from(PORTS.end - PORTS.start)) as u16;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
