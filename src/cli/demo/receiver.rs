//! The demonstration's receiver: plain HTTP on loopback, misbehaving by path.

use std::collections::HashSet;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The largest body that is read, in bytes.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// A receiver that runs until the process ends.
pub(super) struct Receiver {
    address: String,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    log: Vec<String>,
    keys: HashSet<String>,
}

struct Request {
    path: String,
    key: Option<String>,
}

impl Receiver {
    /// Listens on a free port of 127.0.0.1.
    pub(super) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let shared = Arc::clone(&seen);
        thread::Builder::new().spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = Arc::clone(&shared);
                // A connection that fails is the other side's to notice.
                drop(thread::Builder::new().spawn(move || serve(stream, &seen)));
            }
        })?;
        Ok(Self { address, seen })
    }

    /// Host and port.
    pub(super) fn address(&self) -> String {
        self.address.clone()
    }

    /// One line for every request that arrived.
    pub(super) fn log(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.log.clone()
    }
}

fn serve(mut stream: TcpStream, seen: &Mutex<Seen>) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let request = read(&stream)?;
    let answer = answer(&request, seen);
    match answer {
        Some(text) => stream.write_all(text.as_bytes()),
        None => Ok(()),
    }
}

fn read(stream: &TcpStream) -> io::Result<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let (mut length, mut key) = (0, None);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let Some((name, value)) = header.trim_end().split_once(':') else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap_or(0),
            "idempotency-key" => key = Some(value.trim().to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; BODY_BYTES_MAX.min(length)];
    reader.read_exact(&mut body)?;
    Ok(Request { path, key })
}

/// What is answered; `None` closes the connection without an answer.
fn answer(request: &Request, seen: &Mutex<Seen>) -> Option<String> {
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let known = match &request.key {
        Some(key) => !seen.keys.insert(key.clone()),
        None => false,
    };
    let reply = |status: &str, headers: &str, body: &str| {
        Some(format!(
            "HTTP/1.1 {status}\r\n{headers}Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        ))
    };
    let (did, answer) = match request.path.as_str() {
        "/shop/lost" if known => (
            "knows the key, acts no second time, says so: 200",
            reply(
                "200 OK",
                "Idempotent-Replayed: true\r\n",
                r#"{"id":"ch_2"}"#,
            ),
        ),
        "/shop/lost" => ("acted on it; the answer was lost", None),
        "/shop/reject" => (
            "rejected it: 422",
            reply(
                "422 Unprocessable Content",
                "",
                r#"{"message":"amount must be positive"}"#,
            ),
        ),
        "/shop/charges" => ("acted on it: 200", reply("200 OK", "", r#"{"id":"ch_1"}"#)),
        "/busy" => (
            "overloaded: 503, Retry-After: 3600",
            reply("503 Service Unavailable", "Retry-After: 3600\r\n", "{}"),
        ),
        "/locked" => (
            "wants a password: 401",
            reply("401 Unauthorized", "WWW-Authenticate: Bearer\r\n", "{}"),
        ),
        "/legacy" => ("perhaps acted on it; the answer was lost", None),
        "/ops" => ("told: 204", reply("204 No Content", "", "")),
        _ => ("unknown path: 404", reply("404 Not Found", "", "{}")),
    };
    let key = request.key.as_deref().unwrap_or("no key");
    seen.log
        .push(format!("{:<14} {key:<36}  {did}", request.path));
    answer
}
