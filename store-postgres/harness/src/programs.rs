use std::path::{Path, PathBuf};
use std::process::Command;

use crate::HarnessError;

/// Overrides where the server programs are looked for: the directory that holds `initdb` and `postgres`.
pub(crate) const PROGRAMS_VARIABLE: &str = "SPOTMESH_PG_BIN";

/// Folders under which packages install one folder per version, with the programs in `bin`.
const VERSIONED: &[&str] = &["/usr/lib/postgresql", "/usr/local/lib/postgresql", "/Library/PostgreSQL"];
/// Folders under which packages install `postgresql@VERSION` or `pgsql-VERSION`, with the programs in `bin`.
const NAMED: &[&str] = &["/opt/homebrew/opt", "/usr/local/opt", "/usr"];
const PLAIN: &[&str] = &["/usr/local/pgsql/bin", "/usr/libexec/postgresql", "/usr/pgsql/bin"];

/// The server programs of one installation.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) initdb: PathBuf,
    pub(crate) postgres: PathBuf,
}

impl Programs {
    /// Looks in the override alone if it is set, else in PATH, `pg_config`'s folder, and where packages install,
    /// newest version first.
    pub(crate) fn find() -> Result<Programs, HarnessError> {
        let folders = match std::env::var_os(PROGRAMS_VARIABLE) {
            Some(folder) => vec![PathBuf::from(folder)],
            None => usual_folders(),
        };
        Programs::find_in(folders)
    }

    fn find_in(folders: Vec<PathBuf>) -> Result<Programs, HarnessError> {
        folders
            .iter()
            .map(|folder| Programs { initdb: folder.join("initdb"), postgres: folder.join("postgres") })
            .find(|programs| programs.initdb.is_file() && programs.postgres.is_file())
            .ok_or(HarnessError::NoPrograms { searched: folders })
    }
}

fn usual_folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default();
    if let Ok(output) = Command::new("pg_config").arg("--bindir").output() {
        folders.push(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    }
    for parent in VERSIONED {
        folders.extend(newest_first(Path::new(parent), |name| name.parse().ok()));
    }
    for parent in NAMED {
        folders.extend(newest_first(Path::new(parent), |name| {
            name.strip_prefix("postgresql@").or_else(|| name.strip_prefix("pgsql-"))?.parse().ok()
        }));
    }
    folders.extend(PLAIN.iter().map(PathBuf::from));
    folders.retain(|folder| folder.is_dir());
    let mut seen = std::collections::HashSet::new();
    folders.retain(|folder| seen.insert(folder.clone()));
    folders
}

fn newest_first(parent: &Path, version: impl Fn(&str) -> Option<f32>) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(parent) else { return Vec::new() };
    let mut found: Vec<(f32, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| Some((version(entry.file_name().to_str()?)?, entry.path().join("bin"))))
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.into_iter().map(|(_, folder)| folder).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_programs_are_one_clear_sentence() {
        let folder = std::env::temp_dir().join("spotmesh-no-such-folder");
        let error = Programs::find_in(vec![folder.clone()]).expect_err("there are no programs");
        let error = format!("{error:?}");
        assert!(error.contains(folder.to_str().unwrap()), "{error}");
        assert!(error.contains("install the server") && error.contains("SPOTMESH_PG_URL"), "{error}");
        assert_eq!(error.lines().count(), 1);
    }
}
