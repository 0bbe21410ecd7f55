//! Recovery scans of this host (CREATE-90..97).

use crate::creation::{Attempt, RecoveryEffect, RecoveryEvent};
use crate::host::store_calls::StoreUse;
use crate::host::{Host, TimerKey};
use crate::mark::Mark;
use crate::store::{AuthorityView, StoreResult};

impl Host {
    pub(in crate::host) fn recovery_event(&mut self, event: RecoveryEvent) {
        let mut effects = Vec::new();
        let lease = self.lease.lease().filter(|_| self.lease.admits(self.now));
        self.recovery.on(event, self.now, lease, &mut self.entropy, &mut effects);
        for effect in effects {
            match effect {
                RecoveryEffect::Call(request) => {
                    self.call_store(StoreUse::Recovery, request);
                }
                RecoveryEffect::SetTimer(at) => self.timers.set(TimerKey::Recovery, at),
                RecoveryEffect::Adopt(row) => self.adopt(&row),
                RecoveryEffect::Mark(mark) => self.mark(mark),
            }
        }
    }

    pub(in crate::host) fn recovery_timer(&mut self) {
        self.recovery_event(RecoveryEvent::TimerFired);
    }

    pub(in crate::host) fn recovery_answered(&mut self, result: StoreResult) {
        self.recovery_event(RecoveryEvent::StoreAnswered(result));
    }

    /// CREATE-93: as if the order had arrived.
    fn adopt(&mut self, row: &AuthorityView) {
        let (Some(fence), Some(pending)) = (row.reservation_fence(), row.pending()) else { return };
        let Some(node) = self.own_node(&row.owner.rid, row.owner.lifecycle) else { return };
        if self.attempts.contains_key(&fence.reservation) {
            return;
        }
        let operation = pending.operation.clone();
        let mut attempt = Attempt::new(fence, operation, row.kind, row.stable_type.clone(), node, None);
        // What was refused here before execution is ended by the same word, never taken up after all.
        attempt.refused = self.refused.remove(&attempt.fence.reservation).is_some();
        if !attempt.refused {
            self.mark(Mark::AttemptAdopted);
        }
        self.begin_attempt(attempt);
    }
}
