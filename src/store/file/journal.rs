//! What the owner of the lock has moved, ahead of the directories.
//!
//! One record a line: the first 16 hex digits of the SHA-256 of the JSON, a blank, the JSON.
//! Replay stops at the first line that is not such a record: what lies behind it was never
//! synced, so nothing was done because of it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::StoreError;
use super::super::disk::{Disk, Kind, Log};
use super::{layout::Place, reserve};
use crate::model::envelope::sha256_hex;
use crate::model::event::Event;
use crate::model::ids::RequestId;
use crate::model::notice::{Merged, Notice};
use crate::model::time::UnixMs;

/// A journal file that is larger than this is closed and the next one begun.
pub const SEGMENT_BYTES: u64 = 8 * 1024 * 1024;

/// The largest journal file that is read back, in bytes: a segment and one group's settles.
pub const READ_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// One record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Record {
    /// Items claimed for an attempt. They are renamed, and sent, after this is synced.
    Claim {
        /// When.
        at: UnixMs,
        /// Which.
        items: Vec<ClaimRecord>,
    },
    /// One item, or one file, that moves.
    Move(Box<MoveRecord>),
    /// Notices of something that is no item's event.
    Tell {
        /// Which.
        notices: Vec<Notice>,
    },
    /// The first record of a segment that follows another: what of the older ones still
    /// matters.
    Carry {
        /// Items that are being sent.
        claims: Vec<CarriedClaim>,
        /// All notices so far; this replaces what was gathered from older records.
        notices: Merged,
    },
}

/// A claim of one item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRecord {
    /// Where it was.
    pub from: String,
    /// The number of the attempt.
    pub n: u32,
}

/// A claim of an older segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedClaim {
    /// The item.
    pub id: RequestId,
    /// When it was claimed.
    pub at: UnixMs,
}

/// A move of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveRecord {
    /// Where it was.
    pub from: String,
    /// Where it goes.
    pub to: String,
    /// What happened to the item; it becomes a line of its file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<Event>,
    /// Which of the item's events that is, counted from 1: replay appends it only once.
    #[serde(default)]
    pub event_number: usize,
    /// The file's time after it: when the item's turn comes, as a hint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<UnixMs>,
    /// Why a file is set aside, for `corrupt/NAME.why.json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Which file is set aside. Without it, whatever is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileMark>,
    /// Who is told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

/// What tells a file from another one that comes to its place: what is in it. An inode is given again,
/// and a spool that was moved has others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMark {
    /// How long it is.
    pub bytes: u64,
    /// SHA-256 of its beginning, in hex; of nothing if it cannot be read.
    pub begins: String,
}

/// How much of a file counts as its beginning, in bytes.
const BEGINNING_BYTES: u64 = 64 * 1024;

impl FileMark {
    /// That of what is at a path. `None` if nothing is.
    #[must_use]
    pub fn of(disk: &dyn Disk, path: &Path) -> Option<Self> {
        let bytes = disk.stat(path).ok()?.bytes;
        let beginning = disk.read_part(path, 0, BEGINNING_BYTES);
        Some(Self {
            bytes,
            begins: sha256_hex(&beginning.unwrap_or_default()),
        })
    }
}

impl MoveRecord {
    /// A move with nothing to tell of it: no event, no reason, no notices.
    #[must_use]
    pub fn plain(from: &Place, to: &Place, turn: Option<UnixMs>) -> Self {
        Self {
            from: from.path(),
            to: to.path(),
            event: None,
            event_number: 0,
            turn,
            why: None,
            file: None,
            notices: Vec::new(),
        }
    }

    /// Whether a dropped file is set aside.
    #[must_use]
    pub fn is_of_drop(&self) -> bool {
        self.why.is_some() && self.from.starts_with("incoming/")
    }
}

/// The open journal of the lock's owner.
pub struct Journal {
    log: Box<dyn Log>,
    name: String,
    path: PathBuf,
    bytes: u64,
    bytes_synced: u64,
    /// How far space was set aside.
    bytes_reserved: u64,
}

impl Journal {
    /// Begins a segment.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub fn begin(disk: &dyn Disk, root: &Path, number: u64) -> Result<Self, StoreError> {
        let name = segment_name(number);
        let path = root.join("journal").join(&name);
        let log = disk
            .open_log(&path)
            .map_err(|source| io_error("open", &path, source))?;
        let dir = root.join("journal");
        disk.sync_dir(&dir)
            .map_err(|source| io_error("sync directory", &dir, source))?;
        Ok(Self {
            log,
            name,
            path,
            bytes: 0,
            bytes_synced: 0,
            bytes_reserved: 0,
        })
    }

    /// Appends a record. It survives the death of the process, and loss of power after
    /// [`Self::sync`].
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] or [`StoreError::Encode`]. After one for want of room it may be done again.
    pub fn append(&mut self, record: &Record) -> Result<(), StoreError> {
        let line = encode(record)?;
        let appended = match self.log.append(&line) {
            // What stands behind a part of a record counts for nothing.
            Err(full) if reserve::is_full(&full) => self.log.cut(self.bytes).and(Err(full)),
            appended => appended,
        };
        appended.map_err(|source| io_error("append to", &self.path, source))?;
        self.bytes += line.len() as u64;
        Ok(())
    }

    /// Makes every record durable.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub fn sync(&mut self) -> Result<(), StoreError> {
        if self.bytes > self.bytes_synced {
            self.log
                .sync()
                .map_err(|source| io_error("sync", &self.path, source))?;
            self.bytes_synced = self.bytes;
        }
        Ok(())
    }

    /// How much of so many bytes for records to come is not set aside yet.
    pub(super) fn lacking(&self, bytes: u64) -> u64 {
        (self.bytes + bytes).saturating_sub(self.bytes_reserved.max(self.bytes))
    }

    /// Sets space aside for records to come.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`]: the disk is full.
    pub fn reserve(&mut self, bytes: u64) -> Result<(), StoreError> {
        self.log
            .reserve(bytes)
            .map_err(|source| io_error("reserve space in", &self.path, source))?;
        self.bytes_reserved = self.bytes_reserved.max(self.bytes + bytes);
        Ok(())
    }

    /// The length so far, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The segment's file name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// How many digits a segment's name has.
const SEGMENT_DIGITS: usize = 8;

/// The name of a segment's file.
#[must_use]
pub(super) fn segment_name(number: u64) -> String {
    format!("{number:0SEGMENT_DIGITS$}.jsonl")
}

/// Reads a name made by [`segment_name`].
pub(super) fn segment_number(name: &OsStr) -> Option<u64> {
    let stem = name.to_str()?.strip_suffix(".jsonl")?;
    let is_number = stem.len() == SEGMENT_DIGITS && stem.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| stem.parse().ok()).flatten()
}

/// A record as a line with its checksum.
fn encode(record: &Record) -> Result<Vec<u8>, StoreError> {
    let json = serde_json::to_string(record).map_err(|source| StoreError::Encode {
        what: "a journal record",
        source,
    })?;
    Ok(format!("{} {json}\n", checksum(&json)).into_bytes())
}

fn checksum(json: &str) -> String {
    let mut sum = sha256_hex(json.as_bytes());
    sum.truncate(16);
    sum
}

/// The records of a journal file, up to the first damaged one.
#[must_use]
pub fn decode(bytes: &[u8]) -> Vec<Record> {
    whole_lines(bytes)
        .map_while(|json| serde_json::from_str(json).ok())
        .collect()
}

/// The lines of a journal file without their checksums, up to the first damaged one.
fn whole_lines(bytes: &[u8]) -> impl Iterator<Item = &str> {
    bytes.split_inclusive(|b| *b == b'\n').map_while(|line| {
        let line = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
        let (sum, json) = line.split_once(' ')?;
        (sum == checksum(json)).then_some(json)
    })
}

/// As [`decode`]; a line that is whole and no record is an error: it was written by a newer
/// build, and what it did must not be forgotten.
fn decode_known(path: &Path, bytes: &[u8]) -> Result<Vec<Record>, StoreError> {
    let line = |json| {
        serde_json::from_str(json).map_err(|error| StoreError::JournalTooNew {
            path: path.to_owned(),
            why: error.to_string(),
        })
    };
    whole_lines(bytes).map(line).collect()
}

/// The journal's segments on disk, oldest first, as (number, name).
///
/// # Errors
///
/// [`StoreError::Io`].
pub fn segments(disk: &dyn Disk, root: &Path) -> Result<Vec<(u64, String)>, StoreError> {
    let dir = root.join("journal");
    let mut found = Vec::new();
    let mut note = |name: &OsStr, kind: Kind| {
        if let (Kind::File, Some(number)) = (kind, segment_number(name)) {
            found.push((number, segment_name(number)));
        }
    };
    match disk.list(&dir, &mut note) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(io_error("list", &dir, source)),
    }
    found.sort();
    Ok(found)
}

/// Every record of every segment, oldest first.
///
/// # Errors
///
/// [`StoreError::Io`] or [`StoreError::JournalTooNew`].
pub fn read_all(disk: &dyn Disk, root: &Path) -> Result<Vec<Record>, StoreError> {
    let mut records = Vec::new();
    for (_, name) in segments(disk, root)? {
        let path = root.join("journal").join(name);
        match disk.read(&path, READ_BYTES_MAX) {
            Ok(bytes) => records.extend(decode_known(&path, &bytes)?),
            // A running tick has closed it meanwhile: the directories say it all.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(io_error("read", &path, source)),
        }
    }
    Ok(records)
}

/// What the journal says of items that the directories may not say yet.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    moved: HashMap<RequestId, Vec<Step>>,
}

#[derive(Clone, Debug)]
struct Step {
    from: String,
    to: String,
    event: Option<(usize, Event)>,
}

impl Overlay {
    /// Gathers what records say of each item.
    #[must_use]
    pub fn of(records: Vec<Record>) -> Self {
        let mut moved: HashMap<RequestId, Vec<Step>> = HashMap::new();
        for record in records {
            match record {
                Record::Claim { items, .. } => {
                    for item in items {
                        let Some(from) = Place::parse(&item.from) else {
                            continue;
                        };
                        moved.entry(from.id).or_default().push(Step {
                            from: item.from,
                            to: from.claimed(item.n).path(),
                            event: None,
                        });
                    }
                }
                Record::Move(step) => {
                    let Some(from) = Place::parse(&step.from) else {
                        continue;
                    };
                    moved.entry(from.id).or_default().push(Step {
                        from: step.from,
                        to: step.to,
                        event: step.event.map(|event| (step.event_number, event)),
                    });
                }
                Record::Tell { .. } | Record::Carry { .. } => {}
            }
        }
        Self { moved }
    }

    /// Whether the journal says nothing of any item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.moved.is_empty()
    }

    /// Where the journal says that an item found at `path` is by now, and its events.
    #[must_use]
    pub fn now(&self, id: RequestId, path: &str) -> (Option<&str>, Vec<(usize, Event)>) {
        let Some(steps) = self.moved.get(&id) else {
            return (None, Vec::new());
        };
        // What was seen may be older than the last move, but never newer than a record that names
        // it as a place to leave.
        let last = steps.last().map(|step| step.to.as_str());
        let leaves = steps.iter().any(|step| step.from == path);
        if !leaves && last != Some(path) {
            return (None, Vec::new());
        }
        // Also where the file has arrived its events may not have.
        let events = steps.iter().filter_map(|step| step.event.clone()).collect();
        (last.filter(|_| leaves), events)
    }

    /// Whether the journal speaks of an item.
    pub(super) fn speaks_of(&self, id: RequestId) -> bool {
        self.moved.contains_key(&id)
    }

    /// Whether the last that the journal says of an item is that its file goes where no item is.
    pub(super) fn sets_aside(&self, id: RequestId) -> bool {
        let last = self.moved.get(&id).and_then(|steps| steps.last());
        last.is_some_and(|step| Place::parse(&step.to).is_none())
    }

    /// Every item that the journal speaks of.
    pub fn ids(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.moved.keys().copied()
    }
}

pub(super) fn io_error(op: &'static str, path: &Path, source: io::Error) -> StoreError {
    StoreError::Io {
        op,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn what_is_named_otherwise_is_no_segment() {
        let number = |name: &str| segment_number(OsStr::new(name));
        assert_eq!(number(&segment_name(17)), Some(17));
        for name in ["17.jsonl", "000000017.jsonl", "+0000017.jsonl", "00000017"] {
            assert_eq!(number(name), None, "{name}");
        }
    }

    /// A line can be whole, and a record, and still not what was written.
    #[test]
    fn a_line_that_another_digit_makes_no_less_of_a_record_is_damaged() {
        let record = Record::Claim {
            at: UnixMs(1),
            items: vec![],
        };
        let line = String::from_utf8(encode(&record).unwrap()).unwrap();
        assert_eq!(decode(line.as_bytes()).len(), 1);
        let other = line.replace("00.001Z", "00.002Z");
        assert_ne!(other, line);
        assert_eq!(decode(other.as_bytes()), []);
    }

    #[test]
    fn decoding_stops_at_the_first_damage() {
        let record = |at| Record::Claim {
            at: UnixMs(at),
            items: vec![],
        };
        let mut bytes = encode(&record(1)).unwrap();
        let second = bytes.len();
        bytes.extend(encode(&record(2)).unwrap());
        bytes.extend(encode(&record(3)).unwrap());
        assert_eq!(decode(&bytes).len(), 3);
        for cut in 0..bytes.len() {
            let whole = decode(&bytes)
                .iter()
                .take_while(|_| true)
                .count()
                .min(bytes[..cut].split(|b| *b == b'\n').count() - 1);
            assert_eq!(decode(&bytes[..cut]).len(), whole, "cut at {cut}");
        }
        for flipped in second..second + 20 {
            let mut damaged = bytes.clone();
            damaged[flipped] ^= 1;
            assert_eq!(decode(&damaged), vec![record(1)], "flipped {flipped}");
        }
    }
}
