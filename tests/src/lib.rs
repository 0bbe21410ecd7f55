//! spotmesh-tests.
