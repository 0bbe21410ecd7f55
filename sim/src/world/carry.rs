//! Carrying out what a host wants done.

use spotmesh::event::Event;
use spotmesh::input::Input;
use spotmesh::link::{Lane, Record};
use spotmesh::model::{ErrorKind, HostState};
use spotmesh::output::{Answer, Output, Turn, Work};
use spotmesh::wire;

use super::app::{Job, Step};
use super::{Happening, Point, World};
use crate::agenda::micros;
use crate::draw::noise_between;
use crate::oracle::calls::Asked;
use crate::oracle::hosts;
use crate::place::{NodeOf, RunOf};
use crate::script::{self, CounterReply, Uid, Verdict};

impl World {
    pub(super) fn carry(&mut self, run: RunOf, output: Output) {
        match output {
            Output::Bind(node) => {
                let delay = micros(noise_between(self.run.seed, 0xb14d, self.inputs, 50, 500));
                self.agenda.after(delay, Happening::Bound(run, node));
            }
            Output::Unbind(node) => self.net.unbind(NodeOf { run, node }),
            Output::Dial { node, dial, target } => {
                self.net.dial(&mut self.agenda, NodeOf { run, node }, dial, &target.endpoint);
            }
            Output::DropDial(dial) => self.net.drop_dial(run, dial),
            Output::Send { link, lane, record } => {
                self.judge_send(run, link, lane, &record);
                self.net.send(&mut self.agenda, run, link, lane, record);
            }
            Output::CloseLink(link) => self.net.close(&mut self.agenda, run, link),
            Output::CallStore { call, request, timeout: _ } => {
                self.store.call(&mut self.agenda, run, call, *request);
            }
            Output::Watch(scope) => self.store.watch(run, scope, true),
            Output::Unwatch(scope) => self.store.watch(run, scope, false),
            Output::StartTurn(turn) => self.start_turn(run, &turn),
            Output::AbandonTurn(turn) => {
                self.oracles.turns.abandoned(run, turn);
                self.oracles.hosts.ended(run, turn);
                let app = &mut self.seat_mut(run.seat).app;
                let waiting: Vec<_> = app
                    .waiting
                    .iter()
                    .filter(|(_, waiter)| **waiter == turn)
                    .map(|(call, _)| *call)
                    .collect();
                app.abandon(turn);
                // A dropped future takes the calls it waits for with it.
                for uid in waiting.into_iter().filter_map(|call| self.oracles.calls.uid_of(run, call)) {
                    self.agenda.after(0, Happening::Cancel(run, uid));
                }
            }
            Output::DropInstance(instance) => {
                let now = self.stamp();
                self.oracles.turns.dropped(&mut self.oracles.verdicts, now, run, instance);
                self.seat_mut(run.seat).app.drop_instance(instance);
            }
            Output::Answer { call, answer } => self.answer(run, call, answer),
            Output::Record(event) => self.record(run, event),
        }
    }

    fn judge_send(&mut self, run: RunOf, link: spotmesh::link::LinkId, lane: Lane, record: &Record) {
        // Only application messages have a body on this lane, and the body starts with the call's number.
        let (Lane::Application, Some(body)) = (lane, &record.body) else {
            if let Ok((message, _)) = wire::decode(record) {
                self.oracles.creation.sent(&message);
            }
            return;
        };
        let Some(uid) = script::uid_of(body) else { return };
        let now = self.stamp();
        let oracles = &mut self.oracles;
        oracles.messages.sent(&mut oracles.verdicts, &oracles.calls, now, run, link, uid);
    }

    fn start_turn(&mut self, run: RunOf, turn: &Turn) {
        let now = self.stamp();
        let oracles = &mut self.oracles;
        let verdicts = &mut oracles.verdicts;
        oracles.turns.started(verdicts, now, run, turn);
        let nodes = &self.seats[usize::from(run.seat.0)].spec.nodes;
        let limit = nodes.get(usize::from(turn.node.0)).map_or(0, |node| node.pending_limit);
        oracles.hosts.started(verdicts, now, run, turn, limit);
        oracles.ownership.started(verdicts, now, run, turn, &mut self.store);
        match &turn.work {
            Work::Create { .. } => {
                let lease = oracles.ownership.lease(run);
                oracles.creation.started(verdicts, now, run, lease, turn);
            }
            Work::Message { payload, .. } => match script::uid_of(payload) {
                Some(uid) => {
                    let (calls, messages) = (&oracles.calls, &mut oracles.messages);
                    messages.started(verdicts, calls, now, run, turn, uid);
                    let since = oracles.hosts.draining_since(run);
                    if calls.get(uid).is_some_and(|call| since.is_some_and(|since| call.at > since)) {
                        let text =
                            format!("{run} runs {uid:?}, which was called after it had begun to drain");
                        verdicts.report("draining", now, text);
                    }
                }
                None => verdicts.report("messages", now, format!("{run} runs a payload nobody sent")),
            },
        }
        let step = self.seat_mut(run.seat).app.start(turn);
        match step {
            Step::After(delay) => self.agenda.after(delay, Happening::TurnStep(run, turn.turn, 0)),
            Step::HangsUntilHealed if self.healed => {
                self.agenda.after(0, Happening::TurnStep(run, turn.turn, 0));
            }
            Step::HangsUntilHealed | Step::HangsForEver => {}
        }
    }

    /// A turn goes on: it makes its nested call, or ends.
    pub(super) fn turn_step(&mut self, run: RunOf, turn: spotmesh::input::TurnId, step: u32) {
        if !self.is_current(run) {
            return;
        }
        let seat = self.seat_mut(run.seat);
        if seat.paused.is_some() {
            seat.held.push(super::Held::TurnStep(turn, step));
            return;
        }
        if seat.app.turn(turn).is_none() {
            return; // Abandoned meanwhile.
        }
        if step == 0
            && let Some((key, nested)) = seat.app.nested(turn)
        {
            let waits = nested.waits;
            self.nested_call(run, turn, key, &nested);
            if waits {
                return;
            }
        }
        let now = self.stamp();
        let Some((running, end, replied)) = self.seat_mut(run.seat).app.finish(turn) else { return };
        let approved = match &running.job {
            Job::Create(_, create) => {
                self.oracles.creation.decided(&running.key, running.object_generation, create.verdict);
                Some(create.verdict == Verdict::Accept)
            }
            Job::Handle(..) | Job::Unreadable => None,
        };
        if let Some((uid, counter)) = replied {
            self.oracles.messages.replied(uid, counter);
        }
        if matches!(running.job, Job::Unreadable) {
            self.oracles.verdicts.report("messages", now, format!("{run} runs bytes that are no script"));
        }
        self.oracles.turns.ended(run, turn, approved);
        self.oracles.hosts.ended(run, turn);
        self.feed(run, Input::TurnEnded { turn, end }, Point::TurnEnded);
    }

    fn answer(&mut self, run: RunOf, call: spotmesh::input::CallId, answer: Answer) {
        let now = self.stamp();
        let local = self.seat(run.seat).clock.read(self.agenda.now());
        let oracles = &mut self.oracles;
        let verdicts = &mut oracles.verdicts;
        let uid = oracles.calls.answered(verdicts, &oracles.rows, (now, local), (run, call), &answer);
        if let Some(call) = uid.and_then(|uid| oracles.calls.get(uid))
            && oracles.hosts.draining_since(run).is_some_and(|since| call.at > since)
            && call.asked != Asked::Shutdown
            // A call that is wrong in itself may be told so first (ERR-12).
            && !matches!(&answer, Answer::Failed(error) if matches!(error.kind(), ErrorKind::ShuttingDown | ErrorKind::InvalidOperation))
        {
            let text = format!("{run} drains and answers {:?} with {answer:?}", call.asked);
            verdicts.report("draining", now, text);
        }
        if let Some(asked) = uid.and_then(|uid| Some((uid, oracles.calls.get(uid)?.asked.clone()))) {
            match (&asked.1, &answer) {
                (Asked::Create { key, .. }, _) => {
                    oracles.creation.answered(verdicts, now, key, asked.0, &answer);
                    if let Answer::Failed(error) = &answer
                        && error.kind() == ErrorKind::DeadlineExceeded
                    {
                        let free = self
                            .store
                            .trouble_of(run.seat)
                            .max(self.seats[usize::from(run.seat.0)].resumed_at);
                        self.oracles.check_waiter(now, free, asked.0);
                    }
                }
                (Asked::Message { .. }, Answer::Replied(bytes)) => {
                    if let Some(CounterReply { uid, counter }) = CounterReply::decode(bytes) {
                        oracles.messages.answered(verdicts, now, uid, counter);
                    }
                }
                _ => {}
            }
        }
        if let Some(turn) = self.seat_mut(run.seat).app.waiting.remove(&call) {
            self.agenda.after(micros(20), Happening::TurnStep(run, turn, 1));
        }
        // A lease whose grant the host never saw cannot be named, so it cannot be released (STORE-39).
        if let Answer::ShutDown { forced: false } = answer
            && self.oracles.hosts.is_confirmed(run)
        {
            let (now, oracles) = (self.stamp(), &mut self.oracles);
            let known = (&oracles.ownership, &oracles.rows);
            hosts::check_shutdown(&mut oracles.verdicts, now, run, known, &mut self.store);
        }
        if let Answer::ShutDown { .. } = answer {
            self.shut_down(run);
        }
    }

    fn record(&mut self, run: RunOf, event: Event) {
        let now = self.stamp();
        match event {
            Event::Violation(text) => {
                self.oracles.verdicts.report("engine", now, format!("{run}: {text}"));
            }
            Event::HostState { to: HostState::Draining, .. } => self.oracles.hosts.drains(now, run),
            Event::LeaseHeld => self.oracles.hosts.confirmed(run),
            Event::MessageDropped { key, .. } => self.oracles.hosts.message_dropped(run, key),
            // What a supervisor does: a process that cannot serve is replaced.
            Event::HostState { to: HostState::Error, .. } | Event::StartupFailed(_) => {
                let ms = noise_between(self.run.seed, 0x5afe, self.inputs, 100, 2_000);
                self.agenda.after(crate::agenda::millis(ms), Happening::Exit(run, Some(100)));
            }
            _ => {}
        }
    }

    pub(super) fn cancel(&mut self, run: RunOf, uid: Uid) {
        if !self.is_current(run) {
            return;
        }
        let Some(call) = self.oracles.calls.get(uid).filter(|call| call.end.is_none()).map(|call| call.id)
        else {
            return;
        };
        if self.seat(run.seat).paused.is_some() {
            return; // Nobody runs who could stop waiting.
        }
        self.oracles.calls.dropped(self.stamp(), uid);
        self.feed(run, Input::CallDropped { call }, Point::Other);
    }
}
