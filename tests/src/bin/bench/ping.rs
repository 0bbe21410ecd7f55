//! The floor of W4: ROUTER to ROUTER over loopback, each socket on the thread that uses it, without packing.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use spotmesh_zmq_ffi::{BytesOption, Context, Epoll, Error, IntOption, Kind, Multipart, Socket};

use crate::Outcome;
use crate::measure::{Figures, cpu_with, figures, nanos_since};

/// A child process of this benchmark, killed when dropped.
pub(crate) struct Elsewhere {
    pub(crate) child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Elsewhere {
    /// Starts this program again in another role.
    pub(crate) fn start(workload: &str, role: &[&str]) -> Outcome<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([workload, "--child"])
            .args(role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or("no output of the child")?;
        Ok(Self { child, output: BufReader::new(output) })
    }

    /// The next line it writes.
    pub(crate) fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        match self.output.read_line(&mut line)? {
            0 => Err("the child ended early".into()),
            _ => Ok(line.trim().to_owned()),
        }
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn router(context: &Context) -> Outcome<Socket> {
    let socket = context.socket(Kind::Router)?;
    socket.set(IntOption::RouterMandatory, 1)?;
    socket.set(IntOption::Linger, 0)?;
    socket.set(IntOption::SendHighWaterMark, 1_000)?;
    socket.set(IntOption::ReceiveHighWaterMark, 1_000)?;
    Ok(socket)
}

/// A socket and its sleep.
struct Polled {
    socket: Socket,
    epoll: Epoll,
    tokens: Vec<u64>,
}

impl Polled {
    fn new(socket: Socket) -> Outcome<Self> {
        let epoll = Epoll::new()?;
        epoll.add(socket.fd()?, 0)?;
        Ok(Self { socket, epoll, tokens: Vec::new() })
    }

    /// Waits for a message.
    fn recv(&mut self, message: &mut Multipart) -> Outcome<()> {
        loop {
            match self.socket.recv(message) {
                Ok(()) => return Ok(()),
                Err(Error::WouldBlock) => {}
                Err(error) => return Err(error.into()),
            }
            self.tokens.clear();
            self.epoll.wait(true, &mut self.tokens)?;
        }
    }
}

/// The other side: returns every message.
pub(crate) fn serve() -> Outcome<()> {
    let context = Context::new()?;
    let socket = router(&context)?;
    socket.set_bytes(BytesOption::RoutingId, b"echo")?;
    socket.bind("tcp://127.0.0.1:0")?;
    println!("{}", socket.last_endpoint()?);
    std::io::stdout().flush()?;
    let mut polled = Polled::new(socket)?;
    let mut message = Multipart::default();
    loop {
        polled.recv(&mut message)?;
        let [route, body] = message.frames() else { return Err("expected two frames".into()) };
        polled.socket.send(route, true)?;
        polled.socket.send_bytes(body.clone(), false)?;
    }
}

/// This side.
pub(crate) struct Ping {
    polled: Polled,
    elsewhere: Elsewhere,
    _context: Context,
}

impl Ping {
    pub(crate) fn start() -> Outcome<Self> {
        let mut elsewhere = Elsewhere::start("W4", &["echo"])?;
        let endpoint = elsewhere.line()?;
        let context = Context::new()?;
        let socket = router(&context)?;
        socket.set_bytes(BytesOption::RoutingId, b"ping")?;
        socket.set_bytes(BytesOption::ConnectRoutingId, b"echo")?;
        socket.connect(&endpoint)?;
        // The route exists at once, messages leave when the connection is there.
        Ok(Self { polled: Polled::new(socket)?, elsewhere, _context: context })
    }

    fn burst(&mut self, outstanding: usize, until: Instant, payload: &[u8]) -> Outcome<Vec<u32>> {
        let mut latencies = Vec::with_capacity(1 << 20);
        let mut under_way = VecDeque::new();
        let mut message = Multipart::default();
        let send = |socket: &Socket, under_way: &mut VecDeque<Instant>| -> Outcome<()> {
            under_way.push_back(Instant::now());
            socket.send(b"echo", true)?;
            Ok(socket.send(payload, false)?)
        };
        for _ in 0..outstanding {
            send(&self.polled.socket, &mut under_way)?;
        }
        // One connection keeps the order.
        while let Some(begin) = under_way.pop_front() {
            self.polled.recv(&mut message)?;
            latencies.push(nanos_since(begin));
            if Instant::now() < until {
                send(&self.polled.socket, &mut under_way)?;
            }
        }
        Ok(latencies)
    }

    pub(crate) fn round(&mut self, outstanding: usize, span: Duration, payload: &[u8]) -> Outcome<Figures> {
        self.burst(outstanding, Instant::now() + span / 10, payload)?;
        let (cpu, begin) = (cpu_with(&[&self.elsewhere.child])?, Instant::now());
        let latencies = self.burst(outstanding, begin + span, payload)?;
        let wall = begin.elapsed();
        Ok(figures(latencies, wall, cpu_with(&[&self.elsewhere.child])? - cpu))
    }
}
