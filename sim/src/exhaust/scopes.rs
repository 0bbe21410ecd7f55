//! The named scopes.

use spotmesh::model::limits::Settings;

use super::Budget;
use crate::action::{Action, Run, Timed};
use crate::agenda::{Nanos, millis};
use crate::clock::RATE_ONE;
use crate::cluster::{Cluster, HostSpec, NodeSpec, StoreSpec};
use crate::net::NetworkSpec;
use crate::place::Seat;
use crate::script::{CreateScript, HandlerScript, Verdict};

/// A cluster, what happens in it in any order, and a budget.
#[derive(Debug, Clone)]
pub struct Scope {
    /// Its name.
    pub name: &'static str,
    /// What it covers.
    pub about: &'static str,
    /// Cluster and actions; their times count for nothing.
    pub run: Run,
    /// How long the cluster comes up undisturbed.
    pub settle: Nanos,
    /// Faults and deadlines.
    pub budget: Budget,
}

impl Scope {
    /// Whether no earlier action of the same host is still to come.
    pub(super) fn is_next(&self, acts: u32, at: usize) -> bool {
        let host = caller(&self.run.actions[at].action);
        (0..at).all(|earlier| acts & (1 << earlier) == 0 || caller(&self.run.actions[earlier].action) != host)
    }
}

fn caller(action: &Action) -> Option<Seat> {
    match action {
        Action::Create { host, .. } | Action::Message { host, .. } | Action::Shutdown { host, .. } => {
            Some(*host)
        }
        _ => None,
    }
}

fn create(host: u8, verdict: Verdict) -> Action {
    Action::Create {
        host: Seat(host),
        actor: "a".to_owned(),
        stable_type: "counter".to_owned(),
        exclusive: false,
        mesh: None,
        timeout_ms: 20_000,
        script: CreateScript { verdict, ..CreateScript::default() },
        cancel_ms: None,
    }
}

fn request(host: u8) -> Action {
    Action::Message {
        host: Seat(host),
        actor: "a".to_owned(),
        request: true,
        timeout_ms: 5_000,
        script: HandlerScript::default(),
        cancel_ms: None,
    }
}

fn shutdown(host: u8) -> Action {
    Action::Shutdown { host: Seat(host), timeout_ms: 10_000, restart_ms: None }
}

fn scope(
    name: &'static str,
    about: &'static str,
    servers: usize,
    actions: Vec<Action>,
    budget: Budget,
) -> Scope {
    let node = NodeSpec { weight: 100, ..NodeSpec::default() };
    let host = HostSpec { nodes: vec![node], clock_rate: RATE_ONE, start_ms: 0, same_endpoint: true };
    let mut hosts = vec![host; servers];
    for other in hosts.iter_mut().skip(1) {
        // One candidate only, so that all coordinators mean the same target.
        other.nodes[0].weight = 0;
    }
    let cluster = Cluster {
        hosts,
        network: NetworkSpec::default(),
        store: StoreSpec::default(),
        settings: Settings::default(),
    };
    let actions = actions.into_iter().map(|action| Timed { at_us: u64::MAX / 2_000, action }).collect();
    let run = Run { seed: 1, cluster, chaos_ms: u64::MAX / 2_000_000, actions, plant: None };
    Scope { name, about, run, settle: millis(4_600), budget }
}

/// All scopes.
#[must_use]
pub fn scopes() -> Vec<Scope> {
    let none = Budget::default();
    vec![
        scope(
            "create-2",
            "two hosts want one Actor",
            2,
            vec![create(0, Verdict::Accept), create(1, Verdict::Accept)],
            none,
        ),
        scope(
            "create-loss",
            "two hosts want one Actor, one Store answer is lost",
            2,
            vec![create(0, Verdict::Accept), create(1, Verdict::Accept)],
            Budget { losses: 1, ..none },
        ),
        scope(
            "create-kill",
            "two hosts want one Actor, one of them dies",
            2,
            vec![create(0, Verdict::Accept), create(1, Verdict::Accept)],
            Budget { kills: 1, ..none },
        ),
        scope(
            "create-break",
            "two hosts want one Actor, their link breaks",
            2,
            vec![create(0, Verdict::Accept), create(1, Verdict::Accept)],
            Budget { breaks: 1, ..none },
        ),
        scope(
            "create-wake",
            "two hosts want one Actor, any deadline or backoff fires early",
            2,
            vec![create(0, Verdict::Accept), create(1, Verdict::Accept)],
            Budget { wakes: 1, ..none },
        ),
        scope(
            "create-loss-kill",
            "two hosts want one Actor, an answer is lost and a process dies",
            2,
            vec![create(0, Verdict::Accept), create(1, Verdict::Accept)],
            Budget { losses: 1, kills: 1, ..none },
        ),
        scope(
            "create-3",
            "three hosts want one Actor",
            3,
            vec![create(0, Verdict::Accept), create(1, Verdict::Decline), create(2, Verdict::Accept)],
            none,
        ),
        scope(
            "reject-compete",
            "one creation is declined while another waits",
            2,
            vec![create(0, Verdict::Decline), create(1, Verdict::Accept)],
            Budget { losses: 1, ..none },
        ),
        scope(
            "request-break",
            "a creation and two requests, the link breaks",
            2,
            vec![create(1, Verdict::Accept), request(1), request(1)],
            Budget { breaks: 1, ..none },
        ),
        scope(
            "shutdown",
            "a creation and a request meet the owner's shutdown",
            2,
            vec![create(1, Verdict::Accept), request(1), shutdown(0)],
            none,
        ),
    ]
}
