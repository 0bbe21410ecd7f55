//! The simulated Store: the memory store's pure `apply` behind delays, faults and lossy hints.

use std::collections::{BTreeMap, BTreeSet};

use spotmesh::input::StoreCallId;
use spotmesh::model::{ObjectKey, StoreTime};
use spotmesh::store::{
    AuthorityRead, AuthorityView, ReadAuthority, StoreError, StoreEvent, StoreReply, StoreRequest,
    StoreResult, WatchScope,
};
use spotmesh_store_memory::{State, apply_with_hints};

use crate::action::StoreFault;
use crate::agenda::{Agenda, Nanos, micros, millis};
use crate::cluster::StoreSpec;
use crate::digest::Digest;
use crate::draw::{noise, noise_between};
use crate::place::{RunOf, Seat};

/// What the Store scheduled.
#[derive(Debug, Clone)]
pub enum StoreHappening {
    /// A call reaches the Store.
    Apply(u64),
    /// Its answer reaches the caller.
    Answer(u64),
    /// A hint reaches a watcher.
    Hint {
        /// The watcher.
        to: RunOf,
        /// The hint.
        event: StoreEvent,
    },
}

/// One call on its way.
#[derive(Debug, Clone)]
struct Call {
    by: RunOf,
    id: StoreCallId,
    request: StoreRequest,
    /// What the caller hears; the Store's own result where `None`.
    forced: Option<StoreError>,
    answer_after: Option<Nanos>,
    result: Option<StoreResult>,
    /// Applied or answered, whichever comes last, ends the entry.
    left: u8,
}

#[derive(Debug, Clone)]
struct Armed {
    host: Option<Seat>,
    op: Option<String>,
    fault: StoreFault,
    left: u32,
}

/// The Store and everything between it and the hosts.
#[derive(Debug, Clone)]
pub struct StoreSide {
    spec: StoreSpec,
    seed: u64,
    state: State,
    calls: BTreeMap<u64, Call>,
    next: u64,
    counts: BTreeMap<Seat, u64>,
    armed: Vec<Armed>,
    outages: Vec<(Option<Seat>, Nanos)>,
    slow: (Nanos, Nanos),
    deaf_until: Nanos,
    hints: u64,
    /// When the last call of a seat that met trouble was over, or is.
    trouble: BTreeMap<Seat, Nanos>,
    watches: BTreeSet<(WatchScope, RunOf)>,
}

/// A call the Store has just carried out.
#[derive(Debug, Clone)]
pub struct Applied {
    /// Who called.
    pub by: RunOf,
    /// What.
    pub request: StoreRequest,
    /// The Store's own result, whatever the caller will hear.
    pub result: StoreResult,
}

impl StoreSide {
    /// An empty Store.
    #[must_use]
    pub fn new(spec: StoreSpec, seed: u64) -> Self {
        Self {
            spec,
            seed,
            state: State::default(),
            calls: BTreeMap::new(),
            next: 0,
            counts: BTreeMap::new(),
            armed: Vec::new(),
            outages: Vec::new(),
            slow: (0, 0),
            deaf_until: 0,
            hints: 0,
            trouble: BTreeMap::new(),
            watches: BTreeSet::new(),
        }
    }

    /// Store time at a world time: an origin of its own, so that nobody can confuse the two.
    #[must_use]
    pub fn time(at: Nanos) -> StoreTime {
        StoreTime::from_micros(1_000_000_000_000 + i64::try_from(at / 1_000).unwrap_or(i64::MAX))
    }

    /// A host calls.
    pub fn call<E: From<StoreHappening>>(
        &mut self,
        agenda: &mut Agenda<E>,
        by: RunOf,
        id: StoreCallId,
        request: StoreRequest,
    ) {
        let count = self.counts.entry(by.seat).or_default();
        *count += 1;
        let drawn = noise(self.seed, 0x5704 << 8 | u64::from(by.seat.0), *count);
        let now = agenda.now();
        let (low, high) = self.spec.way_us;
        let mut there = micros(noise_between(drawn, 1, 0, low, high));
        let mut back = micros(noise_between(drawn, 2, 0, low, high));
        let extra = |there: &mut Nanos, back: &mut Nanos, by: Nanos| {
            // Late to be applied, or applied in time and late to be answered.
            if noise(drawn, 3, 0) & 1 == 0 { *there += by } else { *back += by }
        };
        if noise_between(drawn, 4, 0, 0, 999) < self.spec.spike_permille {
            extra(&mut there, &mut back, micros(self.spec.spike_us));
        }
        if now < self.slow.0 {
            extra(&mut there, &mut back, self.slow.1);
        }
        let fault = if self.is_out(by.seat, now) {
            // A refused connection, a connection that dies later, or silence.
            Some(match noise(drawn, 5, 0) % 3 {
                0 => StoreFault::FailBefore,
                1 => StoreFault::LostBefore,
                _ => StoreFault::Silent(false),
            })
        } else {
            self.take_fault(by.seat, &request)
        };
        if fault.is_some() || now < self.slow.0 {
            // Longer than any call waits for its answer.
            self.trouble.insert(by.seat, now + millis(5_000));
        }
        let (mut apply_after, mut forced, mut answered) = (Some(there), None, true);
        match fault {
            None => {}
            Some(StoreFault::FailBefore) => (apply_after, forced) = (None, Some(StoreError::Unavailable)),
            Some(StoreFault::LostBefore) => (apply_after, forced) = (None, Some(StoreError::Indeterminate)),
            Some(StoreFault::LostAfter) => forced = Some(StoreError::Indeterminate),
            Some(StoreFault::AppliesLater(ms)) => {
                (apply_after, forced) =
                    (Some(there + millis(u64::from(ms))), Some(StoreError::Indeterminate));
            }
            Some(StoreFault::Silent(applied)) => (apply_after, answered) = (applied.then_some(there), false),
            Some(StoreFault::Late(ms)) => apply_after = Some(there + millis(u64::from(ms))),
            Some(StoreFault::Slow(ms)) => {
                extra(&mut there, &mut back, millis(u64::from(ms)));
                apply_after = Some(there);
            }
        }
        self.next += 1;
        let number = self.next;
        // A forced answer has its own time; a true one follows its application.
        let own_time = answered && forced.is_some();
        if own_time {
            agenda.after(there + back, StoreHappening::Answer(number).into());
        }
        if let Some(after) = apply_after {
            agenda.after(after, StoreHappening::Apply(number).into());
        }
        let left = u8::from(own_time) + u8::from(apply_after.is_some());
        let answer_after = (answered && forced.is_none()).then_some(back);
        if left > 0 {
            self.calls.insert(number, Call { by, id, request, forced, answer_after, result: None, left });
        }
    }

    fn take_fault(&mut self, seat: Seat, request: &StoreRequest) -> Option<StoreFault> {
        let fits = |armed: &Armed| {
            armed.host.is_none_or(|host| host == seat)
                && armed.op.as_deref().is_none_or(|op| op == request.name())
        };
        let at = self.armed.iter().position(fits)?;
        let fault = self.armed[at].fault;
        self.armed[at].left -= 1;
        if self.armed[at].left == 0 {
            self.armed.remove(at);
        }
        Some(fault)
    }

    fn is_out(&self, seat: Seat, now: Nanos) -> bool {
        self.outages.iter().any(|(host, until)| now < *until && host.is_none_or(|host| host == seat))
    }

    /// A call reaches the Store: it is carried out, its hints leave.
    pub fn apply<E: From<StoreHappening>>(&mut self, agenda: &mut Agenda<E>, number: u64) -> Option<Applied> {
        let now = agenda.now();
        let call = self.calls.get_mut(&number)?;
        let (result, hints) = apply_with_hints(&mut self.state, Self::time(now), &call.request);
        let applied = Applied { by: call.by, request: call.request.clone(), result: result.clone() };
        call.left -= 1;
        if let Some(after) = call.answer_after.take() {
            call.result = Some(result);
            call.left += 1;
            agenda.after(after, StoreHappening::Answer(number).into());
        } else if call.left == 0 {
            self.calls.remove(&number);
        }
        for event in hints {
            self.hint(agenda, &event);
        }
        Some(applied)
    }

    fn hint<E: From<StoreHappening>>(&mut self, agenda: &mut Agenda<E>, event: &StoreEvent) {
        if agenda.now() < self.deaf_until {
            return;
        }
        let (low, high) = self.spec.hint_us;
        let mut told: Option<RunOf> = None;
        let mut watchers: Vec<RunOf> =
            self.watches.iter().filter(|(scope, _)| scope.covers(event)).map(|(_, run)| *run).collect();
        watchers.sort_unstable();
        for to in watchers {
            // One stream a host, whatever number of its scopes covers the event.
            if told == Some(to) {
                continue;
            }
            told = Some(to);
            self.hints += 1;
            let delay = micros(noise_between(self.seed, 0x417, self.hints, low, high));
            agenda.after(delay, StoreHappening::Hint { to, event: event.clone() }.into());
        }
    }

    /// An answer reaches its caller.
    pub fn answer(&mut self, number: u64) -> Option<(RunOf, StoreCallId, StoreResult)> {
        let call = self.calls.get_mut(&number)?;
        call.left -= 1;
        let result = match (call.forced.clone(), call.result.take()) {
            (Some(error), _) => Err(error),
            (None, Some(result)) => result,
            (None, None) => return None,
        };
        let (by, id) = (call.by, call.id);
        if call.left == 0 {
            self.calls.remove(&number);
        }
        Some((by, id, result))
    }

    /// The caller and operation of a call on its way.
    #[must_use]
    pub fn pending(&self, number: u64) -> Option<(RunOf, &'static str)> {
        self.calls.get(&number).map(|call| (call.by, call.request.name()))
    }

    /// Hints of a scope are wanted, or no more.
    pub fn watch(&mut self, by: RunOf, scope: WatchScope, on: bool) {
        if on {
            self.watches.insert((scope, by));
        } else {
            self.watches.remove(&(scope, by));
        }
    }

    /// A process died: nobody watches for it any more, and some of its calls never left it.
    pub fn process_died(&mut self, run: RunOf) {
        self.watches.retain(|(_, by)| *by != run);
        let seed = self.seed;
        self.calls.retain(|number, call| call.by != run || !noise(seed, 0xdead, *number).is_multiple_of(4));
    }

    /// Scopes a process still watches.
    pub fn watches_of(&self, run: RunOf) -> impl Iterator<Item = &WatchScope> {
        self.watches.iter().filter(move |(_, by)| *by == run).map(|(scope, _)| scope)
    }

    /// Arms a fault for the next calls of a kind.
    pub fn arm(&mut self, host: Option<Seat>, op: Option<String>, fault: StoreFault, count: u32) {
        if count > 0 {
            self.armed.push(Armed { host, op, fault, left: count });
        }
    }

    /// The Store cannot be reached until then.
    pub fn outage(&mut self, host: Option<Seat>, until: Nanos) {
        self.outages.push((host, until));
    }

    /// Calls made until then take `by` longer.
    pub fn slow(&mut self, until: Nanos, by: Nanos) {
        self.slow = (until, by);
    }

    /// No hints until then; a `Resync` afterwards where the watch notices.
    pub fn deafen<E: From<StoreHappening>>(&mut self, agenda: &mut Agenda<E>, until: Nanos, resync: bool) {
        self.deaf_until = self.deaf_until.max(until);
        if resync {
            let watchers: BTreeSet<RunOf> = self.watches.iter().map(|(_, run)| *run).collect();
            for to in watchers {
                agenda.at(until, StoreHappening::Hint { to, event: StoreEvent::Resync }.into());
            }
        }
    }

    /// The next answer of a call that was not applied yet gets lost; `applied` says whether the call does.
    pub fn lose<E: From<StoreHappening>>(&mut self, agenda: &mut Agenda<E>, number: u64, applied: bool) {
        let Some(call) = self.calls.get_mut(&number) else { return };
        if call.forced.is_none() && call.answer_after.take().is_some() {
            call.forced = Some(StoreError::Indeterminate);
            call.left = 1 + u8::from(applied);
            agenda.after(0, StoreHappening::Answer(number).into());
        }
    }

    /// Whether a call's answer follows its application, so that it can get lost.
    #[must_use]
    pub fn can_lose(&self, number: u64) -> bool {
        self.calls.get(&number).is_some_and(|call| call.answer_after.is_some() && call.request.mutates())
    }

    /// Adds everything that matters for what can happen, times aside.
    pub fn digest(&self, digest: &mut Digest) {
        digest.add(&self.state);
        let mut calls: Vec<&Call> = self.calls.values().collect();
        calls.sort_by_key(|call| (call.by, call.id));
        for call in calls {
            digest.add(&(call.by, call.id, &call.request, &call.forced, &call.result, call.left));
        }
        digest.add(&self.watches);
    }

    /// Until when the calls of a seat had trouble.
    #[must_use]
    pub fn trouble_of(&self, seat: Seat) -> Nanos {
        self.trouble.get(&seat).copied().unwrap_or_default()
    }

    /// Ends every fault.
    pub fn heal(&mut self) {
        self.armed.clear();
        self.outages.clear();
        self.slow = (0, 0);
        self.deaf_until = 0;
    }

    /// The row of a key as it is now.
    #[must_use]
    pub fn row(&mut self, key: &ObjectKey, at: Nanos) -> Option<Box<AuthorityView>> {
        let request = StoreRequest::ReadAuthority(ReadAuthority { key: key.clone() });
        match apply_with_hints(&mut self.state, Self::time(at), &request).0 {
            Ok(StoreReply::Authority(AuthorityRead::Found(row))) => Some(row),
            _ => None,
        }
    }

    /// Asks the Store itself, outside any call.
    pub fn ask(&mut self, at: Nanos, request: &StoreRequest) -> StoreResult {
        apply_with_hints(&mut self.state, Self::time(at), request).0
    }

    /// The Store's own invariants: counters equal rows, and the like.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check(&self) -> Result<(), String> {
        self.state.check()
    }
}
