//! Exact effects of single rows.

use std::time::Duration;

use super::*;
use crate::creation::CoordinatorEffect as F;
use crate::mark::Mark;
use crate::model::limits::TERMINAL_RETENTION;
use crate::model::{ContentId, Error, ReservationId};
use crate::store::{
    AbortNotExecuted, AbortRecovery, CreationSource, PutCreationContent, ReadCreation, Reserve, StoreRequest,
};

fn in_state(state: &str) -> Stage {
    Stage::after(CreateMode::GetOrCreate, path(state))
}

fn read_request() -> F {
    F::Call(ReadCreation { key: key(), operation: operation(OWN) }.into())
}

fn withdraw() -> StoreRequest {
    AbortNotExecuted { fence: fence(), lease: lease(1) }.into()
}

/// The kind a `Finish` ends with, taken off the effects.
fn take_failure(effects: &mut Vec<F>) -> ErrorKind {
    match effects.pop() {
        Some(F::Finish(Some(Answer::Failed(error)))) => Error::kind(&error),
        other => panic!("expected a failure, found {other:?}"),
    }
}

fn put_of(effects: &[F]) -> PutCreationContent {
    match effects {
        [F::Call(StoreRequest::PutCreationContent(put))] => put.clone(),
        other => panic!("expected put_creation_content alone, found {other:?}"),
    }
}

fn reserve_of(effects: &[F]) -> Reserve {
    match effects {
        [F::Call(StoreRequest::Reserve(reserve))] => reserve.clone(),
        other => panic!("expected reserve alone, found {other:?}"),
    }
}

fn content_of(reserve: &Reserve) -> ContentId {
    match reserve.source {
        CreationSource::Content(content, digest, size) => {
            assert_eq!((digest, size as usize), (super::digest(), request().len()));
            content
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn create_34_whoever_meets_an_abandoned_attempt_cleans_it() {
    for seen in ["read others, lease dead", "read others, replaced", "read own, lease dead"] {
        let abort = AbortRecovery { key: key(), version: row(OTHER).version, lease: lease(1) };
        let expected = [F::Mark(Mark::CreateCleanedByCoordinator), F::Call(abort.into())];
        let mut stage = in_state("Resolve");
        assert_eq!(stage.tell(seen), expected, "{seen}");
        // A Conflict is fine: somebody else was faster.
        assert_eq!(stage.tell("store conflict"), [read_request()]);
    }
}

#[test]
fn create_37_39_5_content_first_then_one_reservation_for_the_time_that_is_left() {
    let mut stage = in_state("Select");
    let put = put_of(&stage.tell("chosen"));
    assert_eq!((put.bytes, put.sha256, put.retention), (request(), digest(), LEFT + TERMINAL_RETENTION));
    stage.now = NOW + Duration::from_secs(4);
    let reserve = reserve_of(&stage.tell("ok put"));
    assert_eq!(content_of(&reserve), put.content);
    assert_eq!(reserve.remaining, LEFT - Duration::from_secs(4), "the one deadline, never restarted");
    assert_eq!((&reserve.key, reserve.kind, &reserve.stable_type), (&key(), ObjectKind::Actor, &counter()));
    assert_eq!((&reserve.target, &reserve.operation, reserve.lease), (&target(), &operation(OWN), lease(1)));
    assert_eq!(stage.tell("ok reserved"), [F::Dispatch(Box::new(fence()))]);
}

#[test]
fn create_40_a_refused_candidate_is_excluded_and_the_content_is_kept() {
    for refusal in ["store capacity", "store not eligible"] {
        let mut stage = in_state("Select");
        stage.tell("chosen");
        let first = reserve_of(&stage.tell("ok put"));
        let effects = stage.tell(refusal);
        let [F::Mark(Mark::CreateCandidateExcluded), F::ReservationFailed(_), F::Choose] = &effects[..]
        else {
            panic!("{refusal}: {effects:?}");
        };
        let excluded: Vec<_> = stage.machine.excluded.iter().cloned().collect();
        assert_eq!(excluded, [(target().rid, target().lifecycle)]);
        // The next candidate: a new ReservationId, the content that is still stored (CREATE-37).
        stage.now = NOW + Duration::from_secs(1);
        let second = reserve_of(&stage.tell("chosen"));
        assert_ne!(second.reservation, first.reservation);
        assert_eq!(content_of(&second), content_of(&first));
        assert_eq!(second.remaining, LEFT - Duration::from_secs(1));
    }
}

#[test]
fn create_42_an_indeterminate_reserve_is_reissued_unchanged() {
    let mut stage = in_state("Storing");
    let first = reserve_of(&stage.tell("ok put"));
    for _ in 0..4 {
        let effects = stage.tell("store indeterminate");
        assert!(matches!(effects[..], [F::Mark(Mark::CreateReserveIndeterminate), F::SetBackoff(_)]));
        stage.now = stage.now + Duration::from_secs(1);
        assert_eq!(reserve_of(&stage.tell("backoff")), first, "same ReservationId, same everything");
    }
}

#[test]
fn create_46_a_refusal_before_execution_is_withdrawn_before_another_is_chosen() {
    let mut stage = in_state("Awaiting");
    assert_eq!(stage.tell("answer not admitted"), [F::Mark(Mark::CreateWithdrawn), F::Call(withdraw())]);
    assert!(stage.machine.excluded.contains(&(target().rid, target().lifecycle)));
    // CREATE-54: as long as the withdrawal is not confirmed, nobody else is chosen.
    assert!(matches!(stage.tell("store indeterminate")[..], [F::SetBackoff(_)]));
    assert_eq!(stage.tell("backoff"), [F::Mark(Mark::CreateWithdrawn), F::Call(withdraw())]);
    assert_eq!(stage.tell("ok done"), [F::Choose]);
    // What the withdrawal removed took the content with it.
    let put = put_of(&stage.tell("chosen"));
    assert_eq!(put.bytes, request());
    // Where the target took the reservation up after all, the row says what became of it.
    let mut stage = in_state("Withdraw");
    assert_eq!(stage.tell("store conflict"), [read_request()]);
}

#[test]
fn create_48_54_a_lost_link_means_the_same_order_to_the_same_target() {
    let mut stage = in_state("Awaiting");
    let again = F::Dispatch(Box::new(fence()));
    assert_eq!(stage.tell("link lost"), [F::Mark(Mark::CreateOrderResent), again.clone()]);
    let effects = stage.tell("no route");
    assert!(matches!(effects[..], [F::Mark(Mark::CreateWaitedForRoute), F::SetBackoff(_)]));
    assert_eq!(stage.tell("route ready"), [again]);
}

#[test]
fn create_49_an_attempt_nobody_can_tell_of_is_looked_for_in_the_store() {
    for (state, end) in [
        ("Awaiting", "answer gone"),
        ("Awaiting", "answer unavailable"),
        ("Awaiting", "lifecycle ended"),
        ("Dispatch", "lifecycle ended"),
    ] {
        let mut stage = in_state(state);
        let effects = stage.tell(end);
        assert!(matches!(effects[..], [F::Mark(Mark::CreateReservationGone), F::SetBackoff(_)]), "{end}");
        assert_eq!(stage.tell("backoff"), [read_request()]);
        // A new attempt stores its content anew: the end of the old one removed it (CREATE-55).
        assert_eq!(stage.tell("read missing"), [F::Choose]);
        put_of(&stage.tell("chosen"));
    }
}

#[test]
fn create_50_a_reservation_is_given_back_only_while_nobody_can_have_started() {
    let give_back = F::CallForgotten(withdraw());
    for (event, mark) in [("deadline", Mark::CreateDeadlineBeforeOrder), ("dropped", Mark::CreateCancelled)] {
        let mut effects = in_state("Dispatch").tell(event);
        match event {
            "deadline" => assert_eq!(take_failure(&mut effects), ErrorKind::DeadlineExceeded),
            _ => assert_eq!(effects.pop(), Some(F::Finish(None))),
        }
        assert_eq!(effects, [F::Mark(mark), give_back.clone()], "{event}");
        // Once its target may have adopted it, or its order may have arrived, it is left alone.
        let mut late = in_state("Dispatch");
        late.now = NOW + Duration::from_millis(2_500);
        assert!(!late.tell(event).contains(&give_back), "{event}: adopted");
        let mut sent = in_state("Awaiting");
        sent.tell("link lost");
        let effects = sent.tell(event);
        assert!(!effects.contains(&give_back), "{event}: sent");
        if event == "deadline" {
            assert!(effects.contains(&F::Mark(Mark::CreateDeadlineAfterOrder)));
        }
    }
    // Only failures of the Store or of the route: Unavailable instead.
    for path in [
        &["submitted", "store unavailable"][..],
        &["submitted", "read missing", "chosen", "store unavailable"],
    ] {
        let mut stage = Stage::after(CreateMode::GetOrCreate, path);
        assert_eq!(take_failure(&mut stage.tell("deadline")), ErrorKind::Unavailable, "{path:?}");
    }
}

#[test]
fn create_51_52_86_a_caller_that_stops_waiting_leaves_the_attempt_alone() {
    for state in ["Waiting", "Awaiting"] {
        let mut effects = in_state(state).tell("deadline");
        assert_eq!(take_failure(&mut effects), ErrorKind::DeadlineExceeded);
        assert_eq!(effects, [F::Mark(Mark::CreateDeadlineAfterOrder)], "{state}");
        assert_eq!(in_state(state).tell("dropped"), [F::Mark(Mark::CreateCancelled), F::Finish(None)]);
    }
}

#[test]
fn create_87_a_waiter_that_saw_store_failures_still_ends_deadline_exceeded() {
    let mut stage = in_state("Waiting");
    stage.tell("backoff");
    stage.tell("store unavailable");
    assert_eq!(take_failure(&mut stage.tell("deadline")), ErrorKind::DeadlineExceeded);
}

#[test]
fn create_89_a_hint_during_a_read_is_not_lost() {
    let mut stage = in_state("Resolve");
    let effects = stage.tell("read others");
    assert!(matches!(effects[..], [F::Mark(Mark::CreateWaited), F::Watch, F::SetBackoff(_)]));
    // Waiting: a hint re-reads at once, and no second watch is set up.
    assert_eq!(stage.tell("hint"), [read_request()]);
    assert!(stage.tell("hint").is_empty());
    assert_eq!(stage.tell("read others"), [F::Mark(Mark::CreateWaited), read_request()]);
    let effects = stage.tell("read others");
    assert!(matches!(effects[..], [F::Mark(Mark::CreateWaited), F::SetBackoff(_)]));
    // The wait doubles from 50 ms to 1 s, less up to a fifth.
    let mut last = Duration::ZERO;
    for _ in 0..8 {
        stage.tell("backoff");
        let effects = stage.tell("read others");
        let [_, F::SetBackoff(at)] = effects[..] else { panic!("{effects:?}") };
        last = at.since(stage.now);
        assert!(last <= Duration::from_secs(1));
    }
    assert!(last >= Duration::from_millis(800));
}

#[test]
fn create_13_without_a_lease_nothing_is_reserved_withdrawn_or_cleaned() {
    for (state, event) in [
        ("Storing", "ok put"),
        ("Resolve", "read others, lease dead"),
        ("Awaiting", "answer not admitted"),
        ("Withdraw", "backoff"),
    ] {
        let mut stage = in_state(state);
        stage.has_lease = false;
        let mut effects = stage.tell(event);
        assert_eq!(take_failure(&mut effects), ErrorKind::Unavailable, "{state} + {event}");
        assert!(!effects.iter().any(|it| matches!(it, F::Call(_) | F::CallForgotten(_))), "{effects:?}");
    }
}

#[test]
fn create_33_a_found_reservation_of_its_own_keeps_its_fence() {
    let effects = in_state("Resolve").tell("read own");
    assert_eq!(effects, [F::Mark(Mark::CreateOwnReservationFound), F::Dispatch(Box::new(fence()))]);
    assert_eq!(fence().reservation, ReservationId::new(OWN).unwrap());
}

#[test]
fn create_t18_another_kind_is_refused_like_another_type() {
    for mode in [CreateMode::Create, CreateMode::GetOrCreate] {
        for seen in ["read other kind", "read ready other", "read creating other type"] {
            let mut effects = Stage::after(mode, path("Resolve")).tell(seen);
            assert_eq!(take_failure(&mut effects), ErrorKind::TypeMismatch, "{seen}");
        }
    }
}
