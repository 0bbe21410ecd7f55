//! spotmesh-sim.
