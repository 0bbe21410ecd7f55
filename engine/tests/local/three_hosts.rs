//! Three hosts that find each other through the Store.

use std::collections::BTreeSet;
use std::time::Duration;

use spotmesh::app::*;

use super::counter::*;

/// Three hosts, and time for them to connect.
fn three(world: &World) -> [HostHandle; 3] {
    let hosts = [world.server(), world.server(), world.server()];
    world.local.block_on(world.sleep(Duration::from_secs(5)));
    hosts
}

#[test]
fn actors_spread_over_the_hosts_and_every_host_reaches_every_actor() {
    let world = World::new();
    let hosts = three(&world);
    world.local.block_on(async {
        let mut owners = BTreeSet::new();
        for number in 0..30 {
            let id = format!("actor-{number}");
            create(&hosts[number % 3], &id, 0).await;
            for host in &hosts {
                host.actor::<Counter>(&id).request(Add(1)).await.unwrap();
            }
            let found = hosts[0].find(&id).await.unwrap().expect("a Ready Actor");
            owners.insert(found.node);
            assert_eq!(hosts[1].actor::<Counter>(&id).request(Add(0)).await, Ok(3));
        }
        assert_eq!(owners.len(), 3, "30 Actors of equal weights leave no host out");
    });
}

#[test]
fn create_t1_of_many_callers_one_creates_and_all_others_find() {
    let world = World::new();
    let hosts = three(&world);
    world.local.block_on(async {
        let calls = (0..9).map(|n| {
            hosts[n % 3].actors().get_or_create::<Counter>("ann", Start::At(n as u64)).into_future()
        });
        let results = futures::future::join_all(calls).await;
        let mut accepted = 0;
        let mut generations = BTreeSet::new();
        for result in results {
            let created = result.unwrap();
            accepted += usize::from(matches!(created, Created::Accepted { .. }));
            generations.insert(created.actor().unwrap().object_generation);
        }
        assert_eq!((accepted, generations.len()), (1, 1));
        assert_eq!(FACTORIES.get(), 1);
    });
}

#[test]
fn model_115_messages_of_one_source_keep_their_order() {
    let world = World::new();
    let hosts = three(&world);
    world.local.block_on(async {
        create(&hosts[0], "ann", 0).await;
        for number in 0..100 {
            hosts[1].actor::<Counter>("ann").send(Note(number)).await.unwrap();
        }
        let notes = hosts[1].actor::<Counter>("ann").request(Notes).await.unwrap();
        assert_eq!(notes, (0..100).collect::<Vec<_>>());
    });
}

#[test]
fn errors_of_a_remote_actor_arrive_as_local_ones_do() {
    let world = World::new();
    let hosts = three(&world);
    world.local.block_on(async {
        create(&hosts[0], "ann", 5).await;
        create(&hosts[0], "bob", 5).await;
        for host in &hosts {
            let ann = host.actor::<Counter>("ann");
            assert_eq!(kind(ann.request(Panic).await), ErrorKind::InternalFailure);
            assert_eq!(kind(ann.request(Fail).await), ErrorKind::StateIncompatible);
            assert_eq!(kind(host.address("ann").request(Unknown).await), ErrorKind::NotFound);
            assert_eq!(kind(host.actor::<Counter>("nobody").request(Add(1)).await), ErrorKind::NotFound);
            let itself = ann.request(AddTo("ann".to_owned(), 1)).await;
            assert_eq!(kind(itself), ErrorKind::InvalidOperation);
            assert!(ann.request(AddTo("bob".to_owned(), 1)).await.is_ok());
        }
        assert_eq!(hosts[2].actor::<Counter>("bob").request(Add(0)).await, Ok(8));
    });
}

#[test]
fn a_host_that_left_in_order_takes_its_actors_along_and_no_new_ones() {
    let world = World::new();
    let hosts = three(&world);
    world.local.block_on(async {
        assert_eq!(hosts[2].shutdown().await, Ok(ShutdownOutcome::Stopped));
        for number in 0..20 {
            let id = format!("actor-{number}");
            create(&hosts[number % 2], &id, 1).await;
            assert_eq!(hosts[(number + 1) % 2].actor::<Counter>(&id).request(Add(1)).await, Ok(2));
        }
    });
}
