//! Invariants of a host's tables. The simulator asks after every step.

use std::fmt;

use super::object::Running;
use super::{Host, TimerKey};

/// An invariant that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation(String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Violation {}

impl Host {
    /// Checks that the tables agree with one another.
    ///
    /// # Errors
    /// The first [`Violation`] found.
    pub fn check_invariants(&self) -> Result<(), Violation> {
        let ensure = |holds: bool, what: &dyn Fn() -> String| {
            if holds { Ok(()) } else { Err(Violation(what())) }
        };
        for (at, node) in self.nodes.iter().enumerate() {
            node.peers().check().map_err(|found| Violation(format!("peers of node {at}: {found}")))?;
            let accepted =
                self.attempts.values().filter(|a| usize::from(a.node.0) == at && a.accepted).count();
            ensure(accepted == node.pending_activations as usize, &|| {
                format!("node {at}: {accepted} accepted attempts, {} counted", node.pending_activations)
            })?;
        }
        for (operation, coordinator) in &self.coordinators {
            ensure(!coordinator.is_done(), &|| format!("operation {operation:?} is done and kept"))?;
            ensure(self.create_calls.get(&coordinator.call) == Some(operation), &|| {
                format!("operation {operation:?} in {} has no call", coordinator.state_name())
            })?;
            ensure(self.timers.is_set(&TimerKey::Create(*operation)), &|| {
                format!("operation {operation:?} has no deadline")
            })?;
            let watched = self.watchers.get(&coordinator.spec.key).is_some_and(|all| all.contains(operation));
            ensure(watched == coordinator.is_watching(), &|| {
                format!("operation {operation:?}: watch {watched}")
            })?;
        }
        ensure(self.create_calls.len() == self.coordinators.len(), &|| {
            "calls of ended operations".to_owned()
        })?;
        for (reservation, attempt) in &self.attempts {
            ensure(!attempt.is_done(), &|| format!("attempt {reservation:?} is done and kept"))?;
            if let Some(turn) = attempt.turn() {
                ensure(self.turns.get(&turn) == Some(&Running::Create(*reservation)), &|| {
                    format!("attempt {reservation:?} in {} has no turn", attempt.state_name())
                })?;
            }
        }
        for (call, found) in &self.calls {
            let set = self.call_deadlines.contains(&(found.deadline, *call));
            ensure(set, &|| format!("{call:?} has no deadline"))?;
            ensure(found.deadline >= crate::model::Instant::ZERO, &|| format!("{call:?}"))?;
        }
        let (set, calls) = (self.call_deadlines.len(), self.calls.len());
        ensure(set == calls, &|| format!("{calls} calls with {set} deadlines"))?;
        for call in self.routes.pending.values() {
            ensure(self.calls.contains_key(call), &|| format!("a reply is awaited for ended {call:?}"))?;
        }
        for (link, _) in self.routes.pending.keys() {
            ensure(self.links.contains_key(link), &|| format!("replies are awaited on lost {link:?}"))?;
        }
        let busy = self.objects.iter().filter(|object| !object.is_idle()).count();
        ensure(busy == self.objects.busy(), &|| {
            format!("{busy} busy objects, {} counted", self.objects.busy())
        })?;
        for key in self.timers.keys() {
            let owned = match key {
                TimerKey::StoreCall(call) => self.store_calls.contains_key(call),
                TimerKey::Create(operation) | TimerKey::CreateBackoff(operation) => {
                    self.coordinators.contains_key(operation)
                }
                TimerKey::Attempt(reservation) | TimerKey::AttemptBackoff(reservation) => {
                    self.attempts.contains_key(reservation)
                }
                // Those of calls are not in this set.
                TimerKey::Call(_) => false,
                _ => true,
            };
            ensure(owned, &|| format!("a timer without an owner: {key:?}"))?;
        }
        for call in self.store_calls.keys() {
            ensure(self.timers.is_set(&TimerKey::StoreCall(*call)), &|| format!("{call:?} has no timeout"))?;
        }
        Ok(())
    }
}
