//! The owner lease machine: every pair of state and event, and the instants of spec 03 §5.

use std::fmt::Write as _;
use std::time::Duration;

use super::owner::{LeaseEffect, LeaseEvent, OwnerLease};
use crate::model::limits::Settings;
use crate::model::{Instant, LeaseGeneration, LeaseRef, OwnerId, StoreTime};
use crate::store::{ConflictReason, LeaseGrant, StoreError};

const TTL: u64 = 15;
const INTERVAL: u64 = 5;
const TIMEOUT: u64 = 3;
const MARGIN: u64 = 5;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The instant so many milliseconds after the machine began.
fn at(millis: u64) -> Instant {
    Instant::from_nanos(1_000_000_000) + ms(millis)
}

fn owner() -> OwnerId {
    OwnerId::new(77).unwrap()
}

fn lease() -> LeaseRef {
    LeaseRef { owner: owner(), generation: LeaseGeneration::new(4).unwrap() }
}

/// A grant by a Store whose clock showed `store_now` milliseconds, valid for the TTL from then on.
fn granted(store_now: u64) -> LeaseEvent {
    let store_now = StoreTime::from_micros(i64::try_from(store_now * 1_000).unwrap());
    let expires_at = store_now + Duration::from_secs(TTL);
    LeaseEvent::Answered(Ok(LeaseGrant { lease: lease(), expires_at, store_now }))
}

fn failed(error: StoreError) -> LeaseEvent {
    LeaseEvent::Answered(Err(error))
}

fn conflict() -> StoreError {
    StoreError::Conflict { reason: ConflictReason::Exists, current: None }
}

struct Machine(OwnerLease);

impl Machine {
    fn new() -> Self {
        Self(OwnerLease::new(owner(), &Settings::default()))
    }

    fn on(&mut self, event: LeaseEvent, now: Instant) -> Vec<LeaseEffect> {
        let mut effects = Vec::new();
        self.0.on(event, now, &mut effects);
        effects
    }

    /// Asked at 0, granted at once.
    fn held() -> Self {
        let mut machine = Self::new();
        machine.on(LeaseEvent::Start, at(0));
        machine.on(granted(0), at(0));
        machine
    }

    /// Its first renewal was asked at 5 s and arrived past expiry.
    fn reconciling() -> Self {
        let mut machine = Self::held();
        machine.on(LeaseEvent::TimerFired, at(5_000));
        machine.on(granted(20_000), at(5_000));
        machine
    }

    fn state(&self) -> String {
        let text = format!("{:?}", self.0);
        let (_, state) = text.split_once("state: ").unwrap();
        let name: String = state.chars().take_while(char::is_ascii_alphanumeric).collect();
        if state.contains("sent: Some") { format!("{name}+asked") } else { name }
    }
}

/// Effects in a word each; times in milliseconds since the machine began.
fn words(effects: &[LeaseEffect]) -> String {
    let mut text = String::new();
    for effect in effects {
        match effect {
            LeaseEffect::Acquire(by, within) => {
                assert_eq!((*by, *within), (owner(), Duration::from_secs(TIMEOUT)));
                text.push_str(" acquire");
            }
            LeaseEffect::Renew(of, within) => {
                assert_eq!((*of, *within), (lease(), Duration::from_secs(TIMEOUT)));
                text.push_str(" renew");
            }
            LeaseEffect::SetTimer(due) => write!(text, " timer@{}", due.since(at(0)).as_millis()).unwrap(),
            LeaseEffect::Confirmed => text.push_str(" confirmed"),
            LeaseEffect::Extended => text.push_str(" extended"),
            LeaseEffect::Reconcile => text.push_str(" reconcile"),
            LeaseEffect::Lost => text.push_str(" lost"),
            LeaseEffect::Refused(_) => text.push_str(" refused"),
        }
    }
    text
}

/// Every state, by the way into it. What was asked was asked at 0, or at 5,000 for a renewal.
fn states() -> Vec<(&'static str, Machine)> {
    let after = |mut machine: Machine, events: Vec<LeaseEvent>| {
        for event in events {
            machine.on(event, at(5_000));
        }
        machine
    };
    let mut asked = Machine::new();
    asked.on(LeaseEvent::Start, at(0));
    let mut not_granted = Machine::new();
    not_granted.on(LeaseEvent::Start, at(0));
    not_granted.on(failed(StoreError::Unavailable), at(0));
    vec![
        ("Unclaimed", Machine::new()),
        ("Acquiring+asked", asked),
        ("Acquiring", not_granted),
        ("Held", Machine::held()),
        ("Held+asked", after(Machine::held(), vec![LeaseEvent::TimerFired])),
        ("Reconciling", Machine::reconciling()),
        ("Reconciling+asked", after(Machine::reconciling(), vec![LeaseEvent::TimerFired])),
        ("Lost", after(Machine::held(), vec![LeaseEvent::TimerFired, failed(StoreError::LeaseLost)])),
        ("Released", after(Machine::held(), vec![LeaseEvent::Release])),
    ]
}

fn events() -> Vec<(&'static str, LeaseEvent)> {
    vec![
        ("Start", LeaseEvent::Start),
        ("Granted in time", granted(6_000)),
        ("Granted late", granted(60_000)),
        ("Unavailable", failed(StoreError::Unavailable)),
        ("Indeterminate", failed(StoreError::Indeterminate)),
        ("Conflict", failed(conflict())),
        ("Exhausted", failed(StoreError::GenerationExhausted)),
        ("LeaseLost", failed(StoreError::LeaseLost)),
        ("TimerFired", LeaseEvent::TimerFired),
        ("Reconciled", LeaseEvent::Reconciled),
        ("Release", LeaseEvent::Release),
    ]
}

#[test]
fn every_state_meets_every_event_as_the_table_says() {
    let mut table = String::new();
    for (event_name, _) in events() {
        for (name, mut machine) in states() {
            assert_eq!(machine.state(), name);
            let event = events().into_iter().find(|(it, _)| *it == event_name).unwrap().1;
            let effects = machine.on(event, at(6_000));
            let to = machine.state();
            if to != name || !effects.is_empty() {
                writeln!(table, "{event_name}: {name} -> {to}{}", words(&effects)).unwrap();
            }
        }
    }
    // Pairs that are not here change nothing and do nothing.
    insta::assert_snapshot!(table, @"
    Start: Unclaimed -> Acquiring+asked acquire timer@11000
    Granted in time: Acquiring+asked -> Held timer@5000 confirmed
    Granted in time: Held -> Held extended
    Granted in time: Held+asked -> Held timer@10000 extended
    Granted in time: Reconciling+asked -> Reconciling timer@10000
    Granted late: Acquiring+asked -> Held timer@5000 confirmed
    Granted late: Held -> Reconciling reconcile
    Granted late: Held+asked -> Reconciling timer@10000 reconcile
    Granted late: Reconciling+asked -> Reconciling timer@10000
    Unavailable: Acquiring+asked -> Acquiring
    Unavailable: Held -> Held timer@6000
    Unavailable: Held+asked -> Held timer@10000
    Unavailable: Reconciling -> Reconciling timer@6000
    Unavailable: Reconciling+asked -> Reconciling timer@10000
    Indeterminate: Acquiring+asked -> Acquiring
    Indeterminate: Held -> Held timer@6000
    Indeterminate: Held+asked -> Held timer@10000
    Indeterminate: Reconciling -> Reconciling timer@6000
    Indeterminate: Reconciling+asked -> Reconciling timer@10000
    Conflict: Acquiring+asked -> Lost refused
    Conflict: Acquiring -> Lost refused
    Conflict: Held -> Held timer@6000
    Conflict: Held+asked -> Held timer@10000
    Conflict: Reconciling -> Reconciling timer@6000
    Conflict: Reconciling+asked -> Reconciling timer@10000
    Exhausted: Acquiring+asked -> Lost refused
    Exhausted: Acquiring -> Lost refused
    Exhausted: Held -> Held timer@6000
    Exhausted: Held+asked -> Held timer@10000
    Exhausted: Reconciling -> Reconciling timer@6000
    Exhausted: Reconciling+asked -> Reconciling timer@10000
    LeaseLost: Acquiring+asked -> Lost refused
    LeaseLost: Acquiring -> Lost refused
    LeaseLost: Held -> Lost lost
    LeaseLost: Held+asked -> Lost lost
    LeaseLost: Reconciling -> Lost lost
    LeaseLost: Reconciling+asked -> Lost lost
    TimerFired: Acquiring+asked -> Acquiring+asked timer@9000
    TimerFired: Acquiring -> Acquiring+asked acquire timer@11000
    TimerFired: Held -> Held+asked renew timer@11000
    TimerFired: Held+asked -> Held+asked timer@9000
    TimerFired: Reconciling -> Reconciling+asked renew timer@11000
    TimerFired: Reconciling+asked -> Reconciling+asked timer@9000
    Reconciled: Reconciling -> Held extended
    Reconciled: Reconciling+asked -> Held+asked extended
    Release: Unclaimed -> Released
    Release: Acquiring+asked -> Released
    Release: Acquiring -> Released
    Release: Held -> Released
    Release: Held+asked -> Released
    Release: Reconciling -> Released
    Release: Reconciling+asked -> Released
    ");
}

#[test]
fn store_30_a_renewal_starts_an_interval_after_the_last_one_started() {
    let mut machine = Machine::new();
    assert_eq!(words(&machine.on(LeaseEvent::Start, at(0))), " acquire timer@5000");
    // The grant takes a second; the next request still starts at 5 s.
    assert_eq!(words(&machine.on(granted(900), at(1_000))), " timer@5000 confirmed");
    assert_eq!(words(&machine.on(LeaseEvent::TimerFired, at(5_000))), " renew timer@10000");
    assert_eq!(words(&machine.on(granted(6_900), at(7_000))), " timer@10000 extended");
    // A renewal that is not done when the next is due holds it back until it ends.
    assert_eq!(words(&machine.on(LeaseEvent::TimerFired, at(10_000))), " renew timer@15000");
    assert_eq!(
        words(&machine.on(LeaseEvent::TimerFired, at(15_000))),
        " timer@18000",
        "not a second request"
    );
    assert_eq!(words(&machine.on(granted(15_400), at(15_500))), " timer@15500 extended");
    assert_eq!(words(&machine.on(LeaseEvent::TimerFired, at(15_500))), " renew timer@20500");
    // A failed one is repeated at its next interval, not before.
    let effects = machine.on(failed(StoreError::Indeterminate), at(18_500));
    assert_eq!(words(&effects), " timer@20500");
}

#[test]
fn store_31_model_29_admission_ends_at_the_instant_before_the_request_plus_validity_less_margin() {
    for delay in [0, 700, 2_999] {
        let mut machine = Machine::new();
        machine.on(LeaseEvent::Start, at(0));
        assert!(!machine.0.admits(at(0)), "nothing is admitted before the grant");
        // Wherever in the round trip the Store's clock was read.
        machine.on(granted(123_456), at(delay));
        let deadline = (TTL - MARGIN) * 1_000;
        assert!(machine.0.admits(at(delay)));
        assert!(machine.0.admits(at(deadline - 1)));
        assert!(!machine.0.admits(at(deadline)), "the deadline itself is past");
        assert!(!machine.0.admits(at(deadline + 1)));
        assert_eq!(machine.0.lease(), Some(lease()), "the lease is still named: it may be renewed");
    }
    // A validity below the margin admits nothing.
    let mut machine = Machine::new();
    machine.on(LeaseEvent::Start, at(0));
    let store_now = StoreTime::from_micros(0);
    let expires_at = store_now + ms(4_999);
    machine.on(LeaseEvent::Answered(Ok(LeaseGrant { lease: lease(), expires_at, store_now })), at(0));
    assert!(!machine.0.admits(at(0)));
}

#[test]
fn store_33_a_renewal_moves_the_deadline_on_and_never_back() {
    let mut machine = Machine::held();
    machine.on(LeaseEvent::TimerFired, at(5_000));
    assert!(machine.0.admits(at(9_999)) && !machine.0.admits(at(10_000)), "asking alone extends nothing");
    machine.on(granted(7_000), at(7_500));
    assert!(machine.0.admits(at(14_999)));
    assert!(!machine.0.admits(at(15_000)));
    // The Store gives less than before: what was granted stays.
    machine.on(LeaseEvent::TimerFired, at(10_000));
    let store_now = StoreTime::from_micros(10_000_000);
    let expires_at = store_now + ms(6_000);
    machine.on(LeaseEvent::Answered(Ok(LeaseGrant { lease: lease(), expires_at, store_now })), at(10_000));
    assert!(machine.0.admits(at(14_999)));
    assert!(!machine.0.admits(at(15_000)));
    // A failure moves nothing either.
    machine.on(LeaseEvent::TimerFired, at(14_000));
    machine.on(failed(StoreError::Unavailable), at(14_000));
    assert!(machine.0.admits(at(14_999)) && !machine.0.admits(at(15_000)));
}

#[test]
fn store_36_37_a_renewal_past_expiry_is_good_once_the_rows_are_read_again() {
    let mut machine = Machine::held();
    // The Store is gone for longer than the lease lives.
    let mut now = 5_000;
    while now < 40_000 {
        assert_eq!(
            words(&machine.on(LeaseEvent::TimerFired, at(now))),
            format!(" renew timer@{}", now + 5_000)
        );
        machine.on(failed(StoreError::Indeterminate), at(now + 3_000));
        assert_eq!(machine.state(), "Held");
        assert_eq!(machine.0.admits(at(now + 3_000)), now + 3_000 < 10_000);
        now += 5_000;
    }
    machine.on(LeaseEvent::TimerFired, at(40_000));
    let effects = machine.on(granted(40_000), at(40_100));
    assert_eq!(words(&effects), " timer@45000 reconcile");
    assert!(!machine.0.admits(at(40_100)), "not before the rows are read");
    assert_eq!(machine.0.lease(), Some(lease()));
    // Renewals go on meanwhile and open nothing.
    machine.on(LeaseEvent::TimerFired, at(45_000));
    assert_eq!(words(&machine.on(granted(45_000), at(45_000))), " timer@50000");
    assert!(!machine.0.admits(at(45_001)));
    assert_eq!(words(&machine.on(LeaseEvent::Reconciled, at(46_000))), " extended");
    assert!(machine.0.admits(at(46_000)));
    assert!(machine.0.admits(at(54_999)) && !machine.0.admits(at(55_000)));
}

#[test]
fn store_37_expiry_is_judged_by_the_stores_clock_to_the_microsecond() {
    for (store_now, late) in [(14_999_999, false), (15_000_000, true)] {
        let mut machine = Machine::held();
        machine.on(LeaseEvent::TimerFired, at(5_000));
        let store_now = StoreTime::from_micros(store_now);
        let grant =
            LeaseGrant { lease: lease(), expires_at: store_now + Duration::from_secs(TTL), store_now };
        let effects = machine.on(LeaseEvent::Answered(Ok(grant)), at(5_000));
        assert_eq!(effects.contains(&LeaseEffect::Reconcile), late, "{store_now:?}");
        assert_eq!(machine.0.admits(at(5_000)), !late);
    }
}

#[test]
fn store_38_a_lost_lease_is_lost_for_good() {
    for mut machine in [Machine::held(), Machine::reconciling()] {
        machine.on(LeaseEvent::TimerFired, at(10_000));
        assert_eq!(machine.on(failed(StoreError::LeaseLost), at(10_000)), [LeaseEffect::Lost]);
        assert!(machine.0.is_lost());
        for (name, event) in events() {
            assert_eq!(machine.on(event, at(10_001)), [], "{name}");
            assert!(machine.0.is_lost(), "{name}");
            assert!(!machine.0.admits(at(0)));
            assert_eq!(machine.0.lease(), None);
        }
    }
}

#[test]
fn store_39_an_acquire_that_is_not_confirmed_is_asked_again_every_interval_with_the_same_owner() {
    let mut machine = Machine::new();
    assert_eq!(words(&machine.on(LeaseEvent::Start, at(0))), " acquire timer@5000");
    for round in 1..20u64 {
        // Its timeout ends the call before the next is due.
        let asked = (round - 1) * INTERVAL * 1_000;
        let error = if round % 2 == 0 { StoreError::Indeterminate } else { StoreError::Unavailable };
        assert_eq!(machine.on(failed(error), at(asked + TIMEOUT * 1_000)), []);
        assert_eq!(machine.0.lease(), None);
        // `words` asserts that the OwnerId is the same each time.
        let due = round * INTERVAL * 1_000;
        let effects = machine.on(LeaseEvent::TimerFired, at(due));
        assert_eq!(words(&effects), format!(" acquire timer@{}", due + 5_000));
    }
    // The Store had granted the first request long ago and repeats it: the deadline counts from the last request
    // and from what is left of that grant.
    let store_now = StoreTime::from_micros(96_000_000);
    let expires_at = store_now + ms(11_000);
    let repeated = LeaseGrant { lease: lease(), expires_at, store_now };
    let effects = machine.on(LeaseEvent::Answered(Ok(repeated)), at(96_000));
    assert_eq!(words(&effects), " timer@100000 confirmed");
    assert!(machine.0.admits(at(100_999)));
    assert!(!machine.0.admits(at(101_000)));
}

#[test]
fn store_39_what_repeating_cannot_mend_is_refused() {
    for error in [conflict(), StoreError::GenerationExhausted, StoreError::LeaseLost] {
        let mut machine = Machine::new();
        machine.on(LeaseEvent::Start, at(0));
        assert_eq!(machine.on(failed(error.clone()), at(10)), [LeaseEffect::Refused(error)]);
        assert_eq!(machine.on(LeaseEvent::TimerFired, at(5_000)), [], "nothing is asked again");
        assert_eq!(machine.0.lease(), None);
    }
}

#[test]
fn a_grant_after_its_call_was_given_up_is_no_confirmation() {
    let mut machine = Machine::new();
    machine.on(LeaseEvent::Start, at(0));
    machine.on(failed(StoreError::Indeterminate), at(3_000));
    // Nobody knows when this was asked for, so there is no instant to count from.
    assert_eq!(machine.on(granted(3_500), at(3_500)), []);
    assert!(!machine.0.admits(at(3_500)));
    assert_eq!(machine.0.lease(), None);
    assert_eq!(words(&machine.on(LeaseEvent::TimerFired, at(5_000))), " acquire timer@10000");
    assert_eq!(words(&machine.on(granted(5_100), at(5_200))), " timer@10000 confirmed");
    // The same of a renewal.
    machine.on(LeaseEvent::TimerFired, at(10_000));
    machine.on(failed(StoreError::Indeterminate), at(13_000));
    machine.on(granted(13_500), at(13_500));
    assert!(machine.0.admits(at(14_999)) && !machine.0.admits(at(15_000)));
}
