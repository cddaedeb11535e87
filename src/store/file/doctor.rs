//! What is not as it should be in a spool: found without the lock, mended with it.
//!
//! # How it looks
//!
//! 1. [`tree`]: the spool's own files and directories, and what does not belong.
//! 2. [`items`]: every item is read whole, and its place, body and key are compared with it.
//!    [`doubles`]: of one that is in two places, which stays.
//! 3. [`names`]: keys and bodies of nobody.
//!
//! An item of which the journal speaks is on its way, and nothing is said of it. If anybody moved
//! items meanwhile, all is looked at again, and only what was wrong both times is told.
//!
//! # Memory
//!
//! 16 bytes an item, 24 more one with a key, the names of one state, and what is wrong.
//!
//! # Not here
//!
//! Mending is the business of the lock's owner: `session/mend.rs`.

pub(super) mod doubles;
mod items;
mod names;
pub(super) mod placement;
mod tree;

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::io;

use super::super::StoreError;
use super::super::checkup::{Checkup, Finding, FindingKind};
use super::super::disk::{Kind, Meta};
use super::journal::Overlay;
use super::{FileStore, reader};
use crate::model::ids::RequestId;
use crate::model::time::UnixMs;

/// What the lock's owner does about a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mend {
    /// Nothing: it is for a person.
    Person,
    /// Nothing more: owning the lock has mended it.
    Owner,
    /// The directory is made.
    MakeDir,
    /// The file is made, empty.
    MakeFile,
    /// The mode is set.
    Mode(u32),
    /// The item is read again and goes where it belongs, be it `corrupt/`.
    Item,
    /// Two names of one item: `path` goes, `keep` stays. With `claimed`, the name that goes says
    /// that the item was claimed for that attempt.
    Doubled {
        /// The one that stays.
        keep: String,
        /// Why the other is set aside, if it is another file.
        why: Option<String>,
        /// An attempt that only the name that goes knows of.
        claimed: bool,
    },
    /// The body of nobody is removed.
    Body(RequestId),
    /// The name of nobody in `keys/` is removed.
    DropKey,
    /// The name in `keys/` is written again, from this item.
    Key {
        /// Where the item is.
        item: String,
    },
}

/// A finding, and what is done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) finding: Finding,
    pub(super) mend: Mend,
}

/// What is wrong, told without the lock.
pub(super) fn examine(
    store: &FileStore,
    checkup: &Checkup<'_>,
) -> Result<Vec<Finding>, StoreError> {
    let before = reader::stir(store).ok();
    let first = look(store, checkup, false)?;
    let mut findings: Vec<Finding> = first.into_iter().map(|fault| fault.finding).collect();
    if findings.is_empty() {
        return Ok(findings);
    }
    let after = reader::stir(store).ok();
    let is_still = before == after && before.is_some_and(|stir| !stir.is_busy());
    if !is_still {
        let second = look(store, checkup, false)?;
        let both: HashSet<(FindingKind, String)> = second
            .into_iter()
            .map(|fault| (fault.finding.kind, fault.finding.path))
            .collect();
        findings.retain(|finding| both.contains(&(finding.kind, finding.path.clone())));
    }
    Ok(findings)
}

/// Looks at everything once. With `owned`, the caller owns the lock and has nothing under way.
pub(super) fn look(
    store: &FileStore,
    checkup: &Checkup<'_>,
    owned: bool,
) -> Result<Vec<Fault>, StoreError> {
    let overlay = if owned {
        Overlay::default()
    } else {
        reader::overlay(store)?
    };
    let mut look = Look::new(store, checkup, overlay)?;
    look.tree(owned)?;
    look.items();
    look.names()?;
    look.faults.sort_by(|one, other| {
        let key = |fault: &Fault| (fault.finding.kind, fault.finding.path.clone());
        key(one).cmp(&key(other))
    });
    Ok(look.faults)
}

/// What of the spool's own directories and files its owner cannot use, by what lies at the top alone:
/// cheap enough for every look of a monitor.
pub(super) fn barred(store: &FileStore) -> Result<Vec<Finding>, StoreError> {
    // Nothing here asks for the time or the destinations.
    let checkup = Checkup {
        now: UnixMs::default(),
        configured: None,
    };
    let mut look = Look::new(store, &checkup, Overlay::default())?;
    look.own_top();
    let faults = std::mem::take(&mut look.faults);
    let barred = faults.into_iter().filter_map(|fault| {
        let Mend::Mode(wanted) = fault.mend else {
            return (fault.finding.kind == FindingKind::Owner).then_some(fault.finding);
        };
        let path = store.path(&fault.finding.path);
        let mode = store.disk.mode(&path).ok()??;
        // What lets others in bars nobody.
        let lacks = wanted & !mode & 0o700;
        (lacks != 0).then(|| Finding {
            next: "chmod u+rwX on it".to_owned(),
            ..fault.finding
        })
    });
    Ok(barred.collect())
}

/// One look under way.
struct Look<'a> {
    store: &'a FileStore,
    checkup: &'a Checkup<'a>,
    /// Whose the spool is.
    owner: u32,
    overlay: Overlay,
    /// Of every item's file; sorted once all are known.
    ids: Vec<RequestId>,
    /// Items with a key, and a hash of the path of its name in `keys/`.
    keyed: Vec<(RequestId, u64)>,
    /// Names in `keys/` of which something was said already.
    flagged: HashSet<String>,
    /// Items whose file could not be read: nobody knows which names are theirs.
    unread: HashSet<RequestId>,
    /// Names in `keys/` that name another item than the one that has the key.
    mismatched: Vec<items::Mismatch>,
    /// Waiting items by destination: where the first lies, and how many.
    waiting: BTreeMap<String, (String, u64)>,
    /// Ids that are nowhere, of which somebody may be accepting an item.
    reserved: HashSet<RequestId>,
    faults: Vec<Fault>,
}

impl<'a> Look<'a> {
    fn new(
        store: &'a FileStore,
        checkup: &'a Checkup<'a>,
        overlay: Overlay,
    ) -> Result<Self, StoreError> {
        let root = store
            .disk
            .stat(&store.root)
            .map_err(|source| super::io_error("look at", &store.root, source))?;
        Ok(Self {
            store,
            checkup,
            owner: root.uid,
            overlay,
            ids: Vec::new(),
            keyed: Vec::new(),
            flagged: HashSet::new(),
            unread: HashSet::new(),
            mismatched: Vec::new(),
            waiting: BTreeMap::new(),
            reserved: HashSet::new(),
            faults: Vec::new(),
        })
    }
}

impl Look<'_> {
    fn add(&mut self, kind: FindingKind, path: &str, what: &str, next: &str, mend: Mend) {
        self.add_of(kind, path, None, what, next, mend);
    }

    fn add_of(
        &mut self,
        kind: FindingKind,
        path: &str,
        request_id: Option<RequestId>,
        what: &str,
        next: &str,
        mend: Mend,
    ) {
        self.faults.push(Fault {
            finding: Finding {
                kind,
                path: path.to_owned(),
                request_id,
                what: what.to_owned(),
                next: next.to_owned(),
                mendable: mend != Mend::Person,
            },
            mend,
        });
    }

    fn foreign(&mut self, path: &str, what: &str) {
        self.add(
            FindingKind::Foreign,
            path,
            what,
            "look at it and move it out of the spool; it is never opened",
            Mend::Person,
        );
    }

    /// What is at a path; `None` if it is gone.
    fn stat(&self, relative: &str) -> Option<Meta> {
        self.store.disk.stat(&self.store.path(relative)).ok()
    }

    /// The entries of a directory, with names as text where they are any. One that cannot be listed
    /// is told of, and counts as empty.
    fn entries(&mut self, relative: &str) -> Vec<Entry> {
        let mut entries = Vec::new();
        let listed = self.store.list(relative, &mut |name: &OsStr, kind| {
            entries.push(Entry {
                path: format!("{relative}/{}", name.display()),
                name: name.to_str().map(str::to_owned),
                kind,
            });
        });
        if let Err(error) = listed {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            self.add(
                FindingKind::Unreadable,
                relative,
                &format!("cannot be listed: {}", cause.unwrap_or_default()),
                "make it readable for the spool's user; what is in it waits",
                Mend::Person,
            );
        }
        entries.sort_by(|one, other| one.path.cmp(&other.path));
        entries
    }

    /// Checks mode and owner of a file or directory of ours.
    fn check_access(&mut self, relative: &str, mode: u32) {
        let Some(meta) = self.stat(relative) else {
            return;
        };
        self.check_meta(relative, &meta, mode);
    }

    fn check_meta(&mut self, relative: &str, meta: &Meta, wanted: u32) {
        if meta.uid != self.owner {
            let what = format!("belongs to uid {}, the spool to {}", meta.uid, self.owner);
            self.add(
                FindingKind::Owner,
                relative,
                &what,
                &format!("as root: chown {} on it", self.owner),
                Mend::Person,
            );
        }
        let Ok(Some(mode)) = self.store.disk.mode(&self.store.path(relative)) else {
            return;
        };
        self.check_mode(relative, mode, wanted);
    }

    fn check_mode(&mut self, relative: &str, mode: u32, wanted: u32) {
        if mode & 0o777 != wanted {
            self.add(
                FindingKind::Mode,
                relative,
                &format!("has mode {:04o} instead of {wanted:04o}", mode & 0o7777),
                "the mode is set",
                Mend::Mode(wanted | (mode & 0o7000)),
            );
        }
    }

    /// Whether an item's file of this id is in a state.
    fn is_there(&self, id: RequestId) -> bool {
        self.ids.binary_search(&id).is_ok()
    }

    /// Whether the journal says that this item is on its way.
    fn is_moving(&self, id: RequestId) -> bool {
        self.overlay.speaks_of(id)
    }

    /// Whether something was last changed more than a day ago: nobody is at work on it.
    fn is_old(&self, meta: &Meta) -> bool {
        self.checkup.now.since(meta.changed) > crate::model::time::DAY_MS
    }
}

/// What lies in a directory.
struct Entry {
    /// Relative to the spool, for people.
    path: String,
    /// `None` if it is no text.
    name: Option<String>,
    kind: Kind,
}

/// Whether an error says that something is gone meanwhile.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}
