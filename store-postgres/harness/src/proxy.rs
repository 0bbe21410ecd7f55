//! A proxy that understands messages and cuts connections where a test wants it.

mod cuts;
mod frames;
mod link;
mod session;

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_postgres::config::Host;

use crate::{HarnessError, Server};
use cuts::Cuts;
use link::{Flow, Link};

pub use cuts::Phase;

/// A TCP proxy in front of a server: clients that use [`Proxy::url`] can be slowed down, stopped, refused, and cut at a
/// named [`Phase`] of an operation. It understands the protocol without encryption, which it declines.
///
/// It serves while the runtime that started it runs; dropping it closes its connections.
#[derive(Debug)]
pub struct Proxy {
    url: String,
    cuts: Arc<Cuts>,
    flow: watch::Sender<Flow>,
    open: Arc<AtomicUsize>,
    listening: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1 for clients of `server`, which may stop and start meanwhile.
    ///
    /// Fails with [`HarnessError::Url`] for a server whose URL does not name one TCP host.
    pub async fn start(server: &Server) -> Result<Proxy, HarnessError> {
        let target = Target::of(server.url())?;
        let attempted = || HarnessError::system("listen on a port of 127.0.0.1");
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(attempted())?;
        let port = listener.local_addr().map_err(attempted())?.port();
        let cuts = Arc::new(Cuts::new());
        let flow = watch::Sender::new(Flow::default());
        let open = Arc::default();
        let serving = serve(listener, target.server, Arc::clone(&cuts), flow.subscribe(), Arc::clone(&open));
        let url = format!("{}127.0.0.1:{port}{}", target.before, target.after);
        Ok(Proxy { url, cuts, flow, open, listening: tokio::spawn(serving) })
    }

    /// The server's URL with the proxy's address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Cuts at the next `count` chances of `phase`, whichever connections they are in. Replaces what was armed for this
    /// phase before; 0 disarms it.
    pub fn cut_next(&self, phase: Phase, count: u64) {
        self.cuts.arm(phase, 0, count);
    }

    /// Like [`Proxy::cut_next`], after letting `spare` chances of `phase` pass.
    pub fn cut_after(&self, phase: Phase, spare: u64, count: u64) {
        self.cuts.arm(phase, spare, count);
    }

    /// Disarms every phase.
    pub fn cut_no_more(&self) {
        self.cuts.disarm();
    }

    /// Cuts every open connection now, wherever it is. [`Proxy::cuts`] does not count these.
    pub fn cut_now(&self) {
        self.flow.send_modify(|flow| flow.cut += 1);
    }

    /// How many cuts of `phase` were made: their clients' connections are closed.
    pub fn cuts(&self, phase: Phase) -> u64 {
        self.cuts.made(phase)
    }

    /// Waits until [`Proxy::cuts`] of `phase` is at least `total`.
    pub async fn until_cuts(&self, phase: Phase, total: u64) {
        self.cuts.until(phase, total).await;
    }

    /// Passes nothing on in either direction, with connections open, or what has come meanwhile and all that follows.
    /// New connections are accepted meanwhile and wait.
    pub fn pause(&self, paused: bool) {
        self.flow.send_modify(|flow| flow.paused = paused);
    }

    /// Passes everything on this much later, in each direction; zero ends that. What comes during a delay goes together
    /// with a delay of its own, so that a byte takes at most twice as long.
    pub fn delay(&self, delay: Duration) {
        self.flow.send_modify(|flow| flow.delay = delay);
    }

    /// Closes new connections at once, or no more. Open ones go on.
    pub fn refuse(&self, refused: bool) {
        self.flow.send_modify(|flow| flow.refused = refused);
    }

    /// How many connections are open, to clients or, after a cut, to the server that still executes what has arrived.
    pub fn connections(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn serve(
    listener: TcpListener,
    server: (String, u16),
    cuts: Arc<Cuts>,
    flow: watch::Receiver<Flow>,
    open: Arc<AtomicUsize>,
) {
    // Ends its tasks when it is dropped.
    let mut links = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = links.join_next() => continue,
        };
        let Ok((client, _)) = accepted else {
            // Out of file descriptors, say: that may pass.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let now = *flow.borrow();
        if now.refused {
            continue;
        }
        let link = Link::new(Arc::clone(&cuts), flow.clone());
        let counted = Counted::new(&open);
        let server = server.clone();
        links.spawn(async move {
            link.run(client, server, now.cut).await;
            drop(counted);
        });
    }
}

/// One of the open connections.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(open: &Arc<AtomicUsize>) -> Counted {
        open.fetch_add(1, Ordering::SeqCst);
        Counted(Arc::clone(open))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A server's URL around its address.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    before: String,
    server: (String, u16),
    after: String,
}

impl Target {
    fn of(url: &str) -> Result<Target, HarnessError> {
        let wrong = || HarnessError::Url {
            expected: "a URL like postgresql://user@host:port/database with one TCP host",
            found: crate::server::without_password(url),
        };
        let config = tokio_postgres::Config::from_str(url).map_err(|_| wrong())?;
        let ([Host::Tcp(host)], [] | [_]) = (config.get_hosts(), config.get_ports()) else {
            return Err(wrong());
        };
        let port = config.get_ports().first().copied().unwrap_or(5432);
        let start = url.find("://").ok_or_else(wrong)? + 3;
        let end = url[start..].find(['/', '?']).map_or(url.len(), |length| start + length);
        let start = url[start..end].rfind('@').map_or(start, |at| start + at + 1);
        // The address may also stand among the parameters, where the proxy's would not replace it.
        let parameter =
            |name| url[end..].contains(&format!("?{name}=")) || url[end..].contains(&format!("&{name}="));
        if start == end || ["host", "hostaddr", "port"].into_iter().any(parameter) {
            return Err(wrong());
        }
        Ok(Target {
            before: url[..start].to_owned(),
            server: (host.clone(), port),
            after: url[end..].to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_the_address_within_the_url() {
        let target = Target::of("postgresql://ann:s%40t@db.test:6000/game?connect_timeout=3").unwrap();
        assert_eq!(target.before, "postgresql://ann:s%40t@");
        assert_eq!(target.server, ("db.test".to_owned(), 6000));
        assert_eq!(target.after, "/game?connect_timeout=3");
        assert_eq!(Target::of("postgresql://db.test").unwrap().server.1, 5432);
        for url in ["postgresql://a,b/x", "postgresql://%2Ftmp/x", "host=a user=b", "postgresql:///x?host=a"]
        {
            assert!(matches!(Target::of(url), Err(HarnessError::Url { .. })), "{url}");
        }
    }
}
