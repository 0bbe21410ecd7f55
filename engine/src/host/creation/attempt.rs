//! Attempts at this host as their target (CREATE-56..80).

use bytes::Bytes;

use crate::creation::{AnswerRoute, Attempt, AttemptContext, AttemptEffect, AttemptEvent, CoordinatorEvent};
use crate::event::Event;
use crate::host::object::{Object, Running};
use crate::host::store_calls::StoreUse;
use crate::host::{Host, TimerKey, planted};
use crate::input::{InstanceId, StoreCallId, TurnEnd};
use crate::link::LinkId;
use crate::mark::Mark;
use crate::model::limits::TERMINAL_RETENTION;
use crate::model::{ErrorKind, HostState, ObjectKey, OperationIdentity, ReservationId};
use crate::output::{Output, Turn, Work};
use crate::store::{ReservationFence, StoreResult};
use crate::wire::{CreateAnswer, CreateOrder, CreateVerdict, Message};

impl Host {
    /// An order arrived, from a peer or from a coordinator of this host (CREATE-56, -58).
    pub(in crate::host) fn order_arrived(&mut self, route: AnswerRoute, order: CreateOrder) {
        let Some(node) = self.own_node(&order.fence.target.rid, order.fence.target.lifecycle) else {
            return self.answer_order(
                route,
                &order.fence,
                &order.operation,
                CreateVerdict::Unavailable,
                None,
            );
        };
        if self.shutdown_is_releasing() || self.startup.is_undoing() || self.state == HostState::Error {
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

    pub(super) fn begin_attempt(&mut self, attempt: Attempt) {
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
        let node = &self.nodes[usize::from(attempt.node.0)];
        let context = AttemptContext {
            now: self.now,
            lease: self.lease.lease(),
            admits: self.admits_work(),
            entry_spot: node.entry_spot.as_ref(),
            guesses_failed,
            guesses_succeeded,
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

    pub(in crate::host) fn create_turn_ended(&mut self, reservation: ReservationId, end: TurnEnd) {
        self.attempt_event(reservation, AttemptEvent::TurnEnded(end));
    }

    pub(in crate::host) fn attempt_deadline(&mut self, reservation: ReservationId) {
        self.attempt_event(reservation, AttemptEvent::DeadlineFired);
    }

    pub(in crate::host) fn attempt_backoff(&mut self, reservation: ReservationId) {
        self.attempt_event(reservation, AttemptEvent::BackoffFired);
    }

    pub(in crate::host) fn attempt_store_answered(
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
    pub(in crate::host) fn answer_routes(
        &mut self,
        attempt: Attempt,
        verdict: CreateVerdict,
        reply: Option<Bytes>,
    ) {
        for route in attempt.routes {
            self.answer_order(route, &attempt.fence, &attempt.operation, verdict, reply.clone());
        }
    }

    /// Whether an attempt of the key may become Ready here any moment.
    pub(in crate::host) fn is_committing(&self, key: &ObjectKey) -> bool {
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
    pub(in crate::host) fn order_answered(
        &mut self,
        link: LinkId,
        answer: &CreateAnswer,
        body: Option<Bytes>,
    ) {
        let operation = answer.operation.operation;
        let expected = self.coordinators.get(&operation).is_some_and(|coordinator| {
            coordinator.operation == answer.operation && coordinator.order_link() == Some(link)
        });
        if expected {
            let event = CoordinatorEvent::Answered(answer.reservation, answer.verdict, body);
            self.coordinator_event(operation, event);
        }
    }
}
