//! A running host as the application sees it.

use std::sync::Arc;
use std::time::Duration;

use futures::channel::oneshot;

use super::Actor;
use super::address::{Address, IntoActorId};
use super::calls::{Caller, FindCall, timeout_or, unexpected};
use super::create::Actors;
use super::target::{ActorTarget, AnyTarget};
use crate::driver::{Arrival, CallFuture, Observer, Port, loop_is_gone};
use crate::input::Command;
use crate::model::{ChannelName, Error, ErrorKind, HostState, MeshName, Weight};
use crate::output::Answer;

/// A running host. Clones are the same host; dropping them all does not end it.
///
/// Calls go to the host's loop over a channel, from any thread. After the loop has ended they fail with
/// ShuttingDown.
#[derive(Clone)]
pub struct HostHandle {
    port: Arc<Port>,
}

impl HostHandle {
    pub(crate) fn new(port: Arc<Port>) -> Self {
        Self { port }
    }

    fn caller(&self) -> Caller<'static> {
        Caller::outside(self.port.clone())
    }

    /// The host's state when its loop last changed it; Stopped once the loop has ended.
    #[must_use]
    pub fn state(&self) -> HostState {
        self.port.state()
    }

    /// Waits until the host serves.
    ///
    /// # Errors
    /// The error of its startup; ShuttingDown where it has served and does not any more.
    pub async fn wait_serving(&self) -> Result<(), Error> {
        let (tell, told) = oneshot::channel();
        self.port.tell(Arrival::AwaitServing(tell))?;
        told.await.map_err(|_| loop_is_gone())?
    }

    /// Creates Actors.
    #[must_use]
    pub fn actors(&self) -> Actors<'static> {
        Actors::new(self.caller())
    }

    /// An Actor of a known type, to be called.
    #[must_use]
    pub fn actor<A: Actor>(&self, id: impl IntoActorId) -> ActorTarget<'static, A> {
        ActorTarget::new(self.caller(), id)
    }

    /// The Actor of a typed address, to be called.
    #[must_use]
    pub fn at<B: Actor>(&self, address: &Address<B>) -> ActorTarget<'static, B> {
        ActorTarget::new(self.caller(), address)
    }

    /// An Actor of a type this program need not know, to be called.
    #[must_use]
    pub fn address(&self, id: impl IntoActorId) -> AnyTarget<'static> {
        AnyTarget::new(self.caller(), id)
    }

    /// Looks an Actor up (CREATE-151).
    pub fn find(&self, id: impl IntoActorId) -> FindCall<'static> {
        FindCall::new(self.caller(), id)
    }

    /// Sets the placement weight of every node of the host, 0..=10000 (NODE-48).
    ///
    /// Awaiting it fails with Configuration where the weight is out of range (ERR-21).
    pub fn set_placement_weight(&self, weight: i64) -> CallFuture<'static, ()> {
        self.set_weight(Ok(None), weight)
    }

    /// Sets the placement weight of the host's node in one Mesh.
    ///
    /// Awaiting it fails as [`Self::set_placement_weight`] does, and with NotFound for an unknown Mesh.
    pub fn set_mesh_placement_weight(&self, mesh: impl AsRef<str>, weight: i64) -> CallFuture<'static, ()> {
        let mesh = MeshName::new(mesh).map(Some).map_err(|illegal| {
            Error::new(ErrorKind::InvalidOperation, "set_placement_weight", illegal.to_string())
        });
        self.set_weight(mesh, weight)
    }

    fn set_weight(&self, mesh: Result<Option<MeshName>, Error>, weight: i64) -> CallFuture<'static, ()> {
        let command = mesh.and_then(|mesh| {
            let weight = weight_of(weight, "set_placement_weight")?;
            Ok(Command::SetPlacementWeight { mesh, weight })
        });
        self.caller().call(command, set)
    }

    /// Sets the weight of a Channel the host serves, 0..=10000 (NODE-112).
    ///
    /// Awaiting it fails with Configuration where the weight is out of range (ERR-21), InvalidOperation where
    /// the text is no ChannelName, and NotFound where the host does not serve the Channel.
    pub fn set_channel_weight(&self, channel: impl AsRef<str>, weight: i64) -> CallFuture<'static, ()> {
        let channel = ChannelName::new(channel).map_err(|illegal| {
            Error::new(ErrorKind::InvalidOperation, "set_channel_weight", illegal.to_string())
        });
        let command = channel.and_then(|channel| {
            let weight = weight_of(weight, "set_channel_weight")?;
            Ok(Command::SetChannelWeight { channel, weight })
        });
        self.caller().call(command, set)
    }

    /// Ends the host in order (spec 09 §9); its loop ends afterwards.
    pub fn shutdown(&self) -> ShutdownCall {
        ShutdownCall { caller: self.caller(), timeout: None }
    }

    /// The host's events from now on. A reader that falls more than `buffer` events behind misses some.
    #[must_use]
    pub fn observe(&self, buffer: usize) -> Observer {
        let (observer, end) = Observer::new(buffer);
        // Without a loop the stream is empty, which is the truth.
        let _ = self.port.tell(Arrival::Observe(end));
        observer
    }
}

fn weight_of(weight: i64, operation: &'static str) -> Result<Weight, Error> {
    Weight::new(weight).ok_or_else(|| {
        let found = format!("weight: expected 0..=10000, found {weight}");
        Error::new(ErrorKind::Configuration, operation, found)
    })
}

fn set(answer: Answer) -> Result<(), Error> {
    match answer {
        Answer::Set => Ok(()),
        Answer::Failed(error) => Err(error),
        other => Err(unexpected("set", &other)),
    }
}

/// How a host ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownOutcome {
    /// Everything was finished and released.
    Stopped,
    /// Something had to be given up at the deadline.
    ForceStopped,
}

/// A shutdown that was not submitted yet.
#[must_use = "a call does nothing until it is awaited"]
pub struct ShutdownCall {
    caller: Caller<'static>,
    timeout: Option<Duration>,
}

impl ShutdownCall {
    /// Deadline of the whole shutdown; 30 s by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

impl IntoFuture for ShutdownCall {
    type Output = Result<ShutdownOutcome, Error>;
    type IntoFuture = CallFuture<'static, ShutdownOutcome>;

    fn into_future(self) -> Self::IntoFuture {
        let timeout = timeout_or(self.timeout, self.caller.settings().shutdown_timeout, "shutdown");
        let command = timeout.map(|timeout| Command::Shutdown { timeout });
        self.caller.call(command, |answer| match answer {
            Answer::ShutDown { forced: false } => Ok(ShutdownOutcome::Stopped),
            Answer::ShutDown { forced: true } => Ok(ShutdownOutcome::ForceStopped),
            Answer::Failed(error) => Err(error),
            other => Err(unexpected("shutdown", &other)),
        })
    }
}
