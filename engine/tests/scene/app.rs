//! The application of a scene: each turn does what the first word of its request or payload says.

use bytes::Bytes;
use spotmesh::input::{Input, InstanceId, TurnEnd, TurnId};
use spotmesh::model::limits::CREATION_REQUEST_MAX;
use spotmesh::model::{ActorId, ErrorKind, Instant, ObjectGeneration, ObjectKey};
use spotmesh::output::{Turn, Work};

use super::Scene;

/// A turn that was started.
#[derive(Debug, Clone)]
pub struct StartedTurn {
    pub host: usize,
    pub run: u32,
    pub at: Instant,
    pub turn: Turn,
}

impl StartedTurn {
    pub fn is_factory(&self) -> bool {
        matches!(self.turn.work, Work::Create { .. })
    }

    /// The creation request, or the payload.
    pub fn input(&self) -> &Bytes {
        match &self.turn.work {
            Work::Create { request, .. } => request,
            Work::Message { payload, .. } => payload,
        }
    }
}

impl Scene {
    pub(super) fn turn_started(&mut self, host: usize, turn: Turn) {
        let (run, at) = (self.seats[host].run, self.now);
        let started = StartedTurn { host, run, at, turn: turn.clone() };
        let end = scripted(&turn);
        self.turns.push(started);
        match end {
            Some(end) => self.tell(host, Input::TurnEnded { turn: turn.turn, end }),
            None => {
                self.seats[host].running.insert(turn.turn, turn);
            }
        }
    }

    pub(super) fn instance_dropped(&mut self, host: usize, instance: InstanceId) {
        self.disposed.push((host, instance));
        self.seats[host].running.retain(|_, turn| turn.instance != instance);
    }

    /// Turns of a key that hold, on any host.
    pub fn holding(&self, id: &str) -> Vec<(usize, TurnId)> {
        let key = ObjectKey::Actor(ActorId::new(id).unwrap());
        let all = self.seats.iter().enumerate();
        all.flat_map(|(at, seat)| {
            seat.running.iter().filter(|(_, turn)| turn.key == key).map(move |(turn, _)| (at, *turn))
        })
        .collect()
    }

    /// Ends the one holding turn of a key.
    #[track_caller]
    pub fn end_turn(&mut self, id: &str, end: TurnEnd) {
        let holding = self.holding(id);
        let [(host, turn)] = holding[..] else { panic!("expected one turn of {id}, found {holding:?}") };
        self.seats[host].running.remove(&turn);
        self.tell(host, Input::TurnEnded { turn, end });
        self.settle();
    }

    /// Ends a turn that the host has given up, as a driver would not.
    pub fn end_turn_late(&mut self, host: usize, turn: TurnId, end: TurnEnd) {
        self.tell(host, Input::TurnEnded { turn, end });
        self.settle();
    }

    /// Factories started for a key so far.
    pub fn factories(&self, id: &str) -> Vec<&StartedTurn> {
        let key = ObjectKey::Actor(ActorId::new(id).unwrap());
        self.turns.iter().filter(|it| it.is_factory() && it.turn.key == key).collect()
    }

    /// Handlers started for a key so far.
    pub fn handled(&self, id: &str) -> Vec<&StartedTurn> {
        let key = ObjectKey::Actor(ActorId::new(id).unwrap());
        self.turns.iter().filter(|it| !it.is_factory() && it.turn.key == key).collect()
    }

    /// Whether the host let go of an instance.
    pub fn is_disposed(&self, host: usize, instance: InstanceId) -> bool {
        self.disposed.contains(&(host, instance))
    }

    /// Turns the hosts gave up.
    pub fn abandoned(&self) -> &[(usize, TurnId)] {
        &self.abandoned
    }

    /// Incarnations of a key that a factory ran for.
    pub fn generations(&self, id: &str) -> Vec<ObjectGeneration> {
        self.factories(id).iter().map(|it| it.turn.object_generation).collect()
    }
}

/// What the turn does at once; `None` where it holds.
fn scripted(turn: &Turn) -> Option<TurnEnd> {
    let input = match &turn.work {
        Work::Create { request, .. } => request,
        Work::Message { payload, .. } => payload,
    };
    let word = input.split(|byte| *byte == b' ').next().unwrap_or_default();
    let creates = matches!(turn.work, Work::Create { .. });
    Some(match (word, creates) {
        (b"hold", _) => return None,
        (b"decline", true) => TurnEnd::Declined { reply: Some(echo(input)) },
        (b"oversize", true) => {
            TurnEnd::Accepted { reply: Some(Bytes::from(vec![0; CREATION_REQUEST_MAX + 1])) }
        }
        (b"fail", _) => TurnEnd::Failed(ErrorKind::InternalFailure),
        (b"panic", _) => TurnEnd::Panicked,
        (_, true) => TurnEnd::Accepted { reply: Some(echo(input)) },
        (_, false) => TurnEnd::Handled { reply: echo(input) },
    })
}

/// `re:` and at most the first 64 bytes.
fn echo(input: &Bytes) -> Bytes {
    let mut reply = b"re:".to_vec();
    reply.extend_from_slice(&input[..input.len().min(64)]);
    reply.into()
}
