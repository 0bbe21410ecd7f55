//! Each oracle objects to what it is for, and to nothing else.

use std::time::Duration;

use bytes::Bytes;
use spotmesh::input::{CallId, InstanceId, TurnId};
use spotmesh::link::{LinkId, NodeIndex};
use spotmesh::model::{
    AuthorityOwnerGeneration, Error, ErrorKind, Instant, ObjectGeneration, ObjectKey, StableType,
};
use spotmesh::output::{Answer, Turn, Work};
use spotmesh::wire::{Metadata, PayloadCodec};

use super::calls::{Asked, Call, Calls, End};
use super::messages::Messages;
use super::rows::Rows;
use super::turns::Turns;
use super::{Verdicts, actor_key};
use crate::place::{RunOf, Seat};
use crate::script::{CounterReply, Ending, HandlerScript, Uid, Verdict, encode};

const A: RunOf = RunOf { seat: Seat(0), run: 1 };
const B: RunOf = RunOf { seat: Seat(1), run: 1 };

fn turn(number: u64, instance: u64, key: &str, uid: Option<u64>) -> Turn {
    let work = match uid {
        None => Work::Create { request: Bytes::new(), remaining: Duration::from_secs(1) },
        Some(uid) => Work::Message {
            wants_reply: true,
            packet: spotmesh::model::PacketName::new("scripted").unwrap(),
            version: 1,
            codec: PayloadCodec::Postcard,
            payload: encode(Uid(uid), &HandlerScript::default()),
            metadata: Metadata::none(),
            remaining: Duration::from_secs(1),
        },
    };
    Turn {
        turn: TurnId(number),
        instance: InstanceId(instance),
        node: NodeIndex(0),
        key: actor_key(key),
        stable_type: StableType::new("counter").unwrap(),
        object_generation: ObjectGeneration::FIRST,
        owner_generation: AuthorityOwnerGeneration::FIRST,
        work,
    }
}

fn found(verdicts: &Verdicts) -> Vec<&'static str> {
    verdicts.found().iter().map(|violation| violation.oracle).collect()
}

fn call(uid: u64, by: RunOf, asked: Asked) -> Call {
    Call { uid: Uid(uid), by, id: CallId(uid), asked, at: 0, deadline: Instant::from_nanos(1_000), end: None }
}

fn request(key: &str) -> Asked {
    Asked::Message { key: actor_key(key), request: true, ending: Ending::Reply, from: None }
}

#[test]
fn the_gate_oracle_sees_overlaps_and_strangers() {
    let mut verdicts = Verdicts::default();
    let mut turns = Turns::default();
    turns.started(&mut verdicts, 0, A, &turn(1, 1, "a", None));
    turns.ended(A, TurnId(1), Some(true));
    turns.started(&mut verdicts, 1, A, &turn(2, 1, "a", Some(1)));
    turns.ended(A, TurnId(2), None);
    turns.started(&mut verdicts, 2, A, &turn(3, 1, "a", Some(2)));
    assert!(verdicts.is_clean());
    turns.started(&mut verdicts, 3, A, &turn(4, 1, "a", Some(3)));
    assert_eq!(found(&verdicts), ["gate"], "an overlap");
    turns.started(&mut verdicts, 3, A, &turn(5, 9, "b", Some(4)));
    assert_eq!(verdicts.found().len(), 2, "an unknown instance");
    turns.started(&mut verdicts, 4, B, &turn(1, 1, "a", None));
    assert!(verdicts.found().len() > 2, "one incarnation on two hosts: {:?}", verdicts.found());
}

#[test]
fn the_gate_oracle_sees_turns_on_refused_and_dropped_instances() {
    let mut verdicts = Verdicts::default();
    let mut turns = Turns::default();
    turns.started(&mut verdicts, 0, A, &turn(1, 1, "a", None));
    turns.ended(A, TurnId(1), Some(false));
    turns.started(&mut verdicts, 1, A, &turn(2, 1, "a", Some(1)));
    assert_eq!(found(&verdicts), ["gate"]);
    let mut verdicts = Verdicts::default();
    let mut turns = Turns::default();
    turns.started(&mut verdicts, 0, A, &turn(1, 1, "a", None));
    turns.ended(A, TurnId(1), Some(true));
    turns.dropped(&mut verdicts, 1, A, InstanceId(1));
    assert!(verdicts.is_clean());
    turns.started(&mut verdicts, 2, A, &turn(2, 1, "a", Some(1)));
    assert_eq!(found(&verdicts), ["gate"]);
}

#[test]
fn the_message_oracles_see_repeats_reorderings_and_foreign_replies() {
    let mut calls = Calls::default();
    for uid in 1..=3 {
        calls.submitted(call(uid, A, request("a")));
    }
    let mut verdicts = Verdicts::default();
    let mut messages = Messages::default();
    for uid in 1..=3 {
        messages.sent(&mut verdicts, &calls, 0, A, LinkId(1), Uid(uid));
    }
    messages.started(&mut verdicts, &calls, 1, B, &turn(1, 1, "a", Some(1)), Uid(1));
    messages.replied(Uid(1), 1);
    messages.answered(&mut verdicts, 2, Uid(1), 1);
    messages.started(&mut verdicts, &calls, 3, B, &turn(2, 1, "a", Some(3)), Uid(3));
    assert!(verdicts.is_clean(), "{:?}", verdicts.found());
    messages.started(&mut verdicts, &calls, 4, B, &turn(3, 1, "a", Some(2)), Uid(2));
    messages.started(&mut verdicts, &calls, 5, B, &turn(4, 1, "a", Some(1)), Uid(1));
    messages.sent(&mut verdicts, &calls, 6, A, LinkId(2), Uid(2));
    messages.answered(&mut verdicts, 7, Uid(2), 9);
    messages.started(&mut verdicts, &calls, 8, B, &turn(5, 2, "b", Some(3)), Uid(3));
    let oracles = found(&verdicts);
    for expected in ["order", "twice", "resubmitted", "messages"] {
        assert!(oracles.contains(&expected), "{expected} in {oracles:?}");
    }
}

#[test]
fn the_call_oracles_see_second_early_foreign_and_impossible_answers() {
    let at = |ns| (ns, Instant::from_nanos(ns));
    let reply = |uid| Answer::Replied(CounterReply { uid: Uid(uid), counter: 1 }.encode());
    let failed = |kind| Answer::Failed(Error::new(kind, "request", "test"));
    let judge = |answers: &[(u64, Answer)]| {
        let mut calls = Calls::default();
        calls.submitted(call(1, A, request("a")));
        let mut verdicts = Verdicts::default();
        for (ns, answer) in answers {
            calls.answered(&mut verdicts, &Rows::default(), at(*ns), (A, CallId(1)), answer);
        }
        found(&verdicts)
    };
    assert!(judge(&[(1, reply(1))]).is_empty());
    assert!(judge(&[(1_000, failed(ErrorKind::DeadlineExceeded))]).is_empty());
    assert!(judge(&[(1, failed(ErrorKind::NotFound))]).is_empty(), "the key never existed");
    assert_eq!(judge(&[(1, reply(1)), (2, reply(1))]), ["calls"]);
    assert_eq!(judge(&[(1, reply(2))]), ["answer"]);
    assert_eq!(judge(&[(999, failed(ErrorKind::DeadlineExceeded))]), ["answer"]);
    assert_eq!(judge(&[(1, Answer::Sent)]), ["answer"]);
    assert_eq!(judge(&[(1, failed(ErrorKind::InternalFailure))]), ["answer"]);
    assert_eq!(judge(&[(1, failed(ErrorKind::AlreadyExists))]), ["answer"]);
}

#[test]
fn an_answer_after_the_caller_left_is_seen_and_a_dead_caller_is_excused() {
    let mut calls = Calls::default();
    calls.submitted(call(1, A, request("a")));
    calls.submitted(call(2, B, request("a")));
    calls.dropped(5, Uid(1));
    calls.process_died(B);
    assert_eq!(calls.get(Uid(2)).and_then(|call| call.end.clone()).map(|(_, end)| end), Some(End::Died));
    assert_eq!(calls.open().count(), 0);
    let mut verdicts = Verdicts::default();
    let now = (6, Instant::from_nanos(6));
    calls.answered(&mut verdicts, &Rows::default(), now, (A, CallId(1)), &Answer::Sent);
    assert_eq!(found(&verdicts), ["calls"]);
}

#[test]
fn a_created_answer_needs_an_approving_callback_and_a_life() {
    let asked = Asked::Create {
        key: actor_key("a"),
        stable_type: "counter".to_owned(),
        exclusive: false,
        verdict: Verdict::Decline,
    };
    let mut calls = Calls::default();
    calls.submitted(call(1, A, asked));
    let actor = spotmesh::model::ActorRef {
        id: match actor_key("a") {
            ObjectKey::Actor(id) => id,
            ObjectKey::Spot(_) => unreachable!(),
        },
        object_generation: ObjectGeneration::FIRST,
        mesh: spotmesh::model::MeshName::new("alpha").unwrap(),
        node: spotmesh::model::Rid::new("n").unwrap(),
    };
    let mut verdicts = Verdicts::default();
    let now = (6, Instant::from_nanos(6));
    calls.answered(
        &mut verdicts,
        &Rows::default(),
        now,
        (A, CallId(1)),
        &Answer::Created { actor, reply: None },
    );
    assert_eq!(found(&verdicts), ["answer"]);
}
