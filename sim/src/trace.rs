//! A trace a person can read, as text or as a page.

use std::fmt::Write as _;

use serde::Serialize;
use spotmesh::host::TimeoutReason;
use spotmesh::input::Input;
use spotmesh::link::{Lane, LinkId, Record, TransportEvent};
use spotmesh::model::Instant;
use spotmesh::output::Output;
use spotmesh::wire;

use crate::agenda::Nanos;
use crate::net::lane_index;
use crate::place::RunOf;
use crate::store::Applied;

/// What kind of entry it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Kind {
    /// The world did something to a process.
    Note,
    /// An action of the list.
    Action,
    /// A host got an input.
    Input,
    /// A host wants something done.
    Output,
    /// The Store carried a call out.
    Store,
}

/// One entry.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    /// World time, in nanoseconds.
    pub at: Nanos,
    /// Which process, empty for the world, `store` for the Store.
    pub who: String,
    /// What kind.
    pub kind: Kind,
    /// What happened.
    pub text: String,
    /// The flow and place of a record that leaves or arrives: link, sending side, lane.
    pub flow: Option<(u64, u64, usize)>,
}

/// Entries of a run, oldest first.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    entries: Vec<Entry>,
}

impl Trace {
    /// The entries.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// One line an entry.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.entries.iter().map(line).collect()
    }

    /// Something the world did.
    pub fn note(&mut self, at: Nanos, run: RunOf, what: &str) {
        self.push(at, run.to_string(), Kind::Note, what.to_owned(), None);
    }

    /// An action of the list.
    pub fn action(&mut self, at: Nanos, what: &str) {
        self.push(at, String::new(), Kind::Action, what.to_owned(), None);
    }

    /// A host got an input.
    pub fn input(&mut self, at: Nanos, run: RunOf, input: &Input) {
        let (text, flow) = match input {
            Input::Transport(TransportEvent::Received { link, lane, record }) => {
                let text = format!("Received {link:?} {lane:?} {}", message(record));
                (text, Some((link.0 / 2, 1 - link.0 % 2, lane_index(*lane))))
            }
            Input::Transport(event) => (format!("{event:?}"), None),
            other => (format!("{other:?}"), None),
        };
        self.push(at, run.to_string(), Kind::Input, text, flow);
    }

    /// A host was woken.
    pub fn wake(&mut self, at: Nanos, run: RunOf, due: Option<(Instant, TimeoutReason)>) {
        let text = due.map_or_else(|| "wake".to_owned(), |(_, reason)| format!("wake {reason}"));
        self.push(at, run.to_string(), Kind::Input, text, None);
    }

    /// A host wants something done.
    pub fn output(&mut self, at: Nanos, run: RunOf, output: &Output) {
        let (text, flow) = match output {
            Output::Send { link, lane, record } => sent(*link, *lane, record),
            other => (format!("{other:?}"), None),
        };
        self.push(at, run.to_string(), Kind::Output, text, flow);
    }

    /// The Store carried a call out.
    pub fn store(&mut self, at: Nanos, applied: &Applied) {
        let text = format!("{} {} => {:?}", applied.by, applied.request.name(), applied.result);
        self.push(at, "store".to_owned(), Kind::Store, text, None);
    }

    fn push(&mut self, at: Nanos, who: String, kind: Kind, text: String, flow: Option<(u64, u64, usize)>) {
        self.entries.push(Entry { at, who, kind, text, flow });
    }
}

fn sent(link: LinkId, lane: Lane, record: &Record) -> (String, Option<(u64, u64, usize)>) {
    let text = format!("Send {link:?} {lane:?} {}", message(record));
    (text, Some((link.0 / 2, link.0 % 2, lane_index(lane))))
}

fn line(entry: &Entry) -> String {
    let sign = match entry.kind {
        Kind::Note => "##",
        Kind::Action => "!!",
        Kind::Input => "->",
        Kind::Output => "<-",
        Kind::Store => "::",
    };
    let mut line = String::new();
    // Writing to a String does not fail.
    let _ = write!(line, "{} {:>6} {sign} {}", seconds(entry.at), entry.who, entry.text);
    line
}

/// World time as seconds with microseconds.
#[must_use]
pub fn seconds(at: Nanos) -> String {
    format!("{:>4}.{:06}", at / 1_000_000_000, at % 1_000_000_000 / 1_000)
}

fn message(record: &Record) -> String {
    match wire::decode(record) {
        Ok((message, body)) => format!("{message:?} body {}", body.map_or(0, |body| body.len())),
        Err(error) => format!("undecodable: {error}"),
    }
}
