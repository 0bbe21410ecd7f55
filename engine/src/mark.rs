//! `sometimes!` marks: rare branches that a green run must have reached.
//!
//! The core sets a bit when it passes such a branch; the explorer adds the bits of all seeds up and reports
//! marks never hit, so that a run in which nothing happened cannot look green (design §5).

use serde::{Deserialize, Serialize};

macro_rules! marks {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// A branch worth reaching.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Mark {
            $($(#[$doc])* $name),+
        }

        impl Mark {
            /// Every mark, in order.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name)),+
                }
            }
        }
    };
}

marks! {
    /// A renewal arrived after the lease had expired (STORE-36).
    LeaseRenewedPastExpiry,
    /// The lease was fenced by somebody else (STORE-38).
    LeaseLost,
    /// Rows were re-read before admission opened again (STORE-37).
    LeaseReconciled,
    /// A turn waited because the local admission deadline had passed (STORE-34).
    TurnHeldBack,
    /// A startup step failed and was undone (NODE-62).
    StartupUndone,
    /// A claim met a live claim (NODE-15).
    ClaimConflict,
    /// CREATE-26.
    CreateRecordReplayed,
    /// CREATE-27.
    CreateExisting,
    /// CREATE-28.
    CreateOwnerDead,
    /// CREATE-29.
    CreateTypeMismatch,
    /// CREATE-31, CREATE-32.
    CreateWaited,
    /// CREATE-33.
    CreateOwnReservationFound,
    /// CREATE-34, CREATE-84.
    CreateCleanedByCoordinator,
    /// CREATE-36.
    CreateStoreFailure,
    /// CREATE-38.
    CreateNoCandidate,
    /// CREATE-40.
    CreateCandidateExcluded,
    /// CREATE-41.
    CreateReserveLost,
    /// CREATE-42.
    CreateReserveIndeterminate,
    /// CREATE-43.
    CreateLocalTarget,
    /// CREATE-44.
    CreateRemoteTarget,
    /// CREATE-45.
    CreateWaitedForRoute,
    /// CREATE-46.
    CreateWithdrawn,
    /// CREATE-48.
    CreateOrderResent,
    /// CREATE-49.
    CreateReservationGone,
    /// CREATE-50.
    CreateDeadlineBeforeOrder,
    /// CREATE-51.
    CreateDeadlineAfterOrder,
    /// CREATE-52.
    CreateCancelled,
    /// CREATE-58.
    AttemptJoined,
    /// CREATE-59.
    AttemptAnsweredFromRecord,
    /// CREATE-60.
    AttemptReservationGone,
    /// CREATE-61.
    AttemptStaleFence,
    /// CREATE-62.
    AttemptNotAdmitted,
    /// CREATE-63.
    AttemptContentLost,
    /// CREATE-66.
    AttemptRejected,
    /// CREATE-67.
    AttemptFailed,
    /// CREATE-68.
    AttemptTimedOut,
    /// CREATE-71.
    AttemptSettled,
    /// CREATE-72, own result was recorded.
    AttemptFoundOwnResult,
    /// CREATE-73.
    AttemptDiscarded,
    /// CREATE-93, adopted.
    AttemptAdopted,
    /// CREATE-93, past its deadline.
    AttemptAdoptionRefused,
    /// A message reached an attempt between its commit and its opening.
    MessageHeldForOpening,
    /// CREATE-90.
    RecoveryRemovedRow,
    /// CREATE-97.
    RecoveryLostRace,
    /// A cached route served a message.
    RouteCacheHit,
    /// A stale route was answered (MODEL-126).
    RouteStale,
    /// A message waited behind an older resolution of its key (MODEL-115).
    ResolutionShared,
    /// A request's link broke before its reply.
    RequestLinkLost,
    /// A request's deadline passed before its reply.
    RequestTimedOut,
    /// A reply came for a request that had ended (MODEL-103).
    ReplyTooLate,
    /// A job's deadline passed in the queue.
    JobExpired,
    /// A full lane made a submitter wait (MODEL-59).
    LaneFull,
    /// A congested link held a message back.
    LinkCongested,
    /// A duplicate connection was closed (NODE-85).
    PeerDuplicate,
    /// A redial replaced a half-open connection (NODE-85).
    PeerReplaced,
    /// The liveness deadline ended a connection (NODE-109).
    PeerDead,
    /// A peer returned under another lifecycle (NODE-87).
    PeerReturned,
    /// An admission was refused.
    PeerRefused,
    /// A removed intent's late link was closed (NODE-100).
    PeerLateLink,
    /// A listing's change stamp moved between its pages (spec 03 §6).
    ListingRetried,
    /// An absent node kept its intent after a Store recovery (STORE-126).
    IntentKeptInGrace,
    /// Shutdown ended in order.
    ShutdownCompleted,
    /// Shutdown gave something up (HOST-2).
    ShutdownForced,
}

impl Mark {
    /// Whether the standard corpus of the explorer must reach the mark.
    #[must_use]
    pub const fn required(self) -> bool {
        // These need more members, pages or coincidence than the standard corpus promises to draw.
        !matches!(
            self,
            Self::ListingRetried
                | Self::LaneFull
                | Self::LinkCongested
                | Self::CreateOwnReservationFound
                | Self::AttemptFoundOwnResult
                | Self::ClaimConflict
                | Self::StartupUndone
                | Self::PeerReturned
                | Self::AttemptContentLost
                | Self::AttemptStaleFence
                | Self::PeerLateLink
                | Self::IntentKeptInGrace
        )
    }
}

/// A set of marks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Marks(u128);

const _: () = assert!(Mark::ALL.len() <= 128);

impl Marks {
    /// Adds a mark.
    pub fn hit(&mut self, mark: Mark) {
        self.0 |= 1 << mark as u32;
    }

    /// Whether the mark was hit.
    #[must_use]
    pub const fn contains(self, mark: Mark) -> bool {
        self.0 & (1 << mark as u32) != 0
    }

    /// The marks hit.
    pub fn iter(self) -> impl Iterator<Item = Mark> {
        Mark::ALL.iter().copied().filter(move |mark| self.contains(*mark))
    }
}

impl std::ops::BitOrAssign for Marks {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_add_up() {
        let mut a = Marks::default();
        a.hit(Mark::LeaseLost);
        let mut b = Marks::default();
        b.hit(Mark::ShutdownForced);
        a |= b;
        assert_eq!(a.iter().collect::<Vec<_>>(), [Mark::LeaseLost, Mark::ShutdownForced]);
    }
}
