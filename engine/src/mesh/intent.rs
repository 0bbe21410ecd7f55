//! The wish to stay connected to one peer (spec 02 §12).

use std::time::Duration;

use serde::Serialize;

use crate::link::{DialId, LinkId};
use crate::model::limits::{REDIAL_FIRST, REDIAL_MAX};
use crate::model::{Entropy, Instant, LifecycleGeneration, Rid, SecurityIdentity};

/// Who registered an intent, once per peer (NODE-96).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub(crate) enum IntentKey {
    /// The application, in Manual mode: known by the endpoint it named.
    Application(String),
    /// The automatic-connect component, from a descriptor.
    Discovered(Rid),
}

/// Where to dial and who must answer (NODE-97).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct Target {
    pub(crate) endpoint: String,
    pub(crate) rid: Option<Rid>,
    pub(crate) lifecycle: Option<LifecycleGeneration>,
    pub(crate) identity: Option<SecurityIdentity>,
}

/// One intent. A removed intent is not a state: it is gone from its owner's map (NODE-100).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct Intent {
    pub(crate) target: Target,
    /// Whether this side dials at all; otherwise the peer does (NODE-72).
    pub(crate) dials: bool,
    /// The RID that answered the last handshake, where the target names none.
    pub(crate) learned: Option<Rid>,
    /// Attempts refused since the last admission.
    pub(crate) failures: u32,
    pub(crate) state: IntentState,
}

/// Where an intent stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub(crate) enum IntentState {
    /// Not connected. `redial` is when the next attempt starts; `None` waits for the peer or for admission.
    Idle { redial: Option<Instant> },
    /// One attempt runs; `link` is its connection once the transport is up.
    Dialling { dial: DialId, link: Option<LinkId> },
    /// The peer is admitted on `link`; `dial` is the registration behind it where this intent dialled it.
    Linked { link: LinkId, dial: Option<DialId> },
    /// The handshake found that the pair needs no connection (NODE-76).
    NotRequired,
}

/// What happens to an intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum IntentEvent {
    /// Reconciliation wants an attempt now.
    Reconciled { dial: DialId },
    /// The own dial's transport is up.
    Up { link: LinkId },
    /// The peer is admitted on `link`, which the intent's own `dial` made, or another.
    Admitted { link: LinkId, dial: Option<DialId> },
    /// The own attempt ended without admission.
    Refused { redial: Option<Instant> },
    /// The admitted connection ended.
    Lost { redial: Option<Instant> },
    /// A handshake found the pair not required.
    PairNotRequired,
    /// The host admits no peers any more.
    Suspended,
    /// The owner takes the wish back.
    Removed,
}

/// What an intent wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum IntentAct {
    Dial(DialId),
    DropDial(DialId),
    /// Close the connection the dropped dial made.
    Close(LinkId),
}

/// What became of the intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Fate {
    Kept,
    Gone,
}

/// A pair of state and event that the protocol excludes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Defect {
    pub(crate) state: &'static str,
    pub(crate) event: &'static str,
}

impl Intent {
    pub(crate) fn new(target: Target, dials: bool) -> Self {
        Self { target, dials, learned: None, failures: 0, state: IntentState::Idle { redial: None } }
    }

    /// The peer, as far as it is known.
    pub(crate) fn peer(&self) -> Option<&Rid> {
        self.target.rid.as_ref().or(self.learned.as_ref())
    }

    /// The dial registration that must not outlive the intent.
    pub(crate) fn dial(&self) -> Option<DialId> {
        match self.state {
            IntentState::Dialling { dial, .. } => Some(dial),
            IntentState::Linked { dial, .. } => dial,
            IntentState::Idle { .. } | IntentState::NotRequired => None,
        }
    }

    /// One line per arrow of the diagram in §12; the last arm is what cannot happen.
    pub(crate) fn on(&mut self, event: IntentEvent, acts: &mut Vec<IntentAct>) -> Result<Fate, Defect> {
        use {IntentEvent as E, IntentState as S};
        self.state = match (self.state, event) {
            (S::Idle { .. }, E::Reconciled { dial }) => {
                acts.push(IntentAct::Dial(dial));
                S::Dialling { dial, link: None }
            }
            (S::Idle { .. }, E::Admitted { link, dial: None }) => self.linked(link, None),
            (S::Idle { .. }, E::PairNotRequired) => S::NotRequired,
            (S::Idle { .. }, E::Suspended) => S::Idle { redial: None },
            (S::Idle { .. }, E::Removed) => return Ok(Fate::Gone),

            (S::Dialling { dial, link: None }, E::Up { link }) => S::Dialling { dial, link: Some(link) },
            (S::Dialling { dial, .. }, E::Admitted { link, dial: Some(own) }) if own == dial => {
                self.linked(link, Some(dial))
            }
            // The peer came in another way. The attempt goes on: NODE-85 says which connection stays.
            (state @ S::Dialling { .. }, E::Admitted { .. }) => state,
            (S::Dialling { .. }, E::Refused { redial }) => {
                self.failures = self.failures.saturating_add(1);
                S::Idle { redial }
            }
            (S::Dialling { dial, link }, E::PairNotRequired) => {
                drop_dial(dial, link, acts);
                S::NotRequired
            }
            (S::Dialling { dial, link }, E::Suspended) => {
                drop_dial(dial, link, acts);
                S::Idle { redial: None }
            }
            (S::Dialling { dial, link }, E::Removed) => {
                drop_dial(dial, link, acts);
                return Ok(Fate::Gone);
            }

            (S::Linked { .. }, E::Lost { redial }) => S::Idle { redial },
            (state @ S::Linked { .. }, E::PairNotRequired | E::Suspended) => state,
            (S::Linked { link, dial }, E::Removed) => {
                // An inbound connection stays (NODE-98); only what this wish dialled goes with it.
                if let Some(dial) = dial {
                    drop_dial(dial, Some(link), acts);
                }
                return Ok(Fate::Gone);
            }

            // Not retried until endpoint, expected RID or configuration change, which makes a new intent.
            (S::NotRequired, E::Admitted { dial: None, .. } | E::PairNotRequired | E::Suspended) => {
                S::NotRequired
            }
            (S::NotRequired, E::Removed) => return Ok(Fate::Gone),

            (state, event) => return Err(Defect { state: state.name(), event: event.name() }),
        };
        Ok(Fate::Kept)
    }

    fn linked(&mut self, link: LinkId, dial: Option<DialId>) -> IntentState {
        self.failures = 0;
        IntentState::Linked { link, dial }
    }

    /// How long to wait before the next attempt after `failures` refused ones (NODE-105).
    ///
    /// The wait doubles from 100 ms to 5 s; jitter only shortens it, by up to 20 %, so that 5 s is the most.
    pub(crate) fn redial_wait(failures: u32, entropy: &mut Entropy) -> Duration {
        // 100 ms shifted six times is past 5 s already.
        let wait = REDIAL_FIRST.saturating_mul(1 << failures.min(6)).min(REDIAL_MAX);
        let fifth = u64::try_from(wait.as_nanos() / 5).unwrap_or(u64::MAX);
        wait.saturating_sub(Duration::from_nanos(entropy.below(fifth.saturating_add(1))))
    }
}

fn drop_dial(dial: DialId, link: Option<LinkId>, acts: &mut Vec<IntentAct>) {
    acts.push(IntentAct::DropDial(dial));
    acts.extend(link.map(IntentAct::Close));
}

impl IntentState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Idle { .. } => "Idle",
            Self::Dialling { .. } => "Dialling",
            Self::Linked { .. } => "Linked",
            Self::NotRequired => "NotRequired",
        }
    }
}

impl IntentEvent {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reconciled { .. } => "Reconciled",
            Self::Up { .. } => "Up",
            Self::Admitted { .. } => "Admitted",
            Self::Refused { .. } => "Refused",
            Self::Lost { .. } => "Lost",
            Self::PairNotRequired => "PairNotRequired",
            Self::Suspended => "Suspended",
            Self::Removed => "Removed",
        }
    }
}
