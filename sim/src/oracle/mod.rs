//! What must hold, judged from outside: oracles see inputs, outputs and the Store, never the engine's state.

pub mod calls;
pub mod calm;
pub mod creation;
pub mod hosts;
pub mod messages;
pub mod ownership;
pub mod rows;
#[cfg(test)]
mod tests;
pub mod turns;

use serde::Serialize;
use spotmesh::model::ObjectKey;
use spotmesh::output::Turn;

use crate::agenda::Nanos;
use crate::digest::Digest;
use crate::place::RunOf;
use crate::script::Uid;

/// Something that must never happen, happened.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Violation {
    /// Which oracle says so.
    pub oracle: &'static str,
    /// World time, in nanoseconds.
    pub at: Nanos,
    /// What was expected and what was found.
    pub text: String,
}

/// Collects violations; most runs end at the first.
#[derive(Debug, Clone, Default)]
pub struct Verdicts {
    found: Vec<Violation>,
}

impl Verdicts {
    /// Reports a violation.
    pub fn report(&mut self, oracle: &'static str, at: Nanos, text: impl Into<String>) {
        // The first few say it all; a broken run could report millions.
        if self.found.len() < 20 {
            self.found.push(Violation { oracle, at, text: text.into() });
        }
    }

    /// Everything reported.
    #[must_use]
    pub fn found(&self) -> &[Violation] {
        &self.found
    }

    /// Whether nothing was reported.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.found.is_empty()
    }
}

/// All oracles with their memory.
#[derive(Debug, Clone, Default)]
pub struct Oracles {
    /// What they found.
    pub verdicts: Verdicts,
    /// Every call and its end.
    pub calls: calls::Calls,
    /// Turns, gates and instances.
    pub turns: turns::Turns,
    /// Who may run turns.
    pub ownership: ownership::Ownership,
    /// Messages: once, in order, to the right object.
    pub messages: messages::Messages,
    /// Attempts and their outcomes.
    pub creation: creation::Creation,
    /// Rows of the Store over time.
    pub rows: rows::Rows,
    /// Hosts as a whole.
    pub hosts: hosts::Hosts,
}

impl Oracles {
    /// Adds what is remembered and may matter later, times aside.
    pub fn digest(&self, digest: &mut Digest) {
        for call in self.calls.iter() {
            let (kind, answer) = match call.end.as_ref().map(|(_, end)| end) {
                None => (0u8, None),
                Some(calls::End::Answered(answer)) => (1, Some(answer)),
                Some(calls::End::Dropped) => (2, None),
                Some(calls::End::Died) => (3, None),
            };
            digest.add(&(
                call.uid,
                kind,
                answer,
                self.messages.ran(call.uid).map(|ran| (ran.on, ran.counter)),
            ));
        }
        self.creation.digest(digest);
    }

    /// A creation ran into its deadline: it must not have slept while the key was Ready (STORE-113, CREATE-81).
    ///
    /// `free` is since when nothing kept its host from reading the Store.
    pub fn check_waiter(&mut self, at: Nanos, free: Nanos, uid: Uid) {
        // Twice the longest backoff, and the time of some reads.
        const PATIENCE: Nanos = 5_000_000_000;
        let Some(call) = self.calls.get(uid) else { return };
        let calls::Asked::Create { key, .. } = &call.asked else { return };
        let from = at.saturating_sub(PATIENCE);
        if self.calls.skewed || call.at > from || free + 1_000_000_000 > from {
            return;
        }
        // Its own attempt is answered by the target alone, however long that takes (CREATE-53).
        let own = self.creation.reserved_for(key, uid);
        let ready = |life: &rows::Life| life.from <= from && life.until.is_none_or(|ended| ended > at);
        if !own && self.rows.lives(key).iter().any(ready) {
            let text =
                format!("{} waits for {key} until its deadline although it was Ready for 5 s", call.by);
            self.verdicts.report("waiter", at, text);
        }
    }

    /// A process is gone: its turns and calls ended with it.
    pub fn process_died(&mut self, run: RunOf) {
        self.turns.process_died(run);
        self.hosts.process_died(run);
        self.calls.process_died(run);
    }
}

/// A turn for messages to people.
#[must_use]
pub fn describe(run: RunOf, turn: &Turn) -> String {
    format!(
        "{run} turn {} of instance {} on {} generation {}/{}",
        turn.turn.0, turn.instance.0, turn.key, turn.object_generation, turn.owner_generation
    )
}

/// The key of an Actor.
///
/// # Panics
/// Where the text is not a legal ActorId; plans and files are checked before they run.
#[must_use]
pub fn actor_key(id: &str) -> ObjectKey {
    match spotmesh::model::ActorId::new(id) {
        Ok(id) => ObjectKey::Actor(id),
        Err(error) => panic!("{error}"),
    }
}
