//! The attempt at its target against the table of spec 04 §5, and the exact effects of its rows.

use bytes::Bytes;

use super::fixture::*;
use super::{AnswerRoute, Attempt, AttemptContext, AttemptEffect as F, AttemptEvent as E};
use crate::input::{InstanceId, TurnEnd, TurnId};
use crate::link::{LinkId, NodeIndex};
use crate::mark::Mark;
use crate::model::limits::{CREATION_REQUEST_MAX, WAITER_BACKOFF_FIRST};
use crate::model::{ErrorKind, Instant, ObjectGeneration, ObjectKind, Sha256Digest, StoreVersion};
use crate::store::{
    AbortFailed, AbortNotExecuted, CommitCreated, CommitRejected, ConflictReason, Content,
    GetCreationContent, ReadCreation, StoreError, StoreReply, StoreRequest, TerminalOutcome,
};
use crate::wire::CreateVerdict;

/// Columns are the states; `Adopted` is Verify of an attempt found by the own-row scan, `Undo` is Aborting with
/// `abort(NotExecuted)`, `Review` is the read of CREATE-72 after a commit of each kind. Lines are events, with the
/// ids of the rows they are in the spec. A cell is the next state, `=` and the answer to every route, `.` where
/// nothing happens, `-` for the reply of another Store call.
const GRID: &str = "
event                          | Verify   | Adopted  | Loading  | Running  | Commit   | Reject   | Abort    | Undo     | ReviewC  | ReviewR
started #56                    | Verify   | Adopted  | .        | .        | .        | .        | .        | .        | .        | .
read missing #60 72            | =Gone    | =Gone    | -        | .        | -        | -        | -        | -        | =Unavail | =Unavail
read other reservation #60     | =Gone    | =Gone    | -        | .        | -        | -        | -        | -        | =Unavail | =Unavail
read own #57                   | Loading  | Loading  | -        | .        | -        | -        | -        | -        | Commit   | Reject
read own, past deadline #93    | Loading  | Undo     | -        | .        | -        | -        | -        | -        | Commit   | Reject
read own, stale fence #61      | =Unavail | =Unavail | -        | .        | -        | -        | -        | -        | =Unavail | =Unavail
read own, other operation      | =Unavail | =Unavail | -        | .        | -        | -        | -        | -        | Commit   | Reject
read own record created #59 72 | =Created | =Created | -        | .        | -        | -        | -        | -        | =Opened  | =Rejected
read own record rejected #59 72| =Rejected| =Rejected| -        | .        | -        | -        | -        | -        | =Unavail | =Rejected
read own record failed #59 72  | =DataLost| =DataLost| -        | .        | -        | -        | -        | -        | =Unavail | =Rejected
read record of another #59 72  | =Rejected| =Rejected| -        | .        | -        | -        | -        | -        | =Unavail | =Unavail
read ready of another          | =Gone    | =Gone    | -        | .        | -        | -        | -        | -        | =Unavail | =Unavail
store unavailable #71          | Verify   | Adopted  | Loading  | .        | Commit   | Reject   | Abort    | Undo     | ReviewC  | ReviewR
store indeterminate #71        | Verify   | Adopted  | Loading  | .        | Commit   | Reject   | Abort    | Undo     | ReviewC  | ReviewR
store conflict #72             | Verify   | Adopted  | Loading  | .        | ReviewC  | ReviewR  | ReviewA  | ReviewU  | ReviewC  | ReviewR
store lease lost #72           | Verify   | Adopted  | Loading  | .        | ReviewC  | ReviewR  | ReviewA  | ReviewU  | ReviewC  | ReviewR
store not found #63 72         | Verify   | Adopted  | Abort    | .        | ReviewC  | ReviewR  | ReviewA  | ReviewU  | ReviewC  | ReviewR
store data lost #63 72         | Verify   | Adopted  | Abort    | .        | ReviewC  | ReviewR  | ReviewA  | ReviewU  | =Unavail | =Unavail
ok content                     | -        | -        | Loading  | .        | -        | -        | -        | -        | -        | -
ok content altered #63         | -        | -        | Abort    | .        | -        | -        | -        | -        | -        | -
ok content longer #63          | -        | -        | Abort    | .        | -        | -        | -        | -        | -        | -
ok row #70                     | -        | -        | -        | .        | =Opened  | -        | -        | -        | -        | -
ok done #74                    | -        | -        | -        | .        | -        | =Rejected| =Internal| =Unavail | -        | -
running #64                    | .        | .        | Running  | .        | .        | .        | .        | .        | .        | .
at limit #62                   | .        | .        | =NotAdm  | .        | .        | .        | .        | .        | .        | .
turn accepted #65              | .        | .        | .        | Commit   | .        | .        | .        | .        | .        | .
turn accepted, too much #22    | .        | .        | .        | Abort    | .        | .        | .        | .        | .        | .
turn declined #66              | .        | .        | .        | Reject   | .        | .        | .        | .        | .        | .
turn declined, too much #22    | .        | .        | .        | Abort    | .        | .        | .        | .        | .        | .
turn failed #67                | .        | .        | .        | Abort    | .        | .        | .        | .        | .        | .
turn panicked #67              | .        | .        | .        | Abort    | .        | .        | .        | .        | .        | .
turn undecodable               | .        | .        | .        | Abort    | .        | .        | .        | .        | .        | .
turn without handler           | .        | .        | .        | Abort    | .        | .        | .        | .        | .        | .
deadline #68                   | .        | .        | Abort    | Abort    | .        | .        | .        | .        | .        | .
backoff #71                    | Verify   | Adopted  | Loading  | .        | Commit   | Reject   | Abort    | Undo     | ReviewC  | ReviewR
";

const EVENTS: &[&str] = &[
    "started",
    "read missing",
    "read other reservation",
    "read own",
    "read own, past deadline",
    "read own, stale fence",
    "read own, other operation",
    "read own record created",
    "read own record rejected",
    "read own record failed",
    "read record of another",
    "read ready of another",
    "store unavailable",
    "store indeterminate",
    "store conflict",
    "store lease lost",
    "store not found",
    "store data lost",
    "ok content",
    "ok content altered",
    "ok content longer",
    "ok row",
    "ok done",
    "running",
    "at limit",
    "turn accepted",
    "turn accepted, too much",
    "turn declined",
    "turn declined, too much",
    "turn failed",
    "turn panicked",
    "turn undecodable",
    "turn without handler",
    "deadline",
    "backoff",
];

const INSTANCE: InstanceId = InstanceId(31);
const TURN: TurnId = TurnId(30);

fn reply() -> Option<Bytes> {
    Some(Bytes::from_static(b"reply"))
}

fn too_much() -> Option<Bytes> {
    Some(Bytes::from(vec![0; CREATION_REQUEST_MAX + 1]))
}

fn event(name: &str) -> E {
    let read_of = |row, terminal| E::StoreAnswered(Ok(read(seen(row, terminal))));
    let error = |error| E::StoreAnswered(Err(error));
    let content = |bytes: &'static [u8]| {
        let value = Content { bytes: Bytes::from_static(bytes), sha256: Sha256Digest::of(bytes) };
        E::StoreAnswered(Ok(StoreReply::Content(stamped(value))))
    };
    match name {
        "started" => E::Started,
        "read missing" => read_of(None, None),
        "read other reservation" => read_of(Some(row(OTHER)), None),
        "read own" => read_of(Some(row(OWN)), None),
        "read own, past deadline" => {
            let mut view = seen(Some(row(OWN)), None);
            view.store_now = STORE_NOW + LEFT;
            E::StoreAnswered(Ok(read(view)))
        }
        "read own, stale fence" => {
            let mut row = row(OWN);
            row.version = StoreVersion::new(2).unwrap();
            read_of(Some(row), None)
        }
        "read own, other operation" => {
            let mut row = row(OWN);
            let crate::store::AuthorityState::Creating(pending) = &mut row.state else { unreachable!() };
            pending.operation = operation(OTHER);
            read_of(Some(row), None)
        }
        "read own record created" => read_of(Some(ready(OWN)), Some(record(TerminalOutcome::Created, OWN))),
        "read own record rejected" => read_of(None, Some(record(TerminalOutcome::Rejected, OWN))),
        "read own record failed" => {
            read_of(None, Some(record(TerminalOutcome::Failed(ErrorKind::DataLost), OWN)))
        }
        "read record of another" => read_of(None, Some(record(TerminalOutcome::Rejected, OTHER))),
        "read ready of another" => read_of(Some(ready(OTHER)), None),
        "store unavailable" => error(StoreError::Unavailable),
        "store indeterminate" => error(StoreError::Indeterminate),
        "store conflict" => error(StoreError::conflict(ConflictReason::StateMismatch)),
        "store lease lost" => error(StoreError::LeaseLost),
        "store not found" => error(StoreError::NotFound),
        "store data lost" => error(StoreError::DataLost),
        "ok content" => content(b"please"),
        "ok content altered" => content(b"Please"),
        "ok content longer" => content(b"please!"),
        "ok row" => E::StoreAnswered(Ok(StoreReply::Row(Box::new(ready(OWN))))),
        "ok done" => E::StoreAnswered(Ok(StoreReply::Done(stamped(())))),
        "running" => E::Running(INSTANCE, TURN),
        "at limit" => E::AtLimit,
        "turn accepted" => E::TurnEnded(TurnEnd::Accepted { reply: reply() }),
        "turn accepted, too much" => E::TurnEnded(TurnEnd::Accepted { reply: too_much() }),
        "turn declined" => E::TurnEnded(TurnEnd::Declined { reply: reply() }),
        "turn declined, too much" => E::TurnEnded(TurnEnd::Declined { reply: too_much() }),
        "turn failed" => E::TurnEnded(TurnEnd::Failed(ErrorKind::NotFound)),
        "turn panicked" => E::TurnEnded(TurnEnd::Panicked),
        "turn undecodable" => E::TurnEnded(TurnEnd::Undecodable),
        "turn without handler" => E::TurnEnded(TurnEnd::NoHandler),
        "deadline" => E::DeadlineFired,
        "backoff" => E::BackoffFired,
        other => panic!("no event {other}"),
    }
}

/// A machine and its surroundings.
struct Stage {
    machine: Attempt,
    now: Instant,
    has_lease: bool,
    admits: bool,
}

impl Stage {
    fn new(route: Option<AnswerRoute>) -> Self {
        let machine =
            Attempt::new(fence(), operation(OWN), ObjectKind::Actor, counter(), NodeIndex(0), route);
        Self { machine, now: NOW, has_lease: true, admits: true }
    }

    fn tell(&mut self, name: &str) -> Vec<F> {
        let entry = entry_spot();
        let context = AttemptContext {
            now: self.now,
            lease: self.has_lease.then(|| lease(2)),
            admits: self.admits,
            entry_spot: Some(&entry),
            guesses_failed: false,
            guesses_succeeded: false,
        };
        let mut out = Vec::new();
        self.machine.on(event(name), &context, &mut out);
        out
    }

    /// The machine in a column's state.
    fn in_state(state: &str) -> Self {
        let mut stage = Self::new((!matches!(state, "Adopted" | "Undo")).then(route));
        for name in path(state) {
            stage.tell(name);
        }
        let expected = match state {
            "Adopted" => "Verify",
            "Commit" => "Committing",
            "Reject" => "Rejecting",
            "Abort" | "Undo" => "Aborting",
            "ReviewC" | "ReviewR" => "Reviewing",
            state => state,
        };
        assert_eq!(stage.machine.state_name(), expected, "how {state} is reached");
        stage
    }
}

fn route() -> AnswerRoute {
    AnswerRoute::Remote(LinkId(4), operation(OWN))
}

fn path(state: &str) -> &'static [&'static str] {
    match state {
        "Verify" | "Adopted" => &["started"],
        "Loading" => &["started", "read own"],
        "Running" => &["started", "read own", "ok content", "running"],
        "Commit" => &["started", "read own", "ok content", "running", "turn accepted"],
        "Reject" => &["started", "read own", "ok content", "running", "turn declined"],
        "Abort" => &["started", "read own", "ok content", "running", "turn failed"],
        "Undo" => &["started", "read own, past deadline"],
        "ReviewC" => &["started", "read own", "ok content", "running", "turn accepted", "store conflict"],
        "ReviewR" => &["started", "read own", "ok content", "running", "turn declined", "store conflict"],
        other => panic!("no state {other}"),
    }
}

/// Whether an event is the reply to another Store call than the one that is out.
fn cannot_occur(state: &str, event: &str) -> bool {
    let replies = match state {
        "Verify" | "Adopted" | "ReviewC" | "ReviewR" => "read",
        "Loading" => "ok content",
        "Commit" => "ok row",
        "Reject" | "Abort" | "Undo" => "ok done",
        _ => return false,
    };
    (event.starts_with("read") || event.starts_with("ok")) && !event.starts_with(replies)
}

fn cell(state: &str, event: &str) -> String {
    if cannot_occur(state, event) {
        return "-".to_owned();
    }
    let mut stage = Stage::in_state(state);
    let effects = stage.tell(event);
    if let Some(verdict) = effects.iter().find_map(|effect| match effect {
        F::Answer(verdict, _) => Some(verdict),
        _ => None,
    }) {
        assert!(stage.machine.is_done());
        let opens = effects.contains(&F::Open(INSTANCE));
        let text = match verdict {
            CreateVerdict::Created { .. } if opens => "Opened".to_owned(),
            CreateVerdict::Created { .. } => "Created".to_owned(),
            CreateVerdict::Rejected { .. } => "Rejected".to_owned(),
            CreateVerdict::Failed(kind) => return failed(*kind),
            CreateVerdict::NotAdmitted => "NotAdm".to_owned(),
            CreateVerdict::ReservationGone => "Gone".to_owned(),
            CreateVerdict::Unavailable => "Unavail".to_owned(),
        };
        return format!("={text}");
    }
    if effects.is_empty() && stage.machine.state_name() == Stage::in_state(state).machine.state_name() {
        return ".".to_owned();
    }
    match stage.machine.state_name() {
        "Verify" => state.to_owned(),
        "Committing" => "Commit".to_owned(),
        "Rejecting" => "Reject".to_owned(),
        "Reviewing" if matches!(state, "Commit" | "ReviewC") => "ReviewC".to_owned(),
        "Reviewing" if matches!(state, "Reject" | "ReviewR") => "ReviewR".to_owned(),
        "Reviewing" if state == "Abort" => "ReviewA".to_owned(),
        "Reviewing" => "ReviewU".to_owned(),
        "Aborting" => match effects.iter().find_map(|effect| match effect {
            F::Call(StoreRequest::AbortNotExecuted(_)) => Some("Undo"),
            F::Call(StoreRequest::AbortFailed(_)) => Some("Abort"),
            _ => None,
        }) {
            Some(name) => name.to_owned(),
            None => state.to_owned(),
        },
        name => name.to_owned(),
    }
}

#[test]
fn the_attempt_follows_its_table() {
    walk_grid(GRID, EVENTS, cell);
}

/// An attempt that answered is deaf.
#[test]
fn create_74_done_is_done() {
    let mut stage = Stage::in_state("Commit");
    stage.tell("ok row");
    assert!(stage.machine.is_done());
    for event in EVENTS {
        assert!(stage.tell(event).is_empty(), "Done + {event}");
        assert!(stage.machine.is_done());
    }
}

#[test]
fn create_56_57_64_verify_load_and_run() {
    let mut stage = Stage::new(Some(route()));
    let verify = ReadCreation { key: key(), operation: operation(OWN) };
    assert_eq!(stage.tell("started"), [F::Call(verify.into())]);
    let load = F::Call(GetCreationContent { content: content() }.into());
    assert_eq!(stage.tell("read own"), [F::SetDeadline(NOW + LEFT), F::Admit, load]);
    stage.now = NOW + LEFT / 3;
    assert_eq!(stage.tell("ok content"), [F::Run { request: request(), remaining: LEFT - LEFT / 3 }]);
    assert!(stage.tell("running").is_empty());
    assert_eq!((stage.machine.turn(), stage.machine.instance()), (Some(TURN), Some(INSTANCE)));
}

fn commit() -> StoreRequest {
    let envelope = Some(envelope(TerminalOutcome::Created));
    CommitCreated { fence: fence(), lease: lease(2), envelope, entry_spot_id: Some(entry_spot()) }.into()
}

fn abort(kind: ErrorKind) -> StoreRequest {
    let envelope = Some(envelope(TerminalOutcome::Failed(kind)));
    AbortFailed { fence: fence(), lease: lease(2), envelope }.into()
}

#[test]
fn create_65_70_76_an_approved_attempt_commits_once_and_opens_before_it_answers() {
    let mut stage = Stage::in_state("Running");
    assert_eq!(stage.tell("turn accepted"), [F::Call(commit())]);
    assert!(stage.machine.is_committing());
    let created = CreateVerdict::Created { object_generation: ObjectGeneration::FIRST };
    assert_eq!(stage.tell("ok row"), [F::Open(INSTANCE), F::Answer(created, reply())]);
}

#[test]
fn create_66_a_declined_attempt_is_recorded_and_its_staging_disposed() {
    let mut stage = Stage::in_state("Running");
    let record =
        CommitRejected { fence: fence(), lease: lease(2), envelope: envelope(TerminalOutcome::Rejected) };
    assert_eq!(stage.tell("turn declined"), [F::Mark(Mark::AttemptRejected), F::Call(record.into())]);
    assert!(!stage.machine.is_committing());
    let rejected = CreateVerdict::Rejected { object_generation: ObjectGeneration::FIRST };
    assert_eq!(stage.tell("ok done"), [F::Dispose(INSTANCE), F::Answer(rejected, reply())]);
}

#[test]
fn create_67_68_22_what_goes_wrong_disposes_staging_and_is_recorded_as_failed() {
    let ends = [
        ("turn failed", ErrorKind::InternalFailure),
        ("turn panicked", ErrorKind::InternalFailure),
        ("turn without handler", ErrorKind::InternalFailure),
        ("turn accepted, too much", ErrorKind::ProtocolError),
        ("turn declined, too much", ErrorKind::ProtocolError),
        ("turn undecodable", ErrorKind::ProtocolError),
        ("deadline", ErrorKind::DeadlineExceeded),
    ];
    for (end, kind) in ends {
        let mut stage = Stage::in_state("Running");
        let mut effects = stage.tell(end);
        effects.retain(|effect| !matches!(effect, F::Mark(_)));
        let mut expected = vec![F::Dispose(INSTANCE), F::Call(abort(kind))];
        if end == "deadline" {
            expected.insert(0, F::Abandon(TURN));
        }
        assert_eq!(effects, expected, "{end}");
        assert_eq!(stage.tell("ok done"), [F::Answer(CreateVerdict::Failed(kind), None)]);
    }
}

#[test]
fn create_63_wrong_content_is_data_lost_and_runs_nothing() {
    for found in ["ok content altered", "ok content longer", "store not found", "store data lost"] {
        let effects = Stage::in_state("Loading").tell(found);
        let expected = [F::Mark(Mark::AttemptContentLost), F::Call(abort(ErrorKind::DataLost))];
        assert_eq!(effects, expected, "{found}");
    }
}

#[test]
fn create_71_a_lost_answer_is_settled_by_the_same_request() {
    for (state, request) in [("Commit", commit()), ("Abort", abort(ErrorKind::InternalFailure))] {
        let mut stage = Stage::in_state(state);
        let mut wait = WAITER_BACKOFF_FIRST;
        for _ in 0..3 {
            let later = F::SetBackoff(NOW + wait);
            assert_eq!(stage.tell("store indeterminate"), [F::Mark(Mark::AttemptSettled), later]);
            assert_eq!(stage.tell("backoff"), [F::Call(request.clone())], "never anything else");
            wait *= 2;
        }
        // An attempt deadline revokes nothing (CREATE-80).
        assert!(stage.tell("deadline").is_empty());
    }
}

#[test]
fn create_72_73_a_conflict_is_judged_by_the_own_record_alone() {
    let again = F::Call(ReadCreation { key: key(), operation: operation(OWN) }.into());
    assert_eq!(Stage::in_state("Commit").tell("store conflict"), std::slice::from_ref(&again));
    assert_eq!(Stage::in_state("Commit").tell("store lease lost"), std::slice::from_ref(&again));
    let created = CreateVerdict::Created { object_generation: ObjectGeneration::FIRST };
    let found = F::Mark(Mark::AttemptFoundOwnResult);
    let own = Stage::in_state("ReviewC").tell("read own record created");
    assert_eq!(own, [found, F::Open(INSTANCE), F::Answer(created, reply())]);
    let discard =
        [F::Mark(Mark::AttemptDiscarded), F::Dispose(INSTANCE), F::Answer(CreateVerdict::Unavailable, None)];
    for seen in ["read missing", "read other reservation", "read ready of another", "read record of another"]
    {
        assert_eq!(Stage::in_state("ReviewC").tell(seen), discard, "{seen}");
    }
    // Still reserved as it was: the lease had only run out, and the frozen result counts once it is renewed.
    let mut stage = Stage::in_state("ReviewC");
    assert!(matches!(stage.tell("read own")[..], [F::SetBackoff(_)]));
    assert_eq!(stage.tell("backoff"), [F::Call(commit())]);
    // An abort is judged the same way.
    let mut stage = Stage::in_state("Abort");
    assert_eq!(stage.tell("store conflict"), [again]);
    let failed = CreateVerdict::Failed(ErrorKind::InternalFailure);
    let effects = stage.tell("read own record failed");
    assert_eq!(effects, [F::Mark(Mark::AttemptFoundOwnResult), F::Answer(failed, None)]);
}

#[test]
fn store_34_nothing_is_committed_past_the_admission_deadline_or_without_a_lease() {
    let mut stage = Stage::in_state("Running");
    stage.admits = false;
    assert_eq!(stage.tell("turn accepted"), [F::SetBackoff(NOW + WAITER_BACKOFF_FIRST)]);
    assert_eq!(stage.tell("backoff"), [F::SetBackoff(NOW + WAITER_BACKOFF_FIRST * 2)]);
    stage.admits = true;
    assert_eq!(stage.tell("backoff"), [F::Call(commit())]);

    let mut stage = Stage::in_state("Running");
    stage.has_lease = false;
    let discard =
        [F::Mark(Mark::AttemptDiscarded), F::Dispose(INSTANCE), F::Answer(CreateVerdict::Unavailable, None)];
    assert_eq!(stage.tell("turn accepted"), discard);
}

#[test]
fn create_93_only_what_may_still_run_is_adopted() {
    let undo = F::Call(AbortNotExecuted { fence: fence(), lease: lease(2) }.into());
    let refused = [F::Mark(Mark::AttemptAdoptionRefused), undo];
    assert_eq!(Stage::in_state("Adopted").tell("read own, past deadline"), refused);
    let mut stage = Stage::in_state("Adopted");
    stage.machine.refused = true;
    assert_eq!(stage.tell("read own"), refused, "what was refused at the limit is never taken up");
    assert!(matches!(
        Stage::in_state("Adopted").tell("read own")[..],
        [F::SetDeadline(_), F::Admit, F::Call(_)]
    ));
    // An order that joined meanwhile counts as an order (CREATE-94).
    let mut stage = Stage::in_state("Adopted");
    stage.machine.routes.push(route());
    assert!(matches!(stage.tell("read own, past deadline")[..], [F::SetDeadline(NOW), F::Admit, F::Call(_)]));
}
