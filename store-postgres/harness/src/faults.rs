use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::cluster::Cluster;
use crate::server::{blocking, lock};
use crate::{HarnessError, Server};

const RELOAD_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);

/// Ways to hurt a server. All but [`Server::exhaust_connections`] need one that was started here.
impl Server {
    /// Ends the server as a crash would: no checkpoint, every connection cut. What was committed comes back with
    /// [`Server::restart`]. Nothing happens if it is stopped.
    pub async fn stop_immediate(&self) -> Result<(), HarnessError> {
        self.with_cluster("stopping it", Cluster::stop_immediate).await
    }

    /// Starts the server again over the same data and URLs, after [`Server::stop_immediate`] if it still runs, and
    /// returns once it has recovered.
    pub async fn restart(&self) -> Result<(), HarnessError> {
        self.with_cluster("restarting it", Cluster::restart).await
    }

    /// Stops all the server's processes where they are (SIGSTOP): connections stay open and nothing is answered.
    pub async fn pause(&self) -> Result<(), HarnessError> {
        self.with_cluster("pausing it", Cluster::pause).await
    }

    /// Lets a paused server go on.
    pub async fn resume(&self) -> Result<(), HarnessError> {
        self.with_cluster("resuming it", Cluster::resume).await
    }

    /// Makes transactions read-only by default, as on a standby, or ends that. It holds for open sessions too, from
    /// their next transaction on, and survives a restart. A session that asks for READ WRITE by itself still writes, as
    /// this harness's own do.
    pub async fn read_only(&self, on: bool) -> Result<(), HarnessError> {
        self.ours("making it read-only")?;
        let client = self.connect().await?;
        let attempted = || HarnessError::sql("change whether the server is read-only");
        let setting = if on { "on" } else { "off" };
        let alter = format!("ALTER SYSTEM SET default_transaction_read_only = {setting}");
        client.batch_execute(&alter).await.map_err(attempted())?;
        client.batch_execute("SELECT pg_reload_conf()").await.map_err(attempted())?;
        // The first process reads the file on a signal and passes the signal on before it lets in the next session.
        let deadline = Instant::now() + RELOAD_LIMIT;
        while self.setting_of_new_sessions().await? != setting {
            if Instant::now() > deadline {
                return Err(HarnessError::State {
                    expected: "a server that reads its configuration again",
                    found: "one that keeps the old one",
                });
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Takes every free connection slot. Slots that others give back later are theirs to take again.
    pub async fn exhaust_connections(&self) -> Result<Exhaustion, HarnessError> {
        let mut clients = Vec::new();
        loop {
            match self.try_connect().await {
                Ok(client) => clients.push(client),
                Err(error) if error.code() == Some(&SqlState::TOO_MANY_CONNECTIONS) => {
                    return Ok(Exhaustion { clients });
                }
                Err(error) => return Err(HarnessError::sql("take a connection slot")(error)),
            }
        }
    }

    async fn setting_of_new_sessions(&self) -> Result<String, HarnessError> {
        // This harness's own sessions set the parameter themselves; `reset_val` would show that too.
        let client = self.connect_plain().await.map_err(HarnessError::sql("connect to the server"))?;
        let row = client.query_one("SELECT current_setting('default_transaction_read_only')", &[]).await;
        Ok(row.map_err(HarnessError::sql("read a setting"))?.get(0))
    }

    async fn with_cluster(
        &self,
        asked: &'static str,
        call: fn(&mut Cluster) -> Result<(), HarnessError>,
    ) -> Result<(), HarnessError> {
        let cluster = Arc::clone(self.ours(asked)?);
        blocking(move || call(&mut lock(&cluster))).await
    }
}

/// All connection slots that were free, until dropped. The server gets them back within moments of the drop.
#[must_use = "the slots are free again once this is dropped"]
pub struct Exhaustion {
    clients: Vec<Client>,
}

impl Exhaustion {
    /// How many slots it holds.
    pub fn slots(&self) -> usize {
        self.clients.len()
    }
}

impl std::fmt::Debug for Exhaustion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exhaustion").field("slots", &self.slots()).finish()
    }
}
