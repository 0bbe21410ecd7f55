//! Coordinators inside the host (CREATE-26..55).

use crate::creation::{
    AnswerRoute, Coordinator, CoordinatorContext, CoordinatorEffect, CoordinatorEvent, CreateSpec,
};
use crate::event::Event;
use crate::host::store_calls::StoreUse;
use crate::host::{Host, TimerKey, planted};
use crate::input::{CallId, CreateActor, StoreCallId};
use crate::link::LinkId;
use crate::mesh::{Choice, choose};
use crate::model::limits::{CREATION_REQUEST_MAX, call_timeout};
use crate::model::{
    Error, ErrorKind, LifecycleGeneration, NodeFence, ObjectKey, ObjectKind, ObjectRole, OperationId,
    OperationIdentity, Rid,
};
use crate::output::{Answer, Output};
use crate::store::{ReservationFence, StoreReply, StoreResult, WatchScope};
use crate::wire::{CreateOrder, Message};

impl Host {
    pub(in crate::host) fn create_called(&mut self, call: CallId, create: CreateActor) {
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

    pub(in crate::host) fn coordinator_event(&mut self, operation: OperationId, event: CoordinatorEvent) {
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
            Choice::Node(chosen) => CoordinatorEvent::Chosen(NodeFence {
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
            // CREATE-49: the lifecycle may have ended while its reservation was on its way back.
            None if !self.lifecycle_lives(&order.fence.target) => {
                self.coordinator_event(operation, CoordinatorEvent::LifecycleEnded);
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

    pub(in crate::host) fn create_deadline(&mut self, operation: OperationId) {
        self.coordinator_event(operation, CoordinatorEvent::DeadlineFired);
    }

    pub(in crate::host) fn create_backoff(&mut self, operation: OperationId) {
        self.coordinator_event(operation, CoordinatorEvent::BackoffFired);
    }

    pub(in crate::host) fn create_dropped(&mut self, operation: OperationId) {
        self.coordinator_event(operation, CoordinatorEvent::CallDropped);
    }

    pub(in crate::host) fn create_store_answered(
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

    pub(in crate::host) fn key_hinted(&mut self, key: &ObjectKey) {
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

    pub(in crate::host) fn route_ready(&mut self, rid: &Rid) {
        self.tell_coordinators(
            |coordinator| coordinator.target().is_some_and(|target| target.rid == *rid),
            &CoordinatorEvent::RouteReady,
        );
    }

    pub(in crate::host) fn order_link_lost(&mut self, link: LinkId) {
        self.tell_coordinators(
            |coordinator| coordinator.order_link() == Some(link),
            &CoordinatorEvent::LinkLost(link),
        );
        for attempt in self.attempts.values_mut() {
            attempt.routes.retain(|route| !matches!(route, AnswerRoute::Remote(on, _) if *on == link));
        }
    }

    fn lifecycle_lives(&self, target: &NodeFence) -> bool {
        let mut nodes = self.nodes.iter().filter(|node| node.local.mesh == target.mesh);
        nodes.any(|node| node.peers().lives(&target.rid, target.lifecycle))
    }

    pub(in crate::host) fn lifecycle_ended(&mut self, rid: &Rid, lifecycle: LifecycleGeneration) {
        self.tell_coordinators(
            |coordinator| {
                coordinator.target().is_some_and(|target| target.rid == *rid && target.lifecycle == lifecycle)
            },
            &CoordinatorEvent::LifecycleEnded,
        );
    }

    /// The host ends, and with it the call (HOST-54).
    pub(in crate::host) fn end_create(&mut self, operation: OperationId, kind: ErrorKind) {
        self.finish_create(operation, Some(Answer::Failed(Error::new(kind, "create", "the host ended"))));
    }
}
