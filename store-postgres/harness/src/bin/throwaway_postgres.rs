//! Starts a throw-away server, prints its URLs, its process and its directory, and keeps it until standard input
//! closes.

use std::io::Write;

use spotmesh_postgres_harness::{HarnessError, Server};

#[tokio::main]
async fn main() -> Result<(), HarnessError> {
    let server = Server::start().await?;
    println!("{}\n{}", server.url(), server.socket_url()?);
    println!("process {}", server.process().unwrap_or_default());
    println!("directory {}", server.directory()?.display());
    let _ = std::io::stdout().flush();
    let _ = tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await;
    Ok(())
}
