//! A bad network: a TCP proxy that cuts connections, loses bytes, holds them back or lets nobody in.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use crate::port::Port;

/// How much is passed on at once.
const CHUNK: usize = 16 * 1024;

/// A proxy in front of a port of the loopback. It cuts all connections when dropped.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    network: Arc<Network>,
    acceptor: Option<JoinHandle<()>>,
}

/// Where bytes come from and go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From clients to the server.
    ToServer,
    /// From the server to clients.
    FromServer,
}

#[derive(Debug)]
struct Network {
    target: u16,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    door: Door,
    to_server: Flow,
    from_server: Flow,
    lost: u64,
    links: Vec<Arc<Link>>,
}

/// What becomes of a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Open,
    Refusing,
    Closed,
}

/// What becomes of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Passing,
    Lost,
    Held,
}

/// A connection through the proxy.
#[derive(Debug)]
struct Link {
    client: TcpStream,
    server: TcpStream,
    is_cut: AtomicBool,
    /// Bytes are missing, so that what comes later makes no sense to who reads it.
    is_torn: AtomicBool,
}

/// What to do with bytes that were read.
enum Verdict {
    Pass,
    Lose,
    End,
}

impl Proxy {
    /// Starts a proxy in front of a port.
    #[must_use]
    pub fn to(port: u16) -> Self {
        let state =
            State { door: Door::Open, to_server: Flow::Passing, from_server: Flow::Passing, lost: 0, links: vec![] };
        let network = Arc::new(Network { target: port, state: Mutex::new(state), changed: Condvar::new() });
        let (port, listener) = Port::listen();
        let accepting = Arc::clone(&network);
        let acceptor = Some(thread::spawn(move || accepting.accept(&listener)));
        Self { port, network, acceptor }
    }

    /// The port to connect to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// What a client connects to.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port())
    }

    /// What a client connects to as a user; name and password are put in as they are.
    #[must_use]
    pub fn url_of(&self, user: &str, password: &str) -> String {
        format!("nats://{user}:{password}@127.0.0.1:{}", self.port())
    }

    /// Cuts all connections. Clients may connect again.
    pub fn cut(&self) {
        self.network.lock().cut(|_| true);
        self.network.changed.notify_all();
    }

    /// Closes new connections at once, until it heals. Those that exist stay.
    pub fn refuse(&self) {
        self.network.lock().door = Door::Refusing;
    }

    /// Loses everything that goes in one direction from now on, also the end of a connection: with `FromServer`,
    /// what is published is stored and never acknowledged.
    pub fn stall(&self, direction: Direction) {
        self.network.set(direction, Flow::Lost);
    }

    /// Holds back everything that goes in one direction from now on; it arrives when the proxy heals.
    pub fn hold(&self, direction: Direction) {
        self.network.set(direction, Flow::Held);
    }

    /// Passes everything again and lets everyone in. Connections that have lost bytes are cut.
    pub fn heal(&self) {
        let mut state = self.network.lock();
        (state.door, state.to_server, state.from_server) = (Door::Open, Flow::Passing, Flow::Passing);
        state.cut(|link| link.is_torn.load(Ordering::SeqCst));
        self.network.changed.notify_all();
    }

    /// How many bytes were lost so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.network.lock().lost
    }

    /// How many connections go through it.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.network.lock().links.iter().filter(|link| !link.is_cut()).count()
    }
}

impl Direction {
    fn back(self) -> Self {
        match self {
            Self::ToServer => Self::FromServer,
            Self::FromServer => Self::ToServer,
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.network.lock().door = Door::Closed;
        self.cut();
        // Wakes the acceptor, which sees that the door is closed.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port()));
        let _ = self.acceptor.take().map(JoinHandle::join);
    }
}

impl Network {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with the state in hand")
    }

    fn set(&self, direction: Direction, flow: Flow) {
        match direction {
            Direction::ToServer => self.lock().to_server = flow,
            Direction::FromServer => self.lock().from_server = flow,
        }
        self.changed.notify_all();
    }

    /// Serves connections until the door is closed, and then until all have ended.
    fn accept(&self, listener: &TcpListener) {
        thread::scope(|scope| {
            for client in listener.incoming() {
                if self.lock().door == Door::Closed {
                    return;
                }
                if let Some(link) = client.ok().and_then(|client| self.link(client)) {
                    let back = Arc::clone(&link);
                    scope.spawn(move || self.pump(&link, Direction::ToServer));
                    scope.spawn(move || self.pump(&back, Direction::FromServer));
                }
            }
        });
    }

    /// Connects a client with the server, if there is one and the door is open.
    fn link(&self, client: TcpStream) -> Option<Arc<Link>> {
        if self.lock().door != Door::Open {
            return None;
        }
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, self.target)).ok()?;
        client.set_nodelay(true).and_then(|()| server.set_nodelay(true)).ok()?;
        let link = Link { client, server, is_cut: AtomicBool::new(false), is_torn: AtomicBool::new(false) };
        let link = Arc::new(link);
        let mut state = self.lock();
        state.links.retain(|link| !link.is_cut());
        state.links.push(Arc::clone(&link));
        // It may have been closed while the server was called; then nobody else cuts this one.
        if state.door == Door::Closed {
            link.cut();
        }
        Some(link)
    }

    /// Passes on what goes in one direction, until one side ends.
    fn pump(&self, link: &Link, direction: Direction) {
        let (mut from, mut to) = match direction {
            Direction::ToServer => (&link.client, &link.server),
            Direction::FromServer => (&link.server, &link.client),
        };
        let mut chunk = [0; CHUNK];
        loop {
            // A side that is gone says as little as one that has said all.
            let read = from.read(&mut chunk).unwrap_or(0);
            match self.judge(link, direction, read) {
                Verdict::Lose => {}
                Verdict::Pass if read > 0 => {
                    if to.write_all(&chunk[..read]).is_err() {
                        // The news of that goes the other way.
                        self.judge(link, direction.back(), 0);
                        break;
                    }
                }
                Verdict::Pass | Verdict::End => break,
            }
        }
        link.cut();
    }

    /// Decides on bytes that were read, or on the end if there are none, once it can be decided.
    fn judge(&self, link: &Link, direction: Direction, read: usize) -> Verdict {
        let mut state = self.lock();
        loop {
            let flow = match direction {
                Direction::ToServer => state.to_server,
                Direction::FromServer => state.from_server,
            };
            if link.is_cut() {
                return Verdict::End;
            }
            match flow {
                Flow::Passing => return Verdict::Pass,
                Flow::Lost if read > 0 => {
                    link.is_torn.store(true, Ordering::SeqCst);
                    state.lost += u64::try_from(read).expect("a chunk is small");
                    return Verdict::Lose;
                }
                Flow::Lost | Flow::Held => {
                    state = self.changed.wait(state).expect("nobody panics with the state in hand");
                }
            }
        }
    }
}

impl State {
    fn cut(&mut self, which: impl Fn(&Link) -> bool) {
        self.links.iter().filter(|link| which(link)).for_each(|link| link.cut());
        self.links.retain(|link| !link.is_cut());
    }
}

impl Link {
    fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::SeqCst)
    }

    fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        // The other side may have ended it already.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}
