//! Time, told by a clock that the test moves: waits to the millisecond, suspensions, ages and
//! ends, and a clock that cannot be trusted. The engine and its store are the real ones; the
//! network answers from a script.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use common::{Gate, Gated, store_on};
use tempfile::TempDir;
use tickpost::clock::Clock;
use tickpost::config::Config;
use tickpost::engine::plan::plan;
use tickpost::engine::report::{Report, StoppedBy};
use tickpost::engine::{Engine, Options};
use tickpost::model::envelope::{Envelope, Request, Requester, VERSION, sha256_hex};
use tickpost::model::event::{Event, EventKind};
use tickpost::model::ids::RequestId;
use tickpost::model::item::Item;
use tickpost::model::outcome::{Answer, Outcome, TransportClass};
use tickpost::model::reason::Reason;
use tickpost::model::state::State;
use tickpost::model::time::{DAY_MS, MINUTE_MS, UnixMs};
use tickpost::store::file::FileStore;
use tickpost::store::{DestinationHold, Scope, Store as _};
use tickpost::transport::{Send, Sent, Transport};

const SECOND_MS: u64 = 1000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

/// The middle of a minute, an hour and a day, so that nothing is right by its roundness.
const START: UnixMs = UnixMs(1_796_000_012_345);

/// A destination with a key, as lines of TOML.
const KEYED: &str = "key = { kind = \"header\", name = \"Idempotency-Key\", window = \"24h\" }";

/// A clock that stands until it is moved.
#[derive(Clone)]
struct Hands(Rc<Inside>);

struct Inside {
    wall: Cell<u64>,
    steady: Cell<u64>,
}

impl Hands {
    /// Time passes.
    fn pass(&self, ms: u64) {
        self.0.wall.set(self.0.wall.get() + ms);
        self.0.steady.set(self.0.steady.get() + ms);
    }

    /// Somebody sets the wall clock.
    fn set(&self, to: UnixMs) {
        self.0.wall.set(to.0);
    }
}

impl Clock for Hands {
    fn now(&self) -> UnixMs {
        UnixMs(self.0.wall.get())
    }

    fn steady_ms(&self) -> u64 {
        self.0.steady.get()
    }

    fn boot(&self) -> Option<(String, u64)> {
        Some(("this boot".to_owned(), self.0.steady.get()))
    }
}

/// Answers from a script, then 200. Each takes its time; what is never answered hangs.
struct Wire {
    clock: Hands,
    script: VecDeque<Option<Outcome>>,
    takes_ms: u64,
    under_way: VecDeque<Sent>,
    begun: Rc<RefCell<Vec<(UnixMs, RequestId)>>>,
}

impl Transport for Wire {
    fn begin(&mut self, send: Send) {
        let at = self.clock.now();
        self.begun.borrow_mut().push((at, send.envelope.request_id));
        if let Some(outcome) = self.script.pop_front().unwrap_or_else(|| Some(status(200))) {
            self.under_way.push_back(Sent {
                token: send.token,
                outcome,
                ms: self.takes_ms,
            });
        }
    }

    fn next(&mut self, limit: Duration) -> Option<Sent> {
        let limit_ms = u64::try_from(limit.as_millis()).unwrap();
        let Some(sent) = self.under_way.pop_front() else {
            self.clock.pass(limit_ms);
            return None;
        };
        self.clock.pass(self.takes_ms);
        Some(sent)
    }
}

fn status(status: u16) -> Outcome {
    Outcome::Answered(Answer {
        status,
        ..Answer::default()
    })
}

fn wait(status: u16, seconds: u64) -> Outcome {
    Outcome::Answered(Answer {
        status,
        headers: vec![("retry-after".to_owned(), seconds.to_string())],
        ..Answer::default()
    })
}

fn failed(class: TransportClass) -> Outcome {
    Outcome::failed(class, "as the script says")
}

fn refused() -> Outcome {
    failed(TransportClass::ConnectRefused)
}

fn lost() -> Outcome {
    failed(TransportClass::TimeoutAfterSend)
}

/// A spool, a clock and a network of a test's own.
struct World {
    dir: TempDir,
    store: FileStore,
    config: Config,
    clock: Hands,
    begun: Rc<RefCell<Vec<(UnixMs, RequestId)>>>,
}

/// An item's state (`!` for parked), its reason, and when it is due.
type Stands = (String, String, Option<UnixMs>);

impl World {
    /// One destination `dest` with these lines.
    fn new(lines: &str) -> Self {
        Self::with("", lines)
    }

    fn with(general: &str, lines: &str) -> Self {
        // In memory where that can be: many ticks, and nothing here is about the disk.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let dir = dir.unwrap();
        let path = dir.path().join("tickpost.toml");
        let text =
            format!("{general}\n[destination.dest]\nbase_url = \"http://127.0.0.1:9\"\n{lines}\n");
        fs::write(&path, text).unwrap();
        let root = dir.path().join("spool");
        FileStore::init(&root, "", uuid::Uuid::nil(), START).unwrap();
        Self {
            store: FileStore::open(&root, false).unwrap(),
            config: Config::load(&path).unwrap(),
            clock: Hands(Rc::new(Inside {
                wall: Cell::new(START.0),
                steady: Cell::new(5_000_000),
            })),
            begun: Rc::default(),
            dir,
        }
    }

    fn accept(&self, change: impl FnOnce(&mut Envelope)) -> RequestId {
        let now = self.clock.now();
        let id = RequestId(uuid::Uuid::now_v7());
        let mut envelope = Envelope {
            v: VERSION,
            request_id: id,
            destination: "dest".parse().unwrap(),
            enqueued_at: now,
            request: Request {
                method: "POST".to_owned(),
                path: String::new(),
                query: Vec::new(),
                headers: Vec::new(),
                content_type: None,
                body: None,
                body_sha256: sha256_hex(b""),
            },
            requester: Requester::default(),
            notify: Vec::new(),
            labels: BTreeMap::new(),
            key: None,
            retry_of: None,
            not_before: None,
            not_after: None,
            notice: false,
        };
        change(&mut envelope);
        let accepted = Event::new(EventKind::Accepted, now, State::Pending);
        self.store.accept(envelope, accepted).unwrap();
        id
    }

    fn post(&self) -> RequestId {
        self.accept(|_| {})
    }

    /// One tick; each send takes a script's next outcome, and no time.
    fn tick(&self, script: &[Outcome]) -> Report {
        let script = script.iter().cloned().map(Some).collect();
        self.tick_as(script, 0, &Options::default())
    }

    /// A network that answers 200, after a second.
    fn wire(&self) -> Wire {
        Wire {
            clock: self.clock.clone(),
            script: VecDeque::new(),
            takes_ms: SECOND_MS,
            under_way: VecDeque::new(),
            begun: Rc::clone(&self.begun),
        }
    }

    fn tick_as(
        &self,
        script: VecDeque<Option<Outcome>>,
        takes_ms: u64,
        options: &Options,
    ) -> Report {
        let mut wire = Wire {
            clock: self.clock.clone(),
            script,
            takes_ms,
            under_way: VecDeque::new(),
            begun: Rc::clone(&self.begun),
        };
        Engine {
            config: &self.config,
            store: &self.store,
            clock: &self.clock,
            jitter: &mut || 0,
            stop: &|| false,
            watch: &mut |_| {},
        }
        .tick(&mut wire, options)
        .unwrap()
    }

    fn item(&self, id: RequestId) -> Item {
        let found = self.store.find(id).unwrap().unwrap();
        self.store.read(&found).unwrap().unwrap().unwrap()
    }

    fn stands(&self, id: RequestId) -> Stands {
        let found = self.store.find(id).unwrap().unwrap();
        let standing = self.item(id).standing();
        assert_eq!(found.state, standing.state, "its place and its events");
        assert_eq!(found.parked, standing.parked, "its place and its events");
        let mark = if standing.parked { "!" } else { "" };
        let reason = standing.reason.map_or(String::new(), |r| r.to_string());
        (format!("{}{mark}", standing.state), reason, standing.due)
    }

    /// State and reason.
    fn word(&self, id: RequestId) -> String {
        let (state, reason, _) = self.stands(id);
        format!("{state} {reason}")
    }

    fn until(&self) -> Option<UnixMs> {
        let memory = self.store.memory(&"dest".parse().unwrap()).unwrap();
        memory.suspended.and_then(|suspension| suspension.until)
    }

    fn sends(&self) -> usize {
        self.begun.borrow().len()
    }

    fn count(&self, state: State) -> u64 {
        let counts = self.store.counts().unwrap();
        let own = counts.destinations.get("dest");
        own.and_then(|own| own.get(&state)).copied().unwrap_or(0)
    }

    /// Ticks a millisecond before `at`, which must send nothing, and then at it.
    #[track_caller]
    fn tick_at(&self, at: UnixMs, script: &[Outcome]) -> Report {
        let now = self.clock.now();
        assert!(at > now, "{at} has passed: it is {now}");
        self.clock.pass(at.since(now) - 1);
        let before = self.tick(&[]);
        assert_eq!(before.attempts, 0, "too early, at {}", self.clock.now());
        self.clock.pass(1);
        self.tick(script)
    }
}

#[test]
fn waits_grow_to_the_millisecond() {
    let world = World::new("retry = { base = \"30s\", factor = 2, max = \"10m\", attempts = 9 }");
    let id = world.post();
    assert_eq!(world.tick(&[status(408)]).attempts, 1);
    for wait_s in [30, 60, 120, 240, 480, 600, 600] {
        let (state, reason, due) = world.stands(id);
        assert_eq!(
            (state.as_str(), reason.as_str()),
            ("pending", "request_timeout")
        );
        assert_eq!(due, Some(world.clock.now().plus(wait_s * SECOND_MS)));
        let report = world.tick_at(due.unwrap(), &[status(408)]);
        assert_eq!(report.attempts, 1);
    }
    let (_, _, due) = world.stands(id);
    world.tick_at(due.unwrap(), &[status(408)]);
    assert_eq!(world.word(id), "failed exhausted");
    assert_eq!(world.sends(), 9);
    let last = world.item(id).events.pop().unwrap();
    assert!(
        last.note.unwrap().contains("request_timeout"),
        "the last reason is told"
    );
}

#[test]
fn what_a_receiver_asks_for_is_a_floor() {
    let world = World::new("retry = { base = \"30s\" }");
    let id = world.post();
    world.tick(&[wait(408, 5)]);
    let due = world.stands(id).2.unwrap();
    assert_eq!(
        due,
        START.plus(30 * SECOND_MS),
        "less than the wait of our own"
    );
    world.tick_at(due, &[wait(408, 600)]);
    let due = world.stands(id).2.unwrap();
    assert_eq!(due, world.clock.now().plus(600 * SECOND_MS));
    world.tick_at(due, &[]);
    assert_eq!(world.word(id), "confirmed accepted");
}

#[test]
fn connect_failures_suspend_for_half_a_minute_doubling_to_a_quarter_of_an_hour() {
    let world = World::new("concurrency = 1");
    let ids: Vec<RequestId> = (0..4).map(|_| world.post()).collect();
    world.tick(&[refused()]);
    for wait_s in [30, 60, 120, 240, 480, 900, 900, 900] {
        let until = world.until().unwrap();
        assert_eq!(until, world.clock.now().plus(wait_s * SECOND_MS));
        let report = world.tick_at(until, &[refused()]);
        assert_eq!(report.attempts, 1, "one item tries it");
        assert_eq!(report.left, 3, "the others wait: {report:?}");
    }
    let until = world.until().unwrap();
    let report = world.tick_at(until, &[]);
    assert!(report.confirmed >= 3, "the rest flows: {report:?}");
    assert_eq!(world.until(), None);
    for id in &ids {
        assert_eq!(
            world.item(*id).standing().attempts,
            u32::from(world.word(*id) == "confirmed accepted")
        );
    }
    // From the beginning, the next time.
    world.post();
    world.tick(&[refused()]);
    assert_eq!(world.until(), Some(world.clock.now().plus(30 * SECOND_MS)));
}

#[test]
fn a_secret_that_cannot_be_read_suspends_for_half_a_minute_doubling_to_a_quarter_of_an_hour() {
    let world = World::new("auth = { bearer = { file = \"secret\" } }");
    world.post();
    world.tick(&[]);
    for wait_s in [30, 60, 120, 240, 480, 900, 900] {
        let until = world.until().unwrap();
        assert_eq!(until, world.clock.now().plus(wait_s * SECOND_MS));
        assert_eq!(world.tick_at(until, &[]).attempts, 0, "still not");
    }
    fs::write(world.dir.path().join("secret"), "s").unwrap();
    assert_eq!(world.tick(&[]).confirmed, 1);
    assert_eq!(world.until(), None);
}

#[test]
fn refused_secrets_suspend_for_a_quarter_of_an_hour_doubling_to_one() {
    let world = World::new("concurrency = 1");
    for _ in 0..10 {
        world.post();
    }
    world.tick(&[status(401)]);
    for (held, wait_m) in [(1, 15), (2, 30), (3, 60), (4, 60)] {
        assert_eq!(world.count(State::Held), held);
        let until = world.until().unwrap();
        assert_eq!(until, world.clock.now().plus(wait_m * MINUTE_MS));
        assert_eq!(world.tick_at(until, &[status(401)]).attempts, 1);
    }
    let until = world.until().unwrap();
    let report = world.tick_at(until, &[]);
    assert_eq!(report.released, 5, "what it held goes: {report:?}");
    world.tick(&[]);
    assert_eq!(world.count(State::Confirmed), 10);
}

#[test]
fn names_that_cannot_be_resolved_for_a_day_hold_what_is_due() {
    for class in [
        TransportClass::DnsFailure,
        TransportClass::TlsHandshakeFailed,
    ] {
        let world = World::new("concurrency = 1");
        let ids: Vec<RequestId> = (0..3).map(|_| world.post()).collect();
        let later = world.accept(|e| e.not_before = Some(START.plus(3 * DAY_MS)));
        world.tick(&[failed(class)]);
        while world.clock.now().since(START) < DAY_MS {
            assert_eq!(world.count(State::Held), 0, "not before a day is over");
            let until = world.until().unwrap();
            world.clock.pass(until.since(world.clock.now()));
            assert_eq!(world.tick(&[failed(class)]).attempts, 1);
        }
        for id in &ids {
            let held = world.word(*id);
            assert!(
                ["held dns_failure", "held tls_error"].contains(&held.as_str()),
                "{held}"
            );
        }
        assert_eq!(world.stands(later).0, "pending", "what is not due waits");
        // It heals when somebody tries it, and what it held goes.
        let fresh = world.post();
        let until = world.until().unwrap();
        world.clock.pass(until.since(world.clock.now()));
        world.tick(&[]);
        assert_eq!(world.word(fresh), "confirmed accepted");
        world.tick(&[]);
        assert_eq!(world.count(State::Confirmed), 4);
    }
    // Connections that are refused may be for longer.
    let world = World::new("");
    let id = world.post();
    world.tick(&[refused()]);
    while world.clock.now().since(START) < 2 * DAY_MS {
        let until = world.until().unwrap();
        world.clock.pass(until.since(world.clock.now()) + SECOND_MS);
        world.tick(&[refused()]);
    }
    assert_eq!(world.stands(id).0, "pending");
}

#[test]
fn out_of_attempts_a_pending_item_fails_and_a_maybe_acted_one_is_parked() {
    let few = format!("{KEYED}\nretry = {{ base = \"1s\", max = \"1s\", attempts = 3 }}");
    let rows = [
        (status(408), "failed exhausted"),
        (lost(), "unknown! exhausted"),
        (status(500), "unknown! exhausted"),
    ];
    for (outcome, want) in rows {
        let world = World::new(&few);
        let id = world.post();
        for _ in 0..3 {
            world.tick(std::slice::from_ref(&outcome));
            world.clock.pass(SECOND_MS);
        }
        assert_eq!(world.word(id), want);
        world.clock.pass(DAY_MS / 2);
        assert_eq!(world.tick(&[]).attempts, 0);
    }
    // Maybe-acted once, then only refused: it still may have been acted on.
    let world = World::new(&few);
    let id = world.post();
    for outcome in [lost(), status(408), status(408)] {
        world.tick(&[outcome]);
        world.clock.pass(SECOND_MS);
    }
    assert_eq!(world.word(id), "unknown! exhausted");
}

/// As after days on which the machine was off, or the destination was held: the first answer is no last
/// one. Age begins with it.
#[test]
fn what_has_waited_for_its_first_attempt_is_not_old() {
    let world = World::new("retry = { base = \"30s\", age = \"3d\", attempts = 99 }");
    let id = world.post();
    world.clock.pass(5 * DAY_MS);
    world.tick(&[refused()]);
    assert!(world.word(id).starts_with("pending"));
    world.tick_at(world.until().unwrap(), &[status(408)]);
    assert!(world.word(id).starts_with("pending"));
    world.clock.pass(3 * DAY_MS);
    world.tick(&[status(408)]);
    assert_eq!(world.word(id), "failed exhausted");
}

#[test]
fn what_is_worthless_ends_and_is_not_sent() {
    let end = START.plus(HOUR_MS);
    let short = |e: &mut Envelope| e.not_after = Some(end);
    // Waiting for its time, waiting for the tick, and waiting for a suspension.
    let world = World::new(KEYED);
    let waiting = world.accept(|e| {
        short(e);
        e.not_before = Some(START.plus(2 * HOUR_MS));
    });
    let late = world.accept(short);
    world.clock.pass(HOUR_MS - 1);
    assert_eq!(
        world.tick(&[status(408)]).attempts,
        1,
        "a millisecond is left"
    );
    // What was put off beyond its end is looked for when that minute is over.
    world.clock.pass(MINUTE_MS);
    let report = world.tick(&[]);
    assert_eq!((report.attempts, report.failed), (0, 2), "{report:?}");
    assert_eq!(world.word(waiting), "failed expired");
    assert_eq!(world.word(late), "failed expired");

    let world = World::new("concurrency = 1");
    let ids: Vec<RequestId> = (0..3).map(|_| world.accept(short)).collect();
    world.tick(&[wait(503, 7200)]);
    world.clock.pass(HOUR_MS + MINUTE_MS);
    let report = world.tick(&[]);
    assert_eq!((report.attempts, report.failed), (0, 3), "{report:?}");
    assert!(ids.iter().all(|id| world.word(*id) == "failed expired"));

    // Held: certainly not acted on.
    let world = World::new("");
    let id = world.accept(short);
    world.tick(&[status(403)]);
    assert_eq!(world.word(id), "held permission_denied");
    world.clock.pass(HOUR_MS);
    let report = world.tick(&[]);
    assert_eq!((report.failed, report.released), (1, 0), "{report:?}");
    assert_eq!(world.word(id), "failed expired");

    // Maybe-acted: a person must look.
    let world = World::new(&format!(
        "{KEYED}\nretry = {{ base = \"30m\", factor = 1.0 }}"
    ));
    let id = world.accept(short);
    world.tick(&[lost()]);
    assert_eq!(world.stands(id).2, Some(START.plus(HOUR_MS / 2)));
    world.clock.pass(HOUR_MS);
    assert_eq!(world.tick(&[]).attempts, 0);
    assert_eq!(world.word(id), "unknown! expired");
    // And at once where the repeat would come too late.
    let id = world.accept(|e| e.not_after = Some(world.clock.now().plus(10 * MINUTE_MS)));
    world.tick(&[lost()]);
    assert_eq!(world.word(id), "unknown! expired");
}

#[test]
fn what_is_stale_is_sent_held_or_fails_as_the_owner_says() {
    let rows = [
        ("stale = \"send\"", "confirmed accepted"),
        ("stale = \"hold\"", "held stale"),
        ("stale = \"fail\"", "failed stale"),
    ];
    for (policy, want) in rows {
        let world = World::new(&format!("stale_after = \"1d\"\n{policy}"));
        let id = world.post();
        let planned = world.accept(|e| e.not_before = Some(START.plus(HOUR_MS)));
        let tried = world.post();
        world.tick(&[status(408), status(408)]);
        let other = world.post();
        // The first is retried; all are late by a day and a little.
        world.clock.pass(DAY_MS + HOUR_MS + 1);
        let fresh = world.post();
        world.tick(&[]);
        for id in [id, tried] {
            assert_eq!(
                world.word(id),
                "confirmed accepted",
                "not its first attempt"
            );
        }
        assert_eq!(world.word(planned), want, "{policy}");
        assert_eq!(world.word(other), want, "{policy}");
        assert_eq!(world.word(fresh), "confirmed accepted");
    }
    let world = World::new("stale_after = \"1d\"\nstale = \"fail\"");
    let id = world.post();
    world.clock.pass(DAY_MS);
    world.tick(&[]);
    assert_eq!(
        world.word(id),
        "confirmed accepted",
        "exactly a day is not more"
    );
}

#[test]
fn a_clock_that_cannot_be_trusted_ends_nothing_and_repeats_nothing() {
    // Set back before the last tick, and leapt ahead while the machine ran.
    // Two hours before the start it is another day.
    for leap in [-2, 3, 24 * 365 * 4] {
        let world = World::new(&format!(
            "{KEYED}\nretry = {{ base = \"1s\", max = \"1s\" }}"
        ));
        let now = world.clock.now();
        let repeat = world.post();
        world.tick(&[lost()]);
        let short = world.accept(|e| e.not_after = Some(now.plus(HOUR_MS)));
        let many: Vec<RequestId> = (0..250).map(|_| world.post()).collect();
        let hours = HOUR_MS * u64::from(i32::unsigned_abs(leap));
        world.clock.set(if leap < 0 {
            now.minus(hours)
        } else {
            now.plus(hours)
        });
        if leap < 0 {
            // Accepted by the same clock.
            world.post();
        }
        let report = world.tick(&[]);
        assert!(report.clock_suspect.is_some(), "{leap}: {report:?}");
        if leap > 0 {
            assert_eq!(world.word(repeat), "unknown! key_window_closed");
            assert_eq!(report.attempts, 100, "the burst is capped: {report:?}");
            assert_eq!(
                report.left, 150,
                "what may be worthless just waits: {report:?}"
            );
        }
        assert_eq!(report.failed, 0, "nothing expires: {report:?}");
        assert_ne!(world.stands(short).0, "failed");
        assert!(many.iter().all(|id| world.stands(*id).0 != "failed"));
        // The next tick finds its clock where the last one left it.
        let report = world.tick(&[]);
        assert_eq!(report.clock_suspect, None, "{report:?}");
        if leap > 0 {
            assert_eq!(
                world.count(State::Confirmed) + world.count(State::Failed),
                251
            );
            assert_eq!(
                world.word(repeat),
                "unknown! key_window_closed",
                "a person decides"
            );
        }
        // Set right again, it is trusted after one tick, whatever the log is called.
        world.clock.set(now.plus(MINUTE_MS));
        let suspect = world.tick(&[]).clock_suspect;
        assert!(suspect.is_some(), "set back, or leapt ahead again");
        assert_eq!(world.tick(&[]).clock_suspect, None);
    }
}

/// Of a destination that is held nothing else is looked at.
#[test]
fn a_clock_that_cannot_be_trusted_ends_nothing_of_what_is_suspended_either() {
    let world = World::new(KEYED);
    let short = world.accept(|e| e.not_after = Some(START.plus(HOUR_MS)));
    let hold = DestinationHold {
        at: START,
        by: "someone(1)".to_owned(),
        note: None,
    };
    let dest = "dest".parse().unwrap();
    world
        .store
        .set_destination_hold(&dest, Some(&hold))
        .unwrap();
    world.tick(&[]);
    world.clock.set(START.plus(3 * HOUR_MS));
    let report = world.tick(&[]);
    assert!(report.clock_suspect.is_some(), "{report:?}");
    assert_eq!(world.stands(short).0, "pending");
    // The next tick finds its clock where the last one left it.
    world.tick(&[]);
    assert_eq!(world.word(short), "failed expired");
}

#[test]
fn a_clock_set_back_closes_the_key_window() {
    // A tick is cut off while it sends, and then the clock is set back.
    let world = World::with("[tick]\ngrace = \"0s\"", KEYED);
    let id = world.post();
    let options = Options {
        max_runtime_ms: Some(1),
        ..Options::default()
    };
    world.tick_as(VecDeque::from([None]), 0, &options);
    assert_eq!(world.count(State::Unknown), 1);
    world.clock.set(START.minus(HOUR_MS));
    let report = world.tick(&[]);
    assert_eq!((report.recovered, report.attempts), (1, 0), "{report:?}");
    assert_eq!(world.word(id), "unknown! key_window_closed");
}

#[test]
fn a_key_window_from_before_the_clock_was_set_back_stays_closed() {
    // The clock is set back by an hour while an answer is lost. Later it shows the same times again,
    // and nobody can tell the key's age by it.
    let lines = "key = { kind = \"header\", name = \"K\", window = \"1h\" }";
    let world = World::new(lines);
    let id = world.post();
    world.tick(&[lost()]);
    assert_eq!(world.word(id), "unknown timeout_after_send");
    world.clock.set(START.minus(HOUR_MS));
    let suspect = world.tick(&[]).clock_suspect;
    assert!(suspect.is_some(), "set back");
    // Several ticks carry it on.
    for _ in 0..3 {
        world.clock.pass(MINUTE_MS);
        let report = world.tick(&[]);
        assert_eq!((report.clock_suspect, report.attempts), (None, 0));
    }
    world.clock.pass(HOUR_MS);
    world.tick(&[]);
    assert_eq!(world.word(id), "unknown! key_window_closed");
    assert_eq!(world.sends(), 1);
    // What is first sent after that time is as ever.
    let other = world.post();
    world.tick(&[lost()]);
    world.clock.pass(10 * MINUTE_MS);
    world.tick(&[]);
    assert_eq!(world.word(other), "confirmed accepted");
}

#[test]
fn what_the_line_of_an_idle_tick_alone_has_shown_of_the_clock_outlasts_that_line() {
    let lines = "key = { kind = \"header\", name = \"K\", window = \"1h\" }";
    let world = World::new(lines);
    let id = world.post();
    world.tick(&[lost()]);
    let hold = DestinationHold {
        at: START,
        by: "operator".to_owned(),
        note: None,
    };
    let dest = "dest".parse().unwrap();
    world
        .store
        .set_destination_hold(&dest, Some(&hold))
        .unwrap();
    world.clock.set(START.plus(62 * MINUTE_MS));
    assert_eq!(world.tick(&[]).attempts, 0);
    world.clock.set(START.plus(39 * MINUTE_MS));
    assert!(world.tick(&[]).clock_suspect.is_some(), "set back");
    // The power goes, and with it what nobody had synced.
    for entry in fs::read_dir(world.dir.path().join("spool/log")).unwrap() {
        let path = entry.unwrap().path();
        if path.to_str().unwrap().contains("/ticks-") {
            fs::remove_file(path).unwrap();
        }
    }
    world.store.set_destination_hold(&dest, None).unwrap();
    world.clock.pass(MINUTE_MS);
    world.tick(&[]);
    assert_eq!(world.word(id), "unknown! key_window_closed");
    assert_eq!(world.sends(), 1);
}

#[test]
fn what_went_under_another_key_or_to_another_receiver_is_not_repeated() {
    let before = "key = { kind = \"header\", name = \"K\", window = \"1h\" }";
    let rows = [
        (
            before,
            "http://127.0.0.1:9",
            "confirmed accepted",
            "the same",
        ),
        (
            "key = { kind = \"header\", name = \"K\", window = \"2h\" }\nconcurrency = 3",
            "http://127.0.0.1:9",
            "confirmed accepted",
            "nothing of the key's place",
        ),
        (
            "key = { kind = \"header\", name = \"Other\", window = \"1h\" }",
            "http://127.0.0.1:9",
            "unknown! key_window_closed",
            "another header",
        ),
        (
            "key = { kind = \"header\", name = \"K\", window = \"9h\", format = \"uuid\" }",
            "http://127.0.0.1:9",
            "unknown! key_window_closed",
            "another spelling",
        ),
        (
            before,
            "http://127.0.0.1:8",
            "unknown! key_window_closed",
            "a receiver elsewhere",
        ),
        (
            before,
            "http://127.0.0.1:9/v2",
            "unknown! key_window_closed",
            "another part of a receiver",
        ),
        (
            before,
            "http://127.0.0.1:9/",
            "confirmed accepted",
            "the same, with a slash",
        ),
        (
            before,
            "http://127.0.0.1:9//",
            "unknown! key_window_closed",
            "a path of one slash",
        ),
    ];
    for (after, url, want, why) in rows {
        let mut world = World::new(before);
        let id = world.post();
        world.tick(&[lost()]);
        assert_eq!(world.word(id), "unknown timeout_after_send");
        let path = world.dir.path().join("tickpost.toml");
        let text = format!("[destination.dest]\nbase_url = \"{url}\"\n{after}\n");
        fs::write(&path, text).unwrap();
        world.config = Config::load(&path).unwrap();
        world.clock.pass(10 * MINUTE_MS);
        let steps = plan(&world.config, &world.store, None, None, world.clock.now()).unwrap();
        let repeats = steps[0].action == "resend";
        assert_eq!(repeats, want.starts_with("confirmed"), "{why}: {steps:?}");
        world.tick(&[]);
        assert_eq!(world.word(id), want, "{why}");
        // What is first sent now is as ever.
        let other = world.post();
        world.tick(&[lost()]);
        world.clock.pass(10 * MINUTE_MS);
        world.tick(&[]);
        assert_eq!(world.word(other), "confirmed accepted", "{why}");
    }
}

/// Content that names itself and an idempotent method are harmless to one receiver, not to two.
#[test]
fn another_receiver_gets_no_repeat_on_any_ground() {
    for (lines, method, moved, want) in [
        (
            "key = { kind = \"natural\" }",
            "POST",
            false,
            "confirmed accepted",
        ),
        (
            "key = { kind = \"natural\" }",
            "POST",
            true,
            "unknown! key_window_closed",
        ),
        (
            "on_unknown = \"resend\"",
            "PUT",
            false,
            "confirmed accepted",
        ),
        (
            "on_unknown = \"resend\"",
            "PUT",
            true,
            "unknown! timeout_after_send",
        ),
    ] {
        let mut world = World::new(lines);
        let id = world.accept(|e| e.request.method = method.to_owned());
        world.tick(&[lost()]);
        assert_eq!(world.word(id), "unknown timeout_after_send");
        let path = world.dir.path().join("tickpost.toml");
        let port = if moved { 8 } else { 9 };
        let text = format!("[destination.dest]\nbase_url = \"http://127.0.0.1:{port}\"\n{lines}\n");
        fs::write(&path, text).unwrap();
        world.config = Config::load(&path).unwrap();
        world.clock.pass(10 * MINUTE_MS);
        world.tick(&[]);
        assert_eq!(world.word(id), want, "{method} {moved}");
    }
}

/// Under which key it went and to whom, nobody knows any more.
#[test]
fn a_memory_that_is_damaged_or_gone_takes_nothing_for_what_was_before() {
    let keyed = (
        "key = { kind = \"header\", name = \"K\", window = \"1h\" }",
        "POST",
    );
    let harmless = ("on_unknown = \"resend\"", "PUT");
    for ((lines, method), memory, want) in [
        (keyed, Some(&b"\0\0\0\0"[..]), "unknown! key_window_closed"),
        (keyed, Some(b""), "unknown! key_window_closed"),
        (keyed, Some(b"{}"), "unknown! key_window_closed"),
        (keyed, None, "unknown! key_window_closed"),
        (harmless, Some(b""), "unknown! timeout_after_send"),
        (harmless, None, "unknown! timeout_after_send"),
    ] {
        let world = World::new(lines);
        let accept = || world.accept(|e| e.request.method = method.to_owned());
        let id = accept();
        world.tick(&[lost()]);
        let file = world.dir.path().join("spool/destinations/dest.json");
        match memory {
            Some(bytes) => fs::write(&file, bytes).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        world.clock.pass(10 * MINUTE_MS);
        world.tick(&[]);
        assert_eq!(world.word(id), want, "{memory:?}");
        let other = accept();
        world.tick(&[lost()]);
        world.clock.pass(10 * MINUTE_MS);
        world.tick(&[]);
        assert_eq!(world.word(other), "confirmed accepted", "{memory:?}");
    }
}

#[test]
fn what_was_interrupted_without_a_key_is_not_repeated_with_one() {
    let mut world = World::with("[tick]\ngrace = \"0s\"", "");
    let id = world.post();
    let options = Options {
        max_runtime_ms: Some(1),
        ..Options::default()
    };
    world.tick_as(VecDeque::from([None]), 0, &options);
    assert_eq!(world.count(State::Unknown), 1);
    let path = world.dir.path().join("tickpost.toml");
    fs::write(
        &path,
        format!("[destination.dest]\nbase_url = \"http://127.0.0.1:9\"\n{KEYED}\n"),
    )
    .unwrap();
    world.config = Config::load(&path).unwrap();
    world.clock.pass(MINUTE_MS);
    world.tick(&[]);
    assert_eq!(
        (world.word(id).as_str(), world.sends()),
        ("unknown! key_window_closed", 1)
    );
}

#[test]
fn the_key_window_counts_from_the_first_claim_and_keeps_the_timeout_as_a_margin() {
    // Timeouts of 10 s in all; each repeat is put off by 20 s.
    let lines = "key = { kind = \"header\", name = \"K\", window = \"1m\" }\n\
                 timeout = { connect = \"5s\", response = \"5s\" }\n\
                 retry = { base = \"20s\", factor = 1.0 }";
    let world = World::new(lines);
    let id = world.post();
    world.tick(&[lost()]);
    assert_eq!(world.word(id), "unknown timeout_after_send");
    world.tick_at(START.plus(20 * SECOND_MS), &[lost()]);
    assert_eq!(
        world.stands(id).2,
        Some(START.plus(40 * SECOND_MS)),
        "40 + 10 < 60"
    );
    world.tick_at(START.plus(40 * SECOND_MS), &[lost()]);
    assert_eq!(
        world.word(id),
        "unknown! key_window_closed",
        "60 + 10 is not"
    );
    assert_eq!(world.sends(), 3);

    // A tick that comes too late finds it closed, to the millisecond.
    for (late_ms, want) in [
        (49_999, "confirmed accepted"),
        (50_000, "unknown! key_window_closed"),
    ] {
        let world = World::new(lines);
        let id = world.post();
        world.tick(&[lost()]);
        world.clock.pass(late_ms);
        world.tick(&[]);
        assert_eq!(world.word(id), want, "after {late_ms} ms");
    }
}

#[test]
fn a_tick_ends_when_its_time_is_over_and_gives_back_what_it_has_not_begun() {
    let world = World::with("[tick]\nmax_runtime = \"5s\"", "");
    for _ in 0..50 {
        world.post();
    }
    let report = world.tick_as(VecDeque::new(), SECOND_MS, &Options::default());
    assert_eq!(report.stopped_by, StoppedBy::MaxRuntime);
    let done = report.confirmed;
    assert!((5..=5 + 8).contains(&done), "{report:?}");
    assert_eq!(report.left, 50 - done, "{report:?}");
    assert_eq!(
        world.count(State::Unknown),
        0,
        "what was begun was waited for"
    );
    assert_eq!(world.count(State::Pending), 50 - done);
    // Given back: as if it had not been claimed.
    let scope = Scope {
        states: vec![State::Pending],
        destination: None,
    };
    let mut untouched = 0;
    let each = &mut |found: &tickpost::store::Found| {
        let item = world.store.read(found)?.unwrap().unwrap();
        untouched += u64::from(item.events.len() == 1);
        Ok(())
    };
    world.store.scan(&scope, each).unwrap();
    assert_eq!(untouched, 50 - done);
    world.tick(&[]);
    assert_eq!(world.count(State::Confirmed), 50);
}

#[test]
fn what_does_not_end_in_the_grace_stays_unknown_and_is_repeated_or_parked() {
    let general = "[tick]\nmax_runtime = \"1s\"\ngrace = \"2s\"";
    for (lines, want) in [(KEYED, "confirmed accepted"), ("", "unknown! interrupted")] {
        let world = World::with(general, lines);
        let id = world.post();
        let before = world.clock.now();
        let report = world.tick_as(VecDeque::from([None]), 0, &Options::default());
        assert_eq!(report.stopped_by, StoppedBy::MaxRuntime);
        assert!(
            world.clock.now().since(before) >= 3 * SECOND_MS,
            "it was given its grace"
        );
        assert_eq!(world.count(State::Unknown), 1);
        let report = world.tick(&[]);
        assert_eq!(report.recovered, 1);
        assert_eq!(world.word(id), want);
    }
    // A repeat after our own death need not wait; after a second one it does.
    let world = World::with(general, &format!("{KEYED}\nretry = {{ base = \"1m\" }}"));
    let id = world.post();
    world.tick_as(VecDeque::from([None]), 0, &Options::default());
    world.tick_as(VecDeque::from([None]), 0, &Options::default());
    assert_eq!(world.sends(), 2);
    assert_eq!(world.tick(&[]).attempts, 0);
    let due = world.stands(id).2.unwrap();
    world.tick_at(due, &[]);
    assert_eq!(world.word(id), "confirmed accepted");
}

#[test]
fn a_tick_that_is_asked_to_stop_takes_nothing_in() {
    let world = World::new("");
    let drops = world.dir.path().join("spool/incoming/dest");
    fs::create_dir_all(&drops).unwrap();
    fs::write(drops.join("x.json"), r#"{"request":{}}"#).unwrap();
    let report = Engine {
        config: &world.config,
        store: &world.store,
        clock: &world.clock,
        jitter: &mut || 0,
        stop: &|| true,
        watch: &mut |_| {},
    }
    .tick(&mut world.wire(), &Options::default())
    .unwrap();
    assert_eq!(report.stopped_by, StoppedBy::Signal);
    assert!(drops.join("x.json").exists());
    assert_eq!(world.tick(&[]).confirmed, 1);
}

#[test]
fn a_limit_is_a_limit() {
    for lines in ["", KEYED] {
        let world = World::new(lines);
        for _ in 0..20 {
            world.post();
        }
        let options = Options {
            limit: Some(7),
            ..Options::default()
        };
        let report = world.tick_as(VecDeque::new(), 0, &options);
        assert_eq!((report.attempts, report.confirmed), (7, 7), "{report:?}");
        assert_eq!(report.stopped_by, StoppedBy::Limit);
        assert_eq!(report.left, 13, "{report:?}");
        assert_eq!(world.count(State::Pending), 13);
    }
}

/// What is claimed and not sent is a person's work after a crash where there is no key.
#[test]
fn a_limit_is_one_for_all_destinations() {
    let world = World::with("[destination.other]\nbase_url = \"http://127.0.0.1:9\"", "");
    world.post();
    world.accept(|e| e.destination = "other".parse().unwrap());
    let mut looks = 0;
    let report = Engine {
        config: &world.config,
        store: &world.store,
        clock: &world.clock,
        jitter: &mut || 0,
        stop: &|| false,
        watch: &mut |_| {
            looks += 1;
            let counts = world.store.counts().unwrap();
            let claimed = |of: &BTreeMap<State, u64>| of.get(&State::Unknown).copied();
            let claimed: u64 = counts.destinations.values().filter_map(claimed).sum();
            assert_eq!(claimed, 0, "{counts:?}");
        },
    }
    .tick(
        &mut world.wire(),
        &Options {
            limit: Some(1),
            ..Options::default()
        },
    )
    .unwrap();
    assert_eq!((looks, report.attempts, report.left), (1, 1, 1));
}

/// When the journal is written and synced.
#[derive(Clone)]
struct Times(Hands, Rc<RefCell<Vec<(String, UnixMs)>>>);

impl Gate for Times {
    fn write(&self, op: &str, _: &Path) -> std::io::Result<()> {
        self.1.borrow_mut().push((op.to_owned(), self.0.now()));
        Ok(())
    }
}

#[test]
fn what_was_answered_is_synced_in_a_tenth_of_a_second_and_not_one_by_one() {
    const TAKES_MS: u64 = 30;
    let mut world = World::new(&format!("{KEYED}\nconcurrency = 1"));
    for _ in 0..20 {
        world.post();
    }
    let times = Times(world.clock.clone(), Rc::default());
    world.store = store_on(Gated(times.clone()), &world.dir.path().join("spool"));
    let report = world.tick_as(VecDeque::new(), TAKES_MS, &Options::default());
    assert_eq!(report.confirmed, 20);
    let ops = times.1.borrow();
    let of = |what: &str| -> Vec<UnixMs> {
        let of = ops.iter().filter(|(op, _)| op == what);
        of.map(|(_, at)| *at).collect()
    };
    let (written, synced) = (of("log append"), of("log sync"));
    for at in &written {
        let next = synced.iter().find(|sync| *sync >= at).unwrap();
        // Who waits for an answer syncs when it is there.
        assert!(next.since(*at) < 100 + TAKES_MS, "{written:?} {synced:?}");
    }
    assert!(synced.len() < written.len() / 2, "{written:?} {synced:?}");
}

/// A disk that has no room, once, for what a destination has shown.
#[derive(Clone)]
struct FullOnce(Rc<Cell<bool>>);

impl Gate for FullOnce {
    fn write(&self, _: &str, path: &Path) -> std::io::Result<()> {
        if path.ends_with("destinations/dest.json") && !self.0.replace(true) {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

#[test]
fn a_tick_that_runs_out_of_room_at_its_end_says_so() {
    let mut world = World::new("");
    world.post();
    world.tick(&[]);
    let full = FullOnce(Rc::default());
    world.store = store_on(Gated(full.clone()), &world.dir.path().join("spool"));
    world.post();
    let report = world.tick(&[]);
    assert!(full.0.get() && report.no_room.is_some(), "{report:?}");
    assert_eq!(
        (report.confirmed, report.stopped_by),
        (1, StoppedBy::NoRoom)
    );
}

/// Suspends the destination by refused connections until `end`.
fn suspend_until(world: &World, end: UnixMs) {
    while world.clock.now() < end {
        world.tick(&[refused()]);
        let until = world.until().unwrap();
        let to = until.max(world.clock.now().plus(SECOND_MS));
        world.clock.pass(to.since(world.clock.now()));
    }
}

#[test]
fn age_does_not_run_while_the_destination_is_suspended() {
    let lines = format!("{KEYED}\nretry = {{ base = \"1m\", factor = 1.0, age = \"1h\" }}");
    let world = World::new(&lines);
    let id = world.post();
    suspend_until(&world, START.plus(5 * HOUR_MS));
    assert_eq!(world.stands(id).0, "pending");
    let resumed = world.clock.now();
    world.tick(&[status(408)]);
    assert_eq!(world.word(id), "pending request_timeout", "it has not aged");
    assert_eq!(world.until(), None);
    world.clock.pass(HOUR_MS - MINUTE_MS);
    world.tick(&[status(408)]);
    assert_eq!(world.word(id), "pending request_timeout");
    world.clock.pass(2 * MINUTE_MS);
    world.tick(&[status(408)]);
    assert_eq!(world.word(id), "failed exhausted", "resumed at {resumed}");
}

#[test]
fn age_does_not_run_in_a_suspension_for_an_item_that_was_interrupted_either() {
    let lines = format!("{KEYED}\nretry = {{ base = \"1m\", age = \"1h\" }}");
    let world = World::with("[tick]\ngrace = \"0s\"", &lines);
    let id = world.post();
    suspend_until(&world, START.plus(5 * HOUR_MS));
    // The one that tries the destination is cut off.
    let options = Options {
        max_runtime_ms: Some(1),
        ..Options::default()
    };
    world.tick_as(VecDeque::from([None]), 0, &options);
    assert_eq!(world.count(State::Unknown), 1);
    let report = world.tick(&[]);
    assert_eq!(report.recovered, 1);
    assert_eq!(world.word(id), "confirmed accepted");
}

#[test]
fn a_wait_beyond_the_longest_is_a_hold_that_ends_by_itself() {
    let world = World::new("retry = { max_wait = \"1d\" }");
    let id = world.post();
    world.tick(&[wait(408, 86_400)]);
    assert_eq!(world.stands(id).0, "pending", "exactly the longest");
    world.tick_at(START.plus(DAY_MS), &[wait(408, 86_401)]);
    let due = world.clock.now().plus(86_401 * SECOND_MS);
    assert_eq!(
        world.stands(id),
        ("held".to_owned(), "request_timeout".to_owned(), Some(due))
    );
    let report = world.tick_at(due, &[]);
    assert_eq!((report.released, report.attempts), (1, 1), "{report:?}");
    assert_eq!(world.word(id), "confirmed accepted");

    // The same of a whole destination: one item is held, the others wait.
    let world = World::new("concurrency = 1");
    let ids: Vec<RequestId> = (0..3).map(|_| world.post()).collect();
    world.tick(&[wait(429, 2 * 86_400)]);
    assert_eq!(world.word(ids[0]), "held rate_limited");
    assert_eq!(world.stands(ids[1]).0, "pending");
    world.tick_at(START.plus(2 * DAY_MS), &[]);
    assert_eq!(world.count(State::Confirmed), 3);
}

#[test]
fn what_is_due_goes_by_minute_and_then_by_id() {
    let world = World::new("concurrency = 1");
    let later = world.accept(|e| e.not_before = Some(START.plus(5 * MINUTE_MS)));
    let soon = world.accept(|e| e.not_before = Some(START.plus(2 * MINUTE_MS)));
    let same = world.accept(|e| e.not_before = Some(START.plus(2 * MINUTE_MS).minus(1)));
    world.tick(&[]);
    assert_eq!(world.sends(), 0);
    world.clock.pass(10 * MINUTE_MS);
    let now = world.post();
    world.tick(&[]);
    let order: Vec<RequestId> = world.begun.borrow().iter().map(|(_, id)| *id).collect();
    assert_eq!(
        order,
        [soon, same, later, now],
        "by minute, within it by id"
    );
    assert!(world.dir.path().exists());
}

#[test]
fn what_fails_together_suspends_once() {
    let world = World::new("concurrency = 4");
    for _ in 0..6 {
        world.post();
    }
    let report = world.tick(&[refused(), refused()]);
    assert_eq!(report.attempts, 2, "both were under way: {report:?}");
    for wait_s in [30, 60, 120] {
        let until = world.until().unwrap();
        assert_eq!(until, world.clock.now().plus(wait_s * SECOND_MS));
        assert_eq!(world.tick_at(until, &[refused()]).attempts, 1);
    }
}

#[test]
fn of_the_waits_that_are_asked_for_together_the_longest_holds() {
    let said = |status, seconds| {
        let Outcome::Answered(mut answer) = wait(status, seconds) else {
            panic!("no answer")
        };
        answer.body = format!(r#"{{"message":"as {status} says"}}"#).into_bytes();
        Outcome::Answered(answer)
    };
    for (script, reason, by) in [
        ([said(429, 600), said(503, 5)], Reason::RATE_LIMITED, 429),
        ([said(503, 5), said(429, 600)], Reason::RATE_LIMITED, 429),
        // Of two that are as long the later one.
        ([said(429, 600), said(503, 600)], Reason::OVERLOADED, 503),
    ] {
        let world = World::new("concurrency = 4");
        for _ in 0..6 {
            world.post();
        }
        assert_eq!(world.tick(&script).attempts, 2, "both were under way");
        assert_eq!(world.until(), Some(START.plus(600 * SECOND_MS)));
        let memory = world.store.memory(&"dest".parse().unwrap()).unwrap();
        let suspended = memory.suspended.unwrap();
        assert_eq!(suspended.reason, reason, "and says why");
        assert_eq!(suspended.tries, 1);
        let note = suspended.note.unwrap_or_default();
        assert!(note.contains(&by.to_string()), "{note}");
    }
}

#[test]
fn a_receiver_that_refuses_once_it_can_be_reached_stays_suspended() {
    let world = World::new("concurrency = 1");
    for _ in 0..6 {
        world.post();
    }
    world.tick(&[refused()]);
    for wait_m in [30, 60] {
        let until = world.until().unwrap();
        assert_eq!(world.tick_at(until, &[status(403)]).held, 1);
        let until = world.until().unwrap();
        assert_eq!(until, world.clock.now().plus(wait_m * MINUTE_MS));
    }
}

#[test]
fn silence_suspends_for_half_a_minute_doubling_to_a_quarter_of_an_hour() {
    let world = World::new(&format!("concurrency = 1\n{KEYED}"));
    for _ in 0..20 {
        world.post();
    }
    let report = world.tick(&[lost(), lost(), lost(), lost()]);
    assert_eq!(report.attempts, 4, "four in a row are silence: {report:?}");
    for wait_s in [30, 60, 120, 240, 480, 900, 900] {
        let until = world.until().unwrap();
        assert_eq!(until, world.clock.now().plus(wait_s * SECOND_MS));
        let report = world.tick_at(until, &[lost()]);
        assert_eq!(report.attempts, 1, "one item tries it: {report:?}");
    }
}

#[test]
fn an_operator_who_holds_a_destination_ends_what_was_claimed_ahead() {
    let world = World::new(&format!("concurrency = 1\n{KEYED}"));
    for _ in 0..5 {
        world.post();
    }
    let dest = "dest".parse().unwrap();
    let hold = DestinationHold {
        at: START,
        by: "someone(1)".to_owned(),
        note: None,
    };
    let mut wire = Wire {
        clock: world.clock.clone(),
        script: VecDeque::new(),
        takes_ms: 10,
        under_way: VecDeque::new(),
        begun: Rc::clone(&world.begun),
    };
    let report = Engine {
        config: &world.config,
        store: &world.store,
        clock: &world.clock,
        jitter: &mut || 0,
        stop: &|| false,
        watch: &mut |_| {
            if world.sends() == 2 {
                world
                    .store
                    .set_destination_hold(&dest, Some(&hold))
                    .unwrap();
            }
        },
    }
    .tick(&mut wire, &Options::default())
    .unwrap();
    assert!(world.sends() < 5, "it went on: {report:?}");
    assert_eq!(world.count(State::Confirmed), report.confirmed);
    assert_eq!(world.count(State::Pending), 5 - report.confirmed);
}

#[test]
fn a_tick_waits_for_what_only_a_rate_keeps_back() {
    let world = World::new("rate = \"5/s\"");
    for _ in 0..7 {
        world.post();
    }
    let report = world.tick(&[]);
    assert_eq!(report.confirmed, 7, "{report:?}");
    let begun = world.begun.borrow();
    let times: Vec<UnixMs> = begun.iter().map(|(at, _)| *at).collect();
    assert!(
        times.windows(2).all(|two| two[1].since(two[0]) >= 200),
        "{times:?}"
    );
}

#[test]
fn a_tick_waits_for_no_rate_once_nothing_is_due() {
    let world = World::new("rate = \"1/m\"");
    world.post();
    assert_eq!(world.tick(&[]).confirmed, 1);
    assert_eq!(world.clock.now(), START);
}

/// It has nothing under way meanwhile, and who never answers would take every place.
#[test]
fn a_place_is_kept_for_what_a_rate_keeps_back() {
    let general = "[tick]\nconcurrency = 2\nmax_runtime = \"9s\"\n[destination.silent]\nbase_url = \"http://127.0.0.1:9\"";
    let world = World::with(general, "rate = \"5/s\"");
    let silent = |e: &mut Envelope| e.destination = "silent".parse().unwrap();
    let ids: Vec<RequestId> = (0..3).map(|_| world.post()).collect();
    for _ in 0..2 {
        world.accept(silent);
    }
    // The second that is sent is never answered.
    let script = VecDeque::from([Some(status(200)), None]);
    world.tick_as(script, 0, &Options::default());
    let begun = world.begun.borrow();
    let is_silent: Vec<bool> = begun.iter().map(|(_, id)| !ids.contains(id)).collect();
    assert_eq!(is_silent, [false, true, false, false, true]);
}

#[test]
fn what_is_held_for_another_reason_stays_when_a_secret_is_accepted_again() {
    let world = World::new("concurrency = 1");
    let refused = world.post();
    world.tick(&[status(401)]);
    assert_eq!(world.stands(refused).0, "held");
    let envelope = world.item(refused).envelope;
    let other = RequestId(uuid::Uuid::now_v7());
    let mut accepted = Event::new(EventKind::Accepted, START, State::Held);
    accepted.reason = Some(Reason::OPERATOR);
    let envelope = Envelope {
        request_id: other,
        ..envelope
    };
    world.store.accept(envelope, accepted).unwrap();
    world.post();
    let until = world.until().unwrap();
    let report = world.tick_at(until, &[]);
    assert_eq!(report.released, 1, "{report:?}");
    assert_eq!(world.stands(other).0, "held");
    world.tick(&[]);
    assert_eq!(world.word(refused), "confirmed accepted");
    assert_eq!(world.stands(other).0, "held");
}

#[test]
fn a_change_of_the_configuration_gives_back_what_it_may_mend_and_nothing_else() {
    let mut world = World::new("concurrency = 1");
    let not_found = world.post();
    world.tick(&[status(404)]);
    let refused = world.post();
    world.tick(&[status(402)]);
    let before = [world.word(not_found), world.word(refused)];
    assert!(
        before.iter().all(|word| word.starts_with("held ")),
        "{before:?}"
    );
    world.tick(&[]);
    assert_eq!([world.word(not_found), world.word(refused)], before);
    let path = world.dir.path().join("tickpost.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace(":9\"", ":99\"")).unwrap();
    world.config = Config::load(&path).unwrap();
    let report = world.tick(&[]);
    assert_eq!(report.released, 1, "{report:?}");
    assert_eq!(world.word(not_found), "confirmed accepted");
    assert_eq!(world.word(refused), before[1]);
}

#[test]
fn a_plan_calls_what_may_have_arrived_a_repeat() {
    let world = World::new(KEYED);
    let id = world.post();
    world.tick(&[lost()]);
    world.clock.pass(HOUR_MS);
    let fresh = world.post();
    let steps = plan(&world.config, &world.store, None, None, world.clock.now()).unwrap();
    let action = |id| {
        steps
            .iter()
            .find(|step| step.request_id == id)
            .unwrap()
            .action
    };
    assert_eq!([action(id), action(fresh)], ["resend", "send"]);
}

#[test]
fn a_plan_releases_what_is_held_until_now_and_not_before() {
    let world = World::new("retry = { max_wait = \"1d\" }");
    let id = world.post();
    world.tick(&[wait(408, 2 * 86_400)]);
    let (state, _, due) = world.stands(id);
    assert_eq!(state, "held");
    let actions = |at| {
        let steps = plan(&world.config, &world.store, None, None, at).unwrap();
        steps.iter().map(|step| step.action).collect::<Vec<_>>()
    };
    assert_eq!(actions(due.unwrap().minus(1)), [""; 0]);
    assert_eq!(actions(due.unwrap()), ["release"]);
}

/// The most that were claimed at once in a tick, begun or not.
fn most_claimed(world: &World, wire: &mut dyn Transport) -> u64 {
    let most = Cell::new(0);
    Engine {
        config: &world.config,
        store: &world.store,
        clock: &world.clock,
        jitter: &mut || 0,
        // It is asked between any two steps.
        stop: &|| {
            most.set(most.get().max(world.count(State::Unknown)));
            false
        },
        watch: &mut |_| {},
    }
    .tick(wire, &Options::default())
    .unwrap();
    most.get()
}

/// After a crash it would be a person's work.
#[test]
fn without_a_key_nothing_is_claimed_before_its_rate_lets_it_begin() {
    let world = World::new("rate = \"20/m\"");
    for _ in 0..4 {
        world.post();
    }
    let mut wire = world.wire();
    assert_eq!(most_claimed(&world, &mut wire), 1);
    assert_eq!(world.count(State::Confirmed), 4);
}

#[test]
fn no_more_is_under_way_than_the_ticks_concurrency() {
    let world = World::with("[tick]\nconcurrency = 3", "concurrency = 8");
    for _ in 0..20 {
        world.post();
    }
    // Without a key nothing is claimed that is not begun.
    let mut wire = world.wire();
    assert_eq!(most_claimed(&world, &mut wire), 3);
    assert_eq!(world.count(State::Confirmed), 20);
}
