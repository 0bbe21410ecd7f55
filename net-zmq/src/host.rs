//! A host in a few lines: one thread that owns the sockets and runs the loop, Tokio for everything that waits.

use std::fmt;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::BoxFuture;
use spotmesh::app::{HostBuilder, HostHandle, HostPlan, ShutdownOutcome};
use spotmesh::driver::Executor;
use spotmesh::model::{Error, ErrorKind};
use tokio::runtime::{Handle, Runtime};

use crate::{Reactor, ZmqConfig, ZmqTransport};

/// Runs Store calls, and turns where [`TurnPlacement`](spotmesh::app::TurnPlacement) says so, on a Tokio
/// runtime. What a provider such as a database client needs of Tokio is therefore there.
#[derive(Debug, Clone)]
pub struct TokioExecutor {
    handle: Handle,
}

impl TokioExecutor {
    /// On this runtime, which must outlive the host.
    #[must_use]
    pub fn new(handle: Handle) -> Self {
        Self { handle }
    }
}

impl Executor for TokioExecutor {
    fn spawn(&self, future: BoxFuture<'static, ()>) {
        // A task's panic stays in the task; the loop learns of a lost turn by itself.
        drop(self.handle.spawn(future));
    }
}

/// Starts hosts on ZeroMQ.
///
/// Each gets an OS thread of its own, which owns its sockets and runs its loop (design §6), the clock of that
/// thread's reactor, and a seed from the system's generator (MODEL-27).
#[derive(Debug)]
pub struct ZmqHost(());

impl ZmqHost {
    /// Starts a host. Store calls run on the Tokio runtime this is called in; outside of any, the host gets a
    /// small one of its own, with which it ends.
    ///
    /// It returns when the host's loop runs: [`HostHandle::wait_serving`] tells when it serves.
    ///
    /// # Errors
    /// `Configuration` as in [`HostBuilder::build`] and [`ZmqTransport::new`], `InternalFailure` where the
    /// system gives no thread, socket or random bytes.
    pub fn start(host: HostBuilder, transport: ZmqConfig) -> Result<Running, Error> {
        match Handle::try_current() {
            Ok(handle) => Self::launch(host, transport, handle, None),
            Err(_outside) => {
                let runtime = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(OWN_WORKERS)
                    .thread_name("spotmesh-calls")
                    .enable_all()
                    .build()
                    .map_err(|error| failed(format!("no Tokio runtime: {error}")))?;
                Self::launch(host, transport, runtime.handle().clone(), Some(runtime))
            }
        }
    }

    /// Starts a host whose Store calls and spawned turns run on `handle`'s runtime.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_on(handle: Handle, host: HostBuilder, transport: ZmqConfig) -> Result<Running, Error> {
        Self::launch(host, transport, handle, None)
    }

    fn launch(
        host: HostBuilder,
        transport: ZmqConfig,
        handle: Handle,
        own: Option<Runtime>,
    ) -> Result<Running, Error> {
        let plan = host.build()?;
        let mut seed = [0; 32];
        spotmesh_zmq_ffi::random_bytes(&mut seed).map_err(|error| failed(error.to_string()))?;
        let (started, outcome) = mpsc::sync_channel(1);
        let (tell_end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("spotmesh-host".to_owned())
            .spawn(move || {
                {
                    // Turns are first polled here, and may use Tokio's timers and sockets whatever their placement.
                    let _context = handle.enter();
                    run(plan, transport, TokioExecutor::new(handle.clone()), seed, &started);
                }
                // Calls still under way belong to a host that has ended.
                if let Some(runtime) = own {
                    runtime.shutdown_background();
                }
                // Nobody may wait any more.
                let _ = tell_end.send(());
            })
            .map_err(|error| failed(format!("no thread: {error}")))?;
        let handle = outcome.recv().map_err(|_| failed("the host's thread ended early".to_owned()))??;
        Ok(Running { handle, thread: Some(thread), ended: Some(ended) })
    }
}

/// Threads of a runtime that serves one host's Store calls only.
const OWN_WORKERS: usize = 2;

/// The host's thread. Sockets are made, used and closed here.
fn run(
    plan: HostPlan,
    config: ZmqConfig,
    executor: TokioExecutor,
    seed: [u8; 32],
    started: &mpsc::SyncSender<Result<HostHandle, Error>>,
) {
    let make = || {
        let reactor = Reactor::new()?;
        let transport = ZmqTransport::new(config, &reactor)?;
        let (handle, driver) = plan.start(transport, reactor.clock(), executor, seed)?;
        Ok((reactor, handle, driver))
    };
    match make() {
        Ok((reactor, handle, driver)) => {
            // Whoever starts a host waits for this; the queue has room.
            let _ = started.send(Ok(handle));
            reactor.block_on(driver);
        }
        Err(error) => {
            let _ = started.send(Err(error));
        }
    }
}

/// A host on a thread of its own.
///
/// Dropping it asks the host to shut down and waits for nothing: a process that ends right afterwards leaves
/// names and Actors to the end of the lease. [`Self::stop`] is the orderly end.
#[must_use = "dropping it shuts the host down"]
pub struct Running {
    handle: HostHandle,
    thread: Option<JoinHandle<()>>,
    ended: Option<oneshot::Receiver<()>>,
}

impl Running {
    /// The host, to be cloned and called from any thread.
    #[must_use]
    pub fn handle(&self) -> &HostHandle {
        &self.handle
    }

    /// Shuts the host down (spec 09 §9), at most for `timeout`, and waits until its thread has closed its
    /// sockets, which takes up to [`Timing::close`](crate::Timing::close) twice more.
    ///
    /// # Errors
    /// ShuttingDown where the host has ended before, InvalidOperation for a timeout out of range,
    /// InternalFailure where its loop panicked.
    pub async fn stop(mut self, timeout: Duration) -> Result<ShutdownOutcome, Error> {
        let outcome = self.handle.shutdown().timeout(timeout).await;
        if let Err(error) = &outcome
            && error.kind() == ErrorKind::InvalidOperation
        {
            return outcome;
        }
        self.join().await?;
        outcome
    }

    /// Waits until the host has ended, by a shutdown through its handle or by itself.
    ///
    /// # Errors
    /// InternalFailure where its loop panicked.
    pub async fn wait(mut self) -> Result<(), Error> {
        self.join().await
    }

    async fn join(&mut self) -> Result<(), Error> {
        if let Some(ended) = self.ended.take() {
            // An error is the end of the thread too, by a panic.
            let _ = ended.await;
        }
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(_panic)) => Err(failed("the host's loop panicked".to_owned())),
            Some(Ok(())) | None => Ok(()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.thread.is_some() {
            // The first poll submits it; that nobody waits for the end undoes nothing (ERR-6).
            let mut shutdown = std::pin::pin!(self.handle.shutdown().into_future());
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            let _ = shutdown.as_mut().poll(&mut cx);
        }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("state", &self.handle.state()).finish_non_exhaustive()
    }
}

fn failed(what: String) -> Error {
    Error::new(ErrorKind::InternalFailure, "zmq host", what)
}
