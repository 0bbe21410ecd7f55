//! What an observer can see (spec 11 §3): changes of state with the names of that chapter.

use serde::Serialize;

use crate::link::{LinkId, NodeIndex};
use crate::model::{Error, ErrorKind, HostState, LifecycleGeneration, ObjectGeneration, ObjectKey, Rid};

/// State of a peer as monitoring shows it (OBS-12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum PeerState {
    /// Dialling or shaking hands.
    Connecting,
    /// Admitted on the selected route.
    Ready,
    /// Announced that it drains.
    Draining,
    /// No connection.
    NotConnected,
    /// The pair needs none.
    NotRequired,
}

/// One observation. Observers never change what the core does (OBS-1).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub enum Event {
    /// `spotmesh.host.state_changed`.
    HostState {
        /// Before.
        from: HostState,
        /// Now.
        to: HostState,
    },
    /// A startup step failed; everything acquired was released (NODE-62).
    StartupFailed(Error),
    /// `spotmesh.node.state_changed`: the node is published and serves.
    NodeServing {
        /// The node.
        node: NodeIndex,
        /// Its RID.
        rid: Rid,
        /// Its lifecycle.
        lifecycle: LifecycleGeneration,
        /// Its advertised endpoint.
        endpoint: String,
    },
    /// `spotmesh.node.peer_changed`, with the reason as a text for people.
    Peer {
        /// The local node.
        node: NodeIndex,
        /// The peer.
        rid: Rid,
        /// Its lifecycle where known.
        lifecycle: Option<LifecycleGeneration>,
        /// The new state.
        state: PeerState,
        /// Why.
        reason: String,
    },
    /// A connect or admission was refused, with its typed error unchanged (NODE-101, NODE-102, OBS-15).
    PeerError {
        /// The local node.
        node: NodeIndex,
        /// The peer, where its RID is known.
        rid: Option<Rid>,
        /// The error.
        error: Error,
    },
    /// A peer sent something unusable and its link was closed.
    ProtocolViolation {
        /// The link.
        link: LinkId,
        /// What was found.
        found: String,
    },
    /// `spotmesh.placement.reservation_failed`.
    ReservationFailed {
        /// The object.
        key: ObjectKey,
        /// Which refusal.
        reason: String,
    },
    /// `spotmesh.object.changed`: the object became Ready here.
    ObjectReady {
        /// The object.
        key: ObjectKey,
        /// Its incarnation.
        object_generation: ObjectGeneration,
    },
    /// `spotmesh.object.changed`: an attempt ended here without an object.
    CreationEnded {
        /// The object.
        key: ObjectKey,
        /// The attempt's incarnation.
        object_generation: ObjectGeneration,
        /// `None` for a rejection by the application.
        failed: Option<ErrorKind>,
    },
    /// The local instance was dropped: shutdown, or its authority is gone.
    ObjectDropped {
        /// The object.
        key: ObjectKey,
        /// Its incarnation.
        object_generation: ObjectGeneration,
    },
    /// A one-way message ended after its admission without being handled (ERR-10).
    MessageDropped {
        /// The object.
        key: ObjectKey,
        /// The kind a request would have failed with.
        kind: ErrorKind,
    },
    /// `spotmesh.store.changed`: the owner lease was confirmed.
    LeaseHeld,
    /// `spotmesh.store.changed`: admission is closed until a renewal is confirmed (HOST-74).
    LeaseDoubtful,
    /// `spotmesh.store.changed`: the lease was fenced (HOST-75).
    LeaseLost,
    /// An impossible pair of state and event: a defect of the protocol.
    Violation(String),
}
