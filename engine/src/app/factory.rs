//! Registering a type: its handlers and its one relocation policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::adapter::StateAdapter;
use super::message::{Message, is_legal_name};
use super::typed::{HandlerEntry, Table};
use super::{Actor, Handle, PreserveState};
use crate::model::{RelocationPolicy, StableType};

/// The registration of one Actor type in the making, lent to the configure closure of
/// [`MeshBuilder::actor`](super::MeshBuilder::actor) (NODE-31).
///
/// The closure must return a [`Registered`], and only the three policies make one, each by using the factory
/// up. So a registration has exactly one policy (NODE-35) and no factory outlives its closure (NODE-33):
///
/// ```compile_fail
/// # use spotmesh::app::*;
/// # use spotmesh::model::Error;
/// # struct Player;
/// # impl Actor for Player {
/// #     const TYPE: &'static str = "player";
/// #     type Create = (); type Accepted = (); type Rejected = ();
/// #     async fn create(_: (), _: &mut CreateContext<'_>) -> Result<Admission<Self>, Error> {
/// #         Ok(Admission::accept(Player, ()))
/// #     }
/// # }
/// // No policy.
/// HostBuilder::new().mesh("game", |m| m.server().actor::<Player>(|f| f));
/// ```
///
/// ```compile_fail
/// # use spotmesh::app::*;
/// # use spotmesh::model::Error;
/// # struct Player;
/// # impl Actor for Player {
/// #     const TYPE: &'static str = "player";
/// #     type Create = (); type Accepted = (); type Rejected = ();
/// #     async fn create(_: (), _: &mut CreateContext<'_>) -> Result<Admission<Self>, Error> {
/// #         Ok(Admission::accept(Player, ()))
/// #     }
/// # }
/// // Two policies.
/// HostBuilder::new()
///     .mesh("game", |m| m.server().actor::<Player>(|f| f.disable_relocation().recreate_on_relocation()));
/// ```
///
/// ```compile_fail
/// # use spotmesh::app::*;
/// # use spotmesh::model::Error;
/// # struct Player;
/// # impl Actor for Player {
/// #     const TYPE: &'static str = "player";
/// #     type Create = (); type Accepted = (); type Rejected = ();
/// #     async fn create(_: (), _: &mut CreateContext<'_>) -> Result<Admission<Self>, Error> {
/// #         Ok(Admission::accept(Player, ()))
/// #     }
/// # }
/// // State is to be preserved, but nothing says how.
/// HostBuilder::new().mesh("game", |m| m.server().actor::<Player>(|f| f.preserve_state()));
/// ```
///
/// ```compile_fail
/// # use spotmesh::app::*;
/// # use spotmesh::model::Error;
/// # struct Player;
/// # impl Actor for Player {
/// #     const TYPE: &'static str = "player";
/// #     type Create = (); type Accepted = (); type Rejected = ();
/// #     async fn create(_: (), _: &mut CreateContext<'_>) -> Result<Admission<Self>, Error> {
/// #         Ok(Admission::accept(Player, ()))
/// #     }
/// # }
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Hit;
/// # spotmesh::message!(Hit, "hit", reply = ());
/// // A message without a handler.
/// HostBuilder::new()
///     .mesh("game", |m| m.server().actor::<Player>(|f| f.handles::<Hit>().disable_relocation()));
/// ```
///
/// ```compile_fail
/// # use spotmesh::app::*;
/// # use spotmesh::model::Error;
/// # struct Player;
/// # impl Actor for Player {
/// #     const TYPE: &'static str = "";
/// #     type Create = (); type Accepted = (); type Rejected = ();
/// #     async fn create(_: (), _: &mut CreateContext<'_>) -> Result<Admission<Self>, Error> {
/// #         Ok(Admission::accept(Player, ()))
/// #     }
/// # }
/// // An illegal stable type.
/// HostBuilder::new().mesh("game", |m| m.server().actor::<Player>(|f| f.disable_relocation()));
/// ```
///
/// What the examples have in common is not the reason; this one compiles:
///
/// ```
/// # use spotmesh::app::*;
/// # use spotmesh::model::Error;
/// # struct Player;
/// # impl Actor for Player {
/// #     const TYPE: &'static str = "player";
/// #     type Create = (); type Accepted = (); type Rejected = ();
/// #     async fn create(_: (), _: &mut CreateContext<'_>) -> Result<Admission<Self>, Error> {
/// #         Ok(Admission::accept(Player, ()))
/// #     }
/// # }
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Hit;
/// # spotmesh::message!(Hit, "hit", reply = ());
/// # impl Handle<Hit> for Player {
/// #     async fn handle(&mut self, _: Hit, _: &mut ActorContext<'_, Self>) -> Result<(), Error> { Ok(()) }
/// # }
/// # impl PreserveState for Player {
/// #     type State = ();
/// #     const VERSION: u16 = 1;
/// #     fn capture(&self) -> Result<(), Error> { Ok(()) }
/// #     fn restore(_: Versioned<()>) -> Result<Self, Error> { Ok(Player) }
/// # }
/// HostBuilder::new().mesh("game", |m| m.server().actor::<Player>(|f| f.handles::<Hit>().preserve_state()));
/// ```
#[must_use = "a factory becomes a registration by its relocation policy"]
pub struct Factory<A: Actor> {
    handlers: BTreeMap<crate::model::PacketName, HandlerEntry<A>>,
    problem: Option<String>,
}

impl<A: Actor> Factory<A> {
    pub(crate) fn new() -> Self {
        Self { handlers: BTreeMap::new(), problem: None }
    }

    /// The type handles this message. Two messages of one wire name make the host refuse to start (ERR-21).
    pub fn handles<M: Message>(mut self) -> Self
    where
        A: Handle<M>,
    {
        if self.handlers.insert(M::packet(), HandlerEntry::of::<M>()).is_some() {
            self.problem.get_or_insert(format!(
                "{}: a handler of `{}` is registered twice",
                A::TYPE,
                M::NAME
            ));
        }
        self
    }

    /// The Actor never changes its node.
    pub fn disable_relocation(self) -> Registered<A> {
        self.registered(RelocationPolicy::DisableRelocation, None)
    }

    /// A move takes queue and timers along and builds the Actor anew.
    pub fn recreate_on_relocation(self) -> Registered<A> {
        self.registered(RelocationPolicy::RecreateOnRelocation, None)
    }

    /// A move takes state, queue and timers along.
    pub fn preserve_state(self) -> Registered<A>
    where
        A: PreserveState,
    {
        self.registered(RelocationPolicy::PreserveState, Some(StateAdapter::new()))
    }

    fn registered(self, policy: RelocationPolicy, adapter: Option<StateAdapter<A>>) -> Registered<A> {
        let table = Arc::new(Table { handlers: self.handlers, adapter });
        Registered { policy, table, problem: self.problem }
    }
}

/// A complete registration; only a relocation policy makes one (see [`Factory`]).
#[must_use = "the configure closure returns it"]
pub struct Registered<A: Actor> {
    pub(crate) policy: RelocationPolicy,
    pub(crate) table: Arc<Table<A>>,
    pub(crate) problem: Option<String>,
}

impl<A: Actor> Registered<A> {
    /// What a move does with Actors of the type.
    #[must_use]
    pub fn policy(&self) -> RelocationPolicy {
        self.policy
    }

    /// The way the type's state is captured and restored, where it is preserved.
    #[must_use]
    pub fn adapter(&self) -> Option<&StateAdapter<A>> {
        self.table.adapter.as_ref()
    }
}

/// The stable type of an Actor type; does not compile where [`Actor::TYPE`] is not legal.
pub(crate) fn stable_type_of<A: Actor>() -> StableType {
    const { assert!(is_legal_name(A::TYPE), "Actor::TYPE: expected 1..=255 bytes") };
    // Length is the only rule a stable type has, and it was checked.
    StableType::new(A::TYPE).unwrap_or_else(|_| unreachable!())
}
