//! What the transport tells of every way in which a send can go, against real sockets.
//!
//! Two rules are checked in every case: "not sent" is never said of a request that arrived, and
//! one send arrives once at most. Where the operating system decides a race, both truthful
//! outcomes are accepted, and the case says so.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/make.rs"]
mod make;
mod support;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tickpost::config::{Auth, Destination, SecretRef};
use tickpost::model::envelope::{Body, Envelope};
use tickpost::model::key::KeyPlace;
use tickpost::model::outcome::{Answer, Outcome, OutcomeKind, TransportClass};
use tickpost::transport::{HttpTransport, Send, Sent, Transport};

use make::{destination, item};
use support::tls::Authority;
use support::{BlackHole, Receiver, Reply, closed_port};

use TransportClass as Class;

/// No case takes longer, unless it is broken.
const PATIENCE: Duration = Duration::from_mins(1);

/// One send through a transport of its own.
fn send(to: Destination, item: Envelope) -> Outcome {
    let mut transport = HttpTransport::new();
    send_by(&mut transport, &Arc::new(to), item)
}

fn send_by(transport: &mut HttpTransport, to: &Arc<Destination>, item: Envelope) -> Outcome {
    transport.begin(Send {
        token: 7,
        destination: Arc::clone(to),
        envelope: Arc::new(item),
        body: None,
    });
    let sent = transport.next(PATIENCE).unwrap();
    assert_eq!(sent.token, 7);
    sent.outcome
}

fn post(base: &str) -> Outcome {
    send(destination(base), item("POST", "/v1/x", b"{}"))
}

fn answer(outcome: Outcome) -> Answer {
    match outcome {
        Outcome::Answered(answer) => answer,
        Outcome::NotSent(_) | Outcome::MaybeSent(_) | Outcome::Interrupted => {
            panic!("not answered: {outcome:?}")
        }
    }
}

/// The class of a failure, after a look at its text.
fn class(outcome: &Outcome) -> Option<TransportClass> {
    match outcome {
        Outcome::NotSent(failure) | Outcome::MaybeSent(failure) => {
            assert!(!failure.detail.is_empty(), "{failure:?}");
            assert!(
                !failure.detail.contains("/v1/x"),
                "an address in {failure:?}"
            );
            assert!(!failure.detail.contains('\n'), "{failure:?}");
            let not_sent = outcome.kind() == OutcomeKind::NotSent;
            assert_eq!(failure.class.is_not_sent(), not_sent);
            Some(failure.class)
        }
        Outcome::Answered(_) | Outcome::Interrupted => None,
    }
}

fn assert_class(outcome: &Outcome, accepted: &[TransportClass], case: &str) {
    let class = class(outcome);
    let fits = class.is_some_and(|class| accepted.contains(&class));
    assert!(fits, "{case}: {outcome:?}, not one of {accepted:?}");
}

#[test]
fn a_whole_exchange() {
    let reply = Reply::status(201).header("X-Id", "a1").body("{\"id\":1}");
    let receiver = Receiver::start(vec![reply]);
    let mut to = destination(&format!("{}/api", receiver.url()));
    to.headers = vec![("X-App".into(), "shop".into())];
    let mut sent = item("POST", "/v1/x", b"{\"a\":1}");
    sent.request.query = vec![("q".into(), "a b".into())];
    sent.request.content_type = Some("application/json".into());
    let key = sent.request_id.to_string();

    let answer = answer(send(to, sent));

    assert_eq!(answer.status, 201);
    assert_eq!(answer.header("x-id"), Some("a1"));
    assert_eq!(answer.body, b"{\"id\":1}");
    assert!(!answer.cut);
    let [arrival] = receiver.arrivals().try_into().unwrap();
    assert!(arrival.whole);
    assert_eq!(arrival.method, "POST");
    assert_eq!(arrival.path, "/api/v1/x?q=a+b");
    assert_eq!(arrival.text(), "{\"a\":1}");
    let agent = format!("tickpost/{}", env!("CARGO_PKG_VERSION"));
    for (name, want) in [
        ("idempotency-key", key.as_str()),
        ("x-app", "shop"),
        ("content-type", "application/json"),
        ("content-length", "7"),
        ("user-agent", &agent),
    ] {
        assert_eq!(arrival.header(name), Some(want), "{name}");
    }
    for name in [
        "transfer-encoding",
        "accept-encoding",
        "cookie",
        "referer",
        "authorization",
    ] {
        assert_eq!(arrival.header(name), None, "{name}");
    }
}

#[test]
fn bodyless_requests_are_framed_as_such() {
    let receiver = Receiver::start(vec![]);
    for (method, want) in [
        ("GET", None),
        ("HEAD", None),
        ("DELETE", None),
        ("POST", Some("0")),
        ("PUT", Some("0")),
        ("PATCH", Some("0")),
    ] {
        let answer = answer(send(destination(&receiver.url()), item(method, "", b"")));
        assert_eq!(answer.status, 200, "{method}");
        let arrival = receiver.arrivals().pop().unwrap();
        assert_eq!(arrival.method, method);
        assert_eq!(arrival.header("content-length"), want, "{method}");
        assert_eq!(arrival.header("transfer-encoding"), None, "{method}");
    }
}

#[test]
fn no_connection() {
    assert_class(
        &post(&closed_port()),
        &[Class::ConnectRefused],
        "closed port",
    );

    // A resolver that cannot be reached may take all the time there is.
    let unknown = post("http://nonexistent.invalid");
    assert_class(
        &unknown,
        &[Class::DnsFailure, Class::ConnectTimeout],
        "unknown name",
    );

    let hole = BlackHole::open();
    let mut to = destination(&hole.url());
    to.connect_timeout_ms = 300;
    let outcome = send(to, item("POST", "/v1/x", b"{}"));
    assert_class(&outcome, &[Class::ConnectTimeout], "black hole");
}

#[test]
fn a_connection_and_no_answer() {
    let head = "HTTP/1.1 200 OK\r\ncontent-";
    let rows = vec![
        // A peer that closes at once races with our write. Whoever wins, nothing was read.
        (
            "closed at once",
            Reply::close().at_accept(),
            0,
            vec![
                Class::ClosedBeforeWrite,
                Class::ClosedNoResponse,
                Class::ResetAfterSend,
                Class::WriteInterrupted,
            ],
        ),
        (
            "reset at once",
            Reply::reset().at_accept(),
            0,
            vec![
                Class::ConnectUnreachable,
                Class::ClosedBeforeWrite,
                Class::WriteInterrupted,
                Class::ClosedNoResponse,
                Class::ResetAfterSend,
                Class::WriteInterrupted,
            ],
        ),
        (
            "read, then closed",
            Reply::close(),
            1,
            vec![Class::ClosedNoResponse],
        ),
        (
            "acted on, then closed",
            Reply::close().taking_effect(),
            1,
            vec![Class::ClosedNoResponse],
        ),
        (
            "read, then reset",
            Reply::reset(),
            1,
            vec![Class::ResetAfterSend],
        ),
        ("silent", Reply::silent(), 1, vec![Class::TimeoutAfterSend]),
        (
            "silent inside the head",
            Reply::raw(head).then_hold(),
            1,
            vec![Class::TimeoutAfterSend],
        ),
    ];
    assert_failures(rows);
}

#[test]
fn an_answer_that_is_none() {
    let head = "HTTP/1.1 200 OK\r\ncontent-";
    let many = "x: 1\r\n".repeat(150);
    let long = "x".repeat(600_000);
    let rows = vec![
        (
            "not HTTP",
            Reply::raw("220 mail.example ESMTP\r\n"),
            1,
            vec![Class::MalformedResponse],
        ),
        (
            // hyper tells an end inside the head and one before it with the same words.
            "cut inside the status line",
            Reply::raw("HTTP/1.1 20"),
            1,
            vec![Class::TruncatedHeaders, Class::ClosedNoResponse],
        ),
        (
            "cut inside the head",
            Reply::raw(head),
            1,
            vec![Class::TruncatedHeaders, Class::ClosedNoResponse],
        ),
        (
            "promised and closed",
            Reply::raw("HTTP/1.1 100 Continue\r\n\r\n"),
            1,
            vec![Class::ClosedNoResponse],
        ),
        (
            "150 headers",
            Reply::raw(format!("HTTP/1.1 200 OK\r\n{many}\r\n")),
            1,
            vec![Class::MalformedResponse],
        ),
        (
            "a head of 600 kB",
            Reply::ok().header("x", &long),
            1,
            vec![Class::MalformedResponse],
        ),
    ];
    assert_failures(rows);
}

/// Sends once for each row: case, reply, arrivals, and the classes that are true of it.
fn assert_failures(rows: Vec<(&str, Reply, usize, Vec<TransportClass>)>) {
    for (case, reply, arrivals, accepted) in rows {
        let receiver = Receiver::start(vec![reply]);
        let mut to = destination(&receiver.url());
        if accepted.contains(&Class::TimeoutAfterSend) {
            to.connect_timeout_ms = 2_000;
            to.response_timeout_ms = 100;
        }
        let sent = item("POST", "/v1/x", b"{}");
        let key = sent.request_id.to_string();
        let outcome = send(to, sent);
        assert_class(&outcome, &accepted, case);
        let arrived = receiver.arrivals();
        assert_eq!(arrived.len(), arrivals, "{case}");
        assert_eq!(receiver.connections(), 1, "{case}");
        for arrival in arrived {
            assert!(arrival.whole, "{case}");
            assert_eq!(
                arrival.header("idempotency-key"),
                Some(key.as_str()),
                "{case}"
            );
        }
    }
}

/// The trap of every body marker: nobody asks for an empty body, although the head goes out.
#[test]
fn a_request_without_a_body_that_was_read_is_never_called_not_sent() {
    for method in ["DELETE", "GET", "POST"] {
        let receiver = Receiver::start(vec![Reply::close().taking_effect(), Reply::reset()]);
        for accepted in [Class::ClosedNoResponse, Class::ResetAfterSend] {
            let outcome = send(destination(&receiver.url()), item(method, "", b""));
            assert_class(&outcome, &[accepted], method);
        }
        assert_eq!(receiver.arrivals().len(), 2, "{method}");
    }
}

#[test]
fn an_answer_with_half_a_body_is_an_answer() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";
    let short = Reply::status(503)
        .header("content-length", "100")
        .body("hello");
    let rows = [
        ("content length, closed", short.clone().then_close()),
        ("content length, reset", short.clone().then_reset()),
        ("content length, stalled", short.then_hold()),
        (
            "chunks, closed",
            Reply::raw(format!("{}7\r\nwor", chunked.replace("200", "503"))),
        ),
        (
            "chunks, no last one",
            Reply::raw(chunked.replace("200", "503")),
        ),
    ];
    for (case, reply) in rows {
        let receiver = Receiver::start(vec![reply]);
        let mut to = destination(&receiver.url());
        to.connect_timeout_ms = 2_000;
        to.response_timeout_ms = 100;
        let answer = answer(send(to, item("POST", "", b"{}")));
        assert_eq!(answer.status, 503, "{case}");
        assert!(answer.cut, "{case}");
        // A reset may throw away what had arrived before it.
        let body = String::from_utf8(answer.body).unwrap();
        assert!("hellowor".starts_with(&body), "{case}: {body}");
        assert_eq!(receiver.arrivals().len(), 1, "{case}");
    }
}

#[test]
fn no_more_of_a_body_than_the_limit_is_read() {
    for (len, want, cut) in [
        (65_535, 65_535, false),
        (65_536, 65_536, false),
        (65_537, 65_536, true),
        (5_000_000, 65_536, true),
    ] {
        let receiver = Receiver::start(vec![Reply::ok().body(vec![b'x'; len])]);
        let answer = answer(post(&receiver.url()));
        assert_eq!((answer.body.len(), answer.cut), (want, cut), "{len}");
    }
}

#[test]
fn interim_answers_are_skipped() {
    let bytes = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n\
                 HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let receiver = Receiver::start(vec![Reply::raw(bytes)]);
    let answer = answer(post(&receiver.url()));
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"ok"[..]));
}

#[test]
fn redirects_are_answers() {
    let elsewhere = Receiver::start(vec![]);
    for status in [301, 302, 303, 307, 308] {
        for location in [elsewhere.url(), closed_port()] {
            let reply = Reply::status(status).header("location", &location);
            let receiver = Receiver::start(vec![reply]);
            let answer = answer(post(&receiver.url()));
            assert_eq!(answer.status, status);
            assert_eq!(answer.header("location"), Some(location.as_str()));
            assert_eq!(receiver.arrivals().len(), 1);
        }
    }
    assert_eq!(elsewhere.connections(), 0);
}

#[test]
fn an_upload_that_sticks() {
    let large = vec![b'x'; 16 * 1024 * 1024];

    let receiver = Receiver::start(vec![Reply::silent().at_head()]);
    let mut to = destination(&receiver.url());
    to.connect_timeout_ms = 2_000;
    to.response_timeout_ms = 100;
    let outcome = send(to, item("POST", "/v1/x", &large));
    assert_class(&outcome, &[Class::WriteInterrupted], "never read");
    assert_eq!(receiver.arrivals().len(), 1);

    let receiver = Receiver::start(vec![Reply::reset().at_head()]);
    let outcome = send(destination(&receiver.url()), item("POST", "/v1/x", &large));
    assert_class(&outcome, &[Class::WriteInterrupted], "reset under way");
    assert_eq!(receiver.arrivals().len(), 1);

    // The receiver says no before it has read it all, and goes on reading.
    let receiver = Receiver::start(vec![Reply::status(413).at_head().then_close()]);
    let answer = answer(send(
        destination(&receiver.url()),
        item("POST", "/v1/x", &large),
    ));
    assert_eq!(answer.status, 413);
    assert_eq!(receiver.arrivals().len(), 1);
}

#[test]
fn connections_that_ended_in_between_harm_nobody() {
    for place in [KeyPlace::Header("Idempotency-Key".into()), KeyPlace::None] {
        for (case, first) in [
            ("kept open", Reply::ok()),
            ("closed", Reply::ok().then_close()),
            ("reset", Reply::ok().then_reset()),
            (
                "a stray answer",
                Reply::ok().stray("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nstray"),
            ),
            (
                "a stray 408",
                Reply::ok()
                    .stray("HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")
                    .then_close(),
            ),
        ] {
            let receiver = Receiver::start(vec![first, Reply::status(202).body("right")]);
            let mut to = destination(&receiver.url());
            to.key.place = place.clone();
            let to = Arc::new(to);
            let mut transport = HttpTransport::new();

            let one = answer(send_by(&mut transport, &to, item("POST", "/1", b"{}")));
            assert_eq!((one.status, one.body.len()), (200, 0), "{case}");
            receiver.wait_for_played(1);

            let two = answer(send_by(&mut transport, &to, item("POST", "/2", b"{}")));
            assert_eq!(
                (two.status, two.body.as_slice()),
                (202, &b"right"[..]),
                "{case}"
            );
            let paths: Vec<_> = receiver.arrivals().into_iter().map(|a| a.path).collect();
            assert_eq!(paths, ["/1", "/2"], "{case}");
            assert_eq!(receiver.connections(), 2, "{case}");
        }
    }
}

/// A destination of `receiver` that trusts `authority`; the directory holds its files.
fn trusting(receiver: &Receiver, authority: &Authority) -> (Destination, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let mut to = destination(&receiver.url());
    to.tls.ca_file = Some(file(&dir, "ca.pem", &authority.pem()));
    (to, dir)
}

fn file(dir: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::File::create(&path)
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    path
}

#[test]
fn certificates() {
    let ours = Authority::new();
    let other = Authority::new();
    let rows = [
        ("good", ours.server("127.0.0.1"), None),
        (
            "unknown issuer",
            other.server("127.0.0.1"),
            Some(Class::TlsCertInvalid),
        ),
        (
            "wrong name",
            ours.server("localhost"),
            Some(Class::TlsCertInvalid),
        ),
        (
            "expired",
            ours.expired_server("127.0.0.1"),
            Some(Class::TlsCertInvalid),
        ),
    ];
    for (case, server, want) in rows {
        let receiver = Receiver::start_tls(server, vec![]);
        let (to, _dir) = trusting(&receiver, &ours);
        let outcome = send(to, item("POST", "/v1/x", b"{}"));
        assert_eq!(class(&outcome), want, "{case}: {outcome:?}");
        let arrivals = receiver.arrivals();
        assert_eq!(arrivals.len(), usize::from(want.is_none()), "{case}");
    }
}

#[test]
fn handshakes_that_fail() {
    let ours = Authority::new();
    let rows = [
        (
            "plain HTTP",
            Reply::raw("HTTP/1.1 400 Bad Request\r\n\r\n").at_accept(),
            Class::TlsHandshakeFailed,
        ),
        (
            "closed",
            Reply::close().at_accept(),
            Class::TlsHandshakeFailed,
        ),
        (
            "reset",
            Reply::reset().at_accept(),
            Class::TlsHandshakeFailed,
        ),
        ("silent", Reply::silent().at_accept(), Class::ConnectTimeout),
    ];
    for (case, reply, want) in rows {
        let receiver = Receiver::start(vec![reply]);
        let (mut to, _dir) = trusting(&receiver, &ours);
        to.base_url = receiver.url().replace("http:", "https:").parse().unwrap();
        to.connect_timeout_ms = 1_000;
        let outcome = send(to, item("POST", "/v1/x", b"{}"));
        // A reset may come before connect() has returned.
        let race = case == "reset" && class(&outcome) == Some(Class::ConnectUnreachable);
        assert!(race || class(&outcome) == Some(want), "{case}: {outcome:?}");
        assert_eq!(receiver.arrivals().len(), 0, "{case}");
    }
}

#[test]
fn client_certificates() {
    let ours = Authority::new();
    let receiver = Receiver::start_tls(ours.asking_server("127.0.0.1"), vec![]);
    let (to, dir) = trusting(&receiver, &ours);

    // TLS 1.3 refuses it after the handshake, when the request may be under way: a race.
    let outcome = send(to.clone(), item("POST", "/v1/x", b"{}"));
    assert!(class(&outcome).is_some(), "{outcome:?}");
    assert_eq!(receiver.arrivals().len(), 0);

    let client = ours.client();
    let mut known = to;
    known.tls.client_cert = Some(file(&dir, "cert.pem", &client.certificate));
    known.tls.client_key = Some(file(&dir, "key.pem", &client.key));
    let answer = answer(send(known, item("POST", "/v1/x", b"{}")));
    assert_eq!(answer.status, 200);
}

#[test]
fn tls_files_that_cannot_be_used_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut to = destination("https://127.0.0.1:1");
    let junk = file(&dir, "junk.pem", "junk");
    for path in [junk, dir.path().join("missing.pem")] {
        to.tls.ca_file = Some(path.clone());
        let outcome = send(to.clone(), item("POST", "/v1/x", b"{}"));
        assert_class(&outcome, &[Class::LocalError], "ca_file");
        let text = format!("{outcome:?}");
        assert!(text.contains(path.to_str().unwrap()), "{text}");
    }
}

#[test]
fn proxies() {
    let mut to = destination("http://receiver.invalid");
    for base in ["http://receiver.invalid", "https://receiver.invalid"] {
        to.base_url = base.parse().unwrap();
        to.proxy = Some(closed_port().parse().unwrap());
        let outcome = send(to.clone(), item("POST", "/v1/x", b"{}"));
        assert_class(&outcome, &[Class::ProxyConnectFailed], base);
    }
    // The proxy gets a CONNECT, and not a byte of the request.
    for reply in [Reply::status(502), Reply::status(407), Reply::close()] {
        let proxy = Receiver::start(vec![reply]);
        to.proxy = Some(proxy.url().parse().unwrap());
        let outcome = send(to.clone(), item("POST", "/v1/x", b"{}"));
        assert_class(&outcome, &[Class::ProxyConnectFailed], "tunnel");
        let [arrival] = proxy.arrivals().try_into().unwrap();
        assert_eq!(arrival.method, "CONNECT");
        assert_eq!(arrival.header("idempotency-key"), None);
    }
    // Without TLS the proxy gets the request itself, and its answer is the answer.
    let proxy = Receiver::start(vec![Reply::status(502)]);
    to.base_url = "http://receiver.invalid".parse().unwrap();
    to.proxy = Some(proxy.url().parse().unwrap());
    let answer = answer(send(to, item("POST", "/v1/x", b"{}")));
    assert_eq!(answer.status, 502);
    assert_eq!(proxy.arrivals()[0].path, "http://receiver.invalid/v1/x");
}

/// The environment belongs to the process, so the case runs in one of its own.
#[test]
fn proxies_of_the_environment_are_ignored() {
    const CHILD: &str = "TICKPOST_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let receiver = Receiver::start(vec![]);
        assert_eq!(answer(post(&receiver.url())).status, 200);
        return;
    }
    let proxy = closed_port();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", "proxies_of_the_environment_are_ignored"])
        .env(CHILD, "1");
    for name in [
        "http_proxy",
        "HTTP_PROXY",
        "https_proxy",
        "all_proxy",
        "ALL_PROXY",
    ] {
        child.env(name, &proxy);
    }
    let output = child.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("1 passed"),
        "{output:?}"
    );
}

#[test]
fn secrets_go_out_and_never_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let secret = SecretRef::File(file(&dir, "secret", "s3cr3t-value\n"));
    let coded = "dTpzM2NyM3QtdmFsdWU=";
    let rows = [
        (
            Auth::Bearer(secret.clone()),
            "authorization",
            "Bearer s3cr3t-value".to_owned(),
        ),
        (
            Auth::Basic {
                user: "u".into(),
                password: secret.clone(),
            },
            "authorization",
            format!("Basic {coded}"),
        ),
        (
            Auth::Header {
                name: "X-Token".into(),
                prefix: "v1 ".into(),
                value: secret,
            },
            "x-token",
            "v1 s3cr3t-value".to_owned(),
        ),
    ];
    for (auth, name, value) in rows {
        let echo = Reply::status(400)
            .header("x-echo", &value)
            .body(format!("you sent {value}"));
        let receiver = Receiver::start(vec![echo]);
        let mut to = destination(&receiver.url());
        to.auth = Some(auth);
        let outcome = send(to, item("POST", "/v1/x", b"{}"));
        assert_eq!(receiver.arrivals()[0].header(name), Some(value.as_str()));
        let text = format!("{outcome:?}");
        assert!(!text.contains("s3cr3t") && !text.contains(coded), "{text}");
        let answer = answer(outcome);
        assert!(answer.header("x-echo").unwrap().ends_with("[secret]"));
        assert!(answer.body.ends_with(b"[secret]"));
    }
}

/// The limit belongs to the process, so the case runs in one of its own.
#[test]
fn a_shortage_of_descriptors_is_no_fault_of_an_item() {
    const URL: &str = "TICKPOST_TEST_URL";
    const SECRET: &str = "TICKPOST_TEST_SECRET";
    if let Ok(url) = std::env::var(URL) {
        let mut to = destination(&url);
        to.auth = Some(Auth::Bearer(SecretRef::File(
            std::env::var(SECRET).unwrap().into(),
        )));
        let mut taken = Vec::new();
        while let Ok(file) = std::fs::File::open("/") {
            taken.push(file);
        }
        // From not one descriptor left to more than enough.
        loop {
            let outcome = send(to.clone(), item("POST", "/v1/x", b"{}"));
            if outcome.kind() == OutcomeKind::Answered {
                return;
            }
            assert_class(&outcome, &[Class::ConnectUnreachable], "a shortage");
            taken.pop().unwrap();
        }
    }
    let receiver = Receiver::start(vec![]);
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 40 && exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "a_shortage_of_descriptors_is_no_fault_of_an_item",
        ])
        .env(URL, receiver.url())
        .env(SECRET, file(&dir, "secret", "s3cr3t-value"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("1 passed"),
        "{output:?}"
    );
    assert_eq!(receiver.arrivals().len(), 1);
}

#[test]
fn no_part_of_a_secret_is_kept_where_a_body_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let secret = SecretRef::File(file(&dir, "secret", "s3cr3t-value"));
    let filler = "x".repeat(64 * 1024 - 10);
    let echo = Reply::status(400).body(format!("{filler}s3cr3t-value"));
    let receiver = Receiver::start(vec![echo]);
    let mut to = destination(&receiver.url());
    to.auth = Some(Auth::Bearer(secret));
    let answer = answer(send(to, item("POST", "/v1/x", b"{}")));
    assert!(answer.cut);
    assert!(answer.body.ends_with(b"x[secret]"));
}

#[test]
fn what_cannot_be_made_is_not_sent() {
    let receiver = Receiver::start(vec![]);
    let dir = tempfile::tempdir().unwrap();
    let with_secret = |secret| {
        let mut to = destination(&receiver.url());
        to.auth = Some(Auth::Bearer(secret));
        to
    };
    let plain = || item("POST", "/v1/x", b"{}");
    let mut own_key = plain();
    own_key.request.headers = vec![("idempotency-key".into(), "mine".into())];
    let mut damaged = plain();
    damaged.request.body = Some(Body::Text("other".into()));
    let mut json = destination(&receiver.url());
    json.key.place = KeyPlace::JsonBody("/a/key".into());
    let empty = file(&dir, "empty", "\n");
    let rows = [
        (destination(&receiver.url()), own_key, "idempotency-key"),
        (destination(&receiver.url()), damaged, "SHA-256"),
        (
            destination(&receiver.url()),
            item("POST", "/../x", b""),
            "..",
        ),
        (json, plain(), "`a` is missing"),
        (
            with_secret(SecretRef::File("/nonexistent/s".into())),
            plain(),
            "/nonexistent/s",
        ),
        (with_secret(SecretRef::File(empty)), plain(), "is empty"),
        (
            with_secret(SecretRef::Env("TICKPOST_NO_SUCH".into())),
            plain(),
            "TICKPOST_NO_SUCH",
        ),
    ];
    for (to, item, want) in rows {
        let outcome = send(to, item);
        let Outcome::NotSent(failure) = &outcome else {
            panic!("{want}: {outcome:?}");
        };
        assert_eq!(failure.class, Class::LocalError, "{want}");
        assert!(failure.detail.contains(want), "{want}: {failure:?}");
    }
    assert_eq!(receiver.connections(), 0);
}

#[test]
fn a_key_in_the_body_goes_out_with_the_right_length() {
    let receiver = Receiver::start(vec![]);
    let mut to = destination(&receiver.url());
    to.key.place = KeyPlace::JsonBody("/key".into());
    let large = format!("{{\"text\":\"{}\"}}", "x".repeat(300_000));
    for body in ["{}", &large] {
        let sent = item("POST", "", body.as_bytes());
        let key = sent.request_id.to_string();
        assert_eq!(answer(send(to.clone(), sent)).status, 200);
        let arrival = receiver.arrivals().pop().unwrap();
        assert!(arrival.whole);
        let json: serde_json::Value = serde_json::from_slice(&arrival.body).unwrap();
        assert_eq!(json["key"], key.as_str());
    }
}

#[test]
fn sends_run_side_by_side() {
    let receiver = Receiver::by_path([("/slow", vec![Reply::silent()])]);
    let mut to = destination(&receiver.url());
    // The silent one must still be waiting when the others are done, and then not for long.
    to.connect_timeout_ms = 2_000;
    to.response_timeout_ms = 2_000;
    let to = Arc::new(to);
    let mut transport = HttpTransport::new();
    assert!(transport.next(Duration::ZERO).is_none());
    for token in 0..50 {
        let path = if token == 0 { "/slow" } else { "/fast" };
        transport.begin(Send {
            token,
            destination: Arc::clone(&to),
            envelope: Arc::new(item("POST", path, b"{}")),
            body: None,
        });
    }
    let ends: Vec<Sent> = (0..50).map(|_| transport.next(PATIENCE).unwrap()).collect();
    let tokens: BTreeSet<u64> = ends.iter().map(|sent| sent.token).collect();
    assert_eq!(tokens.len(), 50);
    let (last, others) = ends.split_last().unwrap();
    assert_eq!(last.token, 0);
    assert!(last.ms >= 4_000, "{last:?}");
    assert_class(&last.outcome, &[Class::TimeoutAfterSend], "silent");
    for sent in others {
        assert_eq!(answer(sent.outcome.clone()).status, 200);
    }
    assert_eq!(receiver.arrivals().len(), 50);
    let effects = receiver.effects();
    assert_eq!(effects.len(), 49);
    assert!(effects.values().all(|effect| effect.times == 1));
}

#[test]
fn a_receiver_that_floods_takes_no_time_from_another() {
    const FLOODS: u64 = 3;
    const GOOD: u64 = 40;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (flowing, underway) = mpsc::channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let flowing = flowing.clone();
            thread::spawn(move || {
                let interim = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(4096);
                // An answer ahead of its request would be refused at once.
                assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
                stream.write_all(interim.as_bytes()).unwrap();
                flowing.send(()).unwrap();
                while stream.write_all(interim.as_bytes()).is_ok() {}
            });
        }
    });
    let receiver = Receiver::start(vec![]);
    let mut transport = HttpTransport::new();
    let mut begin = |token, to: &Destination| {
        transport.begin(Send {
            token,
            destination: Arc::new(to.clone()),
            envelope: Arc::new(item("POST", "/v1/x", b"{}")),
            body: None,
        });
    };
    let mut flood = destination(&url);
    flood.name = "flood".parse().unwrap();
    for token in 0..FLOODS {
        begin(token, &flood);
    }
    for _ in 0..FLOODS {
        underway.recv_timeout(PATIENCE).unwrap();
    }
    let good = destination(&receiver.url());
    for token in FLOODS..FLOODS + GOOD {
        begin(token, &good);
    }
    for _ in 0..GOOD {
        let sent = transport.next(PATIENCE).unwrap();
        assert!(sent.token >= FLOODS, "{sent:?}");
        assert_eq!(answer(sent.outcome).status, 200);
    }
}

#[test]
fn dropping_waits_for_nothing() {
    let receiver = Receiver::start(vec![Reply::silent()]);
    let hole = BlackHole::open();
    let mut transport = HttpTransport::new();
    for base in [
        receiver.url(),
        hole.url(),
        "http://nonexistent.invalid".to_owned(),
    ] {
        transport.begin(Send {
            token: 1,
            destination: Arc::new(destination(&base)),
            envelope: Arc::new(item("POST", "/v1/x", b"{}")),
            body: None,
        });
    }
    receiver.wait_for(1);
    let before = Instant::now();
    drop(transport);
    assert!(before.elapsed() < Duration::from_secs(1));
}

/// Peers that close and reset at every moment: "not sent" is never said of what arrived, nothing
/// arrives twice, and "answered" only of what was answered.
#[test]
fn no_outcome_contradicts_the_receiver() {
    let wheel = [
        Reply::reset().at_accept(),
        Reply::ok(),
        Reply::close().at_accept(),
        Reply::reset().at_head(),
        Reply::close(),
        Reply::reset(),
        Reply::status(503).at_head().then_reset(),
        Reply::ok().then_reset(),
        Reply::ok().stray("HTTP/1.1 200 OK\r\n\r\n").then_close(),
    ];
    let script = wheel.iter().cycle().take(540).cloned().collect();
    let receiver = Receiver::start(script);
    let to = Arc::new(destination(&receiver.url()));
    let mut transport = HttpTransport::new();
    let mut told = Vec::new();
    for round in 0..90 {
        let items: Vec<_> = (0..6)
            .map(|n| {
                let body = vec![b'x'; [0, 1, 100_000][(round + n) % 3]];
                Arc::new(item("PUT", "/v1/x", &body))
            })
            .collect();
        for (token, envelope) in (0..).zip(&items) {
            transport.begin(Send {
                token,
                destination: Arc::clone(&to),
                envelope: Arc::clone(envelope),
                body: None,
            });
        }
        for _ in 0..6 {
            let sent = transport.next(PATIENCE).unwrap();
            let item = &items[usize::try_from(sent.token).unwrap()];
            told.push((item.request_id.to_string(), sent.outcome));
        }
    }
    receiver.wait_for_ended(told.len());
    assert_eq!(receiver.connections(), told.len());
    let arrivals = receiver.arrivals();
    for (key, outcome) in told {
        let arrived: Vec<_> = arrivals
            .iter()
            .filter(|arrival| arrival.header("idempotency-key") == Some(key.as_str()))
            .collect();
        assert!(arrived.len() <= 1, "{key} arrived twice");
        match outcome.kind() {
            OutcomeKind::NotSent => assert!(arrived.is_empty(), "{outcome:?}: {arrived:?}"),
            OutcomeKind::Answered => assert_eq!(arrived.len(), 1, "{outcome:?}"),
            OutcomeKind::MaybeSent => {}
            OutcomeKind::Interrupted => panic!("{outcome:?}"),
        }
    }
}
