//! Sending over HTTP/1.1.
//!
//! Threads of their own run the network, so that a caller that waits for a disk never freezes
//! it: a frozen client uses connections that are closed already and blames the receiver. Each
//! destination has one, up to a number, for a receiver can keep a thread busy: an endless row of
//! interim answers is read by the library without a bound, and others' time would run out.
//!
//! # Guarantees
//!
//! 1. One send is one request at most: no redirect, no retry, no second connection.
//! 2. `NotSent` only where it is certain; see `phase`.
//! 3. No connection is used twice. What an earlier answer left behind is never taken for the
//!    next one's, and a connection closed in between is never mistaken for a lost answer.
//! 4. No secret is in what comes back.
//! 5. Dropping the transport waits for nothing. What was being sent is abandoned.
//!
//! A destination's secret and certificates are read once for the life of a transport, when its
//! first item goes out.

use std::collections::HashMap;
use std::error::Error;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use reqwest::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use secrecy::ExposeSecret as _;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::OnceCell;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{spawn_blocking, yield_now};

use super::body::{Marked, Marker, Progress};
use super::networks::Networks;
use super::phase::{self, Seen};
use super::redact::Redactor;
use super::request::{Assembled, Payload, assemble, needs_body};
use super::secret::{self, Credential};
use super::{Send as Attempt, Sent, Streamed, Transport};
use crate::config::{Destination, Tls, read_regular};
use crate::model::envelope::sha256_hex;
use crate::model::ids::DestName;
use crate::model::outcome::{Answer, Failure, Outcome, TransportClass};

/// At most so much of a response body is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Larger items are made into requests beside the network, not on its threads.
const LARGE_ITEM_BYTES: usize = 256 * 1024;

/// A helper thread outlives every tick.
const HELPER_IDLE_MAX: Duration = Duration::from_hours(24);

/// Sends over HTTP. Costs nothing before the first send.
#[derive(Debug)]
pub struct HttpTransport {
    networks: Networks<UnboundedSender<Begun>>,
    reports: mpsc::Sender<Sent>,
    sent: mpsc::Receiver<Sent>,
}

/// An attempt on its way to a network thread.
#[derive(Debug)]
struct Begun {
    attempt: Attempt,
    report: Report,
}

impl HttpTransport {
    /// A transport that has not started anything.
    #[must_use]
    pub fn new() -> Self {
        let (reports, sent) = mpsc::channel();
        Self {
            networks: Networks::default(),
            reports,
            sent,
        }
    }
}

impl Default for HttpTransport {
    fn default() -> Self {
        Self::new()
    }
}

impl Transport for HttpTransport {
    fn begin(&mut self, attempt: Attempt) {
        let report = Report {
            token: attempt.token,
            since: Instant::now(),
            to: Some(self.reports.clone()),
        };
        match self.networks.of(&attempt.destination.name, start) {
            Ok(begun) => {
                if let Err(back) = begun.send(Begun { attempt, report }) {
                    let why = refused("the network thread has ended");
                    back.0.report.tell(Outcome::NotSent(why));
                }
            }
            // Like a network that is down: a later tick may find more descriptors and threads.
            Err(why) => report.tell(Outcome::failed(
                TransportClass::ConnectUnreachable,
                format!("cannot start the network: {why}"),
            )),
        }
    }

    fn next(&mut self, limit: Duration) -> Option<Sent> {
        self.sent.recv_timeout(limit).ok()
    }
}

/// The duty to tell one attempt's end, whatever happens.
#[derive(Debug)]
struct Report {
    token: u64,
    since: Instant,
    to: Option<mpsc::Sender<Sent>>,
}

impl Report {
    fn tell(mut self, outcome: Outcome) {
        self.send(outcome);
    }

    fn send(&mut self, outcome: Outcome) {
        if let Some(to) = self.to.take() {
            let sent = Sent {
                token: self.token,
                outcome,
                ms: u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            };
            // Nobody listens any more once the transport is dropped.
            drop(to.send(sent));
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.send(Outcome::Interrupted);
    }
}

/// Starts a network thread. It ends when the returned sender is dropped, and is not waited for:
/// it may sit in a name lookup that nothing can interrupt.
fn start() -> io::Result<UnboundedSender<Begun>> {
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .thread_keep_alive(HELPER_IDLE_MAX)
        .build()?;
    // tokio panics where it has no helper thread and the system gives none. So one is started
    // now, after a look whether there is one to be had, and stays.
    thread::Builder::new().spawn(|| ())?;
    drop(runtime.spawn_blocking(|| ()));
    let (begun, queue) = unbounded_channel();
    thread::Builder::new()
        .name("network".to_owned())
        .spawn(move || run(runtime, queue))?;
    Ok(begun)
}

fn run(runtime: Runtime, mut queue: UnboundedReceiver<Begun>) {
    runtime.block_on(async {
        let mut prepared = Prepared::default();
        while let Some(Begun { attempt, report }) = queue.recv().await {
            let ready = prepared.of(&attempt.destination);
            tokio::spawn(async move { report.tell(outcome_of(attempt, &ready).await) });
        }
    });
    runtime.shutdown_background();
}

/// What sending to a destination takes.
#[derive(Debug)]
struct Ready {
    client: reqwest::Client,
    credential: Option<Credential>,
    redactor: Redactor,
}

/// A destination's client and secret, or why there is none.
type Slot = Arc<OnceCell<Result<Arc<Ready>, Failure>>>;

/// Every destination in use, prepared when its first item goes out.
#[derive(Default)]
struct Prepared(HashMap<(DestName, String), Slot>);

impl Prepared {
    fn of(&mut self, destination: &Destination) -> Slot {
        let name = (destination.name.clone(), destination.fingerprint.clone());
        Arc::clone(self.0.entry(name).or_default())
    }
}

async fn outcome_of(attempt: Attempt, slot: &Slot) -> Outcome {
    let prepare = || async {
        let destination = Arc::clone(&attempt.destination);
        // Reads files, and a proof of many roots takes milliseconds.
        spawn_blocking(move || Ready::of(&destination).map(Arc::new))
            .await
            .unwrap_or_else(|error| {
                Err(refused(format!("cannot prepare the destination: {error}")))
            })
    };
    match slot.get_or_init(prepare).await {
        Ok(ready) => ready.outcome_of(attempt).await,
        Err(why) => Outcome::NotSent(why.clone()),
    }
}

/// A failure that stays until somebody puts it right.
fn refused(why: impl Into<String>) -> Failure {
    Failure {
        class: TransportClass::LocalError,
        detail: why.into(),
    }
}

/// A failure of this side; of what kind, its cause tells.
fn failed(what: impl Display, cause: &(dyn Error + 'static)) -> Failure {
    Failure {
        class: phase::local_class(cause),
        detail: format!("{what}{}", phase::words(cause)),
    }
}

impl Ready {
    fn of(destination: &Destination) -> Result<Self, Failure> {
        let mut redactor = Redactor::default();
        let mut credential = None;
        if let Some(auth) = &destination.auth {
            let secret = secret::read(auth.secret()).map_err(|e| failed("", &e))?;
            redactor = Redactor::new(auth, secret.expose_secret());
            credential = Some(Credential::new(auth, secret.expose_secret()));
        }
        if let Some(password) = destination
            .proxy
            .as_ref()
            .and_then(|proxy| proxy.password())
        {
            redactor.add(password);
        }
        let client = client(destination)?;
        Ok(Self {
            client,
            credential,
            redactor,
        })
    }

    /// One attempt, from item to outcome.
    async fn outcome_of(self: &Arc<Self>, attempt: Attempt) -> Outcome {
        let destination = Arc::clone(&attempt.destination);
        let ready = Arc::clone(self);
        let made = if is_large(&attempt) {
            spawn_blocking(move || ready.request(&attempt))
                .await
                .unwrap_or_else(|error| Err(format!("cannot make the request: {error}")))
        } else {
            ready.request(&attempt)
        };
        let (request, marker) = match made {
            Ok(request) => request,
            Err(why) => return Outcome::NotSent(refused(self.redactor.text(why))),
        };
        match self.client.execute(request).await {
            Ok(response) => Outcome::Answered(self.answer(response).await),
            Err(error) => {
                let seen = Seen {
                    body: settled(marker).await,
                    tls: destination.base_url.scheme() == "https",
                    proxy: destination.proxy.is_some(),
                };
                self.clean(phase::outcome(error, seen))
            }
        }
    }

    fn request(&self, attempt: &Attempt) -> Result<(reqwest::Request, Option<Marker>), String> {
        let unread = |error: io::Error| format!("cannot read the body: {error}");
        let body = attempt.body.as_ref();
        let mut file = body.map(Streamed::take).transpose().map_err(unread)?;
        let mut whole = None;
        if let Some(file) = file.as_mut().filter(|_| needs_body(&attempt.destination)) {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).map_err(unread)?;
            if sha256_hex(&bytes) != attempt.envelope.request.body_sha256 {
                return Err("the body changed before it was sent".to_owned());
            }
            whole = Some(bytes);
        }
        assemble(
            &attempt.envelope,
            &attempt.destination,
            self.credential.as_ref(),
            whole,
        )
        .map_err(|error| phase::words(&error))
        .and_then(|assembled| {
            let sha256 = attempt.envelope.request.body_sha256.clone();
            build(&self.client, assembled, file.map(|file| (file, sha256)))
        })
    }

    /// Reads a response as far as rules may look.
    async fn answer(&self, mut response: reqwest::Response) -> Answer {
        let status = response.status().as_u16();
        let headers = response
            .headers()
            .iter()
            .map(|(name, value)| {
                let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
                (name.as_str().to_owned(), self.redactor.text(value))
            })
            .collect();
        let mut body = Vec::new();
        let cut = loop {
            match response.chunk().await {
                Ok(Some(piece)) => {
                    let room = ANSWER_BYTES_MAX - body.len();
                    body.extend_from_slice(&piece[..piece.len().min(room)]);
                    if piece.len() > room {
                        break true;
                    }
                }
                Ok(None) => break false,
                Err(_) => break true,
            }
        };
        Answer {
            status,
            headers,
            body: self.redactor.bytes(body, cut),
            cut,
        }
    }

    fn clean(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::NotSent(mut failure) => {
                failure.detail = self.redactor.text(failure.detail);
                Outcome::NotSent(failure)
            }
            Outcome::MaybeSent(mut failure) => {
                failure.detail = self.redactor.text(failure.detail);
                Outcome::MaybeSent(failure)
            }
            Outcome::Answered(_) | Outcome::Interrupted => outcome,
        }
    }
}

fn is_large(attempt: &Attempt) -> bool {
    use crate::model::envelope::Body;
    match &attempt.envelope.request.body {
        Some(Body::Text(text) | Body::Base64(text)) => text.len() > LARGE_ITEM_BYTES,
        Some(Body::File { .. }) => needs_body(&attempt.destination),
        None => false,
    }
}

/// A body's progress once nobody holds it any more. On this runtime it has come to rest when the
/// send returns; the loop is there should a library's habits change.
async fn settled(marker: Option<Marker>) -> Option<Progress> {
    let marker = marker?;
    for _ in 0..20 {
        if marker.progress() != Progress::Untouched {
            break;
        }
        yield_now().await;
    }
    Some(marker.progress())
}

/// Turns an assembled request into reqwest's. The marker is that of a body that is not empty.
fn build(
    client: &reqwest::Client,
    assembled: Assembled,
    file: Option<(Box<dyn Read + Send>, String)>,
) -> Result<(reqwest::Request, Option<Marker>), String> {
    let method = reqwest::Method::from_bytes(assembled.method.as_bytes())
        .map_err(|_| format!("method `{}` cannot be sent", assembled.method))?;
    let mut headers = HeaderMap::new();
    for (name, value) in &assembled.headers {
        let (name, value) = header(name, value)?;
        headers.append(name, value);
    }
    if let Some(credential) = &assembled.credential {
        let (name, mut value) = header(credential.name(), credential.value().expose_secret())?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    let body = match assembled.body {
        Payload::Bytes(bytes) => (!bytes.is_empty()).then(|| Marked::new(bytes)),
        Payload::Streamed(bytes) => {
            let (file, sha256) = file.ok_or("the body's file was not opened")?;
            Some(Marked::streamed(file, bytes, sha256))
        }
    };
    if body.is_none() && matches!(method.as_str(), "POST" | "PUT" | "PATCH") {
        // RFC 9110, 8.6; some servers answer 411 without it.
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    let mut request = client.request(method, assembled.url).headers(headers);
    let mut marker = None;
    if let Some((body, its_marker)) = body {
        request = request.body(reqwest::Body::wrap(body));
        marker = Some(its_marker);
    }
    let request = request
        .build()
        .map_err(|error| phase::words(&error.without_url()))?;
    Ok((request, marker))
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let refuse = || format!("header `{}` cannot be sent", name.escape_debug());
    let known = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refuse())?;
    let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| refuse())?;
    Ok((known, value))
}

/// A client that does nothing by itself. Each line takes a way of sending twice, or of not
/// knowing what was sent, out of it.
fn client(destination: &Destination) -> Result<reqwest::Client, Failure> {
    let connect = Duration::from_millis(destination.connect_timeout_ms.max(1));
    // Later than the connect timeout in every case, so that the one can be told from the other.
    let total = connect + Duration::from_millis(destination.response_timeout_ms.max(1));
    let mut builder = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .http1_only()
        .pool_max_idle_per_host(0)
        .connect_timeout(connect)
        .timeout(total);
    if let Some(proxy) = &destination.proxy {
        let proxy = reqwest::Proxy::all(proxy.clone())
            .map_err(|error| failed("proxy: ", &error.without_url()))?;
        builder = builder.proxy(proxy);
    }
    let is_https = |url: &url::Url| url.scheme() == "https";
    let speaks_tls =
        is_https(&destination.base_url) || destination.proxy.as_ref().is_some_and(is_https);
    builder = if speaks_tls {
        with_tls(builder, &destination.tls)?
    } else {
        // The system's roots take longer to read than a request to send.
        builder.tls_certs_only([])
    };
    builder.build().map_err(|error| {
        let mut why = failed("cannot set up TLS: ", &error.without_url());
        // The reader of the system's roots does not say why it found none.
        if let Err(error) = File::open("/") {
            why.class = phase::local_class(&error);
        }
        why
    })
}

fn with_tls(
    mut builder: reqwest::ClientBuilder,
    tls: &Tls,
) -> Result<reqwest::ClientBuilder, Failure> {
    if let Some(path) = &tls.ca_file {
        let roots = reqwest::Certificate::from_pem_bundle(&read(path)?)
            .map_err(|error| failed(format_args!("ca_file {}: ", path.display()), &error))?;
        if roots.is_empty() {
            let why = format!("ca_file {} holds no certificate", path.display());
            return Err(refused(why));
        }
        builder = builder.tls_certs_merge(roots);
    }
    if let Some(path) = &tls.client_cert {
        let mut pem = read(path)?;
        if let Some(key) = &tls.client_key {
            pem.push(b'\n');
            pem.extend(read(key)?);
        }
        let identity = reqwest::Identity::from_pem(&pem)
            .map_err(|error| failed(format_args!("client_cert {}: ", path.display()), &error))?;
        builder = builder.identity(identity);
    }
    Ok(builder)
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    read_regular(path)
        .map_err(|error| failed(format_args!("cannot read {}: ", path.display()), &error))
}
