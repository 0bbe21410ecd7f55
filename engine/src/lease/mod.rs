//! The owner lease of a host and its local admission deadline (spec 03 §5, MODEL-26..29).

mod owner;
#[cfg(test)]
mod owner_tests;

pub(crate) use owner::{LeaseEffect, LeaseEvent, OwnerLease};
