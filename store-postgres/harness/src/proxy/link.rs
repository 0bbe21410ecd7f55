use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;

use super::cuts::{Cuts, Phase};
use super::frames::{Frame, Frames};
use super::session::{Session, Verdict};
use crate::server::lock;

const TLS_REQUEST: [u8; 4] = 80_877_103_u32.to_be_bytes();
const GSS_REQUEST: [u8; 4] = 80_877_104_u32.to_be_bytes();

/// How bytes flow at present, in all connections.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flow {
    pub(super) paused: bool,
    pub(super) delay: Duration,
    pub(super) refused: bool,
    /// A change of it cuts every connection.
    pub(super) cut: u64,
}

/// One client's connection and the one to the server behind it.
#[derive(Debug)]
pub(super) struct Link {
    cuts: Arc<Cuts>,
    flow: watch::Receiver<Flow>,
    session: Mutex<Session>,
}

/// Why bytes no longer flow.
#[derive(Clone, Copy, Debug)]
enum End {
    /// A side has closed, or was cut by hand.
    Closed,
    Cut(Phase),
}

impl Link {
    pub(super) fn new(cuts: Arc<Cuts>, flow: watch::Receiver<Flow>) -> Link {
        Link { cuts, flow, session: Mutex::default() }
    }

    /// Passes messages on until a side closes or a cut falls. `cut` is the flow's at the time of the connection.
    pub(super) async fn run(self, mut client: TcpStream, server: (String, u16), cut: u64) {
        let mut flow = self.flow.clone();
        let cut_by_hand = async { flow.wait_for(|flow| flow.cut != cut).await.map(drop).unwrap_or(()) };
        tokio::pin!(cut_by_hand);
        let opened = tokio::select! {
            opened = self.open(&mut client, server) => opened,
            () = &mut cut_by_hand => return,
        };
        // A server that cannot be reached looks like one that closes at once.
        let Ok((server, first)) = opened else { return };
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        let end = tokio::select! {
            end = self.upwards(first, &mut from_client, &mut to_server) => end.unwrap_or(End::Closed),
            end = self.downwards(&mut from_server, &mut to_client) => end.unwrap_or(End::Closed),
            () = &mut cut_by_hand => End::Closed,
        };
        drop((from_client, to_client));
        if let End::Cut(phase) = end {
            self.cuts.count(phase);
        }
        // Closing over unread answers would reset the connection, and the server might then not execute what has
        // arrived. So it is read to its end.
        let _ = to_server.shutdown().await;
        let _ = tokio::io::copy(&mut from_server, &mut tokio::io::sink()).await;
    }

    /// Declines encryption, and connects to the server once the client has said something else.
    async fn open(&self, client: &mut TcpStream, server: (String, u16)) -> io::Result<(TcpStream, Frame)> {
        client.set_nodelay(true)?;
        let mut frames = Frames::untyped();
        loop {
            match frames.next() {
                Some(frame) if [TLS_REQUEST, GSS_REQUEST].iter().any(|code| frame.body() == code) => {
                    client.write_all(b"N").await?;
                }
                Some(frame) => {
                    let server = TcpStream::connect(server).await?;
                    server.set_nodelay(true)?;
                    return Ok((server, frame));
                }
                None if client.read_buf(frames.pending()).await? == 0 => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                None => {}
            }
        }
    }

    /// Client to server, with the first message, behind which a client sends nothing until the server has answered.
    async fn upwards(
        &self,
        first: Frame,
        client: &mut OwnedReadHalf,
        server: &mut OwnedWriteHalf,
    ) -> io::Result<End> {
        self.pass(server, &first.bytes).await?;
        let mut frames = Frames::typed();
        while client.read_buf(frames.pending()).await? > 0 {
            let mut out = Vec::new();
            let mut end = None;
            while let Some(frame) = frames.next() {
                if let Verdict::Cut(phase) = lock(&self.session).client_sends(&frame, &self.cuts) {
                    end = Some(End::Cut(phase));
                    break;
                }
                out.extend(frame.bytes);
            }
            self.pass(server, &out).await?;
            if let Some(end) = end {
                return Ok(end);
            }
        }
        Ok(End::Closed)
    }

    /// Server to client.
    async fn downwards(&self, server: &mut OwnedReadHalf, client: &mut OwnedWriteHalf) -> io::Result<End> {
        let mut frames = Frames::typed();
        let mut held = Vec::new();
        while server.read_buf(frames.pending()).await? > 0 {
            let mut out = Vec::new();
            let mut end = None;
            while let Some(frame) = frames.next() {
                match lock(&self.session).server_sends(&frame, &self.cuts) {
                    Verdict::Pass => out.extend(frame.bytes),
                    Verdict::Hold => held.extend(frame.bytes),
                    Verdict::Cut(phase) => end = Some(End::Cut(phase)),
                    Verdict::CutHalf => {
                        held.extend(frame.bytes);
                        out.extend(&held[..held.len() / 2]);
                        end = Some(End::Cut(Phase::MidReply));
                    }
                }
                if end.is_some() {
                    break;
                }
            }
            self.pass(client, &out).await?;
            if let Some(end) = end {
                return Ok(end);
            }
        }
        Ok(End::Closed)
    }

    async fn pass(&self, to: &mut OwnedWriteHalf, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut flow = self.flow.clone();
        let delay = flow.borrow().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        // An error means that the proxy is being dropped.
        let _ = flow.wait_for(|flow| !flow.paused).await;
        to.write_all(bytes).await
    }
}
