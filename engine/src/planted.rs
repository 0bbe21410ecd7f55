//! Named mutants of the protocol, planted by simulations to prove that the oracles see such a bug (design §5).
//!
//! Without the feature `planted` the switch is a constant `false` and costs nothing.

use serde::{Deserialize, Serialize};

macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// One deliberate fault.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Mutant {
            $($(#[$doc])* $name),+
        }

        impl Mutant {
            /// Every mutant.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name)),+
                }
            }

            /// The mutant of a name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|mutant| mutant.name() == name)
            }
        }
    };
}

mutants! {
    /// Turns start past the local admission deadline (against STORE-34).
    IgnoresAdmissionDeadline,
    /// After a late renewal admission opens without re-reading rows (against STORE-37).
    SkipsReconciliation,
    /// A second turn starts while one runs (against MODEL-53).
    OverlapsTurns,
    /// The newest job of a lane runs first (against MODEL-54).
    ReversesLane,
    /// A message that came on a link is queued twice (against MODEL-108).
    RunsMessageTwice,
    /// A reply is delivered again after its request ended (against MODEL-103).
    AnswersTwice,
    /// A lost commit answer counts as a failure (against STORE-23).
    GuessesCommitFailed,
    /// A lost commit answer counts as success (against STORE-23).
    GuessesCommitSucceeded,
    /// The object opens before its commit is known (against CREATE-71).
    OpensBeforeCommit,
    /// A lost order goes to another target at once (against CREATE-54).
    RetargetsLostOrder,
    /// A repeated order starts a second attempt (against CREATE-58).
    RunsOrderTwice,
    /// Every third dial is never made, and its intent waits for it (against NODE-101).
    LosesDials,
    /// The pending-activation count is not given back (against CREATE-20).
    LeaksActivation,
    /// A waiter never re-reads without a hint (against STORE-113).
    WaitsForHintsOnly,
    /// An attempt still Creating is reported as `Existing` (against CREATE-32).
    ReportsCreatingAsExisting,
    /// A refused attempt is reported as `Existing` (against CREATE-5).
    ReportsRejectedAsExisting,
}
