//! The end of a run: every call answered, every host in order, nothing left behind.

use spotmesh::model::{HostState, ObjectKey, ObjectRole};
use spotmesh::output::Answer;
use spotmesh::store::WatchScope;

use super::World;
use crate::agenda::Nanos;
use crate::oracle::calls::{Asked, End};
use crate::oracle::calm;
use crate::place::{RunOf, Seat};

impl World {
    /// Nothing is stuck and nothing leaks.
    pub(super) fn check_end(&mut self) {
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
