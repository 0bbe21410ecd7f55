//! The ZAP handler: judges each connection to a listener before anything of it is delivered.

use std::sync::Arc;
use std::thread::JoinHandle;

use spotmesh_zmq_ffi::{Context, Error, Kind, Multipart, Socket};

use crate::config::Security;
use crate::keys::PeerKeys;
use crate::port::ZAP_DOMAIN;

/// Where libzmq looks for the handler.
const ADDRESS: &str = "inproc://zeromq.zap.01";

/// The running handler. It has a thread of its own, so that connections are judged while the host's loop works.
pub(crate) struct ZapHandler {
    context: Context,
    thread: Option<JoinHandle<()>>,
}

/// Whom the handler lets in.
enum Rule {
    Everybody,
    Keys(Arc<dyn PeerKeys>),
}

impl ZapHandler {
    /// Starts it; it can be asked when this returns.
    pub(crate) fn start(context: &Context, security: &Security) -> Result<Self, String> {
        let rule = match security {
            Security::Null => Rule::Everybody,
            Security::Curve { peers, .. } => Rule::Keys(Arc::clone(peers)),
        };
        let open = || {
            let socket = context.socket(Kind::Rep)?;
            socket.bind(ADDRESS)?;
            Ok::<Socket, Error>(socket)
        };
        let socket = open().map_err(|error| format!("ZAP handler: {error}"))?;
        let thread = std::thread::Builder::new()
            .name("spotmesh-zap".to_owned())
            .spawn(move || serve(&socket, &rule))
            .map_err(|error| format!("ZAP handler: {error}"))?;
        Ok(Self { context: context.clone(), thread: Some(thread) })
    }
}

impl Drop for ZapHandler {
    fn drop(&mut self) {
        self.context.shutdown();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the ZAP handler panicked; connections were refused since");
        }
    }
}

fn serve(socket: &Socket, rule: &Rule) {
    let mut request = Multipart::default();
    loop {
        match socket.recv_blocking(&mut request) {
            Ok(()) => {}
            Err(Error::WouldBlock) => continue,
            Err(_) => return,
        }
        let reply = judge(&request, rule);
        for (at, frame) in reply.iter().enumerate() {
            match socket.send(frame, at + 1 < reply.len()) {
                Ok(()) => {}
                Err(Error::Terminated) => return,
                Err(error) => {
                    tracing::warn!(%error, "a ZAP reply could not be sent");
                    break;
                }
            }
        }
    }
}

/// The reply to one request: version, request id, status, text, user id, metadata.
fn judge(request: &Multipart, rule: &Rule) -> [Vec<u8>; 6] {
    let frame = |at: usize| request.frames().get(at).map_or(&[][..], |frame| &frame[..]);
    let verdict = verdict(frame(0), frame(2), frame(5), frame(6), rule);
    let (status, text, user) = match verdict {
        Ok(user) => ("200", "OK", user),
        Err(text) => ("400", text, Vec::new()),
    };
    [b"1.0".to_vec(), frame(1).to_vec(), status.into(), text.into(), user, Vec::new()]
}

/// The user id of an accepted connection, or why it is refused.
fn verdict(
    version: &[u8],
    domain: &[u8],
    mechanism: &[u8],
    credential: &[u8],
    rule: &Rule,
) -> Result<Vec<u8>, &'static str> {
    if version != b"1.0" || domain != ZAP_DOMAIN {
        return Err("expected ZAP 1.0 and the domain of this transport");
    }
    match rule {
        Rule::Everybody if mechanism == b"NULL" => Ok(Vec::new()),
        Rule::Everybody => Err("expected the mechanism NULL"),
        Rule::Keys(_) if mechanism != b"CURVE" => Err("expected the mechanism CURVE"),
        Rule::Keys(peers) => match credential.try_into() {
            Ok(key) if peers.peer_of(&key).is_some() => Ok(user_id(&key)),
            _ => Err("expected a known key"),
        },
    }
}

/// The user id of a key: what every frame from its owner carries.
fn user_id(key: &[u8; 32]) -> Vec<u8> {
    key.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()
}

/// The key of a user id.
pub(crate) fn key_of_user_id(user: &[u8]) -> Option<[u8; 32]> {
    let mut key = [0u8; 32];
    if user.len() != 64 {
        return None;
    }
    for (byte, pair) in key.iter_mut().zip(user.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeyRing;

    #[test]
    fn user_ids_name_their_key() {
        let key = std::array::from_fn(|at| at as u8 * 7);
        assert_eq!(key_of_user_id(&user_id(&key)), Some(key));
        assert_eq!(key_of_user_id(b""), None);
        assert_eq!(key_of_user_id(&[b'x'; 64]), None);
        assert_eq!(key_of_user_id(&[b'a'; 63]), None);
    }

    #[test]
    fn only_known_keys_of_the_right_mechanism_pass() {
        let keys = Rule::Keys(Arc::new(KeyRing::new().allow([3; 32], None, None)));
        let ask = |mechanism: &[u8], credential: &[u8], rule| {
            verdict(b"1.0", ZAP_DOMAIN, mechanism, credential, rule).is_ok()
        };
        assert!(ask(b"CURVE", &[3; 32], &keys));
        assert!(!ask(b"CURVE", &[4; 32], &keys));
        assert!(!ask(b"CURVE", &[3; 31], &keys));
        assert!(!ask(b"NULL", &[3; 32], &keys));
        assert!(!ask(b"PLAIN", &[3; 32], &keys));
        assert!(ask(b"NULL", b"", &Rule::Everybody));
        assert!(!ask(b"PLAIN", b"", &Rule::Everybody));
        assert!(verdict(b"2.0", ZAP_DOMAIN, b"NULL", b"", &Rule::Everybody).is_err());
        assert!(verdict(b"1.0", b"other", b"NULL", b"", &Rule::Everybody).is_err());
    }
}
