//! End to end over real sockets: hosts as a service starts them, on free ports of the loopback.

mod counter;
mod creation;
mod messages;
mod world;
