//! What spool/README.md shows is what the library writes: its example is made here again, line
//! by line, and its Python reader is run on it.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/bench.rs"]
mod bench;
#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use bench::Bench;
use serde_json::{Value, json};
use support::{Receiver, Reply};
use tickpost::config::Config;
use tickpost::model::envelope::{Body, Envelope, Request, Requester, VERSION, sha256_hex};
use tickpost::model::event::{Event, EventKind, ResponseNote, Scope};
use tickpost::model::item::Item;
use tickpost::model::notice::Notice;
use tickpost::model::outcome::OutcomeKind;
use tickpost::model::reason::Reason;
use tickpost::model::state::State;
use tickpost::model::time::UnixMs;
use tickpost::model::tombstone::Retention;
use tickpost::store::file::FileStore;
use tickpost::store::file::journal;
use tickpost::store::{
    Claimed, Decision, DestinationHold, Memory, Owner, Session, Store, Suspension, Want,
};

const README: &str = include_str!("../spool/README.md");

const CHARGE: &str = "01a227f6-9cb3-7a41-9d0e-5b1f6c2a7e90";
const MAIL: &str = "01a227f8-1b3a-7e02-8c55-90d3a4be1f27";
const SECOND_CHARGE: &str = "01a227f8-fb8c-7b19-a3f6-2e7d80c5419b";

/// The text of the fenced block that follows this heading or sentence.
fn block(after: &str) -> &'static str {
    let (_, rest) = README
        .split_once(after)
        .unwrap_or_else(|| panic!("no `{after}`"));
    let (_, rest) = rest.split_once("\n```").unwrap();
    let (_, rest) = rest.split_once('\n').unwrap();
    rest.split_once("\n```").unwrap().0
}

fn at(text: &str) -> UnixMs {
    UnixMs::parse(text).unwrap()
}

fn envelope(id: &str, destination: &str, enqueued_at: UnixMs, path: &str, body: &str) -> Envelope {
    Envelope {
        v: VERSION,
        request_id: id.parse().unwrap(),
        destination: destination.parse().unwrap(),
        enqueued_at,
        request: Request {
            method: "POST".to_owned(),
            path: path.to_owned(),
            query: Vec::new(),
            headers: Vec::new(),
            content_type: Some("application/json".to_owned()),
            body: Some(Body::Text(body.to_owned())),
            body_sha256: sha256_hex(body.as_bytes()),
        },
        requester: Requester {
            principal: Some("alice".to_owned()),
            thread: None,
        },
        notify: vec!["ops".parse().unwrap()],
        labels: BTreeMap::new(),
        key: None,
        not_before: None,
        not_after: None,
        notice: false,
        retry_of: None,
    }
}

fn accept(store: &FileStore, envelope: Envelope) {
    let mut event = Event::new(EventKind::Accepted, envelope.enqueued_at, State::Pending);
    event.by = Some("alice(1000)".to_owned());
    store.accept(envelope, event).unwrap();
}

fn lock(store: &FileStore, now: UnixMs) -> Box<dyn Session + '_> {
    let owner = Owner {
        who: "tick, process 4711",
        now,
        told_of_corrupt: &[],
        told_in_text: &[],
    };
    store.lock(&owner).unwrap()
}

fn claim(session: &mut dyn Session, destinations: &[&str], now: UnixMs) -> Vec<Claimed> {
    let wants: Vec<Want> = destinations
        .iter()
        .map(|name| Want {
            destination: name.parse().unwrap(),
            items_max: 10,
            looks_max: 10,
        })
        .collect();
    session
        .claim(&wants, now, &mut |_| Decision::Claim)
        .unwrap()
}

fn attempt(claimed: &Claimed, at: UnixMs, state: State, reason: Reason, rule: &str) -> Event {
    let mut event = Event::new(EventKind::Attempt, at, state);
    event.n = Some(claimed.n);
    event.ms = Some(at.since(claimed.at));
    event.reason = Some(reason);
    event.rule = Some(rule.to_owned());
    event
}

fn answered(mut event: Event, status: u16, headers: &[(&str, &str)], body: &str) -> Event {
    let headers = headers.iter();
    event.outcome = Some(OutcomeKind::Answered);
    event.status = Some(status);
    event.response = Some(ResponseNote {
        headers: headers.map(|(n, v)| ((*n).into(), (*v).into())).collect(),
        excerpt: body.to_owned(),
        bytes: body.len() as u64,
        cut: false,
    });
    event
}

/// The story of the example: one charge is refused once and then confirmed, one mail's answer is
/// lost. Returns the spool and the journal as it stood in the second tick.
fn story(root: &Path) -> (FileStore, String) {
    let start = at("2026-11-29T15:40:00.000Z");
    let id = "7d2f1c9e-4b5a-4c1d-8e3f-60718293a4b5".parse().unwrap();
    FileStore::init(root, "", id, start).unwrap();
    let store = FileStore::open(root, true).unwrap();

    let enqueued_at = at("2026-11-29T15:40:03.123Z");
    let mut charge = envelope(
        CHARGE,
        "billing",
        enqueued_at,
        "/v1/charges",
        "{\"amount\":5}",
    );
    charge.key = Some("invoice-17".to_owned());
    charge.labels = BTreeMap::from([("env".to_owned(), "prod".to_owned())]);
    charge.requester.thread = Some("deploy-42".to_owned());
    accept(&store, charge);

    let now = at("2026-11-29T15:41:00.020Z");
    let mut session = lock(&store, now);
    let claims = claim(session.as_mut(), &["billing"], now);
    let mut event = attempt(
        &claims[0],
        now.plus(31),
        State::Pending,
        Reason::OVERLOADED,
        "default/503",
    );
    event.scope = Some(Scope::Destination);
    event.due = Some(at("2026-11-29T15:41:20.051Z"));
    let event = answered(event, 503, &[("retry-after", "20")], "try again later");
    session.settle(&claims[0], event, Vec::new()).unwrap();
    session.close(now.plus(40), None).unwrap();

    let enqueued_at = at("2026-11-29T15:41:41.050Z");
    accept(
        &store,
        envelope(MAIL, "mail", enqueued_at, "/send", "{\"to\":\"bob\"}"),
    );

    let now = at("2026-11-29T15:42:00.018Z");
    let mut session = lock(&store, now);
    let claims = claim(session.as_mut(), &["billing", "mail"], now);
    let mut event = attempt(
        &claims[0],
        now.plus(44),
        State::Confirmed,
        Reason::ACCEPTED,
        "default/2xx",
    );
    event.receipt = Some("ch_1".to_owned());
    let event = answered(event, 200, &[], "{\"id\":\"ch_1\"}");
    session.settle(&claims[0], event, Vec::new()).unwrap();
    let mut event = attempt(
        &claims[1],
        now.plus(30_000),
        State::Unknown,
        Reason::TIMEOUT_AFTER_SEND,
        "default/transport",
    );
    event.outcome = Some(OutcomeKind::MaybeSent);
    event.note = Some("no answer within 30 s".to_owned());
    let notices = Notice::of(&claims[1].item, &event, 2, &[]);
    session.settle(&claims[1], event, notices).unwrap();
    let journal = fs::read_to_string(root.join("journal/00000001.jsonl")).unwrap();
    session.close(now.plus(30_010), None).unwrap();

    let enqueued_at = at("2026-11-29T15:42:38.476Z");
    accept(
        &store,
        envelope(
            SECOND_CHARGE,
            "billing",
            enqueued_at,
            "/v1/charges",
            "{\"amount\":7}",
        ),
    );
    (store, journal)
}

#[test]
fn the_item_shown_is_the_item_written() {
    let dir = tempfile::tempdir().unwrap();
    story(&dir.path().join("spool"));
    let path = format!("spool/confirmed/billing/20261129/{CHARGE}.jsonl");
    let written = fs::read_to_string(dir.path().join(path)).unwrap();
    let shown = block("This is the whole file");
    assert_eq!(format!("{shown}\n"), written);

    let parsed = Item::parse(format!("{shown}\n").as_bytes()).unwrap();
    assert_eq!(parsed.bytes_good, shown.len() + 1);
    assert_eq!(parsed.item.standing().receipt.as_deref(), Some("ch_1"));
}

#[test]
fn the_journal_shown_is_the_journal_written() {
    let dir = tempfile::tempdir().unwrap();
    let (_, written) = story(&dir.path().join("spool"));
    let shown = block("This is what the journal held");
    assert_eq!(format!("{shown}\n"), written);
    assert_eq!(journal::decode(written.as_bytes()).len(), 3);
}

#[test]
fn the_python_reader_prints_what_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("spool");
    story(&root);
    let script = dir.path().join("reader.py");
    fs::write(&script, block("\n## A reader in Python")).unwrap();
    let output = Command::new("python3")
        .arg(&script)
        .arg(&root)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said, format!("{}\n", block("It prints for the example")));
}

#[test]
fn the_small_files_shown_can_be_read() {
    let spool: serde_json::Value = serde_json::from_str(block("### spool.json")).unwrap();
    assert_eq!(spool["format"], tickpost::store::file::FORMAT);

    let memory: Memory = serde_json::from_str(block("### destinations/DEST.json")).unwrap();
    let suspended = Suspension {
        reason: Reason::OVERLOADED,
        since: at("2026-11-29T15:41:00.051Z"),
        until: Some(at("2026-11-29T15:41:20.051Z")),
        tries: 0,
        note: None,
    };
    assert_eq!(memory.suspended, Some(suspended));
    assert_eq!(memory.last_status, Some(503));

    let hold: DestinationHold =
        serde_json::from_str(block("### destinations/DEST.hold.json")).unwrap();
    assert_eq!(hold.by, "alice(1000)");

    let tick: serde_json::Value = serde_json::from_str(block("### log/ticks-DAY.jsonl")).unwrap();
    assert_eq!(tick["stopped_by"], "done");
}

#[test]
fn the_reservations_shown_are_those_written() {
    let bench = Bench::with(&[("billing", "http://127.0.0.1:9", "")]);
    let request = ["--path", "/v1/charges", "--data", "{\"amount\":5}"];
    let options = [&["--key", "invoice-17"], &request[..]].concat();
    let id = bench.enqueue(
        "billing",
        &[&["--request-id", CHARGE], &options[..]].concat(),
    );
    assert_eq!(id, CHARGE);
    let shown: Value = serde_json::from_str(block("## Keys and callers' own ids")).unwrap();
    assert_eq!(bench.read_json(&format!("keys/_ids/{CHARGE}")), shown);
    let mut shown = shown;
    shown.as_object_mut().unwrap().remove("destination");
    let name = sha256_hex(b"invoice-17");
    assert_eq!(bench.read_json(&format!("keys/billing/{name}")), shown);
    let held = [
        "--hold",
        "a person looks",
        "--not-after",
        "2100-01-01T00:00:30Z",
    ];
    let id = bench.enqueue("billing", &[&held[..], &["--data", ""]].concat());
    let minute = format!("held/billing/21000101T0000Z/{id}.jsonl");
    assert_eq!(bench.place(&id), minute);
}

#[test]
fn a_large_body_lies_where_it_is_said_and_is_missed() {
    let bench = Bench::with(&[("billing", "http://127.0.0.1:9", "")]);
    for (length, in_a_file) in [(65_536, false), (70_000, true)] {
        let body = bench.file("body", "x".repeat(length));
        let named: &[&str] = if in_a_file {
            &["--request-id", CHARGE]
        } else {
            &[]
        };
        let id = bench.enqueue("billing", &[named, &["--file", &body]].concat());
        assert_eq!(bench.files("bodies/").len(), usize::from(in_a_file));
        let stored = bench.show(&id)["envelope"]["request"]["body"].clone();
        let shown: Value = serde_json::from_str(block("## Large bodies")).unwrap();
        let inline = json!({"text": "x".repeat(length)});
        assert_eq!(stored, if in_a_file { shown } else { inline });
    }
    fs::remove_file(bench.spool().join("bodies").join(CHARGE)).unwrap();
    bench.tick();
    let why = bench.read_json(&format!("corrupt/{CHARGE}.jsonl.why.json"));
    let why = why["reason"].as_str().unwrap();
    assert_eq!(why, format!("its body, bodies/{CHARGE}, is gone"));
}

#[test]
fn the_notice_shown_has_the_fields_of_one() {
    let receiver = Receiver::start(vec![Reply::status(401)]);
    let ops = format!("{}/ops", receiver.url());
    let destinations = [("billing", &*receiver.url(), ""), ("ops", &*ops, "")];
    let bench = Bench::new();
    bench.configure("[notify]\ndestinations = [\"ops\"]", &destinations);
    bench.enqueue("billing", &["--data", "x"]);
    bench.tick();
    let told = receiver.wait_for(2).pop().unwrap();
    let told: Value = serde_json::from_str(&told.text()).unwrap();
    let shown: Value = serde_json::from_str(block("## Notices\n")).unwrap();
    let names =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(names(&told), names(&shown));
    assert_eq!(
        (&told["notice"], &told["reason"]),
        (&shown["notice"], &shown["reason"])
    );
    let text = shown["text"].as_str().unwrap();
    let text = text.replace("2 items", "1 item").replace(" are ", " is ");
    let begins = told["text"].as_str().unwrap();
    assert!(begins.starts_with(text.trim_end_matches('…')), "{told}");
}

#[test]
fn the_tombstone_shown_is_the_tombstone_written() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("spool");
    let (store, _) = story(&root);
    let now = at("2026-12-07T00:00:30.000Z");
    let mut session = lock(&store, now);
    let pruned = session.prune(&Retention::default(), now, 10).unwrap();
    assert_eq!(pruned.items, 1);
    session.close(now, None).unwrap();
    let written = fs::read_to_string(root.join("log/pruned-20261207.jsonl")).unwrap();
    let shown = block("### log/pruned-DAY.jsonl");
    assert_eq!(format!("{shown}\n"), written);
}

#[test]
fn the_ledger_shown_is_the_ledger_written() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("spool");
    story(&root);
    let written = fs::read_to_string(root.join("log/accepted-20261129.jsonl")).unwrap();
    let shown = block("### log/accepted-DAY.jsonl");
    assert_eq!(written.lines().next(), Some(shown));
    // The two charges, the mail, and the notice of its lost answer.
    let ids: Vec<Value> = written
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["request_id"].clone())
        .collect();
    assert_eq!(ids.len(), 4, "{written}");
    for id in [CHARGE, MAIL, SECOND_CHARGE] {
        assert_eq!(ids.iter().filter(|listed| *listed == id).count(), 1, "{id}");
    }
}

#[test]
fn a_file_set_aside_has_its_reason_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("spool");
    let (store, _) = story(&root);
    let path = root.join(format!("pending/billing/{SECOND_CHARGE}.jsonl"));
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("alice\"", "mallory\"")).unwrap();

    let now = at("2026-11-29T15:43:00.000Z");
    let mut session = lock(&store, now);
    assert!(claim(session.as_mut(), &["billing"], now).is_empty());
    session.close(now, None).unwrap();
    let why = root.join(format!("corrupt/{SECOND_CHARGE}.jsonl.why.json"));
    let why = fs::read_to_string(why).unwrap();
    assert_eq!(why, format!("{}\n", block("### corrupt/")));
}

/// The way out that is described.
#[test]
fn a_mended_drop_is_dropped_again_and_its_reason_removed() {
    let bench = Bench::with(&[("billing", "http://127.0.0.1:9", "")]);
    bench.tick();
    let place = |path: &str| bench.spool().join(path);
    fs::write(place("incoming/billing/order.json"), "{\"request\":{}").unwrap();
    assert_eq!(bench.tick()["corrupt"], 1);
    let why = bench.read_json("corrupt/order.json.why.json");
    let from = why["from"].as_str().unwrap();
    assert!(from.starts_with("incoming/billing/"), "{why}");
    fs::write(place("corrupt/order.json"), "{\"request\":{}}").unwrap();
    fs::rename(
        place("corrupt/order.json"),
        place("incoming/billing/order.json"),
    )
    .unwrap();
    fs::remove_file(place("corrupt/order.json.why.json")).unwrap();
    assert_eq!(bench.tick()["ingested"], 1);
    assert_eq!(bench.files("corrupt/"), Vec::<String>::new());
    assert_eq!(bench.json(&["status"])["corrupt"], 0);
}

#[test]
fn every_reason_and_directory_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("spool");
    let made = FileStore::init(&root, "", uuid::Uuid::nil(), UnixMs(0)).unwrap();
    for name in made.made.iter().filter(|name| *name != ".") {
        assert!(README.contains(name.as_str()), "{name}");
    }
    for (reason, _) in Reason::ALL {
        assert!(README.contains(&format!("`{reason}`")), "{reason}");
    }
}

#[test]
fn the_sample_becomes_a_spool_by_init() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("spool/tickpost.toml");
    let config = Config::load(&sample).unwrap();
    let hosts: Vec<_> = config
        .destinations
        .values()
        .map(|d| d.base_url.host_str())
        .collect();
    assert_eq!(hosts, [Some("127.0.0.1")]);

    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("spool");
    fs::create_dir(&root).unwrap();
    fs::copy(&sample, root.join("tickpost.toml")).unwrap();
    let made = FileStore::init(&root, "", uuid::Uuid::nil(), UnixMs(0)).unwrap();
    assert!(!made.made.contains(&"tickpost.toml".to_owned()));
    assert_eq!(
        fs::read(root.join("tickpost.toml")).unwrap(),
        fs::read(&sample).unwrap()
    );
    FileStore::open(&root, true).unwrap();
}
