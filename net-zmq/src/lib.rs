//! spotmesh-net-zmq.
