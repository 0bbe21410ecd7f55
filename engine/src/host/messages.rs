//! Calls of this host's applications: find, send and request, and the routes they take (spec 01 §10–11).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use super::object::{Job, Origin};
use super::store_calls::StoreUse;
use super::{Host, planted};
use crate::creation::actor_ref;
use crate::input::{ActorCall, CallId, TurnId};
use crate::link::LinkId;
use crate::mark::Mark;
use crate::model::limits::{PAYLOAD_MAX, call_timeout};
use crate::model::{ActorId, Correlation, Error, ErrorKind, Instant, NodeFence, ObjectKey, StoreVersion};
use crate::output::Answer;
use crate::store::{
    AuthorityRead, AuthorityView, ReadAuthority, Resolution, StoreError, StoreReply, StoreResult, resolve,
};

/// One call in progress.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(super) struct MessageCall {
    pub(super) key: ObjectKey,
    pub(super) deadline: Instant,
    pub(super) stage: Stage,
}

/// Where a call stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(super) enum Stage {
    /// Waits for the Store to say who owns the key.
    Resolving { message: Box<ActorCall>, request: bool },
    /// In a local queue, or running.
    Local { request: bool },
    /// Waits for a congested link.
    Congested { link: LinkId, fence: Box<NodeFence>, message: Box<ActorCall>, request: bool },
    /// Handed to a link; the reply must come on it.
    Remote { link: LinkId, correlation: Correlation },
    /// A find.
    Finding,
}

/// A snapshot of a ReadyRoute (MODEL-120, STORE-118).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(super) struct CachedRoute {
    pub(super) fence: NodeFence,
    version: StoreVersion,
    until: Instant,
}

/// Routes known, routes being read, and replies awaited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
pub(super) struct Routes {
    cache: BTreeMap<ObjectKey, CachedRoute>,
    cache_ends: BTreeSet<(Instant, ObjectKey)>,
    reading: BTreeMap<ObjectKey, Reading>,
    /// Requests handed to a link whose reply is awaited on it.
    pub(super) pending: BTreeMap<(LinkId, Correlation), CallId>,
    pub(super) congested: BTreeMap<LinkId, VecDeque<CallId>>,
    next_correlation: u64,
    store_failed: bool,
}

/// Calls waiting for reads of one key, in submission order (MODEL-115).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
struct Reading {
    sent: Instant,
    /// Submitted before the read in flight was made.
    covered: VecDeque<CallId>,
    /// Submitted after it: a negative answer is too old for them.
    later: VecDeque<CallId>,
}

impl Routes {
    pub(super) fn clear_cache(&mut self) {
        self.cache.clear();
        self.cache_ends.clear();
    }

    pub(super) fn cached(&self, key: &ObjectKey, now: Instant) -> Option<&CachedRoute> {
        self.cache.get(key).filter(|route| now < route.until)
    }

    pub(super) fn forget(&mut self, key: &ObjectKey) {
        if let Some(route) = self.cache.remove(key) {
            self.cache_ends.remove(&(route.until, key.clone()));
        }
    }

    /// Drops the route to a node that turned out stale, unless a newer one took its place.
    pub(super) fn forget_if(&mut self, key: &ObjectKey, stale: impl Fn(&NodeFence) -> bool) {
        if self.cache.get(key).is_some_and(|route| stale(&route.fence)) {
            self.forget(key);
        }
    }

    /// A read that shows a newer version than the cached route ends it (MODEL-123).
    pub(super) fn saw(&mut self, read: &AuthorityRead) {
        match read {
            AuthorityRead::Missing { .. } => {}
            AuthorityRead::Found(view) => {
                if self.cache.get(&view.key).is_some_and(|route| route.version < view.version) {
                    self.forget(&view.key);
                }
            }
        }
    }

    fn remember(
        &mut self,
        view: &AuthorityView,
        now: Instant,
        sent: Instant,
        max_age: Duration,
        margin: Duration,
    ) {
        self.forget(&view.key);
        while let Some((until, key)) = self.cache_ends.first().cloned()
            && until <= now
        {
            self.cache_ends.remove(&(until, key.clone()));
            self.cache.remove(&key);
        }
        // MODEL-121: never past the owner's admission deadline, counted from before the read.
        let life = view.owner_lease.expires_at.since(view.store_now).saturating_sub(margin).min(max_age);
        let until = sent + life;
        if until > now {
            let route = CachedRoute { fence: view.owner.clone(), version: view.version, until };
            self.cache.insert(view.key.clone(), route);
            self.cache_ends.insert((until, view.key.clone()));
        }
    }

    /// STORE-120: a Store that comes back after a failure may have changed under every cached route.
    pub(super) fn store_was_reached(&mut self, result: &StoreResult) {
        match result {
            Err(StoreError::Unavailable | StoreError::Indeterminate) => self.store_failed = true,
            _ => {
                if std::mem::take(&mut self.store_failed) {
                    self.clear_cache();
                }
            }
        }
    }

    pub(super) fn correlation(&mut self) -> Correlation {
        self.next_correlation += 1;
        // The counter starts at one and 2^64 requests are out of reach of a lifecycle.
        Correlation::from_u64(self.next_correlation).unwrap_or_else(|| unreachable!())
    }

    /// Takes the calls out that wait for a reply on a link, in the order in which they were handed over.
    pub(super) fn take_pending(&mut self, link: LinkId) -> Vec<CallId> {
        let mut taken = Vec::new();
        self.pending.retain(|(on, _), call| {
            if *on == link {
                taken.push(*call);
            }
            *on != link
        });
        taken
    }

    pub(super) fn is_empty(&self) -> bool {
        self.reading.is_empty() && self.pending.is_empty() && self.congested.values().all(VecDeque::is_empty)
    }
}

impl Host {
    pub(super) fn message_called(
        &mut self,
        call: CallId,
        from: Option<TurnId>,
        message: ActorCall,
        request: bool,
    ) {
        let operation = if request { "request" } else { "send" };
        let key = ObjectKey::Actor(message.target.clone());
        let checked = self.check_message(from, &message, &key, request, operation);
        let timeout = match checked {
            Ok(timeout) => timeout,
            Err(error) => return self.answer(call, Answer::Failed(error)),
        };
        let deadline = self.now + timeout;
        // An object of this host needs no look-up, but must not overtake calls that still look it up.
        if self.objects.get(&key).is_some() && !self.routes.reading.contains_key(&key) {
            let stage = Stage::Local { request };
            self.begin_call(call, MessageCall { key: key.clone(), deadline, stage });
            return self.enqueue(&key, local_job(call, message, request, deadline));
        }
        if !self.routes.reading.contains_key(&key)
            && let Some(route) = self.routes.cached(&key, self.now)
        {
            let fence = route.fence.clone();
            self.mark(Mark::RouteCacheHit);
            self.begin_call(call, MessageCall { key, deadline, stage: Stage::Finding });
            return self.submit_message(call, &fence, message, request);
        }
        let stage = Stage::Resolving { message: Box::new(message), request };
        self.begin_call(call, MessageCall { key: key.clone(), deadline, stage });
        if let Some(reading) = self.routes.reading.get_mut(&key) {
            reading.later.push_back(call);
            return self.mark(Mark::ResolutionShared);
        }
        self.read_route(&key, VecDeque::from([call]));
    }

    /// A call and its deadline.
    fn begin_call(&mut self, call: CallId, begun: MessageCall) {
        self.call_deadlines.insert((begun.deadline, call));
        self.calls.insert(call, begun);
    }

    fn check_message(
        &self,
        from: Option<TurnId>,
        message: &ActorCall,
        key: &ObjectKey,
        request: bool,
        operation: &'static str,
    ) -> Result<Duration, Error> {
        self.check_admission(operation)?;
        let invalid = |text: String| Err(Error::new(ErrorKind::InvalidOperation, operation, text));
        if message.payload.len() > PAYLOAD_MAX {
            return invalid(format!(
                "payload: expected at most {PAYLOAD_MAX} bytes, found {}",
                message.payload.len()
            ));
        }
        let Some(timeout) = call_timeout(message.timeout) else {
            return invalid(format!("timeout: expected 1 ms..2^31-1 ms, found {:?}", message.timeout));
        };
        if request && from.is_some_and(|turn| self.runs_on(turn, key)) {
            return invalid("a handler cannot wait for its own Actor".to_owned()); // MODEL-73
        }
        Ok(timeout)
    }

    fn read_route(&mut self, key: &ObjectKey, covered: VecDeque<CallId>) {
        let reading = Reading { sent: self.now, covered, later: VecDeque::new() };
        self.routes.reading.insert(key.clone(), reading);
        self.call_store(StoreUse::Route(key.clone()), ReadAuthority { key: key.clone() }.into());
    }

    pub(super) fn route_read(&mut self, key: &ObjectKey, result: StoreResult) {
        let Some(reading) = self.routes.reading.remove(key) else { return };
        let Reading { sent, mut covered, later } = reading;
        let failed = |kind, text: &'static str| Err((kind, text));
        let route = match &result {
            Ok(StoreReply::Authority(read)) => {
                self.routes.saw(read);
                match resolve(read) {
                    Resolution::ReadyRoute(view) => {
                        let settings = &self.config.settings;
                        let (age, margin) =
                            (settings.route_cache_max_age, settings.owner_lease_fencing_margin);
                        self.routes.remember(view, self.now, sent, age, margin);
                        Ok(view.owner.clone())
                    }
                    Resolution::Missing => failed(ErrorKind::NotFound, "no such object"),
                    Resolution::Creating(_) => failed(ErrorKind::NotFound, "the object is not Ready"),
                    Resolution::Unavailable(_) => failed(ErrorKind::Unavailable, "the owner is dead"),
                }
            }
            Err(StoreError::DataLost | StoreError::Corrupt(_)) => failed(ErrorKind::DataLost, "authority"),
            _ => failed(ErrorKind::Unavailable, "the store was not reached"),
        };
        match route {
            Ok(fence) => {
                // A positive answer serves later calls too: it is as good as a cache hit.
                covered.extend(later);
                for call in covered {
                    self.submit(call, &fence);
                }
            }
            Err((kind, text)) => {
                for call in covered {
                    self.message_failed(call, kind, text);
                }
                if !later.is_empty() {
                    self.read_route(key, later);
                }
            }
        }
    }

    /// Submits a resolved call to the owner: once, to this target only (MODEL-108).
    pub(super) fn submit(&mut self, call: CallId, fence: &NodeFence) {
        let Some(found) = self.calls.get_mut(&call) else { return };
        let Stage::Resolving { message, request } = std::mem::replace(&mut found.stage, Stage::Finding)
        else {
            return;
        };
        self.submit_message(call, fence, *message, request);
    }

    fn submit_message(&mut self, call: CallId, fence: &NodeFence, message: ActorCall, request: bool) {
        if self.own_node(&fence.rid, fence.lifecycle).is_none() {
            return self.submit_remote(call, fence, message, request);
        }
        let Some(found) = self.calls.get_mut(&call) else { return };
        found.stage = Stage::Local { request };
        let (key, deadline) = (found.key.clone(), found.deadline);
        self.enqueue_local(call, &key, message, request, deadline);
    }

    fn enqueue_local(
        &mut self,
        call: CallId,
        key: &ObjectKey,
        message: ActorCall,
        request: bool,
        deadline: Instant,
    ) {
        let job = local_job(call, message, request, deadline);
        if self.objects.get(key).is_some() {
            self.enqueue(key, job);
        } else if self.is_committing(key) {
            self.mark(Mark::MessageHeldForOpening);
            self.held.entry(key.clone()).or_default().push_back(job);
        } else {
            self.mark(Mark::RouteStale);
            self.routes.forget(key);
            self.end_job(key, job, Err(ErrorKind::Unavailable)); // MODEL-126
        }
    }

    pub(super) fn send_admitted(&mut self, call: CallId) {
        if self.end_call(call) {
            self.answer(call, Answer::Sent);
        }
    }

    /// The one end of a local request (MODEL-113).
    pub(super) fn request_ended(&mut self, call: CallId, outcome: Result<Bytes, ErrorKind>) {
        if !self.end_call(call) {
            self.mark(Mark::ReplyTooLate);
            if !planted!(self, AnswersTwice) {
                return;
            }
        }
        match outcome {
            Ok(reply) => self.answer(call, Answer::Replied(reply)),
            Err(kind) => {
                let error = Error::new(kind, "request", "the request failed at its target");
                self.answer(call, Answer::Failed(error));
            }
        }
    }

    pub(super) fn message_failed(&mut self, call: CallId, kind: ErrorKind, text: &'static str) {
        if self.end_call(call) {
            self.answer(call, Answer::Failed(Error::new(kind, "message", text)));
        }
    }

    /// Takes a call out; `false` where it had ended already.
    pub(super) fn end_call(&mut self, call: CallId) -> bool {
        let Some(ended) = self.calls.remove(&call) else { return false };
        self.call_deadlines.remove(&(ended.deadline, call));
        match ended.stage {
            Stage::Remote { link, correlation } => {
                self.routes.pending.remove(&(link, correlation));
            }
            Stage::Congested { link, .. } => {
                if let Some(waiting) = self.routes.congested.get_mut(&link) {
                    waiting.retain(|waiting| *waiting != call);
                }
            }
            // A waiting or queued job finds its call gone when its turn comes.
            Stage::Resolving { .. } | Stage::Local { .. } | Stage::Finding => {}
        }
        true
    }

    pub(super) fn call_deadline(&mut self, call: CallId) {
        if matches!(
            self.calls.get(&call),
            Some(MessageCall { stage: Stage::Remote { .. } | Stage::Local { .. }, .. })
        ) {
            self.mark(Mark::RequestTimedOut);
        }
        self.message_failed(call, ErrorKind::DeadlineExceeded, "not completed by the deadline");
    }

    pub(super) fn message_dropped(&mut self, call: CallId) {
        self.end_call(call);
    }

    // ---- find ----

    pub(super) fn find_called(&mut self, call: CallId, id: ActorId, timeout: Duration) {
        let checked = self.check_admission("find").and_then(|()| {
            call_timeout(timeout).ok_or_else(|| {
                let text = format!("timeout: expected 1 ms..2^31-1 ms, found {timeout:?}");
                Error::new(ErrorKind::InvalidOperation, "find", text)
            })
        });
        match checked {
            Ok(timeout) => {
                let key = ObjectKey::Actor(id);
                let deadline = self.now + timeout;
                self.begin_call(call, MessageCall { key: key.clone(), deadline, stage: Stage::Finding });
                self.call_store(StoreUse::Find(call), ReadAuthority { key }.into());
            }
            Err(error) => self.answer(call, Answer::Failed(error)),
        }
    }

    /// CREATE-151: the ref of a Ready object, or nothing.
    pub(super) fn found(&mut self, call: CallId, result: StoreResult) {
        let answer = match &result {
            Ok(StoreReply::Authority(read)) => {
                self.routes.saw(read);
                match resolve(read) {
                    Resolution::ReadyRoute(view) => Answer::Found(actor_ref(
                        &view.key,
                        view.object_generation,
                        &view.owner.mesh,
                        &view.owner.rid,
                    )),
                    Resolution::Missing | Resolution::Creating(_) => Answer::Found(None),
                    Resolution::Unavailable(_) => {
                        Answer::Failed(Error::new(ErrorKind::Unavailable, "find", "the owner is dead"))
                    }
                }
            }
            Err(StoreError::DataLost | StoreError::Corrupt(_)) => {
                Answer::Failed(Error::new(ErrorKind::DataLost, "find", "authority"))
            }
            _ => Answer::Failed(Error::new(ErrorKind::Unavailable, "find", "the store was not reached")),
        };
        if self.end_call(call) {
            self.answer(call, answer);
        }
    }
}

fn local_job(call: CallId, message: ActorCall, request: bool, deadline: Instant) -> Job {
    Job {
        origin: if request { Origin::Local(call) } else { Origin::Send(Some(call)) },
        packet: message.packet,
        version: message.version,
        codec: message.codec,
        payload: message.payload,
        metadata: message.metadata,
        deadline: Some(deadline),
    }
}
