//! One host.

use std::time::Duration;

use futures::StreamExt;
use futures::future::{Either, select};
use spotmesh::app::*;
use spotmesh::event::Event;
use spotmesh::model::HostState;

use super::counter::*;

#[test]
fn create_request_send_and_find() {
    let world = World::new();
    let host = world.server();
    assert_eq!(host.state(), HostState::Serving);
    world.local.block_on(async {
        assert_eq!(host.find("ann").await, Ok(None));
        create(&host, "ann", 5).await;
        let ann = host.actor::<Counter>("ann");
        assert_eq!(ann.request(Add(2)).await, Ok(7));
        ann.send(Note(1)).await.unwrap();
        ann.send(Note(2)).await.unwrap();
        assert_eq!(host.address("ann").request(Notes).await, Ok(vec![1, 2]));
        let found = host.find("ann").await.unwrap().expect("a Ready Actor");
        assert_eq!((found.id.as_str(), found.mesh.as_str()), ("ann", "game"));
    });
}

#[test]
fn an_existing_actor_is_a_result_or_an_error_as_the_caller_chose() {
    let world = World::new();
    let host = world.server();
    world.local.block_on(async {
        create(&host, "ann", 5).await;
        let again = host.actors().create::<Counter>("ann", Start::At(9)).await;
        assert_eq!(kind(again), ErrorKind::AlreadyExists);
        let existing = host.actors().get_or_create::<Counter>("ann", Start::At(9)).await;
        assert!(matches!(existing, Ok(Created::Existing { .. })), "{existing:?}");
        assert_eq!(host.actor::<Counter>("ann").request(Add(0)).await, Ok(5), "the first one lives on");
        let made = host.actors().get_or_create::<Counter>("bob", Start::At(9)).await;
        assert!(matches!(made, Ok(Created::Accepted { reply: 9, .. })), "{made:?}");
    });
}

#[test]
fn create_24_a_failed_or_declined_creation_leaves_nothing_and_the_id_free() {
    let world = World::new();
    let host = world.server();
    world.local.block_on(async {
        let start = |start| host.actors().create::<Counter>("ann", start).into_future();
        let declined = start(Start::Refuse).await;
        assert!(matches!(&declined, Ok(Created::Rejected { reply }) if reply == "not today"), "{declined:?}");
        assert_eq!(host.find("ann").await, Ok(None));
        assert_eq!(kind(start(Start::Fail).await), ErrorKind::InternalFailure);
        assert_eq!(kind(start(Start::Panic).await), ErrorKind::InternalFailure);
        assert_eq!(host.find("ann").await, Ok(None));
        assert_eq!(kind(host.actor::<Counter>("ann").request(Add(1)).await), ErrorKind::NotFound);
        create(&host, "ann", 1).await;
    });
}

#[test]
fn a_failing_handler_fails_its_request_and_spares_its_actor() {
    let world = World::new();
    let host = world.server();
    world.local.block_on(async {
        create(&host, "ann", 5).await;
        let ann = host.actor::<Counter>("ann");
        assert_eq!(kind(ann.request(Panic).await), ErrorKind::InternalFailure);
        assert_eq!(kind(ann.request(Fail).await), ErrorKind::StateIncompatible, "ERR-17");
        assert_eq!(kind(host.address("ann").request(Unknown).await), ErrorKind::NotFound);
        assert_eq!(ann.request(Add(1)).await, Ok(6));
    });
}

#[test]
fn a_handler_calls_another_actor_but_never_waits_for_its_own() {
    let world = World::new();
    let host = world.server();
    world.local.block_on(async {
        create(&host, "ann", 5).await;
        create(&host, "bob", 50).await;
        let ann = host.actor::<Counter>("ann");
        assert_eq!(ann.request(AddTo("bob".to_owned(), 1)).await, Ok(51));
        let itself = ann.request(AddTo("ann".to_owned(), 1)).await;
        assert_eq!(kind(itself), ErrorKind::InvalidOperation, "MODEL-73");
        assert_eq!(ann.request(Add(0)).await, Ok(5));
    });
}

#[test]
fn model_107_a_deadline_ends_the_wait_and_not_the_turn() {
    let world = World::new();
    let host = world.server();
    world.local.block_on(async {
        create(&host, "ann", 5).await;
        let ann = host.actor::<Counter>("ann");
        let late = ann.request(Hang).timeout(Duration::from_millis(200)).await;
        assert_eq!(kind(late), ErrorKind::DeadlineExceeded);
        // MODEL-53: the hanging turn keeps its gate.
        let behind = ann.request(Add(1)).timeout(Duration::from_millis(200)).await;
        assert_eq!(kind(behind), ErrorKind::DeadlineExceeded);
    });
}

#[test]
fn a_caller_that_goes_away_disturbs_nobody() {
    let world = World::new();
    let host = world.server();
    world.local.block_on(async {
        create(&host, "ann", 5).await;
        create(&host, "bob", 5).await;
        let hanging = host.actor::<Counter>("ann").request(Hang).into_future();
        let patience = Box::pin(world.sleep(Duration::from_millis(10)));
        assert!(matches!(select(hanging, patience).await, Either::Right(_)));
        assert_eq!(host.actor::<Counter>("bob").request(Add(1)).await, Ok(6));
    });
}

#[test]
fn without_weight_or_room_there_is_no_candidate() {
    let world = World::new();
    let host = world.local.start(world.describe(|m| m.max_actors(1))).unwrap();
    world.local.block_on(async {
        host.set_placement_weight(0).await.unwrap();
        // Candidates are what the last listing said.
        world.sleep(Duration::from_secs(2)).await;
        let short = Duration::from_secs(3);
        let refused = host.actors().create::<Counter>("ann", Start::At(1)).timeout(short).await;
        assert_eq!(kind(refused), ErrorKind::Unavailable);
        host.set_placement_weight(100).await.unwrap();
        world.sleep(Duration::from_secs(2)).await;
        create(&host, "ann", 1).await;
        let refused = host.actors().create::<Counter>("bob", Start::At(1)).timeout(short).await;
        assert_eq!(kind(refused), ErrorKind::Unavailable);
        assert_eq!(host.actor::<Counter>("ann").request(Add(1)).await, Ok(2));
    });
}

#[test]
fn shutdown_ends_the_host_and_frees_its_names() {
    let world = World::new();
    let host = world.local.start(world.describe(|m| m.rid("fixed"))).unwrap();
    let mut events = host.observe(1_024);
    world.local.block_on(async {
        create(&host, "ann", 5).await;
        assert_eq!(host.shutdown().await, Ok(ShutdownOutcome::Stopped));
        assert_eq!(host.state(), HostState::Stopped);
        assert_eq!(kind(host.actor::<Counter>("ann").request(Add(1)).await), ErrorKind::ShuttingDown);
        let mut states = Vec::new();
        while let Some(event) = events.next().await {
            if let Event::HostState { to, .. } = event {
                states.push(to);
            }
        }
        assert_eq!(states, [HostState::Draining, HostState::Stopped]);
    });
    // NODE-16: the RID is free again at once, the lease having been released.
    let next = world.local.start(world.describe(|m| m.rid("fixed"))).unwrap();
    world.local.block_on(async {
        create(&next, "ann", 1).await;
    });
}

#[test]
fn node_15_a_claimed_rid_fails_the_start_with_configuration() {
    let world = World::new();
    let first = world.local.start(world.describe(|m| m.rid("fixed"))).unwrap();
    let second = world.local.start(world.describe(|m| m.rid("fixed")));
    assert_eq!(kind(second), ErrorKind::Configuration);
    world.local.block_on(async {
        create(&first, "ann", 5).await;
    });
}

#[test]
fn a_host_without_the_role_cannot_create() {
    let world = World::new();
    let host = world.local.start(HostBuilder::new().mesh("game", |m| m.manual([]))).unwrap();
    world.local.block_on(async {
        let refused = host.actors().create::<Counter>("ann", Start::At(1)).await;
        assert_eq!(kind(refused), ErrorKind::NotConfigured);
    });
}
