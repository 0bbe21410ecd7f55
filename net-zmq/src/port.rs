//! A ROUTER socket of the transport with its monitor, watched by the reactor.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::RawFd;
use std::rc::Rc;

use bytes::Bytes;
use spotmesh::link::{DialTarget, Lane, LinkId, NodeIndex, PublicKey};
use spotmesh_zmq_ffi::{BytesOption, Context, Error, IntOption, Kind, Socket, random_bytes};

use crate::config::{Listen, Security, ZmqConfig, millis};
use crate::frame::{self, FRAME_MAX, Token};
use crate::reactor::Sources;

/// Numbers the sockets of one transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PortKey(pub(crate) u64);

/// Messages per connection libzmq queues in each direction; bytes are bounded by the lanes' windows.
const HIGH_WATER_MARK: i32 = 1_000;
/// Wait before libzmq would make a broken connection again, in milliseconds: long after the socket is closed,
/// since redialling is the core's decision (NODE-97). A wait of −1 would make libzmq drop what it received and
/// was not read yet.
const RECONNECT: i32 = 3_600_000;
/// Connections waiting to be accepted.
const BACKLOG: i32 = 512;
/// Name of the one ZAP domain.
pub(crate) const ZAP_DOMAIN: &[u8] = b"spotmesh";

/// What a listener knows about its connections.
pub(crate) struct Listener {
    pub(crate) node: NodeIndex,
    /// Address to advertise.
    pub(crate) endpoint: String,
    /// Whether new links are accepted: not after unbind, which keeps the links there are.
    pub(crate) accepting: bool,
    /// Lanes by routing id.
    pub(crate) routes: BTreeMap<Bytes, (LinkId, Lane)>,
    /// Lanes by descriptor of their connection.
    pub(crate) fds: BTreeMap<RawFd, (LinkId, Lane)>,
    /// Descriptors of connections that are up.
    pub(crate) connected: BTreeSet<RawFd>,
    /// Links with one lane.
    pub(crate) opening: BTreeMap<Token, LinkId>,
}

/// What a socket is for.
pub(crate) enum Role {
    Listener(Listener),
    /// Two connections made for one dial, and the link that comes of it.
    Dialler(LinkId),
}

/// A socket, its monitor, and their places in the reactor.
pub(crate) struct Port {
    pub(crate) socket: Socket,
    pub(crate) role: Role,
    pub(crate) socket_token: u64,
    pub(crate) monitor_token: u64,
    socket_fd: RawFd,
    monitor_fd: RawFd,
    sources: Rc<Sources>,
}

/// The descriptors of a socket and its monitor.
fn descriptors(socket: &Socket) -> Result<(RawFd, RawFd), Error> {
    Ok((socket.fd()?, socket.monitor_fd()?))
}

impl Port {
    /// Opens the listener of a node.
    pub(crate) fn listen(
        context: &Context,
        sources: &Rc<Sources>,
        config: &ZmqConfig,
        node: NodeIndex,
        listen: &Listen,
    ) -> Result<Self, String> {
        let text = |error: Error| error.to_string();
        let mut socket = router(context, config).map_err(text)?;
        let mut set = || {
            socket.set(IntOption::Backlog, BACKLOG)?;
            socket.set_bytes(BytesOption::ZapDomain, ZAP_DOMAIN)?;
            socket.set(IntOption::ZapEnforceDomain, 1)?;
            if listen.is_ipv6() {
                socket.set(IntOption::Ipv6, 1)?;
            }
            if let Security::Curve { keys, .. } = &config.security {
                socket.set(IntOption::CurveServer, 1)?;
                socket.set_bytes(BytesOption::CurveSecretKey, &keys.secret)?;
            }
            // Before the bind, so that no connection is missed.
            socket.start_monitor()
        };
        set().map_err(text)?;
        let address = listen.bind_address();
        socket.bind(&address).map_err(|error| format!("{address}: {error}"))?;
        let bound = socket.last_endpoint().map_err(text)?;
        let port = bound.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
        let Some(port) = port.filter(|port| *port != 0) else {
            return Err(format!("expected an address with a port, found {bound:?}"));
        };
        let role = Role::Listener(Listener {
            node,
            endpoint: listen.advertised(port),
            accepting: true,
            routes: BTreeMap::new(),
            fds: BTreeMap::new(),
            connected: BTreeSet::new(),
            opening: BTreeMap::new(),
        });
        Self::watched(socket, role, sources)
    }

    /// Starts the two connections of a dial.
    pub(crate) fn dial(
        context: &Context,
        sources: &Rc<Sources>,
        config: &ZmqConfig,
        target: &DialTarget,
        link: LinkId,
        server_key: Option<&PublicKey>,
    ) -> Result<Self, String> {
        let text = |error: Error| error.to_string();
        check_endpoint(&target.endpoint)?;
        let mut socket = router(context, config).map_err(text)?;
        let mut connect = || {
            socket.set(IntOption::ConnectTimeout, millis(config.timing.dial))?;
            if target.endpoint.contains('[') {
                socket.set(IntOption::Ipv6, 1)?;
            }
            if let (Security::Curve { keys, .. }, Some(server)) = (&config.security, server_key) {
                socket.set_bytes(BytesOption::CurveServerKey, server)?;
                socket.set_bytes(BytesOption::CurvePublicKey, &keys.public)?;
                socket.set_bytes(BytesOption::CurveSecretKey, &keys.secret)?;
            }
            socket.start_monitor()?;
            for lane in [Lane::Application, Lane::Completion] {
                // Never used before and not to be guessed, so no connection can be taken for another.
                let mut secret = Token::default();
                random_bytes(&mut secret)?;
                socket.set_bytes(BytesOption::RoutingId, &frame::listener_route(lane, &secret))?;
                socket.set_bytes(BytesOption::ConnectRoutingId, &frame::dialler_route(lane))?;
                socket.connect(&target.endpoint)?;
            }
            Ok(())
        };
        connect().map_err(text)?;
        Self::watched(socket, Role::Dialler(link), sources)
    }

    fn watched(socket: Socket, role: Role, sources: &Rc<Sources>) -> Result<Self, String> {
        let (socket_fd, monitor_fd) = descriptors(&socket).map_err(|error| error.to_string())?;
        let socket_token = sources.add(socket_fd).map_err(|error| error.to_string())?;
        let monitor_token = match sources.add(monitor_fd) {
            Ok(token) => token,
            Err(error) => {
                sources.remove(socket_fd, socket_token);
                return Err(error.to_string());
            }
        };
        let sources = Rc::clone(sources);
        Ok(Self { socket, role, socket_token, monitor_token, socket_fd, monitor_fd, sources })
    }

    /// Lets what libzmq holds leave for this many milliseconds after the socket is dropped.
    pub(crate) fn linger(&self, ms: i32) {
        if let Err(error) = self.socket.set(IntOption::Linger, ms) {
            tracing::debug!(%error, "a closing socket drops what it holds");
        }
    }

    pub(crate) fn listener_mut(&mut self) -> Option<&mut Listener> {
        match &mut self.role {
            Role::Listener(listener) => Some(listener),
            Role::Dialler(_) => None,
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // Both descriptors are still open here: the socket is dropped after this.
        self.sources.remove(self.socket_fd, self.socket_token);
        self.sources.remove(self.monitor_fd, self.monitor_token);
    }
}

/// A ROUTER with the options both roles share.
fn router(context: &Context, config: &ZmqConfig) -> Result<Socket, Error> {
    let socket = context.socket(Kind::Router)?;
    let timing = &config.timing;
    socket.set(IntOption::RouterMandatory, 1)?;
    socket.set(IntOption::RouterHandover, 0)?;
    socket.set(IntOption::Linger, 0)?;
    socket.set(IntOption::ReconnectInterval, RECONNECT)?;
    socket.set(IntOption::SendHighWaterMark, HIGH_WATER_MARK)?;
    socket.set(IntOption::ReceiveHighWaterMark, HIGH_WATER_MARK)?;
    socket.set_max_frame(FRAME_MAX)?;
    socket.set(IntOption::HandshakeInterval, millis(timing.handshake))?;
    socket.set(IntOption::HeartbeatInterval, millis(timing.heartbeat))?;
    socket.set(IntOption::HeartbeatTimeout, millis(timing.heartbeat_timeout))?;
    Ok(socket)
}

/// Only plain TCP addresses are dialled: nothing else that libzmq understands, such as a file's path.
fn check_endpoint(endpoint: &str) -> Result<(), String> {
    let address = endpoint.strip_prefix("tcp://").and_then(|rest| rest.rsplit_once(':'));
    match address {
        Some((host, port))
            if !host.is_empty()
                && !host.contains([';', '/', '*'])
                && port.parse::<u16>().is_ok_and(|port| port != 0) =>
        {
            Ok(())
        }
        _ => Err(format!("expected an address such as tcp://127.0.0.1:7001, found {endpoint:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tcp_addresses_with_host_and_port_are_dialled() {
        for good in ["tcp://127.0.0.1:7001", "tcp://game.example:1", "tcp://[::1]:7001"] {
            assert_eq!(check_endpoint(good), Ok(()));
        }
        for bad in [
            "",
            "127.0.0.1:7001",
            "ipc:///tmp/x:1",
            "inproc://x:1",
            "tcp://127.0.0.1:0",
            "tcp://127.0.0.1:99999",
            "tcp://:7001",
            "tcp://*:7001",
            "tcp://10.0.0.1:1;10.0.0.2:2",
            "tcp://127.0.0.1",
        ] {
            assert!(check_endpoint(bad).is_err(), "{bad:?}");
        }
    }
}
