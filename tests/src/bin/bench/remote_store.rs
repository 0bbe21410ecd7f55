//! A memory store in another process: one connection, requests and answers in order, postcard behind a length.

use std::collections::VecDeque;
use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use futures::channel::oneshot;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use spotmesh::driver::LocationStore;
use spotmesh::store::{StoreError, StoreEvent, StoreRequest, StoreResult, WatchScope};
use spotmesh_store_memory::MemoryStore;

use crate::Outcome;

/// Largest encoded request or answer, 32 MiB.
const LARGEST: usize = 32 << 20;

fn read<T: DeserializeOwned>(from: &mut impl Read) -> Outcome<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > LARGEST {
        return Err(format!("expected at most {LARGEST} bytes, found {length}").into());
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    Ok(postcard::from_bytes(&bytes)?)
}

fn write<T: Serialize>(to: &mut impl Write, value: &T) -> Outcome<()> {
    let mut bytes = vec![0; 4];
    bytes.append(&mut postcard::to_stdvec(value)?);
    let length = u32::try_from(bytes.len() - 4)?.to_be_bytes();
    bytes.splice(..4, length);
    Ok(to.write_all(&bytes)?)
}

/// Serves a store on a free port of the loopback until the process ends; answers its address.
pub(crate) fn serve(store: MemoryStore) -> Outcome<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let store = store.clone();
            std::thread::spawn(move || answer(&store, stream));
        }
    });
    Ok(address)
}

/// Answers one connection until it ends.
fn answer(store: &MemoryStore, mut stream: TcpStream) {
    let Ok(reading) = stream.try_clone() else { return };
    let mut reading = BufReader::new(reading);
    // A delay of small segments would be measured.
    let _ = stream.set_nodelay(true);
    while let Ok(request) = read::<StoreRequest>(&mut reading) {
        if write(&mut stream, &store.apply(&request)).is_err() {
            return;
        }
    }
}

/// The store of another process.
pub(crate) struct RemoteStore {
    lane: Arc<Mutex<Lane>>,
}

/// Requests go out and their waiters queue up under one lock, so both are in one order.
struct Lane {
    stream: TcpStream,
    waiters: VecDeque<oneshot::Sender<StoreResult>>,
}

impl RemoteStore {
    pub(crate) fn connect(address: &str) -> Outcome<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut reading = BufReader::new(stream.try_clone()?);
        let lane = Arc::new(Mutex::new(Lane { stream, waiters: VecDeque::new() }));
        let of_reader = Arc::clone(&lane);
        std::thread::spawn(move || {
            while let Ok(result) = read::<StoreResult>(&mut reading) {
                let waiter = of_reader.lock().unwrap_or_else(PoisonError::into_inner).waiters.pop_front();
                if let Some(waiter) = waiter {
                    // A caller may have stopped waiting.
                    let _ = waiter.send(result);
                }
            }
            of_reader.lock().unwrap_or_else(PoisonError::into_inner).waiters.clear();
        });
        Ok(Self { lane })
    }
}

impl LocationStore for RemoteStore {
    fn call(&self, request: StoreRequest) -> BoxFuture<'static, StoreResult> {
        let lane = Arc::clone(&self.lane);
        async move {
            let answered = {
                let mut lane = lane.lock().unwrap_or_else(PoisonError::into_inner);
                let (answer, answered) = oneshot::channel();
                lane.waiters.push_back(answer);
                if write(&mut lane.stream, &request).is_err() {
                    return Err(StoreError::Indeterminate);
                }
                answered
            };
            answered.await.unwrap_or(Err(StoreError::Indeterminate))
        }
        .boxed()
    }

    /// No hints: they may all be lost, and polling covers that (STORE-112).
    fn watch(&self, _: WatchScope) -> BoxStream<'static, StoreEvent> {
        futures::stream::pending().boxed()
    }
}
