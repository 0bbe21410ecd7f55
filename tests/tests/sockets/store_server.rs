//! One Store for several processes: a [`MemoryStore`] behind a TCP listener, one connection a call.

use futures::FutureExt;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use spotmesh::driver::LocationStore;
use spotmesh::store::{StoreError, StoreEvent, StoreRequest, StoreResult, WatchScope};
use spotmesh_store_memory::MemoryStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Serves the Store on a free port of the loopback until the runtime ends; answers its address.
pub async fn serve(store: MemoryStore) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let store = store.clone();
            tokio::spawn(async move {
                let mut request = Vec::new();
                stream.read_to_end(&mut request).await.unwrap();
                let request: StoreRequest = serde_json::from_slice(&request).unwrap();
                let answer = serde_json::to_vec(&store.apply(&request)).unwrap();
                // A caller that was killed reads no answer.
                let _ = stream.write_all(&answer).await;
            });
        }
    });
    address
}

/// The Store of another process.
pub struct RemoteStore {
    address: String,
}

impl RemoteStore {
    pub fn new(address: String) -> Self {
        Self { address }
    }
}

async fn ask(address: String, request: StoreRequest) -> StoreResult {
    let request = serde_json::to_vec(&request).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    let mut stream = TcpStream::connect(address).await.map_err(|_| StoreError::Unavailable)?;
    let exchange = async {
        stream.write_all(&request).await?;
        stream.shutdown().await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = exchange.await.map_err(|_| StoreError::Indeterminate)?;
    serde_json::from_slice(&answer).unwrap_or(Err(StoreError::Indeterminate))
}

impl LocationStore for RemoteStore {
    fn call(&self, request: StoreRequest) -> BoxFuture<'static, StoreResult> {
        ask(self.address.clone(), request).boxed()
    }

    /// No hints: they may all be lost, and polling covers that (STORE-112).
    fn watch(&self, _: WatchScope) -> BoxStream<'static, StoreEvent> {
        futures::stream::pending().boxed()
    }
}
