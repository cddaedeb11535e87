//! Longer stories at a bench: many items, ticks to the end, copies of a spool.

#![allow(dead_code, reason = "every test crate uses a part of it")]
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::fs;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread;

use serde_json::Value;
use tickpost::clock::{Clock as _, SystemClock};
use tickpost::model::envelope::{Body, Envelope, Request, Requester, VERSION, sha256_hex};
use tickpost::model::event::{Event, EventKind};
use tickpost::model::ids::RequestId;
use tickpost::model::state::State;
use tickpost::model::time::UnixMs;
use tickpost::store::Store as _;
use tickpost::store::file::FileStore;

use crate::bench::{Bench, KEYED};

/// Waits so short that the next tick finds the item due.
pub(crate) const SOON: &str = "[retry]\nbase = \"1ms\"\nmax = \"2ms\"\n";

/// A bench with what longer stories need.
pub(crate) struct Desk(Bench);

impl Deref for Desk {
    type Target = Bench;

    fn deref(&self) -> &Bench {
        &self.0
    }
}

impl Desk {
    /// A fresh spool with these destinations, as [`Bench::with`] takes them, and short waits.
    pub(crate) fn new(destinations: &[(&str, &str, &str)]) -> Self {
        let bench = Bench::new();
        bench.configure(SOON, destinations);
        Self(bench)
    }

    /// A destination `keyed` and one `plain`, without a key, of one receiver.
    pub(crate) fn of(url: &str) -> Self {
        Self::new(&[("keyed", url, KEYED), ("plain", url, "")])
    }

    /// A copy of a spool, made to be one of its own.
    pub(crate) fn copy_of(root: &Path) -> Self {
        let bench = Bench::bare();
        copy(root, bench.spool());
        let path = bench.spool().join("spool.json");
        let mut spool = bench.read_json("spool.json");
        spool["lock_inode"] = fs::metadata(bench.spool().join("lock"))
            .unwrap()
            .ino()
            .into();
        fs::write(&path, spool.to_string()).unwrap();
        Self(bench)
    }

    /// Accepts an item with a small body.
    pub(crate) fn post(&self, destination: &str) -> String {
        self.enqueue(destination, &["--data", "{\"n\":1}"])
    }

    /// Accepts many items, faster than by a process each; their ids in order.
    pub(crate) fn fill(&self, destination: &str, count: usize) -> Vec<String> {
        let ids: Vec<RequestId> = (0..count)
            .map(|_| RequestId(uuid::Uuid::now_v7()))
            .collect();
        let now = SystemClock::new().now();
        thread::scope(|scope| {
            for part in ids.chunks(count.div_ceil(8).max(1)) {
                scope.spawn(move || {
                    let store = FileStore::open(self.spool(), false).unwrap();
                    for id in part {
                        let accepted = Event::new(EventKind::Accepted, now, State::Pending);
                        let envelope = envelope(*id, destination, now);
                        store.accept(envelope, accepted).unwrap();
                    }
                });
            }
        });
        ids.iter().map(ToString::to_string).collect()
    }

    /// Ticks until nothing is left that a tick would send.
    pub(crate) fn tick_to_end(&self) {
        let store = FileStore::open(self.spool(), false).unwrap();
        for _ in 0..100 {
            self.tick();
            let counts = store.counts().unwrap();
            let states = counts.destinations.values().flatten();
            let open = states.filter(|(state, _)| matches!(state, State::Pending | State::Unknown));
            let open: u64 = open.map(|(_, count)| count).sum();
            if open == counts.parked.values().sum::<u64>() {
                return;
            }
        }
        panic!("it never ends: {:#?}", self.list(&[]));
    }

    /// Where an item stands.
    #[track_caller]
    pub(crate) fn stands(&self, id: &str) -> Stands {
        let item = self.show(id);
        let last = item["events"].as_array().unwrap().last().unwrap();
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Stands {
            state: word(&item["state"]),
            reason: word(&last["reason"]),
            parked: item["parked"] == true,
        }
    }

    /// How many items are in each state that has any.
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        let states = self.json(&["status"])["states"].clone();
        let counts = states.as_object().unwrap().iter();
        counts
            .map(|(state, count)| (state.clone(), count.as_u64().unwrap()))
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    /// A destination's suspension, as `status` tells of it.
    pub(crate) fn suspended(&self, destination: &str) -> Value {
        self.json(&["status"])["destinations"][destination]["suspended"].clone()
    }

    /// Makes a destination's suspension look as if its time were over.
    pub(crate) fn end_suspension(&self, destination: &str) {
        let relative = format!("destinations/{destination}.json");
        let mut memory = self.read_json(&relative);
        assert!(memory["suspended"]["until"].is_string(), "{memory}");
        memory["suspended"]["until"] = memory["suspended"]["since"].clone();
        fs::write(self.spool().join(relative), memory.to_string()).unwrap();
    }
}

/// State, reason, and for `!` behind the state: parked.
pub(crate) fn stands(state: &str, reason: &str) -> Stands {
    Stands {
        state: state.trim_end_matches('!').to_owned(),
        reason: reason.to_owned(),
        parked: state.ends_with('!'),
    }
}

/// What becomes of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stands {
    pub(crate) state: String,
    pub(crate) reason: String,
    pub(crate) parked: bool,
}

/// One JSON value.
#[track_caller]
pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// The events of an item that are attempts.
pub(crate) fn attempts(item: &Value) -> Vec<Value> {
    let events = item["events"].as_array().unwrap().iter();
    let attempts = events.filter(|event| event["event"] == "attempt");
    attempts.cloned().collect()
}

fn envelope(id: RequestId, destination: &str, now: UnixMs) -> Envelope {
    let body = format!("{{\"id\":\"{id}\"}}");
    Envelope {
        v: VERSION,
        request_id: id,
        destination: destination.parse().unwrap(),
        enqueued_at: now,
        request: Request {
            method: "POST".to_owned(),
            path: String::new(),
            query: Vec::new(),
            headers: Vec::new(),
            content_type: Some("application/json".to_owned()),
            body_sha256: sha256_hex(body.as_bytes()),
            body: Some(Body::Text(body)),
        },
        requester: Requester::default(),
        notify: Vec::new(),
        labels: BTreeMap::new(),
        key: None,
        retry_of: None,
        not_before: None,
        not_after: None,
        notice: false,
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
            let modified = entry.metadata().unwrap().modified().unwrap();
            let file = fs::File::options().append(true).open(&target).unwrap();
            file.set_modified(modified).unwrap();
        }
    }
}

/// Numbers that look random and are the same in every run.
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    /// A number from 0 up to but not `below`.
    pub(crate) fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % (below as u64)).unwrap()
    }
}
