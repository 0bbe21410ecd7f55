//! Safe binding of the part of libzmq that the transport needs.
