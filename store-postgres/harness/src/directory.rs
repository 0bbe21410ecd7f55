use std::fs::{self, File, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::HarnessError;
use crate::user::ServerUser;
use crate::watchdog::Watchdog;

const PREFIX: &str = "spotmesh-pg-";
/// Not yet claimed; such a directory is complete within milliseconds. The watchdog knows the suffix too.
const UNCLAIMED_SUFFIX: &str = ".new";
const UNCLAIMED_AGE: Duration = Duration::from_secs(600);
const OWNER_FILE: &str = "owner";
/// A socket's whole path must stay below 104 bytes.
const LONGEST_PARENT: usize = 60;

/// The directory of one server: `data`, the socket, the log, and what the watchdog reads.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// Its lock says that the owner lives; the system releases it with the process.
    _owner: File,
}

impl Directory {
    /// Removes the directories of dead owners and names a new one, for the watchdog to know before anything exists.
    pub(crate) fn propose(user: Option<ServerUser>) -> PathBuf {
        let parent = parent(user);
        clear_dead(&parent, user);
        parent.join(format!("{PREFIX}{:012x}", random() & 0xffff_ffff_ffff))
    }

    /// Makes the proposed directory.
    pub(crate) fn claim(path: PathBuf, user: Option<ServerUser>) -> Result<Directory, HarnessError> {
        let mut unclaimed = path.clone().into_os_string();
        unclaimed.push(UNCLAIMED_SUFFIX);
        let unclaimed = PathBuf::from(unclaimed);
        let make = |path: &Path| {
            fs::DirBuilder::new()
                .mode(0o700)
                .create(path)
                .map_err(HarnessError::system(format!("make the directory {}", path.display())))?;
            user.map_or(Ok(()), |user| user.own(path))
        };
        make(&unclaimed)?;
        let owner_file = unclaimed.join(OWNER_FILE);
        let owner = File::create(&owner_file)
            .and_then(|file| file.lock().map(|()| file))
            .map_err(HarnessError::system(format!("lock {}", owner_file.display())))?;
        make(&unclaimed.join("launched"))?;
        let open = unclaimed.join("open");
        File::create(&open).map_err(HarnessError::system(format!("create {}", open.display())))?;
        // Under its final name it is locked from the first moment: nobody takes it for a dead owner's.
        fs::rename(&unclaimed, &path)
            .map_err(HarnessError::system(format!("rename to {}", path.display())))?;
        Ok(Directory { path, _owner: owner })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("server.log")
    }

    pub(crate) fn launched(&self) -> PathBuf {
        self.path.join("launched")
    }
}

/// A number that differs between calls and processes.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// The temporary directory, or `/tmp` where that is too long for a socket or closed to the server's user.
fn parent(user: Option<ServerUser>) -> PathBuf {
    let usual = std::env::temp_dir();
    let open_to_all = |path: &Path| {
        path.ancestors().all(|part| fs::metadata(part).is_ok_and(|metadata| metadata.mode() & 0o001 != 0))
    };
    let fits = usual.is_absolute() && usual.as_os_str().len() <= LONGEST_PARENT;
    if fits && (user.is_none() || open_to_all(&usual)) { usual } else { PathBuf::from("/tmp") }
}

/// What cannot be read or removed belongs to others and is left alone.
fn clear_dead(parent: &Path, user: Option<ServerUser>) {
    let me = rustix::process::geteuid().as_raw();
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
        let Ok(metadata) = entry.metadata() else { continue };
        let mine = metadata.uid() == me || user.is_some_and(|user| user.uid == metadata.uid());
        if metadata.is_dir() && mine && is_dead(&entry.path(), name, &metadata) {
            let _ = Watchdog::clear(&entry.path());
        }
    }
}

fn is_dead(path: &Path, name: &str, metadata: &fs::Metadata) -> bool {
    if name.ends_with(UNCLAIMED_SUFFIX) {
        return metadata
            .modified()
            .ok()
            .and_then(|at| at.elapsed().ok())
            .is_some_and(|age| age > UNCLAIMED_AGE);
    }
    match File::open(path.join(OWNER_FILE)) {
        Ok(owner) => !matches!(owner.try_lock(), Err(TryLockError::WouldBlock)),
        // Half removed by a watchdog that did not finish.
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}
