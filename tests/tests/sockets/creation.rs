//! Many nodes create the same Actors at the same time.

use std::collections::{BTreeMap, BTreeSet};

use spotmesh::app::*;
use spotmesh_store_memory::MemoryStore;

use super::counter::*;
use super::world::*;

const IDS: u64 = 200;
const CALLS: u64 = 2_000;

#[tokio::test(flavor = "multi_thread")]
async fn create_t1_two_thousand_calls_of_three_nodes_make_one_actor_an_id() {
    let store = MemoryStore::new();
    let seats = servers::<3>(&store).await;
    let calls = (0..CALLS).map(|number| {
        let host = seats[number as usize % 3].host().clone();
        tokio::spawn(async move {
            // The number tells whose request the factory saw.
            let id = format!("contended-{}", number % IDS);
            let created = host.actors().get_or_create::<Counter>(&id, Start::At(number)).await;
            (id, number, created)
        })
    });
    let calls: Vec<_> = calls.collect();
    let mut winners = BTreeMap::new();
    let mut generations: BTreeMap<String, BTreeSet<_>> = BTreeMap::new();
    for call in calls {
        let (id, number, created) = call.await.unwrap();
        let created = created.unwrap_or_else(|error| panic!("{id}: {error}"));
        generations.entry(id.clone()).or_default().insert(created.actor().unwrap().object_generation);
        match created {
            Created::Accepted { reply, .. } => {
                assert_eq!(reply, number, "the reply of its own request");
                assert_eq!(winners.insert(id, number), None, "two calls created one Actor");
            }
            Created::Existing { .. } => {}
            Created::Rejected { .. } => panic!("{id}: nobody declines"),
        }
    }
    assert_eq!(winners.len() as u64, IDS);
    for (id, generations) in &generations {
        assert_eq!((generations.len(), factory_runs(id)), (1, 1), "{id}: generations and factory runs");
    }
    // Every node finds what the winner made.
    for (number, (id, value)) in winners.iter().enumerate() {
        let target = seats[number % 3].host().actor::<Counter>(id);
        assert_eq!(target.request(Add(0)).await.as_ref(), Ok(value), "{id}");
    }
    store.state().check().unwrap();
    stop(seats).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declined_or_failed_creation_of_any_node_leaves_nothing_behind() {
    let store = MemoryStore::new();
    let seats = servers::<3>(&store).await;
    for (number, seat) in seats.iter().enumerate() {
        let host = seat.host();
        // Which node is the target is the weights' choice: several ids meet all of them.
        for id in (0..6).map(|at| format!("declined-{number}-{at}")) {
            let start = |start| host.actors().create::<Counter>(&id, start).into_future();
            let declined = start(Start::Decline).await;
            assert!(
                matches!(&declined, Ok(Created::Rejected { reply }) if reply == "not today"),
                "{declined:?}"
            );
            assert_eq!(kind(start(Start::Fail).await), ErrorKind::InternalFailure);
            assert_eq!(kind(start(Start::Panic).await), ErrorKind::InternalFailure);
            assert_eq!(host.find(&id).await, Ok(None));
            assert_eq!(kind(host.actor::<Counter>(&id).request(Add(1)).await), ErrorKind::NotFound);
            create(host, &id, 1).await;
            let again = start(Start::At(2)).await;
            assert_eq!(kind(again), ErrorKind::AlreadyExists);
        }
    }
    store.state().check().unwrap();
    stop(seats).await;
}
