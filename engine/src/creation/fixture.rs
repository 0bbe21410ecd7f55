//! Ids, rows and fences for the tests of this folder's machines.

use std::num::NonZeroU64;
use std::time::Duration;

use bytes::Bytes;

use crate::model::{
    ActorId, AuthorityOwnerGeneration, ContentId, ErrorKind, Instant, LeaseGeneration, LeaseRef,
    LifecycleGeneration, MeshName, NodeFence, ObjectGeneration, ObjectKey, ObjectKind, OperationId,
    OperationIdentity, OwnerId, ReservationId, Rid, Sha256Digest, SpotId, StableType, StoreTime,
    StoreVersion,
};
use crate::store::{
    Allocation, AuthorityRead, AuthorityState, AuthorityView, Bundle, CreationSource, CreationView,
    LeaseState, LeaseView, Membership, PendingCreation, ReadyObject, ReservationFence, Stamped, StoreReply,
    TerminalEnvelope, TerminalOutcome, TerminalRecord,
};

/// Where machines of these tests stand in time.
pub(super) const NOW: Instant = Instant::from_nanos(100_000_000_000);
/// The Store's time then.
pub(super) const STORE_NOW: StoreTime = StoreTime::from_micros(500_000_000);
/// Time left of the operation.
pub(super) const LEFT: Duration = Duration::from_secs(30);
/// Of the operation's attempt, and of somebody else's.
pub(super) const OWN: u128 = 5;
pub(super) const OTHER: u128 = 6;

pub(super) fn key() -> ObjectKey {
    ObjectKey::Actor(ActorId::new("x").unwrap())
}

pub(super) fn counter() -> StableType {
    StableType::new("counter").unwrap()
}

pub(super) fn entry_spot() -> SpotId {
    SpotId::new("entry-of-a").unwrap()
}

pub(super) fn request() -> Bytes {
    Bytes::from_static(b"please")
}

pub(super) fn digest() -> Sha256Digest {
    Sha256Digest::of(&request())
}

pub(super) fn lease(owner: u128) -> LeaseRef {
    LeaseRef { owner: OwnerId::new(owner).unwrap(), generation: LeaseGeneration::FIRST }
}

pub(super) fn lifecycle(number: u64) -> LifecycleGeneration {
    LifecycleGeneration::new(NonZeroU64::new(number).unwrap())
}

/// The target, `a`, under lease 2; the operation's source has lease 1.
pub(super) fn target() -> NodeFence {
    NodeFence {
        mesh: MeshName::new("alpha").unwrap(),
        rid: Rid::new("a").unwrap(),
        lifecycle: lifecycle(20),
        lease: lease(2),
    }
}

pub(super) fn operation(number: u128) -> OperationIdentity {
    OperationIdentity {
        source_rid: Rid::new("s").unwrap(),
        source_lifecycle: lifecycle(10),
        operation: OperationId::new(number).unwrap(),
    }
}

pub(super) fn reservation(number: u128) -> ReservationId {
    ReservationId::new(number).unwrap()
}

pub(super) fn content() -> ContentId {
    ContentId::new(9).unwrap()
}

pub(super) fn fence() -> ReservationFence {
    row(OWN).reservation_fence().unwrap()
}

/// A Creating row of one operation's attempt on a live target.
pub(super) fn row(number: u128) -> AuthorityView {
    AuthorityView {
        key: key(),
        kind: ObjectKind::Actor,
        stable_type: counter(),
        execution_mode: None,
        state: AuthorityState::Creating(PendingCreation {
            reservation: reservation(number),
            operation: operation(number),
            source: CreationSource::Content(content(), digest(), 6),
            deadline_at: STORE_NOW + LEFT,
        }),
        object_generation: ObjectGeneration::FIRST,
        owner_generation: AuthorityOwnerGeneration::FIRST,
        owner: target(),
        owner_lease: live(),
        allocation: Allocation::Reserved,
        bundle: Bundle::of(ObjectKind::Actor, &counter()),
        membership: Membership::None,
        version: StoreVersion::FIRST,
        store_now: STORE_NOW,
    }
}

/// The row once an attempt made it Ready.
pub(super) fn ready(number: u128) -> AuthorityView {
    let state = AuthorityState::Ready(ReadyObject {
        mark: None,
        created_by: Some(reservation(number)),
        activation: None,
        last_change: None,
        last_commit: None,
    });
    AuthorityView {
        state,
        allocation: Allocation::Active,
        membership: Membership::Entry { spot: entry_spot() },
        ..row(number)
    }
}

pub(super) fn live() -> LeaseView {
    let expires_at = STORE_NOW + Duration::from_secs(10);
    LeaseView { lease: lease(2), state: LeaseState::Active, expires_at }
}

pub(super) fn envelope(outcome: TerminalOutcome) -> TerminalEnvelope {
    TerminalEnvelope {
        outcome,
        key: key(),
        object_generation: ObjectGeneration::FIRST,
        mesh: MeshName::new("alpha").unwrap(),
        rid: Rid::new("a").unwrap(),
        reply: match outcome {
            TerminalOutcome::Failed(_) => None,
            _ => Some(Bytes::from_static(b"reply")),
        },
    }
}

/// A record of the operation, written by the attempt of this number.
pub(super) fn record(outcome: TerminalOutcome, number: u128) -> TerminalRecord {
    let envelope = envelope(outcome);
    TerminalRecord {
        operation: operation(OWN),
        reservation: reservation(number),
        sha256: Sha256Digest::of(&envelope.encode()),
        envelope,
        retain_until: STORE_NOW + Duration::from_secs(330),
    }
}

/// What `read_creation` shows.
pub(super) fn seen(row: Option<AuthorityView>, terminal: Option<TerminalRecord>) -> CreationView {
    CreationView {
        target_lease: row.as_ref().map(|row| row.owner_lease),
        target_lifecycle: row.as_ref().map(|row| row.owner.lifecycle),
        authority: match row {
            Some(row) => AuthorityRead::Found(Box::new(row)),
            None => AuthorityRead::Missing { store_now: STORE_NOW },
        },
        terminal,
        store_now: STORE_NOW,
    }
}

pub(super) fn read(view: CreationView) -> StoreReply {
    StoreReply::Creation(Box::new(view))
}

pub(super) fn stamped<T>(value: T) -> Stamped<T> {
    Stamped { value, store_now: STORE_NOW }
}

/// Compares a machine with its table: one line per event, one column per state, the cell names what follows.
///
/// `reach` says what follows an event in a state: the next state, `=` and the end of the operation, or `.` where
/// nothing happens at all.
pub(super) fn walk_grid(table: &str, events: &[&str], reach: impl Fn(&str, &str) -> String) {
    let mut lines = table.lines().filter(|line| !line.trim().is_empty());
    let split = |line: &str| -> Vec<String> { line.split('|').map(|cell| cell.trim().to_owned()).collect() };
    let states = split(lines.next().expect("a heading")).split_off(1);
    let mut wrong = Vec::new();
    let mut written = Vec::new();
    for line in lines {
        let mut found = split(line);
        let expected = found.split_off(1);
        // The label ends in the ids of its rows of the spec.
        let event = found[0].split(" #").next().unwrap_or_default().trim().to_owned();
        assert_eq!(expected.len(), states.len(), "cells of {event}");
        for (state, expected) in states.iter().zip(&expected) {
            let actual = reach(state, &event);
            if actual != *expected {
                wrong.push(format!("{state} + {event}: the table says {expected}, the machine {actual}"));
            }
        }
        written.push(event);
    }
    assert_eq!(written, events, "the table has a line for every event, in this order");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// How an error ends an operation, in a cell.
pub(super) fn failed(kind: ErrorKind) -> String {
    format!("={kind:?}").chars().take(9).collect()
}
