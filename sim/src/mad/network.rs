//! The simulated network behind the driver's Transport.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures::StreamExt;
use futures::channel::mpsc;
use futures::future::{Either, select};
use spotmesh::driver::Transport;
use spotmesh::link::{DialId, DialTarget, Lane, LinkId, NodeIndex, Record, TransportEvent};

use super::clock::MadClock;
use crate::agenda::{Agenda, Nanos};
use crate::net::{NetEvent, Network, NetworkSpec, Notice};
use crate::place::{NodeOf, RunOf, Seat};

/// One network for all nodes of a simulation. Clones are the same network.
#[derive(Clone)]
pub struct MadNetwork {
    shared: Arc<Mutex<Shared>>,
    clock: MadClock,
    bell: mpsc::UnboundedSender<()>,
}

struct Shared {
    net: Network,
    agenda: Agenda<NetEvent>,
    inboxes: BTreeMap<RunOf, mpsc::UnboundedSender<TransportEvent>>,
    /// How the peers of a seat learn of its death.
    notices: BTreeMap<Seat, (Notice, bool)>,
}

impl MadNetwork {
    /// A network; its deliveries run as a task of the node that calls this, which must outlive all others.
    #[must_use]
    pub fn start(spec: NetworkSpec, seed: u64, clock: MadClock) -> Self {
        let shared = Shared {
            net: Network::new(spec, seed),
            agenda: Agenda::default(),
            inboxes: BTreeMap::new(),
            notices: BTreeMap::new(),
        };
        let (bell, mut rung) = mpsc::unbounded();
        let network = Self { shared: Arc::new(Mutex::new(shared)), clock, bell };
        let courier = network.clone();
        drop(madsim::task::spawn(async move {
            loop {
                let next = courier.with(|shared| shared.agenda.peek());
                match next {
                    None => {
                        if rung.next().await.is_none() {
                            return;
                        }
                    }
                    Some(at) => {
                        let sleep = std::pin::pin!(courier.clock.until(at));
                        if let Either::Right((None, _)) = select(sleep, rung.next()).await {
                            return;
                        }
                    }
                }
            }
        }));
        network
    }

    /// The transport of one process run.
    #[must_use]
    pub fn transport(&self, run: RunOf) -> MadTransport {
        let (send, inbox) = mpsc::unbounded();
        self.with(|shared| shared.inboxes.insert(run, send));
        MadTransport { network: self.clone(), run, inbox }
    }

    /// How the peers of a seat learn when its process dies: `Never` leaves half-open links; `flush` lets what
    /// it sent arrive.
    pub fn on_death(&self, seat: Seat, notice: Notice, flush: bool) {
        self.with(|shared| shared.notices.insert(seat, (notice, flush)));
    }

    /// Breaks the links between two seats.
    pub fn break_between(&self, a: Seat, b: Seat, notice_a: Notice, notice_b: Notice) {
        self.with(|shared| shared.net.break_between(&mut shared.agenda, a, b, notice_a, notice_b));
    }

    /// Holds both directions between two seats for a while.
    pub fn partition(&self, a: Seat, b: Seat, lasting: Nanos) {
        self.with(|shared| {
            let until = shared.agenda.now() + lasting;
            shared.net.block(&mut shared.agenda, a, b, until);
            shared.net.block(&mut shared.agenda, b, a, until);
        });
    }

    /// Opens every held direction.
    pub fn heal(&self) {
        self.with(|shared| shared.net.heal(&mut shared.agenda));
    }

    /// Does something at the present time, everything due before first.
    fn with<T>(&self, work: impl FnOnce(&mut Shared) -> T) -> T {
        let now = self.clock.nanos();
        let mut shared = lock(&self.shared);
        shared.pump(now);
        let before = shared.agenda.peek();
        let result = work(&mut shared);
        let after = shared.agenda.peek();
        drop(shared);
        if after.is_some() && (before.is_none() || after < before) {
            // Something comes earlier than the courier sleeps for.
            let _ = self.bell.unbounded_send(());
        }
        result
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn pump(&mut self, now: Nanos) {
        while let Some(event) = self.agenda.next(now) {
            let told = match event {
                NetEvent::Arrive { link, from, lane } => self.net.arrive(link, from, lane),
                NetEvent::DialEnds { by, dial } => {
                    self.net.dial_ends(&mut self.agenda, by, dial);
                    None
                }
                NetEvent::Report { to, event } => Some((to, event)),
                NetEvent::Unblock => {
                    self.net.unblock(&mut self.agenda);
                    None
                }
            };
            if let Some((to, event)) = told
                && let Some(inbox) = self.inboxes.get(&to)
            {
                // A process that died meanwhile needs no news.
                let _ = inbox.unbounded_send(event);
            }
        }
        self.agenda.advance(now);
    }
}

/// One process's place in a [`MadNetwork`]. When it is dropped, the process has died.
pub struct MadTransport {
    network: MadNetwork,
    run: RunOf,
    inbox: mpsc::UnboundedReceiver<TransportEvent>,
}

impl MadTransport {
    fn node(&self, node: NodeIndex) -> NodeOf {
        NodeOf { run: self.run, node }
    }

    fn endpoint(&self, node: NodeIndex) -> String {
        format!("mad://{}:{}", self.run, 7000 + node.0)
    }

    fn tell_self(&self, event: TransportEvent) {
        let run = self.run;
        self.network.with(|shared| shared.agenda.after(0, NetEvent::Report { to: run, event }));
    }
}

impl Transport for MadTransport {
    fn bind(&mut self, node: NodeIndex) {
        let endpoint = self.endpoint(node);
        let place = self.node(node);
        self.network.with(|shared| shared.net.bind(place, &endpoint));
        self.tell_self(TransportEvent::Bound { node, endpoint });
    }

    fn unbind(&mut self, node: NodeIndex) {
        let place = self.node(node);
        self.network.with(|shared| shared.net.unbind(place));
    }

    fn dial(&mut self, node: NodeIndex, dial: DialId, target: DialTarget) {
        let by = self.node(node);
        self.network.with(|shared| shared.net.dial(&mut shared.agenda, by, dial, &target.endpoint));
    }

    fn drop_dial(&mut self, dial: DialId) {
        let run = self.run;
        self.network.with(|shared| shared.net.drop_dial(run, dial));
    }

    fn send(&mut self, link: LinkId, lane: Lane, record: Record) {
        let run = self.run;
        self.network.with(|shared| shared.net.send(&mut shared.agenda, run, link, lane, record));
    }

    fn close(&mut self, link: LinkId) {
        let run = self.run;
        self.network.with(|shared| shared.net.close(&mut shared.agenda, run, link));
    }

    fn flush(&mut self) {}

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<TransportEvent> {
        loop {
            match self.inbox.poll_next_unpin(cx) {
                Poll::Ready(Some(event)) => {
                    let run = self.run;
                    // What its link's end overtook is not news any more.
                    if self.network.with(|shared| shared.net.admit(run, &event)) {
                        return Poll::Ready(event);
                    }
                }
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl Drop for MadTransport {
    fn drop(&mut self) {
        // The simulation itself may be ending: no clock is read here.
        let mut shared = lock(&self.network.shared);
        let shared = &mut *shared;
        shared.inboxes.remove(&self.run);
        let (notice, flush) = shared.notices.remove(&self.run.seat).unwrap_or((Notice::After(1), false));
        shared.net.process_died(&mut shared.agenda, self.run, notice, flush);
        let _ = self.network.bell.unbounded_send(());
    }
}
