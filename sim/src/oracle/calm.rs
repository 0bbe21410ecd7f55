//! Runs without faults: everything works, and every admitted send is handled exactly once.

use spotmesh::model::ErrorKind;
use spotmesh::output::Answer;

use super::Oracles;
use super::calls::{Asked, End};
use crate::action::{Action, Run};
use crate::agenda::{Nanos, millis};
use crate::script::Ending;

/// Whether nothing but applications act in this run, all in one Mesh.
#[must_use]
pub fn is_calm(run: &Run) -> bool {
    let one_mesh =
        run.cluster.hosts.iter().all(|host| host.nodes.len() == 1 && host.nodes[0].mesh == "alpha");
    let steady = run.cluster.hosts.iter().all(|host| host.clock_rate == crate::clock::RATE_ONE);
    let quiet = run.actions.iter().all(|timed| match &timed.action {
        Action::Create { .. } | Action::Find { .. } => true,
        // Nothing may make others wait for long, and everybody has the time to wait.
        Action::Message { script, timeout_ms, .. } => {
            script.ending != Ending::Hang
                && script.nested.is_none()
                && script.takes_us <= 60_000
                && *timeout_ms >= 20_000
        }
        _ => false,
    });
    one_mesh && steady && quiet
}

/// From when on every host of a calm run knows all others.
#[must_use]
pub fn settled_at(run: &Run) -> Nanos {
    let last = run.cluster.hosts.iter().map(|host| host.start_ms).max().unwrap_or(0);
    millis(last + 4_000)
}

/// What did not work although nothing stood in its way.
#[must_use]
pub fn judge(run: &Run, oracles: &Oracles) -> Vec<String> {
    let from = settled_at(run);
    let mut found = Vec::new();
    for call in oracles.calls.iter().filter(|call| call.at >= from) {
        let Some((_, End::Answered(answer))) = &call.end else { continue };
        match (&call.asked, answer) {
            (Asked::Message { key, ending, from, .. }, Answer::Failed(error)) => {
                // An Actor that waits for itself is told so (MODEL-73).
                let own = from.as_ref() == Some(key) && error.kind() == ErrorKind::InvalidOperation;
                let excused =
                    own || error.kind() == ErrorKind::NotFound || ending.kind() == Some(error.kind());
                if !excused {
                    found.push(format!("{} {:?} failed: {error}", call.by, call.asked));
                }
            }
            (Asked::Message { key, request: false, .. }, Answer::Sent)
                if oracles.messages.ran(call.uid).is_none() =>
            {
                found.push(format!("{} a send to {key} was admitted and never handled", call.by));
            }
            (Asked::Find { .. }, Answer::Failed(error)) if error.kind() != ErrorKind::DeadlineExceeded => {
                found.push(format!("{} {:?} failed: {error}", call.by, call.asked));
            }
            _ => {}
        }
    }
    found
}
