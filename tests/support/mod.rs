//! A receiver on raw sockets that misbehaves as told, and remembers everything that arrived.
//!
//! ```ignore
//! let receiver = Receiver::start(vec![Reply::status(503), Reply::close().taking_effect()]);
//! // … send to receiver.url() …
//! let arrivals = receiver.wait_for(2);
//! assert_eq!(receiver.effects().len(), 1);
//! ```
//!
//! A [`Reply`] says three things: **when** the receiver acts (at once when the connection is
//! accepted, after the request's head, after the whole request), **what** it says, and how the
//! connection **ends**. Replies are used up in order, or in order per path; after the last one
//! comes a plain 200. Nothing here waits for a time to pass: what has to be waited for is counted,
//! and a test waits for the count.
//!
//! An arrival is recorded before its answer goes out, so whoever has the answer finds it.

#![allow(dead_code, reason = "every test crate uses a part of it")]
#![expect(clippy::unwrap_used, reason = "a test may panic")]

pub(crate) mod tls;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use socket2::{Domain, SockRef, Socket, Type};

/// Waiting longer than this for a count is a failed test.
const PATIENCE: Duration = Duration::from_secs(20);

/// When a receiver acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Accepted,
    Head,
    Request,
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It stays open for another request.
    Open,
    /// FIN; what still comes is thrown away.
    Close,
    /// RST.
    Reset,
    /// Nothing more is read or written, and it stays open until the receiver is dropped.
    Hold,
}

/// What a receiver does with one request.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    when: When,
    says: Says,
    stray: Vec<u8>,
    end: End,
    acts: bool,
    gated: bool,
}

#[derive(Clone, Debug)]
enum Says {
    Raw(Vec<u8>),
    Answer {
        status: u16,
        headers: Vec<(String, String)>,
        body: Vec<u8>,
    },
}

impl Reply {
    fn new(says: Says, end: End, acts: bool) -> Self {
        Self {
            when: When::Request,
            says,
            stray: Vec::new(),
            end,
            acts,
            gated: false,
        }
    }

    /// 200 without a body. Takes effect.
    pub(crate) fn ok() -> Self {
        Self::status(200)
    }

    /// This status without a body; keeps the connection open. Takes effect if it is 2xx.
    pub(crate) fn status(status: u16) -> Self {
        let says = Says::Answer {
            status,
            headers: Vec::new(),
            body: Vec::new(),
        };
        Self::new(says, End::Open, (200..300).contains(&status))
    }

    /// These bytes, HTTP or not, then FIN.
    pub(crate) fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self::new(Says::Raw(bytes.into()), End::Close, false)
    }

    /// FIN without an answer.
    pub(crate) fn close() -> Self {
        Self::raw("")
    }

    /// RST without an answer.
    pub(crate) fn reset() -> Self {
        Self::raw("").then_reset()
    }

    /// No answer, ever.
    pub(crate) fn silent() -> Self {
        Self::raw("").then_hold()
    }

    /// Adds a header to the answer. A `content-length` or `transfer-encoding` of your own takes
    /// the place of the right one.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        match &mut self.says {
            Says::Answer { headers, .. } => headers.push((name.to_owned(), value.to_owned())),
            Says::Raw(_) => panic!("raw bytes have no headers"),
        }
        self
    }

    /// Sets the answer's body.
    pub(crate) fn body(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        match &mut self.says {
            Says::Answer { body, .. } => *body = bytes.into(),
            Says::Raw(_) => panic!("raw bytes have no body"),
        }
        self
    }

    /// Sends no more than the first `len` bytes of the answer, head included, then FIN.
    pub(crate) fn cut_after(mut self, len: usize) -> Self {
        let mut bytes = self.says.bytes();
        bytes.truncate(len);
        self.says = Says::Raw(bytes);
        self.end = End::Close;
        self
    }

    /// Sends these bytes after a whole answer, unasked, on the idle connection.
    pub(crate) fn stray(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stray = bytes.into();
        self
    }

    /// Waits with what it says until [`Receiver::open_gate`].
    pub(crate) fn gated(mut self) -> Self {
        self.gated = true;
        self
    }

    /// Acts as soon as the connection is accepted and reads nothing. Only for scripts in order,
    /// and for [`Receiver::otherwise`] behind them.
    pub(crate) fn at_accept(mut self) -> Self {
        self.when = When::Accepted;
        self
    }

    /// Acts after the request's head, and reads no more of it.
    pub(crate) fn at_head(mut self) -> Self {
        self.when = When::Head;
        self
    }

    /// Ends the connection with FIN, whatever the answer's headers promised.
    pub(crate) fn then_close(mut self) -> Self {
        self.end = End::Close;
        self
    }

    /// Ends the connection with RST.
    pub(crate) fn then_reset(mut self) -> Self {
        self.end = End::Reset;
        self
    }

    /// Leaves the connection open, neither reading nor writing any more.
    pub(crate) fn then_hold(mut self) -> Self {
        self.end = End::Hold;
        self
    }

    /// The receiver acts on the request, whatever it says about it.
    pub(crate) fn taking_effect(mut self) -> Self {
        self.acts = true;
        self
    }

    /// The receiver does not act on the request, whatever it says about it.
    pub(crate) fn without_effect(mut self) -> Self {
        self.acts = false;
        self
    }
}

impl Says {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Raw(bytes) => bytes.clone(),
            Self::Answer {
                status,
                headers,
                body,
            } => {
                let mut bytes = format!("HTTP/1.1 {status} Status\r\n").into_bytes();
                let framed = headers.iter().any(|(name, _)| {
                    name.eq_ignore_ascii_case("content-length")
                        || name.eq_ignore_ascii_case("transfer-encoding")
                });
                for (name, value) in headers {
                    bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
                }
                if !framed {
                    bytes.extend_from_slice(
                        format!("content-length: {}\r\n", body.len()).as_bytes(),
                    );
                }
                bytes.extend_from_slice(b"\r\n");
                bytes.extend_from_slice(body);
                bytes
            }
        }
    }
}

/// One request, as far as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// The connection's number, from 0.
    pub(crate) connection: usize,
    /// The head as it stood on the wire, without the blank line; all there is if it broke off.
    pub(crate) head: Vec<u8>,
    /// The method; empty if the head broke off.
    pub(crate) method: String,
    /// The path with its query; empty if the head broke off.
    pub(crate) path: String,
    /// The headers, names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// The body, as far as it was read.
    pub(crate) body: Vec<u8>,
    /// Head and body were read to their ends.
    pub(crate) whole: bool,
    /// The receiver acted on it.
    pub(crate) acted: bool,
    /// When its head had been read.
    pub(crate) at: Instant,
}

impl Arrival {
    /// The first value of a header; `name` in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn parse(connection: usize, head: Vec<u8>) -> Self {
        let text = String::from_utf8_lossy(&head).into_owned();
        let mut lines = text.split("\r\n");
        let mut first = lines.next().unwrap_or_default().split(' ');
        let method = first.next().unwrap_or_default().to_owned();
        let path = first.next().unwrap_or_default().to_owned();
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Self {
            connection,
            head,
            method,
            path,
            headers,
            body: Vec::new(),
            whole: false,
            acted: false,
            at: Instant::now(),
        }
    }
}

/// What a receiver that de-duplicates by key did for one key: one effect, however often it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effect {
    /// How often a request of this key was acted on; without de-duplication, the number of
    /// effects.
    pub(crate) times: usize,
    /// The different bodies under this key. More than one breaks the promise of a key.
    pub(crate) bodies: BTreeSet<Vec<u8>>,
}

#[derive(Debug)]
enum Script {
    InOrder(VecDeque<Reply>),
    ByPath(HashMap<String, VecDeque<Reply>>),
}

#[derive(Debug)]
struct State {
    script: Script,
    otherwise: Reply,
    arrivals: Vec<Arrival>,
    connections: usize,
    played: usize,
    ended: usize,
    gate_open: bool,
    /// The keys acted on, if the receiver de-duplicates by them.
    keys: Option<BTreeSet<String>>,
    stopped: bool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    tls: Option<Arc<ServerConfig>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A connection's thread that panicked has not spoilt what the others recorded.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state());
        self.changed.notify_all();
        changed
    }

    fn wait(&self, what: &str, until: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let (state, timeout) = self
            .changed
            .wait_timeout_while(self.state(), PATIENCE, |state| !until(state))
            .unwrap_or_else(PoisonError::into_inner);
        assert!(
            !timeout.timed_out(),
            "waited in vain for {what}: {state:#?}"
        );
        state
    }
}

/// A listening receiver. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

impl Receiver {
    /// Answers requests in the order of their arrival.
    pub(crate) fn start(script: Vec<Reply>) -> Self {
        Self::launch(Script::InOrder(script.into()), None)
    }

    /// Answers the requests to each path (without query) in the order of their arrival.
    pub(crate) fn by_path<'a>(script: impl IntoIterator<Item = (&'a str, Vec<Reply>)>) -> Self {
        let script = script
            .into_iter()
            .map(|(path, replies)| (path.to_owned(), replies.into()))
            .collect();
        Self::launch(Script::ByPath(script), None)
    }

    /// Like [`Self::start`], over TLS.
    pub(crate) fn start_tls(tls: Arc<ServerConfig>, script: Vec<Reply>) -> Self {
        Self::launch(Script::InOrder(script.into()), Some(tls))
    }

    fn launch(script: Script, tls: Option<Arc<ServerConfig>>) -> Self {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                script,
                otherwise: Reply::ok(),
                arrivals: Vec::new(),
                connections: 0,
                played: 0,
                ended: 0,
                gate_open: false,
                keys: None,
                stopped: false,
            }),
            changed: Condvar::new(),
            tls,
        });
        let theirs = Arc::clone(&shared);
        let listener = thread::spawn(move || {
            while let Ok((stream, _)) = socket.accept() {
                let stopped = theirs.state().stopped;
                if stopped {
                    return;
                }
                let number = theirs.change(|state| {
                    state.connections += 1;
                    state.connections - 1
                });
                let shared = Arc::clone(&theirs);
                thread::spawn(move || {
                    Connection::new(stream, number, Arc::clone(&shared)).serve();
                    shared.change(|state| state.ended += 1);
                });
            }
        });
        Self {
            address,
            shared,
            listener: Some(listener),
        }
    }

    /// What comes after the script's end, in place of 200.
    pub(crate) fn otherwise(self, reply: Reply) -> Self {
        self.shared.change(|state| state.otherwise = reply);
        self
    }

    /// Acts once for each value of `idempotency-key`; a repeat is answered 200 and marked as such.
    /// `known` are the keys that it has acted on before.
    pub(crate) fn deduplicating(self, known: impl IntoIterator<Item = String>) -> Self {
        let known = known.into_iter().collect();
        self.shared.change(|state| state.keys = Some(known));
        self
    }

    /// Lets every gated reply go, now and later.
    pub(crate) fn open_gate(&self) {
        self.shared.change(|state| state.gate_open = true);
    }

    /// Appends to a script in order, while it runs.
    pub(crate) fn push(&self, reply: Reply) {
        self.shared.change(|state| match &mut state.script {
            Script::InOrder(script) => script.push_back(reply),
            Script::ByPath(_) => panic!("the script goes by path"),
        });
    }

    /// `http://127.0.0.1:PORT`, or `https`.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.shared.tls.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{}", self.address)
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Every request so far, in the order of arrival.
    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        self.shared.state().arrivals.clone()
    }

    /// Waits until at least `count` requests have arrived, and returns all.
    pub(crate) fn wait_for(&self, count: usize) -> Vec<Arrival> {
        let enough = |state: &State| state.arrivals.len() >= count;
        self.shared.wait("arrivals", enough).arrivals.clone()
    }

    /// Waits until at least `count` replies have been played to their ends: said what they say,
    /// and closed or reset if that is their end.
    pub(crate) fn wait_for_played(&self, count: usize) {
        drop(self.shared.wait("replies", |state| state.played >= count));
    }

    /// Waits until at least `count` connections are over, so that nothing more can arrive on them.
    /// A reply that holds its connection never ends.
    pub(crate) fn wait_for_ended(&self, count: usize) {
        drop(self.shared.wait("ends", |state| state.ended >= count));
    }

    /// How many connections were accepted.
    pub(crate) fn connections(&self) -> usize {
        self.shared.state().connections
    }

    /// What was acted on, by the header `idempotency-key`; what came without one is under "".
    pub(crate) fn effects(&self) -> BTreeMap<String, Effect> {
        self.effects_by(|arrival| arrival.header("idempotency-key").map(str::to_owned))
    }

    /// What was acted on, by a key of your own choice.
    pub(crate) fn effects_by(
        &self,
        key: impl Fn(&Arrival) -> Option<String>,
    ) -> BTreeMap<String, Effect> {
        let mut effects: BTreeMap<String, Effect> = BTreeMap::new();
        for arrival in self.arrivals().iter().filter(|arrival| arrival.acted) {
            let effect = effects.entry(key(arrival).unwrap_or_default()).or_default();
            effect.times += 1;
            effect.bodies.insert(arrival.body.clone());
        }
        effects
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.change(|state| state.stopped = true);
        // Wakes the listener, which then sees that it is to stop.
        drop(TcpStream::connect(self.address));
        if let Some(listener) = self.listener.take() {
            drop(listener.join());
        }
    }
}

enum Wire {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

struct Connection {
    wire: Wire,
    socket: TcpStream,
    number: usize,
    shared: Arc<Shared>,
    /// Read and not yet used.
    unused: Vec<u8>,
}

impl Connection {
    fn new(stream: TcpStream, number: usize, shared: Arc<Shared>) -> Self {
        let socket = stream.try_clone().unwrap();
        let wire = match &shared.tls {
            None => Wire::Plain(stream),
            Some(config) => {
                let tls = ServerConnection::new(Arc::clone(config)).unwrap();
                Wire::Tls(Box::new(StreamOwned::new(tls, stream)))
            }
        };
        Self {
            wire,
            socket,
            number,
            shared,
            unused: Vec::new(),
        }
    }

    fn serve(mut self) {
        if let Some(reply) = self.reply_at_accept() {
            self.play(&reply);
            return;
        }
        while let Some(mut arrival) = self.read_head() {
            let mut reply = self.reply_to(&arrival.path);
            if arrival.method.is_empty() {
                self.record(arrival);
                return;
            }
            if reply.when == When::Request {
                arrival.whole = self.read_body(&mut arrival);
            }
            arrival.acted = reply.acts && (arrival.whole || reply.when != When::Request);
            let go_on = arrival.whole || reply.when != When::Request;
            if arrival.acted && self.is_repeat(&arrival) {
                arrival.acted = false;
                reply = Reply::ok().header("idempotent-replayed", "true");
            }
            self.record(arrival);
            if !go_on {
                return;
            }
            self = match self.play(&reply) {
                Some(open) => open,
                None => return,
            };
        }
    }

    /// Whether a receiver that de-duplicates knows the key; from now on it does.
    fn is_repeat(&self, arrival: &Arrival) -> bool {
        let Some(key) = arrival.header("idempotency-key") else {
            return false;
        };
        let mut state = self.shared.state();
        let keys = state.keys.as_mut();
        keys.is_some_and(|keys| !keys.insert(key.to_owned()))
    }

    fn record(&self, arrival: Arrival) {
        self.shared.change(|state| state.arrivals.push(arrival));
    }

    fn reply_at_accept(&self) -> Option<Reply> {
        let mut state = self.shared.state();
        let at_accept = |reply: &mut Reply| reply.when == When::Accepted;
        match &mut state.script {
            Script::InOrder(script) if script.is_empty() => {
                Some(state.otherwise.clone()).filter(|reply| reply.when == When::Accepted)
            }
            Script::InOrder(script) => script.pop_front_if(at_accept),
            Script::ByPath(_) => None,
        }
    }

    fn reply_to(&self, path: &str) -> Reply {
        let mut state = self.shared.state();
        let path = path.split('?').next().unwrap_or_default();
        let next = match &mut state.script {
            Script::InOrder(script) => script.pop_front(),
            Script::ByPath(scripts) => scripts.get_mut(path).and_then(VecDeque::pop_front),
        };
        next.unwrap_or_else(|| state.otherwise.clone())
    }

    /// One more piece from the peer; `false` at its end.
    fn read_more(&mut self) -> bool {
        let mut buffer = vec![0; 64 * 1024];
        match self.wire.read(&mut buffer) {
            Ok(0) | Err(_) => false,
            Ok(len) => {
                self.unused.extend_from_slice(&buffer[..len]);
                true
            }
        }
    }

    fn read_head(&mut self) -> Option<Arrival> {
        loop {
            let end = self.unused.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(end) = end {
                let head = self.unused[..end].to_vec();
                self.unused.drain(..end + 4);
                return Some(Arrival::parse(self.number, head));
            }
            if !self.read_more() {
                let broken = std::mem::take(&mut self.unused);
                return (!broken.is_empty()).then(|| Arrival {
                    method: String::new(),
                    path: String::new(),
                    ..Arrival::parse(self.number, broken)
                });
            }
        }
    }

    /// Reads a body of the announced length; `false` if it broke off.
    fn read_body(&mut self, arrival: &mut Arrival) -> bool {
        assert_eq!(
            arrival.header("transfer-encoding"),
            None,
            "chunks are not read here"
        );
        let len = arrival
            .header("content-length")
            .map_or(0, |len| len.parse::<usize>().unwrap());
        while self.unused.len() < len {
            if !self.read_more() {
                arrival.body = std::mem::take(&mut self.unused);
                return false;
            }
        }
        arrival.body = self.unused.drain(..len).collect();
        true
    }

    fn say(&mut self, bytes: &[u8]) {
        // The peer may be gone, which is its right.
        let said = self.wire.write_all(bytes).and_then(|()| self.wire.flush());
        drop(said);
    }

    /// Plays a reply; the connection comes back if it stays open.
    fn play(mut self, reply: &Reply) -> Option<Self> {
        if reply.gated {
            let closed = |state: &mut State| !state.gate_open && !state.stopped;
            let changed = &self.shared.changed;
            drop(changed.wait_while(self.shared.state(), closed));
        }
        let bytes = reply.says.bytes();
        if !bytes.is_empty() {
            self.say(&bytes);
        }
        if !reply.stray.is_empty() {
            self.say(&reply.stray);
        }
        let shared = Arc::clone(&self.shared);
        let played = || shared.change(|state| state.played += 1);
        match reply.end {
            End::Open => {
                played();
                return Some(self);
            }
            End::Close => {
                // On the plain socket: a FIN is the point, with or without a goodbye of TLS.
                drop(self.socket.shutdown(Shutdown::Write));
                played();
                while self.read_more() {}
            }
            End::Reset => {
                let socket = SockRef::from(&self.socket);
                socket.set_linger(Some(Duration::ZERO)).unwrap();
                drop(self);
                played();
            }
            End::Hold => {
                played();
                drop(
                    shared
                        .changed
                        .wait_while(shared.state(), |state| !state.stopped),
                );
            }
        }
        None
    }
}

/// The URL of a port where nothing listens.
pub(crate) fn closed_port() -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

/// An address that takes no connection and refuses none: its queue is full.
#[derive(Debug)]
pub(crate) struct BlackHole {
    address: SocketAddr,
    _listener: Socket,
    _queue: Vec<TcpStream>,
}

impl BlackHole {
    /// Opens one.
    pub(crate) fn open() -> Self {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let any: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
        listener.bind(&any.into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let mut queue = Vec::new();
        // A connection that is not made at once is not made at all: the queue is full.
        while let Ok(one) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
            queue.push(one);
            assert!(queue.len() < 1000, "the queue never fills");
        }
        Self {
            address,
            _listener: listener,
            _queue: queue,
        }
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}
