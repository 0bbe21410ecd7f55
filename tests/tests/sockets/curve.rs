//! Hosts that prove who they are.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use spotmesh::app::*;
use spotmesh::model::{Rid, SecurityIdentity};
use spotmesh_net_zmq::{KeyPair, KeyRing, Security, ZmqConfig};
use spotmesh_store_memory::MemoryStore;

use super::counter::*;
use super::world::*;

fn rid(name: &str) -> Rid {
    Rid::new(name).unwrap()
}

/// A server with a fixed RID and keys of its own that knows those of others.
fn start(store: &MemoryStore, name: &str, keys: &KeyPair, ring: &KeyRing) -> Seat {
    let host =
        server(store.clone(), |m| m.rid(name).identity(format!("host {name}")).public_key(keys.public));
    let security = Security::Curve { keys: keys.clone(), peers: Arc::new(ring.clone()) };
    Seat::start(host, ZmqConfig { security, ..ZmqConfig::default() })
}

/// Lets these hosts in, each with its own RID and identity.
fn ring<'a>(known: impl IntoIterator<Item = (&'a str, &'a KeyPair)>) -> KeyRing {
    known.into_iter().fold(KeyRing::new(), |ring, (name, keys)| {
        ring.allow(keys.public, Some(rid(name)), Some(SecurityIdentity::new(format!("host {name}")).unwrap()))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_with_known_keys_work_together_and_one_with_an_unknown_key_cannot_join() {
    let store = MemoryStore::new();
    let [a, b, stranger] = [(); 3].map(|()| KeyPair::generate().unwrap());
    let known = ring([("a", &a), ("b", &b)]);
    let mut first = start(&store, "a", &a, &known);
    let mut second = start(&store, "b", &b, &known);
    first.meet(1).await;
    second.meet(1).await;

    // The stranger reads and writes the same Store and knows everybody's public key.
    let all = ring([("a", &a), ("b", &b), ("stranger", &stranger)]);
    let outside = start(&store, "stranger", &stranger, &all);
    outside.host().wait_serving().await.unwrap();
    assert_eq!(endpoints(&store).await.len(), 3, "the Store lists it");
    // Several polls of the listing and dials go by.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(first.peers().await, BTreeSet::from([rid("b")]));
    assert_eq!(second.peers().await, BTreeSet::from([rid("a")]));

    let mut owners = BTreeSet::new();
    for number in 0..20 {
        let id = format!("curve-{number}");
        owners.insert(create(first.host(), &id, 1).await.node);
        assert_eq!(second.host().actor::<Counter>(&id).request(Add(1)).await, Ok(2));
        let refused = outside.host().actor::<Counter>(&id).request(Add(1)).await;
        assert_eq!(kind(refused), ErrorKind::Unavailable, "no way from the stranger to the owner");
    }
    assert_eq!(owners, BTreeSet::from([rid("a"), rid("b")]), "nothing was placed on the stranger");
    assert_eq!(first.host().actor::<Counter>("curve-0").request(Add(0)).await, Ok(2));
    stop([first, second, outside]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_known_key_with_anothers_rid_cannot_join() {
    let store = MemoryStore::new();
    let [a, b, c] = [(); 3].map(|()| KeyPair::generate().unwrap());
    let known = ring([("a", &a), ("b", &b), ("c", &c)]);
    let mut first = start(&store, "a", &a, &known);
    let mut second = start(&store, "b", &b, &known);
    first.meet(1).await;
    second.meet(1).await;
    // `d` is not a RID of this key, nor of any.
    let outside = start(&store, "d", &c, &known);
    outside.host().wait_serving().await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(first.peers().await, BTreeSet::from([rid("b")]));
    assert_eq!(second.peers().await, BTreeSet::from([rid("a")]));
    create(first.host(), "proven", 1).await;
    assert_eq!(second.host().actor::<Counter>("proven").request(Add(1)).await, Ok(2));
    stop([first, second, outside]).await;
}
