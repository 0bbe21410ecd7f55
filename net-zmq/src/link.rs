//! The state of one link: its two lanes and how far it has come.

use std::os::fd::RawFd;

use spotmesh::link::{DialId, Lane, LinkDownReason, NodeIndex, ProvenPeer, Record};
use spotmesh::model::{Instant, Rid};
use spotmesh_zmq_ffi::{Error, Socket};

use crate::config::ACK_EVERY;
use crate::frame::Token;
use crate::lane::{FLIGHT_MESSAGES, OutLane, Pumped};
use crate::port::PortKey;

/// How far a link has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waiting for the first message on both lanes.
    Opening { until: Instant },
    /// Reported as up.
    Up,
    /// The connection is lost or was closed by the other side: what it sent before is still read.
    Ending { until: Instant, reason: LinkDownReason },
    /// Closed by this side: what was queued may still leave.
    Closing { until: Instant },
}

/// One lane, both directions.
#[derive(Default)]
pub(crate) struct LaneState {
    pub(crate) out: OutLane,
    /// The other side's first message arrived.
    pub(crate) open: bool,
    /// The other side said that nothing follows.
    pub(crate) ended: bool,
    /// Descriptor of the connection, on the listening side.
    pub(crate) fd: Option<RawFd>,
    /// Bytes taken since the lane was opened, and how many of them were told.
    taken: u64,
    told: u64,
    /// Messages taken since the last was told.
    untold: usize,
}

impl LaneState {
    /// Counts a received message; answers whether the other side is now to be told.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        self.taken += bytes as u64;
        self.untold += 1;
        if self.taken - self.told < ACK_EVERY && self.untold < FLIGHT_MESSAGES / 4 {
            return false;
        }
        (self.told, self.untold) = (self.taken, 0);
        self.out.acknowledge(self.taken);
        true
    }
}

/// One link.
pub(crate) struct Link {
    pub(crate) node: NodeIndex,
    pub(crate) port: PortKey,
    /// The dial it came from, on the dialling side.
    pub(crate) dial: Option<DialId>,
    pub(crate) phase: Phase,
    application: LaneState,
    completion: LaneState,
    /// What the ZAP handler said about both connections, on the listening side.
    pub(crate) user: Option<Vec<u8>>,
    pub(crate) proven: ProvenPeer,
    /// RID stated by the dialler, on the listening side.
    pub(crate) stated: Option<Rid>,
    pub(crate) token: Token,
    /// `Congested` was reported last.
    pub(crate) congested: bool,
    /// Records that arrived on the first lane to open before the second did.
    pub(crate) early: Vec<(Lane, Record)>,
}

impl Link {
    pub(crate) fn new(node: NodeIndex, port: PortKey, token: Token, until: Instant) -> Self {
        Self {
            node,
            port,
            dial: None,
            phase: Phase::Opening { until },
            application: LaneState::default(),
            completion: LaneState::default(),
            user: None,
            proven: ProvenPeer { rid: None, identity: None },
            stated: None,
            token,
            congested: false,
            early: Vec::new(),
        }
    }

    pub(crate) fn lane(&self, lane: Lane) -> &LaneState {
        match lane {
            Lane::Application => &self.application,
            Lane::Completion => &self.completion,
        }
    }

    pub(crate) fn lane_mut(&mut self, lane: Lane) -> &mut LaneState {
        match lane {
            Lane::Application => &mut self.application,
            Lane::Completion => &mut self.completion,
        }
    }

    pub(crate) fn lanes(&self) -> [&LaneState; 2] {
        [&self.application, &self.completion]
    }

    pub(crate) fn both_open(&self) -> bool {
        self.application.open && self.completion.open
    }

    pub(crate) fn both_ended(&self) -> bool {
        self.application.ended && self.completion.ended
    }

    /// When something must happen by itself.
    pub(crate) fn until(&self) -> Option<Instant> {
        match self.phase {
            Phase::Opening { until } | Phase::Ending { until, .. } | Phase::Closing { until } => Some(until),
            Phase::Up => None,
        }
    }

    /// Has the other side told, after everything queued, that nothing follows.
    pub(crate) fn end_with_bye(&mut self) {
        self.application.out.end_with_bye();
        self.completion.out.end_with_bye();
    }

    /// Gives to libzmq what it and the window take, replies first; answers the fuller of both lanes.
    pub(crate) fn pump(&mut self, socket: &Socket, window: usize) -> Result<Pumped, Error> {
        let mut state = Pumped::Empty;
        for lane in [&mut self.completion, &mut self.application] {
            if lane.out.route.is_empty() {
                continue;
            }
            match lane.out.pump(socket, window)? {
                Pumped::Full => state = Pumped::Full,
                Pumped::Window if state == Pumped::Empty => state = Pumped::Window,
                Pumped::Window | Pumped::Empty => {}
            }
        }
        Ok(state)
    }
}
