use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use crate::cluster::Cluster;
use crate::{HarnessError, Settings};

/// The environment variable with the URL of a running server, which [`Server::shared`] then uses.
pub const URL_VARIABLE: &str = "SPOTMESH_PG_URL";

/// A PostgreSQL server for tests.
///
/// A server started here listens on a free port of 127.0.0.1 and on a socket, lets local users in without a password
/// (user and database `postgres`, a superuser), and is as durable as PostgreSQL is by default. Dropping it ends it and
/// removes its data, blocking for some 0.1 s; so does the death of this process, in whatever way.
#[derive(Debug)]
pub struct Server {
    url: String,
    /// `None` for a server that was given by URL.
    pub(crate) cluster: Option<Arc<Mutex<Cluster>>>,
}

impl Server {
    /// Starts a server for the caller alone, also when `SPOTMESH_PG_URL` is set. It takes a second or two.
    pub async fn start() -> Result<Server, HarnessError> {
        Server::start_with(Settings::default()).await
    }

    /// Starts a server with other settings.
    pub async fn start_with(settings: Settings) -> Result<Server, HarnessError> {
        blocking(move || Server::start_blocking(&settings)).await
    }

    /// The one server of this process: the given one if `SPOTMESH_PG_URL` is set, else one that the first call
    /// starts. Tests that share it keep apart by databases or schemas, and leave its faults alone.
    pub async fn shared() -> Result<&'static Server, HarnessError> {
        static SHARED: OnceLock<Result<Server, HarnessError>> = OnceLock::new();
        blocking(|| {
            SHARED
                .get_or_init(|| match std::env::var(URL_VARIABLE) {
                    Ok(url) => Server::given(&url),
                    Err(_) => Server::start_blocking(&Settings::default()),
                })
                .as_ref()
                .map_err(HarnessError::clone)
        })
        .await
    }

    /// A server that runs already. Faults that need control of it answer [`HarnessError::NotOurs`].
    pub fn given(url: &str) -> Result<Server, HarnessError> {
        match tokio_postgres::Config::from_str(url) {
            Ok(config) if !config.get_hosts().is_empty() => Ok(Server { url: url.to_owned(), cluster: None }),
            _ => Err(HarnessError::Url {
                expected: "a URL like postgresql://user@host:port/database",
                found: without_password(url),
            }),
        }
    }

    /// The URL for connections over TCP.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The URL for connections over the socket.
    pub fn socket_url(&self) -> Result<String, HarnessError> {
        let cluster = lock(self.ours("the URL of its socket")?);
        let path = cluster.path().to_string_lossy().replace('%', "%25").replace('/', "%2F");
        Ok(format!("postgresql://postgres@{path}:{}/postgres", cluster.port()))
    }

    /// The id of the server's first process, if it is ours and not stopped.
    pub fn process(&self) -> Option<u32> {
        self.cluster.as_ref().and_then(|cluster| lock(cluster).process())
    }

    /// The directory with the server's data, which goes with it.
    pub fn directory(&self) -> Result<PathBuf, HarnessError> {
        Ok(lock(self.ours("its directory")?).path().to_owned())
    }

    /// The file with what the server has printed since its last start.
    pub fn log(&self) -> Result<PathBuf, HarnessError> {
        Ok(lock(self.ours("its log")?).log())
    }

    /// Runs one or more statements, separated by semicolons, in a connection of their own.
    pub async fn execute(&self, sql: &str) -> Result<(), HarnessError> {
        self.connect().await?.batch_execute(sql).await.map_err(HarnessError::sql(format!("run {sql:?}")))
    }

    /// Runs one statement and returns the first column of its first row, as text.
    pub async fn value(&self, sql: &str) -> Result<String, HarnessError> {
        let client = self.connect().await?;
        let messages = client.simple_query(sql).await.map_err(HarnessError::sql(format!("run {sql:?}")))?;
        let value = messages.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        value.ok_or_else(|| HarnessError::NoValue { sql: sql.to_owned() })
    }

    /// A new connection, which writes also while the server is read-only by default.
    pub(crate) async fn connect(&self) -> Result<Client, HarnessError> {
        self.try_connect().await.map_err(HarnessError::sql("connect to the server"))
    }

    pub(crate) async fn try_connect(&self) -> Result<Client, tokio_postgres::Error> {
        let mut config = tokio_postgres::Config::from_str(&self.url)?;
        let given = config.get_options().unwrap_or_default();
        config.options(format!("{given} -c default_transaction_read_only=off").trim_start());
        open(&config).await
    }

    /// A new connection with nothing set, like anybody's.
    pub(crate) async fn connect_plain(&self) -> Result<Client, tokio_postgres::Error> {
        open(&tokio_postgres::Config::from_str(&self.url)?).await
    }

    pub(crate) fn ours(&self, asked: &'static str) -> Result<&Arc<Mutex<Cluster>>, HarnessError> {
        self.cluster.as_ref().ok_or(HarnessError::NotOurs { asked })
    }

    fn start_blocking(settings: &Settings) -> Result<Server, HarnessError> {
        let cluster = Cluster::start(settings)?;
        let url = format!("postgresql://postgres@127.0.0.1:{}/postgres", cluster.port());
        Ok(Server { url, cluster: Some(Arc::new(Mutex::new(cluster))) })
    }
}

async fn open(config: &tokio_postgres::Config) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = config.connect(NoTls).await?;
    // Its error reaches the client's calls too.
    tokio::spawn(async move { connection.await.ok() });
    Ok(client)
}

/// Starting and stopping wait for processes: other tasks of the test's runtime go on meanwhile.
pub(crate) async fn blocking<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(call).await {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// A panic while the lock was held leaves the cluster usable: every call looks at the process anew.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn without_password(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 <= at => format!("{}://…{}", &url[..scheme], &url[at..]),
        _ => "something else".to_owned(),
    }
}
