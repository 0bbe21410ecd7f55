//! Complete listings, grace and recovery (STORE-48, STORE-124..127).

use super::*;
use crate::mark::Mark;
use crate::mesh::{Discovery, DiscoveryEffect, DiscoveryEvent, DiscoveryTimer};
use crate::model::limits::Settings;
use crate::model::{LeaseGeneration, LeaseRef, OwnerId, StoreTime, StoreVersion};
use crate::store::{DescriptorEntry, DescriptorPage, LeaseState, LeaseView, PageToken};
use bytes::Bytes;

struct Reader {
    discovery: Discovery,
    now: Instant,
    timers: BTreeMap<DiscoveryTimer, Instant>,
    out: Vec<DiscoveryEffect>,
}

impl Reader {
    fn new() -> Self {
        let discovery = Discovery::new(mesh("m"), &Settings::default());
        Self { discovery, now: Instant::ZERO, timers: BTreeMap::new(), out: Vec::new() }
    }

    fn started() -> Self {
        let mut reader = Self::new();
        reader.on(DiscoveryEvent::Started);
        reader
    }

    fn on(&mut self, event: DiscoveryEvent) {
        self.out.clear();
        self.discovery.on(event, self.now, &mut self.out);
        for effect in &self.out {
            match effect {
                DiscoveryEffect::SetTimer { timer, at } => {
                    self.timers.insert(*timer, *at);
                }
                DiscoveryEffect::CancelTimer(timer) => {
                    self.timers.remove(timer);
                }
                _ => {}
            }
        }
    }

    fn page(&mut self, page: DescriptorPage) {
        self.on(DiscoveryEvent::PageRead(Box::new(page)));
    }

    /// Fires what is due by then; a poll's call is left open.
    fn pass(&mut self, by: Duration) {
        self.now = self.now + by;
        let due: Vec<_> =
            self.timers.iter().filter(|(_, at)| **at <= self.now).map(|(timer, _)| *timer).collect();
        for timer in due {
            self.timers.remove(&timer);
            self.on(DiscoveryEvent::TimerFired(timer));
        }
    }

    /// The token of the call just made, `None` without one; the first page has no token.
    fn call(&self) -> Option<Option<PageToken>> {
        self.out.iter().find_map(|effect| match effect {
            DiscoveryEffect::CallList { mesh: found, token } => {
                assert_eq!(*found, mesh("m"));
                Some(token.clone())
            }
            _ => None,
        })
    }

    /// Names of the listing just reported and whether absent nodes are kept.
    fn listed(&self) -> Option<(Vec<String>, bool)> {
        self.out.iter().find_map(|effect| match effect {
            DiscoveryEffect::Listed { listing, keep_absent } => {
                Some((listing.nodes.keys().map(ToString::to_string).collect(), *keep_absent))
            }
            _ => None,
        })
    }
}

fn entry(name: &str, state: LeaseState, expires: i64) -> DescriptorEntry {
    let lease = LeaseRef { owner: OwnerId::new(1).unwrap(), generation: LeaseGeneration::FIRST };
    DescriptorEntry {
        descriptor: Arc::new(descriptor(name, 1)),
        lease: LeaseView { lease, state, expires_at: StoreTime::from_micros(expires) },
        version: StoreVersion::FIRST,
    }
}

/// A page at Store time 100 with live nodes.
fn page(names: &[&str], stamp: u64, next: Option<&'static str>) -> DescriptorPage {
    DescriptorPage {
        entries: names.iter().map(|name| entry(name, LeaseState::Active, 101)).collect(),
        next: next.map(|token| PageToken(Bytes::from_static(token.as_bytes()))),
        change_stamp: stamp,
        store_now: StoreTime::from_micros(100),
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn token(text: &'static str) -> Option<Option<PageToken>> {
    Some(Some(PageToken(Bytes::from_static(text.as_bytes()))))
}

#[test]
fn a_listing_is_used_when_its_first_and_last_page_show_one_stamp() {
    let mut r = Reader::started();
    assert_eq!(r.call(), Some(None));
    r.page(page(&["a"], 7, Some("p2")));
    assert_eq!((r.call(), r.listed()), (token("p2"), None));
    r.page(page(&["b"], 9, Some("p3")));
    assert_eq!(r.call(), token("p3"));
    r.page(page(&["c"], 7, None));
    assert_eq!(r.listed(), Some((names(&["a", "b", "c"]), false)));
    assert_eq!(r.timers[&DiscoveryTimer::Poll], r.now + ms(1_000));
    r.pass(ms(999));
    assert_eq!(r.call(), None);
    r.pass(ms(1));
    assert_eq!(r.call(), Some(None));
}

#[test]
fn a_listing_that_changed_while_it_was_read_is_read_again() {
    let mut r = Reader::started();
    for _ in 0..3 {
        r.page(page(&["a"], 7, Some("p2")));
        r.page(page(&["b"], 8, None));
        assert_eq!((r.listed(), r.call()), (None, Some(None)));
        assert!(r.out.contains(&DiscoveryEffect::Mark(Mark::ListingRetried)));
    }
    // It does not spin for ever: the poll goes on.
    r.page(page(&["a"], 7, Some("p2")));
    r.page(page(&["b"], 8, None));
    assert_eq!((r.listed(), r.call()), (None, None));
    r.pass(ms(1_000));
    r.page(page(&["a"], 8, Some("p2")));
    // An expired token starts over as well, and is no outage.
    r.on(DiscoveryEvent::ScanExpired);
    assert_eq!(r.call(), Some(None));
    r.page(page(&["a", "b"], 8, None));
    assert_eq!(r.listed(), Some((names(&["a", "b"]), false)));
}

#[test]
fn only_nodes_with_a_lease_live_in_the_same_observation_are_listed() {
    let mut r = Reader::started();
    let mut found = page(&["live"], 1, None);
    found.entries.push(entry("expired", LeaseState::Active, 100));
    found.entries.push(entry("fenced", LeaseState::Fenced, 500));
    found.entries.push(entry("released", LeaseState::Released, 500));
    let mut foreign = entry("foreign", LeaseState::Active, 500);
    foreign.descriptor = Arc::new(Descriptor { mesh: mesh("other"), ..descriptor("foreign", 1) });
    found.entries.push(foreign);
    r.page(found);
    assert_eq!(r.listed(), Some((names(&["live"]), false)));
}

#[test]
fn hints_start_a_reading_and_are_not_lost_during_one() {
    let mut r = Reader::started();
    r.page(page(&["a"], 1, None));
    r.on(DiscoveryEvent::Hinted);
    assert_eq!(r.call(), Some(None));
    assert!(!r.timers.contains_key(&DiscoveryTimer::Poll));
    r.on(DiscoveryEvent::Hinted);
    r.on(DiscoveryEvent::Hinted);
    assert_eq!(r.call(), None, "one reading at a time");
    r.page(page(&["a"], 1, None));
    assert!(r.listed().is_some());
    assert_eq!(r.call(), Some(None), "what the hint told may have come after the page");
    r.page(page(&["a"], 1, None));
    assert_eq!(r.call(), None);
}

#[test]
fn a_partial_or_failed_reading_changes_nothing_until_the_grace_ends() {
    let mut r = Reader::started();
    r.page(page(&["a", "b"], 1, None));
    let mut lapsed_at = None;
    r.pass(ms(1_000));
    let failed_at = r.now;
    while lapsed_at.is_none() && r.now - failed_at < ms(60_000) {
        // The first page arrives, the second fails.
        if r.call().is_some() {
            r.page(page(&["a"], 1, Some("p2")));
            r.on(DiscoveryEvent::PageFailed);
            assert_eq!(r.listed(), None);
        }
        r.now = r.now + ms(500);
        let due: Vec<_> = r.timers.iter().filter(|(_, at)| **at <= r.now).map(|(timer, _)| *timer).collect();
        let mut called = None;
        for timer in due {
            r.timers.remove(&timer);
            r.on(DiscoveryEvent::TimerFired(timer));
            called = called.or(r.call().map(|_| r.out.clone()));
            if r.out.contains(&DiscoveryEffect::Lapsed) {
                lapsed_at = Some(r.now);
            }
        }
        r.out = called.unwrap_or_default();
    }
    assert_eq!(lapsed_at, Some(failed_at + ms(30_000)), "STORE-124: the grace of 30 s");
}

#[test]
fn an_absent_node_is_kept_until_a_full_listing_one_lease_ttl_after_the_recovery() {
    let mut r = Reader::started();
    r.page(page(&["a", "b"], 1, None));
    r.pass(ms(1_000));
    r.on(DiscoveryEvent::PageFailed);
    assert!(r.timers.contains_key(&DiscoveryTimer::Grace));
    r.pass(ms(1_000));
    let recovered = r.now;
    r.page(page(&["a", "new"], 2, None));
    assert_eq!(r.listed(), Some((names(&["a", "new"]), true)), "new nodes at once, absent ones stay");
    assert!(!r.timers.contains_key(&DiscoveryTimer::Grace));
    // Every listing whose reading begins within 15 s keeps them.
    for _ in 0..14 {
        r.pass(ms(1_000));
        r.page(page(&["a", "new"], 2, None));
        assert_eq!(r.listed().map(|(_, keep)| keep), Some(true), "{:?}", r.now - recovered);
    }
    r.pass(ms(1_000));
    assert_eq!(r.now - recovered, ms(15_000));
    r.page(page(&["a", "new"], 2, None));
    assert_eq!(r.listed(), Some((names(&["a", "new"]), false)));
    r.pass(ms(1_000));
    r.page(page(&["a"], 3, None));
    assert_eq!(r.listed(), Some((names(&["a"]), false)), "and from then on as ever");
}

#[test]
fn a_reading_that_began_before_the_ttl_passed_proves_no_absence() {
    let mut r = Reader::started();
    r.on(DiscoveryEvent::PageFailed);
    r.pass(ms(1_000));
    r.page(page(&["a"], 1, None));
    r.pass(ms(14_999));
    assert_eq!(r.call(), Some(None));
    r.pass(ms(2_000));
    r.page(page(&["a"], 1, None));
    assert_eq!(r.listed().map(|(_, keep)| keep), Some(true), "began 14.999 s after the recovery");
    // A second outage starts the wait anew.
    r.pass(ms(1_000));
    r.on(DiscoveryEvent::PageFailed);
    r.pass(ms(1_000));
    r.page(page(&["a"], 1, None));
    assert_eq!(r.listed().map(|(_, keep)| keep), Some(true));
}

#[test]
fn after_stop_nothing_is_called_or_timed_and_a_late_page_is_dropped() {
    let mut r = Reader::started();
    r.on(DiscoveryEvent::Stopped);
    assert!(r.timers.is_empty());
    r.page(page(&["a"], 1, None));
    assert!(r.out.is_empty());
    r.on(DiscoveryEvent::Hinted);
    assert!(r.out.is_empty());
    r.on(DiscoveryEvent::Started);
    assert_eq!(r.call(), Some(None));
}

/// `!` is a defect; after a colon: C call, L listing, p/g set Poll or Grace, P/G cancel it, m mark, X lapsed.
const TABLE: &str = "
          Started   Hinted      Last            First       Expired     Failed          Poll       Grace       Stopped
Idle      Reading:C Idle        Idle            Idle        Idle        Idle            Idle       Idle        Idle
Waiting   !         Reading:PC  !               !           !           !               Reading:C  Waiting     Idle:PG
Reading   !         Reading     Waiting:Lp      Reading:C   Reading:mC  Waiting:gp      !          Reading     Idle:PG
";

#[test]
fn every_pair_of_state_and_event_does_what_the_table_says() {
    let cells = table(TABLE);
    assert_eq!(cells.len(), 3 * 9);
    for (row, column, cell) in cells {
        let mut r = Reader::new();
        if row != "Idle" {
            r.on(DiscoveryEvent::Started);
        }
        if row == "Waiting" {
            r.page(page(&["a"], 1, None));
        }
        r.on(match column.as_str() {
            "Started" => DiscoveryEvent::Started,
            "Hinted" => DiscoveryEvent::Hinted,
            "Last" => DiscoveryEvent::PageRead(Box::new(page(&["a"], 1, None))),
            "First" => DiscoveryEvent::PageRead(Box::new(page(&["a"], 1, Some("p2")))),
            "Expired" => DiscoveryEvent::ScanExpired,
            "Failed" => DiscoveryEvent::PageFailed,
            "Poll" => DiscoveryEvent::TimerFired(DiscoveryTimer::Poll),
            "Grace" => DiscoveryEvent::TimerFired(DiscoveryTimer::Grace),
            _ => DiscoveryEvent::Stopped,
        });
        let done: String = r
            .out
            .iter()
            .map(|effect| match effect {
                DiscoveryEffect::CallList { .. } => 'C',
                DiscoveryEffect::Listed { .. } => 'L',
                DiscoveryEffect::Lapsed => 'X',
                DiscoveryEffect::SetTimer { timer: DiscoveryTimer::Poll, .. } => 'p',
                DiscoveryEffect::SetTimer { timer: DiscoveryTimer::Grace, .. } => 'g',
                DiscoveryEffect::CancelTimer(DiscoveryTimer::Poll) => 'P',
                DiscoveryEffect::CancelTimer(DiscoveryTimer::Grace) => 'G',
                DiscoveryEffect::Mark(_) => 'm',
                DiscoveryEffect::Defect(_) => '!',
            })
            .collect();
        let state = r.discovery.state_name();
        let found = match done.as_str() {
            "!" => "!".to_owned(),
            "" => state.to_owned(),
            done => format!("{state}:{done}"),
        };
        assert_eq!(found, cell, "{row} on {column}");
    }
}
