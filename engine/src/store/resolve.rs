//! What a read means to a resolver (STORE-60).

use super::mark::Mark;
use super::record::{AuthorityRead, AuthorityState, AuthorityView};

/// The answers a read can give; a failed read is the fifth, `StoreFailure`, and is never one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution<'a> {
    /// Ready, not Closing, its owner live: messages may go there.
    ReadyRoute(&'a AuthorityView),
    /// No row.
    Missing,
    /// Creating, or Ready and Closing: only an operation with creation intent waits.
    Creating(&'a AuthorityView),
    /// A Ready row whose owner is dead.
    Unavailable(&'a AuthorityView),
}

/// Resolves one read (STORE-60).
///
/// A Creating row resolves `Creating` whatever its target's state: cleaning it is the reader's next step
/// (CREATE-34), not a route decision.
#[must_use]
pub fn resolve(read: &AuthorityRead) -> Resolution<'_> {
    let AuthorityRead::Found(row) = read else { return Resolution::Missing };
    match &row.state {
        AuthorityState::Creating(_) => Resolution::Creating(row),
        AuthorityState::Ready(ready) => match &ready.mark {
            Some(Mark::Closing(_)) => Resolution::Creating(row),
            _ if row.owner_is_live() => Resolution::ReadyRoute(row),
            _ => Resolution::Unavailable(row),
        },
    }
}
