//! Every way in which a receiver can answer or fail to, met by the built binary: what becomes
//! of the item, how often it is sent, and under which key.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod support;

#[path = "support/bench.rs"]
mod bench;
#[path = "support/desk.rs"]
mod desk;

use bench::KEYED;
use desk::{Desk, attempts, stands};
use serde_json::Value;
use support::tls::Authority;
use support::{Receiver, Reply};

/// What a receiver does, and what must come of one item.
struct Case {
    name: &'static str,
    to: &'static str,
    script: Vec<Reply>,
    /// After the first tick: state (`!` is parked), reason, outcome.
    first: [&'static str; 3],
    /// When ticks have nothing more to do: state and reason.
    last: [&'static str; 2],
    arrivals: usize,
    effects: usize,
}

#[track_caller]
fn check(cases: Vec<Case>) {
    for case in cases {
        let name = case.name;
        let receiver = Receiver::start(case.script).deduplicating([]);
        let desk = Desk::of(&receiver.url());
        let id = desk.post(case.to);
        desk.tick();
        let [state, reason, outcome] = case.first;
        let tried = attempts(&desk.show(&id));
        assert_eq!(
            desk.stands(&id),
            stands(state, reason),
            "{name}: {tried:#?}"
        );
        assert_eq!(tried.len(), 1, "{name}: one tick, one attempt: {tried:#?}");
        assert_eq!(tried[0]["outcome"], outcome, "{name}");

        for _ in 0..3 {
            desk.tick();
        }
        let [state, reason] = case.last;
        assert_eq!(
            desk.stands(&id),
            stands(state, reason),
            "{name}, in the end"
        );
        let arrivals = receiver.arrivals();
        assert_eq!(arrivals.len(), case.arrivals, "{name}: {arrivals:#?}");
        let key = (case.to == "keyed").then_some(id.as_str());
        for arrival in &arrivals {
            assert_eq!(arrival.header("idempotency-key"), key, "{name}");
        }
        let whole = arrivals.iter().filter(|arrival| arrival.whole);
        let mut bodies: Vec<String> = whole.map(support::Arrival::text).collect();
        bodies.dedup();
        assert!(bodies.len() <= 1, "{name}: one item, one body: {bodies:?}");
        let acted = arrivals.iter().filter(|arrival| arrival.acted).count();
        assert_eq!(acted, case.effects, "{name}: effects");
        assert_eq!(desk.places(&id).len(), 1, "{name}");
    }
}

/// To, script, after the first tick, in the end, arrivals, effects.
type Row = (
    &'static str,
    Vec<Reply>,
    &'static str,
    &'static str,
    usize,
    usize,
);

#[track_caller]
fn check_answers(rows: Vec<Row>) {
    let case = |(to, script, first, last, arrivals, effects): Row| {
        let (state, reason) = first.split_once(' ').unwrap();
        let (end, why) = last.split_once(' ').unwrap();
        Case {
            name: first,
            to,
            script,
            first: [state, reason, "answered"],
            last: [end, why],
            arrivals,
            effects,
        }
    };
    check(rows.into_iter().map(case).collect());
}

#[test]
fn answers_that_say_what_was_done() {
    let (ok, no) = (Reply::ok, Reply::status);
    let good = "confirmed accepted";
    let bad = "failed invalid_request";
    let secret = "held auth_invalid";
    let busy = vec![no(503), no(503), no(503), ok()];
    check_answers(vec![
        ("plain", vec![ok()], good, good, 1, 1),
        ("keyed", vec![ok()], good, good, 1, 1),
        (
            "plain",
            vec![no(503), ok()],
            "pending overloaded",
            good,
            2,
            1,
        ),
        ("keyed", busy, "pending overloaded", good, 4, 1),
        ("plain", vec![no(400)], bad, bad, 1, 0),
        ("keyed", vec![no(401)], secret, secret, 1, 0),
        (
            "plain",
            vec![no(409)],
            "held conflict",
            "held conflict",
            1,
            0,
        ),
    ]);
}

#[test]
fn answers_that_leave_open_what_was_done() {
    let (ok, no) = (Reply::ok, Reply::status);
    let good = "confirmed accepted";
    let broken = "unknown! server_error";
    let moved = no(303).header("location", "/done").taking_effect();
    let away = "unknown! redirect_after_post";
    check_answers(vec![
        // With a key: an earlier attempt is still at work.
        (
            "keyed",
            vec![no(409), ok()],
            "unknown in_progress",
            good,
            2,
            1,
        ),
        ("plain", vec![no(500)], broken, broken, 1, 0),
        (
            "keyed",
            vec![no(500), ok()],
            "unknown server_error",
            good,
            2,
            1,
        ),
        ("plain", vec![moved], away, away, 1, 1),
    ]);
}

#[test]
fn lost_answers() {
    // 43 bytes of head, then a body of which four of ten bytes come.
    let cut_body = Reply::status(200).body("0123456789").cut_after(43 + 4);
    let ways = [
        (
            "the answer is lost after the effect",
            Reply::close().taking_effect(),
            "connection_lost",
            1,
        ),
        (
            "reset after reading, after the effect",
            Reply::reset().taking_effect(),
            "connection_lost",
            1,
        ),
        ("reset after reading", Reply::reset(), "connection_lost", 0),
        (
            "the head breaks off",
            Reply::ok().cut_after(12),
            "connection_lost",
            1,
        ),
        (
            "not HTTP",
            Reply::raw("SSH-2.0-OpenSSH_9.9\r\n\r\n").taking_effect(),
            "unexpected_response",
            1,
        ),
    ];
    let mut cases = Vec::new();
    for (name, reply, reason, effects) in ways {
        cases.push(Case {
            name,
            to: "plain",
            script: vec![reply.clone()],
            first: ["unknown!", reason, "maybe_sent"],
            last: ["unknown!", reason],
            arrivals: 1,
            effects,
        });
        let replayed = if effects == 1 {
            "duplicate_confirmed"
        } else {
            "accepted"
        };
        cases.push(Case {
            name,
            to: "keyed",
            script: vec![reply],
            first: ["unknown", reason, "maybe_sent"],
            last: ["confirmed", replayed],
            arrivals: 2,
            effects: 1,
        });
    }
    for to in ["plain", "keyed"] {
        cases.push(Case {
            name: "the body breaks off: the status counts",
            to,
            script: vec![cut_body.clone().taking_effect()],
            first: ["confirmed", "accepted", "answered"],
            last: ["confirmed", "accepted"],
            arrivals: 1,
            effects: 1,
        });
    }
    check(cases);
}

#[test]
fn no_answer_in_time() {
    let receiver = Receiver::start(vec![
        Reply::silent().taking_effect(),
        Reply::silent().taking_effect(),
    ])
    .deduplicating([]);
    let short = "timeout = { connect = \"1s\", response = \"200ms\" }";
    let desk = Desk::new(&[
        ("keyed", &receiver.url(), &format!("{KEYED}\n{short}")),
        ("plain", &receiver.url(), short),
    ]);
    let plain = desk.post("plain");
    let keyed = desk.post("keyed");
    desk.tick();
    assert_eq!(
        desk.stands(&plain),
        stands("unknown!", "timeout_after_send")
    );
    assert_eq!(desk.stands(&keyed), stands("unknown", "timeout_after_send"));
    desk.tick();
    desk.tick();
    assert_eq!(
        desk.stands(&plain),
        stands("unknown!", "timeout_after_send")
    );
    assert_eq!(
        desk.stands(&keyed),
        stands("confirmed", "duplicate_confirmed")
    );
    assert_eq!(receiver.arrivals().len(), 3);
    let effects = receiver.effects();
    assert!(
        effects.values().all(|effect| effect.times == 1),
        "{effects:?}"
    );
}

#[test]
fn a_reset_before_anything_is_read_goes_either_way_and_never_twice_without_a_key() {
    for to in ["plain", "keyed"] {
        let receiver = Receiver::start(vec![Reply::reset().at_accept()]);
        let desk = Desk::of(&receiver.url());
        let id = desk.post(to);
        desk.tick();
        // The system may tell of the reset before the request is written, or after.
        let first = desk.stands(&id);
        let outcome = attempts(&desk.show(&id))[0]["outcome"].clone();
        let not_sent = outcome == "not_sent";
        if not_sent {
            assert_eq!(first.state, "pending", "{first:?}");
            desk.end_suspension(to);
        } else {
            assert_eq!(outcome, "maybe_sent");
            assert_eq!(first.state, "unknown", "{first:?}");
            assert_eq!(first.parked, to == "plain", "{first:?}");
        }
        desk.tick();
        let sent_again = receiver.arrivals().len();
        if to == "plain" && !not_sent {
            assert_eq!(sent_again, 0, "what is parked is not sent");
        } else if to == "keyed" && !not_sent {
            assert_eq!(desk.stands(&id), stands("confirmed", "accepted"));
            assert_eq!(sent_again, 1);
        }
    }
}

#[test]
fn a_wait_in_seconds_or_until_a_date_is_kept() {
    let date = ("date", "Sun, 29 Nov 2026 12:00:00 GMT");
    let ways: [&[(&str, &str)]; 2] = [
        &[("retry-after", "3600")],
        &[date, ("retry-after", "Sun, 29 Nov 2026 13:00:00 GMT")],
    ];
    for headers in ways {
        let reply = headers
            .iter()
            .fold(Reply::status(429), |reply, (name, value)| {
                reply.header(name, value)
            });
        let receiver = Receiver::start(vec![reply]);
        let desk = Desk::of(&receiver.url());
        let id = desk.post("keyed");
        desk.tick();
        assert_eq!(desk.stands(&id), stands("pending", "rate_limited"));
        let attempt = attempts(&desk.show(&id)).pop().unwrap();
        let waited = ms(&attempt["due"]) - ms(&attempt["at"]);
        // A little more, so that not all come back in one instant; never less.
        assert!(waited >= 3_600_000, "{waited} ms for {headers:?}");
        assert_eq!(
            attempt["response"]["headers"]["retry-after"],
            headers.last().unwrap().1
        );
        // It concerns the destination: another item waits as well.
        let other = desk.post("keyed");
        let line = desk.tick();
        assert_eq!(line["attempts"], 0, "{line}");
        assert_eq!(desk.stands(&other).state, "pending");
        assert_eq!(receiver.arrivals().len(), 1);
    }
}

#[test]
fn a_redirect_is_not_followed() {
    let elsewhere = Receiver::start(vec![]);
    for status in [301, 307, 308] {
        let location = format!("{}/new", elsewhere.url());
        let receiver = Receiver::start(vec![Reply::status(status).header("location", &location)]);
        let desk = Desk::of(&receiver.url());
        let id = desk.post("keyed");
        desk.tick();
        desk.tick();
        assert_eq!(desk.stands(&id), stands("held", "moved"), "{status}");
        let attempt = attempts(&desk.show(&id)).pop().unwrap();
        assert_eq!(attempt["response"]["headers"]["location"], location);
        assert_eq!(receiver.arrivals().len(), 1);
    }
    assert_eq!(elsewhere.connections(), 0, "the second host sees nothing");
}

#[test]
fn what_cannot_be_reached_uses_up_no_attempts() {
    let plain_http = "allow_plain_http = true";
    let rows = [
        (support::closed_port(), "connect_failed"),
        ("http://nonexistent.invalid".to_owned(), "dns_failure"),
    ];
    for (url, reason) in rows {
        let desk = Desk::new(&[("dest", &url, plain_http)]);
        let id = desk.post("dest");
        desk.tick();
        assert_eq!(desk.stands(&id), stands("pending", reason));
        assert_eq!(desk.suspended("dest")["reason"], reason);
        assert_eq!(desk.list(&[])[0]["attempts"], 0);
        let tried = attempts(&desk.show(&id));
        assert_eq!(tried[0]["outcome"], "not_sent");
        assert_eq!(desk.tick()["attempts"], 0, "suspended");
        for _ in 0..30 {
            desk.end_suspension("dest");
            desk.tick();
        }
        // More tries than an item has attempts.
        assert!(attempts(&desk.show(&id)).len() > 20);
        assert_eq!(desk.stands(&id), stands("pending", reason));
        assert_eq!(desk.list(&[])[0]["attempts"], 0);
    }
}

#[test]
fn a_wrong_certificate_holds_and_nothing_is_sent() {
    let authority = Authority::new();
    let stranger = Authority::new();
    let rows = [
        ("of another name", authority.server("elsewhere.example")),
        ("expired", authority.expired_server("localhost")),
        ("of a stranger", stranger.server("localhost")),
    ];
    for (what, server) in rows {
        let receiver = Receiver::start_tls(server, vec![]);
        let url = format!("https://localhost:{}", receiver.address().port());
        let desk = Desk::new(&[]);
        let ca = desk.file("ca.pem", authority.pem());
        desk.configure(
            "",
            &[("dest", &url, &format!("tls = {{ ca_file = \"{ca}\" }}"))],
        );
        let id = desk.post("dest");
        desk.tick();
        assert_eq!(
            desk.stands(&id),
            stands("held", "tls_cert_invalid"),
            "{what}"
        );
        assert_eq!(
            attempts(&desk.show(&id))[0]["outcome"],
            "not_sent",
            "{what}"
        );
        assert!(receiver.arrivals().is_empty(), "{what}");
    }
    let receiver = Receiver::start_tls(authority.server("localhost"), vec![]);
    let url = format!("https://localhost:{}", receiver.address().port());
    let desk = Desk::new(&[]);
    let ca = desk.file("ca.pem", authority.pem());
    desk.configure(
        "",
        &[("dest", &url, &format!("tls = {{ ca_file = \"{ca}\" }}"))],
    );
    let id = desk.post("dest");
    desk.tick();
    assert_eq!(
        desk.stands(&id),
        stands("confirmed", "accepted"),
        "the right one"
    );
}

#[test]
fn what_happens_on_a_connection_between_two_items_is_nobodys_answer() {
    // One at a time, so that the second item comes when the first one's connection is idle.
    let single = format!("{KEYED}\nconcurrency = 1");
    let stray = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    let unasked = "HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n";
    let rows = [
        ("closed by the receiver", Reply::ok().then_close()),
        ("a stray success", Reply::ok().stray(stray)),
        ("a stray 408", Reply::ok().stray(unasked)),
        (
            "a stray success, then closed",
            Reply::ok().stray(stray).then_close(),
        ),
    ];
    for (what, first) in rows {
        for more in [single.as_str(), "concurrency = 1"] {
            let receiver = Receiver::start(vec![first.clone(), Reply::status(400)]);
            let desk = Desk::new(&[("dest", &receiver.url(), more)]);
            let ids = desk.fill("dest", 3);
            desk.tick();
            let got: Vec<_> = ids.iter().map(|id| desk.stands(id)).collect();
            let want = [
                stands("confirmed", "accepted"),
                stands("failed", "invalid_request"),
                stands("confirmed", "accepted"),
            ];
            assert_eq!(got, want, "{what}");
            assert_eq!(receiver.arrivals().len(), 3, "{what}");
        }
    }
}

/// A stored time in milliseconds.
fn ms(value: &Value) -> u64 {
    let text = value.as_str().unwrap();
    tickpost::model::time::UnixMs::parse(text).unwrap().0
}
