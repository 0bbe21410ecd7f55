//! Scenario files: a cluster, steps, faults and expectations, without a line of Rust. See SCENARIOS.md.

mod expect;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::action::{Action, Run};
use crate::agenda::millis;
use crate::cluster::Cluster;
use crate::oracle::calls::End;
use crate::place::Seat;
use crate::script::{CreateScript, HandlerScript, Nested, Uid, Verdict};
use crate::world::World;
pub use expect::{CallEnd, Expectation};

/// One file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// What it shows.
    #[serde(default)]
    pub about: String,
    /// Seeds the hosts and the noise.
    #[serde(default)]
    pub seed: u64,
    /// Who takes part.
    pub cluster: Cluster,
    /// What happens, one after the other.
    pub steps: Vec<Step>,
    /// Whether faults end and everything must be in order after the last step.
    #[serde(default = "yes")]
    pub finish: bool,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// Lets so many milliseconds pass.
    Wait(u64),
    /// Lets time pass until every call has ended, a minute at most.
    Settle,
    /// Ends every fault and starts what is down.
    Heal,
    /// Create or get-or-create.
    Create {
        /// Its name in expectations.
        call: String,
        /// Who calls.
        host: Seat,
        /// The ActorId.
        actor: String,
        /// Its type.
        #[serde(default = "counter")]
        stable_type: String,
        /// Create instead of GetOrCreate.
        #[serde(default)]
        exclusive: bool,
        /// Where candidates are looked for.
        #[serde(default)]
        mesh: Option<String>,
        /// How the callback ends.
        #[serde(default)]
        verdict: Verdict,
        /// How long it takes.
        #[serde(default = "one")]
        takes_ms: u64,
        /// Deadline.
        #[serde(default = "half_a_minute")]
        timeout_ms: u32,
        /// The caller stops waiting after so many milliseconds.
        #[serde(default)]
        cancel_ms: Option<u32>,
    },
    /// Find.
    Find {
        /// Its name in expectations.
        call: String,
        /// Who calls.
        host: Seat,
        /// The ActorId.
        actor: String,
        /// Deadline.
        #[serde(default = "half_a_minute")]
        timeout_ms: u32,
    },
    /// One-way message.
    Send(Message),
    /// Request.
    Request(Message),
    /// Shutdown.
    Shutdown {
        /// Its name in expectations.
        call: String,
        /// Whom.
        host: Seat,
        /// Deadline.
        #[serde(default = "half_a_minute")]
        timeout_ms: u32,
        /// When the next process starts; at Heal or the end when absent.
        #[serde(default)]
        restart_ms: Option<u32>,
    },
    /// Any action of an action list: kill, pause, break, partition, Store faults and so on.
    Do(Action),
    /// Something that must hold now.
    Expect(Expectation),
}

/// A message of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Its name in expectations.
    pub call: String,
    /// Who calls.
    pub host: Seat,
    /// The ActorId.
    pub actor: String,
    /// How its handler ends.
    #[serde(default)]
    pub ending: crate::script::Ending,
    /// How long the handler works.
    #[serde(default = "one")]
    pub takes_ms: u64,
    /// What the handler calls.
    #[serde(default)]
    pub nested: Option<Nested>,
    /// Deadline.
    #[serde(default = "half_a_minute")]
    pub timeout_ms: u32,
    /// The caller stops waiting after so many milliseconds.
    #[serde(default)]
    pub cancel_ms: Option<u32>,
}

const fn yes() -> bool {
    true
}

fn counter() -> String {
    "counter".to_owned()
}

const fn one() -> u64 {
    1
}

const fn half_a_minute() -> u32 {
    30_000
}

/// How a scenario ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdicts {
    /// Its name.
    pub scenario: String,
    /// Whether all held.
    pub passed: bool,
    /// What did not hold, with its step counted from 1; violations of oracles included.
    pub failed_expectations: Vec<String>,
}

impl Scenario {
    /// Reads a scenario from RON text.
    ///
    /// # Errors
    /// Says where the text is not a scenario.
    pub fn from_ron(text: &str) -> Result<Self, String> {
        ron::from_str(text).map_err(|error| format!("not a scenario: {error}"))
    }

    /// Runs it. `trace` gets the readable lines.
    ///
    /// # Errors
    /// Where the cluster is not legal or a step names what does not exist.
    pub fn run(&self, trace: Option<&mut Vec<String>>) -> Result<Verdicts, String> {
        let run = Run {
            seed: self.seed,
            cluster: self.cluster.clone(),
            chaos_ms: u64::MAX,
            actions: Vec::new(),
            plant: None,
        };
        let mut world = World::new(Arc::new(run))?;
        if trace.is_some() {
            world.keep_trace();
        }
        let mut calls = BTreeMap::new();
        let mut failed = Vec::new();
        for (at, step) in self.steps.iter().enumerate() {
            self.step(&mut world, &mut calls, step, &mut failed)
                .map_err(|text| format!("step {}: {text}", at + 1))?;
            if let Some(text) = failed.last_mut().filter(|text| !text.starts_with("step ")) {
                *text = format!("step {}: {text}", at + 1);
            }
            if !world.violations().is_empty() {
                break;
            }
        }
        if self.finish && failed.is_empty() && world.violations().is_empty() {
            world.finish();
        }
        for violation in world.violations() {
            failed.push(format!("oracle `{}`: {}", violation.oracle, violation.text));
        }
        if let (Some(lines), Some(kept)) = (trace, world.trace()) {
            lines.extend(kept.lines());
        }
        Ok(Verdicts { scenario: self.name.clone(), passed: failed.is_empty(), failed_expectations: failed })
    }

    fn step(
        &self,
        world: &mut World,
        calls: &mut BTreeMap<String, Uid>,
        step: &Step,
        failed: &mut Vec<String>,
    ) -> Result<(), String> {
        match step {
            Step::Wait(ms) => world.run_until(world.now() + millis(*ms)),
            Step::Settle => {
                let until = world.now() + millis(60_000);
                while world.now() < until && world.violations().is_empty() && world.is_busy() {
                    world.run_until(world.now() + millis(10));
                }
            }
            Step::Heal => world.end_faults(),
            Step::Do(action) => {
                check_names(action)?;
                world.perform(action);
            }
            Step::Expect(expectation) => {
                if let Some(text) = expectation.check(world, calls)? {
                    failed.push(text);
                }
            }
            _ => {
                let (name, action) = action_of(step).ok_or("expected a call")?;
                check_names(&action)?;
                let uid =
                    world.call_of(&action).ok_or_else(|| format!("nobody runs who could make {name}"))?;
                calls.insert(name, uid);
            }
        }
        Ok(())
    }
}

fn action_of(step: &Step) -> Option<(String, Action)> {
    let message = |message: &Message, request| {
        let script = HandlerScript {
            takes_us: message.takes_ms * 1_000,
            ending: message.ending,
            nested: message.nested.clone(),
        };
        let action = Action::Message {
            host: message.host,
            actor: message.actor.clone(),
            request,
            timeout_ms: message.timeout_ms,
            script,
            cancel_ms: message.cancel_ms,
        };
        (message.call.clone(), action)
    };
    Some(match step {
        Step::Create {
            call,
            host,
            actor,
            stable_type,
            exclusive,
            mesh,
            verdict,
            takes_ms,
            timeout_ms,
            cancel_ms,
        } => {
            let script = CreateScript { takes_us: takes_ms * 1_000, verdict: *verdict, padding: 0 };
            let action = Action::Create {
                host: *host,
                actor: actor.clone(),
                stable_type: stable_type.clone(),
                exclusive: *exclusive,
                mesh: mesh.clone(),
                timeout_ms: *timeout_ms,
                script,
                cancel_ms: *cancel_ms,
            };
            (call.clone(), action)
        }
        Step::Find { call, host, actor, timeout_ms } => {
            let action = Action::Find { host: *host, actor: actor.clone(), timeout_ms: *timeout_ms };
            (call.clone(), action)
        }
        Step::Send(sent) => message(sent, false),
        Step::Request(sent) => message(sent, true),
        Step::Shutdown { call, host, timeout_ms, restart_ms } => {
            let action = Action::Shutdown { host: *host, timeout_ms: *timeout_ms, restart_ms: *restart_ms };
            (call.clone(), action)
        }
        _ => return None,
    })
}

/// Refuses what would be no legal name further down.
fn check_names(action: &Action) -> Result<(), String> {
    use spotmesh::model::{ActorId, MeshName, StableType};
    let text = |error: spotmesh::model::IllegalId| error.to_string();
    match action {
        Action::Create { actor, stable_type, mesh, .. } => {
            ActorId::new(actor).map_err(text)?;
            StableType::new(stable_type).map_err(text)?;
            if let Some(mesh) = mesh {
                MeshName::new(mesh).map_err(text)?;
            }
        }
        Action::Find { actor, .. } => {
            ActorId::new(actor).map_err(text)?;
        }
        Action::Message { actor, script, .. } => {
            ActorId::new(actor).map_err(text)?;
            if let Some(nested) = &script.nested {
                ActorId::new(&nested.to).map_err(text)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// The end of a named call.
fn end_of<'a>(
    world: &'a World,
    calls: &BTreeMap<String, Uid>,
    name: &str,
) -> Result<Option<&'a End>, String> {
    let uid = calls.get(name).ok_or_else(|| format!("no call is named {name}"))?;
    Ok(world.oracles().calls.get(*uid).and_then(|call| call.end.as_ref()).map(|(_, end)| end))
}
