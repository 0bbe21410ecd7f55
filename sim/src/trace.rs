//! A trace a person can read.

use std::fmt::Write as _;

use spotmesh::TimeoutReason;
use spotmesh::input::Input;
use spotmesh::link::TransportEvent;
use spotmesh::model::Instant;
use spotmesh::output::Output;
use spotmesh::wire;

use crate::agenda::Nanos;
use crate::place::RunOf;
use crate::store::Applied;

/// Lines of a run, oldest first.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    lines: Vec<String>,
}

impl Trace {
    /// The lines.
    #[must_use]
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Something the world did.
    pub fn note(&mut self, at: Nanos, run: RunOf, what: &str) {
        self.push(at, &run.to_string(), "##", what);
    }

    /// An action of the list.
    pub fn action(&mut self, at: Nanos, what: &str) {
        self.push(at, "", "!!", what);
    }

    /// A host got an input.
    pub fn input(&mut self, at: Nanos, run: RunOf, input: &Input) {
        let text = match input {
            Input::Transport(TransportEvent::Received { link, lane, record }) => {
                format!("Received {link:?} {lane:?} {}", message(record))
            }
            Input::Transport(event) => format!("{event:?}"),
            other => format!("{other:?}"),
        };
        self.push(at, &run.to_string(), "->", &text);
    }

    /// A host was woken.
    pub fn wake(&mut self, at: Nanos, run: RunOf, due: Option<(Instant, TimeoutReason)>) {
        let text = due.map_or_else(|| "wake".to_owned(), |(_, reason)| format!("wake {reason:?}"));
        self.push(at, &run.to_string(), "->", &text);
    }

    /// A host wants something done.
    pub fn output(&mut self, at: Nanos, run: RunOf, output: &Output) {
        let text = match output {
            Output::Send { link, lane, record } => format!("Send {link:?} {lane:?} {}", message(record)),
            other => format!("{other:?}"),
        };
        self.push(at, &run.to_string(), "<-", &text);
    }

    /// The Store carried a call out.
    pub fn store(&mut self, at: Nanos, applied: &Applied) {
        let text = format!("{} {} => {:?}", applied.by, applied.request.name(), applied.result);
        self.push(at, "store", "::", &text);
    }

    fn push(&mut self, at: Nanos, who: &str, sign: &str, text: &str) {
        let mut line = String::new();
        let _ = write!(
            line,
            "{:>4}.{:06} {who:>6} {sign} {text}",
            at / 1_000_000_000,
            at % 1_000_000_000 / 1_000
        );
        self.lines.push(line);
    }
}

fn message(record: &spotmesh::link::Record) -> String {
    match wire::decode(record) {
        Ok((message, body)) => format!("{message:?} body {}", body.map_or(0, |body| body.len())),
        Err(error) => format!("undecodable: {error}"),
    }
}
