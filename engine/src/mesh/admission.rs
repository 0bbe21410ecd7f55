//! The handshake of one link: Hello both ways, the checks of NODE-83, Welcome both ways (spec 02 §11).

use serde::Serialize;

use super::intent::Target;
use super::liveness::Liveness;
use super::local::LocalNode;
use super::peers::RouteGeneration;
use crate::link::ProvenPeer;
use crate::model::{HostState, Instant, LifecycleGeneration, Rid, RoutingMode, SecurityIdentity};
use crate::wire::{Hello, Refusal};

/// Where a link's handshake stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(crate) enum Admission {
    /// Our Hello is sent; the peer's has not arrived.
    AwaitingHello,
    /// Another generation of the RID is known and NODE-87 does not hold yet; nothing is promised to the peer.
    Held {
        hello: Box<Hello>,
        /// The peer's Welcome came already.
        welcomed: bool,
    },
    /// We admitted the peer and said so; it has not answered yet.
    AwaitingWelcome { hello: Box<Hello> },
    /// Admitted on both sides: the selected route of the RID.
    Ready(Box<ReadyLink>),
}

/// A ready connection and what its peer states.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct ReadyLink {
    /// The peer's Hello, with the updates applied since (NODE-113).
    pub(crate) hello: Hello,
    pub(crate) route: RouteGeneration,
    pub(crate) liveness: Liveness,
}

/// What happens to a handshake.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum AdmissionEvent {
    /// The peer's Hello, with the verdict of the checks.
    Hello(Box<Hello>, Verdict),
    /// The peer admitted us.
    Welcome,
    /// The peer refuses this connection.
    Refused(Refusal),
    /// Any message that only a ready connection carries.
    Traffic,
    /// The checks ran again for a held link.
    Rejudged(Verdict),
    /// The handshake took too long.
    TimedOut,
    /// A better connection of the same RID took over.
    Superseded,
}

/// Result of the checks of NODE-83.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Verdict {
    Admit,
    /// Check 8.
    Hold,
    Refuse(Refused),
}

/// A refusal with what was expected and found, for the local report.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Refused {
    pub(crate) refusal: Refusal,
    pub(crate) why: String,
}

/// What the owner of the link has to do after a move.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Act {
    Nothing,
    /// Say Welcome: the link is the candidate for the RID's route now.
    Welcome,
    /// The link is ready. `welcome` says whether our Welcome is still to be sent.
    Ready {
        welcome: bool,
    },
    /// Tell the peer and close.
    Refuse(Refused),
    /// The peer refused; close.
    RefusedByPeer(Refusal),
    /// No end of the handshake in time; close.
    TimedOut,
    /// The peer broke the protocol; close and say what was found.
    Violated(&'static str),
    /// A pair that cannot happen.
    Defect(&'static str),
}

impl Admission {
    /// One line per row of the table in the tests. `None` means the link is over.
    pub(crate) fn on(
        self,
        event: AdmissionEvent,
        now: Instant,
        next_route: RouteGeneration,
    ) -> (Option<Self>, Act) {
        use {Admission as S, AdmissionEvent as E};
        let ready = |hello: Box<Hello>| {
            let liveness = Liveness::new(now);
            Some(S::Ready(Box::new(ReadyLink { hello: *hello, route: next_route, liveness })))
        };
        match (self, event) {
            (_, E::Refused(refusal)) => (None, Act::RefusedByPeer(refusal)),
            (S::AwaitingHello, E::Hello(hello, Verdict::Admit)) => {
                (Some(S::AwaitingWelcome { hello }), Act::Welcome)
            }
            (S::AwaitingHello, E::Hello(hello, Verdict::Hold)) => {
                (Some(S::Held { hello, welcomed: false }), Act::Nothing)
            }
            (S::AwaitingHello, E::Hello(_, Verdict::Refuse(refused))) => (None, Act::Refuse(refused)),
            (_, E::Hello(..)) => (None, Act::Violated("a second Hello")),

            (S::AwaitingHello, E::Welcome) => (None, Act::Violated("Welcome before Hello")),
            (S::Held { hello, welcomed: false }, E::Welcome) => {
                (Some(S::Held { hello, welcomed: true }), Act::Nothing)
            }
            (S::AwaitingWelcome { hello }, E::Welcome) => (ready(hello), Act::Ready { welcome: false }),
            (_, E::Welcome) => (None, Act::Violated("a second Welcome")),

            (S::Ready(link), E::Traffic) => (Some(S::Ready(link)), Act::Nothing),
            (_, E::Traffic) => (None, Act::Violated("a message before the handshake's end")),

            (S::Held { hello, welcomed: true }, E::Rejudged(Verdict::Admit)) => {
                (ready(hello), Act::Ready { welcome: true })
            }
            (S::Held { hello, .. }, E::Rejudged(Verdict::Admit)) => {
                (Some(S::AwaitingWelcome { hello }), Act::Welcome)
            }
            (state @ S::Held { .. }, E::Rejudged(Verdict::Hold)) => (Some(state), Act::Nothing),
            (S::Held { .. }, E::Rejudged(Verdict::Refuse(refused))) => (None, Act::Refuse(refused)),

            // The peer redials, and by then a listing may agree.
            (S::Held { .. }, E::TimedOut) => (None, Act::Refuse(held())),
            (S::AwaitingHello | S::AwaitingWelcome { .. }, E::TimedOut) => (None, Act::TimedOut),

            (S::AwaitingWelcome { .. } | S::Ready(_), E::Superseded) => (None, Act::Refuse(duplicate())),

            (state, E::Rejudged(_)) => (Some(state), Act::Defect("Rejudged")),
            (state, E::TimedOut) => (Some(state), Act::Defect("TimedOut")),
            (state, E::Superseded) => (Some(state), Act::Defect("Superseded")),
        }
    }

    /// What the peer states, once its Hello passed the checks up to 7.
    pub(crate) fn hello(&self) -> Option<&Hello> {
        match self {
            Self::AwaitingHello => None,
            Self::Held { hello, .. } | Self::AwaitingWelcome { hello } => Some(hello),
            Self::Ready(link) => Some(&link.hello),
        }
    }

    pub(crate) fn ready(&self) -> Option<&ReadyLink> {
        match self {
            Self::Ready(link) => Some(link),
            _ => None,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::AwaitingHello => "AwaitingHello",
            Self::Held { .. } => "Held",
            Self::AwaitingWelcome { .. } => "AwaitingWelcome",
            Self::Ready(_) => "Ready",
        }
    }
}

fn held() -> Refused {
    refused(Refusal::Held, "another generation of this RID is known and did not give way in time".to_owned())
}

fn duplicate() -> Refused {
    refused(Refusal::Duplicate, "another connection is the selected route".to_owned())
}

fn refused(refusal: Refusal, why: String) -> Refused {
    Refused { refusal, why }
}

/// Preference among connections of one lifecycle pair; the larger one stays (NODE-85).
///
/// Both ends compute the same rank of a connection, because both know who dialled it and by which attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub(crate) struct Rank {
    dialled_by_smaller_rid: bool,
    attempt: u64,
}

impl Rank {
    /// Rank of a connection between `local` and the sender of `hello`, dialled by `local` as `own_attempt` or
    /// by the sender.
    pub(crate) fn of(local: &Rid, hello: &Hello, own_attempt: Option<u64>) -> Self {
        match own_attempt {
            Some(attempt) => Self { dialled_by_smaller_rid: *local < hello.rid, attempt },
            None => Self { dialled_by_smaller_rid: hello.rid < *local, attempt: hello.attempt },
        }
    }
}

/// The connection that stands for the RID now: admitted, or about to be.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Current {
    pub(crate) lifecycle: LifecycleGeneration,
    pub(crate) identity: SecurityIdentity,
    pub(crate) rank: Rank,
}

/// What the checks compare a Hello with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Circumstances<'a> {
    /// Whether peer admission was opened (startup step 5).
    pub(crate) opened: bool,
    pub(crate) proven: &'a ProvenPeer,
    /// Target of the intent that dialled this link; `None` on an inbound link.
    pub(crate) dialled: Option<&'a Target>,
    /// Lifecycle and identity of the RID's descriptor in the listing in force.
    pub(crate) listed: Option<(LifecycleGeneration, &'a SecurityIdentity)>,
    /// Whether an intent for this peer lives.
    pub(crate) intended: bool,
    pub(crate) current: Option<Current>,
    pub(crate) rank: Rank,
}

/// Whether a host in this state admits peers (check 1). `None` means yes.
pub(crate) fn closed(opened: bool, state: HostState) -> Option<Refusal> {
    match state {
        HostState::Draining | HostState::Stopped | HostState::Error => Some(Refusal::ShuttingDown),
        _ if !opened => Some(Refusal::NotReady),
        HostState::Preparing | HostState::Serving | HostState::Relocating | HostState::Relocated => None,
    }
}

/// The checks of NODE-83, in their order; the first that fails decides.
pub(crate) fn judge(local: &LocalNode, hello: &Hello, at: &Circumstances<'_>) -> Verdict {
    let refuse = |refusal, why| Verdict::Refuse(refused(refusal, why));
    // 1: the host still admits peers.
    if let Some(refusal) = closed(at.opened, local.host_state) {
        return refuse(refusal, format!("this host admits no peers in state {:?}", local.host_state));
    }
    // 2: protocol and capabilities.
    if hello.protocol != local.protocol {
        let why = format!("protocol: expected {}, found {}", local.protocol, hello.protocol);
        return refuse(Refusal::Incompatible, why);
    }
    let missing = hello.required_capabilities & !local.capabilities;
    if missing != 0 {
        return refuse(
            Refusal::Incompatible,
            format!("the peer requires capabilities {missing:#x}, not here"),
        );
    }
    // 3: MeshName.
    if hello.mesh != local.mesh {
        return refuse(
            Refusal::WrongMesh,
            format!("MeshName: expected {}, found {}", local.mesh, hello.mesh),
        );
    }
    // 4: trust profile.
    if hello.trust_profile != local.trust_profile {
        let why = format!("trust profile: expected {}, found {}", local.trust_profile, hello.trust_profile);
        return refuse(Refusal::TrustProfile, why);
    }
    // 5: one's own RID (NODE-73).
    if hello.rid == local.rid {
        return refuse(Refusal::OwnRid, format!("RID {} is the local one", hello.rid));
    }
    // 6: what transport, intent or descriptor expect.
    if let Some(why) = unexpected(hello, at) {
        return refuse(Refusal::Unexpected, why);
    }
    // 7: the pair needs a connection.
    if !local.needs(hello.role, !hello.channels.is_empty()) {
        return refuse(Refusal::NotRequired, "two Object Clients without a Channel Server".to_owned());
    }
    // 8: another generation is known (NODE-87).
    if at.listed.is_some_and(|(lifecycle, _)| lifecycle != hello.lifecycle) {
        return Verdict::Hold;
    }
    let Some(current) = &at.current else { return Verdict::Admit };
    if current.lifecycle != hello.lifecycle {
        let meant = match local.routing {
            RoutingMode::Automatic => at.listed.is_some(),
            RoutingMode::Manual => at.intended,
        };
        let handed_over = current.identity == hello.identity;
        return if meant && handed_over { Verdict::Admit } else { Verdict::Hold };
    }
    // 9: the selected route.
    if at.rank <= current.rank { Verdict::Refuse(duplicate()) } else { Verdict::Admit }
}

/// Check 6. Of a link that came in, the listed generation is not looked at here: the listing may simply be
/// older than the peer, so check 8 holds the link instead.
fn unexpected(hello: &Hello, at: &Circumstances<'_>) -> Option<String> {
    let differs = |what: &str, expected: &dyn std::fmt::Debug, found: &dyn std::fmt::Debug| {
        Some(format!("{what}: expected {expected:?}, found {found:?}"))
    };
    if let Some(rid) = at.proven.rid.as_ref().filter(|rid| **rid != hello.rid) {
        return differs("RID proven by the transport", rid, &hello.rid);
    }
    if let Some(identity) = at.proven.identity.as_ref().filter(|identity| **identity != hello.identity) {
        return differs("identity proven by the transport", identity, &hello.identity);
    }
    if let Some(target) = at.dialled {
        if let Some(rid) = target.rid.as_ref().filter(|rid| **rid != hello.rid) {
            return differs("RID", rid, &hello.rid);
        }
        if let Some(lifecycle) = target.lifecycle.filter(|lifecycle| *lifecycle != hello.lifecycle) {
            return differs("lifecycle generation", &lifecycle, &hello.lifecycle);
        }
        if let Some(identity) = target.identity.as_ref().filter(|identity| **identity != hello.identity) {
            return differs("identity", identity, &hello.identity);
        }
    }
    match at.listed {
        Some((lifecycle, identity)) if lifecycle == hello.lifecycle && *identity != hello.identity => {
            differs("identity", identity, &hello.identity)
        }
        _ => None,
    }
}
