//! The ledgers, `log/accepted-DAY.jsonl`, one a UTC day of acceptance: what was ever accepted.
//!
//! A line is one [`Listed`], the request id first. It is appended after the item is durable in its
//! place, and before anybody is told that it is accepted. It is never synced: a loss of power may
//! take the last lines of items that are there, and so may a death, or a full disk. An audit then
//! finds an item that is in no ledger, and never a line without its item.

use super::super::StoreError;
use super::FileStore;
use super::logs::{self, LineReader};
use crate::model::ledger::{Line, Listed};
use crate::model::time::UnixMs;

/// Lists items, with one write for each day.
///
/// They are accepted whether or not this works.
pub(super) fn append<'i>(store: &FileStore, items: impl Iterator<Item = &'i Listed>) {
    let mut texts: Vec<(UnixMs, Vec<u8>)> = Vec::new();
    for item in items {
        let Ok(line) = item.line() else {
            continue;
        };
        let day = item.at.day();
        match texts.iter_mut().find(|(known, _)| *known == day) {
            Some((_, text)) => text.extend(line),
            None => texts.push((day, line)),
        }
    }
    for (day, text) in texts {
        let path = store.path(&logs::path(logs::ACCEPTED, day));
        let first = store.disk.append_line(&path, &text);
        let is_gone = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
        if first.is_err_and(|error| is_gone(&error)) && store.make_dirs("log").is_ok() {
            drop(store.disk.append_line(&path, &text));
        }
    }
}

/// How long all ledgers are together, in bytes.
pub(super) fn bytes(store: &FileStore) -> Result<u64, StoreError> {
    let mut bytes = 0;
    for day in logs::days(store, logs::ACCEPTED)? {
        // One that is gone meanwhile has none.
        let path = store.path(&logs::path(logs::ACCEPTED, day));
        bytes += store.disk.stat(&path).map_or(0, |meta| meta.bytes);
    }
    Ok(bytes)
}

/// Calls `each` with every line of every ledger, oldest day first, until it says to stop.
pub(super) fn read(
    store: &FileStore,
    each: &mut dyn FnMut(Line<'_>) -> bool,
) -> Result<(), StoreError> {
    for day in logs::days(store, logs::ACCEPTED)? {
        let mut ledger = LineReader::new(logs::ACCEPTED, day);
        let mut go_on = |lines: &[u8]| {
            let mut lines = lines.split(|b| *b == b'\n').filter(|line| !line.is_empty());
            lines.all(|line| each(Line::of(line)))
        };
        while let Some(lines) = ledger.next(store)? {
            if !go_on(&lines) {
                return Ok(());
            }
        }
        // The newline alone may be what is not written.
        if !go_on(ledger.rest()) {
            return Ok(());
        }
    }
    Ok(())
}
