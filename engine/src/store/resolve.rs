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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::*;
    use crate::store::*;

    fn ready(mark: Option<Mark>, expires_at: i64) -> AuthorityRead {
        let lease = LeaseRef { owner: OwnerId::new(1).unwrap(), generation: LeaseGeneration::FIRST };
        let mesh = MeshName::new("mesh").unwrap();
        let lifecycle = LifecycleGeneration::from_u64(1).unwrap();
        let owner = NodeFence { mesh, rid: Rid::new("n").unwrap(), lifecycle, lease };
        let expires_at = StoreTime::from_micros(expires_at);
        AuthorityRead::Found(Box::new(AuthorityView {
            key: ObjectKey::Actor(ActorId::new("hero").unwrap()),
            kind: ObjectKind::Actor,
            stable_type: StableType::new("player").unwrap(),
            execution_mode: None,
            state: AuthorityState::Ready(ReadyObject {
                mark,
                created_by: None,
                activation: None,
                last_change: None,
                last_commit: None,
            }),
            object_generation: ObjectGeneration::FIRST,
            owner_generation: AuthorityOwnerGeneration::FIRST,
            owner,
            owner_lease: LeaseView { lease, state: LeaseState::Active, expires_at },
            allocation: Allocation::Active,
            bundle: Bundle::default(),
            membership: Membership::None,
            version: StoreVersion::FIRST,
            store_now: StoreTime::from_micros(1_000),
        }))
    }

    fn creating(expires_at: i64) -> AuthorityRead {
        let AuthorityRead::Found(mut view) = ready(None, expires_at) else { unreachable!() };
        view.state = AuthorityState::Creating(PendingCreation {
            reservation: ReservationId::new(1).unwrap(),
            operation: OperationIdentity {
                source_rid: Rid::new("n").unwrap(),
                source_lifecycle: LifecycleGeneration::from_u64(1).unwrap(),
                operation: OperationId::new(1).unwrap(),
            },
            source: CreationSource::Content(ContentId::new(1).unwrap(), Sha256Digest::of(b""), 0),
            deadline_at: StoreTime::from_micros(0),
        });
        AuthorityRead::Found(view)
    }

    #[test]
    fn every_read_resolves_to_exactly_one_answer() {
        let missing = AuthorityRead::Missing { store_now: StoreTime::default() };
        assert_eq!(resolve(&missing), Resolution::Missing);
        assert!(matches!(resolve(&ready(None, 1_001)), Resolution::ReadyRoute(_)));
        // A lease is live while its expiry lies ahead, not at it.
        assert!(matches!(resolve(&ready(None, 1_000)), Resolution::Unavailable(_)));
        // Closing resolves like Creating, whatever its owner's state.
        let closing = Some(Mark::Closing(OperationId::new(1).unwrap()));
        assert!(matches!(resolve(&ready(closing.clone(), 1_001)), Resolution::Creating(_)));
        assert!(matches!(resolve(&ready(closing, 1_000)), Resolution::Creating(_)));
        for expires_at in [1_001, 1_000] {
            assert!(matches!(resolve(&creating(expires_at)), Resolution::Creating(_)));
        }
    }
}
