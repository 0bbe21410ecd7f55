//! spotmesh-store-postgres.
