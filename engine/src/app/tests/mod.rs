//! The API and the loop under it, over a scripted core, in virtual time.

mod api;
mod calls;
mod scripted;

mod subject;
mod surroundings;
mod turns;
