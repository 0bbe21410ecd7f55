//! The production Location Store over PostgreSQL: its contract is [`spotmesh::store`], its code comes with the
//! next step.
