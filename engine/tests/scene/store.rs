//! The Store of a scene: applied at once, or as a rule says.

use std::time::Duration;

use spotmesh::input::{Input, StoreCallId};
use spotmesh::model::{Instant, NodeFence, ObjectKey};
use spotmesh::store::{AuthorityView, ReadAuthority, StoreError, StoreReply, StoreRequest, StoreResult};
use spotmesh_store_memory::{apply, apply_with_hints};

use super::{Happening, Scene};

/// What happens to a Store call.
#[derive(Debug, Clone)]
pub enum Policy {
    /// Applied and answered at once.
    Apply,
    /// Waits, neither applied nor answered, until [`Scene::release_store`] or [`Scene::drop_store`].
    Hold,
    /// Applied at once; the answer waits.
    HoldAnswer,
    /// Applied; no answer ever comes.
    LoseAnswer,
    /// Not applied; no answer ever comes.
    LoseCall,
    /// Not applied; this answer.
    Answer(StoreResult),
    /// Applied; this answer instead of the true one.
    AppliedBut(StoreError),
    /// Applied and answered so much later.
    Delay(Duration),
}

/// One rule: the first that matches decides.
struct Rule {
    host: Option<usize>,
    name: Option<&'static str>,
    policy: Policy,
    /// How often it still applies.
    left: usize,
}

/// A Store call that waits.
#[derive(Debug, Clone)]
pub struct HeldCall {
    pub host: usize,
    pub run: u32,
    pub call: StoreCallId,
    pub request: StoreRequest,
    /// The true answer where the call was applied.
    pub answer: Option<StoreResult>,
    due: Option<Instant>,
}

/// One Store call a host made.
#[derive(Debug, Clone)]
pub struct StoreUse {
    pub host: usize,
    pub at: Instant,
    pub request: StoreRequest,
    /// Its true result, `None` where it was never applied.
    pub result: Option<StoreResult>,
}

#[derive(Default)]
pub(super) struct StoreSide {
    rules: Vec<Rule>,
    held: Vec<HeldCall>,
    pub(super) log: Vec<StoreUse>,
}

impl StoreSide {
    pub(super) fn process_died(&mut self, at: usize) {
        self.held.retain(|held| held.host != at);
    }

    pub(super) fn next_delayed(&self) -> Option<Instant> {
        self.held.iter().filter_map(|held| held.due).min()
    }
}

impl Scene {
    /// The next `times` calls of this name by this host meet this policy. Later rules come first.
    pub fn rule(&mut self, host: usize, name: &'static str, policy: Policy, times: usize) {
        assert!(StoreRequest::OPERATIONS.iter().any(|(known, _)| *known == name), "no operation {name}");
        self.store.rules.insert(0, Rule { host: Some(host), name: Some(name), policy, left: times });
    }

    /// Every call of every host meets this policy, until [`Self::forget_rules`].
    pub fn store_does(&mut self, policy: Policy) {
        self.store.rules.insert(0, Rule { host: None, name: None, policy, left: usize::MAX });
    }

    pub fn forget_rules(&mut self) {
        self.store.rules.clear();
    }

    /// Watch hints arrive, or are all lost.
    pub fn deliver_hints(&mut self, yes: bool) {
        self.hints = yes;
    }

    pub(super) fn store_called(&mut self, host: usize, call: StoreCallId, request: StoreRequest) {
        let name = request.name();
        let rule = self.store.rules.iter_mut().find(|rule| {
            rule.left > 0 && rule.host.is_none_or(|it| it == host) && rule.name.is_none_or(|it| it == name)
        });
        let policy = match rule {
            Some(rule) => {
                rule.left -= 1;
                rule.policy.clone()
            }
            None => Policy::Apply,
        };
        let run = self.seats[host].run;
        let mut held = HeldCall { host, run, call, request: request.clone(), answer: None, due: None };
        let log = |scene: &mut Self, result| {
            let at = scene.now;
            scene.store.log.push(StoreUse { host, at, request: request.clone(), result });
        };
        match policy {
            Policy::Apply => {
                let result = self.apply(&request);
                log(self, Some(result.clone()));
                self.tell(host, Input::StoreAnswered { call, result });
            }
            Policy::Hold => {
                log(self, None);
                self.store.held.push(held);
            }
            Policy::HoldAnswer => {
                let result = self.apply(&request);
                log(self, Some(result.clone()));
                held.answer = Some(result);
                self.store.held.push(held);
            }
            Policy::LoseAnswer => {
                let result = self.apply(&request);
                log(self, Some(result));
            }
            Policy::LoseCall => log(self, None),
            Policy::Answer(result) => {
                log(self, None);
                self.tell(host, Input::StoreAnswered { call, result });
            }
            Policy::AppliedBut(error) => {
                let result = self.apply(&request);
                log(self, Some(result));
                self.tell(host, Input::StoreAnswered { call, result: Err(error) });
            }
            Policy::Delay(by) => {
                log(self, None);
                held.due = Some(self.now + by);
                self.store.held.push(held);
            }
        }
    }

    fn apply(&mut self, request: &StoreRequest) -> StoreResult {
        let now = self.store_now();
        let (result, hints) = apply_with_hints(&mut self.state, now, request);
        if let Some(key) = key_of(request)
            && !self.keys.contains(key)
        {
            self.keys.push(key.clone());
        }
        if self.hints {
            for event in hints {
                for at in 0..self.seats.len() {
                    if self.seats[at].watches.iter().any(|scope| scope.covers(&event)) {
                        let run = self.seats[at].run;
                        let input = Input::StoreHinted(event.clone());
                        self.queue.push_back(Happening::Input(at, run, input));
                    }
                }
            }
        }
        result
    }

    /// Calls that wait: host and operation.
    pub fn held_calls(&self) -> Vec<(usize, &'static str)> {
        self.store.held.iter().map(|held| (held.host, held.request.name())).collect()
    }

    #[track_caller]
    fn take_held(&mut self, host: usize, name: &str) -> HeldCall {
        let found = self.store.held.iter().position(|it| it.host == host && it.request.name() == name);
        let Some(found) = found else {
            panic!("no {name} of host {host} waits, only {:?}", self.held_calls());
        };
        self.store.held.remove(found)
    }

    /// The oldest waiting call of this name is applied now, unless it was, and answered.
    #[track_caller]
    pub fn release_store(&mut self, host: usize, name: &str) {
        let held = self.take_held(host, name);
        self.finish_held(held);
        self.settle();
    }

    fn finish_held(&mut self, held: HeldCall) {
        let result = held.answer.unwrap_or_else(|| {
            let result = self.apply(&held.request);
            let at = self.now;
            let (host, request) = (held.host, held.request.clone());
            self.store.log.push(StoreUse { host, at, request, result: Some(result.clone()) });
            result
        });
        let input = Input::StoreAnswered { call: held.call, result };
        self.queue.push_back(Happening::Input(held.host, held.run, input));
    }

    /// The oldest waiting call of this name is applied now, and its answer is lost.
    #[track_caller]
    pub fn apply_held(&mut self, host: usize, name: &str) -> StoreResult {
        let held = self.take_held(host, name);
        assert!(held.answer.is_none(), "{name} was applied already");
        let result = self.apply(&held.request);
        self.settle();
        result
    }

    /// The oldest waiting call of this name is never answered.
    #[track_caller]
    pub fn drop_store(&mut self, host: usize, name: &str) {
        self.take_held(host, name);
    }

    pub(super) fn release_delayed(&mut self) {
        let now = self.now;
        while let Some(at) = self.store.held.iter().position(|held| held.due.is_some_and(|due| due <= now)) {
            let held = self.store.held.remove(at);
            self.finish_held(held);
        }
    }

    /// The row of a key, read past every rule.
    pub fn row(&mut self, key: &ObjectKey) -> Option<AuthorityView> {
        let now = self.store_now();
        match apply(&mut self.state, now, &ReadAuthority { key: key.clone() }.into()) {
            Ok(StoreReply::Authority(read)) => read.found().cloned(),
            other => panic!("read_authority: {other:?}"),
        }
    }

    /// A call made by the test itself.
    pub fn ask_store(&mut self, request: impl Into<StoreRequest>) -> StoreResult {
        let result = self.apply(&request.into());
        self.settle();
        result
    }

    /// Calls of this name by this host, oldest first.
    pub fn store_uses(&self, host: usize, name: &str) -> Vec<&StoreUse> {
        self.store.log.iter().filter(|it| it.host == host && it.request.name() == name).collect()
    }

    /// Calls of this name by anybody.
    pub fn all_store_uses(&self, name: &str) -> Vec<&StoreUse> {
        self.store.log.iter().filter(|it| it.request.name() == name).collect()
    }

    /// Calls by this host that can change the Store, in the order they were made.
    pub fn changing_uses(&self, host: usize) -> Vec<&StoreUse> {
        self.store.log.iter().filter(|it| it.host == host && it.request.mutates()).collect()
    }

    /// Calls of any name by this host.
    pub fn store_use_count(&self, host: usize) -> usize {
        self.store.log.iter().filter(|it| it.host == host).count()
    }

    /// (active, reserved) Actors of a node's lifecycle.
    pub fn actors_of(&self, node: &NodeFence) -> (u64, u64) {
        let used = self.state.node_use(node);
        (used.actors.active, used.actors.reserved)
    }
}

fn key_of(request: &StoreRequest) -> Option<&ObjectKey> {
    match request {
        StoreRequest::Reserve(reserve) => Some(&reserve.key),
        _ => None,
    }
}
