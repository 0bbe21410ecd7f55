//! Reading the descriptors of a Mesh: complete listings only (spec 03 §6, STORE-124..127).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::mark::Mark;
use crate::model::limits::Settings;
use crate::model::{Instant, LeaseRef, MeshName, Rid};
use crate::store::{Descriptor, DescriptorPage, PageToken};

/// Reads again at once this often when the change stamp moved; then the next poll tries.
const REREADS: u8 = 3;

/// One complete listing: every node of the Mesh whose lease was live in the same observation (STORE-48).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct Listing {
    pub(crate) nodes: BTreeMap<Rid, ListedNode>,
}

/// A usable descriptor with the lease that makes it usable (NODE-67).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct ListedNode {
    pub(crate) descriptor: Arc<Descriptor>,
    pub(crate) lease: LeaseRef,
}

/// Reads the descriptors of one Mesh again and again.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct Discovery {
    mesh: MeshName,
    poll_interval: Duration,
    grace: Duration,
    lease_ttl: Duration,
    state: State,
    store: StoreHealth,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
enum State {
    /// Not started, or stopped.
    Idle,
    /// Waits for the poll interval or a hint.
    Waiting,
    /// One listing is being read.
    Reading(Box<Reading>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
struct Reading {
    since: Instant,
    /// Change stamp of the first page.
    stamp: Option<u64>,
    nodes: BTreeMap<Rid, ListedNode>,
    /// A hint came meanwhile: what it tells may not be in this listing.
    hinted: bool,
    rereads: u8,
}

/// Whether the Store answered lately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
enum StoreHealth {
    Answering,
    /// The last listing stays in force until the grace ends (STORE-124).
    Failing {
        lapsed: bool,
    },
    /// Answers again. Owners may not have renewed yet, so absence proves nothing for a while (STORE-126).
    Recovered {
        since: Instant,
    },
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum DiscoveryEvent {
    Started,
    /// A descriptor of the Mesh may have changed (STORE-112).
    Hinted,
    PageRead(Box<DescriptorPage>),
    /// The page token is no longer valid: the listing starts over.
    ScanExpired,
    /// The Store was not reached, or failed.
    PageFailed,
    TimerFired(DiscoveryTimer),
    Stopped,
}

/// The deadlines of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub(crate) enum DiscoveryTimer {
    Poll,
    /// The end of the Store failure grace.
    Grace,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum DiscoveryEffect {
    /// Call `list_descriptors` of `mesh` with the largest page.
    CallList {
        mesh: MeshName,
        token: Option<PageToken>,
    },
    /// A complete listing; it takes the place of the one before.
    Listed {
        listing: Listing,
        /// Absent nodes keep their intents (STORE-126).
        keep_absent: bool,
    },
    /// The last listing is out of force for target selection; intents stay (STORE-124, STORE-127).
    Lapsed,
    SetTimer {
        timer: DiscoveryTimer,
        at: Instant,
    },
    CancelTimer(DiscoveryTimer),
    Mark(Mark),
    /// A pair of state and event that cannot happen.
    Defect(String),
}

impl Discovery {
    pub(crate) fn new(mesh: MeshName, settings: &Settings) -> Self {
        Self {
            mesh,
            poll_interval: settings.discovery_poll_interval,
            grace: settings.store_failure_grace,
            lease_ttl: settings.owner_lease_ttl,
            state: State::Idle,
            store: StoreHealth::Answering,
        }
    }

    /// Name of the state, for tests and traces.
    #[cfg(test)]
    pub(crate) fn state_name(&self) -> &'static str {
        self.state.name()
    }

    pub(crate) fn on(&mut self, event: DiscoveryEvent, now: Instant, out: &mut Vec<DiscoveryEffect>) {
        use {DiscoveryEvent as E, State as S};
        self.state = match (std::mem::replace(&mut self.state, S::Idle), event) {
            (S::Idle, E::Started) => self.read(now, 0, out),
            // Stopped while a call or a timer was on its way.
            (S::Idle, _) => S::Idle,
            (_, E::Stopped) => self.stop(out),

            (S::Waiting, E::Hinted) => {
                out.push(DiscoveryEffect::CancelTimer(DiscoveryTimer::Poll));
                self.read(now, 0, out)
            }
            (S::Waiting, E::TimerFired(DiscoveryTimer::Poll)) => self.read(now, 0, out),
            (state, E::TimerFired(DiscoveryTimer::Grace)) => {
                self.lapse(out);
                state
            }

            (S::Reading(mut reading), E::Hinted) => {
                reading.hinted = true;
                S::Reading(reading)
            }
            (S::Reading(reading), E::PageRead(page)) => self.page_read(reading, *page, now, out),
            (S::Reading(reading), E::ScanExpired) => self.read_again(reading.rereads, now, out),
            (S::Reading(_), E::PageFailed) => {
                self.failed(now, out);
                self.wait(now, out)
            }

            (state, event) => {
                out.push(DiscoveryEffect::Defect(format!("discovery: {event:?} in {}", state.name())));
                state
            }
        };
    }

    fn read(&self, now: Instant, rereads: u8, out: &mut Vec<DiscoveryEffect>) -> State {
        out.push(DiscoveryEffect::CallList { mesh: self.mesh.clone(), token: None });
        State::Reading(Box::new(Reading {
            since: now,
            stamp: None,
            nodes: BTreeMap::new(),
            hinted: false,
            rereads,
        }))
    }

    fn wait(&self, now: Instant, out: &mut Vec<DiscoveryEffect>) -> State {
        out.push(DiscoveryEffect::SetTimer { timer: DiscoveryTimer::Poll, at: now + self.poll_interval });
        State::Waiting
    }

    fn read_again(&self, rereads: u8, now: Instant, out: &mut Vec<DiscoveryEffect>) -> State {
        out.push(DiscoveryEffect::Mark(Mark::ListingRetried));
        if rereads < REREADS { self.read(now, rereads + 1, out) } else { self.wait(now, out) }
    }

    fn page_read(
        &mut self,
        mut reading: Box<Reading>,
        page: DescriptorPage,
        now: Instant,
        out: &mut Vec<DiscoveryEffect>,
    ) -> State {
        let stamp = *reading.stamp.get_or_insert(page.change_stamp);
        for entry in page.entries {
            // One unusable descriptor excludes only itself; it is judged by its own page's Store time.
            if entry.lease.is_live(page.store_now) && entry.descriptor.mesh == self.mesh {
                let node = ListedNode { lease: entry.lease.lease, descriptor: entry.descriptor };
                reading.nodes.insert(node.descriptor.rid.clone(), node);
            }
        }
        if let Some(next) = page.next {
            out.push(DiscoveryEffect::CallList { mesh: self.mesh.clone(), token: Some(next) });
            return State::Reading(reading);
        }
        if page.change_stamp != stamp {
            return self.read_again(reading.rereads, now, out);
        }
        let keep_absent = self.answered(reading.since, now, out);
        out.push(DiscoveryEffect::Listed { listing: Listing { nodes: reading.nodes }, keep_absent });
        if reading.hinted { self.read(now, 0, out) } else { self.wait(now, out) }
    }

    /// A complete listing, whose reading began at `since`, ends an outage. Says whether absent nodes keep
    /// their intents: until a full listing read one lease TTL after the recovery (STORE-126).
    fn answered(&mut self, since: Instant, now: Instant, out: &mut Vec<DiscoveryEffect>) -> bool {
        match self.store {
            StoreHealth::Answering => false,
            StoreHealth::Failing { lapsed } => {
                if !lapsed {
                    out.push(DiscoveryEffect::CancelTimer(DiscoveryTimer::Grace));
                }
                self.store = StoreHealth::Recovered { since: now };
                true
            }
            StoreHealth::Recovered { since: recovered } if since < recovered + self.lease_ttl => true,
            StoreHealth::Recovered { .. } => {
                self.store = StoreHealth::Answering;
                false
            }
        }
    }

    fn failed(&mut self, now: Instant, out: &mut Vec<DiscoveryEffect>) {
        if !matches!(self.store, StoreHealth::Failing { .. }) {
            self.store = StoreHealth::Failing { lapsed: false };
            out.push(DiscoveryEffect::SetTimer { timer: DiscoveryTimer::Grace, at: now + self.grace });
        }
    }

    fn lapse(&mut self, out: &mut Vec<DiscoveryEffect>) {
        if self.store == (StoreHealth::Failing { lapsed: false }) {
            self.store = StoreHealth::Failing { lapsed: true };
            out.push(DiscoveryEffect::Lapsed);
        }
    }

    fn stop(&mut self, out: &mut Vec<DiscoveryEffect>) -> State {
        self.store = StoreHealth::Answering;
        out.push(DiscoveryEffect::CancelTimer(DiscoveryTimer::Poll));
        out.push(DiscoveryEffect::CancelTimer(DiscoveryTimer::Grace));
        State::Idle
    }
}

impl State {
    fn name(&self) -> &'static str {
        match self {
            Self::Idle => "Idle",
            Self::Waiting => "Waiting",
            Self::Reading(_) => "Reading",
        }
    }
}
