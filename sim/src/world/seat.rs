//! One host's seat: its process, its clock, its configuration, and what waits while it is paused.

use spotmesh::config::{HostConfig, NodeConfig, RidChoice, TypeRegistration};
use spotmesh::host::Host;
use spotmesh::input::{CallId, Input};
use spotmesh::link::NodeIndex;
use spotmesh::model::limits::Settings;
use spotmesh::model::{MeshName, ObjectKind, RelocationPolicy, Rid, StableType, Weight};

use crate::action::CrashPoint;
use crate::agenda::Nanos;
use crate::clock::HostClock;
use crate::cluster::HostSpec;
use crate::place::{RunOf, Seat};
use crate::world::app::App;

/// A crash or stop waiting for its point.
#[derive(Debug, Clone)]
pub(super) struct Trap {
    pub point: CrashPoint,
    pub skip: u32,
    pub effect: Effect,
}

/// What happens to the process at the point.
#[derive(Debug, Clone, Copy)]
pub(super) enum Effect {
    /// It dies; another one starts so many milliseconds later.
    Crash(Option<u32>),
    /// It stops for so many milliseconds.
    Pause(u32),
}

/// What waits for a paused process, in order.
#[derive(Debug, Clone)]
pub(super) enum Held {
    Input(Input),
    TurnStep(spotmesh::input::TurnId, u32),
    Act(usize),
}

/// A seat and the process on it.
#[derive(Debug, Clone)]
pub struct SeatState {
    pub(super) seat: Seat,
    pub(super) spec: HostSpec,
    pub(super) config: HostConfig,
    pub(super) host: Option<Host>,
    pub(super) run: u32,
    pub(super) clock: HostClock,
    /// Paused until the resume of this epoch.
    pub(super) paused: Option<u64>,
    pub(super) pauses: u64,
    pub(super) held: Vec<Held>,
    /// When the pending wake-up happens, and its epoch.
    pub(super) wake: Option<Nanos>,
    pub(super) wakes: u64,
    /// Wake-ups without time passing, to catch a core that spins.
    pub(super) spins: (Nanos, u32),
    pub(super) traps: Vec<Trap>,
    pub(super) app: App,
    pub(super) next_call: u64,
    /// Someone scheduled the next process already.
    pub(super) starting: bool,
    /// Deadline of the Shutdown asked for first.
    pub(super) draining: Option<spotmesh::model::Instant>,
    /// When the next process starts after that Shutdown.
    pub(super) restart_ms: Option<u32>,
    /// Start of its process.
    pub(super) started_at: Nanos,
    /// End of the last pause.
    pub(super) resumed_at: Nanos,
}

impl SeatState {
    pub(super) fn new(seat: Seat, spec: HostSpec, settings: &Settings) -> Result<Self, String> {
        let config = host_config(&spec, settings)?;
        let clock = HostClock::new(0, 5_000_000_000 + u64::from(seat.0) * 1_000_000_007, spec.clock_rate);
        Ok(Self {
            seat,
            spec,
            config,
            host: None,
            run: 0,
            clock,
            paused: None,
            pauses: 0,
            held: Vec::new(),
            wake: None,
            wakes: 0,
            spins: (0, 0),
            traps: Vec::new(),
            app: App::default(),
            next_call: 0,
            starting: false,
            draining: None,
            restart_ms: None,
            started_at: 0,
            resumed_at: 0,
        })
    }

    /// The process on the seat, running or not.
    #[must_use]
    pub fn current(&self) -> RunOf {
        RunOf { seat: self.seat, run: self.run }
    }

    /// Its core, while it runs.
    #[must_use]
    pub fn host(&self) -> Option<&Host> {
        self.host.as_ref()
    }

    /// Whether it runs and is not paused.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.host.is_some() && self.paused.is_none()
    }

    pub(super) fn call_id(&mut self) -> CallId {
        self.next_call += 1;
        CallId(self.next_call)
    }

    /// Where a node of this process listens.
    pub(super) fn endpoint(&self, node: NodeIndex) -> String {
        if self.spec.same_endpoint {
            format!("sim://{}:{}", self.seat, 7000 + node.0)
        } else {
            format!("sim://{}:{}", self.seat, 7000 + u32::from(node.0) + self.run * 10)
        }
    }
}

fn host_config(spec: &HostSpec, settings: &Settings) -> Result<HostConfig, String> {
    let mut nodes = Vec::new();
    for node in &spec.nodes {
        let mesh = MeshName::new(&node.mesh).map_err(|error| error.to_string())?;
        let mut config = NodeConfig::new(mesh, node.role);
        if let Some(rid) = &node.rid {
            config.rid = RidChoice::Fixed(Rid::new(rid).map_err(|error| error.to_string())?);
        }
        if node.role == spotmesh::model::ObjectRole::Server {
            for name in &node.types {
                config.types.push(TypeRegistration {
                    kind: ObjectKind::Actor,
                    stable_type: StableType::new(name).map_err(|error| error.to_string())?,
                    policy: RelocationPolicy::PreserveState,
                    limit: 0,
                });
            }
        }
        config.actor_limit = node.actor_limit;
        config.pending_activation_limit = node.pending_limit;
        config.placement_weight = Weight::new(i64::from(node.weight))
            .ok_or_else(|| format!("weight: expected 0..=10000, found {}", node.weight))?;
        nodes.push(config);
    }
    let mut config = HostConfig::new(nodes);
    config.settings = settings.clone();
    config.check().map_err(|error| error.to_string())?;
    Ok(config)
}
