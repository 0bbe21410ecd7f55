//! One simulated link: two sides, a flow each way, two ordered lanes a flow.

use std::collections::VecDeque;

use spotmesh::link::{DialId, Lane, LinkId, Record};

use crate::agenda::Nanos;
use crate::place::NodeOf;

/// How far a side of a link is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SideState {
    /// Its `LinkUp` is on the way.
    Opening,
    /// Up as far as this side knows.
    Up,
    /// It was told of the end, closed the link itself, or died.
    Gone,
}

/// One end of a link.
#[derive(Debug, Clone)]
pub struct Side {
    /// Whose end.
    pub end: NodeOf,
    /// What it calls the link.
    pub id: LinkId,
    /// How far it is.
    pub state: SideState,
    /// The dial that led here, on the dialling side.
    pub dial: Option<DialId>,
}

/// What travels from one side to the other.
#[derive(Debug, Clone, Default)]
pub struct Flow {
    /// In flight per lane, oldest first.
    pub lanes: [VecDeque<Record>; 2],
    /// When the newest record of each lane arrives.
    pub last: [Nanos; 2],
    /// Records per lane that arrived while the direction was blocked, still in `lanes`.
    pub stalled: [u32; 2],
    /// Nothing arrives any more.
    pub cut: bool,
}

/// One link. Side 0 dialled.
#[derive(Debug, Clone)]
pub struct Link {
    /// Dialler and listener.
    pub sides: [Side; 2],
    /// `flows[0]` goes from side 0 to side 1.
    pub flows: [Flow; 2],
    /// A lane was told to hold back, per sending side.
    pub congested: [bool; 2],
}

impl Link {
    /// Ends a direction and drops what is in flight on it.
    pub fn cut(&mut self, from: usize) {
        let flow = &mut self.flows[from];
        flow.cut = true;
        flow.lanes = Default::default();
        flow.stalled = [0; 2];
    }

    /// Whether nobody can learn anything from it any more.
    pub fn is_over(&self) -> bool {
        self.sides.iter().all(|side| side.state == SideState::Gone)
    }
}

/// A lane's place in arrays.
#[must_use]
pub fn lane_index(lane: Lane) -> usize {
    match lane {
        Lane::Application => 0,
        Lane::Completion => 1,
    }
}

/// The lane of a place.
#[must_use]
pub fn lane_at(index: usize) -> Lane {
    if index == 0 { Lane::Application } else { Lane::Completion }
}
