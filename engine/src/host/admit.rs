//! What a call must satisfy before anything is submitted.

use super::Host;
use crate::link::NodeIndex;
use crate::model::{Error, ErrorKind, HostState, MeshName, ObjectRole};

impl Host {
    /// Whether a new operation of the application may start (CREATE-13, MODEL-111).
    pub(super) fn check_admission(&self, operation: &'static str) -> Result<(), Error> {
        if self.shutdown.is_some() {
            return Err(Error::new(ErrorKind::ShuttingDown, operation, "the host shuts down"));
        }
        if self.state != HostState::Serving {
            let text = format!("expected a serving host, found {:?}", self.state);
            return Err(Error::new(ErrorKind::Unavailable, operation, text));
        }
        if !self.nodes.iter().any(|node| node.local.role != ObjectRole::None) {
            return Err(Error::new(ErrorKind::NotConfigured, operation, "no Mesh has an object role"));
        }
        if !self.admits_work() {
            let text = "the owner lease is not confirmed";
            return Err(Error::new(ErrorKind::Unavailable, operation, text));
        }
        Ok(())
    }

    /// The node a creation starts from (CREATE-15).
    pub(super) fn choose_mesh(&self, named: Option<&MeshName>) -> Result<NodeIndex, Error> {
        let with_role = self.nodes.iter().filter(|node| node.local.role != ObjectRole::None);
        match named {
            Some(name) => {
                let found = with_role.clone().find(|node| node.local.mesh == *name);
                found.map(|node| node.local.node).ok_or_else(|| {
                    Error::new(ErrorKind::NotFound, "create", format!("no Mesh {name} with an object role"))
                })
            }
            None => {
                let all: Vec<_> = with_role.map(|node| node.local.node).collect();
                match all.as_slice() {
                    [one] => Ok(*one),
                    [] => Err(Error::new(ErrorKind::NotConfigured, "create", "no Mesh has an object role")),
                    several => Err(Error::new(
                        ErrorKind::InvalidOperation,
                        "create",
                        format!("expected a named Mesh, found {} with an object role", several.len()),
                    )),
                }
            }
        }
    }
}
