//! What a tick did, in numbers: the line that it prints and leaves in the log.

use serde::Serialize;

use crate::model::event::Event;
use crate::model::item::Item;
use crate::model::notice::Notice;
use crate::model::state::State;
use crate::model::time::UnixMs;
use crate::store::disk::Room;

/// Why a tick ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StoppedBy {
    /// Nothing more was due.
    Done,
    /// Its time was over.
    MaxRuntime,
    /// SIGTERM or SIGINT.
    Signal,
    /// As many attempts as were asked for.
    Limit,
    /// There is no room on the disk.
    NoRoom,
}

/// The numbers of one tick.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// When it began.
    pub started_at: UnixMs,
    /// When it ended.
    pub ended_at: UnixMs,
    /// How long it took, in milliseconds.
    pub ms: u64,
    /// Interrupted attempts of a dead tick that were put right.
    pub recovered: u64,
    /// Items taken in from drop boxes.
    pub ingested: u64,
    /// Held items that were given back.
    pub released: u64,
    /// Attempts made.
    pub attempts: u64,
    /// Moves to confirmed.
    pub confirmed: u64,
    /// Attempts after which the item waits as pending.
    pub pending: u64,
    /// Moves that left an item unknown.
    pub unknown: u64,
    /// Moves to held.
    pub held: u64,
    /// Moves to failed.
    pub failed: u64,
    /// Files set aside as unreadable.
    pub corrupt: u64,
    /// Files and directories that could not be used, moved or read, or belong to nobody, and were left
    /// as they are.
    #[serde(skip_serializing_if = "is_zero")]
    pub foreign: u64,
    /// Due items that were not attempted; of a long list, at least so many.
    pub left: u64,
    /// Settled items past retention that were deleted, tombstones kept.
    pub pruned: u64,
    /// Why it ended.
    pub stopped_by: StoppedBy,
    /// Why the clock is not trusted, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_suspect: Option<String>,
    /// Up to which time the clock was once set back: key windows that began before it count as
    /// closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_back_until: Option<UnixMs>,
    /// Which boot of the machine it ran in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// How long after that boot it ended, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_ms: Option<u64>,
    /// What there was of room when it was too little. Not part of the line.
    #[serde(skip)]
    pub no_room: Option<Room>,
    /// What a person should look at. Not part of the line.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

/// Ends that nobody is told of: what a tick cannot leave unsaid.
#[derive(Debug, Default)]
pub(super) struct Untold {
    items: u64,
    notices: Vec<String>,
}

impl Untold {
    /// Takes in an item's event, and who is told of it.
    pub(super) fn note(&mut self, item: &Item, event: &Event, told: &[Notice]) {
        let ill = matches!(event.state, State::Held | State::Failed) || event.is_parked();
        if !ill || !told.is_empty() {
            return;
        }
        if !item.envelope.notice {
            self.items += 1;
        } else if self.notices.len() < UNTOLD_NAMED_MAX {
            self.notices.push(format!(
                "notice {} to `{}` is {}{}: whoever it is for has not been told",
                item.envelope.request_id,
                item.envelope.destination,
                event.state,
                event
                    .reason
                    .as_ref()
                    .map_or(String::new(), |reason| format!(" ({reason})")),
            ));
        }
    }

    pub(super) fn warnings(self) -> Vec<String> {
        let mut warnings = self.notices;
        if self.items > 0 {
            let what = if self.items == 1 { "item" } else { "items" };
            warnings.push(format!(
                "{} {what} did not end well and nobody is told: `tickpost status` shows where; [notify] destinations or command in the configuration tells you",
                self.items
            ));
        }
        warnings
    }
}

/// How many notices that went wrong are named.
const UNTOLD_NAMED_MAX: usize = 10;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Report {
    pub(super) fn begin(now: UnixMs) -> Self {
        Self {
            started_at: now,
            ended_at: now,
            ms: 0,
            recovered: 0,
            ingested: 0,
            released: 0,
            attempts: 0,
            confirmed: 0,
            pending: 0,
            unknown: 0,
            held: 0,
            failed: 0,
            corrupt: 0,
            foreign: 0,
            left: 0,
            pruned: 0,
            stopped_by: StoppedBy::Done,
            clock_suspect: None,
            set_back_until: None,
            boot_id: None,
            boot_ms: None,
            no_room: None,
            warnings: Vec::new(),
        }
    }

    pub(super) fn count(&mut self, state: State) {
        match state {
            State::Pending => self.pending += 1,
            State::Unknown => self.unknown += 1,
            State::Held => self.held += 1,
            State::Confirmed => self.confirmed += 1,
            State::Failed => self.failed += 1,
        }
    }
}
