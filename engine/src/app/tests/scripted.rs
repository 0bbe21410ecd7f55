//! A core small enough to see through: one owner, no queues, no deadlines; and a host around it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

use super::subject::{self, Subject};
use crate::app::factory::{Factory, stable_type_of};
use crate::app::typed::Registry;
use crate::app::{HostHandle, Registered};
use crate::driver::local::{LocalNetwork, LocalRuntime};
use crate::driver::{Clock, Core, Driver, Executor, LocationStore, Surroundings, TurnPlacement};
use crate::input::{ActorCall, CallId, Command, Input, InstanceId, TurnEnd, TurnId};
use crate::link::NodeIndex;
use crate::model::limits::Settings;
use crate::model::{
    ActorId, ActorRef, AuthorityOwnerGeneration, Error, ErrorKind, HostState, Instant, MeshName,
    ObjectGeneration, ObjectKey, Rid,
};
use crate::output::{Answer, Output, Turn, Work};
use crate::store::{StoreError, StoreEvent, StoreRequest, StoreResult, WatchScope};

/// What a test reads and sets while the core runs.
pub struct Script {
    /// Every input, in order.
    pub inputs: Vec<Input>,
    /// Outputs of "set placement weight N", and the state reached with it.
    pub steps: BTreeMap<u16, (Vec<Output>, Option<HostState>)>,
    pub state: HostState,
    pub deadline: Option<Instant>,
    pub timeouts: Vec<Instant>,
}

/// Starts a turn per creation and message and answers its caller when it ends.
pub struct ScriptedCore {
    script: Arc<Mutex<Script>>,
    outputs: VecDeque<Output>,
    numbers: u64,
    instances: BTreeMap<ActorId, InstanceId>,
    turns: BTreeMap<TurnId, (Option<CallId>, ActorId)>,
}

impl ScriptedCore {
    fn next(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn start(&mut self, call: Option<CallId>, id: ActorId, instance: InstanceId, work: Work) {
        let turn = TurnId(self.next());
        self.turns.insert(turn, (call, id.clone()));
        self.outputs.push_back(Output::StartTurn(Box::new(Turn {
            turn,
            instance,
            node: NodeIndex(0),
            key: ObjectKey::Actor(id),
            stable_type: stable_type_of::<Subject>(),
            object_generation: ObjectGeneration::FIRST,
            owner_generation: AuthorityOwnerGeneration::FIRST,
            work,
        })));
    }

    fn message(&mut self, call: Option<CallId>, message: ActorCall) -> Result<(), Error> {
        let Some(instance) = self.instances.get(&message.target).copied() else {
            return Err(Error::new(ErrorKind::NotFound, "message", "no such Actor"));
        };
        let work = Work::Message {
            wants_reply: call.is_some(),
            packet: message.packet,
            version: message.version,
            codec: message.codec,
            payload: message.payload,
            metadata: message.metadata,
            remaining: message.timeout,
        };
        self.start(call, message.target, instance, work);
        Ok(())
    }

    fn called(&mut self, call: CallId, command: Command) {
        let answer = match command {
            Command::CreateActor(create) => {
                let instance = InstanceId(self.next());
                self.instances.insert(create.id.clone(), instance);
                let work = Work::Create { request: create.request, remaining: create.timeout };
                return self.start(Some(call), create.id, instance, work);
            }
            Command::RequestActor(message) => match self.message(Some(call), message) {
                Ok(()) => return,
                Err(error) => Answer::Failed(error),
            },
            Command::SendToActor(message) => match self.message(None, message) {
                Ok(()) => Answer::Sent,
                Err(error) => Answer::Failed(error),
            },
            Command::FindActor { id, .. } => {
                Answer::Found(self.instances.contains_key(&id).then(|| actor_ref(&id)))
            }
            Command::SetChannelWeight { .. } => Answer::Set,
            Command::SetPlacementWeight { weight, .. } => {
                let mut script = self.script.lock().unwrap();
                if let Some((outputs, state)) = script.steps.remove(&weight.get()) {
                    self.outputs.extend(outputs);
                    script.state = state.unwrap_or(script.state);
                }
                Answer::Set
            }
            Command::Shutdown { .. } => {
                self.script.lock().unwrap().state = HostState::Stopped;
                Answer::ShutDown { forced: false }
            }
        };
        self.outputs.push_back(Output::Answer { call, answer });
    }

    fn ended(&mut self, turn: TurnId, end: TurnEnd) {
        let (call, id) = self.turns.remove(&turn).expect("a turn that was started and not ended");
        let actor = actor_ref(&id);
        let answer = match end {
            TurnEnd::Accepted { reply } => Answer::Created { actor, reply },
            TurnEnd::Declined { reply } => Answer::Rejected { actor, reply },
            TurnEnd::Handled { reply } => Answer::Replied(reply),
            TurnEnd::Failed(kind) => failed(kind),
            TurnEnd::Panicked => failed(ErrorKind::InternalFailure),
            TurnEnd::NoHandler => failed(ErrorKind::NotFound),
            TurnEnd::Undecodable => failed(ErrorKind::ProtocolError),
        };
        if let Some(call) = call {
            self.outputs.push_back(Output::Answer { call, answer });
        }
    }
}

/// A turn that adds 1, which needs no second poll.
pub fn quick_turn(turn: u64, instance: u64) -> Output {
    let work = Work::Message {
        wants_reply: true,
        packet: <subject::Add as crate::app::Message>::packet(),
        version: 1,
        codec: crate::wire::PayloadCodec::Postcard,
        payload: vec![1].into(),
        metadata: crate::wire::Metadata::none(),
        remaining: Duration::from_secs(1),
    };
    Output::StartTurn(Box::new(Turn {
        turn: TurnId(turn),
        instance: InstanceId(instance),
        node: NodeIndex(0),
        key: ObjectKey::Actor(ActorId::new("a").unwrap()),
        stable_type: stable_type_of::<Subject>(),
        object_generation: ObjectGeneration::FIRST,
        owner_generation: AuthorityOwnerGeneration::FIRST,
        work,
    }))
}

fn failed(kind: ErrorKind) -> Answer {
    Answer::Failed(Error::new(kind, "turn", "failed"))
}

fn actor_ref(id: &ActorId) -> ActorRef {
    let (mesh, node) = (MeshName::new("game").unwrap(), Rid::new("mesh-1").unwrap());
    ActorRef { id: id.clone(), object_generation: ObjectGeneration::FIRST, mesh, node }
}

impl Core for ScriptedCore {
    fn handle(&mut self, input: Input, _now: Instant) {
        assert!(self.outputs.is_empty(), "outputs of the input before were not drained");
        self.script.lock().unwrap().inputs.push(input.clone());
        match input {
            Input::Called { call, command, .. } => self.called(call, command),
            Input::TurnEnded { turn, end } => self.ended(turn, end),
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        let mut script = self.script.lock().unwrap();
        script.timeouts.push(now);
        script.deadline = None;
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.script.lock().unwrap().deadline
    }

    fn state(&self) -> HostState {
        self.script.lock().unwrap().state
    }
}

/// A store that answers `Unavailable` after a while and reports what happened to its calls.
#[derive(Clone)]
pub struct SlowStore {
    runtime: LocalRuntime,
    delay: Duration,
    pub dropped: Arc<Mutex<usize>>,
    pub hints: Arc<Mutex<Option<futures::channel::mpsc::UnboundedReceiver<StoreEvent>>>>,
}

struct CountDrop(Arc<Mutex<usize>>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        *self.0.lock().unwrap() += 1;
    }
}

impl LocationStore for SlowStore {
    fn call(&self, _request: StoreRequest) -> BoxFuture<'static, StoreResult> {
        let sleep = self.runtime.sleep_until(self.runtime.now() + self.delay);
        let count = CountDrop(self.dropped.clone());
        async move {
            sleep.await;
            drop(count);
            Err(StoreError::Unavailable)
        }
        .boxed()
    }

    fn watch(&self, _scope: WatchScope) -> BoxStream<'static, StoreEvent> {
        match self.hints.lock().unwrap().take() {
            Some(hints) => Box::pin(hints),
            None => Box::pin(futures::stream::pending()),
        }
    }
}

/// A host over the scripted core.
pub struct Scene {
    pub runtime: LocalRuntime,
    pub host: HostHandle,
    pub script: Arc<Mutex<Script>>,
    pub store: SlowStore,
    /// Tasks given to the executor, the loop left out.
    pub spawned: Arc<Mutex<usize>>,
}

struct CountSpawns(LocalRuntime, Arc<Mutex<usize>>);

impl Executor for CountSpawns {
    fn spawn(&self, future: BoxFuture<'static, ()>) {
        *self.1.lock().unwrap() += 1;
        self.0.spawn(future);
    }
}

impl Scene {
    pub fn new() -> Self {
        Self::with(TurnPlacement::Inline)
    }

    pub fn with(placement: TurnPlacement) -> Self {
        let scene = Self::idle(placement);
        scene.1.spawn(scene.2);
        scene.0
    }

    /// A scene whose loop is not running yet.
    pub fn idle(placement: TurnPlacement) -> (Self, LocalRuntime, BoxFuture<'static, ()>) {
        let runtime = LocalRuntime::new();
        subject::use_runtime(&runtime);
        let script = Arc::new(Mutex::new(Script {
            inputs: Vec::new(),
            steps: BTreeMap::new(),
            state: HostState::Serving,
            deadline: None,
            timeouts: Vec::new(),
        }));
        let core = ScriptedCore {
            script: script.clone(),
            outputs: VecDeque::new(),
            numbers: 0,
            instances: BTreeMap::new(),
            turns: BTreeMap::new(),
        };
        let store = SlowStore {
            runtime: runtime.clone(),
            delay: Duration::from_secs(2),
            dropped: Arc::default(),
            hints: Arc::default(),
        };
        let mut registry = Registry::default();
        let Registered { table, .. } = subject::registered(Factory::new());
        registry.add(NodeIndex(0), stable_type_of::<Subject>(), table);
        let spawned = Arc::new(Mutex::new(0));
        let around = Surroundings {
            store: Some(Arc::new(store.clone())),
            clock: Arc::new(runtime.clone()),
            executor: Arc::new(CountSpawns(runtime.clone(), spawned.clone())),
            application: Arc::new(registry),
            placement,
            settings: Settings::default(),
        };
        let (port, driver) = Driver::new(core, LocalNetwork::new().transport(), around);
        let host = HostHandle::new(port);
        (Self { runtime: runtime.clone(), host, script, store, spawned }, runtime, driver.run().boxed())
    }

    pub fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }

    /// Outputs to come with `host.set_placement_weight(step)`.
    pub fn on_step(&self, step: u16, outputs: Vec<Output>) {
        self.script().steps.insert(step, (outputs, None));
    }

    /// Carries a step out.
    pub async fn step(&self, step: u16) {
        self.host.set_placement_weight(i64::from(step)).await.unwrap();
    }

    pub async fn sleep(&self, duration: Duration) {
        self.runtime.sleep_until(self.runtime.now() + duration).await;
    }

    /// The ends of turns the core heard of.
    pub fn ends(&self) -> Vec<TurnEnd> {
        let script = self.script();
        let ends = script.inputs.iter().filter_map(|input| match input {
            Input::TurnEnded { end, .. } => Some(end.clone()),
            _ => None,
        });
        ends.collect()
    }
}
