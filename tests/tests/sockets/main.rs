//! End to end over real sockets: hosts as a service starts them, on free ports of the loopback.

mod counter;
mod creation;
mod curve;
mod hostile;
mod killed;
mod messages;
mod store_server;
mod world;
