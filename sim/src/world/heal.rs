//! The healed phase: faults end, everything promised must finish, and nothing may be left behind.

use spotmesh::host::Host;
use spotmesh::model::{ErrorKind, HostState, ObjectKey, ObjectRole};
use spotmesh::output::Answer;
use spotmesh::store::WatchScope;

use super::{Happening, World};
use crate::action::Action;
use crate::agenda::{Nanos, millis};
use crate::oracle::calls::{Asked, End};
use crate::oracle::calm;
use crate::place::{RunOf, Seat};
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

    fn hosts(&self) -> impl Iterator<Item = (Seat, &Host)> {
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

    /// Nothing is stuck and nothing leaks.
    fn check_end(&mut self) {
        let now = self.agenda.now();
        let mut found: Vec<(&'static str, String)> = Vec::new();
        for call in self.oracles.calls.open() {
            found.push(("stuck", format!("{} {:?} has no answer", call.by, call.asked)));
        }
        for state in &self.seats {
            let run = state.current();
            let Some(host) = state.host() else {
                found.push(("stuck", format!("{run} is not running")));
                continue;
            };
            if host.state() != HostState::Serving {
                found.push(("stuck", format!("{run} is {:?}", host.state())));
            }
            if !host.is_quiet() {
                found.push(("stuck", format!("{run} is not quiet: {:?}", host.poll_timeout())));
            }
            if self.oracles.turns.running(run) > 0 {
                found.push(("stuck", format!("{run} still runs a turn")));
            }
        }
        if let Err(what) = self.store.check() {
            found.push(("store", what));
        }
        found.extend(self.instances_against_rows(now));
        found.extend(self.links_against_hosts());
        found.extend(self.lost_sends());
        for state in &self.seats {
            let run = state.current();
            let watched =
                self.store.watches_of(run).filter(|scope| **scope != WatchScope::Descriptors).count();
            if watched > 0 {
                found.push(("leak", format!("{run} still watches {watched} keys")));
            }
        }
        if self.calm {
            found.extend(calm::judge(&self.run, &self.oracles).into_iter().map(|text| ("calm", text)));
        }
        for (oracle, text) in found {
            self.oracles.verdicts.report(oracle, now, text);
        }
    }

    /// Every instance kept by an application belongs to a Ready row of its host, and the other way round.
    fn instances_against_rows(&mut self, now: Nanos) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let keys: Vec<ObjectKey> = self.oracles.rows.keys().cloned().collect();
        let mut owned = Vec::new();
        for key in keys {
            if let Some(row) = self.store.row(&key, now)
                && let Some(run) = self.oracles.ownership.holder(row.owner.lease)
                && self.is_current(run)
            {
                owned.push((run, key, row.object_generation));
            }
        }
        for state in self.seats.iter().filter(|state| state.host.is_some()) {
            let run = state.current();
            let kept: Vec<_> = self
                .oracles
                .turns
                .kept(run)
                .map(|(key, generation)| (run, key.clone(), generation))
                .collect();
            if let Some(host) = state.host().filter(|host| host.object_count() != kept.len()) {
                let text =
                    format!("{run} knows {} objects and keeps {} instances", host.object_count(), kept.len());
                found.push(("leak", text));
            }
            for entry in &kept {
                if !owned.contains(entry) {
                    found.push(("leak", format!("{run} keeps an instance of {} without its row", entry.1)));
                }
            }
            for entry in owned.iter().filter(|entry| entry.0 == run) {
                if !kept.contains(entry) {
                    found.push(("leak", format!("{run} owns {} without an instance", entry.1)));
                }
            }
        }
        found
    }

    /// A send that was admitted was handled, unless something it was held by ended: a process, its link, or
    /// the object, of which an observer was told.
    fn lost_sends(&self) -> Vec<(&'static str, String)> {
        let mut lost: std::collections::BTreeMap<(RunOf, ObjectKey), (u64, String)> = Default::default();
        for call in self.oracles.calls.iter() {
            let Asked::Message { key, request: false, .. } = &call.asked else { continue };
            let admitted = matches!(call.end, Some((_, End::Answered(Answer::Sent))));
            if !admitted || self.oracles.messages.ran(call.uid).is_some() || !self.is_current(call.by) {
                continue;
            }
            let holder = match self.oracles.messages.link_of(call.uid) {
                None => call.by,
                Some(link) => match self.net.up_to(call.by, link) {
                    Some(peer) if self.is_current(peer) => peer,
                    _ => continue,
                },
            };
            let text =
                format!("{:?} of {} to {key} was admitted and never handled by {holder}", call.uid, call.by);
            let entry = lost.entry((holder, key.clone())).or_insert((0, text));
            entry.0 += 1;
        }
        lost.retain(|(holder, key), (count, _)| *count > self.oracles.hosts.dropped(*holder, key));
        lost.into_values().map(|(_, text)| ("lost", text)).collect()
    }

    /// One link a pair of nodes, and only between processes that run.
    fn links_against_hosts(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let mut pairs = std::collections::BTreeSet::new();
        for (a, b) in self.net.links() {
            let pair = if a < b { (a, b) } else { (b, a) };
            if !pairs.insert(pair) {
                found.push(("leak", format!("{} and {} keep more than one link", a.run, b.run)));
            }
        }
        for (seat, host) in self.hosts() {
            for view in host.nodes() {
                for (other, peer) in self.hosts() {
                    for there in peer.nodes().filter(|there| there.mesh == view.mesh && other != seat) {
                        let roles = [self.role(seat, &view.mesh), self.role(other, &view.mesh)];
                        let needed = roles != [Some(ObjectRole::Client); 2];
                        if needed && !view.ready_peers.contains(&there.rid) {
                            found.push(("peers", format!("{seat} has no ready connection to {other}")));
                        }
                    }
                }
            }
        }
        found
    }

    fn role(&self, seat: Seat, mesh: &spotmesh::model::MeshName) -> Option<ObjectRole> {
        self.seat(seat).spec.nodes.iter().find(|node| node.mesh == mesh.as_str()).map(|node| node.role)
    }
}
