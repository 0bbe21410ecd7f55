//! The async driver and the embedding API under madsim: tasks, cancellation, hanging and panicking handlers.

use std::time::Duration;

use madsim::time::{sleep, timeout};
use serde::{Deserialize, Serialize};
use spotmesh::app::{
    Actor, ActorContext, Admission, CreateContext, Created, Error, ErrorKind, Handle, HostBuilder,
};
use spotmesh_sim::action::StoreFault;
use spotmesh_sim::agenda::millis;
use spotmesh_sim::mad::{Cluster, MadStore, with_seed};
use spotmesh_sim::net::Notice;

#[derive(Debug, Serialize, Deserialize)]
struct Add(u64);
spotmesh::message!(Add, "counter.add", reply = u64);

#[derive(Debug, Serialize, Deserialize)]
struct Misbehave(u8);
spotmesh::message!(Misbehave, "counter.misbehave", reply = u64);

#[derive(Debug, Serialize, Deserialize)]
struct AskOther(String);
spotmesh::message!(AskOther, "counter.ask_other", reply = u64);

struct Counter(u64);

impl Actor for Counter {
    const TYPE: &'static str = "counter";
    type Create = u64;
    type Accepted = String;
    type Rejected = String;

    async fn create(start: u64, _: &mut CreateContext<'_>) -> Result<Admission<Self>, Error> {
        sleep(Duration::from_millis(3)).await;
        match start {
            404 => Ok(Admission::reject("not this one".to_owned())),
            500 => Err(Error::new(ErrorKind::InternalFailure, "create", "on purpose")),
            501 => std::panic::resume_unwind(Box::new("on purpose")),
            999 => std::future::pending().await,
            start => Ok(Admission::accept(Self(start), "welcome".to_owned())),
        }
    }
}

impl Handle<Add> for Counter {
    async fn handle(&mut self, Add(by): Add, _: &mut ActorContext<'_, Self>) -> Result<u64, Error> {
        let before = self.0;
        // The gate keeps the turn exclusive across an await (MODEL-67).
        sleep(Duration::from_millis(2)).await;
        assert_eq!(self.0, before, "another turn ran in between");
        self.0 += by;
        Ok(self.0)
    }
}

impl Handle<Misbehave> for Counter {
    async fn handle(&mut self, how: Misbehave, _: &mut ActorContext<'_, Self>) -> Result<u64, Error> {
        match how.0 {
            0 => std::panic::resume_unwind(Box::new("on purpose")),
            1 => Err(Error::new(ErrorKind::NotFound, "handler", "on purpose")),
            2 => {
                sleep(Duration::from_secs(4)).await;
                Ok(self.0)
            }
            _ => std::future::pending().await,
        }
    }
}

impl Handle<AskOther> for Counter {
    async fn handle(&mut self, ask: AskOther, ctx: &mut ActorContext<'_, Self>) -> Result<u64, Error> {
        ctx.actor::<Self>(ask.0).request(Add(1)).timeout(Duration::from_secs(2)).await
    }
}

fn server(store: MadStore) -> HostBuilder {
    HostBuilder::new().store(store).mesh("alpha", |mesh| {
        mesh.server().actor::<Counter>(|factory| {
            factory.handles::<Add>().handles::<Misbehave>().handles::<AskOther>().disable_relocation()
        })
    })
}

fn client(store: MadStore) -> HostBuilder {
    HostBuilder::new().store(store).mesh("alpha", |mesh| mesh.client())
}

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorKind {
    match result {
        Ok(found) => panic!("expected an error, found {found:?}"),
        Err(error) => error.kind(),
    }
}

/// Several seeds of one simulation.
fn seeds<F>(simulation: fn(u64) -> F)
where
    F: Future<Output = ()> + 'static,
{
    for seed in 1..=8 {
        with_seed(seed, simulation);
    }
}

#[test]
fn creates_and_requests_between_three_hosts() {
    seeds(|seed| async move {
        let mut cluster = Cluster::new(seed);
        let (a, b, c) = (cluster.start(server), cluster.start(server), cluster.start(client));
        cluster.wait_serving().await;
        let mut created = 0;
        let calls = [a, b, c].map(|seat| {
            let host = cluster.host(seat);
            madsim::task::spawn(async move { host.actors().get_or_create::<Counter>("ann", 10).await })
        });
        for call in calls {
            match call.await.unwrap().unwrap() {
                Created::Accepted { reply, .. } => {
                    assert_eq!(reply, "welcome");
                    created += 1;
                }
                Created::Existing { .. } => {}
                Created::Rejected { .. } => panic!("nobody declines"),
            }
        }
        assert_eq!(created, 1, "CREATE-T1");
        let mut total = 0;
        for round in 0..10 {
            let host = cluster.host([a, b, c][round % 3]);
            total = host.actor::<Counter>("ann").request(Add(1)).await.unwrap();
        }
        assert_eq!(total, 20);
        cluster.store.check().unwrap();
    });
}

#[test]
fn create_callbacks_decline_fail_panic_and_hang() {
    seeds(|seed| async move {
        let mut cluster = Cluster::new(seed);
        let (_, c) = (cluster.start(server), cluster.start(client));
        cluster.wait_serving().await;
        let host = cluster.host(c);
        match host.actors().create::<Counter>("no", 404).await.unwrap() {
            Created::Rejected { reply } => assert_eq!(reply, "not this one"),
            other => panic!("expected Rejected, found {other:?}"),
        }
        assert_eq!(kind(host.actors().create::<Counter>("no", 500).await), ErrorKind::InternalFailure);
        assert_eq!(kind(host.actors().create::<Counter>("no", 501).await), ErrorKind::InternalFailure);
        let hang = host.actors().create::<Counter>("no", 999).timeout(Duration::from_secs(2)).await;
        assert_eq!(kind(hang), ErrorKind::DeadlineExceeded);
        sleep(Duration::from_secs(2)).await;
        // CREATE-T4, CREATE-T5: the id is free after each of them.
        assert!(matches!(host.actors().create::<Counter>("no", 1).await, Ok(Created::Accepted { .. })));
        cluster.store.check().unwrap();
    });
}

#[test]
fn handlers_panic_fail_and_hang_without_harm_to_others() {
    seeds(|seed| async move {
        let mut cluster = Cluster::new(seed);
        let (_, c) = (cluster.start(server), cluster.start(client));
        cluster.wait_serving().await;
        let host = cluster.host(c);
        host.actors().create::<Counter>("ann", 0).await.unwrap();
        host.actors().create::<Counter>("bob", 0).await.unwrap();
        let ann = host.actor::<Counter>("ann");
        assert_eq!(kind(ann.request(Misbehave(0)).await), ErrorKind::InternalFailure);
        assert_eq!(kind(ann.request(Misbehave(1)).await), ErrorKind::NotFound);
        assert_eq!(ann.request(Add(1)).await.unwrap(), 1, "a panic does not end the Actor (MODEL-63)");
        let hanging = ann.request(Misbehave(9)).timeout(Duration::from_millis(500)).await;
        assert_eq!(kind(hanging), ErrorKind::DeadlineExceeded);
        let behind = ann.request(Add(1)).timeout(Duration::from_millis(500)).await;
        assert_eq!(kind(behind), ErrorKind::DeadlineExceeded, "its gate is held (MODEL-67)");
        assert_eq!(host.actor::<Counter>("bob").request(Add(5)).await.unwrap(), 5, "MODEL-T24");
    });
}

#[test]
fn a_cancelled_call_stops_the_wait_and_not_the_handler() {
    seeds(|seed| async move {
        let mut cluster = Cluster::new(seed);
        let (a, c) = (cluster.start(server), cluster.start(client));
        cluster.wait_serving().await;
        cluster.host(a).actors().create::<Counter>("ann", 0).await.unwrap();
        let host = cluster.host(c);
        for at in [1, 2, 5, 20] {
            // Dropping the future is the cancellation (ERR-6); it may fall anywhere between submit and reply.
            let call = host.actor::<Counter>("ann").request(Add(1)).into_future();
            let _ = timeout(Duration::from_millis(at), call).await;
        }
        sleep(Duration::from_secs(1)).await;
        let total = host.actor::<Counter>("ann").request(Add(0)).await.unwrap();
        assert!(total <= 4, "each ran once at most: {total}");
    });
}

#[test]
fn a_killed_owner_is_unavailable_and_other_ids_go_on() {
    seeds(|seed| async move {
        let mut cluster = Cluster::new(seed);
        let (a, c) = (cluster.start(server), cluster.start(client));
        cluster.wait_serving().await;
        let host = cluster.host(c);
        host.actors().create::<Counter>("ann", 0).await.unwrap();
        let pending = {
            let host = host.clone();
            madsim::task::spawn(async move { host.actor::<Counter>("ann").request(Misbehave(2)).await })
        };
        sleep(Duration::from_millis(500)).await;
        cluster.kill(a, Notice::After(5), seed.is_multiple_of(2));
        assert_eq!(kind(pending.await.unwrap()), ErrorKind::Unavailable, "MODEL-103: its link broke");
        cluster.restart(a);
        sleep(Duration::from_secs(25)).await;
        assert_eq!(kind(host.actor::<Counter>("ann").request(Add(1)).await), ErrorKind::Unavailable);
        assert_eq!(
            kind(host.actors().get_or_create::<Counter>("ann", 0).await),
            ErrorKind::Unavailable,
            "HOST-T20"
        );
        host.actors().create::<Counter>("bob", 3).await.unwrap();
        assert_eq!(host.actor::<Counter>("bob").request(Add(1)).await.unwrap(), 4);
        cluster.store.check().unwrap();
    });
}

#[test]
fn a_host_paused_past_its_lease_goes_on_unless_it_was_fenced() {
    seeds(|seed| async move {
        let mut cluster = Cluster::new(seed);
        let (a, c) = (cluster.start(server), cluster.start(client));
        cluster.wait_serving().await;
        let host = cluster.host(c);
        host.actors().create::<Counter>("ann", 7).await.unwrap();
        cluster.pause(a);
        sleep(Duration::from_secs(20)).await;
        let late = host.actor::<Counter>("ann").request(Add(1)).timeout(Duration::from_secs(1)).await;
        assert_eq!(kind(late), ErrorKind::Unavailable, "its lease has run out");
        cluster.resume(a);
        sleep(Duration::from_secs(12)).await;
        // Nobody acted on the expiry, so the renewal counts (STORE-36) and the Actor has kept its state.
        assert_eq!(host.actor::<Counter>("ann").request(Add(1)).await.unwrap(), 8);
    });
}

#[test]
fn lost_store_answers_settle_to_one_result() {
    seeds(|seed| async move {
        let mut cluster = Cluster::new(seed);
        let (a, _) = (cluster.start(server), cluster.start(server));
        cluster.wait_serving().await;
        let host = cluster.host(a);
        let faults = [
            StoreFault::LostBefore,
            StoreFault::LostAfter,
            StoreFault::AppliesLater(300),
            StoreFault::Silent(true),
            StoreFault::Silent(false),
            StoreFault::FailBefore,
        ];
        for (n, fault) in faults.into_iter().enumerate() {
            for op in ["put_creation_content", "reserve", "commit_created"] {
                cluster.store.fault(Some(op), fault, 1);
                let id = format!("{op}-{n}");
                let created = host.actors().create::<Counter>(id.as_str(), 1).await;
                assert!(matches!(created, Ok(Created::Accepted { .. })), "{op} {fault:?}: {created:?}");
                assert_eq!(host.actor::<Counter>(id.as_str()).request(Add(1)).await.unwrap(), 2);
            }
        }
        cluster.store.check().unwrap();
    });
}

#[test]
fn requests_survive_partitions_and_broken_links_once_they_heal() {
    seeds(|seed| async move {
        let mut cluster = Cluster::new(seed);
        let (a, b) = (cluster.start(server), cluster.start(client));
        cluster.wait_serving().await;
        cluster.host(a).actors().create::<Counter>("ann", 0).await.unwrap();
        let host = cluster.host(b);
        let mut replied = 0;
        for round in 0..20u64 {
            match (round + seed) % 5 {
                0 => cluster.network.break_between(a, b, Notice::After(3), Notice::After(1)),
                2 => cluster.network.partition(a, b, millis(700)),
                _ => {}
            }
            let call = host.actor::<Counter>("ann").request(Add(1)).timeout(Duration::from_secs(3)).await;
            replied += u64::from(call.is_ok());
            sleep(Duration::from_millis(400)).await;
        }
        cluster.network.heal();
        sleep(Duration::from_secs(12)).await;
        let total = host.actor::<Counter>("ann").request(Add(0)).await.unwrap();
        assert!(total >= replied && total <= 20, "{replied} replies, {total} handled");
    });
}

#[test]
fn handlers_call_other_actors_and_shutdown_ends_everything() {
    seeds(|seed| async move {
        let mut cluster = Cluster::new(seed);
        let (a, b) = (cluster.start(server), cluster.start(server));
        cluster.wait_serving().await;
        let host = cluster.host(b);
        host.actors().create::<Counter>("ann", 0).await.unwrap();
        host.actors().create::<Counter>("bob", 0).await.unwrap();
        assert_eq!(host.actor::<Counter>("ann").request(AskOther("bob".to_owned())).await.unwrap(), 1);
        let own = host.actor::<Counter>("ann").request(AskOther("ann".to_owned())).await;
        assert_eq!(kind(own), ErrorKind::InvalidOperation, "MODEL-73");
        for seat in [a, b] {
            cluster.host(seat).shutdown().await.unwrap();
        }
        assert_eq!(kind(host.actor::<Counter>("ann").request(Add(1)).await), ErrorKind::ShuttingDown);
        cluster.store.check().unwrap();
    });
}
