//! Events on their way to `tracing` and to the application's observers.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use futures::channel::mpsc;
use futures::{Stream, StreamExt};

use crate::event::Event;

/// A stream of a host's events, from the moment it was asked for until the host ends.
///
/// The host never waits for an observer (OBS-1): an event that meets a full buffer is left out and counted.
pub struct Observer {
    events: mpsc::Receiver<Event>,
    missed: Arc<AtomicU64>,
}

impl Observer {
    /// Both ends; `buffer` events are kept for a slow reader.
    pub(crate) fn new(buffer: usize) -> (Self, ObserverEnd) {
        let (sender, events) = mpsc::channel(buffer);
        let missed = Arc::new(AtomicU64::new(0));
        (Self { events, missed: missed.clone() }, ObserverEnd { events: sender, missed })
    }

    /// Events left out so far because the buffer was full.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

impl Stream for Observer {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.events.poll_next_unpin(cx)
    }
}

/// The loop's end of one observer.
pub(crate) struct ObserverEnd {
    events: mpsc::Sender<Event>,
    missed: Arc<AtomicU64>,
}

/// Everybody who wants to see events.
#[derive(Default)]
pub(crate) struct Observers(Vec<ObserverEnd>);

impl Observers {
    pub(crate) fn add(&mut self, observer: ObserverEnd) {
        self.0.push(observer);
    }

    /// Shows an event to `tracing` and to every observer.
    pub(crate) fn show(&mut self, event: &Event) {
        trace(event);
        self.0.retain_mut(|observer| match observer.events.try_send(event.clone()) {
            Ok(()) => true,
            Err(refused) if refused.is_full() => {
                observer.missed.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(_gone) => false,
        });
    }
}

fn trace(event: &Event) {
    match event {
        Event::Violation(_) | Event::StartupFailed(_) | Event::LeaseLost => {
            tracing::error!(target: "spotmesh", ?event);
        }
        Event::PeerError { .. } | Event::ProtocolViolation { .. } | Event::LeaseDoubtful => {
            tracing::warn!(target: "spotmesh", ?event);
        }
        Event::HostState { .. } | Event::NodeServing { .. } | Event::Peer { .. } => {
            tracing::info!(target: "spotmesh", ?event);
        }
        Event::ReservationFailed { .. }
        | Event::ObjectReady { .. }
        | Event::CreationEnded { .. }
        | Event::ObjectDropped { .. }
        | Event::MessageDropped { .. }
        | Event::LeaseHeld => tracing::debug!(target: "spotmesh", ?event),
    }
}
