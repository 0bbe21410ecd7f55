//! Creation inside the host: coordinators, attempts and recovery, and what passes between them.

mod attempt;
mod coordinate;
mod recover;
