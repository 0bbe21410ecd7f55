//! Creation of Actors: coordinator, target, waiter and recovery (spec 04 §1–8).
//!
//! ```text
//!  caller ──▶ Coordinator ──reserve──▶ Store ◀──commit── Attempt ──turn──▶ application
//!                  │   └────────── order / answer ─────────┘ (target)
//!                  └ waits, competes and cleans as a waiter (§6)      Recovery scans for what nobody finishes (§7)
//! ```
//!
//! The machines are plain data. They are told what happened and return what should happen next.

mod coordinator;
#[cfg(test)]
mod coordinator_tests;
#[cfg(test)]
mod fixture;
mod recovery;
mod target;
#[cfg(test)]
mod target_tests;

pub(crate) use coordinator::{
    Coordinator, CoordinatorContext, CoordinatorEffect, CoordinatorEvent, CreateSpec, actor_ref,
};
pub(crate) use recovery::{Recovery, RecoveryEffect, RecoveryEvent};
pub(crate) use target::{AnswerRoute, Attempt, AttemptContext, AttemptEffect, AttemptEvent};
