//! The healed phase: faults end, everything promised must finish, and nothing may be left behind.

use spotmesh::host::Host;
use spotmesh::model::{ErrorKind, HostState, ObjectKey, ObjectRole};
use spotmesh::output::Answer;

use super::{Happening, World};
use crate::action::Action;
use crate::agenda::{Nanos, millis};
use crate::oracle::calls::{Asked, End};
use crate::place::Seat;
use crate::script::{CreateScript, HandlerScript, Uid};

/// Time for a timed-out probe, in milliseconds.
const PROBE_TIMEOUT_MS: u32 = 8_000;

/// What a probe must end in.
#[derive(Debug, Clone)]
enum Expected {
    Replied,
    Failed(ErrorKind),
    Created,
    /// Nobody may have room: `Created` or `Unavailable`.
    CreatedIfRoom,
}

impl World {
    /// Every fault ends; what is down comes up.
    pub(super) fn heal(&mut self) {
        self.healed = true;
        let now = self.agenda.now();
        if let Some(trace) = &mut self.trace {
            trace.action(now, "all faults end");
        }
        self.net.heal(&mut self.agenda);
        self.store.heal();
        let seats: Vec<Seat> = self.seats.iter().map(|state| state.seat).collect();
        for from in &seats {
            for to in &seats {
                self.net.congest(&mut self.agenda, *from, *to, false);
            }
            let state = self.seat_mut(*from);
            state.traps.clear();
            if let Some(epoch) = state.paused {
                self.agenda.after(0, Happening::Resume(*from, epoch));
            }
            let state = self.seat_mut(*from);
            if state.host.is_none() && !state.starting {
                state.starting = true;
                self.agenda.after(millis(10), Happening::Start(*from));
            }
            let run = self.seat(*from).current();
            for turn in self.seat(*from).app.hanging() {
                self.agenda.after(millis(1), Happening::TurnStep(run, turn, 0));
            }
        }
    }

    /// How long after the faults everything has to be in order again.
    fn settling(&self) -> Nanos {
        let settings = &self.run.cluster.settings;
        // A lease must run out, two scans must come by, and peers must find each other again.
        let lease = settings.owner_lease_ttl + settings.recovery_scan_interval * 3;
        let peers = settings.discovery_poll_interval * 2 + std::time::Duration::from_secs(8);
        u64::try_from((lease + peers).as_nanos()).unwrap_or(Nanos::MAX)
    }

    /// Runs the whole list: the chaos phase, the healed phase with its probes, and the final checks.
    pub fn run_to_end(&mut self) {
        self.run_until(millis(self.run.chaos_ms));
        self.finish();
    }

    /// Lets the cluster come up until `until` and then until nothing is on its way.
    pub fn come_up(&mut self, until: Nanos) {
        self.run_until(until);
        for _ in 0..500 {
            if self.choices().is_empty() {
                return;
            }
            self.run_until(self.now() + millis(1));
        }
    }

    /// Ends every fault now.
    pub fn end_faults(&mut self) {
        self.heal();
    }

    /// Whether some call has not ended or some host has work left.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.oracles.calls.open().next().is_some() || !self.all_quiet()
    }

    /// The row of a key as it is in the Store now.
    #[must_use]
    pub fn row(&mut self, key: &ObjectKey) -> Option<Box<spotmesh::store::AuthorityView>> {
        let now = self.agenda.now();
        self.store.row(key, now)
    }

    /// The healed phase with its probes, and the final checks.
    pub fn finish(&mut self) {
        if !self.violations().is_empty() {
            return;
        }
        if !self.healed {
            self.heal();
        }
        let settled_at = (self.agenda.now() + self.settling()).max(self.last_deadline());
        self.run_until(settled_at);
        if !self.violations().is_empty() {
            return;
        }
        self.check_rows_recovered();
        let probes = self.probe();
        let until = self.agenda.now() + millis(u64::from(PROBE_TIMEOUT_MS) + 1_500);
        while self.violations().is_empty() && self.agenda.now() < until {
            let step = self.agenda.now() + millis(50);
            self.run_until(step.min(until));
            if !self.is_busy() {
                break;
            }
        }
        if self.violations().is_empty() {
            self.check_probes(&probes);
            self.check_end();
        }
    }

    fn last_deadline(&self) -> Nanos {
        let open = self.oracles.calls.open().map(|call| {
            let slack = if call.asked == Asked::Shutdown { millis(7_000) } else { millis(300) };
            self.seat(call.by.seat).clock.when(call.deadline) + slack
        });
        open.max().unwrap_or(0)
    }

    pub(super) fn hosts(&self) -> impl Iterator<Item = (Seat, &Host)> {
        self.seats.iter().filter_map(|state| Some((state.seat, state.host()?)))
    }

    fn all_quiet(&self) -> bool {
        self.hosts().all(|(_, host)| host.is_quiet())
    }

    /// CREATE-153: no row is Creating for a target that is gone.
    fn check_rows_recovered(&mut self) {
        let now = self.agenda.now();
        let keys: Vec<ObjectKey> = self.oracles.rows.keys().cloned().collect();
        for key in keys {
            let Some(row) = self.store.row(&key, now) else { continue };
            if row.pending().is_none() {
                continue;
            }
            let holder = self.oracles.ownership.holder(row.owner.lease);
            if holder.is_none_or(|run| !self.is_current(run)) || !row.owner_is_live() {
                let text = format!("{key} is still Creating for {:?}, whose process is gone", row.owner.rid);
                self.oracles.verdicts.report("recovery", now, text);
            }
        }
    }

    /// Calls that must succeed now, or fail in a known way.
    fn probe(&mut self) -> Vec<(Uid, Expected)> {
        let now = self.agenda.now();
        let mut probes = Vec::new();
        let keys: Vec<ObjectKey> = self.oracles.rows.keys().cloned().collect();
        let callers: Vec<Seat> = self.callers();
        for (n, key) in keys.iter().enumerate() {
            let Some(host) = callers.get(n % callers.len().max(1)).copied() else { continue };
            let expected = match self.store.row(key, now) {
                None => Expected::Failed(ErrorKind::NotFound),
                Some(row) if row.pending().is_some() => continue,
                Some(row) if !row.owner_is_live() => Expected::Failed(ErrorKind::Unavailable),
                Some(row) if !self.shares_mesh(host, row.owner.mesh.as_str()) => continue,
                Some(_) => Expected::Replied,
            };
            let action = Action::Message {
                host,
                actor: key.id().to_owned(),
                request: true,
                timeout_ms: PROBE_TIMEOUT_MS,
                script: HandlerScript::default(),
                cancel_ms: None,
            };
            if let Some(uid) = self.call_of(&action) {
                probes.push((uid, expected));
            }
        }
        for host in callers {
            let mesh = self.seat(host).spec.nodes.iter().find(|node| node.role != ObjectRole::None);
            let Some(mesh) = mesh.map(|node| node.mesh.clone()) else { continue };
            let expected = match self.room(&mesh) {
                Some(true) => Expected::Created,
                Some(false) => Expected::CreatedIfRoom,
                None => continue,
            };
            let action = Action::Create {
                host,
                actor: format!("probe-{host}"),
                stable_type: "counter".to_owned(),
                exclusive: true,
                mesh: Some(mesh),
                timeout_ms: PROBE_TIMEOUT_MS,
                script: CreateScript::default(),
                cancel_ms: None,
            };
            if let Some(uid) = self.call_of(&action) {
                probes.push((uid, expected));
            }
        }
        probes
    }

    /// Seats whose process serves and may call objects.
    fn callers(&self) -> Vec<Seat> {
        self.hosts()
            .filter(|(seat, host)| {
                host.state() == HostState::Serving
                    && self.seat(*seat).spec.nodes.iter().any(|node| node.role != ObjectRole::None)
            })
            .map(|(seat, _)| seat)
            .collect()
    }

    fn shares_mesh(&self, seat: Seat, mesh: &str) -> bool {
        let nodes = &self.seat(seat).spec.nodes;
        nodes.iter().any(|node| node.mesh == mesh && node.role != ObjectRole::None)
    }

    /// Whether a new Actor certainly finds a place in a Mesh; `None` where nobody serves its type.
    fn room(&self, mesh: &str) -> Option<bool> {
        let mut servers = self.hosts().flat_map(|(seat, _)| &self.seat(seat).spec.nodes).filter(|node| {
            node.mesh == mesh
                && node.role == ObjectRole::Server
                && node.types.iter().any(|name| name == "counter")
        });
        let first = servers.next()?;
        // Weights change at run time, so only a cluster that never changed them gives certainty.
        let certain = |node: &crate::cluster::NodeSpec| {
            node.actor_limit == 0 && node.weight > 0 && node.pending_limit >= 16
        };
        let changed = self.run.actions.iter().any(|timed| matches!(timed.action, Action::Weight { .. }));
        Some(!changed && certain(first) && servers.all(certain))
    }

    fn check_probes(&mut self, probes: &[(Uid, Expected)]) {
        let now = self.agenda.now();
        for (uid, expected) in probes {
            let Some(call) = self.oracles.calls.get(*uid) else { continue };
            let fits = match (&call.end, expected) {
                (Some((_, End::Answered(answer))), expected) => match (answer, expected) {
                    (Answer::Replied(_), Expected::Replied) => true,
                    (Answer::Created { .. }, Expected::Created | Expected::CreatedIfRoom) => true,
                    (Answer::Failed(error), Expected::Failed(kind)) => error.kind() == *kind,
                    (Answer::Failed(error), Expected::CreatedIfRoom) => {
                        error.kind() == ErrorKind::Unavailable
                    }
                    _ => false,
                },
                _ => false,
            };
            if !fits {
                let text =
                    format!("{} {:?}: expected {expected:?}, found {:?}", call.by, call.asked, call.end);
                self.oracles.verdicts.report("healed", now, text);
            }
        }
    }
}
