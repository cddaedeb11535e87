//! Where an item lies after each kind of answer, and what ticks remember of a destination.
//!
//! CONTRACT 3: the directory is the state.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/bench.rs"]
mod bench;
mod support;

use bench::{Bench, IMPATIENT, KEYED, assert_has_fields, assert_time, day_of, minute_of};
use serde_json::Value;
use support::{Receiver, Reply, closed_port};

/// A spool, an item, and the one tick that sent it.
struct Sent {
    bench: Bench,
    id: String,
    receiver: Receiver,
}

fn sent(reply: Reply, more: &str) -> Sent {
    let receiver = Receiver::start(vec![reply]);
    let bench = Bench::with(&[("shop", &receiver.url(), more)]);
    let id = bench.enqueue("shop", &["--data", "{}"]);
    bench.run(&["tick"]).ok();
    Sent {
        bench,
        id,
        receiver,
    }
}

impl Sent {
    fn last(&self) -> Value {
        self.bench.last_event(&self.id)
    }

    #[track_caller]
    fn lies_in(&self, dir: &str) {
        let place = self.bench.place(&self.id);
        assert_eq!(
            place,
            format!("{dir}/{}.jsonl", self.id),
            "{:#}",
            self.last()
        );
    }
}

#[test]
fn a_success_is_confirmed_under_its_day() {
    let item = sent(Reply::ok().body("{\"id\":\"ch_1\"}"), "");
    let last = item.last();
    item.lies_in(&format!("confirmed/shop/{}", day_of(&last["at"])));
    assert_has_fields(
        &last,
        "event n at ms outcome status reason rule state response",
    );
    assert_eq!(last["event"], "attempt");
    assert_eq!(last["n"], 1);
    assert_eq!(last["outcome"], "answered");
    assert_eq!(last["status"], 200);
    assert_eq!(last["reason"], "accepted");
    assert_eq!(last["rule"], "default/2xx");
    assert_eq!(last["state"], "confirmed");
    assert_eq!(last["response"]["excerpt"], "{\"id\":\"ch_1\"}");
    assert_eq!(last["response"]["bytes"], 13);
    assert_time(&last["at"]);
}

#[test]
fn a_refusal_is_failed_under_its_day() {
    let item = sent(Reply::status(422).body("no such card"), "");
    let last = item.last();
    item.lies_in(&format!("failed/shop/{}", day_of(&last["at"])));
    assert_eq!(last["state"], "failed");
    assert_eq!(last["status"], 422);
    assert_eq!(last["response"]["excerpt"], "no such card");
}

#[test]
fn a_wait_of_minutes_is_pending_under_the_minute_it_is_due() {
    let item = sent(Reply::status(503), "");
    let last = item.last();
    assert_time(&last["due"]);
    item.lies_in(&format!("pending/shop/{}", minute_of(&last["due"])));
    assert_eq!(last["state"], "pending");
    // The file's time is the due time as a hint.
    let (s, ns) = item.bench.tree()[&item.bench.place(&item.id)].mtime;
    let due = last["due"].as_str().unwrap();
    let due = chrono::DateTime::parse_from_rfc3339(due)
        .unwrap()
        .timestamp_millis();
    assert_eq!(s * 1000 + ns / 1_000_000, due);
}

#[test]
fn a_wait_beyond_two_hours_is_pending_under_the_day_it_is_due() {
    let item = sent(Reply::status(429).header("retry-after", "18000"), "");
    let last = item.last();
    item.lies_in(&format!("pending/shop/{}", day_of(&last["due"])));
    assert_eq!(last["response"]["headers"]["retry-after"], "18000");
    let (at, due) = (&last["at"], &last["due"]);
    let ms = |time: &Value| {
        chrono::DateTime::parse_from_rfc3339(time.as_str().unwrap())
            .unwrap()
            .timestamp_millis()
    };
    assert!(
        ms(due) - ms(at) >= 18_000_000,
        "what was asked for is a floor: {last:#}"
    );
}

#[test]
fn a_wait_beyond_the_cap_is_held_under_the_minute_it_ends() {
    let more = "retry = { max_wait = \"1h\" }";
    let item = sent(Reply::status(429).header("retry-after", "18000"), more);
    let last = item.last();
    assert_eq!(last["state"], "held");
    item.lies_in(&format!("held/shop/{}", minute_of(&last["due"])));
}

#[test]
fn a_refused_credential_holds_the_item_and_suspends_the_destination() {
    let item = sent(Reply::status(401), "");
    item.lies_in("held/shop");
    let last = item.last();
    assert_eq!(last["reason"], "auth_invalid");
    assert!(last.get("due").is_none(), "{last:#}");
    let memory = item.bench.read_json("destinations/shop.json");
    assert_eq!(memory["suspended"]["reason"], "auth_invalid");
    assert_time(&memory["suspended"]["until"]);
    assert_eq!(memory["last_status"], 401);
    // The next item is not sent to a destination that is suspended.
    let next = item.bench.enqueue("shop", &["--data", "{}"]);
    item.bench.run(&["tick"]).ok();
    assert_eq!(item.receiver.arrivals().len(), 1);
    assert!(item.bench.place(&next).starts_with("pending/shop/"));
    assert_eq!(
        item.bench.item(&next).len(),
        2,
        "it costs the others no attempt"
    );
}

#[test]
fn a_lost_answer_with_a_key_is_unknown_under_the_minute_of_the_repeat() {
    for (reply, reason) in [
        (Reply::silent(), "timeout_after_send"),
        (Reply::reset(), "connection_lost"),
        (Reply::close(), "connection_lost"),
        (Reply::raw("garbage\r\n\r\n"), "unexpected_response"),
    ] {
        // Only silence needs to end soon: on a slow machine an answer may take its time.
        let patience = if reason == "timeout_after_send" {
            IMPATIENT
        } else {
            ""
        };
        let item = sent(reply, &format!("{KEYED}\n{patience}"));
        let last = item.last();
        assert_eq!(last["reason"], reason, "{last:#}");
        assert_eq!(last["outcome"], "maybe_sent");
        assert_eq!(last["state"], "unknown");
        item.lies_in(&format!("unknown/shop/{}", minute_of(&last["due"])));
    }
}

#[test]
fn a_lost_answer_without_a_key_is_parked() {
    let item = sent(Reply::reset(), "");
    item.lies_in("unknown/shop/parked");
    let last = item.last();
    assert!(last.get("due").is_none(), "{last:#}");
    item.bench.run(&["tick"]).ok();
    assert_eq!(item.receiver.arrivals().len(), 1, "no blind repeat");
}

#[test]
fn a_lost_answer_to_an_idempotent_method_is_resent_where_the_owner_says_so() {
    let receiver = Receiver::start(vec![Reply::reset(), Reply::reset()]);
    let bench = Bench::with(&[("shop", &receiver.url(), "on_unknown = \"resend\"")]);
    let put = bench.enqueue("shop", &["--data", "x", "--method", "PUT"]);
    bench.run(&["tick"]).ok();
    let post = bench.enqueue("shop", &["--data", "x"]);
    bench.run(&["tick"]).ok();
    assert!(bench.place(&put).starts_with("unknown/shop/20"));
    assert!(bench.place(&post).starts_with("unknown/shop/parked/"));
}

#[test]
fn while_it_is_sent_it_is_unknown_under_its_attempt() {
    let receiver = Receiver::start(vec![Reply::silent()]);
    let bench = Bench::with(&[("shop", &receiver.url(), KEYED)]);
    let id = bench.enqueue("shop", &["--data", "x"]);
    let running = bench.call(&["tick"]).start();
    receiver.wait_for(1);
    assert_eq!(bench.place(&id), format!("unknown/shop/{id}.1.jsonl"));
    assert_eq!(
        bench.item(&id).len(),
        2,
        "the claim writes nothing into the item"
    );
    drop(running);
}

#[test]
fn what_is_not_sent_stays_pending_and_uses_up_no_attempt() {
    let bench = Bench::with(&[("shop", &closed_port(), "")]);
    let id = bench.enqueue("shop", &["--data", "x"]);
    bench.run(&["tick"]).ok();
    let last = bench.last_event(&id);
    assert_eq!(last["outcome"], "not_sent");
    assert_eq!(last["reason"], "connect_failed");
    assert!(
        last.get("status").is_none() && last.get("response").is_none(),
        "{last:#}"
    );
    assert!(bench.place(&id).starts_with("pending/shop/"));
    assert_eq!(bench.list(&[])[0]["attempts"], 0);
    let memory = bench.read_json("destinations/shop.json");
    assert_eq!(memory["suspended"]["reason"], "connect_failed");
}

#[test]
fn a_fresh_item_that_is_not_due_is_sorted_by_a_tick() {
    let receiver = Receiver::start(vec![]);
    let bench = Bench::with(&[("shop", &receiver.url(), "")]);
    let soon = bench.enqueue("shop", &["--data", "x", "--not-before", "+30m"]);
    let later = bench.enqueue("shop", &["--data", "x", "--not-before", "+3d"]);
    for id in [&soon, &later] {
        assert_eq!(bench.place(id), format!("pending/shop/{id}.jsonl"));
    }
    bench.run(&["tick"]).ok();
    let due = |id: &str| bench.item(id).remove(0)["not_before"].clone();
    let minute = minute_of(&due(&soon));
    assert_eq!(
        bench.place(&soon),
        format!("pending/shop/{minute}/{soon}.jsonl")
    );
    let day = day_of(&due(&later));
    assert_eq!(
        bench.place(&later),
        format!("pending/shop/{day}/{later}.jsonl")
    );
    assert_eq!(receiver.arrivals().len(), 0);
}

#[test]
fn a_day_that_comes_near_is_sorted_into_minutes_and_goes() {
    let receiver = Receiver::start(vec![]);
    let bench = Bench::with(&[("shop", &receiver.url(), "")]);
    let id = bench.enqueue("shop", &["--data", "x", "--not-before", "+30m"]);
    let due = bench.item(&id).remove(0)["not_before"].clone();
    // As if it had been filed days ago.
    let day = bench.spool().join("pending/shop").join(day_of(&due));
    std::fs::create_dir(&day).unwrap();
    let name = format!("{id}.jsonl");
    std::fs::rename(
        bench.spool().join("pending/shop").join(&name),
        day.join(&name),
    )
    .unwrap();
    bench.run(&["tick"]).ok();
    assert_eq!(
        bench.place(&id),
        format!("pending/shop/{}/{name}", minute_of(&due))
    );
    assert!(!day.exists());
}

#[test]
fn an_item_past_its_end_is_failed_as_expired_and_never_sent() {
    let receiver = Receiver::start(vec![]);
    let bench = Bench::with(&[("shop", &receiver.url(), "")]);
    let id = bench.enqueue("shop", &["--data", "x", "--not-after", "+1ms"]);
    bench.run(&["tick"]).ok();
    let last = bench.last_event(&id);
    assert_eq!(last["event"], "expired");
    assert_eq!(last["reason"], "expired");
    let day = day_of(&last["at"]);
    assert_eq!(bench.place(&id), format!("failed/shop/{day}/{id}.jsonl"));
    assert_eq!(receiver.arrivals().len(), 0);
}

#[test]
fn out_of_attempts_a_pending_item_fails_as_exhausted() {
    let item = sent(Reply::status(500), "retry = { attempts = 1 }");
    let last = item.last();
    let state = last["state"].as_str().unwrap();
    // A 500 may have been acted on; then it is parked, never failed.
    if state == "unknown" {
        item.lies_in("unknown/shop/parked");
    } else {
        assert_eq!(last["reason"], "exhausted");
        item.lies_in(&format!("failed/shop/{}", day_of(&last["at"])));
    }
    let item = sent(Reply::status(503), "retry = { attempts = 1 }");
    let last = item.last();
    assert_eq!(last["reason"], "exhausted", "{last:#}");
    assert_eq!(last["state"], "failed");
}

#[test]
fn out_of_attempts_a_maybe_acted_item_is_parked_as_exhausted() {
    let item = sent(
        Reply::reset(),
        &format!("{KEYED}\nretry = {{ attempts = 1 }}"),
    );
    assert_eq!(item.last()["reason"], "exhausted");
    item.lies_in("unknown/shop/parked");
}

#[test]
fn a_verdict_after_a_lost_answer_stays_unknown() {
    let receiver = Receiver::start(vec![Reply::reset(), Reply::status(422)]);
    let more = format!("{KEYED}\nretry = {{ base = \"1ms\", max = \"1ms\" }}");
    let bench = Bench::with(&[("shop", &receiver.url(), &more)]);
    let id = bench.enqueue("shop", &["--data", "x"]);
    // A repeat that is due a millisecond later may fall into the same tick.
    let twice = (0..100).any(|_| {
        bench.tick();
        receiver.arrivals().len() == 2
    });
    assert!(twice, "it is due and never sent");
    let last = bench.last_event(&id);
    assert_eq!(last["status"], 422);
    assert_eq!(last["state"], "unknown", "only a person can tell: {last:#}");
    assert_eq!(bench.place(&id), format!("unknown/shop/parked/{id}.jsonl"));
    let keys: Vec<Vec<u8>> = receiver
        .arrivals()
        .into_iter()
        .map(|arrival| arrival.body)
        .collect();
    assert_eq!(keys, [b"x".to_vec(), b"x".to_vec()]);
}

#[test]
fn a_notice_is_an_item_and_tells_of_the_end() {
    let receiver = Receiver::by_path([("/fail", vec![Reply::status(422)])]);
    let url = receiver.url();
    let bench = Bench::with(&[("shop", &url, ""), ("ops", &url, "")]);
    let id = bench.enqueue(
        "shop",
        &["--data", "x", "--path", "/fail", "--notify", "ops"],
    );
    let said = bench.tick();
    assert_eq!(
        said["attempts"], 2,
        "the notice is sent in the same tick: {said:#}"
    );
    let notices = bench.list_ids(&["--destination", "ops"]);
    assert_eq!(notices.len(), 1);
    let envelope = bench.item(&notices[0]).remove(0);
    assert_eq!(envelope["notice"], true);
    let arrivals = receiver.arrivals();
    assert!(arrivals[1].text().contains(&id), "{}", arrivals[1].text());
}
