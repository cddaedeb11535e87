//! What is not as it should be in a store: found by anybody, mended by the owner of the lock.

use std::collections::BTreeSet;

use super::UnixMs;
use crate::model::ids::{DestName, RequestId};

/// What a store is looked at with.
#[derive(Clone, Copy, Debug)]
pub struct Checkup<'a> {
    /// The time. What somebody may still be at work on is left alone for a day.
    pub now: UnixMs,
    /// The destinations of the configuration; `None` if it cannot be read, and then nothing is
    /// said of destinations.
    pub configured: Option<&'a BTreeSet<DestName>>,
}

/// What kind of thing is wrong. The words are part of the contract.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FindingKind {
    /// The spool is a copy, or its lock file is another one.
    Copied,
    /// A directory or file of every spool is not there.
    Missing,
    /// The journal of an owner that died.
    Journal,
    /// A mode that lets others in, or the owner out.
    Mode,
    /// A file of another user.
    Owner,
    /// Something that is nothing of the spool's.
    Foreign,
    /// One item in two places.
    Doubled,
    /// A file that is no item.
    Damaged,
    /// An item that a newer version wrote.
    Newer,
    /// What cannot be read now.
    Unreadable,
    /// An item where its events do not say, or where no tick would look in time.
    Misplaced,
    /// A waiting item's body is missing or wrong.
    Body,
    /// A body without an item.
    OrphanBody,
    /// A name in `keys/` does not say what its item says.
    Key,
    /// A name in `keys/` without an item.
    OrphanKey,
    /// Items, or a drop box, of a destination that is not configured.
    Unconfigured,
    /// What somebody has begun and not ended for a day.
    Unfinished,
    /// Files that wait in `corrupt/` for a person.
    Corrupt,
}

impl FindingKind {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Copied => "copied",
            Self::Missing => "missing",
            Self::Journal => "journal",
            Self::Mode => "mode",
            Self::Owner => "owner",
            Self::Foreign => "foreign",
            Self::Doubled => "doubled",
            Self::Damaged => "damaged",
            Self::Newer => "newer",
            Self::Unreadable => "unreadable",
            Self::Misplaced => "misplaced",
            Self::Body => "body",
            Self::OrphanBody => "orphan_body",
            Self::Key => "key",
            Self::OrphanKey => "orphan_key",
            Self::Unconfigured => "unconfigured",
            Self::Unfinished => "unfinished",
            Self::Corrupt => "corrupt",
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind of thing.
    pub kind: FindingKind,
    /// Where, relative to the spool.
    pub path: String,
    /// The item, where it is one.
    pub request_id: Option<RequestId>,
    /// What is wrong.
    pub what: String,
    /// What mends it: what the owner of the lock does, or what a person has to do.
    pub next: String,
    /// Whether [`super::Session::mend`] mends it.
    pub mendable: bool,
}
