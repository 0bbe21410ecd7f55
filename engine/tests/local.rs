//! Hosts of one process over the in-memory Store, in virtual time: the whole engine, end to end.

#[path = "local/counter.rs"]
mod counter;
#[path = "local/one_host.rs"]
mod one_host;
#[path = "local/three_hosts.rs"]
mod three_hosts;
