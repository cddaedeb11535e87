//! What may have been acted on: sent again only where a repeat is harmless, else left to a
//! person, who has three answers.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod support;

#[path = "support/bench.rs"]
mod bench;
#[path = "support/desk.rs"]
mod desk;

use bench::KEYED;
use desk::{Desk, attempts, stands};
use support::{Receiver, Reply};

/// The commands that would guess.
const GUESSES: [&str; 3] = ["release", "cancel", "retry"];

/// Nothing but `resolve` moves the item, and everything says so.
#[track_caller]
fn only_resolve_moves(desk: &Desk, id: &str) {
    let before = desk.item(id);
    for guess in GUESSES {
        desk.run(&[guess, id]).code(1).says("resolve");
    }
    assert_eq!(desk.item(id), before, "a refusal changes nothing");
}

#[test]
fn without_a_key_it_is_sent_once_and_a_person_resolves_it() {
    let answers = [
        ("--confirmed", stands("confirmed", "operator"), 1),
        ("--failed", stands("failed", "operator"), 1),
        ("--resend", stands("confirmed", "accepted"), 2),
    ];
    for (answer, want, arrivals) in answers {
        let receiver = Receiver::start(vec![Reply::close().taking_effect()]);
        let desk = Desk::of(&receiver.url());
        let id = desk.post("plain");
        for _ in 0..4 {
            desk.tick();
        }
        assert_eq!(desk.stands(&id), stands("unknown!", "connection_lost"));
        assert_eq!(receiver.arrivals().len(), 1, "sent once, whatever ticks");
        assert_eq!(desk.json(&["status"])["parked"], 1);
        assert_eq!(desk.json(&["status"])["destinations"]["plain"]["parked"], 1);
        desk.run(&["status"]).ok().prints("1 parked");
        assert!(desk.place(&id).starts_with("unknown/plain/parked/"));
        only_resolve_moves(&desk, &id);
        assert_eq!(desk.tick()["attempts"], 0);

        desk.run(&["resolve", answer, &id, "--note", "looked"]).ok();
        desk.tick();
        desk.tick();
        assert_eq!(desk.stands(&id), want, "{answer}");
        let arrived = receiver.arrivals();
        assert_eq!(arrived.len(), arrivals, "{answer}");
        assert!(arrived.iter().all(|a| a.body == arrived[0].body));
        assert_eq!(desk.json(&["status"])["parked"], 0);
        let events = desk.item(&id);
        let said = events.iter().find(|e| e["event"] == "resolved").unwrap();
        assert_eq!(said["note"], "looked");
        assert!(said["by"].is_string(), "{said}");
        // It is settled: there is nothing to resolve any more.
        desk.run(&["resolve", answer, &id]).code(1);
    }
}

#[test]
fn a_refusal_of_the_repeat_says_nothing_of_the_first_attempt() {
    // Each after an attempt that took effect and whose answer was lost.
    let rows = [
        (503, stands("unknown", "overloaded")),
        (400, stands("unknown!", "invalid_request")),
        (401, stands("unknown!", "auth_invalid")),
        (404, stands("unknown!", "destination_not_found")),
        (413, stands("unknown!", "too_large")),
    ];
    for (status, want) in rows {
        let lost = Reply::close().taking_effect();
        let receiver = Receiver::start(vec![lost, Reply::status(status)]).deduplicating([]);
        // Later than any test takes, so that what is scheduled stays.
        let slow = format!("{KEYED}\nretry = {{ base = \"1h\" }}");
        let desk = Desk::new(&[("keyed", &receiver.url(), KEYED)]);
        let id = desk.post("keyed");
        desk.tick();
        desk.configure("", &[("keyed", &receiver.url(), &slow)]);
        receiver_says(&desk, &id, status);
        assert_eq!(desk.stands(&id), want, "{status}");
        let tried = attempts(&desk.show(&id));
        assert_eq!(tried.len(), 2, "{tried:#?}");
        assert_eq!(tried[1]["status"], status);
        assert_eq!(tried[1]["due"].is_string(), !want.parked, "{tried:#?}");
        only_resolve_moves(&desk, &id);
        assert_eq!(desk.tick()["attempts"], 0);
        let place = desk.place(&id);
        assert!(place.starts_with("unknown/keyed/"), "{place}");
        assert_eq!(place.contains("/parked/"), want.parked, "{place}");
        // A person may take what is scheduled out of the tick's hands.
        desk.run(&["hold", &id]).ok();
        assert_eq!(desk.stands(&id), stands("unknown!", "operator"));
        only_resolve_moves(&desk, &id);
    }
}

/// Ticks until the second attempt has been made.
#[track_caller]
fn receiver_says(desk: &Desk, id: &str, status: u16) {
    for _ in 0..50 {
        desk.tick();
        if attempts(&desk.show(id)).len() == 2 {
            return;
        }
    }
    panic!("{status}: no second attempt: {:#}", desk.show(id));
}

#[test]
fn when_the_receiver_may_have_forgotten_the_key_a_person_decides() {
    let timeout = "timeout = { connect = \"500ms\", response = \"500ms\" }";
    let key = |window: &str| {
        format!(
            "key = {{ kind = \"header\", name = \"Idempotency-Key\", window = \"{window}\" }}\n{timeout}"
        )
    };
    let rows = [
        // The repeat would come 10 s after the first claim, and may take one more.
        ("3s", "10s", stands("unknown!", "key_window_closed")),
        ("10s", "9900ms", stands("unknown!", "key_window_closed")),
        ("1h", "10s", stands("unknown", "connection_lost")),
    ];
    for (window, base, want) in rows {
        let receiver = Receiver::start(vec![Reply::close().taking_effect()]);
        let more = format!(
            "{}\nretry = {{ base = \"{base}\", max = \"10s\" }}",
            key(window)
        );
        let desk = Desk::new(&[("dest", &receiver.url(), &more)]);
        let id = desk.post("dest");
        desk.tick();
        assert_eq!(desk.stands(&id), want, "window {window}, wait {base}");
        only_resolve_moves(&desk, &id);
        assert_eq!(desk.tick()["attempts"], 0);
        assert_eq!(receiver.arrivals().len(), 1);
    }
}

#[test]
fn without_a_key_only_methods_that_are_idempotent_are_sent_again() {
    let resend = "on_unknown = \"resend\"";
    for (method, repeats) in [
        ("PUT", true),
        ("DELETE", true),
        ("POST", false),
        ("PATCH", false),
    ] {
        let receiver = Receiver::start(vec![Reply::close().taking_effect()]);
        let desk = Desk::new(&[("dest", &receiver.url(), resend)]);
        let id = desk.enqueue("dest", &["--method", method, "--data", "x"]);
        for _ in 0..3 {
            desk.tick();
        }
        let (want, arrivals) = if repeats {
            (stands("confirmed", "accepted"), 2)
        } else {
            (stands("unknown!", "connection_lost"), 1)
        };
        assert_eq!(desk.stands(&id), want, "{method}");
        assert_eq!(receiver.arrivals().len(), arrivals, "{method}");
    }
    // Without the owner's word not even they.
    let receiver = Receiver::start(vec![Reply::close().taking_effect()]);
    let desk = Desk::new(&[("dest", &receiver.url(), "")]);
    let id = desk.enqueue("dest", &["--method", "PUT", "--data", "x"]);
    desk.tick();
    desk.tick();
    assert_eq!(desk.stands(&id), stands("unknown!", "connection_lost"));
    assert_eq!(receiver.arrivals().len(), 1);
}

#[test]
fn one_parked_item_costs_the_others_nothing() {
    let receiver = Receiver::by_path([("/lost", vec![Reply::close().taking_effect()])]);
    let desk = Desk::of(&receiver.url());
    let lost = desk.enqueue("plain", &["--path", "/lost", "--data", "x"]);
    let others = desk.fill("plain", 20);
    desk.tick_to_end();
    assert_eq!(desk.stands(&lost), stands("unknown!", "connection_lost"));
    assert_eq!(
        desk.counts(),
        [("confirmed".to_owned(), 20), ("unknown".to_owned(), 1)].into()
    );
    assert_eq!(receiver.arrivals().len(), 21, "nothing is sent twice");
    assert!(others.iter().all(|id| desk.places(id).len() == 1));
}

#[test]
fn a_success_that_no_rule_recognises_may_be_one() {
    let receiver = Receiver::start(vec![]);
    let strict = "success = \"require\"";
    let desk = Desk::new(&[("dest", &receiver.url(), strict)]);
    let id = desk.post("dest");
    desk.tick();
    desk.tick();
    assert_eq!(desk.stands(&id), stands("unknown!", "not_accepted"));
    only_resolve_moves(&desk, &id);
    assert_eq!(receiver.arrivals().len(), 1);
}
