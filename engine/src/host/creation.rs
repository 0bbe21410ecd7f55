//! Creation inside the host: coordinators, attempts and recovery, and what passes between them.

use bytes::Bytes;

use super::object::{Object, Running};
use super::store_calls::StoreUse;
use super::{Host, TimerKey, planted};
use crate::creation::{
    AnswerRoute, Attempt, AttemptContext, AttemptEffect, AttemptEvent, Coordinator, CoordinatorContext,
    CoordinatorEffect, CoordinatorEvent, CreateSpec, RecoveryEffect, RecoveryEvent,
};
use crate::event::Event;
use crate::input::{CallId, CreateActor, InstanceId, StoreCallId, TurnEnd};
use crate::link::LinkId;
use crate::mark::Mark;
use crate::mesh::{Choice, choose};
use crate::model::limits::{CREATION_REQUEST_MAX, TERMINAL_RETENTION, call_timeout};
use crate::model::{
    Error, ErrorKind, LifecycleGeneration, ObjectKey, ObjectKind, ObjectRole, OperationId, OperationIdentity,
    ReservationId, Rid,
};
use crate::output::{Answer, Output, Turn, Work};
use crate::store::{AuthorityView, ReservationFence, StoreReply, StoreResult, WatchScope};
use crate::wire::{CreateAnswer, CreateOrder, CreateVerdict, Message};

impl Host {
    pub(super) fn create_called(&mut self, call: CallId, create: CreateActor) {
        match self.begin_create(call, create) {
            Ok(operation) => self.coordinator_event(operation, CoordinatorEvent::Submitted),
            Err(error) => self.answer(call, Answer::Failed(error)),
        }
    }

    fn begin_create(&mut self, call: CallId, create: CreateActor) -> Result<OperationId, Error> {
        let invalid = |text: String| Error::new(ErrorKind::InvalidOperation, "create", text);
        if create.request.len() > CREATION_REQUEST_MAX {
            let found = create.request.len();
            return Err(invalid(format!("expected at most {CREATION_REQUEST_MAX} bytes, found {found}"))); // CREATE-11
        }
        let timeout = call_timeout(create.timeout).ok_or_else(|| {
            invalid(format!("timeout: expected 1 ms..2^31-1 ms, found {:?}", create.timeout))
        })?;
        self.check_admission("create")?;
        let node = self.choose_mesh(create.mesh.as_ref())?;
        let local = &self.nodes[usize::from(node.0)].local;
        let (source_rid, source_lifecycle) = (local.rid.clone(), local.lifecycle);
        let operation = OperationId::random(&mut self.entropy);
        let deadline = self.now + timeout;
        let spec = CreateSpec {
            key: ObjectKey::Actor(create.id),
            kind: ObjectKind::Actor,
            stable_type: create.stable_type,
            mode: create.mode,
            request: create.request,
        };
        let identity = OperationIdentity { source_rid, source_lifecycle, operation };
        self.coordinators.insert(operation, Coordinator::new(identity, call, node, spec, deadline));
        self.create_calls.insert(call, operation);
        self.timers.set(TimerKey::Create(operation), deadline);
        Ok(operation)
    }

    pub(super) fn coordinator_event(&mut self, operation: OperationId, event: CoordinatorEvent) {
        let Some(mut coordinator) = self.coordinators.remove(&operation) else { return };
        let mut effects = Vec::new();
        let (planted_retarget, planted_hints_only) =
            (planted!(self, RetargetsLostOrder), planted!(self, WaitsForHintsOnly));
        let planted_rejected_existing = planted!(self, ReportsRejectedAsExisting);
        let planted_creating_existing = planted!(self, ReportsCreatingAsExisting);
        let mut context = CoordinatorContext {
            now: self.now,
            lease: self.lease.lease().filter(|_| self.lease.admits(self.now)),
            draining: self.shutdown.is_some(),
            // Adoption needs two sightings, at least 80 % of an interval apart; half of one leaves room for
            // clocks that run at different rates.
            adopted_after: self.config.settings.recovery_scan_interval / 2,
            planted_retarget,
            planted_hints_only,
            planted_rejected_existing,
            planted_creating_existing,
            entropy: &mut self.entropy,
        };
        coordinator.on(event, &mut context, &mut effects);
        self.coordinators.insert(operation, coordinator);
        for effect in effects {
            self.coordinator_effect(operation, effect);
        }
    }

    fn coordinator_effect(&mut self, operation: OperationId, effect: CoordinatorEffect) {
        match effect {
            CoordinatorEffect::Call(request) => {
                // One call at a time: neither an old wait nor an old answer may speak for this one.
                self.timers.cancel(&TimerKey::CreateBackoff(operation));
                let call = self.call_store(StoreUse::Create(operation), request);
                if let Some(coordinator) = self.coordinators.get_mut(&operation) {
                    coordinator.store_call = Some(call);
                }
            }
            CoordinatorEffect::CallForgotten(request) => {
                self.call_store(StoreUse::Nobody, request);
            }
            CoordinatorEffect::Choose => {
                let event = self.choose_candidate(operation);
                self.coordinator_event(operation, event);
            }
            CoordinatorEffect::Dispatch(fence) => {
                self.timers.cancel(&TimerKey::CreateBackoff(operation));
                self.dispatch_order(operation, *fence);
            }
            CoordinatorEffect::SetBackoff(at) => self.timers.set(TimerKey::CreateBackoff(operation), at),
            CoordinatorEffect::Watch => self.watch(operation),
            CoordinatorEffect::Finish(answer) => self.finish_create(operation, answer),
            CoordinatorEffect::ReservationFailed(reason) => {
                if let Some(coordinator) = self.coordinators.get(&operation) {
                    let key = coordinator.spec.key.clone();
                    self.record(Event::ReservationFailed { key, reason });
                }
            }
            CoordinatorEffect::Mark(mark) => self.mark(mark),
        }
    }

    /// NODE-50..53: the listing of the chosen Mesh, this node included, remote ones only while ready.
    fn choose_candidate(&mut self, operation: OperationId) -> CoordinatorEvent {
        let draw = self.entropy.next_u64();
        let Some(coordinator) = self.coordinators.get(&operation) else {
            return CoordinatorEvent::NobodyFits;
        };
        let node = &self.nodes[usize::from(coordinator.node.0)];
        let Some(listing) = &node.listing else { return CoordinatorEvent::NobodyFits };
        let ready = |rid: &Rid, lifecycle: LifecycleGeneration| {
            node.peers().ready(rid).is_some_and(|(_, found)| found == lifecycle)
        };
        let own = (node.local.role == ObjectRole::Server).then_some(&node.local.rid);
        let spec = &coordinator.spec;
        match choose(listing, spec.kind, &spec.stable_type, ready, own, &coordinator.excluded, draw) {
            Choice::Node(chosen) => CoordinatorEvent::Chosen(crate::model::NodeFence {
                mesh: chosen.descriptor.mesh.clone(),
                rid: chosen.descriptor.rid.clone(),
                lifecycle: chosen.descriptor.lifecycle,
                lease: chosen.lease,
            }),
            Choice::NobodyHasType => CoordinatorEvent::NobodyHasType,
            Choice::NobodyFits => CoordinatorEvent::NobodyFits,
        }
    }

    fn dispatch_order(&mut self, operation: OperationId, fence: ReservationFence) {
        let Some(coordinator) = self.coordinators.get(&operation) else { return };
        let order = CreateOrder {
            operation: coordinator.operation.clone(),
            key: fence.key.clone(),
            kind: coordinator.spec.kind,
            stable_type: coordinator.spec.stable_type.clone(),
            remaining: coordinator.deadline.since(self.now),
            fence,
        };
        if self.own_node(&order.fence.target.rid, order.fence.target.lifecycle).is_some() {
            self.coordinator_event(operation, CoordinatorEvent::OrderAdmitted(None));
            self.order_arrived(AnswerRoute::Local(operation), order);
            return;
        }
        match self.ready_link(&order.fence.target) {
            Some((_, link)) => {
                self.send(link, &Message::CreateOrder(Box::new(order)), None);
                self.coordinator_event(operation, CoordinatorEvent::OrderAdmitted(Some(link)));
            }
            None => self.coordinator_event(operation, CoordinatorEvent::NoRoute),
        }
    }

    fn watch(&mut self, operation: OperationId) {
        let Some(coordinator) = self.coordinators.get(&operation) else { return };
        let key = coordinator.spec.key.clone();
        let watchers = self.watchers.entry(key.clone()).or_default();
        if watchers.is_empty() {
            self.outputs.push_back(Output::Watch(WatchScope::Authority(key)));
        }
        watchers.insert(operation);
    }

    fn finish_create(&mut self, operation: OperationId, answer: Option<Answer>) {
        let Some(coordinator) = self.coordinators.remove(&operation) else { return };
        self.timers.cancel(&TimerKey::Create(operation));
        self.timers.cancel(&TimerKey::CreateBackoff(operation));
        self.create_calls.remove(&coordinator.call);
        let key = coordinator.spec.key;
        if let Some(watchers) = self.watchers.get_mut(&key) {
            watchers.remove(&operation);
            if watchers.is_empty() {
                self.watchers.remove(&key);
                self.outputs.push_back(Output::Unwatch(WatchScope::Authority(key)));
            }
        }
        if let Some(answer) = answer {
            self.answer(coordinator.call, answer);
        }
    }

    pub(super) fn create_deadline(&mut self, operation: OperationId) {
        self.coordinator_event(operation, CoordinatorEvent::DeadlineFired);
    }

    pub(super) fn create_backoff(&mut self, operation: OperationId) {
        self.coordinator_event(operation, CoordinatorEvent::BackoffFired);
    }

    pub(super) fn create_dropped(&mut self, operation: OperationId) {
        self.coordinator_event(operation, CoordinatorEvent::CallDropped);
    }

    pub(super) fn create_store_answered(
        &mut self,
        operation: OperationId,
        call: StoreCallId,
        result: StoreResult,
    ) {
        match self.coordinators.get_mut(&operation) {
            Some(coordinator) if coordinator.store_call == Some(call) => coordinator.store_call = None,
            _ => return,
        }
        if let Ok(StoreReply::Creation(view)) = &result {
            self.routes.saw(&view.authority);
        }
        self.coordinator_event(operation, CoordinatorEvent::StoreAnswered(result));
    }

    pub(super) fn key_hinted(&mut self, key: &ObjectKey) {
        for operation in self.watchers.get(key).cloned().unwrap_or_default() {
            self.coordinator_event(operation, CoordinatorEvent::Hinted);
        }
    }

    /// Tells every coordinator that `concerns` answers for. Creations in flight are few beside objects.
    fn tell_coordinators(&mut self, concerns: impl Fn(&Coordinator) -> bool, event: &CoordinatorEvent) {
        let concerned: Vec<_> = self
            .coordinators
            .iter()
            .filter(|(_, coordinator)| concerns(coordinator))
            .map(|(operation, _)| *operation)
            .collect();
        for operation in concerned {
            self.coordinator_event(operation, event.clone());
        }
    }

    pub(super) fn route_ready(&mut self, rid: &Rid) {
        self.tell_coordinators(
            |coordinator| coordinator.target().is_some_and(|target| target.rid == *rid),
            &CoordinatorEvent::RouteReady,
        );
    }

    pub(super) fn order_link_lost(&mut self, link: LinkId) {
        self.tell_coordinators(
            |coordinator| coordinator.order_link() == Some(link),
            &CoordinatorEvent::LinkLost(link),
        );
        for attempt in self.attempts.values_mut() {
            attempt.routes.retain(|route| !matches!(route, AnswerRoute::Remote(on, _) if *on == link));
        }
    }

    pub(super) fn lifecycle_ended(&mut self, rid: &Rid, lifecycle: LifecycleGeneration) {
        self.tell_coordinators(
            |coordinator| {
                coordinator.target().is_some_and(|target| target.rid == *rid && target.lifecycle == lifecycle)
            },
            &CoordinatorEvent::LifecycleEnded,
        );
    }

    /// The host ends, and with it the call (HOST-54).
    pub(super) fn end_create(&mut self, operation: OperationId, kind: ErrorKind) {
        self.finish_create(operation, Some(Answer::Failed(Error::new(kind, "create", "the host ended"))));
    }

    // ---- target ----

    /// An order arrived, from a peer or from a coordinator of this host (CREATE-56, -58).
    pub(super) fn order_arrived(&mut self, route: AnswerRoute, order: CreateOrder) {
        let Some(node) = self.own_node(&order.fence.target.rid, order.fence.target.lifecycle) else {
            return self.answer_order(
                route,
                &order.fence,
                &order.operation,
                CreateVerdict::Unavailable,
                None,
            );
        };
        if self.shutdown_is_releasing() {
            return self.answer_order(
                route,
                &order.fence,
                &order.operation,
                CreateVerdict::Unavailable,
                None,
            );
        }
        let reservation = order.fence.reservation;
        let twice = planted!(self, RunsOrderTwice);
        if let Some(attempt) = self.attempts.get_mut(&reservation)
            && !twice
        {
            if attempt.fence == order.fence && attempt.operation == order.operation {
                attempt.routes.push(route); // CREATE-58, CREATE-94
                self.mark(Mark::AttemptJoined);
            } else {
                self.mark(Mark::AttemptStaleFence);
                self.answer_order(route, &order.fence, &order.operation, CreateVerdict::Unavailable, None);
            }
            return;
        }
        let CreateOrder { operation, kind, stable_type, fence, .. } = order;
        self.begin_attempt(Attempt::new(fence, operation, kind, stable_type, node, Some(route)));
    }

    fn begin_attempt(&mut self, attempt: Attempt) {
        let reservation = attempt.fence.reservation;
        self.attempts_by_key.entry(attempt.fence.key.clone()).or_default().insert(reservation);
        self.attempts.insert(reservation, attempt);
        self.attempt_event(reservation, AttemptEvent::Started);
    }

    fn attempt_event(&mut self, reservation: ReservationId, event: AttemptEvent) {
        let Some(mut attempt) = self.attempts.remove(&reservation) else { return };
        let mut effects = Vec::new();
        let (guesses_failed, guesses_succeeded) =
            (planted!(self, GuessesCommitFailed), planted!(self, GuessesCommitSucceeded));
        let keeps_discarded = planted!(self, KeepsDiscardedInstance);
        let node = &self.nodes[usize::from(attempt.node.0)];
        let context = AttemptContext {
            now: self.now,
            lease: self.lease.lease(),
            admits: self.admits_work(),
            entry_spot: node.entry_spot.as_ref(),
            guesses_failed,
            guesses_succeeded,
            keeps_discarded,
        };
        attempt.on(event, &context, &mut effects);
        self.attempts.insert(reservation, attempt);
        for effect in effects {
            self.attempt_effect(reservation, effect);
        }
    }

    fn attempt_effect(&mut self, reservation: ReservationId, effect: AttemptEffect) {
        match effect {
            AttemptEffect::Call(request) => {
                self.timers.cancel(&TimerKey::AttemptBackoff(reservation));
                let call = self.call_store(StoreUse::Attempt(reservation), request);
                if let Some(attempt) = self.attempts.get_mut(&reservation) {
                    attempt.store_call = Some(call);
                }
            }
            AttemptEffect::Admit => self.admit_attempt(reservation),
            AttemptEffect::Run { request, remaining } => self.run_attempt(reservation, request, remaining),
            AttemptEffect::Abandon(turn) => {
                self.turns.remove(&turn);
                self.outputs.push_back(Output::AbandonTurn(turn));
            }
            AttemptEffect::SetDeadline(at) => self.timers.set(TimerKey::Attempt(reservation), at),
            AttemptEffect::SetBackoff(at) => self.timers.set(TimerKey::AttemptBackoff(reservation), at),
            AttemptEffect::Open(instance) => self.open(reservation, instance),
            AttemptEffect::Dispose(instance) => self.outputs.push_back(Output::DropInstance(instance)),
            AttemptEffect::Answer(verdict, reply) => self.attempt_ended(reservation, verdict, reply),
            AttemptEffect::Mark(mark) => self.mark(mark),
        }
    }

    /// CREATE-20, CREATE-62: accepted only while fewer than the limit run.
    fn admit_attempt(&mut self, reservation: ReservationId) {
        let Some(attempt) = self.attempts.get(&reservation) else { return };
        let at = usize::from(attempt.node.0);
        let limit = self.config.nodes[at].pending_activation_limit;
        if self.nodes[at].pending_activations >= limit {
            self.refused.retain(|_, refused| self.now < *refused + TERMINAL_RETENTION);
            self.refused.insert(reservation, self.now);
            return self.attempt_event(reservation, AttemptEvent::AtLimit);
        }
        self.nodes[at].pending_activations += 1;
        if let Some(attempt) = self.attempts.get_mut(&reservation) {
            attempt.accepted = true;
        }
    }

    /// CREATE-64; the lease is checked immediately before the turn (STORE-35).
    fn run_attempt(&mut self, reservation: ReservationId, request: Bytes, remaining: std::time::Duration) {
        if !self.admits_work() {
            self.mark(Mark::TurnHeldBack);
            // The content is read again when the backoff fires; the attempt's deadline goes on.
            self.timers.set(
                TimerKey::AttemptBackoff(reservation),
                self.now + crate::model::limits::WAITER_BACKOFF_FIRST,
            );
            return;
        }
        let (turn, instance) = (self.fresh_turn(), self.fresh_instance());
        let Some(attempt) = self.attempts.get(&reservation) else { return };
        let start = Turn {
            turn,
            instance,
            node: attempt.node,
            key: attempt.fence.key.clone(),
            stable_type: attempt.stable_type.clone(),
            object_generation: attempt.fence.object_generation,
            owner_generation: attempt.fence.owner_generation,
            work: Work::Create { request, remaining },
        };
        self.turns.insert(turn, Running::Create(reservation));
        self.outputs.push_back(Output::StartTurn(Box::new(start)));
        self.attempt_event(reservation, AttemptEvent::Running(instance, turn));
        if planted!(self, OpensBeforeCommit)
            && let Some(attempt) = self.attempts.get(&reservation)
        {
            let object = Object::new(attempt, instance);
            self.objects.insert(object);
        }
    }

    pub(super) fn create_turn_ended(&mut self, reservation: ReservationId, end: TurnEnd) {
        self.attempt_event(reservation, AttemptEvent::TurnEnded(end));
    }

    pub(super) fn attempt_deadline(&mut self, reservation: ReservationId) {
        self.attempt_event(reservation, AttemptEvent::DeadlineFired);
    }

    pub(super) fn attempt_backoff(&mut self, reservation: ReservationId) {
        self.attempt_event(reservation, AttemptEvent::BackoffFired);
    }

    pub(super) fn attempt_store_answered(
        &mut self,
        reservation: ReservationId,
        call: StoreCallId,
        result: StoreResult,
    ) {
        match self.attempts.get_mut(&reservation) {
            Some(attempt) if attempt.store_call == Some(call) => attempt.store_call = None,
            _ => return,
        }
        self.attempt_event(reservation, AttemptEvent::StoreAnswered(result));
    }

    /// CREATE-70: route first, then admission, in one step.
    fn open(&mut self, reservation: ReservationId, instance: InstanceId) {
        let Some(attempt) = self.attempts.get(&reservation) else { return };
        let object = Object::new(attempt, instance);
        let (key, object_generation) = (attempt.fence.key.clone(), attempt.fence.object_generation);
        self.objects.insert(object);
        self.record(Event::ObjectReady { key: key.clone(), object_generation });
        for job in self.held.remove(&key).unwrap_or_default() {
            self.enqueue(&key, job);
        }
    }

    fn attempt_ended(&mut self, reservation: ReservationId, verdict: CreateVerdict, reply: Option<Bytes>) {
        let Some(attempt) = self.attempts.remove(&reservation) else { return };
        self.timers.cancel(&TimerKey::Attempt(reservation));
        self.timers.cancel(&TimerKey::AttemptBackoff(reservation));
        let key = attempt.fence.key.clone();
        if let Some(reservations) = self.attempts_by_key.get_mut(&key) {
            reservations.remove(&reservation);
            if reservations.is_empty() {
                self.attempts_by_key.remove(&key);
            }
        }
        if attempt.accepted && !planted!(self, LeaksActivation) {
            self.nodes[usize::from(attempt.node.0)].pending_activations -= 1;
        }
        let object_generation = attempt.fence.object_generation;
        match verdict {
            CreateVerdict::Rejected { .. } if attempt.accepted => {
                self.record(Event::CreationEnded { key: key.clone(), object_generation, failed: None });
            }
            CreateVerdict::Failed(kind) if attempt.accepted => {
                self.record(Event::CreationEnded { key: key.clone(), object_generation, failed: Some(kind) });
            }
            _ => {}
        }
        if !self.is_committing(&key) {
            for job in self.held.remove(&key).unwrap_or_default() {
                self.end_job(&key, job, Err(ErrorKind::Unavailable));
            }
        }
        self.answer_routes(attempt, verdict, reply);
        self.shutdown_progress();
    }

    /// CREATE-74: once per attached route.
    pub(super) fn answer_routes(&mut self, attempt: Attempt, verdict: CreateVerdict, reply: Option<Bytes>) {
        for route in attempt.routes {
            self.answer_order(route, &attempt.fence, &attempt.operation, verdict, reply.clone());
        }
    }

    /// Whether an attempt of the key may become Ready here any moment.
    pub(super) fn is_committing(&self, key: &ObjectKey) -> bool {
        self.attempts_by_key.get(key).is_some_and(|reservations| {
            reservations.iter().any(|it| self.attempts.get(it).is_some_and(Attempt::is_committing))
        })
    }

    fn answer_order(
        &mut self,
        route: AnswerRoute,
        fence: &ReservationFence,
        operation: &OperationIdentity,
        verdict: CreateVerdict,
        reply: Option<Bytes>,
    ) {
        match route {
            AnswerRoute::Local(operation) => {
                let event = CoordinatorEvent::Answered(fence.reservation, verdict, reply);
                self.coordinator_event(operation, event);
            }
            AnswerRoute::Remote(link, _) if !self.links.contains_key(&link) => {}
            AnswerRoute::Remote(link, _) => {
                let answer =
                    CreateAnswer { operation: operation.clone(), reservation: fence.reservation, verdict };
                self.send(link, &Message::CreateAnswer(Box::new(answer)), reply);
            }
        }
    }

    /// A peer answered an order; only the answer on the link of the order counts.
    pub(super) fn order_answered(&mut self, link: LinkId, answer: &CreateAnswer, body: Option<Bytes>) {
        let operation = answer.operation.operation;
        let expected = self.coordinators.get(&operation).is_some_and(|coordinator| {
            coordinator.operation == answer.operation && coordinator.order_link() == Some(link)
        });
        if expected {
            let event = CoordinatorEvent::Answered(answer.reservation, answer.verdict, body);
            self.coordinator_event(operation, event);
        }
    }

    // ---- recovery ----

    pub(super) fn recovery_event(&mut self, event: RecoveryEvent) {
        let mut effects = Vec::new();
        let lease = self.lease.lease().filter(|_| self.lease.admits(self.now));
        self.recovery.on(event, self.now, lease, &mut self.entropy, &mut effects);
        for effect in effects {
            match effect {
                RecoveryEffect::Call(request) => {
                    self.call_store(StoreUse::Recovery, request);
                }
                RecoveryEffect::SetTimer(at) => self.timers.set(TimerKey::Recovery, at),
                RecoveryEffect::Adopt(row) => self.adopt(&row),
                RecoveryEffect::Mark(mark) => self.mark(mark),
            }
        }
    }

    pub(super) fn recovery_timer(&mut self) {
        self.recovery_event(RecoveryEvent::TimerFired);
    }

    pub(super) fn recovery_answered(&mut self, result: StoreResult) {
        self.recovery_event(RecoveryEvent::StoreAnswered(result));
    }

    /// CREATE-93: as if the order had arrived.
    fn adopt(&mut self, row: &AuthorityView) {
        let (Some(fence), Some(pending)) = (row.reservation_fence(), row.pending()) else { return };
        let Some(node) = self.own_node(&row.owner.rid, row.owner.lifecycle) else { return };
        if self.attempts.contains_key(&fence.reservation) {
            return;
        }
        let operation = pending.operation.clone();
        let mut attempt = Attempt::new(fence, operation, row.kind, row.stable_type.clone(), node, None);
        // What was refused here before execution is ended by the same word, never taken up after all.
        attempt.refused = self.refused.remove(&attempt.fence.reservation).is_some();
        if !attempt.refused {
            self.mark(Mark::AttemptAdopted);
        }
        self.begin_attempt(attempt);
    }
}
