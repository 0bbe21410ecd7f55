//! Whose CURVE keys are known, and what they prove.

use std::collections::BTreeMap;

use spotmesh::link::{DialTarget, ProvenPeer, PublicKey};
use spotmesh::model::{Rid, SecurityIdentity};

/// Knows the keys of peers. Asked from the transport's thread and from the one that judges connections.
///
/// An application with keys in a directory or database of its own implements this; others use [`KeyRing`].
pub trait PeerKeys: Send + Sync {
    /// What the owner of `key` may claim, `None` where the key is not allowed to connect.
    fn peer_of(&self, key: &PublicKey) -> Option<ProvenPeer>;

    /// The key the dialled peer must prove, `None` where it is not known.
    fn key_for(&self, target: &DialTarget) -> Option<PublicKey>;
}

/// A fixed list of keys.
#[derive(Debug, Clone, Default)]
pub struct KeyRing {
    peers: BTreeMap<PublicKey, ProvenPeer>,
    by_rid: BTreeMap<Rid, PublicKey>,
    by_endpoint: BTreeMap<String, PublicKey>,
}

impl KeyRing {
    /// An empty list: nobody may connect.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows `key`, bound to one RID where the peer's is fixed, and to a security identity where there is one.
    #[must_use]
    pub fn allow(mut self, key: PublicKey, rid: Option<Rid>, identity: Option<SecurityIdentity>) -> Self {
        if let Some(rid) = &rid {
            self.by_rid.insert(rid.clone(), key);
        }
        self.peers.insert(key, ProvenPeer { rid, identity });
        self
    }

    /// Names the key to expect at an endpoint, for peers whose RID is not known before or not fixed.
    #[must_use]
    pub fn at(mut self, endpoint: impl Into<String>, key: PublicKey) -> Self {
        self.by_endpoint.insert(endpoint.into(), key);
        self
    }
}

impl PeerKeys for KeyRing {
    fn peer_of(&self, key: &PublicKey) -> Option<ProvenPeer> {
        self.peers.get(key).cloned()
    }

    fn key_for(&self, target: &DialTarget) -> Option<PublicKey> {
        let by_rid = target.expected_rid.as_ref().and_then(|rid| self.by_rid.get(rid));
        by_rid.or_else(|| self.by_endpoint.get(&target.endpoint)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_by_rid_before_endpoint() {
        let rid = Rid::new("a").unwrap();
        let ring = KeyRing::new().allow([1; 32], Some(rid.clone()), None).at("tcp://h:1", [2; 32]);
        let target = |endpoint: &str, expected: Option<&Rid>| DialTarget {
            endpoint: endpoint.to_owned(),
            expected_rid: expected.cloned(),
            local_rid: Rid::new("me").unwrap(),
        };
        assert_eq!(ring.key_for(&target("tcp://h:1", Some(&rid))), Some([1; 32]));
        assert_eq!(ring.key_for(&target("tcp://h:1", None)), Some([2; 32]));
        assert_eq!(ring.key_for(&target("tcp://h:2", None)), None);
        assert_eq!(ring.peer_of(&[1; 32]), Some(ProvenPeer { rid: Some(rid), identity: None }));
        assert_eq!(ring.peer_of(&[2; 32]), None, "naming a server's key does not let it in");
    }
}
