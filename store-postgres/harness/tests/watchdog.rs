//! Nothing of a server outlives the process that started it.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use spotmesh_postgres_harness::Server;

/// Another process with a server of its own, in a process group of its own.
struct Owner {
    process: Child,
    server: u32,
    directory: PathBuf,
}

impl Owner {
    fn start() -> Owner {
        Owner::start_in(&std::env::temp_dir())
    }

    /// The server's directory lies in `parent`.
    fn start_in(parent: &Path) -> Owner {
        let mut process = Command::new(env!("CARGO_BIN_EXE_throwaway-postgres"))
            .env("TMPDIR", parent)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let lines: Vec<String> = lines.take(4).map(Result::unwrap).collect();
        let field =
            |name: &str| lines.iter().find_map(|line| line.strip_prefix(name)).expect("a server").to_owned();
        let owner = Owner {
            process,
            server: field("process ").parse().unwrap(),
            directory: field("directory ").into(),
        };
        assert!(runs(owner.server) && owner.directory.exists());
        owner
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// A directory for the servers of one test, which goes with it.
struct Apart {
    path: PathBuf,
}

impl Apart {
    fn new(name: &str) -> Apart {
        let path = std::env::temp_dir().join(format!("spotmesh-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Apart { path }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(id as i32).unwrap()
}

fn output(program: &str, args: &[&str]) -> String {
    String::from_utf8(Command::new(program).args(args).output().unwrap().stdout).unwrap()
}

/// Neither gone nor a dead child that its new parent has not waited for yet.
fn runs(process: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{process}/stat")) {
        Ok(stat) => !stat.rsplit_once(')').unwrap().1.trim_start().starts_with('Z'),
        Err(_) if Path::new("/proc/self").exists() => false,
        Err(_) => {
            output("ps", &["-o", "state=", "-p", &process.to_string()]).starts_with(['S', 'R', 'I', 'T', 'U'])
        }
    }
}

/// Whether any process names the directory: server, starting program or watchdog.
fn named_by_any(directory: &Path) -> bool {
    let directory = directory.to_str().unwrap();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return output("ps", &["-A", "-o", "args="]).contains(directory);
    };
    entries.flatten().any(|entry| {
        let arguments = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).contains(directory)
    })
}

fn eventually(what: &str, limit: Duration, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + limit;
    while !holds() {
        assert!(Instant::now() < deadline, "expected {what} within {limit:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn gone(owner: &Owner, limit: Duration) {
    eventually("the server to be gone", limit, || !runs(owner.server));
    eventually("the directory to be gone", limit, || !owner.directory.exists());
    eventually("every process of the server to be gone", limit, || !named_by_any(&owner.directory));
}

#[test]
fn nothing_is_left_of_a_killed_owner() {
    let mut owner = Owner::start();
    owner.kill();
    gone(&owner, Duration::from_secs(10));
}

#[test]
fn nothing_is_left_of_a_killed_owner_whose_server_is_paused() {
    let mut owner = Owner::start();
    kill_process(pid(owner.server), Signal::STOP).unwrap();
    owner.kill();
    gone(&owner, Duration::from_secs(10));
}

#[test]
fn nothing_is_left_when_the_whole_process_group_is_signalled() {
    for signal in [Signal::INT, Signal::KILL] {
        let mut owner = Owner::start();
        kill_process_group(pid(owner.process.id()), signal).unwrap();
        owner.process.wait().unwrap();
        gone(&owner, Duration::from_secs(10));
    }
}

#[test]
fn nothing_is_left_of_an_owner_killed_while_it_starts() {
    // The kill falls into directory making, initdb, or the start, whichever the delay hits.
    let apart = Apart::new("starting");
    for delay in [0, 2, 4, 6, 8, 10, 15, 20, 30, 60, 100, 300, 500, 700, 900] {
        let mut process = Command::new(env!("CARGO_BIN_EXE_throwaway-postgres"))
            .env("TMPDIR", &apart.path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(delay));
        process.kill().unwrap();
        process.wait().unwrap();
        eventually("every process to be gone", Duration::from_secs(15), || !named_by_any(&apart.path));
        assert_eq!(std::fs::read_dir(&apart.path).unwrap().count(), 0, "killed after {delay} ms");
    }
}

#[test]
fn the_next_start_clears_what_a_dead_owner_and_its_dead_watchdog_left() {
    // The other tests' starts would clear it too.
    let apart = Apart::new("clearing");
    let mut owner = Owner::start_in(&apart.path);
    assert!(owner.directory.starts_with(&apart.path));
    kill_process(pid(watchdog_of(&owner)), Signal::KILL).unwrap();
    owner.kill();
    std::thread::sleep(Duration::from_millis(300));
    assert!(runs(owner.server) && owner.directory.exists(), "nobody was left to clear it");
    let mut next = Owner::start_in(&apart.path);
    assert!(!runs(owner.server) && !owner.directory.exists());
    next.kill();
    gone(&next, Duration::from_secs(10));
}

#[tokio::test]
async fn the_next_start_leaves_living_owners_alone() {
    let owner = Owner::start();
    let _next = Server::start().await.unwrap();
    assert!(runs(owner.server) && owner.directory.exists());
    let mut owner = owner;
    drop(owner.process.stdin.take());
    assert!(owner.process.wait().unwrap().success());
    gone(&owner, Duration::from_secs(10));
}

fn watchdog_of(owner: &Owner) -> u32 {
    let all = output("ps", &["-A", "-o", "pid=,ppid=,args="]);
    let parent = owner.process.id().to_string();
    let directory = owner.directory.to_str().unwrap();
    all.lines()
        .filter(|line| line.contains("spotmesh-postgres-watchdog") && line.contains(directory))
        .find_map(|line| {
            let mut fields = line.split_whitespace();
            let id = fields.next()?;
            (fields.next()? == parent).then(|| id.parse().unwrap())
        })
        .expect("a watchdog")
}
