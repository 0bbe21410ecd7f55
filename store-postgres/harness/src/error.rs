use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Why the harness could not do what it was asked: what was expected and what was found.
#[derive(Clone)]
pub enum HarnessError {
    /// There are no server programs on this machine.
    NoPrograms {
        /// Where they were looked for.
        searched: Vec<PathBuf>,
    },
    /// The fault needs control of the server, which was given by `SPOTMESH_PG_URL` and not started here.
    NotOurs {
        /// What was asked for.
        asked: &'static str,
    },
    /// The process is root, and PostgreSQL refuses to run as root.
    NoUnprivilegedUser,
    /// The operating system refused something.
    System {
        /// What was attempted.
        attempted: String,
        /// What it said.
        source: Arc<io::Error>,
    },
    /// A server program ended with a failure or too early.
    Program {
        /// What it should have done.
        expected: String,
        /// How it ended and the end of what it printed.
        found: String,
    },
    /// The server is not in the state the call needs.
    State {
        /// The needed state.
        expected: &'static str,
        /// The actual state.
        found: &'static str,
    },
    /// The server refused a statement or a connection.
    Sql {
        /// What was attempted.
        attempted: String,
        /// What it said.
        source: Arc<tokio_postgres::Error>,
    },
    /// A statement gave another result than a single value.
    NoValue {
        /// The statement.
        sql: String,
    },
    /// A server URL that cannot be used.
    Url {
        /// What was expected of it.
        expected: &'static str,
        /// The URL as found, without its password.
        found: String,
    },
}

impl HarnessError {
    pub(crate) fn system(attempted: impl Into<String>) -> impl FnOnce(io::Error) -> HarnessError {
        let attempted = attempted.into();
        move |source| HarnessError::System { attempted, source: Arc::new(source) }
    }

    pub(crate) fn sql(attempted: impl Into<String>) -> impl FnOnce(tokio_postgres::Error) -> HarnessError {
        let attempted = attempted.into();
        move |source| HarnessError::Sql { attempted, source: Arc::new(source) }
    }
}

/// The sentence of `Display`: tests unwrap, and this is what they show then.
impl fmt::Debug for HarnessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for HarnessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HarnessError::NoPrograms { searched } => {
                let searched: Vec<_> = searched.iter().map(|path| path.display().to_string()).collect();
                write!(
                    f,
                    "expected PostgreSQL's server programs initdb and postgres, found none in {}: install the \
                     server (package postgresql) or set SPOTMESH_PG_URL to the URL of a running one",
                    searched.join(", ")
                )
            }
            HarnessError::NotOurs { asked } => write!(
                f,
                "expected a server started by the harness for {asked}, found the one of SPOTMESH_PG_URL: use \
                 Server::start"
            ),
            HarnessError::NoUnprivilegedUser => {
                write!(
                    f,
                    "expected a user postgres or nobody to run the server as, because root may not, found neither"
                )
            }
            HarnessError::System { attempted, source } => write!(f, "cannot {attempted}: {source}"),
            HarnessError::Program { expected, found } => write!(f, "expected {expected}, found {found}"),
            HarnessError::State { expected, found } => write!(f, "expected {expected}, found {found}"),
            HarnessError::Sql { attempted, source } => {
                write!(f, "cannot {attempted}: {source}")?;
                source.as_db_error().map_or(Ok(()), |detail| write!(f, ": {}", detail.message()))
            }
            HarnessError::NoValue { sql } => write!(f, "expected one value from {sql:?}, found none"),
            HarnessError::Url { expected, found } => write!(f, "expected {expected}, found {found}"),
        }
    }
}

impl std::error::Error for HarnessError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            HarnessError::System { source, .. } => Some(source.as_ref()),
            HarnessError::Sql { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}
