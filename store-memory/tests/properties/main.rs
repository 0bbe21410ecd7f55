//! Random operation sequences on the pure store: its own checks hold, failures change nothing, re-issues are
//! harmless.

mod requests;
mod world;

use std::time::Duration;

use proptest::prelude::*;
use spotmesh::store::{
    ConflictReason, PutOutcome, StoreError, StoreReply, StoreRequest, StoreResult, UpdateOutcome,
};
use spotmesh_store_memory::{State, apply};

use world::World;

/// What a re-issue of an applied request may answer (STORE-25).
fn settles(request: &StoreRequest, first: &StoreResult, again: &StoreResult) -> bool {
    use StoreReply as R;
    if first == again {
        return true;
    }
    match (request, first, again) {
        // Nothing is left to put, to publish, to remove or to prepare.
        (_, Ok(R::Put(a)), Ok(R::Put(b))) => {
            (a.value, b.value) == (PutOutcome::Stored, PutOutcome::AlreadyStored)
        }
        (_, Ok(R::Updated(a)), Ok(R::Updated(b))) => {
            matches!((a.value, b.value), (UpdateOutcome::Applied(a), UpdateOutcome::Ignored(b)) if a == b)
        }
        (StoreRequest::RemoveDescriptor(_), Ok(R::Flag(a)), Ok(R::Flag(b))) => a.value && !b.value,
        (_, Ok(R::Prepared(_)), Ok(R::Prepared(_))) => true,
        // Named by version only, so the repeat finds another row or none: absence is enough.
        (StoreRequest::AbortRecovery(_) | StoreRequest::FinishStaleClose(_), Ok(_), Err(error)) => {
            error.conflict_reason() == Some(ConflictReason::VersionMismatch)
        }
        _ => false,
    }
}

/// Batches have no identity: each call does the next part of the work.
fn is_batch(request: &StoreRequest) -> bool {
    matches!(
        request,
        StoreRequest::RemoveOwnerRows(_) | StoreRequest::RetireOwner(_) | StoreRequest::Sweep(_)
    )
}

fn run(choices: &[[u8; 4]]) -> Result<World, TestCaseError> {
    let mut world = World::new();
    for choice in choices {
        for request in requests::choose(&mut world, *choice) {
            let before = world.state.clone();
            let first = apply(&mut world.state, world.now, &request);
            world.state.check().map_err(|found| TestCaseError::fail(format!("{request:?}: {found}")))?;
            if let Err(error) = &first {
                prop_assert!(
                    world.state == before,
                    "{request:?} failed with {error:?} and changed something"
                );
                prop_assert!(error.is_certainly_not_applied() && !matches!(error, StoreError::Corrupt(_)));
            }
            if !request.mutates() {
                prop_assert!(world.state == before, "{request:?} changed something");
            }
            if first.is_ok() && !is_batch(&request) {
                let applied = world.state.clone();
                let again = apply(&mut world.state, world.now, &request);
                prop_assert!(world.state == applied, "{request:?}: its re-issue changed something");
                prop_assert!(settles(&request, &first, &again), "{request:?}: {first:?}, then {again:?}");
            }
            world.saw(&request, &first);
        }
    }
    Ok(world)
}

fn choices(len: usize) -> impl Strategy<Value = Vec<[u8; 4]>> {
    prop::collection::vec(any::<[u8; 4]>(), 1..len)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 384, failure_persistence: None, ..ProptestConfig::default() })]

    /// CREATE-153 and STORE-25 over whole histories, moves and aggregates included.
    #[test]
    fn histories_keep_the_state_consistent_and_every_mutation_idempotent(choices in choices(400)) {
        run(&choices)?;
    }

    /// When everything that holds a slot is ended, every counter is zero and every record can be swept.
    #[test]
    fn what_is_ended_leaves_nothing_behind(choices in choices(200)) {
        let mut world = run(&choices)?;
        world.now = world.now + Duration::from_secs(60);
        let dead = world.leases.clone();
        for lease in dead {
            let request = spotmesh::store::RetireOwner { lease, limit: 1000 }.into();
            apply(&mut world.state, world.now, &request).expect("every lease is dead");
        }
        // Spots whose members another owner held go in a second round.
        for lease in world.leases.clone() {
            let request = spotmesh::store::RetireOwner { lease, limit: 1000 }.into();
            let reply = apply(&mut world.state, world.now, &request).expect("every lease is dead");
            prop_assert!(matches!(reply, StoreReply::Count(remaining) if remaining.value == 0), "{reply:?}");
        }
        world.state.check().map_err(TestCaseError::fail)?;
        for node in &world.nodes {
            prop_assert_eq!(world.state.node_use(&node.fence), spotmesh_store_memory::NodeUse::default());
        }
        for claim in world.claims() {
            apply(&mut world.state, world.now, &claim).expect("its own claim");
        }
        world.now = world.now + Duration::from_secs(7200);
        apply(&mut world.state, world.now, &spotmesh::store::Sweep { limit: 1000 }.into()).expect("a sweep");
        let mut empty = State::new();
        empty.take_over_sequences(&world.state);
        prop_assert_eq!(&world.state, &empty);
    }

    /// A state is plain data: it survives encoding, and a copy goes on like the original.
    #[test]
    fn a_decoded_state_equals_the_encoded_one(choices in choices(120)) {
        let world = run(&choices)?;
        let bytes = postcard::to_stdvec(&world.state).expect("plain data encodes");
        let decoded: State = postcard::from_bytes(&bytes).expect("what was encoded decodes");
        prop_assert!(decoded == world.state);
    }
}

/// The generator reaches what it is meant to reach; otherwise the properties above would prove little.
#[test]
fn the_histories_reach_every_operation_successfully() {
    let mut reached = std::collections::BTreeSet::new();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..60 {
        let choices: Vec<[u8; 4]> = (0..400)
            .map(|_| {
                // xorshift64
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                (seed as u32).to_be_bytes()
            })
            .collect();
        reached.extend(run(&choices).expect("the properties hold").succeeded);
    }
    let all: std::collections::BTreeSet<_> =
        StoreRequest::OPERATIONS.iter().filter(|(_, mutates)| *mutates).map(|(name, _)| *name).collect();
    let missed: Vec<_> = all.difference(&reached).collect();
    assert!(missed.is_empty(), "never succeeded: {missed:?}");
}
