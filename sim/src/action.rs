//! A run as plain data: a cluster, its noise seed, and a list of timed actions.

use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::net::Notice;
use crate::place::Seat;
use crate::script::{CreateScript, HandlerScript};

/// Everything a run depends on besides the code.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Seeds the hosts and the fine-grained noise.
    pub seed: u64,
    /// Who takes part.
    pub cluster: Cluster,
    /// When faults end and everything promised must finish, in milliseconds.
    pub chaos_ms: u64,
    /// What happens, in order of time.
    pub actions: Vec<Timed>,
    /// A mutant of the protocol every host runs with.
    #[serde(default)]
    pub plant: Option<String>,
}

/// An action and when it happens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// World time in microseconds.
    pub at_us: u64,
    /// What happens.
    pub action: Action,
}

/// Something the world does to a cluster, or lets an application do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Action {
    /// Create (exclusive) or get-or-create of an Actor.
    Create {
        /// Who calls.
        host: Seat,
        /// The ActorId.
        actor: String,
        /// Its type.
        stable_type: String,
        /// Create instead of GetOrCreate.
        exclusive: bool,
        /// Where candidates are looked for.
        mesh: Option<String>,
        /// Deadline.
        timeout_ms: u32,
        /// What the callback does.
        script: CreateScript,
        /// The caller stops waiting after so many milliseconds.
        cancel_ms: Option<u32>,
    },
    /// Find.
    Find {
        /// Who calls.
        host: Seat,
        /// The ActorId.
        actor: String,
        /// Deadline.
        timeout_ms: u32,
    },
    /// Send or request.
    Message {
        /// Who calls.
        host: Seat,
        /// The ActorId.
        actor: String,
        /// Request instead of send.
        request: bool,
        /// Deadline.
        timeout_ms: u32,
        /// What the handler does.
        script: HandlerScript,
        /// The caller stops waiting after so many milliseconds.
        cancel_ms: Option<u32>,
    },
    /// Sets the placement weight.
    Weight {
        /// Whose.
        host: Seat,
        /// The weight.
        weight: u16,
    },
    /// Ends a host in order.
    Shutdown {
        /// Whom.
        host: Seat,
        /// Deadline.
        timeout_ms: u32,
        /// When a new process starts, after the end; at the end of the chaos phase when absent.
        restart_ms: Option<u32>,
    },
    /// Ends a process without a word.
    Kill {
        /// Whose.
        host: Seat,
        /// When a new process starts; at the end of the chaos phase when absent.
        restart_ms: Option<u32>,
        /// When its peers learn of it.
        notice: Notice,
        /// Whether what it sent still arrives.
        flush: bool,
    },
    /// Ends a process at a precise point, once it comes there.
    Crash {
        /// Whose.
        host: Seat,
        /// Where.
        point: CrashPoint,
        /// How many times the point is passed unharmed.
        skip: u32,
        /// When a new process starts; at the end of the chaos phase when absent.
        restart_ms: Option<u32>,
    },
    /// Stops a process as a debugger or a suspended machine does; its clock goes on.
    Pause {
        /// Whom.
        host: Seat,
        /// How long.
        for_ms: u32,
    },
    /// Stops a process at a precise point, once it comes there.
    PauseAt {
        /// Whom.
        host: Seat,
        /// Where; how many outputs are carried out counts for nothing here.
        point: CrashPoint,
        /// How many times the point is passed undisturbed.
        skip: u32,
        /// How long.
        for_ms: u32,
    },
    /// Changes the rate of a clock.
    ClockRate {
        /// Whose.
        host: Seat,
        /// In parts per million of the world's.
        rate: u32,
    },
    /// Moves a monotonic clock ahead.
    ClockJump {
        /// Whose.
        host: Seat,
        /// By how much.
        by_ms: u32,
    },
    /// Breaks the links between two hosts and loses what is in flight.
    Break {
        /// One host.
        a: Seat,
        /// The other.
        b: Seat,
        /// What `a` sees of it.
        notice_a: Notice,
        /// What `b` sees of it.
        notice_b: Notice,
    },
    /// Nothing arrives from one host at another on their present links.
    BreakOneWay {
        /// Sender.
        from: Seat,
        /// Receiver.
        to: Seat,
        /// What the sender sees of it.
        notice: Notice,
    },
    /// Holds everything from one host to another; it arrives afterwards.
    Block {
        /// Sender.
        from: Seat,
        /// Receiver.
        to: Seat,
        /// How long.
        for_ms: u32,
    },
    /// Separates some hosts from all others.
    Partition {
        /// These from the rest.
        group: Vec<Seat>,
        /// How long.
        for_ms: u32,
        /// Break the links at once instead of stalling them.
        cut: bool,
    },
    /// A host's links to another take nothing for a while.
    Congest {
        /// Sender.
        from: Seat,
        /// Receiver.
        to: Seat,
        /// How long.
        for_ms: u32,
    },
    /// The next calls of a kind meet a fault.
    StoreFault {
        /// Whose calls; everybody's when absent.
        host: Option<Seat>,
        /// Which operation, by its name in spec 03; any when absent.
        op: Option<String>,
        /// What happens.
        fault: StoreFault,
        /// How many calls.
        count: u32,
    },
    /// The Store cannot be reached.
    StoreOutage {
        /// By whom; by nobody when absent.
        host: Option<Seat>,
        /// How long.
        for_ms: u32,
    },
    /// Every Store call takes longer.
    StoreSlow {
        /// How long the slowness lasts.
        for_ms: u32,
        /// How much longer a call takes.
        delay_ms: u32,
    },
    /// No hints arrive; a `Resync` follows.
    DropHints {
        /// How long.
        for_ms: u32,
        /// Whether the watch notices and reports `Resync` afterwards.
        resync: bool,
    },
}

/// Where a process dies.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CrashPoint {
    /// The Store applied a call of this name; the answer meets nobody.
    Applied(String),
    /// A call of this name just left it.
    Called(String),
    /// The answer was handled, and only so many of its outputs were carried out.
    Answered(String, u32),
    /// A turn ended, and only so many outputs were carried out.
    TurnEnded(u32),
    /// A peer message of this name was handled, and only so many outputs were carried out.
    Received(String, u32),
}

/// What happens to one Store call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StoreFault {
    /// It certainly never arrives: `Unavailable`.
    FailBefore,
    /// It never arrives, and the caller cannot know: `Indeterminate`.
    LostBefore,
    /// It is applied and its answer is lost: `Indeterminate`.
    LostAfter,
    /// `Indeterminate`, and it is applied so many milliseconds later.
    AppliesLater(u32),
    /// No answer at all; applied or not.
    Silent(bool),
    /// It takes so many milliseconds longer, before or after it is applied.
    Slow(u32),
    /// It is applied so many milliseconds later, and answered then.
    Late(u32),
}

impl Run {
    /// Reads a run from RON text.
    ///
    /// # Errors
    /// Says where the text is not a run.
    pub fn from_ron(text: &str) -> Result<Self, String> {
        ron::from_str(text).map_err(|error| format!("not an action list: {error}"))
    }

    /// Writes the run as RON text, one action a line.
    #[must_use]
    pub fn to_ron(&self) -> String {
        let mut text = format!("(\n  seed: {},\n  cluster: {},\n", self.seed, line(&self.cluster));
        text += &format!("  chaos_ms: {},\n  plant: {},\n  actions: [\n", self.chaos_ms, line(&self.plant));
        for timed in &self.actions {
            text += &format!("    {},\n", line(timed));
        }
        text + "  ],\n)\n"
    }
}

/// One line of RON.
fn line<T: Serialize>(value: &T) -> String {
    ron::to_string(value).unwrap_or_else(|error| unreachable!("plain data serializes: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{HostSpec, NodeSpec, StoreSpec};
    use crate::net::NetworkSpec;
    use spotmesh::model::limits::Settings;

    #[test]
    fn a_run_survives_its_file() {
        let host = HostSpec {
            nodes: vec![NodeSpec::default()],
            clock_rate: 1_000_001,
            start_ms: 3,
            same_endpoint: true,
        };
        let cluster = Cluster {
            hosts: vec![host],
            network: NetworkSpec::default(),
            store: StoreSpec::default(),
            settings: Settings::default(),
        };
        let actions = vec![
            Timed {
                at_us: 5,
                action: Action::Kill {
                    host: Seat(0),
                    restart_ms: Some(7),
                    notice: Notice::After(3),
                    flush: false,
                },
            },
            Timed {
                at_us: 6,
                action: Action::StoreFault {
                    host: None,
                    op: Some("abort(Failed)".to_owned()),
                    fault: StoreFault::AppliesLater(4),
                    count: 2,
                },
            },
        ];
        let run = Run { seed: 9, cluster, chaos_ms: 100, actions, plant: None };
        assert_eq!(Run::from_ron(&run.to_ron()), Ok(run));
        assert!(Run::from_ron("(seed: 1)").is_err());
    }

    #[test]
    fn a_terse_file_gets_defaults() {
        let text = "(seed: 1, cluster: (hosts: [(nodes: [()])]), chaos_ms: 10, actions: [])";
        let run = Run::from_ron(text).unwrap();
        assert_eq!(run.cluster.hosts[0].nodes[0], NodeSpec::default());
        assert_eq!(run.cluster.settings, Settings::default());
    }
}
