//! The coordinator against the table of spec 04 §4 and §6, and the exact effects of its rows.

mod effects;

use bytes::Bytes;

use super::fixture::*;
use super::{Coordinator, CoordinatorContext, CoordinatorEffect, CoordinatorEvent as E, CreateSpec};
use crate::input::{CallId, CreateMode};
use crate::link::{LinkId, NodeIndex};
use crate::model::{
    Entropy, ErrorKind, Instant, ObjectGeneration, ObjectKind, OperationId, RelocationId, SpotKind,
    StableType,
};
use crate::output::Answer;
use crate::store::{
    Bundle, Component, ConflictReason, LeaseState, Mark as RowMark, OwnerFence, PutOutcome, RelocationMark,
    RelocationPhase, StoreError, StoreReply, StoreResult, TerminalOutcome,
};
use crate::wire::CreateVerdict;

/// Columns are the states of the machine; `BackOff` is Resolve before its next read, `Storing` is Select with its
/// content under way. Lines are events, with the ids of the rows they are in the spec. A cell is the next state,
/// `=` and the end of the call, or `.` where nothing happens. Done answers nothing and is checked apart.
const GRID: &str = "
event                        | Resolve  | BackOff  | Waiting  | Cleanup  | Select   | Storing  | Reserving| Dispatch | Awaiting | Withdraw
submitted                    | Resolve  | .        | .        | .        | .        | .        | .        | .        | .        | .
read record created #26      | =Created | .        | .        | -        | .        | -        | -        | .        | .        | -
read record rejected #26     | =Rejected| .        | .        | -        | .        | -        | -        | .        | .        | -
read record failed #26       | =DataLost| .        | .        | -        | .        | -        | -        | .        | .        | -
read ready #27               | =Existing| .        | .        | -        | .        | -        | -        | .        | .        | -
read ready dead #28          | =Unavaila| .        | .        | -        | .        | -        | -        | .        | .        | -
read ready other #29         | =TypeMism| .        | .        | -        | .        | -        | -        | .        | .        | -
read creating other type #29 | =TypeMism| .        | .        | -        | .        | -        | -        | .        | .        | -
read other kind #29          | =TypeMism| .        | .        | -        | .        | -        | -        | .        | .        | -
read moving #30              | =Existing| .        | .        | -        | .        | -        | -        | .        | .        | -
read closing #31             | Waiting  | .        | .        | -        | .        | -        | -        | .        | .        | -
read others #32              | Waiting  | .        | .        | -        | .        | -        | -        | .        | .        | -
read others, lease dead #34  | Cleanup  | .        | .        | -        | .        | -        | -        | .        | .        | -
read others, replaced #34    | Cleanup  | .        | .        | -        | .        | -        | -        | .        | .        | -
read own #33                 | Dispatch | .        | .        | -        | .        | -        | -        | .        | .        | -
read own, lease dead #34     | Cleanup  | .        | .        | -        | .        | -        | -        | .        | .        | -
read missing #35             | Select   | .        | .        | -        | .        | -        | -        | .        | .        | -
store unavailable #36 42     | BackOff  | .        | .        | Resolve  | .        | Storing  | Reserving| .        | .        | Withdraw
store indeterminate #36 42   | BackOff  | .        | .        | Resolve  | .        | Storing  | Reserving| .        | .        | Withdraw
store conflict #41           | BackOff  | .        | .        | Resolve  | .        | =Internal| Resolve  | .        | .        | Resolve
store terminal exists #41    | BackOff  | .        | .        | Resolve  | .        | =Internal| Resolve  | .        | .        | Resolve
store capacity #40           | BackOff  | .        | .        | Resolve  | .        | =Internal| Select   | .        | .        | Resolve
store not eligible #40       | BackOff  | .        | .        | Resolve  | .        | =Internal| Select   | .        | .        | Resolve
store not found              | BackOff  | .        | .        | Resolve  | .        | =Internal| Storing  | .        | .        | Resolve
store lease lost             | BackOff  | .        | .        | Resolve  | .        | =Internal| =Unavaila| .        | .        | =Unavaila
store data lost              | =DataLost| .        | .        | Resolve  | .        | =Internal| =DataLost| .        | .        | Resolve
store exhausted              | BackOff  | .        | .        | Resolve  | .        | =Internal| =Internal| .        | .        | Resolve
ok put                       | -        | .        | .        | -        | .        | Reserving| -        | .        | .        | -
ok reserved #39              | -        | .        | .        | -        | .        | -        | Dispatch | .        | .        | -
ok done                      | -        | .        | .        | Resolve  | .        | -        | -        | .        | .        | Select
chosen #37                   | .        | .        | .        | .        | Storing  | .        | .        | .        | .        | .
nobody fits #38              | .        | .        | .        | .        | =Unavaila| .        | .        | .        | .        | .
nobody has type #38          | .        | .        | .        | .        | =NotFound| .        | .        | .        | .        | .
order admitted, link #44     | .        | .        | .        | .        | .        | .        | .        | Awaiting | .        | .
order admitted, local #43    | .        | .        | .        | .        | .        | .        | .        | Awaiting | .        | .
no route #45                 | .        | .        | .        | .        | .        | .        | .        | Dispatch | .        | .
route ready #45              | .        | .        | .        | .        | .        | .        | .        | Dispatch | .        | .
lifecycle ended #49          | .        | .        | .        | .        | .        | .        | .        | BackOff  | BackOff  | .
link lost #48                | .        | .        | .        | .        | .        | .        | .        | .        | Dispatch | .
other link lost              | .        | .        | .        | .        | .        | .        | .        | .        | .        | .
answer created #47           | .        | .        | .        | .        | .        | .        | .        | .        | =Created | .
answer rejected #47          | .        | .        | .        | .        | .        | .        | .        | .        | =Rejected| .
answer failed #47            | .        | .        | .        | .        | .        | .        | .        | .        | =DataLost| .
answer not admitted #46      | .        | .        | .        | .        | .        | .        | .        | .        | Withdraw | .
answer gone #49              | .        | .        | .        | .        | .        | .        | .        | .        | BackOff  | .
answer unavailable #49       | .        | .        | .        | .        | .        | .        | .        | .        | BackOff  | .
answer of another            | .        | .        | .        | .        | .        | .        | .        | .        | .        | .
hint #89                     | .        | Resolve  | Resolve  | .        | .        | .        | .        | .        | .        | .
backoff #36 42 89            | .        | Resolve  | Resolve  | .        | .        | Storing  | Reserving| Dispatch | .        | Withdraw
deadline #50 51              | =Deadline| =Unavaila| =Deadline| =Deadline| =Deadline| =Deadline| =Deadline| =Deadline| =Deadline| =Deadline
dropped #52                  | =nobody  | =nobody  | =nobody  | =nobody  | =nobody  | =nobody  | =nobody  | =nobody  | =nobody  | =nobody
";

const EVENTS: &[&str] = &[
    "submitted",
    "read record created",
    "read record rejected",
    "read record failed",
    "read ready",
    "read ready dead",
    "read ready other",
    "read creating other type",
    "read other kind",
    "read moving",
    "read closing",
    "read others",
    "read others, lease dead",
    "read others, replaced",
    "read own",
    "read own, lease dead",
    "read missing",
    "store unavailable",
    "store indeterminate",
    "store conflict",
    "store terminal exists",
    "store capacity",
    "store not eligible",
    "store not found",
    "store lease lost",
    "store data lost",
    "store exhausted",
    "ok put",
    "ok reserved",
    "ok done",
    "chosen",
    "nobody fits",
    "nobody has type",
    "order admitted, link",
    "order admitted, local",
    "no route",
    "route ready",
    "lifecycle ended",
    "link lost",
    "other link lost",
    "answer created",
    "answer rejected",
    "answer failed",
    "answer not admitted",
    "answer gone",
    "answer unavailable",
    "answer of another",
    "hint",
    "backoff",
    "deadline",
    "dropped",
];

const LINK: LinkId = LinkId(4);

fn event(name: &str) -> E {
    let read_of = |view| E::StoreAnswered(Ok(read(view)));
    let error = |error| E::StoreAnswered(Err(error));
    let other = StableType::new("other").unwrap();
    let answered = |verdict| {
        let reply = matches!(verdict, CreateVerdict::Created { .. } | CreateVerdict::Rejected { .. });
        E::Answered(reservation(OWN), verdict, reply.then(|| Bytes::from_static(b"reply")))
    };
    let object_generation = ObjectGeneration::FIRST;
    match name {
        "submitted" => E::Submitted,
        "read record created" => read_of(seen(Some(ready(OWN)), Some(record(TerminalOutcome::Created, OWN)))),
        "read record rejected" => {
            read_of(seen(Some(row(OTHER)), Some(record(TerminalOutcome::Rejected, OWN))))
        }
        "read record failed" => {
            read_of(seen(None, Some(record(TerminalOutcome::Failed(ErrorKind::DataLost), OWN))))
        }
        "read ready" => read_of(seen(Some(ready(OTHER)), None)),
        "read ready dead" => {
            let mut row = ready(OTHER);
            row.owner_lease.expires_at = STORE_NOW;
            read_of(seen(Some(row), None))
        }
        "read ready other" => {
            let mut row = ready(OTHER);
            row.stable_type = other;
            read_of(seen(Some(row), None))
        }
        "read creating other type" => {
            let mut row = row(OTHER);
            row.stable_type = other;
            read_of(seen(Some(row), None))
        }
        "read other kind" => {
            let mut row = row(OTHER);
            row.kind = ObjectKind::Spot(SpotKind::User);
            read_of(seen(Some(row), None))
        }
        "read moving" => read_of(seen(Some(marked(moving())), None)),
        "read closing" => read_of(seen(Some(marked(RowMark::Closing(OperationId::new(3).unwrap()))), None)),
        "read others" => read_of(seen(Some(row(OTHER)), None)),
        "read others, lease dead" => {
            let mut row = row(OTHER);
            row.owner_lease.state = LeaseState::Fenced;
            read_of(seen(Some(row), None))
        }
        "read others, replaced" => {
            let mut view = seen(Some(row(OTHER)), None);
            view.target_lifecycle = Some(lifecycle(21));
            read_of(view)
        }
        "read own" => read_of(seen(Some(row(OWN)), None)),
        "read own, lease dead" => {
            let mut row = row(OWN);
            row.owner_lease.expires_at = STORE_NOW;
            read_of(seen(Some(row), None))
        }
        "read missing" => read_of(seen(None, None)),
        "store unavailable" => error(StoreError::Unavailable),
        "store indeterminate" => error(StoreError::Indeterminate),
        "store conflict" => error(StoreError::conflict(ConflictReason::Exists)),
        "store terminal exists" => error(StoreError::conflict(ConflictReason::TerminalExists)),
        "store capacity" => error(StoreError::CapacityExceeded(Component::Actors)),
        "store not eligible" => error(StoreError::conflict(ConflictReason::TargetNotEligible)),
        "store not found" => error(StoreError::NotFound),
        "store lease lost" => error(StoreError::LeaseLost),
        "store data lost" => error(StoreError::DataLost),
        "store exhausted" => error(StoreError::GenerationExhausted),
        "ok put" => E::StoreAnswered(Ok(StoreReply::Put(stamped(PutOutcome::Stored)))),
        "ok reserved" => E::StoreAnswered(Ok(StoreReply::Reserved(stamped(Box::new(fence()))))),
        "ok done" => E::StoreAnswered(done()),
        "chosen" => E::Chosen(target()),
        "nobody fits" => E::NobodyFits,
        "nobody has type" => E::NobodyHasType,
        "order admitted, link" => E::OrderAdmitted(Some(LINK)),
        "order admitted, local" => E::OrderAdmitted(None),
        "no route" => E::NoRoute,
        "route ready" => E::RouteReady,
        "lifecycle ended" => E::LifecycleEnded,
        "link lost" => E::LinkLost(LINK),
        "other link lost" => E::LinkLost(LinkId(5)),
        "answer created" => answered(CreateVerdict::Created { object_generation }),
        "answer rejected" => answered(CreateVerdict::Rejected { object_generation }),
        "answer failed" => answered(CreateVerdict::Failed(ErrorKind::DataLost)),
        "answer not admitted" => answered(CreateVerdict::NotAdmitted),
        "answer gone" => answered(CreateVerdict::ReservationGone),
        "answer unavailable" => answered(CreateVerdict::Unavailable),
        "answer of another" => {
            E::Answered(reservation(OTHER), CreateVerdict::Created { object_generation }, None)
        }
        "hint" => E::Hinted,
        "backoff" => E::BackoffFired,
        "deadline" => E::DeadlineFired,
        "dropped" => E::CallDropped,
        other => panic!("no event {other}"),
    }
}

fn done() -> StoreResult {
    Ok(StoreReply::Done(stamped(())))
}

fn marked(mark: RowMark) -> crate::store::AuthorityView {
    let mut row = ready(OTHER);
    let crate::store::AuthorityState::Ready(object) = &mut row.state else { unreachable!() };
    object.mark = Some(mark);
    row
}

fn moving() -> RowMark {
    RowMark::Relocating(Box::new(RelocationMark {
        relocation: RelocationId::new(8).unwrap(),
        reservation: None,
        attempt: 1,
        phase: RelocationPhase::Preparing,
        source: OwnerFence { node: target(), generation: row(OTHER).owner_generation },
        target: target(),
        bundle: Bundle::default(),
        valid_until: STORE_NOW,
        aggregate: None,
        move_counts: None,
    }))
}

/// A machine and what it draws from.
#[derive(Clone, PartialEq)]
struct Stage {
    machine: Coordinator,
    entropy: Entropy,
    now: Instant,
    has_lease: bool,
}

impl Stage {
    fn new(mode: CreateMode) -> Self {
        let spec = CreateSpec {
            key: key(),
            kind: ObjectKind::Actor,
            stable_type: counter(),
            mode,
            request: request(),
        };
        Self {
            machine: Coordinator::new(operation(OWN), CallId(1), NodeIndex(0), spec, NOW + LEFT),
            entropy: Entropy::new([3; 32]),
            now: NOW,
            has_lease: true,
        }
    }

    fn tell(&mut self, name: &str) -> Vec<CoordinatorEffect> {
        let mut context = CoordinatorContext {
            now: self.now,
            entropy: &mut self.entropy,
            lease: self.has_lease.then(|| lease(1)),
            draining: false,
            adopted_after: std::time::Duration::from_millis(2_500),
            planted_retarget: false,
            planted_hints_only: false,
            planted_rejected_existing: false,
            planted_creating_existing: false,
        };
        let mut out = Vec::new();
        self.machine.on(event(name), &mut context, &mut out);
        out
    }

    /// The machine after these events, its effects forgotten.
    fn after(mode: CreateMode, path: &[&str]) -> Self {
        let mut stage = Self::new(mode);
        for name in path {
            stage.tell(name);
        }
        stage
    }
}

/// How each state is reached.
fn path(state: &str) -> &'static [&'static str] {
    match state {
        "Resolve" => &["submitted"],
        "BackOff" => &["submitted", "store unavailable"],
        "Waiting" => &["submitted", "read others"],
        "Cleanup" => &["submitted", "read others, lease dead"],
        "Select" => &["submitted", "read missing"],
        "Storing" => &["submitted", "read missing", "chosen"],
        "Reserving" => &["submitted", "read missing", "chosen", "ok put"],
        "Dispatch" => &["submitted", "read missing", "chosen", "ok put", "ok reserved"],
        "Awaiting" => {
            &["submitted", "read missing", "chosen", "ok put", "ok reserved", "order admitted, link"]
        }
        "Withdraw" => &[
            "submitted",
            "read missing",
            "chosen",
            "ok put",
            "ok reserved",
            "order admitted, link",
            "answer not admitted",
        ],
        other => panic!("no state {other}"),
    }
}

fn name(machine: &Coordinator) -> &'static str {
    match machine.state_name() {
        "BackingOff" => "BackOff",
        name => name,
    }
}

/// Whether an event is the reply to another Store call than the one that is out.
fn cannot_occur(state: &str, event: &str) -> bool {
    let replies = match state {
        "Resolve" => "read",
        "Storing" => "ok put",
        "Reserving" => "ok reserved",
        "Cleanup" | "Withdraw" => "ok done",
        _ => return false,
    };
    (event.starts_with("read") || event.starts_with("ok")) && !event.starts_with(replies)
}

fn cell(mode: CreateMode, state: &str, event: &str) -> String {
    if cannot_occur(state, event) {
        return "-".to_owned();
    }
    let mut stage = Stage::after(mode, path(state));
    assert_eq!(name(&stage.machine), state, "how {state} is reached");
    let effects = stage.tell(event);
    match effects.iter().find_map(|effect| match effect {
        CoordinatorEffect::Finish(answer) => Some(answer),
        _ => None,
    }) {
        Some(None) => "=nobody".to_owned(),
        Some(Some(Answer::Created { .. })) => "=Created".to_owned(),
        Some(Some(Answer::Existing { .. })) => "=Existing".to_owned(),
        Some(Some(Answer::Rejected { .. })) => "=Rejected".to_owned(),
        Some(Some(Answer::Failed(error))) => failed(error.kind()),
        Some(Some(other)) => panic!("{other:?} is no answer of a create"),
        None if name(&stage.machine) == state && effects.is_empty() => ".".to_owned(),
        None => name(&stage.machine).to_owned(),
    }
}

#[test]
fn the_coordinator_follows_its_table() {
    walk_grid(GRID, EVENTS, |state, event| cell(CreateMode::GetOrCreate, state, event));
}

/// Exclusive Create differs where something Ready is read, and nowhere else (CREATE-27, -28, -30).
#[test]
fn an_exclusive_create_differs_only_in_what_ready_means() {
    let ready = ["read ready", "read ready dead", "read moving"];
    for state in GRID.lines().nth(1).unwrap().split('|').skip(1).map(str::trim) {
        for event in EVENTS {
            let exclusive = cell(CreateMode::Create, state, event);
            if state == "Resolve" && ready.contains(event) {
                assert_eq!(exclusive, failed(ErrorKind::AlreadyExists));
            } else {
                assert_eq!(exclusive, cell(CreateMode::GetOrCreate, state, event), "{state} + {event}");
            }
        }
    }
}

/// A call that has its answer is deaf.
#[test]
fn create_47_done_is_done() {
    let mut stage = Stage::after(CreateMode::GetOrCreate, path("Awaiting"));
    stage.tell("answer created");
    assert!(stage.machine.is_done());
    for event in EVENTS {
        assert!(stage.tell(event).is_empty(), "Done + {event}");
        assert!(stage.machine.is_done());
    }
}
