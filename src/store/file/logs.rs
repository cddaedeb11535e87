//! The logs of a UTC day each: `log/KIND-DAY.jsonl`. What they are called, which there are, and
//! reading them line by line.

use std::io;
use std::path::Path;

use super::super::StoreError;
use super::super::disk::Kind;
use super::journal::io_error;
use super::{FileStore, ITEM_BYTES_MAX};
use crate::model::time::UnixMs;

/// Items that were accepted: the ledgers.
pub(super) const ACCEPTED: &str = "accepted";

/// Items that were pruned: the tombstones.
pub(super) const PRUNED: &str = "pruned";

/// What ticks did.
pub(super) const TICKS: &str = "ticks";

/// So much of a log is read at once, in bytes.
pub(super) const PART_BYTES: u64 = 256 * 1024;

/// So much of the end of a log is read first, in bytes: a few lines of ticks.
const TAIL_BYTES: u64 = 4 * 1024;

/// A line longer than this is none of ours, in bytes.
const LINE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The log of the day on which `at` lies, relative to the spool.
pub(super) fn path(kind: &str, at: UnixMs) -> String {
    format!("log/{kind}-{}.jsonl", at.day_name())
}

/// The days of all logs of a kind, oldest first.
pub(super) fn days(store: &FileStore, kind: &str) -> Result<Vec<UnixMs>, StoreError> {
    let mut days = Vec::new();
    each(store, kind, &mut |day, entry| {
        if entry == Kind::File {
            days.push(day);
        }
    })?;
    days.sort();
    Ok(days)
}

/// How many have the name of a log of that kind and are no files.
pub(super) fn strange(store: &FileStore, kind: &str) -> Result<u64, StoreError> {
    let mut strange = 0;
    each(store, kind, &mut |_, entry| {
        strange += u64::from(entry != Kind::File);
    })?;
    Ok(strange)
}

fn each(
    store: &FileStore,
    kind: &str,
    told: &mut dyn FnMut(UnixMs, Kind),
) -> Result<(), StoreError> {
    store.list("log", &mut |name, entry| {
        let day = name
            .to_str()
            .and_then(|name| name.strip_prefix(kind)?.strip_prefix('-'))
            .and_then(|name| UnixMs::from_day_name(name.strip_suffix(".jsonl")?));
        if let Some(day) = day {
            told(day, entry);
        }
    })
}

/// The name of the log of ticks with the latest day.
pub(super) fn newest_ticks(store: &FileStore) -> Result<Option<String>, StoreError> {
    let mut newest: Option<String> = None;
    store.list("log", &mut |name, kind| {
        let name = name.to_str().unwrap_or_default();
        if kind == Kind::File
            && name.starts_with("ticks-")
            && name.strip_suffix(".jsonl").is_some()
            && newest.as_deref().is_none_or(|known| known < name)
        {
            newest = Some(name.to_owned());
        }
    })?;
    Ok(newest)
}

/// The last line of the newest log of ticks that is one. The log is read from its end: a tick, and each
/// `enqueue`, asks for this, and by evening the day's log is long.
pub(super) fn last_tick(store: &FileStore) -> Result<Option<serde_json::Value>, StoreError> {
    let Some(name) = newest_ticks(store)? else {
        return Ok(None);
    };
    let path = store.path(&format!("log/{name}"));
    let mut wanted = TAIL_BYTES;
    loop {
        let (from, tail) = match read_tail(store, &path, wanted) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|source| io_error("read", &path, source))?,
        };
        // A line whose beginning is missing is none.
        let mut lines = tail.rsplit(|b| *b == b'\n');
        let last = lines.find_map(|line| serde_json::from_slice(line).ok());
        if last.is_some() || from == 0 || wanted >= ITEM_BYTES_MAX {
            return Ok(last);
        }
        wanted = wanted.saturating_mul(16);
    }
}

/// At most so many bytes of the end of a file, and where they begin.
fn read_tail(store: &FileStore, path: &Path, bytes_max: u64) -> io::Result<(u64, Vec<u8>)> {
    let from = store.disk.stat(path)?.bytes.saturating_sub(bytes_max);
    Ok((from, store.disk.read_part(path, from, bytes_max)?))
}

/// Where the line of a tick goes that ends now, relative to the spool: the log of the day.
///
/// If a clock that stood wrong left one of a later day, the line goes there: the last line of the
/// newest log stays the last tick's, or every tick until that day would take its clock for wrong.
pub(super) fn tick_log(store: &FileStore, now: UnixMs) -> Result<String, StoreError> {
    let today = format!("ticks-{}.jsonl", now.day_name());
    let name = newest_ticks(store)?.map_or(today.clone(), |newest| newest.max(today));
    Ok(format!("log/{name}"))
}

/// Reads a log part by part, whole lines at a time.
pub(super) struct LineReader {
    relative: String,
    offset: u64,
    rest: Vec<u8>,
}

impl LineReader {
    pub(super) fn new(kind: &str, day: UnixMs) -> Self {
        Self {
            relative: path(kind, day),
            offset: 0,
            rest: Vec::new(),
        }
    }

    /// The next lines, perhaps none yet. `None` at the end; a log that is not there has none.
    pub(super) fn next(&mut self, store: &FileStore) -> Result<Option<Vec<u8>>, StoreError> {
        let path = store.path(&self.relative);
        let part = match store.disk.read_part(&path, self.offset, PART_BYTES) {
            Ok(part) => part,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(io_error("read", &path, source)),
        };
        if part.is_empty() {
            return Ok(None);
        }
        self.offset += part.len() as u64;
        let end = part.iter().rposition(|b| *b == b'\n');
        let end = end.map(|end| self.rest.len() + end + 1);
        self.rest.extend(part);
        let rest = match end {
            Some(end) => self.rest.split_off(end),
            // What is longer than any line is given away as one.
            None if self.rest.len() > LINE_BYTES_MAX => Vec::new(),
            None => return Ok(Some(Vec::new())),
        };
        Ok(Some(std::mem::replace(&mut self.rest, rest)))
    }

    /// What stands behind the last newline, at the end.
    pub(super) fn rest(&self) -> &[u8] {
        &self.rest
    }
}
