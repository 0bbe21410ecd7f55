//! Small scopes, explored exhaustively: every order of deliveries, answers and turns, with a budget of faults.

mod scopes;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::oracle::Violation;
use crate::place::Seat;
use crate::world::{Choice, World};
pub use scopes::{Scope, scopes};

/// How many faults and deadlines one path may hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Budget {
    /// Deadlines that fire before their time has come by itself.
    pub wakes: u8,
    /// Store answers lost, applied or not.
    pub losses: u8,
    /// Processes killed.
    pub kills: u8,
    /// Pairs of hosts whose links break.
    pub breaks: u8,
}

/// What an exploration reached.
#[derive(Debug, Clone)]
pub struct Explored {
    /// Different states.
    pub states: u64,
    /// Steps taken, those into known states included.
    pub steps: u64,
    /// Choices of the longest path.
    pub depth: usize,
    /// States in which nothing is on its way; each was run on to its end.
    pub ends: u64,
    /// Whether every state in the scope was reached.
    pub complete: bool,
    /// The first violation, with the choices that led to it.
    pub found: Option<(Violation, Vec<Choice>)>,
    /// How long it took.
    pub took: Duration,
}

#[derive(Clone)]
struct Node {
    world: World,
    left: Budget,
    /// Actions of the list that did not happen yet, a bit each.
    acts: u32,
    path: Vec<Choice>,
}

/// Explores a scope, up to so many states.
///
/// # Errors
/// Where the scope's cluster is not legal or does not come up.
pub fn explore(scope: &Scope, most: u64) -> Result<Explored, String> {
    let begun = Instant::now();
    let mut world = World::new(Arc::new(scope.run.clone()))?;
    world.come_up(scope.settle);
    if let Some(violation) = world.violations().first() {
        return Err(format!("the cluster does not come up: {}", violation.text));
    }
    let acts = (1u32 << scope.run.actions.len()) - 1;
    let mut stack = vec![Node { world, left: scope.budget, acts, path: Vec::new() }];
    let mut seen = BTreeSet::new();
    let mut explored = Explored {
        states: 0,
        steps: 0,
        depth: 0,
        ends: 0,
        complete: true,
        found: None,
        took: Duration::ZERO,
    };
    while let Some(node) = stack.pop() {
        if explored.states >= most {
            explored.complete = false;
            break;
        }
        explored.states += 1;
        explored.depth = explored.depth.max(node.path.len());
        let moves = moves(&node, scope);
        let quiet = node.acts == 0 && node.world.choices().is_empty();
        if quiet && let Some(violation) = end(&node.world) {
            explored.found = Some((violation, node.path.clone()));
            explored.ends += 1;
            break;
        }
        explored.ends += u64::from(quiet);
        for (choice, left, acts) in moves {
            let mut next = Node { world: node.world.clone(), left, acts, path: node.path.clone() };
            next.path.push(choice.clone());
            next.world.choose(&choice);
            explored.steps += 1;
            if let Some(violation) = next.world.violations().first() {
                explored.found = Some((violation.clone(), next.path));
                explored.complete = false;
                explored.took = begun.elapsed();
                return Ok(explored);
            }
            if seen.insert((next.world.fingerprint(), left_key(left), acts)) {
                stack.push(next);
            }
        }
    }
    explored.complete &= explored.found.is_none();
    explored.took = begun.elapsed();
    Ok(explored)
}

fn left_key(left: Budget) -> u32 {
    u32::from_le_bytes([left.wakes, left.losses, left.kills, left.breaks])
}

/// Lets a quiet state run on: everything promised must finish from here.
fn end(world: &World) -> Option<Violation> {
    let mut world = world.clone();
    world.finish();
    world.violations().first().cloned()
}

fn moves(node: &Node, scope: &Scope) -> Vec<(Choice, Budget, u32)> {
    let mut moves: Vec<(Choice, Budget, u32)> =
        node.world.choices().into_iter().map(|choice| (choice, node.left, node.acts)).collect();
    for at in 0..scope.run.actions.len() {
        let bit = 1 << at;
        // Actions of one host keep their order.
        if node.acts & bit != 0 && scope.is_next(node.acts, at) {
            moves.push((Choice::Act(at), node.left, node.acts & !bit));
        }
    }
    let left = node.left;
    if left.wakes > 0 {
        let spent = Budget { wakes: left.wakes - 1, ..left };
        moves.extend(node.world.wakes().into_iter().map(|choice| (choice, spent, node.acts)));
    }
    if left.losses > 0 {
        let spent = Budget { losses: left.losses - 1, ..left };
        moves.extend(node.world.losses().into_iter().map(|choice| (choice, spent, node.acts)));
    }
    let seats: Vec<Seat> =
        (0..scope.run.cluster.hosts.len()).filter_map(|at| u8::try_from(at).ok()).map(Seat).collect();
    if left.kills > 0 {
        let spent = Budget { kills: left.kills - 1, ..left };
        let running = seats.iter().filter(|seat| node.world.seats()[usize::from(seat.0)].host().is_some());
        moves.extend(running.map(|seat| (Choice::Kill(*seat), spent, node.acts)));
    }
    if left.breaks > 0 {
        let spent = Budget { breaks: left.breaks - 1, ..left };
        for (at, a) in seats.iter().enumerate() {
            for b in &seats[at + 1..] {
                moves.push((Choice::Break(*a, *b), spent, node.acts));
            }
        }
    }
    moves
}
