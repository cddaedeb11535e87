//! What the tests of stores share: items that differ in one thing, spools, and a disk that does not
//! wait for the platter.

#![allow(dead_code, reason = "every test crate uses a part of it")]

#[path = "gated.rs"]
mod gated;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use tickpost::model::envelope::{Body, Envelope, Request, Requester, VERSION, sha256_hex};
use tickpost::model::event::{Event, EventKind};
use tickpost::model::ids::{DestName, RequestId};
use tickpost::model::reason::Reason;
use tickpost::model::state::State;
use tickpost::model::time::UnixMs;
use tickpost::store::disk::Disk;
use tickpost::store::file::FileStore;
use tickpost::store::{Owner, Want};
use uuid::Uuid;

#[allow(unused_imports, reason = "every test crate uses a part of it")]
pub(crate) use gated::{Gate, Gated, QuickDisk};

/// 2026-11-29T15:40:30Z: half a minute into a minute, so that minutes and instants differ.
pub(crate) const NOW: UnixMs = UnixMs(1_795_966_830_000);

/// Milliseconds in a minute.
pub(crate) const MINUTE: u64 = 60_000;

/// The `n`th id; later ones are greater as text.
pub(crate) fn id(n: u64) -> RequestId {
    let time = u128::from(NOW.0) << 80;
    RequestId(Uuid::from_u128(
        time | 0x7000_8000_0000_0000_0000 | u128::from(n),
    ))
}

pub(crate) fn dest(name: &str) -> DestName {
    name.parse().unwrap()
}

/// The `n`th item, to `a`.
pub(crate) fn envelope(n: u64) -> Envelope {
    let body = format!("{{\"n\":{n}}}");
    Envelope {
        v: VERSION,
        request_id: id(n),
        destination: dest("a"),
        enqueued_at: NOW,
        request: Request {
            method: "POST".to_owned(),
            path: "/x".to_owned(),
            query: vec![],
            headers: vec![],
            content_type: None,
            body_sha256: sha256_hex(body.as_bytes()),
            body: Some(Body::Text(body)),
        },
        requester: Requester::default(),
        notify: vec![],
        labels: std::collections::BTreeMap::new(),
        key: None,
        retry_of: None,
        not_before: None,
        not_after: None,
        notice: false,
    }
}

pub(crate) fn accepted() -> Event {
    Event::new(EventKind::Accepted, NOW, State::Pending)
}

/// What an attempt came to.
pub(crate) fn attempt(n: u32, at: UnixMs, state: State, due: Option<UnixMs>) -> Event {
    let mut event = Event::new(EventKind::Attempt, at, state);
    event.n = Some(n);
    event.ms = Some(1);
    event.due = due;
    event.reason = Some(match state {
        State::Pending => Reason::OVERLOADED,
        State::Unknown => Reason::TIMEOUT_AFTER_SEND,
        State::Held => Reason::AUTH_INVALID,
        State::Confirmed => Reason::ACCEPTED,
        State::Failed => Reason::CONTENT_REJECTED,
    });
    event
}

/// What a person or a time does.
pub(crate) fn by_hand(kind: EventKind, at: UnixMs, state: State, due: Option<UnixMs>) -> Event {
    let mut event = Event::new(kind, at, state);
    event.due = due;
    event
}

pub(crate) fn owner(now: UnixMs) -> Owner<'static> {
    Owner {
        who: "a test",
        now,
        told_of_corrupt: &[],
        told_in_text: &[],
    }
}

pub(crate) fn want(items_max: usize) -> Vec<Want> {
    vec![Want {
        destination: dest("a"),
        items_max,
        looks_max: usize::MAX,
    }]
}

/// A new spool, in memory where the machine has such a place, and the directory that holds it.
pub(crate) fn new_spool() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let dir = dir.unwrap();
    let root = dir.path().join("spool");
    FileStore::init(&root, "", id(1).0, NOW).unwrap();
    (dir, root)
}

/// The store of a spool, all of whose directories are to be there.
pub(crate) fn store_on(disk: impl Disk + 'static, root: &Path) -> FileStore {
    FileStore::open_on(Arc::new(disk), root, true).unwrap()
}
