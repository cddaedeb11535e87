//! The receiver: says 200 to every request, on loopback, as fast as it can.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::ensure;
use socket2::SockRef;

/// The answer, the same each time.
const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";

/// A receiver with a thread for each connection that it can have at once.
pub(crate) struct Receiver {
    listener: Arc<TcpListener>,
    address: SocketAddr,
    arrived: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Receiver {
    /// Listens on a free port.
    pub(crate) fn start(connections: u32) -> io::Result<Self> {
        let listener = Arc::new(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?);
        let address = listener.local_addr()?;
        let arrived = Arc::new(AtomicU64::new(0));
        let mut threads = Vec::new();
        // Twice as many: a sender opens a connection before the receiver has seen the last close.
        for _ in 0..2 * connections {
            let (listener, arrived) = (Arc::clone(&listener), Arc::clone(&arrived));
            threads.push(thread::Builder::new().spawn(move || {
                while let Ok((stream, _)) = listener.accept() {
                    // A connection that fails is the sender's to notice.
                    drop(serve(stream, &arrived));
                }
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

    /// Ends, and tells how many requests were answered.
    pub(crate) fn end(self) -> anyhow::Result<u64> {
        // This wakes the threads that wait for a connection.
        SockRef::from(&*self.listener).shutdown(Shutdown::Both)?;
        for thread in self.threads {
            ensure!(thread.join().is_ok(), "a thread of the receiver panicked");
        }
        Ok(self.arrived.load(Ordering::Relaxed))
    }
}

/// Answers the requests of one connection.
fn serve(mut stream: TcpStream, arrived: &AtomicU64) -> io::Result<()> {
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
        let length =
            content_length(&buffer[..head]).ok_or_else(|| io::Error::other("no length"))?;
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
        arrived.fetch_add(1, Ordering::Relaxed);
        stream.write_all(ANSWER)?;
    }
}

fn content_length(head: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"\r\ncontent-length:";
    let at = head
        .windows(NAME.len())
        .position(|window| window.eq_ignore_ascii_case(NAME))?;
    let rest = &head[at + NAME.len()..];
    let end = rest.iter().position(|byte| *byte == b'\r')?;
    std::str::from_utf8(&rest[..end]).ok()?.trim().parse().ok()
}
