//! The receiver: says 200 to every request, on loopback, as fast as it can, and knows afterwards
//! which items it saw how often.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use socket2::SockRef;

/// The answer, the same each time.
const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";

/// A receiver with a thread for each connection that it can have at once.
pub(crate) struct Receiver {
    listener: Arc<TcpListener>,
    address: SocketAddr,
    arrived: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Seen>>,
}

/// What was answered.
#[derive(Default)]
pub(crate) struct Seen {
    /// The hash of each request's key.
    keys: Vec<u64>,
    /// When the last request was answered.
    pub(crate) last: Option<Instant>,
}

impl Seen {
    /// How many requests came, and how many keys they had.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let distinct: HashSet<u64> = self.keys.iter().copied().collect();
        (self.keys.len() as u64, distinct.len() as u64)
    }

    /// Refuses anything but each of `items` items once.
    pub(crate) fn once(&self, items: u32) -> anyhow::Result<()> {
        let (requests, distinct) = self.counts();
        ensure!(
            requests == u64::from(items) && distinct == requests,
            "the receiver saw {requests} requests with {distinct} keys instead of {items} items once each"
        );
        Ok(())
    }
}

impl Receiver {
    /// Listens on a free port.
    pub(crate) fn start(connections: u32) -> io::Result<Self> {
        Self::slow(connections, Duration::ZERO)
    }

    /// The same, with each answer so long after its request.
    pub(crate) fn slow(connections: u32, delay: Duration) -> io::Result<Self> {
        let listener = Arc::new(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?);
        let address = listener.local_addr()?;
        let arrived = Arc::new(AtomicU64::new(0));
        let mut threads = Vec::new();
        // Twice as many: a sender opens a connection before the receiver has seen the last close.
        for _ in 0..2 * connections {
            let (listener, arrived) = (Arc::clone(&listener), Arc::clone(&arrived));
            threads.push(thread::Builder::new().spawn(move || {
                let mut seen = Seen::default();
                while let Ok((stream, _)) = listener.accept() {
                    // A connection that fails is the sender's to notice.
                    drop(serve(stream, delay, &arrived, &mut seen));
                }
                seen
            })?);
        }
        Ok(Self {
            listener,
            address,
            arrived,
            threads,
        })
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn url(&self) -> String {
        format!("{}/x", self.base_url())
    }

    /// How many requests were answered so far.
    pub(crate) fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }

    /// Ends, and tells what was answered.
    pub(crate) fn end(self) -> anyhow::Result<Seen> {
        // This wakes the threads that wait for a connection.
        SockRef::from(&*self.listener).shutdown(Shutdown::Both)?;
        let mut all = Seen::default();
        for thread in self.threads {
            let ended = thread.join();
            let seen = ended.map_err(|_| anyhow!("a thread of the receiver panicked"))?;
            all.keys.extend(seen.keys);
            all.last = all.last.max(seen.last);
        }
        Ok(all)
    }
}

/// Answers the requests of one connection.
fn serve(
    mut stream: TcpStream,
    delay: Duration,
    arrived: &AtomicU64,
    seen: &mut Seen,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; 16 * 1024];
    let mut filled = 0;
    loop {
        let head = loop {
            let end = buffer[..filled].windows(4).position(|w| w == b"\r\n\r\n");
            if let Some(end) = end {
                break end + 4;
            }
            if filled == buffer.len() {
                return Err(io::Error::other("the head is too large"));
            }
            let read = stream.read(&mut buffer[filled..])?;
            if read == 0 {
                return Ok(());
            }
            filled += read;
        };
        let length: usize = header(&buffer[..head], b"\r\ncontent-length:")
            .and_then(|value| std::str::from_utf8(value).ok()?.trim().parse().ok())
            .ok_or_else(|| io::Error::other("no length"))?;
        let key = header(&buffer[..head], b"\r\nidempotency-key:")
            .ok_or_else(|| io::Error::other("no key"))?;
        let key = BuildHasherDefault::<DefaultHasher>::default().hash_one(key.trim_ascii());
        let mut missing = (head + length).saturating_sub(filled);
        // What is behind this request belongs to the next one.
        let used = (head + length).min(filled);
        buffer.copy_within(used..filled, 0);
        filled -= used;
        while missing > 0 {
            let room = missing.min(buffer.len());
            let read = stream.read(&mut buffer[..room])?;
            if read == 0 {
                return Ok(());
            }
            missing -= read;
        }
        let (now, mut waited) = (Instant::now(), Duration::ZERO);
        while waited < delay {
            thread::park_timeout(delay.saturating_sub(waited));
            waited = now.elapsed();
        }
        seen.keys.push(key);
        seen.last = Some(Instant::now());
        arrived.fetch_add(1, Ordering::Relaxed);
        stream.write_all(ANSWER)?;
    }
}

/// The value of a header, of which the name is given with what is around it, in lower case.
fn header<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let at = head
        .windows(name.len())
        .position(|window| window.eq_ignore_ascii_case(name))?;
    let rest = &head[at + name.len()..];
    let end = rest.iter().position(|byte| *byte == b'\r')?;
    Some(&rest[..end])
}
