//! What the caller of a message sees: the table of MODEL-111, row by row, for Actors.

mod scene;

use std::time::Duration;

use bytes::Bytes;
use scene::{Call, Policy, Scene, client, key, server};
use spotmesh::event::Event;
use spotmesh::input::{ActorCall, Command, TurnEnd, TurnId};
use spotmesh::model::{ActorId, ErrorKind, PacketName};
use spotmesh::output::Answer;
use spotmesh::store::{AuthorityRead, StoreError, StoreReply};
use spotmesh::wire::{Message, Metadata, PayloadCodec};

const C: usize = 0;
const A: usize = 1;

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A caller and an owner; `x` lives on the owner.
fn pair() -> Scene {
    let mut scene = Scene::new(vec![client("c"), server("a")]);
    let call = scene.create(C, "x", "accept");
    scene.expect_created(call);
    scene
}

fn message(id: &str, payload: impl Into<Bytes>, timeout: Duration) -> ActorCall {
    ActorCall {
        target: ActorId::new(id).unwrap(),
        packet: PacketName::new("say").unwrap(),
        version: 1,
        codec: PayloadCodec::Postcard,
        payload: payload.into(),
        metadata: Metadata::none(),
        timeout,
    }
}

fn send(scene: &mut Scene, host: usize, id: &str, payload: &'static str) -> Call {
    scene.call(host, Command::SendToActor(message(id, payload, s(1))))
}

/// A send and a request at the same moment fail with the same kind and never reach a handler.
#[track_caller]
fn both_fail(scene: &mut Scene, host: usize, id: &str, kind: ErrorKind) {
    let before = scene.handled(id).len();
    let sent = send(scene, host, id, "hello");
    let asked = scene.request(host, id, "hello");
    scene.advance(s(6));
    scene.expect_failed(sent, kind);
    scene.expect_failed(asked, kind);
    assert_eq!(scene.handled(id).len(), before);
}

/// Messages that were dropped at the owner, with the kind.
fn dropped(scene: &Scene, id: &str) -> Vec<ErrorKind> {
    let all = scene.events().iter();
    all.filter_map(|(_, event)| match event {
        Event::MessageDropped { key: of, kind } if *of == key(id) => Some(*kind),
        _ => None,
    })
    .collect()
}

#[test]
fn model_111_missing_or_creating_is_not_found() {
    let mut scene = pair();
    for host in [C, A] {
        both_fail(&mut scene, host, "nobody", ErrorKind::NotFound);
        scene.create(C, "new", "hold");
        both_fail(&mut scene, host, "new", ErrorKind::NotFound);
    }
    // MODEL-127: a message creates nothing.
    assert!(scene.actor("nobody").is_none());
    assert!(scene.factories("nobody").is_empty());
}

#[test]
fn model_111_an_expired_owner_is_unavailable() {
    let mut scene = pair();
    scene.kill(A);
    scene.advance(s(16));
    both_fail(&mut scene, C, "x", ErrorKind::Unavailable);
}

#[test]
fn model_111_a_lost_route_is_unavailable() {
    let mut scene = pair();
    scene.cut(C, A);
    both_fail(&mut scene, C, "x", ErrorKind::Unavailable);
    // Not an attempt more than the callers made: it is up to them to call again.
    scene.mend(C, A);
    scene.advance(s(10));
    assert!(scene.handled("x").is_empty());
    let call = scene.request(C, "x", "hello");
    scene.expect_replied(call, "re:hello");
}

/// The Store names A as owner of an object that A does not have.
fn forge(scene: &mut Scene, host: usize, times: usize) {
    let mut row = scene.actor("x").unwrap();
    row.key = key("ghost");
    let forged = Ok(StoreReply::Authority(AuthorityRead::Found(Box::new(row))));
    scene.rule(host, "read_authority", Policy::Answer(forged), times);
}

#[test]
fn model_111_a_stale_owner_without_a_follow_route_is_unavailable() {
    // The caller's own node is the stale owner: it knows at admission.
    let mut scene = pair();
    forge(&mut scene, A, 2);
    both_fail(&mut scene, A, "ghost", ErrorKind::Unavailable);
    // Another node is: the request ends with its answer, the send had been admitted and is only observed.
    forge(&mut scene, C, 2);
    let sent = send(&mut scene, C, "ghost", "hello");
    assert_eq!(scene.answer(sent), Some(&Answer::Sent));
    assert_eq!(dropped(&scene, "ghost").last(), Some(&ErrorKind::Unavailable));
    let asked = scene.request(C, "ghost", "hello");
    scene.expect_failed(asked, ErrorKind::Unavailable);
    assert!(scene.handled("ghost").is_empty());
}

#[test]
fn model_111_a_store_failure_is_unavailable_and_data_lost_stays_data_lost() {
    for error in [StoreError::Unavailable, StoreError::Indeterminate] {
        let mut scene = pair();
        scene.rule(C, "read_authority", Policy::Answer(Err(error)), usize::MAX);
        both_fail(&mut scene, C, "x", ErrorKind::Unavailable);
    }
    let mut scene = pair();
    scene.rule(C, "read_authority", Policy::Answer(Err(StoreError::DataLost)), usize::MAX);
    both_fail(&mut scene, C, "x", ErrorKind::DataLost);
}

/// Fills the application lane of `x` on A: a running turn and 1,023 behind it.
fn fill(scene: &mut Scene) -> Vec<Call> {
    let hold = scene.call(A, Command::RequestActor(message("x", "hold", s(100))));
    let fill = (1..1_024).map(|_| scene.call(A, Command::SendToActor(message("x", "fill", s(1)))));
    let mut calls: Vec<_> = fill.collect();
    for call in &calls {
        assert_eq!(scene.answer(*call), Some(&Answer::Sent));
    }
    calls.insert(0, hold);
    calls
}

#[test]
fn model_111_no_room_at_a_local_target_is_deadline_exceeded() {
    let mut scene = pair();
    fill(&mut scene);
    let sent = send(&mut scene, A, "x", "no room");
    let asked = scene.request(A, "x", "no room");
    scene.advance(Duration::from_millis(999));
    scene.expect_no_answer(sent);
    scene.advance(Duration::from_millis(1));
    scene.expect_failed(sent, ErrorKind::DeadlineExceeded);
    scene.expect_no_answer(asked);
    scene.advance(s(4));
    scene.expect_failed(asked, ErrorKind::DeadlineExceeded);
    scene.end_turn("x", TurnEnd::Handled { reply: Bytes::new() });
    scene.advance(s(1));
    let ran = scene.handled("x");
    assert_eq!(ran.len(), 1_024, "what had room ran, what had none did not");
    assert!(ran.iter().all(|turn| &turn.input()[..] != b"no room"));
}

#[test]
fn model_111_no_room_at_a_remote_target_ends_the_request_and_not_the_send() {
    let mut scene = pair();
    fill(&mut scene);
    // MODEL-102: a send is over once the source took it; it waits at the target without a deadline.
    let sent = send(&mut scene, C, "x", "sent");
    assert_eq!(scene.answer(sent), Some(&Answer::Sent));
    let asked = scene.request(C, "x", "asked");
    scene.advance(Duration::from_millis(4_999));
    scene.expect_no_answer(asked);
    scene.advance(Duration::from_millis(1));
    scene.expect_failed(asked, ErrorKind::DeadlineExceeded);
    scene.end_turn("x", TurnEnd::Handled { reply: Bytes::new() });
    scene.advance(s(1));
    let ran: Vec<_> = scene.handled("x").iter().map(|turn| turn.input().clone()).collect();
    assert_eq!(ran.len(), 1_025);
    assert_eq!(&ran[1_024][..], b"sent", "the request's time was over before it could start");
}

#[test]
fn model_111_no_room_at_the_source_is_deadline_exceeded() {
    let mut scene = pair();
    scene.congest(C, A, true);
    let sent = send(&mut scene, C, "x", "hello");
    let asked = scene.request(C, "x", "hello");
    let patient = scene.call(C, Command::RequestActor(message("x", "patient", s(100))));
    scene.advance(Duration::from_millis(999));
    scene.expect_no_answer(sent);
    scene.advance(Duration::from_millis(1));
    scene.expect_failed(sent, ErrorKind::DeadlineExceeded);
    scene.advance(s(4));
    scene.expect_failed(asked, ErrorKind::DeadlineExceeded);
    // ERR-9: the full queue itself is a wait.
    scene.expect_no_answer(patient);
    scene.congest(C, A, false);
    scene.expect_replied(patient, "re:patient");
    assert_eq!(scene.handled("x").len(), 1);
    // A link that goes while messages wait for it takes them along.
    scene.congest(C, A, true);
    let sent = send(&mut scene, C, "x", "hello");
    let asked = scene.request(C, "x", "hello");
    scene.break_links(C, A);
    scene.expect_failed(sent, ErrorKind::Unavailable);
    scene.expect_failed(asked, ErrorKind::Unavailable);
}

#[test]
fn model_111_a_sealed_host_is_shutting_down() {
    let mut scene = pair();
    scene.request(A, "x", "hold");
    scene.shutdown(A, s(30));
    let before = scene.handled("x").len();
    // On the sealed host itself.
    let sent = send(&mut scene, A, "x", "hello");
    scene.expect_failed(sent, ErrorKind::ShuttingDown);
    let asked = scene.request(A, "x", "hello");
    scene.expect_failed(asked, ErrorKind::ShuttingDown);
    // At a sealed target.
    let asked = scene.request(C, "x", "hello");
    scene.expect_failed(asked, ErrorKind::ShuttingDown);
    let sent = send(&mut scene, C, "x", "hello");
    assert_eq!(scene.answer(sent), Some(&Answer::Sent));
    assert_eq!(dropped(&scene, "x"), [ErrorKind::ShuttingDown]);
    assert_eq!(scene.handled("x").len(), before);
}

/// A turn that ends so: what the caller of a request sees, from here and from another host.
#[track_caller]
fn turn_ends(end: &TurnEnd, request: ErrorKind) {
    for host in [C, A] {
        let mut scene = pair();
        let asked = scene.request(host, "x", "hold");
        scene.end_turn("x", end.clone());
        scene.expect_failed(asked, request);
        // A send is observed only.
        let sent = send(&mut scene, host, "x", "hold");
        assert_eq!(scene.answer(sent), Some(&Answer::Sent));
        assert!(dropped(&scene, "x").is_empty());
        scene.end_turn("x", end.clone());
        assert_eq!(scene.answer(sent), Some(&Answer::Sent));
        assert_eq!(dropped(&scene, "x"), [request]);
        // The object goes on.
        let asked = scene.request(host, "x", "hello");
        scene.expect_replied(asked, "re:hello");
    }
}

#[test]
fn model_111_err_17_what_a_handler_ends_with_is_what_a_request_sees() {
    turn_ends(&TurnEnd::NoHandler, ErrorKind::NotFound);
    turn_ends(&TurnEnd::Undecodable, ErrorKind::ProtocolError);
    turn_ends(&TurnEnd::Panicked, ErrorKind::InternalFailure);
    for kind in ErrorKind::ALL {
        // ERR-14: Configuration never travels.
        turn_ends(&TurnEnd::Failed(kind), kind.for_peer());
    }
}

#[test]
fn model_111_a_failure_after_admission_never_changes_a_send() {
    let mut scene = pair();
    let calls = [send(&mut scene, C, "x", "hold"), send(&mut scene, C, "x", "queued")];
    scene.break_links(C, A);
    scene.kill(A);
    scene.advance(s(60));
    for call in calls {
        assert_eq!(scene.answer(call), Some(&Answer::Sent));
    }
    assert_eq!(scene.handled("x").len(), 1, "nothing is sent again");
}

#[test]
fn model_111_a_self_wait_is_an_invalid_operation_before_submission() {
    let mut scene = pair();
    scene.request(C, "x", "hold");
    let [(host, turn)] = scene.holding("x")[..] else { panic!("one turn") };
    let from = |scene: &mut Scene, turn: TurnId, id: &str, payload: &'static str| {
        scene.call_from(host, Some(turn), Command::RequestActor(message(id, payload, s(5))))
    };
    let reads = scene.store_use_count(A);
    let own = from(&mut scene, turn, "x", "hello");
    scene.expect_failed(own, ErrorKind::InvalidOperation);
    assert_eq!(scene.store_use_count(A), reads);
    // A send to itself waits for nothing, and a request to somebody else is no wait for itself.
    let sent = scene.call_from(host, Some(turn), Command::SendToActor(message("x", "later", s(1))));
    assert_eq!(scene.answer(sent), Some(&Answer::Sent));
    let create = scene.create(A, "y", "accept");
    scene.expect_created(create);
    let other = from(&mut scene, turn, "y", "hello");
    scene.expect_replied(other, "re:hello");
    scene.end_turn("x", TurnEnd::Handled { reply: Bytes::new() });
    assert_eq!(scene.handled("x").len(), 2);
}

#[test]
fn err_12_what_can_be_seen_at_the_call_fails_there() {
    let mut scene = pair();
    let before = (scene.store_use_count(C), scene.sent(C, A).len());
    let too_large = Bytes::from(vec![0; (16 << 20) + 1]);
    for timeout in [Duration::ZERO, Duration::from_millis(1 << 31)] {
        for command in [Command::SendToActor, Command::RequestActor] {
            let call = scene.call(C, command(message("x", "hello", timeout)));
            scene.expect_failed(call, ErrorKind::InvalidOperation);
        }
    }
    for command in [Command::SendToActor, Command::RequestActor] {
        let call = scene.call(C, command(message("x", too_large.clone(), s(1))));
        scene.expect_failed(call, ErrorKind::InvalidOperation);
    }
    assert_eq!((scene.store_use_count(C), scene.sent(C, A).len()), before);
}

#[test]
fn err_t18_late_replies_after_timeout_or_cancellation_give_no_second_result() {
    // The scene fails on a second answer to a call and on an answer to a dropped one.
    for cancelled in [false, true] {
        let mut scene = pair();
        scene.hold_link(A, C);
        let asked = scene.request(C, "x", "hello");
        let create = scene.create_within(C, "y", "accept", s(5));
        if cancelled {
            scene.drop_call(asked);
            scene.drop_call(create);
        } else {
            scene.advance(s(5));
            scene.expect_failed(asked, ErrorKind::DeadlineExceeded);
            // The creation was found by reading: its answer is still on the way.
            assert!(scene.answer(create).is_some());
        }
        let before = (scene.answer(asked).cloned(), scene.answer(create).cloned());
        let late = scene.held_on_link(A, C);
        assert!(late.iter().any(|it| matches!(it, Message::Reply(_))), "{late:?}");
        assert!(late.iter().any(|it| matches!(it, Message::CreateAnswer(_))), "{late:?}");
        scene.release_link(A, C);
        scene.advance(s(10));
        assert_eq!((scene.answer(asked).cloned(), scene.answer(create).cloned()), before);
        assert_eq!(scene.handled("x").len(), 1);
        // The late reply is not taken for that of another call.
        let next = scene.request(C, "x", "next");
        scene.expect_replied(next, "re:next");
    }
    // The same for a caller on the owner's host.
    for cancelled in [false, true] {
        let mut scene = pair();
        let asked = scene.request(A, "x", "hold");
        if cancelled {
            scene.drop_call(asked)
        } else {
            scene.advance(s(5))
        }
        scene.end_turn("x", TurnEnd::Handled { reply: "late".into() });
        if !cancelled {
            scene.expect_failed(asked, ErrorKind::DeadlineExceeded);
        }
    }
}
