//! Requests and sends between nodes, and every way they fail that the application sees.

use std::collections::BTreeSet;

use spotmesh::app::*;
use spotmesh_store_memory::MemoryStore;

use super::counter::*;
use super::world::*;

/// Actors with this prefix, created through all nodes; every node owns some.
async fn owned_by_all(seats: &[Seat], prefix: &str) -> Vec<String> {
    let mut owners = BTreeSet::new();
    let mut ids = Vec::new();
    while owners.len() < seats.len() || ids.len() < 10 {
        assert!(ids.len() < 200, "expected owners everywhere, found {owners:?}");
        let id = format!("{prefix}-{}", ids.len());
        owners.insert(create(seats[ids.len() % seats.len()].host(), &id, 0).await.node);
        ids.push(id);
    }
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn every_node_reaches_every_actor() {
    let store = MemoryStore::new();
    let seats = servers::<3>(&store).await;
    let ids = owned_by_all(&seats, "reached").await;
    for id in &ids {
        for (number, seat) in seats.iter().enumerate() {
            let actor = seat.host().actor::<Counter>(id);
            assert_eq!(actor.request(Add(1)).await, Ok(number as u64 + 1));
            assert_eq!(seat.host().address(id).request(Add(0)).await, Ok(number as u64 + 1));
            actor.send(Note(number as u64)).await.unwrap();
            // Of one source, a request does not pass a send (MODEL-115).
            let notes = actor.request(Notes).await.unwrap();
            assert_eq!(notes.len(), number + 1);
            assert_eq!(notes.last(), Some(&(number as u64)));
            let found = seat.host().find(id).await.unwrap().expect("a Ready Actor");
            assert_eq!(found.id.as_str(), id);
        }
    }
    // And Actors reach each other from inside their turns.
    for (from, to) in ids.iter().zip(ids.iter().skip(1)) {
        let before = seats[0].host().actor::<Counter>(to).request(Add(0)).await.unwrap();
        let sum = seats[1].host().actor::<Counter>(from).request(AddTo(to.clone(), 5)).await;
        assert_eq!(sum, Ok(before + 5));
    }
    stop(seats).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn model_115_sends_of_one_node_keep_their_order_under_load() {
    let store = MemoryStore::new();
    let seats = servers::<3>(&store).await;
    let ids = owned_by_all(&seats, "ordered").await;
    let senders = ids.iter().map(|id| {
        let actor = seats[1].host().actor::<Counter>(id);
        async move {
            for number in 0..500 {
                actor.send(Note(number)).await.unwrap();
            }
            assert_eq!(actor.request(Notes).await.unwrap(), (0..500).collect::<Vec<_>>());
        }
    });
    futures::future::join_all(senders).await;
    stop(seats).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_of_remote_actors_have_the_kinds_of_local_ones_and_leave_them_alive() {
    let store = MemoryStore::new();
    let seats = servers::<3>(&store).await;
    let ids = owned_by_all(&seats, "failing").await;
    for id in &ids {
        let mut expected = 0;
        for seat in &seats {
            let (host, actor) = (seat.host(), seat.host().actor::<Counter>(id));
            assert_eq!(kind(host.actor::<Counter>("nobody").request(Add(1)).await), ErrorKind::NotFound);
            assert_eq!(kind(host.address(id).request(Unknown).await), ErrorKind::NotFound);
            assert_eq!(kind(host.address(id).request(AddOfTomorrow(1)).await), ErrorKind::ProtocolError);
            assert_eq!(
                kind(host.address(id).request(Garbled("x".repeat(40))).await),
                ErrorKind::ProtocolError
            );
            let text = kind(host.address(id).request(AddAndExpectText(1)).await);
            expected += 1;
            assert_eq!(text, ErrorKind::ProtocolError, "the handler ran, its reply cannot be read");
            assert_eq!(kind(actor.request(Panic).await), ErrorKind::InternalFailure);
            expected += 1_000;
            assert_eq!(actor.request(Add(1)).await, Ok(expected + 1), "its state is as the turns left it");
            expected += 1;
            let itself = actor.request(AddTo(id.clone(), 1)).await;
            assert_eq!(kind(itself), ErrorKind::InvalidOperation, "MODEL-73");
        }
    }
    stop(seats).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kind_of_a_handlers_error_reaches_the_requester_and_its_text_does_not() {
    let store = MemoryStore::new();
    let seats = servers::<3>(&store).await;
    let ids = owned_by_all(&seats, "kinds").await;
    for id in &ids {
        for seat in &seats {
            // Configuration never travels (ERR-14).
            for expected in ErrorKind::ALL.into_iter().filter(|kind| *kind != ErrorKind::Configuration) {
                let failed = seat.host().actor::<Counter>(id).request(Fail(expected)).await.unwrap_err();
                assert_eq!(failed.kind(), expected);
                assert!(!failed.to_string().contains("stays at home"), "{failed}");
            }
        }
    }
    stop(seats).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn payloads_of_all_sizes_cross_unchanged() {
    let store = MemoryStore::new();
    let seats = servers::<3>(&store).await;
    let ids = owned_by_all(&seats, "sizes").await;
    for size in [0, 1, 255, 4_096, 32 << 10, (32 << 10) + 1, 1 << 20, 5 << 20] {
        let bytes: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        for id in ids.iter().take(6) {
            let echo = seats[0].host().actor::<Counter>(id).request(Echo(bytes.clone())).await;
            assert!(echo.as_ref() == Ok(&bytes), "{size}: {:?}", echo.map(|echo| echo.len()));
        }
    }
    stop(seats).await;
}
