//! A peer in a process of its own, so that it can be killed or stopped.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use spotmesh::driver::Transport;
use spotmesh::link::TransportEvent;
use spotmesh_net_zmq::{Listen, ZmqConfig};

use super::{NODE, Rig, brisk};

/// What the child shall do: `listen PORT` or `dial ENDPOINT`.
const ROLE: &str = "SPOTMESH_TEST_PEER";
/// The child ends by itself after this.
const LIFE: Duration = Duration::from_secs(60);

/// A running child, killed when dropped.
pub struct Peer {
    child: Child,
    /// Where it listens, if it does.
    pub endpoint: String,
    _output: Option<BufReader<ChildStdout>>,
}

impl Peer {
    /// Starts this test binary again in the role of a peer that echoes every record on its lane.
    pub fn start(role: &str) -> Self {
        let listens = role.starts_with("listen");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child_entry", "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .stdout(if listens { Stdio::piped() } else { Stdio::null() })
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Kept open as long as the child: it must not fail to print.
        let mut output = child.stdout.take().map(BufReader::new);
        let mut endpoint = String::new();
        if let Some(output) = &mut output {
            let told = output
                .lines()
                .map_while(Result::ok)
                .find_map(|line| line.split_once("ENDPOINT ").map(|(_, endpoint)| endpoint.to_owned()));
            endpoint = told.expect("the child listens");
        }
        Self { child, endpoint, _output: output }
    }

    /// Sends a signal such as `KILL` or `STOP`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // SIGKILL also ends a stopped process.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The child's main function; does nothing in the parent.
pub fn child_main() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let mut rig = Rig::new([]);
    if let Some(port) = role.strip_prefix("listen ") {
        let listen = Listen { port: port.parse().unwrap(), ..Listen::default() };
        rig.add(ZmqConfig { listen: [(NODE, listen)].into(), ..brisk() });
        println!("ENDPOINT {}", rig.bind(0));
    } else {
        let endpoint = role.strip_prefix("dial ").unwrap();
        rig.add(brisk());
        rig.dial_as(0, endpoint, None, "child");
    }
    rig.until(LIFE, |hosts| {
        for event in std::mem::take(&mut hosts[0].events) {
            if let TransportEvent::Received { link, lane, record } = event {
                hosts[0].transport.send(link, lane, record);
            }
        }
        hosts[0].transport.flush();
        false
    });
}
