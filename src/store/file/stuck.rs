//! What was decided and cannot be done: a file that nobody may rename or write to, a directory on
//! another file system, a bad sector.
//!
//! It costs that file. Its records stay in the journal, which is the truth about it, until they can
//! be done, and nothing else is decided about it meanwhile.

use std::collections::BTreeMap;
use std::io;

use super::super::StoreError;
use super::journal::{ClaimRecord, MoveRecord, Record};
use super::layout::Place;
use crate::model::ids::RequestId;
use crate::model::time::UnixMs;

/// So many files of a destination are no single ones.
pub(super) const MANY: usize = 8;

/// Records that could not be done, of each file in order.
#[derive(Debug, Default)]
pub(super) struct Stuck {
    files: BTreeMap<String, Vec<Record>>,
    /// How many files of each destination.
    destinations: BTreeMap<String, usize>,
}

/// What a record is about: an item wherever it is, or else a path.
fn subject(from: &str) -> String {
    Place::parse(from).map_or_else(|| from.to_owned(), |place| place.id.to_string())
}

impl Stuck {
    /// Whether nothing is.
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Whether something of an item could not be done.
    pub(super) fn holds(&self, id: RequestId) -> bool {
        !self.is_empty() && self.files.contains_key(&id.to_string())
    }

    /// Whether something could not be done with what is, or was, at a path.
    pub(super) fn holds_path(&self, path: &str) -> bool {
        !self.is_empty() && self.files.contains_key(&subject(path))
    }

    /// Whether it is no matter of single files any more: what is sent to a destination has nowhere to
    /// go. Then nothing is sent there, and no single file is told of.
    pub(super) fn is_many(&self, destination: &str) -> bool {
        let stuck = self.destinations.get(destination);
        stuck.is_some_and(|files| *files >= MANY)
    }

    /// Says of a file that what was decided is not done, unless there are many such.
    pub(super) fn told(&self, from: &str, why: &str) -> Option<String> {
        let told =
            || format!("{why}; what was decided of it stays in the journal until it can be done");
        (!self.is_many(destination(from))).then(told)
    }

    /// Keeps a claim.
    pub(super) fn keep_claim(&mut self, at: UnixMs, item: ClaimRecord) {
        let from = item.from.clone();
        self.records_of(&from).push(Record::Claim {
            at,
            items: vec![item],
        });
    }

    /// Keeps a move. Whoever is to be told of it is told without it. One that undoes a claim which
    /// could not be done either leaves nothing.
    pub(super) fn keep(&mut self, step: &MoveRecord) {
        let records = self.records_of(&step.from);
        if undoes(step, records.last()) {
            records.pop();
        } else {
            let notices = Vec::new();
            records.push(Record::Move(Box::new(MoveRecord {
                notices,
                ..step.clone()
            })));
        }
        if records.is_empty() {
            self.files.remove(&subject(&step.from));
            if let Some(files) = self.destinations.get_mut(destination(&step.from)) {
                *files -= 1;
            }
        }
    }

    fn records_of(&mut self, from: &str) -> &mut Vec<Record> {
        self.files.entry(subject(from)).or_insert_with(|| {
            let files = self.destinations.entry(destination(from).to_owned());
            *files.or_default() += 1;
            Vec::new()
        })
    }

    /// The names in `corrupt/` that what is kept is to have.
    pub(super) fn names_aside(&self) -> impl Iterator<Item = &str> {
        self.records().filter_map(|record| match record {
            Record::Move(step) if step.why.is_some() => step.to.strip_prefix("corrupt/"),
            Record::Move(_) | Record::Claim { .. } | Record::Tell { .. } | Record::Carry { .. } => {
                None
            }
        })
    }

    /// Everything that is kept.
    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.files.values().flatten()
    }
}

fn destination(path: &str) -> &str {
    path.split('/').nth(1).unwrap_or_default()
}

fn undoes(step: &MoveRecord, last: Option<&Record>) -> bool {
    let Some(Record::Claim { items, .. }) = last else {
        return false;
    };
    let claimed = |item: &ClaimRecord| {
        let from = Place::parse(&item.from);
        from.is_some_and(|from| from.claimed(item.n).path() == step.from)
    };
    step.event.is_none()
        && items
            .iter()
            .all(|item| claimed(item) && item.from == step.to)
}

/// Whether an error is of the one file, or of its directories, and others can go on. `Ok` tells what
/// cannot be done.
///
/// # Errors
///
/// Any other error: of the whole disk, a sync that failed, or none of the system's.
pub(super) fn of_one_file(error: StoreError) -> Result<String, StoreError> {
    if let StoreError::Io { op, path, source } = &error
        && !op.starts_with("sync")
        && is_of_one_file(source)
    {
        return Ok(format!("cannot {op} {}: {source}", path.display()));
    }
    Err(error)
}

/// Whether an error says something of one file or directory only. `EIO` may be of one inode.
pub(super) fn is_of_one_file(error: &io::Error) -> bool {
    let is_bad_sector = error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error());
    is_bad_sector || !is_of_the_disk(error)
}

/// An error that says something of the disk, not of the one file.
pub(super) fn is_of_the_disk(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let of_the_disk = [
        Errno::IO,
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::ROFS,
        Errno::NOMEM,
        Errno::NFILE,
        Errno::MFILE,
    ];
    of_the_disk
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
