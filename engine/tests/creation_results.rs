//! What an outcome means, and what it leaves behind (spec 04 §3, §5).

mod scene;

use std::time::Duration;

use bytes::Bytes;
use scene::{Call, Policy, Scene, TIMEOUT, client, server};
use spotmesh::input::{CreateMode, TurnEnd};
use spotmesh::model::limits::CREATION_REQUEST_MAX;
use spotmesh::model::{ErrorKind, Sha256Digest};
use spotmesh::store::{
    AuthorityState, ConflictReason, Content, Membership, Stamped, StoreError, StoreReply, StoreRequest,
    TerminalOutcome,
};

const C1: usize = 0;
const C2: usize = 1;
const A: usize = 2;

fn cast() -> Scene {
    Scene::new(vec![client("c1"), client("c2"), server("a")])
}

/// The end of the one failed attempt so far, as it was recorded.
fn recorded_failure(scene: &Scene) -> TerminalOutcome {
    let aborts = scene.store_uses(A, "abort(Failed)");
    let [abort] = aborts[..] else { panic!("{} aborts", aborts.len()) };
    assert!(matches!(abort.result, Some(Ok(_))));
    match &abort.request {
        StoreRequest::AbortFailed(abort) => abort.envelope.as_ref().expect("an Actor has a record").outcome,
        other => panic!("{other:?}"),
    }
}

fn nothing_is_left(scene: &mut Scene) {
    assert_eq!(scene.actor("x"), None, "the key is Missing");
    assert_eq!(scene.used(A), (0, 0), "the bundle is back");
    assert_eq!(scene.host(A).object_count(), 0);
    assert_eq!(scene.node(A).pending_activations, 0);
    assert!(scene.handled("x").is_empty(), "no message was accepted");
    assert!(scene.all_store_uses("commit_created").is_empty());
}

#[test]
fn create_t4_an_exception_is_failed_not_rejected() {
    for request in ["fail", "panic"] {
        let mut scene = cast();
        let call = scene.create(C1, "x", request);
        scene.expect_failed(call, ErrorKind::InternalFailure);
        assert_eq!(recorded_failure(&scene), TerminalOutcome::Failed(ErrorKind::InternalFailure));
        nothing_is_left(&mut scene);
    }
}

#[test]
fn create_t4_an_exception_after_a_while_lets_no_message_in() {
    let mut scene = cast();
    let call = scene.create(C1, "x", "hold");
    let asked = scene.request(C2, "x", "hello");
    scene.advance(Duration::from_secs(1));
    scene.end_turn("x", TurnEnd::Panicked);
    scene.advance(Duration::from_secs(6));
    scene.expect_failed(call, ErrorKind::InternalFailure);
    scene.expect_failed(asked, ErrorKind::NotFound);
    nothing_is_left(&mut scene);
}

#[test]
fn create_t4_a_callback_timeout_is_failed_and_its_late_result_is_discarded() {
    let mut scene = cast();
    let call = scene.create_within(C1, "x", "hold", Duration::from_secs(2));
    let holding = scene.holding("x");
    let [(host, turn)] = holding[..] else { panic!("{holding:?}") };
    scene.advance(Duration::from_secs(2));
    scene.expect_failed(call, ErrorKind::DeadlineExceeded);
    assert_eq!(scene.abandoned(), [(host, turn)]);
    assert_eq!(recorded_failure(&scene), TerminalOutcome::Failed(ErrorKind::DeadlineExceeded));
    nothing_is_left(&mut scene);
    scene.end_turn_late(host, turn, TurnEnd::Accepted { reply: None });
    scene.advance(Duration::from_secs(5));
    nothing_is_left(&mut scene);
}

#[test]
fn create_22_a_reply_that_does_not_fit_is_a_protocol_error() {
    let mut scene = cast();
    let call = scene.create(C1, "x", "oversize");
    scene.expect_failed(call, ErrorKind::ProtocolError);
    assert_eq!(recorded_failure(&scene), TerminalOutcome::Failed(ErrorKind::ProtocolError));
    nothing_is_left(&mut scene);
}

#[test]
fn create_t5_refused_objects_are_never_found_resolved_or_counted_active() {
    for end in [TurnEnd::Declined { reply: None }, TurnEnd::Panicked] {
        let mut scene = cast();
        scene.create(C1, "x", "hold");
        assert_eq!(scene.used(A), (0, 1), "reserved, not active");
        assert!(!scene.is_found(C2, "x"));
        let early = scene.request(C2, "x", "hello");
        scene.expect_failed(early, ErrorKind::NotFound);
        scene.end_turn("x", end);
        assert_eq!(scene.used(A), (0, 0));
        assert!(!scene.is_found(C2, "x"));
        assert!(!scene.is_found(A, "x"));
        let late = scene.request(C2, "x", "hello");
        scene.expect_failed(late, ErrorKind::NotFound);
        nothing_is_left(&mut scene);
    }
}

fn sized(len: usize) -> Bytes {
    let mut request = b"accept ".to_vec();
    request.resize(len, b'.');
    request.into()
}

fn create_sized(scene: &mut Scene, len: usize) -> Call {
    scene.create_as(C1, "x", CreateMode::GetOrCreate, "counter", sized(len), TIMEOUT)
}

#[test]
fn create_t15_a_request_of_1_mib_works_and_one_byte_more_never_reaches_the_store() {
    let mut scene = cast();
    let before = scene.store_use_count(C1);
    let call = create_sized(&mut scene, CREATION_REQUEST_MAX + 1);
    scene.expect_failed(call, ErrorKind::InvalidOperation);
    assert_eq!(scene.store_use_count(C1), before, "no Store call");

    let call = create_sized(&mut scene, CREATION_REQUEST_MAX);
    scene.expect_created(call);
    let factories = scene.factories("x");
    let [factory] = factories[..] else { panic!("{} factories", factories.len()) };
    assert_eq!(*factory.input(), sized(CREATION_REQUEST_MAX));
    // The order carries no request: the content came from the Store alone (CREATE-11).
    let puts = scene.all_store_uses("put_creation_content");
    assert!(matches!(&puts[0].request, StoreRequest::PutCreationContent(put)
        if put.sha256 == Sha256Digest::of(&sized(CREATION_REQUEST_MAX))));
    assert!(puts[0].at <= scene.all_store_uses("reserve")[0].at);
}

#[test]
fn create_t15_altered_content_is_data_lost_without_a_factory() {
    let content = |bytes: &'static [u8]| {
        let sha256 = Sha256Digest::of(b"accept");
        let value = Content { bytes: Bytes::from_static(bytes), sha256 };
        let store_now = spotmesh::model::StoreTime::from_micros(0);
        Ok(StoreReply::Content(Stamped { value, store_now }))
    };
    let found = [
        content(b"Accept"),
        content(b"accep"),
        content(b"accept "),
        content(b""),
        Err(StoreError::NotFound),
        Err(StoreError::DataLost),
    ];
    for found in found {
        let mut scene = cast();
        scene.rule(A, "get_creation_content", Policy::Answer(found.clone()), 1);
        let call = scene.create(C1, "x", "accept");
        scene.expect_failed(call, ErrorKind::DataLost);
        assert!(scene.factories("x").is_empty(), "no factory for {found:?}");
        assert_eq!(recorded_failure(&scene), TerminalOutcome::Failed(ErrorKind::DataLost));
        nothing_is_left(&mut scene);
    }
}

#[test]
fn create_t16_an_actor_begins_as_a_member_of_its_nodes_entry_spot() {
    let mut scene = cast();
    let call = scene.create(C1, "x", "accept");
    scene.expect_created(call);
    let row = scene.actor("x").expect("Ready");
    let entry = scene.node(A).entry_spot.expect("a server has an Entry Spot");
    assert_eq!(row.membership, Membership::Entry { spot: entry.clone() });
    assert!(matches!(row.state, AuthorityState::Ready(_)));
    // Membership came with Ready, in the one commit (CREATE-76).
    let commits = scene.all_store_uses("commit_created");
    assert!(matches!(&commits[0].request, StoreRequest::CommitCreated(commit)
        if commits.len() == 1 && commit.entry_spot_id == Some(entry)));
    assert!(scene.all_store_uses("change_membership").is_empty());
    // One turn ran: the creation. No join callback.
    assert_eq!((scene.factories("x").len(), scene.handled("x").len()), (1, 0));
}

/// A target that lost sight of its own attempt discards it, finds the row still assigned to it, and runs the
/// factory again for the same attempt.
#[test]
fn create_t17_a_factory_that_runs_twice_for_one_attempt_leaves_one_object() {
    let mut scene = cast();
    let conflict = StoreError::Conflict { reason: ConflictReason::VersionMismatch, current: None };
    scene.rule(A, "commit_created", Policy::Answer(Err(conflict)), 1);
    let call = scene.create(C1, "x", "hold");
    scene.rule(A, "read_creation", Policy::Answer(Err(StoreError::Corrupt("read".to_owned()))), 1);
    scene.end_turn("x", TurnEnd::Accepted { reply: Some(Bytes::from_static(b"first")) });
    scene.expect_no_answer(call);
    assert_eq!(scene.host(A).object_count(), 0);
    scene.advance_until(Duration::from_secs(15), "the attempt runs again", |it| it.factories("x").len() == 2);
    scene.end_turn("x", TurnEnd::Accepted { reply: Some(Bytes::from_static(b"second")) });
    scene.advance(Duration::from_secs(2));
    let (object, reply) = scene.expect_created(call);
    assert_eq!(reply, "second");
    // One attempt, twice: the same incarnation.
    assert_eq!(scene.generations("x"), [object.object_generation; 2]);
    assert_eq!(scene.all_store_uses("reserve").len(), 1);
    assert_eq!(scene.host(A).object_count(), 1);
    assert_eq!(scene.used(A), (1, 0));
    let instances: Vec<_> = scene.factories("x").iter().map(|it| it.turn.instance).collect();
    assert_ne!(instances[0], instances[1]);
    let asked = scene.request(C2, "x", "hello");
    scene.expect_replied(asked, "re:hello");
    assert_eq!(
        scene.handled("x")[0].turn.instance,
        instances[1],
        "messages reach the one that was committed"
    );
}

#[test]
fn create_t30_each_incarnation_has_a_generation_of_its_own() {
    let mut scene = cast();
    for request in ["decline", "fail", "decline", "panic"] {
        let call = scene.create(C1, "x", request);
        assert!(scene.answer(call).is_some());
    }
    let call = scene.create(C2, "x", "accept");
    let (first, _) = scene.expect_created(call);
    // The owner goes in order, another process takes its place and the id is created anew.
    scene.shutdown(A, Duration::from_secs(5));
    scene.advance(Duration::from_secs(8));
    assert_eq!(scene.actor("x"), None);
    scene.kill(A);
    scene.start(A);
    scene.advance(Duration::from_secs(3));
    let call = scene.create(C2, "x", "accept");
    let (second, _) = scene.expect_created(call);
    assert!(second.object_generation > first.object_generation);
    let mut generations: Vec<_> = scene.generations("x").iter().map(|it| it.get()).collect();
    assert_eq!(generations.len(), 6);
    assert!(generations.iter().all(|it| *it > 0 && *it < 1 << 63), "{generations:?}");
    generations.sort_unstable();
    generations.dedup();
    assert_eq!(generations.len(), 6, "no generation twice");
}
