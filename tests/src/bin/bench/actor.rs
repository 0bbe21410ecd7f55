//! The Actor that is asked.

use serde::{Deserialize, Serialize};
use spotmesh::app::*;

/// Holds a number: eight bytes of user state.
pub(crate) struct Subject {
    asked: u64,
}

impl Actor for Subject {
    const TYPE: &'static str = "bench.subject";
    type Create = u64;
    type Accepted = ();
    type Rejected = ();

    async fn create(asked: u64, _: &mut CreateContext<'_>) -> Result<Admission<Self>, Error> {
        Ok(Admission::accept(Self { asked }, ()))
    }
}

/// Asks how often it was asked.
#[derive(Serialize, Deserialize)]
pub(crate) struct Ask;
spotmesh::message!(Ask, "bench.ask", reply = u64);

/// Bytes that come back, as text so that they are one copy each way.
#[derive(Serialize, Deserialize)]
pub(crate) struct Echo(pub(crate) String);
spotmesh::message!(Echo, "bench.echo", reply = String);

impl Handle<Ask> for Subject {
    async fn handle(&mut self, _: Ask, _: &mut ActorContext<'_, Self>) -> Result<u64, Error> {
        self.asked += 1;
        Ok(self.asked)
    }
}

impl Handle<Echo> for Subject {
    async fn handle(&mut self, Echo(text): Echo, _: &mut ActorContext<'_, Self>) -> Result<String, Error> {
        self.asked += 1;
        Ok(text)
    }
}

/// A node that owns such Actors.
pub(crate) fn server(mesh: MeshBuilder) -> MeshBuilder {
    mesh.server().actor::<Subject>(|factory| factory.handles::<Ask>().handles::<Echo>().disable_relocation())
}
