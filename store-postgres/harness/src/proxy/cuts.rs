use std::sync::Mutex;

use tokio::sync::watch;

use crate::server::lock;

/// Where in an operation a connection is cut.
///
/// An operation here is what a connection sends from the moment nothing is unanswered until everything is answered
/// again: a statement, a step of a transaction, or a pipelined transaction as a whole. Logging in is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// The operation's first message is dropped: the server never sees the operation, and rolls back an open
    /// transaction.
    BeforeSend,
    /// The operation is with the server, which has begun to answer; nothing of the answer is passed on. The server
    /// executes what has arrived.
    AfterSend,
    /// The server has committed an explicit transaction (it said `COMMIT`); this and what follows is not passed on.
    AfterCommit,
    /// The operation is answered wholly, and the first half of the answer's bytes is passed on.
    MidReply,
}

impl Phase {
    /// Every phase, in the order of an operation.
    pub const ALL: [Phase; 4] = [Phase::BeforeSend, Phase::AfterSend, Phase::AfterCommit, Phase::MidReply];
}

/// Which cuts are to come, over all connections, and how many were made.
#[derive(Debug)]
pub(super) struct Cuts {
    armed: Mutex<[Armed; 4]>,
    made: watch::Sender<[u64; 4]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Armed {
    spare: u64,
    cut: u64,
}

impl Cuts {
    pub(super) fn new() -> Cuts {
        Cuts { armed: Mutex::default(), made: watch::Sender::new([0; 4]) }
    }

    /// Spares the next `spare` chances of the phase, then cuts `cut` times. Replaces what was armed for the phase.
    pub(super) fn arm(&self, phase: Phase, spare: u64, cut: u64) {
        lock(&self.armed)[phase as usize] = Armed { spare, cut };
    }

    pub(super) fn disarm(&self) {
        *lock(&self.armed) = Default::default();
    }

    /// There is a chance to cut in this phase: whether to take it.
    pub(super) fn take(&self, phase: Phase) -> bool {
        let armed = &mut lock(&self.armed)[phase as usize];
        match armed {
            Armed { cut: 0, .. } => false,
            Armed { spare: 0, cut } => {
                *cut -= 1;
                true
            }
            Armed { spare, .. } => {
                *spare -= 1;
                false
            }
        }
    }

    /// A cut that was taken has been made: its client's connection is closed.
    pub(super) fn count(&self, phase: Phase) {
        self.made.send_modify(|made| made[phase as usize] += 1);
    }

    pub(super) fn made(&self, phase: Phase) -> u64 {
        self.made.borrow()[phase as usize]
    }

    /// Waits until `total` cuts of the phase were made.
    pub(super) async fn until(&self, phase: Phase, total: u64) {
        // The sender is in `self`, so the wait cannot end in an error.
        let _ = self.made.subscribe().wait_for(|made| made[phase as usize] >= total).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_armed_phase_spares_then_cuts_then_rests() {
        let cuts = Cuts::new();
        cuts.arm(Phase::AfterSend, 2, 3);
        let taken: Vec<_> = (0..7).map(|_| cuts.take(Phase::AfterSend)).collect();
        assert_eq!(taken, [false, false, true, true, true, false, false]);
        assert!(!cuts.take(Phase::BeforeSend), "the other phases are not armed");
        for phase in Phase::ALL {
            cuts.arm(phase, 0, 1);
        }
        cuts.disarm();
        assert!(!Phase::ALL.iter().any(|phase| cuts.take(*phase)));
    }
}
