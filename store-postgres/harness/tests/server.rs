//! A server is there when asked for, and gone afterwards.

use spotmesh_postgres_harness::{HarnessError, Server, Settings};

#[tokio::test]
async fn a_started_server_answers_over_tcp_and_over_its_socket() {
    let server = Server::start().await.unwrap();
    server.execute("CREATE TABLE t (n int); INSERT INTO t VALUES (7)").await.unwrap();
    assert_eq!(server.value("SELECT n FROM t").await.unwrap(), "7");
    let by_socket = Server::given(&server.socket_url().unwrap()).unwrap();
    assert_eq!(by_socket.value("SELECT inet_client_addr() IS NULL").await.unwrap(), "t");
    for (name, value) in [("fsync", "on"), ("synchronous_commit", "on"), ("max_connections", "100")] {
        assert_eq!(server.value(&format!("SHOW {name}")).await.unwrap(), value, "{name}");
    }
}

#[tokio::test]
async fn settings_reach_the_server() {
    let settings = Settings {
        max_connections: 12,
        parameters: vec![("application_name".to_owned(), "it's".to_owned())],
        ..Settings::default()
    };
    let server = Server::start_with(settings).await.unwrap();
    assert_eq!(server.value("SHOW max_connections").await.unwrap(), "12");
    assert_eq!(server.value("SHOW application_name").await.unwrap(), "it's");
}

#[tokio::test]
async fn dropping_a_server_ends_it_and_removes_its_directory() {
    let server = Server::start().await.unwrap();
    let (directory, url) = (server.directory().unwrap(), server.url().to_owned());
    assert!(directory.join("data/PG_VERSION").exists());
    drop(server);
    assert!(!directory.exists());
    let gone = Server::given(&url).unwrap().execute("SELECT 1").await;
    assert!(matches!(gone, Err(HarnessError::Sql { .. })), "{gone:?}");
}

#[tokio::test]
async fn servers_side_by_side_are_different() {
    let (one, two) = tokio::join!(Server::start(), Server::start());
    let (one, two) = (one.unwrap(), two.unwrap());
    one.execute("CREATE TABLE only_in_one ()").await.unwrap();
    assert_eq!(two.value("SELECT to_regclass('only_in_one') IS NULL").await.unwrap(), "t");
    assert_ne!(one.directory().unwrap(), two.directory().unwrap());
}

#[test]
fn a_process_has_one_shared_server_across_runtimes() {
    let url = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = Server::shared().await.unwrap();
            assert_eq!(server.value("SELECT 1").await.unwrap(), "1");
            server.url().to_owned()
        })
    };
    assert_eq!(url(), url());
}

#[test]
fn a_given_url_must_name_a_host() {
    let error = Server::given("postgresql://ann:secret@").unwrap_err();
    assert!(matches!(error, HarnessError::Url { .. }), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
}
