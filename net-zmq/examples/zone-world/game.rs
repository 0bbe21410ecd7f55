//! The game: players that step and zones they enter. Both keep books, so that nothing can get lost unseen.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use spotmesh::app::*;

/// A player enters the next zone with every step of this number.
pub const STEPS_A_ZONE: u64 = 4;

/// Factory runs by id, of all hosts of this process.
static FACTORY_RUNS: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

/// How often the factory ran for each id.
pub fn factory_runs() -> BTreeMap<String, u64> {
    FACTORY_RUNS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn note_factory_run(ctx: &CreateContext<'_>) {
    let mut runs = FACTORY_RUNS.lock().unwrap_or_else(PoisonError::into_inner);
    *runs.entry(ctx.id().to_string()).or_default() += 1;
}

/// Checks that numbers come one after the other: 1, 2, 3...
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Books {
    /// Messages handled.
    pub handled: u64,
    /// Numbers that were passed over.
    pub lost: u64,
    /// Numbers that came again.
    pub duplicated: u64,
    /// The largest number so far.
    pub last: u64,
}

impl Books {
    fn note(&mut self, number: u64) {
        self.handled += 1;
        match number.checked_sub(self.last + 1) {
            Some(passed_over) => {
                self.lost += passed_over;
                self.last = number;
            }
            None => self.duplicated += 1,
        }
    }
}

/// What is asked of a player when all is over.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct PlayerBooks {
    /// Of [`Step`].
    pub steps: Books,
    /// Of [`Cheer`], which may come in any order: how many, and the sum of their numbers.
    pub cheers: u64,
    pub cheers_sum: u64,
}

/// The number of a step; the answer is how many steps the player has taken.
#[derive(Serialize, Deserialize)]
pub struct Step(pub u64);
spotmesh::message!(Step, "player.step", reply = u64);

/// One-way applause, numbered.
#[derive(Serialize, Deserialize)]
pub struct Cheer(pub u64);
spotmesh::message!(Cheer, "player.cheer", reply = ());

#[derive(Serialize, Deserialize)]
pub struct ShowBooks;
spotmesh::message!(ShowBooks, "player.show_books", reply = PlayerBooks);

/// A player: the zones it walks through, and its books.
pub struct Player {
    zones: u32,
    books: PlayerBooks,
    /// Visits of each zone so far.
    visits: BTreeMap<u32, u64>,
}

impl Actor for Player {
    const TYPE: &'static str = "zone-world.player";
    /// How many zones there are.
    type Create = u32;
    type Accepted = ();
    type Rejected = ();

    async fn create(zones: u32, ctx: &mut CreateContext<'_>) -> Result<Admission<Self>, Error> {
        note_factory_run(ctx);
        Ok(Admission::accept(Self { zones, books: PlayerBooks::default(), visits: BTreeMap::new() }, ()))
    }
}

impl Handle<Step> for Player {
    async fn handle(&mut self, step: Step, ctx: &mut ActorContext<'_, Self>) -> Result<u64, Error> {
        self.books.steps.note(step.0);
        if step.0.is_multiple_of(STEPS_A_ZONE) {
            // The remainder of a u32 fits into one.
            let zone = (step.0 / STEPS_A_ZONE % u64::from(self.zones)) as u32;
            let visit = self.visits.entry(zone).or_default();
            *visit += 1;
            let enter = Enter { player: ctx.id().to_string(), visit: *visit };
            ctx.actor::<Zone>(zone_id(zone)).request(enter).await?;
        }
        Ok(self.books.steps.handled)
    }
}

impl Handle<Cheer> for Player {
    async fn handle(&mut self, cheer: Cheer, _: &mut ActorContext<'_, Self>) -> Result<(), Error> {
        self.books.cheers += 1;
        self.books.cheers_sum += cheer.0;
        Ok(())
    }
}

impl Handle<ShowBooks> for Player {
    async fn handle(&mut self, _: ShowBooks, _: &mut ActorContext<'_, Self>) -> Result<PlayerBooks, Error> {
        Ok(self.books)
    }
}

/// A player comes in; `visit` counts that player's visits here.
#[derive(Serialize, Deserialize)]
pub struct Enter {
    pub player: String,
    pub visit: u64,
}
spotmesh::message!(Enter, "zone.enter", reply = ());

/// The sum of the books of all visitors.
#[derive(Serialize, Deserialize)]
pub struct ShowVisits;
spotmesh::message!(ShowVisits, "zone.show_visits", reply = Books);

/// A zone, and the books of each visitor.
pub struct Zone {
    visitors: BTreeMap<String, Books>,
}

pub fn zone_id(zone: u32) -> String {
    format!("zone-{zone}")
}

impl Actor for Zone {
    const TYPE: &'static str = "zone-world.zone";
    type Create = ();
    type Accepted = ();
    type Rejected = ();

    async fn create(_: (), ctx: &mut CreateContext<'_>) -> Result<Admission<Self>, Error> {
        note_factory_run(ctx);
        Ok(Admission::accept(Self { visitors: BTreeMap::new() }, ()))
    }
}

impl Handle<Enter> for Zone {
    async fn handle(&mut self, enter: Enter, _: &mut ActorContext<'_, Self>) -> Result<(), Error> {
        self.visitors.entry(enter.player).or_default().note(enter.visit);
        Ok(())
    }
}

impl Handle<ShowVisits> for Zone {
    async fn handle(&mut self, _: ShowVisits, _: &mut ActorContext<'_, Self>) -> Result<Books, Error> {
        let sum = self.visitors.values().fold(Books::default(), |sum, books| Books {
            handled: sum.handled + books.handled,
            lost: sum.lost + books.lost,
            duplicated: sum.duplicated + books.duplicated,
            last: sum.last + books.last,
        });
        Ok(sum)
    }
}

/// A host's description: a node of the Mesh `world` that can own both types.
pub fn node(name: &str, store: impl spotmesh::driver::LocationStore) -> HostBuilder {
    HostBuilder::new().store(store).mesh("world", |mesh| {
        mesh.server()
            .prefix(name)
            .actor::<Player>(|f| {
                f.handles::<Step>().handles::<Cheer>().handles::<ShowBooks>().disable_relocation()
            })
            .actor::<Zone>(|f| f.handles::<Enter>().handles::<ShowVisits>().disable_relocation())
    })
}
