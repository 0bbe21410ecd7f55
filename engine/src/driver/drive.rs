//! The one loop of a host.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::channel::{mpsc, oneshot};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};

use super::calls::StoreCalls;
use super::clock::Clock;
use super::core::Core;
use super::executor::Executor;
use super::instance::Application;
use super::observe::Observers;
use super::port::{Ask, Port};
use super::store::LocationStore;
use super::transport::Transport;
use super::turns::{Ended, TurnPlacement, Turns};
use crate::event::Event;
use crate::input::{CallId, Input, TurnId};
use crate::model::limits::Settings;
use crate::model::{Error, ErrorKind, HostState, Instant};
use crate::output::{Answer, Output};

/// Inputs of one kind taken before the other kinds get their turn.
const ROTATION: usize = 64;
/// Inputs taken in one run of the loop before it lets other tasks of its thread run.
const BATCH: usize = 1_024;

/// What a loop moves inputs and outputs between.
pub(crate) struct Surroundings {
    pub(crate) store: Option<Arc<dyn LocationStore>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) application: Arc<dyn Application>,
    pub(crate) placement: TurnPlacement,
    pub(crate) settings: Settings,
}

/// The loop's state. Only [`Driver::run`] touches the core, one input at a time (single mutation).
pub(crate) struct Driver<C, T> {
    core: C,
    transport: T,
    clock: Arc<dyn Clock>,
    port: Arc<Port>,
    asks: mpsc::UnboundedReceiver<Ask>,
    turns: Turns,
    ended: VecDeque<Ended>,
    store: StoreCalls,
    callers: BTreeMap<CallId, oneshot::Sender<Answer>>,
    observers: Observers,
    awaiting_serving: Vec<oneshot::Sender<Result<(), Error>>>,
    startup_error: Option<Error>,
    /// The wait for the earliest deadline known when it was set; an earlier one replaces it, a later one does not.
    sleep: Option<(Instant, BoxFuture<'static, ()>)>,
}

impl<C: Core, T: Transport> Driver<C, T> {
    /// A loop that has not begun, and the port its handles share.
    pub(crate) fn new(core: C, transport: T, around: Surroundings) -> (Arc<Port>, Self) {
        let (port, asks) = Port::new(around.settings, around.clock.clone());
        let driver = Self {
            core,
            transport,
            port: port.clone(),
            asks,
            turns: Turns::new(around.application, around.executor.clone(), around.placement),
            ended: VecDeque::new(),
            store: StoreCalls::new(around.store, around.executor, around.clock.clone()),
            clock: around.clock,
            callers: BTreeMap::new(),
            observers: Observers::default(),
            awaiting_serving: Vec::new(),
            startup_error: None,
            sleep: None,
        };
        (port, driver)
    }

    /// Runs the host until it stopped (HOST-2).
    pub(crate) async fn run(mut self) {
        let now = self.clock.now();
        self.carry_out(now);
        poll_fn(move |cx| self.poll(cx)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut left = BATCH;
        let mut park = false;
        loop {
            let taken = self.round(cx, park);
            if self.core.state() == HostState::Stopped {
                self.transport.flush();
                return Poll::Ready(());
            }
            left = left.saturating_sub(taken);
            match (taken, park) {
                (0, true) => return Poll::Pending,
                (0, false) => {
                    // Everything is done for now: let it leave, then look once more with wakers in place.
                    self.transport.flush();
                    park = true;
                }
                _ if left == 0 => {
                    self.transport.flush();
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                _ => park = false,
            }
        }
    }

    /// Takes what is ready from every source in turn; how many inputs that were.
    ///
    /// With `park` every source that has nothing wakes the loop when it does.
    fn round(&mut self, cx: &mut Context<'_>, park: bool) -> usize {
        let mut taken = self.fire_due(cx, park);
        for _ in 0..ROTATION {
            let Poll::Ready(event) = self.transport.poll_event(cx) else { break };
            self.feed(Input::Transport(event));
            taken += 1;
        }
        for _ in 0..ROTATION {
            let Some(input) = self.store.next(park.then_some(&mut *cx)) else { break };
            self.feed(input);
            taken += 1;
        }
        for _ in 0..ROTATION {
            let ask = match park {
                true => match self.asks.poll_next_unpin(cx) {
                    Poll::Ready(ask) => ask,
                    Poll::Pending => None,
                },
                false => self.asks.try_recv().ok(),
            };
            let Some(ask) = ask else { break };
            self.answer_ask(ask);
            taken += 1;
        }
        self.turns.collect(park.then_some(&mut *cx), &mut self.ended);
        for _ in 0..ROTATION {
            let Some(Ended { turn, end, .. }) = self.ended.pop_front() else { break };
            self.feed(Input::TurnEnded { turn, end });
            taken += 1;
        }
        taken
    }

    fn answer_ask(&mut self, ask: Ask) {
        match ask {
            Ask::Call { call, from, command, answer } => {
                self.callers.insert(call, answer);
                self.feed(Input::Called { call, from, command });
            }
            Ask::Drop(call) => {
                // An answered call has no caller left: its answer crossed the drop.
                if self.callers.remove(&call).is_some() {
                    self.feed(Input::CallDropped { call });
                }
            }
            Ask::AwaitServing(waiter) => {
                self.awaiting_serving.push(waiter);
                self.tell_serving();
            }
            Ask::Observe(observer) => self.observers.add(observer),
        }
    }

    /// Fires due deadlines; with `park` sleeps until the next one. Returns 1 where something was due.
    fn fire_due(&mut self, cx: &mut Context<'_>, park: bool) -> usize {
        let Some(due) = self.core.poll_timeout() else {
            self.sleep = None;
            return 0;
        };
        let now = self.clock.now();
        if due <= now {
            self.core.handle_timeout(now);
            self.carry_out(now);
            return 1;
        }
        if park {
            loop {
                let (at, sleep) = match &mut self.sleep {
                    Some((at, sleep)) if *at <= due => (*at, sleep),
                    stale => {
                        let (_, sleep) = stale.insert((due, self.clock.sleep_until(due)));
                        (due, sleep)
                    }
                };
                if sleep.poll_unpin(cx).is_pending() {
                    break;
                }
                self.sleep = None;
                if at >= due {
                    // The clock says so although `now` did not yet: look again.
                    return 1;
                }
            }
        }
        0
    }

    /// One input, and everything that follows from it.
    fn feed(&mut self, input: Input) {
        let now = self.clock.now();
        self.core.handle(input, now);
        self.carry_out(now);
    }

    fn carry_out(&mut self, now: Instant) {
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Bind(node) => self.transport.bind(node),
                Output::Unbind(node) => self.transport.unbind(node),
                Output::Dial { node, dial, target } => self.transport.dial(node, dial, target),
                Output::DropDial(dial) => self.transport.drop_dial(dial),
                Output::Send { link, lane, record } => self.transport.send(link, lane, record),
                Output::CloseLink(link) => self.transport.close(link),
                Output::CallStore { call, request, timeout } => self.store.call(call, request, timeout, now),
                Output::Watch(scope) => self.store.watch(scope),
                Output::Unwatch(scope) => self.store.unwatch(&scope),
                // The core is not borrowed while application code runs.
                Output::StartTurn(turn) => self.ended.extend(self.turns.start(*turn, &self.port, now)),
                Output::AbandonTurn(turn) => self.abandon(turn),
                Output::DropInstance(instance) => self.turns.drop_instance(instance),
                Output::Answer { call, answer } => {
                    if let Some(caller) = self.callers.remove(&call) {
                        // A caller that has just gone is no failure.
                        let _ = caller.send(answer);
                    }
                }
                Output::Record(event) => self.record(&event),
            }
        }
        self.note_state();
    }

    /// An abandoned turn leaves nothing behind, whether it still runs or its end is on the way to the core.
    fn abandon(&mut self, turn: TurnId) {
        self.turns.abandon(turn);
        if let Some(at) = self.ended.iter().position(|ended| ended.turn == turn)
            && let Some(ended) = self.ended.remove(at)
        {
            self.turns.drop_instance(ended.instance);
        }
    }

    fn record(&mut self, event: &Event) {
        if let Event::StartupFailed(error) = event {
            self.startup_error = Some(error.clone());
        }
        self.observers.show(event);
    }

    fn note_state(&mut self) {
        let state = self.core.state();
        if self.port.set_state(state) != state {
            self.tell_serving();
        }
    }

    /// Answers those who wait for Serving, once it is reached or out of reach.
    fn tell_serving(&mut self) {
        let verdict = match self.core.state() {
            HostState::Preparing => return,
            HostState::Serving => Ok(()),
            state => Err(self.startup_error.clone().unwrap_or_else(|| {
                let found = format!("expected a host that serves, found it {state:?}");
                Error::new(ErrorKind::ShuttingDown, "wait_serving", found)
            })),
        };
        for waiter in self.awaiting_serving.drain(..) {
            // A waiter that has gone needs no answer.
            let _ = waiter.send(verdict.clone());
        }
    }
}
