//! The contract of storage: accept, claim a group, settle a group, recover, query, move.
//!
//! [`Store`] is what anybody may do at any time; [`Session`] is what the one owner of the lock
//! may do. A store on a database fits the same contract with a lease an item in the place of
//! the lock: nothing here names a file, and a claim asks for "the next due", never for a name.
//!
//! # Guarantees of every store
//!
//! 1. When [`Store::accept`] or [`Session::claim`] or [`Session::sync`] returns `Ok`, what it did
//!    survives loss of power.
//! 2. An item is in one state at every instant.
//! 3. After one failed write or sync a session refuses every later write.

pub mod audit;
pub mod checkup;
pub mod disk;
pub mod file;
pub mod memory;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use self::checkup::{Checkup, Finding};
use crate::model::envelope::{Envelope, sha256_hex};
use crate::model::event::Event;
use crate::model::ids::{DestName, RequestId};
use crate::model::item::Item;
use crate::model::notice::Notice;
use crate::model::reason::Reason;
use crate::model::state::State;
use crate::model::time::UnixMs;
use crate::model::tombstone::{Retention, Tombstone};

/// Why the store could not do what was asked. Every variant names the path involved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no spool. Exit code 73.
    #[error("there is no spool at {}", root.display())]
    Missing {
        /// Where it was looked for.
        root: PathBuf,
    },
    /// There are a spool's directories with items in them or unreadable, and no `spool.json`. Exit code 73.
    #[error("{} has no spool.json and is no spool without it, but items lie there, or what cannot be looked into", root.display())]
    Undescribed {
        /// The directory.
        root: PathBuf,
    },
    /// The spool cannot be made. Exit code 73.
    #[error("cannot make {}", path.display())]
    NotCreatable {
        /// What could not be made.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A spool within another would be a stranger there. Exit code 73.
    #[error("{} lies within the spool {}", root.display(), outer.display())]
    Nested {
        /// The directory.
        root: PathBuf,
        /// The spool around it.
        outer: PathBuf,
    },
    /// A directory with other things in it is not made a spool. Exit code 73.
    #[error("{} is not empty and no spool: `{what}` is in it", root.display())]
    Occupied {
        /// The directory.
        root: PathBuf,
        /// The first thing that is none of a spool's.
        what: String,
    },
    /// Another process owns the spool. Not a fault. Exit code 75.
    #[error("spool {} is busy: {owner}", root.display())]
    Locked {
        /// The spool.
        root: PathBuf,
        /// What the lock file says of its owner.
        owner: String,
    },
    /// The spool belongs to another user. Exit code 77.
    #[error("spool {} belongs to uid {owner}, and you are uid {you}", root.display())]
    NotOwner {
        /// The spool.
        root: PathBuf,
        /// Who owns it.
        owner: u32,
        /// Who asks.
        you: u32,
    },
    /// Written by a newer build. Nothing was changed. Exit code 78.
    #[error("{} has format {found}; this build reads format {supported}", path.display())]
    FormatTooNew {
        /// The file that says so.
        path: PathBuf,
        /// The format found.
        found: u64,
        /// The newest format that this build knows.
        supported: u32,
    },
    /// A whole record of the journal is none that this build knows. Nothing was changed. Exit
    /// code 78.
    #[error("{} holds a record that this build does not know: {why}", path.display())]
    JournalTooNew {
        /// The journal's file.
        path: PathBuf,
        /// What is not known.
        why: String,
    },
    /// The spool's own file cannot be understood. Exit code 78.
    #[error("{} is not a spool's description: {why}", path.display())]
    BadSpoolFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The spool was copied or restored. Exit code 78.
    #[error("spool {} is a copy: {why}", root.display())]
    Copied {
        /// The spool.
        root: PathBuf,
        /// What shows that.
        why: String,
    },
    /// The spool is on a network file system. Exit code 78.
    #[error("spool {} is on a network file system ({kind})", root.display())]
    Network {
        /// The spool.
        root: PathBuf,
        /// Its kind.
        kind: &'static str,
    },
    /// Something else stands where a directory of the spool belongs. Exit code 78.
    #[error("{} is not a directory", path.display())]
    NotDirectory {
        /// Where.
        path: PathBuf,
    },
    /// An item of this id is there already. Exit code 65.
    #[error("item {id} exists already")]
    Exists {
        /// The id.
        id: RequestId,
    },
    /// Items move faster than one can be looked for. Exit code 75.
    #[error("items in {} move too fast to see whether one is there", root.display())]
    Restless {
        /// The spool.
        root: PathBuf,
    },
    /// The operating system refused. `op` is a verb: `rename`, `sync`. Exit code 74, or 77
    /// where it is a matter of permission.
    #[error("cannot {op} {}", path.display())]
    Io {
        /// What was tried.
        op: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// An earlier write or sync failed; nothing more is written. Exit code 74.
    #[error("an earlier write to the spool failed; nothing more was written")]
    Poisoned,
    /// A value could not be encoded. Exit code 70.
    #[error("cannot encode {what}")]
    Encode {
        /// What.
        what: &'static str,
        /// The encoder's error.
        #[source]
        source: serde_json::Error,
    },
}

impl StoreError {
    /// Whether there was no room, of the disk or of a quota, and nothing of what was under way is
    /// accepted: not so once the places of items are being synced.
    #[must_use]
    pub fn is_no_room(&self) -> bool {
        let Self::Io { op, source, .. } = self else {
            return false;
        };
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        full.contains(&source.kind()) && !op.starts_with("sync directory")
    }
}

/// An item to be accepted.
#[derive(Debug)]
pub struct Offer {
    /// What to send. If `key` is set, an earlier item of its destination with the same key is
    /// this one.
    pub envelope: Envelope,
    /// Its first event: pending, or held.
    pub accepted: Event,
    /// The id is the caller's own: a repeat under it is known for one.
    pub own_id: bool,
    /// The body, if it is not in the envelope.
    pub body: Option<NewBody>,
}

/// A body too large for an envelope, not yet anybody's.
#[derive(Debug)]
pub struct NewBody {
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256 in hex.
    pub sha256: String,
    at: NewBodyAt,
}

/// Where a body is until its item is accepted.
#[derive(Debug)]
enum NewBodyAt {
    Memory(Vec<u8>),
    /// In `tmp/`, synced.
    File(PathBuf),
}

impl NewBody {
    /// A body that is in memory.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self {
            bytes: bytes.len() as u64,
            sha256: sha256_hex(&bytes),
            at: NewBodyAt::Memory(bytes),
        }
    }
}

/// Why a body was not taken.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// It cannot be read where it comes from.
    #[error("cannot read the body")]
    Input(#[source] io::Error),
    /// There is more of it than is allowed.
    #[error("the body is too large")]
    TooLarge,
    /// It cannot be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What became of an [`Offer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is accepted, and durable.
    New(RequestId),
    /// It was accepted before, under this id. Nothing new was accepted.
    Known(RequestId),
    /// It was accepted before, under this id, and its file was damaged and has been set aside:
    /// nothing is sent of it any more. Nothing new was accepted.
    Aside(RequestId),
    /// It is not accepted.
    Refused(Refusal),
    /// There is no room for it.
    Full(Full),
    /// Another process has been accepting an item under the same key for long.
    Busy,
    /// An error came before it was its turn: it is not accepted, unless the error says so.
    Open,
}

/// What must hold for more to be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many items may be pending, unknown and held.
    pub items_max: Option<u64>,
    /// How many bytes must be free.
    pub free_bytes_min: u64,
    /// How many files must still fit.
    pub free_files_min: u64,
}

/// Which limit is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Full {
    /// So many items wait, and no more may.
    Items(u64),
    /// So many bytes are free.
    Bytes(u64),
    /// So many files still fit.
    Files(u64),
}

impl Limits {
    /// Whatever fits.
    pub const NONE: Self = Self {
        items_max: None,
        free_bytes_min: 0,
        free_files_min: 0,
    };

    /// How many more items fit into what there is, and what is in the way of any more.
    #[must_use]
    pub fn fit(&self, room: &Room) -> (u64, Option<Full>) {
        if room.free_bytes < self.free_bytes_min {
            return (0, Some(Full::Bytes(room.free_bytes)));
        }
        if room.free_files < self.free_files_min {
            return (0, Some(Full::Files(room.free_files)));
        }
        match self.items_max {
            Some(max) => (max.saturating_sub(room.items), Some(Full::Items(max))),
            None => (u64::MAX, None),
        }
    }
}

/// Why an item is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its key belongs to an item with another request.
    #[error("the key `{}` belongs to item {id}, which has another method, path, query or body, compared byte for byte; `tickpost show {id}` prints them; give another key, or the same request", key.escape_debug())]
    KeyTaken {
        /// The key.
        key: String,
        /// Whose it is.
        id: RequestId,
    },
    /// Its key belongs to an item with another request, whose file has been set aside.
    #[error("the key `{}` belongs to item {id}, which had another method, path, query or body, compared byte for byte, and whose file was damaged and set aside; `tickpost show {id}` says where to; give another key", key.escape_debug())]
    KeyAside {
        /// The key.
        key: String,
        /// Whose it is.
        id: RequestId,
    },
    /// Its id belongs to an item whose file has been set aside, and that was another one as far as
    /// is known.
    #[error(
        "item {id} was there, and its file was damaged and set aside; `tickpost show {id}` says where to; give another id, or none"
    )]
    IdAside {
        /// The id.
        id: RequestId,
    },
    /// Its id belongs to another item.
    #[error(
        "item {id} exists already, with another destination, method, path, query or body; give another id, or none"
    )]
    IdTaken {
        /// The id.
        id: RequestId,
    },
    /// Its id belongs to an item with the same request that has not its key.
    #[error(
        "item {id} exists already, and without the key `{}`, which would not be known of it; offer it without a key, or give another id", key.escape_debug()
    )]
    IdWithoutKey {
        /// The key.
        key: String,
        /// The id.
        id: RequestId,
    },
    /// Its id belongs to an item that was pruned.
    #[error("item {id} was there and is pruned; give another id, or none")]
    Pruned {
        /// The id.
        id: RequestId,
    },
}

/// An item as it was found by a reader.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its id.
    pub id: RequestId,
    /// Its destination.
    pub destination: String,
    /// The state that its place says.
    pub state: State,
    /// Its place says that only a person can settle it.
    pub parked: bool,
    /// Where it is, relative to the spool: a path of the file store.
    pub place: String,
    /// Events, by number, that are durable and not yet in the item itself.
    pub(crate) journalled: Vec<(usize, Event)>,
}

/// Which items a reader looks for, by what places alone tell.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Only these states; empty means all.
    pub states: Vec<State>,
    /// Only this destination.
    pub destination: Option<String>,
}

/// How full a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes that are free.
    pub free_bytes: u64,
    /// Files that can still be made.
    pub free_files: u64,
    /// Items that are pending, unknown or held; at most as many as were asked for.
    pub items: u64,
}

/// How many items are in each state, and more that places alone tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By destination, then by state.
    pub destinations: BTreeMap<String, BTreeMap<State, u64>>,
    /// Unknown items that only a person can settle, by destination.
    pub parked: BTreeMap<String, u64>,
    /// Files in `corrupt/`, reasons not counted.
    pub corrupt: u64,
    /// Files in the drop boxes, and what else is there.
    pub incoming: u64,
    /// Since when the oldest of them has been there.
    pub incoming_since: Option<UnixMs>,
    /// When the oldest pending item was accepted.
    pub oldest_pending: Option<UnixMs>,
    /// What was found in the spool that does not belong there, in words.
    pub foreign: Vec<String>,
    /// Items and directories that cannot be read, with the cause.
    pub unreadable: Vec<String>,
}

/// What ticks remember of a destination. Losing it costs some needless attempts; and what
/// may have been acted on is not sent again, for nobody knows under which key and to whom that went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// Set while nothing but a trying item is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspended: Option<Suspension>,
    /// Past suspensions, oldest first, as (from, to): an item's age does not run in them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub past: Vec<(UnixMs, UnixMs)>,
    /// The last answer's status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_status: Option<u16>,
    /// When it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_answer_at: Option<UnixMs>,
    /// The last success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_success_at: Option<UnixMs>,
    /// Different items held in a row for a cause of the destination, no success between.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held_in_a_row: Vec<RequestId>,
    /// Different items in a row that were perhaps sent and got no answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lost_in_a_row: Vec<RequestId>,
    /// The earliest time of the next send by the configured rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_send_at: Option<UnixMs>,
    /// What the destination's configuration was when something was last held for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// What its secret's file was then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_fingerprint: Option<String>,
    /// DNS or TLS failures have lasted since then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreachable_since: Option<UnixMs>,
    /// Under which key its items go: what went under another one before, a repeat under this one
    /// would not be dropped as a repeat of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Known>,
    /// To which receiver they go: another one knows nothing of what went to the one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver: Option<Known>,
    /// Somebody was told that this destination is not configured.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub told_unconfigured: bool,
}

/// What a destination's repeats depend on, and since when that is what it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// What it is, in words that do not change: the place and the spelling of a key, or an address.
    pub fingerprint: String,
    /// Since when it is that; `None` if nothing else is known of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<UnixMs>,
}

/// Why and until when a destination is suspended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspension {
    /// The reason, as of an item.
    pub reason: Reason,
    /// Since when.
    pub since: UnixMs,
    /// When one item is tried; absent means not before a person releases it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<UnixMs>,
    /// How often the trying item failed in the same way.
    #[serde(default)]
    pub tries: u32,
    /// What the transport or the receiver said of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// An operator's hold on a whole destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestinationHold {
    /// When.
    pub at: UnixMs,
    /// Who.
    pub by: String,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl DestinationHold {
    /// What a file counts as of which nobody can tell what it says: nothing is sent because a
    /// person's word cannot be read.
    #[must_use]
    pub fn unreadable(why: Option<String>) -> Self {
        Self {
            at: UnixMs(0),
            by: "unknown".to_owned(),
            note: why,
        }
    }

    /// Why it cannot be read, if that is so.
    #[must_use]
    pub fn fault(&self) -> Option<&str> {
        (self.at == UnixMs(0))
            .then_some(self.note.as_deref())
            .flatten()
    }
}

/// What anybody may do, at any time, without the lock.
pub trait Store {
    /// Makes an item durable in pending, or in held if the event says so.
    ///
    /// # Errors
    ///
    /// [`StoreError::Exists`] if the id is taken; else the item is not accepted unless the error
    /// is [`StoreError::Io`] with `op` `sync directory`, after which it is perhaps.
    fn accept(&self, envelope: Envelope, accepted: Event) -> Result<(), StoreError> {
        let id = envelope.request_id;
        let offer = Offer {
            envelope,
            accepted,
            own_id: false,
            body: None,
        };
        let mut answers = Vec::new();
        self.accept_all(vec![offer], &Limits::NONE, &mut answers)?;
        match answers.first() {
            Some(Answer::New(_) | Answer::Known(_)) => Ok(()),
            Some(
                Answer::Aside(_)
                | Answer::Refused(_)
                | Answer::Full(_)
                | Answer::Busy
                | Answer::Open,
            )
            | None => Err(StoreError::Exists { id }),
        }
    }

    /// Makes items durable, all together with few syncs, as far as `limits` let it. Each gets its
    /// answer in `answers`, in order, and has it also where an error follows. A process that dies
    /// has accepted any number of them; offered again under the same keys or ids each is accepted
    /// once.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`]; what has [`Answer::Open`] then is not accepted, or perhaps where
    /// the error is [`StoreError::Io`] with `op` `sync directory`.
    fn accept_all(
        &self,
        offers: Vec<Offer>,
        limits: &Limits,
        answers: &mut Vec<Answer>,
    ) -> Result<(), StoreError>;

    /// Takes a body in, piece by piece, at most `bytes_max` bytes. It is nobody's until it is
    /// offered with its item.
    ///
    /// # Errors
    ///
    /// [`BodyError`]; nothing is kept then.
    fn take_body(&self, from: &mut dyn io::Read, bytes_max: u64) -> Result<NewBody, BodyError>;

    /// Reads a body that was taken in.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn open_new_body<'b>(&self, body: &'b NewBody) -> io::Result<Box<dyn io::Read + Send + 'b>>;

    /// Gives a body up that is not offered after all.
    fn discard_body(&self, body: NewBody);

    /// Opens the body of an item that has it in a file of its own.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn open_body(&self, id: RequestId) -> io::Result<Box<dyn io::Read + Send>>;

    /// How much room there is, and how many items wait, counted no further than `items_max`.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn room(&self, items_max: u64) -> Result<Room, StoreError>;

    /// Calls `each` once for every item in scope, in the order of an item's life.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn scan(
        &self,
        scope: &Scope,
        each: &mut dyn FnMut(&Found) -> Result<(), StoreError>,
    ) -> Result<(), StoreError>;

    /// Looks one item up.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn find(&self, id: RequestId) -> Result<Option<Found>, StoreError>;

    /// Reads an item that was found, events that only the journal knows included. `None` if it
    /// has moved on meanwhile; the inner error if it cannot be read as an item.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn read(
        &self,
        found: &Found,
    ) -> Result<Option<Result<Item, crate::model::item::Damage>>, StoreError>;

    /// Counts by place.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn counts(&self) -> Result<Counts, StoreError>;

    /// What ticks remember of a destination.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met: nothing may be sent to a destination whose memory is out of
    /// reach. Memory that is missing or damaged counts as empty.
    fn memory(&self, destination: &DestName) -> Result<Memory, StoreError>;

    /// The operator's hold on a destination, if there is one. One that cannot be read, for whatever
    /// reason, is a hold all the same.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met, of another kind.
    fn destination_hold(&self, name: &str) -> Result<Option<DestinationHold>, StoreError>;

    /// Sets or lifts it, durably. Needs no lock and takes effect within a running tick.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn set_destination_hold(
        &self,
        destination: &DestName,
        hold: Option<&DestinationHold>,
    ) -> Result<(), StoreError>;

    /// The last line that a tick wrote of itself.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn last_tick(&self) -> Result<Option<serde_json::Value>, StoreError>;

    /// What is kept of pruned items whose ids begin like this: one an id, at most `most`. An item
    /// that is still there may have one too; then the item is what counts.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn tombstones(&self, beginning: &str, most: usize) -> Result<Vec<Tombstone>, StoreError>;

    /// What is kept of one pruned item.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn tombstone(&self, id: RequestId) -> Result<Option<Tombstone>, StoreError> {
        Ok(self.tombstones(&id.to_string(), 1)?.pop())
    }

    /// How much [`Session::prune`] would look at, by places alone. Nothing is changed.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn prunable(&self, retention: &Retention, now: UnixMs) -> Result<Pruned, StoreError>;

    /// Looks for what is not as it should be. Nothing is written and no lock is taken; what moves
    /// meanwhile is no fault. A store that looks after itself finds nothing.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] that keeps it from looking at all.
    fn examine(&self, _checkup: &Checkup<'_>) -> Result<Vec<Finding>, StoreError> {
        Ok(Vec::new())
    }

    /// Becomes the one owner. Does not wait. A dead owner's journal is
    /// replayed before this returns.
    ///
    /// # Errors
    ///
    /// [`StoreError::Locked`] if somebody else is.
    fn lock(&self, owner: &Owner<'_>) -> Result<Box<dyn Session + '_>, StoreError>;
}

/// Who wants to own the lock.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// Says so to people.
    pub who: &'a str,
    /// The time.
    pub now: UnixMs,
    /// Who is told of files that are set aside.
    pub told_of_corrupt: &'a [DestName],
    /// Whom notices reach as plain text; all others get JSON.
    pub told_in_text: &'a [DestName],
}

/// How much to claim for one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// For which.
    pub destination: DestName,
    /// At most so many items; with 0 none is claimed, and the others' turns come all the same.
    pub items_max: usize,
    /// At most so many looked at, claimed or not.
    pub looks_max: usize,
}

/// What the caller decides about an item whose turn has come.
#[derive(Clone, Debug)]
pub enum Decision {
    /// It is claimed for its next attempt.
    Claim,
    /// It stays, and is filed by its due time.
    Wait,
    /// It stays exactly where it is.
    Leave,
    /// This event happens to it instead.
    Settle(Box<Event>, Vec<Notice>),
}

/// An item claimed for an attempt.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The item as it was before the attempt.
    pub item: Arc<Item>,
    /// The attempt's number.
    pub n: u32,
    /// When it was claimed.
    pub at: UnixMs,
    /// The store's own handle.
    pub handle: u64,
}

/// An item that a dead owner was sending.
#[derive(Clone, Debug)]
pub struct Interrupted {
    /// The item before that attempt.
    pub item: Item,
    /// The attempt's number.
    pub n: u32,
    /// When it was claimed, as far as is known; never later than the truth.
    pub claimed_at: UnixMs,
}

/// A file that was set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// Where it was.
    pub from: String,
    /// Its name in `corrupt/`.
    pub name: String,
    /// Why.
    pub why: String,
}

/// A file of a drop box, as its contents and owner tell of it.
#[derive(Clone, Copy, Debug)]
pub struct Dropped<'a> {
    /// The destination whose box it was in.
    pub destination: &'a DestName,
    /// The user id of the file's owner.
    pub uid: u32,
    /// What it holds.
    pub bytes: &'a [u8],
    /// The id that it was given when it was first looked at, if that was before.
    pub id: Option<RequestId>,
}

/// What the caller decides about a dropped file.
#[derive(Debug)]
pub enum Intake {
    /// It becomes this item.
    Accept(Box<Offer>),
    /// It is no item, for this reason, and is set aside.
    Refuse(String),
}

/// How many files were taken in from the drop boxes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TakenIn {
    /// Items accepted.
    pub accepted: u64,
    /// Files of items that were accepted before, by their key or id.
    pub known: u64,
    /// Files that were looked at and stay where they are.
    pub stay: u64,
    /// There is more that was not looked at.
    pub left: bool,
    /// What keeps more from being accepted.
    pub full: Option<Full>,
}

/// What a session met besides its work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// Files set aside since the session began.
    pub set_aside: Vec<SetAside>,
    /// What does not belong in the spool and was left, in words.
    pub foreign: Vec<String>,
}

impl Met {
    /// What a person is told of it, one line each. Of very many files of a kind the first are
    /// named, and how many more there are: a spool full of damage must not fill a mailbox.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let aside = |file: &SetAside| {
            format!(
                "{} was set aside as corrupt/{}: {}",
                file.from, file.name, file.why
            )
        };
        let named = self.set_aside.iter().take(NAMED_MAX).map(aside);
        let mut lines: Vec<String> = named.collect();
        if let Some(more @ 1..) = self.set_aside.len().checked_sub(NAMED_MAX) {
            lines.push(format!("{more} more files were set aside in corrupt/"));
        }
        lines.extend(self.foreign.iter().take(NAMED_MAX).cloned());
        if let Some(more @ 1..) = self.foreign.len().checked_sub(NAMED_MAX) {
            lines.push(format!(
                "{more} more files do not belong where they are; they were left"
            ));
        }
        lines
    }
}

/// How many files of a kind [`Met::warnings`] names.
const NAMED_MAX: usize = 100;

/// What pruning did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Items pruned.
    pub items: u64,
    /// Items past retention that were looked at and left: their key is in use just now, or they
    /// are not what their place says.
    pub kept: u64,
    /// Files of tombstones, a UTC day each, that were themselves past retention.
    pub tombstone_files: u64,
    /// Ledgers, a UTC day each, past the same retention.
    pub ledger_files: u64,
    /// Logs of ticks, a UTC day each, past the same retention.
    pub tick_files: u64,
    /// There is more; prune again.
    pub left: bool,
}

/// What the owner of the lock may do.
pub trait Session {
    /// Gives every item that a dead owner was sending to `decide`, and writes the event that it
    /// answers with. Returns how many there were.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn recover(
        &mut self,
        decide: &mut dyn FnMut(&Interrupted) -> (Event, Vec<Notice>),
    ) -> Result<u64, StoreError>;

    /// The drop boxes that are there, and whether anything is in them.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn drop_boxes(&mut self) -> Result<Vec<(DestName, bool)>, StoreError>;

    /// Takes in the next files of the drop box of `destination`, a bounded number, as far as
    /// `limits` let it; `decide` is asked about each. In one session no file is looked at twice.
    /// A box that is not there is made.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met; what was accepted is not lost and not accepted twice.
    fn take_in(
        &mut self,
        destination: &DestName,
        bytes_max: u64,
        limits: &Limits,
        decide: &mut dyn FnMut(&Dropped<'_>) -> Intake,
    ) -> Result<TakenIn, StoreError>;

    /// The destinations that have anything pending, unknown or held.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn destinations(&mut self) -> Result<Vec<DestName>, StoreError>;

    /// Whether anything of a destination is pending, unknown or held. What [`Self::destinations`]
    /// names may have nothing any more.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn has_waiting(&mut self, _destination: &DestName) -> Result<bool, StoreError> {
        Ok(true)
    }

    /// Claims the next due items, by due minute and within it by id, and makes the claims
    /// durable. `decide` is asked about each item; it may be asked about one it has seen.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met; nothing may be sent then.
    fn claim(
        &mut self,
        wants: &[Want],
        now: UnixMs,
        decide: &mut dyn FnMut(&Item) -> Decision,
    ) -> Result<Vec<Claimed>, StoreError>;

    /// Whether the claims so far have looked at everything of a destination that is due.
    fn is_exhausted(&self, destination: &DestName) -> bool;

    /// The destinations that may have something new since the session began, or since this was
    /// asked last; none if nothing was accepted meanwhile. Their next claim looks from the start.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn accepted_meanwhile(&mut self) -> Result<Vec<DestName>, StoreError>;

    /// How many due items of a destination were not looked at; of a long list, at least so many.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn left(&mut self, destination: &DestName, now: UnixMs) -> Result<u64, StoreError>;

    /// Gives a claimed item of which certainly no byte was sent back to where it was. It is as
    /// if it had not been claimed.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn put_back(&mut self, claimed: &Claimed) -> Result<(), StoreError>;

    /// Writes the event of a finished attempt. It survives the death of this process at once,
    /// and loss of power after the next [`Self::sync`] or [`Self::claim`].
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn settle(
        &mut self,
        claimed: &Claimed,
        event: Event,
        notices: Vec<Notice>,
    ) -> Result<(), StoreError>;

    /// Writes an event of an item that is not claimed: what an operator or a time brings.
    /// Returns false if the item is not where it was found any more.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn change(
        &mut self,
        found: &Found,
        decide: &mut dyn FnMut(&Item) -> Decision,
    ) -> Result<bool, StoreError>;

    /// Gives held items whose time has come to `decide`; at most `items_max`. Returns how many
    /// moved.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn wake(
        &mut self,
        destination: &DestName,
        now: UnixMs,
        items_max: usize,
        decide: &mut dyn FnMut(&Item) -> Decision,
    ) -> Result<u64, StoreError>;

    /// Gives every held item of a destination to `decide`: used when the cause that held some
    /// has changed. Returns how many moved.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn reconsider(
        &mut self,
        destination: &DestName,
        decide: &mut dyn FnMut(&Item) -> Decision,
    ) -> Result<u64, StoreError>;

    /// Deletes what is past retention: confirmed and failed items, each once its tombstone is
    /// durable, then old ledgers and logs of ticks, and then old tombstones. At most `items_max`
    /// items are looked at. The days of the first call of a session hold for all of it.
    ///
    /// Whoever doubts the clock does not call this.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met; the next call of another session goes on from there.
    fn prune(
        &mut self,
        retention: &Retention,
        now: UnixMs,
        items_max: usize,
    ) -> Result<Pruned, StoreError>;

    /// Compares what was ever accepted with what is there. Nothing is changed.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met: what cannot be looked at is not called missing.
    fn audit(&mut self) -> Result<audit::Audit, StoreError>;

    /// Makes everything that was settled durable and visible in its place.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn sync(&mut self) -> Result<(), StoreError>;

    /// Tells somebody of something that is no item's event.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn tell(&mut self, notices: Vec<Notice>) -> Result<(), StoreError>;

    /// Accepts the notices so far as items, so that they can be sent at once. Returns their
    /// destinations.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn publish(&mut self, now: UnixMs) -> Result<Vec<DestName>, StoreError>;

    /// Remembers of a destination. False if that could not be put where it belongs, which costs no
    /// other destination anything, and is told of.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn remember(&mut self, destination: &DestName, memory: &Memory) -> Result<bool, StoreError>;

    /// Mends what [`Store::examine`] finds and says is mendable. Nothing is guessed and nothing of
    /// an item is deleted. After a crash at any point it can be done again. Whoever calls this
    /// calls [`Self::recover`] before it and after it.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn mend(&mut self, _checkup: &Checkup<'_>) -> Result<(), StoreError> {
        Ok(())
    }

    /// Ends the adoption of a copied store: everything is made durable, then the store becomes one
    /// of its own under this id, and the lock is given up. After a crash before that it is still a
    /// copy.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met; the store is a copy still.
    fn adopt(self: Box<Self>, now: UnixMs, _store_id: Uuid) -> Result<(), StoreError> {
        self.close(now, None)
    }

    /// The latest time that the clock has shown to an owner of the lock before it was set back; `None`
    /// if it never was, by more than a second.
    fn set_back_until(&self) -> Option<UnixMs>;

    /// Remembers, durably, a time that the clock has shown and was set back from, which the store
    /// cannot have seen itself. An earlier one than [`Session::set_back_until`] tells nothing new.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn note_set_back(&mut self, _until: UnixMs) -> Result<(), StoreError> {
        Ok(())
    }

    /// Makes what was remembered last durable.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met.
    fn sync_memories(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Whether what was decided of an item cannot be done now. It is after a sync that this shows;
    /// the decision is durable, and is done when it can be.
    fn is_stuck(&self, _: RequestId) -> bool {
        false
    }

    /// What was met so far.
    fn met(&self) -> &Met;

    /// The room that there was when there was too little of it: such a session claims nothing,
    /// and whoever owns it takes nothing in. `None` while there is enough.
    fn tight(&self) -> Option<disk::Room>;

    /// Accepts the notices, makes everything durable, writes `line` into the log of ticks, and
    /// gives the lock up. Items that are still claimed stay as they are.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] met; what was settled is not lost, the next owner finds it.
    fn close(
        self: Box<Self>,
        now: UnixMs,
        line: Option<&serde_json::Value>,
    ) -> Result<(), StoreError>;
}
