//! spotmesh-store-memory.
