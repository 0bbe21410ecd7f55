//! Faults do what they say, and end.

use std::time::{Duration, Instant};

use spotmesh_postgres_harness::{HarnessError, Server, Settings};
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

async fn client(server: &Server) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(server.url(), NoTls).await?;
    tokio::spawn(async move { connection.await.ok() });
    Ok(client)
}

/// A server with one row, 7, in table `t`.
async fn server() -> Server {
    let server = Server::start().await.unwrap();
    server.execute("CREATE TABLE t (n int); INSERT INTO t VALUES (7)").await.unwrap();
    server
}

#[tokio::test]
async fn an_immediate_stop_cuts_connections_and_a_restart_brings_back_what_was_committed() {
    let server = server().await;
    let client = client(&server).await.unwrap();
    client.batch_execute("BEGIN; INSERT INTO t VALUES (8)").await.unwrap();
    server.stop_immediate().await.unwrap();
    assert!(client.batch_execute("COMMIT").await.is_err());
    assert!(server.execute("SELECT 1").await.is_err());
    assert_eq!(server.process(), None);
    server.stop_immediate().await.unwrap();
    server.restart().await.unwrap();
    assert_eq!(server.value("SELECT array_agg(n)::text FROM t").await.unwrap(), "{7}");
}

#[tokio::test]
async fn a_restart_ends_a_server_that_runs_or_is_paused() {
    let server = server().await;
    for paused in [false, true] {
        let before = server.process();
        if paused {
            server.pause().await.unwrap();
        }
        server.restart().await.unwrap();
        assert_ne!(server.process(), before);
        assert_eq!(server.value("SELECT n FROM t").await.unwrap(), "7");
    }
}

#[tokio::test]
async fn a_paused_server_keeps_connections_and_answers_nobody_until_it_is_resumed() {
    let server = server().await;
    let open = client(&server).await.unwrap();
    server.pause().await.unwrap();
    let answer = open.query_one("SELECT n FROM t", &[]);
    tokio::pin!(answer);
    assert!(timeout(Duration::from_millis(300), &mut answer).await.is_err(), "an open session was answered");
    let new = tokio::time::timeout(Duration::from_millis(300), client(&server)).await;
    assert!(new.is_err(), "a new session was let in");
    assert!(matches!(server.pause().await, Err(HarnessError::State { .. })));
    server.resume().await.unwrap();
    assert_eq!(answer.await.unwrap().get::<_, i32>(0), 7);
    assert!(matches!(server.resume().await, Err(HarnessError::State { .. })));
}

#[tokio::test]
async fn dropping_a_paused_server_ends_it() {
    let server = server().await;
    let directory = server.directory().unwrap();
    server.pause().await.unwrap();
    let started = Instant::now();
    drop(server);
    assert!(!directory.exists());
    assert!(started.elapsed() < Duration::from_secs(5), "it took {:?}", started.elapsed());
}

#[tokio::test]
async fn exhausted_connections_are_refused_until_the_slots_are_given_back() {
    let settings = Settings { max_connections: 12, ..Settings::default() };
    let server = Server::start_with(settings).await.unwrap();
    let open = client(&server).await.unwrap();
    let taken = server.exhaust_connections().await.unwrap();
    assert_eq!(taken.slots(), 11);
    let refused = client(&server).await.map(drop).unwrap_err();
    assert_eq!(refused.code(), Some(&SqlState::TOO_MANY_CONNECTIONS));
    assert_eq!(open.query_one("SELECT 1", &[]).await.unwrap().get::<_, i32>(0), 1);
    drop(taken);
    timeout(Duration::from_secs(5), async {
        while client(&server).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("slots come back");
}

#[tokio::test]
async fn a_read_only_server_refuses_writes_of_open_and_new_sessions() {
    let server = server().await;
    let open = client(&server).await.unwrap();
    for read_only in [true, false, true] {
        server.read_only(read_only).await.unwrap();
        for client in [&open, &client(&server).await.unwrap()] {
            assert_eq!(client.query_one("SELECT DISTINCT n FROM t", &[]).await.unwrap().get::<_, i32>(0), 7);
            let written = client.batch_execute("INSERT INTO t VALUES (7)").await;
            let code = written.err().and_then(|error| error.code().cloned());
            assert_eq!(code, read_only.then_some(SqlState::READ_ONLY_SQL_TRANSACTION));
        }
    }
    server.execute("INSERT INTO t VALUES (7)").await.expect("the harness still writes");
    server.restart().await.unwrap();
    assert!(
        client(&server).await.unwrap().batch_execute("DELETE FROM t").await.is_err(),
        "it stays read-only"
    );
}

#[tokio::test]
async fn a_given_server_is_not_ours_to_control() {
    let ours = server().await;
    let given = Server::given(ours.url()).unwrap();
    let not_ours = |result: Result<(), HarnessError>| matches!(result, Err(HarnessError::NotOurs { .. }));
    assert!(not_ours(given.stop_immediate().await));
    assert!(not_ours(given.restart().await));
    assert!(not_ours(given.pause().await));
    assert!(not_ours(given.resume().await));
    assert!(not_ours(given.read_only(true).await));
    assert!(not_ours(given.socket_url().map(drop)));
    assert!(not_ours(given.directory().map(drop)));
    assert_eq!(given.value("SELECT n FROM t").await.unwrap(), "7", "it runs on and may be used");
}
