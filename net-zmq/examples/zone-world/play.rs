//! What is done to the world, phase by phase, and what came of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::join_all;
use indicatif::ProgressBar;
use spotmesh::app::*;
use spotmesh::event::{Event, PeerState};
use spotmesh_net_zmq::Running;

use crate::game::{Cheer, Player, PlayerBooks, ShowBooks, ShowVisits, Step, Zone, zone_id};
use crate::report::Tally;

/// One cheer goes out after this many steps.
const STEPS_A_CHEER: u64 = 5;
/// A node that does not see its peers by then is a failure.
const MEETING: Duration = Duration::from_secs(20);

/// A running host by its short name, which its RID begins with.
pub struct Seat {
    pub name: &'static str,
    pub running: Running,
    /// Everything it tells since its start.
    events: Observer,
}

impl Seat {
    pub fn new(name: &'static str, running: Running) -> Self {
        let events = running.handle().observe(1_024);
        Self { name, running, events }
    }

    fn host(&self) -> &HostHandle {
        self.running.handle()
    }

    fn owns(&self, actor: &spotmesh::model::ActorRef) -> bool {
        actor.node.as_bytes().starts_with(self.name.as_bytes())
    }
}

/// Waits until every host serves and is connected with all others.
pub async fn meet(seats: &mut [Seat]) -> Result<(), String> {
    let peers = seats.len() - 1;
    let meetings = seats.iter_mut().map(|seat| async move {
        seat.host().wait_serving().await.map_err(|error| format!("{}: {error}", seat.name))?;
        let mut ready = BTreeSet::new();
        while ready.len() < peers {
            match seat.events.next().await {
                Some(Event::Peer { rid, state: PeerState::Ready, .. }) => ready.insert(rid),
                Some(_) => continue,
                None => return Err(format!("{}: ended while it was looking for its peers", seat.name)),
            };
        }
        Ok(())
    });
    let met = tokio::time::timeout(MEETING, join_all(meetings)).await;
    met.map_err(|_| format!("the nodes did not connect within {MEETING:?}"))?.into_iter().collect()
}

/// Creates everything through all nodes at once, so that every id is contended; answers who owns each player.
pub async fn populate(
    seats: &Arc<Vec<Seat>>,
    players: u64,
    zones: u32,
    bar: &ProgressBar,
    tally: &mut Tally,
) -> BTreeMap<String, usize> {
    let mut tasks = Vec::new();
    for zone in 0..zones {
        tasks.push((zone_id(zone), tokio::spawn(contend::<Zone>(seats.clone(), zone_id(zone), ()))));
    }
    let ids: Vec<String> = (0..players).map(|number| format!("player-{number}")).collect();
    for id in &ids {
        tasks.push((id.clone(), tokio::spawn(contend::<Player>(seats.clone(), id.clone(), zones))));
    }
    let mut owners = BTreeMap::new();
    for (id, task) in tasks {
        let results = task.await.unwrap_or_else(|panic| vec![Err(panic.to_string())]);
        let mut generations = BTreeSet::new();
        let mut created = 0;
        for result in results {
            match result {
                Ok((by_this_call, actor)) => {
                    created += u64::from(by_this_call);
                    generations.insert(actor.object_generation);
                    if let Some(owner) = seats.iter().position(|seat| seat.owns(&actor)) {
                        owners.insert(id.clone(), owner);
                    }
                }
                Err(error) => tally.fail_creation(&id, &error),
            }
        }
        tally.creation(&id, created, generations.len());
        bar.inc(1);
    }
    owners
}

/// The results of one get-or-create through every node, all at the same time.
async fn contend<A: Actor<Create: Clone>>(
    seats: Arc<Vec<Seat>>,
    id: String,
    request: A::Create,
) -> Vec<Result<(bool, spotmesh::model::ActorRef), String>> {
    let calls =
        seats.iter().map(|seat| seat.host().actors().get_or_create::<A>(&id, request.clone()).into_future());
    let outcome = |result: Result<Created<A>, Error>| match result {
        Ok(Created::Accepted { actor, .. }) => Ok((true, actor)),
        Ok(Created::Existing { actor }) => Ok((false, actor)),
        Ok(Created::Rejected { .. }) => Err("rejected, which no type here does".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    join_all(calls).await.into_iter().map(outcome).collect()
}

/// What was asked of one player and what it should say of it.
pub struct Walked {
    pub id: String,
    /// Steps answered, each with the number expected.
    pub steps: u64,
    pub cheers: u64,
    pub cheers_sum: u64,
    /// Requests that went to another node than they came from.
    pub cross_node: u64,
    /// Every wrong answer or error.
    pub wrong: Vec<String>,
    /// Microseconds of each request.
    pub latencies: Vec<u32>,
}

/// Lets every player walk until `end`, each step asked for through the next node.
pub async fn play(
    seats: &Arc<Vec<Seat>>,
    owners: &BTreeMap<String, usize>,
    end: Instant,
    bar: &ProgressBar,
) -> Vec<Walked> {
    let steps = Arc::new(AtomicU64::new(0));
    let walks: Vec<_> = owners
        .iter()
        .filter(|(id, _)| id.starts_with("player-"))
        .map(|(id, owner)| tokio::spawn(walk(seats.clone(), id.clone(), *owner, end, steps.clone())))
        .collect();
    let begun = Instant::now();
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let done = steps.load(Ordering::Relaxed);
        bar.set_position(begun.elapsed().as_millis() as u64);
        bar.set_message(format!("{done} requests, {:.0}/s", done as f64 / begun.elapsed().as_secs_f64()));
    }
    let mut walked = Vec::new();
    for walk in walks {
        match walk.await {
            Ok(done) => walked.push(done),
            Err(panic) => walked.push(Walked::broken(panic.to_string())),
        }
    }
    walked
}

impl Walked {
    fn new(id: String) -> Self {
        Self {
            id,
            steps: 0,
            cheers: 0,
            cheers_sum: 0,
            cross_node: 0,
            wrong: Vec::new(),
            latencies: Vec::new(),
        }
    }

    fn broken(why: String) -> Self {
        Self { wrong: vec![why], ..Self::new("?".to_owned()) }
    }
}

async fn walk(
    seats: Arc<Vec<Seat>>,
    id: String,
    owner: usize,
    end: Instant,
    steps: Arc<AtomicU64>,
) -> Walked {
    let mut walked = Walked::new(id.clone());
    let mut number = 0;
    while Instant::now() < end {
        number += 1;
        let from = (number as usize) % seats.len();
        let player = seats[from].host().actor::<Player>(&id);
        let asked = Instant::now();
        match player.request(Step(number)).await {
            Ok(count) => {
                if count != walked.steps + 1 {
                    walked.wrong.push(format!("step {number}: expected {}, found {count}", walked.steps + 1));
                }
                walked.steps += 1;
                walked.cross_node += u64::from(from != owner);
                walked.latencies.push(u32::try_from(asked.elapsed().as_micros()).unwrap_or(u32::MAX));
                steps.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => walked.wrong.push(format!("step {number}: {error}")),
        }
        if number.is_multiple_of(STEPS_A_CHEER) {
            match player.send(Cheer(number)).await {
                Ok(()) => {
                    walked.cheers += 1;
                    walked.cheers_sum += number;
                }
                Err(error) => walked.wrong.push(format!("cheer {number}: {error}")),
            }
        }
    }
    walked
}

/// The books of every player and the sum of those of the zones.
pub async fn audit(seats: &[Seat], walked: &[Walked], zones: u32, bar: &ProgressBar, tally: &mut Tally) {
    let players = walked
        .iter()
        .enumerate()
        .map(|(number, walk)| async move { (walk, settled(&seats[number % seats.len()], walk).await) });
    for (walk, books) in join_all(players).await {
        match books {
            Ok(books) => tally.player(walk, books),
            Err(error) => tally.fail_audit(&walk.id, &error),
        }
        bar.inc(1);
    }
    for zone in 0..zones {
        let seat = &seats[zone as usize % seats.len()];
        match seat.host().actor::<Zone>(zone_id(zone)).request(ShowVisits).await {
            Ok(books) => tally.zone(books),
            Err(error) => tally.fail_audit(&zone_id(zone), &error),
        }
        bar.inc(1);
    }
}

/// A player's books; asked for again while one-way messages may still be on their way.
async fn settled(seat: &Seat, walk: &Walked) -> Result<PlayerBooks, Error> {
    let player = seat.host().actor::<Player>(&walk.id);
    let mut books = player.request(ShowBooks).await?;
    for _ in 0..50 {
        if books.cheers >= walk.cheers {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        books = player.request(ShowBooks).await?;
    }
    Ok(books)
}
