//! What a scenario can expect.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spotmesh::model::HostState;
use spotmesh::output::Answer;

use super::end_of;
use crate::oracle::calls::End;
use crate::oracle::{actor_key, calls::Asked};
use crate::place::Seat;
use crate::script::{CounterReply, Uid};
use crate::world::World;

/// Something that must hold at its step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Expectation {
    /// How a call ended.
    Call(String, CallEnd),
    /// How several calls ended together: so many of them in this way, in any order.
    Among(Vec<String>, CallEnd, usize),
    /// The Actor is Ready at this host's present process.
    Owner(String, Seat),
    /// The Actor is Ready and its owner's lease is dead.
    OwnerDead(String),
    /// The key has no row.
    Missing(String),
    /// The key is being created.
    Creating(String),
    /// Factories that ran for the key so far.
    FactoryRuns(String, usize),
    /// Whether the message ran.
    Ran(String, bool),
    /// State of a host.
    Host(Seat, HostState),
    /// No process runs on the seat.
    Down(Seat),
}

/// The end of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum CallEnd {
    /// It still waits.
    Open,
    /// The object was created by this call.
    Created,
    /// It existed.
    Existing,
    /// The callback declined.
    Rejected,
    /// Found.
    Found,
    /// Nothing was found.
    FoundNothing,
    /// The send was admitted.
    Sent,
    /// A reply came.
    Replied,
    /// A reply came with this counter of the Actor.
    Counter(u64),
    /// Failed with this kind, by its name in spec 10.
    Failed(String),
    /// Shutdown ended; forced or not.
    ShutDown(bool),
    /// The caller stopped waiting.
    Dropped,
    /// The caller's process died.
    Died,
}

impl Expectation {
    /// `None` where it holds, otherwise what was expected and found.
    ///
    /// # Errors
    /// Where it names a call or host that does not exist.
    pub(super) fn check(
        &self,
        world: &mut World,
        calls: &BTreeMap<String, Uid>,
    ) -> Result<Option<String>, String> {
        let found = match self {
            Self::Call(name, expected) => {
                let end = end_of(world, calls, name)?;
                if fits(end, expected) { None } else { Some(format!("{end:?}")) }
            }
            Self::Among(names, expected, count) => {
                let mut fitting = 0;
                for name in names {
                    fitting += usize::from(fits(end_of(world, calls, name)?, expected));
                }
                (fitting != *count).then(|| format!("{fitting} of them"))
            }
            Self::Owner(actor, seat) => {
                self.seat(world, *seat)?;
                let row = world.row(&actor_key(actor));
                let owner = row.as_ref().filter(|row| row.pending().is_none()).map(|row| row.owner.lease);
                let run = owner.and_then(|lease| world.oracles().ownership.holder(lease));
                let present = world.seats()[usize::from(seat.0)].current();
                (run != Some(present)).then(|| format!("owner {run:?}, row {}", shown(row.is_some())))
            }
            Self::OwnerDead(actor) => match world.row(&actor_key(actor)) {
                Some(row) if row.pending().is_none() && !row.owner_is_live() => None,
                row => Some(format!("{row:?}")),
            },
            Self::Missing(actor) => world
                .row(&actor_key(actor))
                .map(|row| format!("a row of generation {}", row.object_generation)),
            Self::Creating(actor) => match world.row(&actor_key(actor)) {
                Some(row) if row.pending().is_some() => None,
                row => Some(format!("row {}", shown(row.is_some()))),
            },
            Self::FactoryRuns(actor, expected) => {
                let runs = world.oracles().creation.factory_runs(&actor_key(actor));
                (runs != *expected).then(|| runs.to_string())
            }
            Self::Ran(name, expected) => {
                let uid = calls.get(name).ok_or_else(|| format!("no call is named {name}"))?;
                let asked = world.oracles().calls.get(*uid).map(|call| &call.asked);
                if !matches!(asked, Some(Asked::Message { .. })) {
                    return Err(format!("{name} is no message"));
                }
                let ran = world.oracles().messages.ran(*uid).is_some();
                (ran != *expected).then(|| ran.to_string())
            }
            Self::Host(seat, expected) => {
                self.seat(world, *seat)?;
                let state = world.seats()[usize::from(seat.0)].host().map(spotmesh::host::Host::state);
                (state != Some(*expected)).then(|| format!("{state:?}"))
            }
            Self::Down(seat) => {
                self.seat(world, *seat)?;
                world.seats()[usize::from(seat.0)].host().map(|host| format!("{:?}", host.state()))
            }
        };
        Ok(found.map(|found| format!("expected {self:?}, found {found}")))
    }

    fn seat(&self, world: &World, seat: Seat) -> Result<(), String> {
        if usize::from(seat.0) < world.seats().len() {
            Ok(())
        } else {
            Err(format!("there is no host {}", seat.0))
        }
    }
}

fn shown(present: bool) -> &'static str {
    if present { "present" } else { "absent" }
}

fn fits(end: Option<&End>, expected: &CallEnd) -> bool {
    let answer = match end {
        Some(End::Answered(answer)) => answer,
        Some(End::Dropped) => return *expected == CallEnd::Dropped,
        Some(End::Died) => return *expected == CallEnd::Died,
        None => return *expected == CallEnd::Open,
    };
    match (answer, expected) {
        (Answer::Created { .. }, CallEnd::Created)
        | (Answer::Existing { .. }, CallEnd::Existing)
        | (Answer::Rejected { .. }, CallEnd::Rejected)
        | (Answer::Found(Some(_)), CallEnd::Found)
        | (Answer::Found(None), CallEnd::FoundNothing)
        | (Answer::Sent, CallEnd::Sent)
        | (Answer::Replied(_), CallEnd::Replied) => true,
        (Answer::Replied(bytes), CallEnd::Counter(counter)) => {
            CounterReply::decode(bytes).is_some_and(|reply| reply.counter == *counter)
        }
        (Answer::Failed(error), CallEnd::Failed(kind)) => error.kind().to_string() == *kind,
        (Answer::ShutDown { forced }, CallEnd::ShutDown(expected)) => forced == expected,
        _ => false,
    }
}
