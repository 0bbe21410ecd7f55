use std::path::Path;
use std::process::Command;

use crate::HarnessError;

/// The unprivileged user that root runs the server as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServerUser {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl ServerUser {
    /// `None` when this process is not root: the server then runs as the same user.
    pub(crate) fn find() -> Result<Option<ServerUser>, HarnessError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        ["postgres", "nobody"]
            .into_iter()
            .find_map(ServerUser::named)
            .map(Some)
            .ok_or(HarnessError::NoUnprivilegedUser)
    }

    fn named(name: &str) -> Option<ServerUser> {
        let id = |flag| {
            let output = Command::new("id").args([flag, name]).output().ok()?;
            String::from_utf8_lossy(&output.stdout).trim().parse::<u32>().ok()
        };
        Some(ServerUser { uid: id("-u")?, gid: id("-g")? })
    }

    /// Makes the user the owner of `path`.
    pub(crate) fn own(self, path: &Path) -> Result<(), HarnessError> {
        std::os::unix::fs::chown(path, Some(self.uid), Some(self.gid))
            .map_err(HarnessError::system(format!("give {} to the server's user", path.display())))
    }
}
