//! A journal: reading it stops at the first damage, and replay touches nothing outside the spool,
//! whatever the records say.

use std::cell::RefCell;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use tickpost::model::envelope::sha256_hex;
use tickpost::model::event::{Event, EventKind};
use tickpost::model::item::event_line;
use tickpost::model::notice::{Merged, Notice};
use tickpost::model::state::State;
use tickpost::model::time::UnixMs;
use tickpost::store::file::FileStore;
use tickpost::store::file::journal::{
    CarriedClaim, ClaimRecord, MoveRecord, Overlay, Record, decode,
};
use tickpost::store::{Owner, Store};

#[path = "../../tests/common/gated.rs"]
mod gated;

use super::{Target, item_file, pick};
use gated::{Gate, Gated};

/// See [`check`].
pub const TARGET: Target = Target {
    name: "journal",
    check,
    seeds,
};

const NOW: UnixMs = UnixMs(1_795_966_830_000);

/// Holds for any bytes: lines of JSON, for a sum is not found by chance, or a whole journal.
///
/// # Panics
///
/// If it does not.
pub fn check(bytes: &[u8]) {
    reading(bytes);
    let mut journal = Vec::new();
    for line in bytes.split(|b| *b == b'\n') {
        let mut sum = sha256_hex(line);
        sum.truncate(16);
        journal.extend([sum.as_bytes(), b" ", line, b"\n"].concat());
    }
    reading(&journal);
    if !decode(&journal).is_empty() {
        replaying(&journal);
    }
}

fn reading(journal: &[u8]) {
    let records = decode(journal);
    let cut = pick(journal, 1, journal.len() + 1);
    let fewer = decode(&journal[..cut]);
    assert!(records.starts_with(&fewer), "a cut takes records away");
    let mut damaged = journal.to_vec();
    if let Some(byte) = damaged.get_mut(cut) {
        *byte ^= 1;
        let fewer = decode(&damaged);
        assert!(records.starts_with(&fewer), "damage takes records away");
    }
    for record in &records {
        let json = serde_json::to_string(record).unwrap();
        let again: Record = serde_json::from_str(&json).unwrap();
        assert_eq!(*record, again);
    }
    let overlay = Overlay::of(records);
    for id in overlay.ids() {
        let (place, _) = overlay.now(id, "pending/billing");
        assert!(place.is_none() || !overlay.is_empty());
    }
}

thread_local! {
    static BENCH: RefCell<Option<Bench>> = const { RefCell::new(None) };
}

/// A directory with a spool in it, and beside the spool what must not be touched.
struct Bench {
    dir: tempfile::TempDir,
}

const BESIDE: &str = "beside.jsonl";

impl Bench {
    fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() {
            tempfile::tempdir_in(memory)
        } else {
            tempfile::tempdir()
        };
        Self { dir: dir.unwrap() }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("a/spool")
    }

    /// A spool with one item, a claimed one beside it, and a journal.
    fn fill(&self, journal: &[u8]) {
        let root = self.root();
        if root.exists() {
            std::fs::remove_dir_all(&root).unwrap();
        }
        std::fs::create_dir_all(&root).unwrap();
        let spool_id = uuid::Uuid::from_u128(7);
        FileStore::init(&root, "", spool_id, NOW).unwrap();
        std::fs::create_dir_all(root.join("pending/billing")).unwrap();
        let (item, bytes) = item_file::item();
        let name = format!("{}.jsonl", item.envelope.request_id);
        std::fs::write(root.join("pending/billing").join(name), &bytes).unwrap();
        std::fs::write(root.join("journal/00000001.jsonl"), journal).unwrap();
        for dir in [self.dir.path(), &self.dir.path().join("a")] {
            std::fs::write(dir.join(BESIDE), bytes.as_slice()).unwrap();
        }
    }

    /// Every path outside the spool, with what is in it.
    fn outside(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found = Vec::new();
        let mut dirs = vec![self.dir.path().to_owned()];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path == self.root() {
                    continue;
                }
                let bytes = if path.is_dir() {
                    dirs.push(path.clone());
                    Vec::new()
                } else {
                    std::fs::read(&path).unwrap()
                };
                found.push((path, bytes));
            }
        }
        found.sort();
        found
    }
}

fn replaying(journal: &[u8]) {
    BENCH.with_borrow_mut(|bench| {
        let bench = bench.get_or_insert_with(Bench::new);
        bench.fill(journal);
        let before = bench.outside();
        let disk = Arc::new(Gated(Fence(bench.root().into())));
        let store = FileStore::open_on(disk, &bench.root(), true).unwrap();
        let owner = Owner {
            who: "a test",
            now: NOW,
            told_of_corrupt: &[],
            told_in_text: &[],
        };
        // It may say no; it may not do harm. What it has done is done once.
        let closed = store
            .lock(&owner)
            .and_then(|session| session.close(NOW, None));
        if closed.is_ok() {
            let left = std::fs::read_dir(bench.root().join("journal")).unwrap();
            assert_eq!(left.count(), 0, "a replayed journal goes");
        }
        assert_eq!(bench.outside(), before, "nothing outside was touched");
    });
}

/// Lets nothing be touched but what is within one directory.
#[derive(Clone)]
struct Fence(Arc<Path>);

impl Gate for Fence {
    fn write(&self, op: &str, path: &Path) -> io::Result<()> {
        // Of a log only what opens it has a path.
        if op.starts_with("log ") {
            return Ok(());
        }
        let below = path.strip_prefix(&self.0);
        let below = below.unwrap_or_else(|_| panic!("outside: {}", path.display()));
        let plain = below
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        assert!(plain, "may lead outside: {}", path.display());
        Ok(())
    }

    fn read(&self, op: &str, path: &Path) -> io::Result<()> {
        self.write(op, path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.write("from", from)?;
        self.write("to", to)
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let (item, _) = item_file::item();
    let id = item.envelope.request_id;
    let pending = format!("pending/billing/{id}.jsonl");
    let claimed = format!("unknown/billing/{id}.1.jsonl");
    let mut event = Event::new(EventKind::Attempt, NOW, State::Held);
    event.n = Some(1);
    let notices = Notice::of(&item, &event, 2, &["ops".parse().unwrap()]);
    let claim = Record::Claim {
        at: NOW,
        items: vec![ClaimRecord {
            from: pending.clone(),
            n: 1,
        }],
    };
    let step = |from: &str, to: &str| MoveRecord {
        from: from.to_owned(),
        to: to.to_owned(),
        event: Some(event.clone()),
        event_number: 2,
        turn: Some(NOW),
        why: None,
        file: None,
        notices: notices.clone(),
    };
    let aside = MoveRecord {
        event: None,
        event_number: 0,
        why: Some("it is torn".to_owned()),
        ..step(&pending, &format!("corrupt/{id}.jsonl"))
    };
    let records = [
        claim,
        Record::Move(Box::new(step(
            &claimed,
            &format!("held/billing/{id}.jsonl"),
        ))),
        Record::Move(Box::new(step(
            &pending,
            &format!("held/billing/20261129T1600Z/{id}.jsonl"),
        ))),
        Record::Move(Box::new(aside)),
        Record::Tell { notices },
        Record::Carry {
            claims: vec![CarriedClaim { id, at: NOW }],
            notices: Merged::default(),
        },
    ];
    let lines: Vec<Vec<u8>> = records
        .iter()
        .map(|record| serde_json::to_vec(record).unwrap())
        .collect();
    let mut seeds = lines.clone();
    seeds.push(lines[..2].join(&b'\n'));
    seeds.push(lines.join(&b'\n'));
    for (good, bad) in [
        ("pending/billing", "../billing"),
        ("pending/billing", "pending/.."),
        ("corrupt/", "/tmp/"),
        ("corrupt/", "../../"),
    ] {
        let text = String::from_utf8(lines.join(&b'\n')).unwrap();
        seeds.push(text.replace(good, bad).into_bytes());
    }
    seeds.push(event_line(&event).unwrap());
    seeds
}
