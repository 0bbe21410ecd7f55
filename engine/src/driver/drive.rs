//! The one loop of a host.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::BoxFuture;

use super::calls::StoreCalls;
use super::clock::Clock;
use super::core::Core;
use super::executor::Executor;
use super::inbox::Arrival;
use super::instance::Application;
use super::observe::Observers;
use super::port::Port;
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

/// Inputs that one reading of the clock serves at most, give or take a round, when no application code runs.
const FRESH: usize = 16;

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
    port: Arc<Port>,
    /// Taken from the inbox and not worked off yet.
    arrived: VecDeque<Arrival>,
    turns: Turns,
    ended: VecDeque<Ended>,
    store: StoreCalls,
    callers: BTreeMap<CallId, Option<oneshot::Sender<Answer>>>,
    observers: Observers,
    awaiting_serving: Vec<oneshot::Sender<Result<(), Error>>>,
    startup_error: Option<Error>,
    /// The state that handles see.
    noted: HostState,
    /// The clock's last answer, good until application code or sleep may have taken time.
    now: Option<Instant>,
    /// The wait for the earliest deadline known when it was set; an earlier one replaces it, a later one does not.
    sleep: Option<(Instant, BoxFuture<'static, ()>)>,
    bell: Waker,
}

/// Wakes the loop when its sleep is over, and tells it so: the sleep need not be polled at every wake.
struct Bell(Arc<Port>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // Without a loop nobody sleeps.
        let _ = self.0.tell(Arrival::Rung);
    }
}

/// A number no call has. Its entry keeps the root of the map allocated when no call is under way.
const NO_CALL: CallId = CallId(u64::MAX);

impl<C: Core, T: Transport> Driver<C, T> {
    /// A loop that has not begun, and the port its handles share.
    pub(crate) fn new(core: C, transport: T, around: Surroundings) -> (Arc<Port>, Self) {
        let port = Port::new(around.settings, around.clock);
        let driver = Self {
            core,
            transport,
            arrived: VecDeque::new(),
            turns: Turns::new(around.application, around.executor.clone(), around.placement, port.clone()),
            ended: VecDeque::new(),
            store: StoreCalls::new(around.store, around.executor, port.clone()),
            callers: BTreeMap::from([(NO_CALL, None)]),
            observers: Observers::default(),
            awaiting_serving: Vec::new(),
            startup_error: None,
            // What a port begins with.
            noted: HostState::Preparing,
            now: None,
            sleep: None,
            bell: Waker::from(Arc::new(Bell(port.clone()))),
            port: port.clone(),
        };
        (port, driver)
    }

    /// Runs the host until it stopped (HOST-2).
    pub(crate) async fn run(mut self) {
        let now = self.now();
        self.carry_out(now);
        poll_fn(move |cx| self.poll(cx)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.now = None;
        let mut left = BATCH;
        loop {
            let taken = self.round(cx);
            if self.core.state() == HostState::Stopped {
                self.transport.flush();
                return Poll::Ready(());
            }
            left = left.saturating_sub(taken);
            if taken > FRESH {
                self.now = None;
            }
            if taken == 0 {
                // Everything is done for now: let it leave.
                self.transport.flush();
                if self.park(cx) {
                    return Poll::Pending;
                }
            } else if left == 0 {
                self.transport.flush();
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Takes what is ready from every source in turn; how many inputs that were.
    fn round(&mut self, cx: &mut Context<'_>) -> usize {
        let mut taken = self.fire_due();
        if self.arrived.is_empty() {
            self.port.inbox().take(&mut self.arrived);
        }
        for _ in 0..ROTATION {
            let Some(arrival) = self.arrived.pop_front() else { break };
            self.arrival(arrival);
            taken += 1;
        }
        for _ in 0..ROTATION {
            let Poll::Ready(event) = self.transport.poll_event(cx) else { break };
            self.feed(Input::Transport(event));
            taken += 1;
        }
        for _ in 0..ROTATION {
            let Some(Ended { turn, end, .. }) = self.ended.pop_front() else { break };
            self.feed(Input::TurnEnded { turn, end });
            taken += 1;
        }
        taken
    }

    fn arrival(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Call { call, from, command, answer } => {
                self.callers.insert(call, Some(answer));
                self.feed(Input::Called { call, from, command });
            }
            Arrival::DropCall(call) => {
                // An answered call has no caller left: its answer crossed the drop.
                if self.callers.remove(&call).is_some() {
                    self.feed(Input::CallDropped { call });
                }
            }
            Arrival::Store(input) => self.feed(input),
            Arrival::Woken(turn) => {
                self.now = None;
                self.ended.extend(self.turns.woken(turn));
            }
            Arrival::Ended(turn, outcome) => self.ended.extend(self.turns.reported(turn, outcome)),
            Arrival::Rung => {
                self.now = None;
                self.sleep = None;
            }
            Arrival::AwaitServing(waiter) => {
                self.awaiting_serving.push(waiter);
                self.tell_serving();
            }
            Arrival::Observe(observer) => self.observers.add(observer),
        }
    }

    fn now(&mut self) -> Instant {
        *self.now.get_or_insert_with(|| self.port.clock().now())
    }

    /// Fires due deadlines; 1 where there were any.
    fn fire_due(&mut self) -> usize {
        let Some(due) = self.core.poll_timeout() else { return 0 };
        let now = self.now();
        if due > now {
            return 0;
        }
        self.core.handle_timeout(now);
        self.carry_out(now);
        1
    }

    /// Sets the bell for the next deadline and sleeps; `false` where there is something to do instead.
    fn park(&mut self, cx: &Context<'_>) -> bool {
        if let Some(due) = self.core.poll_timeout()
            && self.sleep.as_ref().is_none_or(|(at, _)| *at > due)
        {
            let mut sleep = self.port.clock().sleep_until(due);
            if sleep.poll_unpin(&mut Context::from_waker(&self.bell)).is_ready() {
                self.now = None;
                return false;
            }
            self.sleep = Some((due, sleep));
        }
        self.port.inbox().park(cx.waker())
    }

    /// One input, and everything that follows from it.
    fn feed(&mut self, input: Input) {
        let now = self.now();
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
                Output::CallStore { call, request, timeout } => self.store.call(call, *request, timeout, now),
                Output::Watch(scope) => self.store.watch(scope),
                Output::Unwatch(scope) => self.store.unwatch(&scope),
                // The core is not borrowed while application code runs.
                Output::StartTurn(turn) => {
                    self.now = None;
                    self.ended.extend(self.turns.start(*turn, now));
                }
                Output::AbandonTurn(turn) => self.abandon(turn),
                Output::DropInstance(instance) => self.turns.drop_instance(instance),
                Output::Answer { call, answer } => {
                    if let Some(Some(caller)) = self.callers.remove(&call) {
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
        if self.noted != state {
            self.noted = state;
            self.port.set_state(state);
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

impl<C, T> Drop for Driver<C, T> {
    fn drop(&mut self) {
        self.port.inbox().close();
    }
}
