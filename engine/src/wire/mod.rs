//! Peer messages, their frames and codec.
//!
//! A record is a header and, for messages that carry application bytes, one body frame. The header is a
//! version byte and the postcard encoding of [`Message`]; the body is passed on as it came (design §2.2).

mod codec;
mod message;

pub use codec::{WIRE_VERSION, WireError, decode, encode};
pub use message::{
    ActorMessage, CallKind, CreateAnswer, CreateOrder, CreateVerdict, Hello, Message, Metadata, NodeUpdate,
    PayloadCodec, Refusal, Reply, StaleRoute,
};

#[cfg(test)]
mod tests;
