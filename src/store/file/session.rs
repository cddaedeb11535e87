//! What the owner of the lock does: every move is a journal record first, a rename after.

mod drop_name;
mod due;
mod intake;
mod mend;
mod notices;
mod prune;
mod taking;
mod twin;
mod waiting;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;

use uuid::Uuid;

use super::super::audit::Audit;
use super::super::checkup::Checkup;
use super::super::disk::{Kind, Lock, Room, Since};
use super::super::{
    Claimed, Decision, Dropped, Found, Intake, Interrupted, Limits, Memory, Met, Owner, Pruned,
    Session, SetAside, StoreError, TakenIn, Want,
};
use super::clock::ClockFile;
use super::journal::{
    CarriedClaim, FileMark, Journal, MoveRecord, Record, SEGMENT_BYTES, io_error,
};
use super::layout::{Place, Slot};
use super::stuck::{self, Stuck};
use super::window::Window;
use super::{FileStore, ITEM_BYTES_MAX, aside, audit, logs, reader, replay, reserve};
use crate::model::event::Event;
use crate::model::ids::{DestName, RequestId};
use crate::model::item::{Damage, Item, due_after, turn_after};
use crate::model::notice::{About, Asked, Merged, Notice};
use crate::model::state::State;
use crate::model::time::{DAY_MS, UnixMs};
use crate::model::tombstone::Retention;
use twin::Doubt;

/// An item in hand: claimed and not settled.
struct InHand {
    from: Place,
    claimed: Place,
    at: UnixMs,
    bytes_good: u64,
}

/// The journal's space that is set aside for the settle of one item, in bytes: its event with a
/// response of 2 KiB, in JSON, and its notices.
const SETTLE_BYTES: u64 = 8 * 1024;

/// A move that is in the journal and not yet in the directories.
struct Recorded {
    step: MoveRecord,
    bytes_good: Option<u64>,
}

pub(super) struct FileSession<'a> {
    store: &'a FileStore,
    /// From its first write on.
    since: Since,
    lock: Option<Box<dyn Lock>>,
    /// The room that there was when there was too little of it.
    tight: Option<Room>,
    now: UnixMs,
    told_of_corrupt: Vec<DestName>,
    told_in_text: Vec<DestName>,
    journal: Option<Journal>,
    last_segment: u64,
    recorded: Vec<Recorded>,
    /// The items that `recorded` moves.
    moving: HashSet<RequestId>,
    in_hand: BTreeMap<u64, InHand>,
    next_handle: u64,
    windows: BTreeMap<DestName, Window>,
    notices: Merged,
    claimed_at: HashMap<RequestId, UnixMs>,
    met: Met,
    /// The names in `corrupt/` that are promised to files.
    names_aside: HashSet<String>,
    /// Refused drops that could not be set aside, and why.
    not_aside: Vec<(String, String)>,
    foreign_seen: HashSet<String>,
    /// How far the drop boxes have been looked at.
    boxes: HashMap<DestName, intake::BoxCursor>,
    /// How many claims could not be done, by destination.
    claims_failed: HashMap<String, usize>,
    /// A claim is told of by the journal alone.
    keeps_claims: bool,
    /// What was pruned, once it was asked for often.
    pruned: twin::Pruned,
    /// Items that lay claimed when they were looked for, and are not in hand, with the attempts.
    claimed_left: HashMap<RequestId, Vec<u32>>,
    /// The minutes and days of states' directories, where they were looked for.
    slots: HashMap<String, Vec<Slot>>,
    /// Destinations whose directories are not directories.
    unusable: HashSet<DestName>,
    /// What could not be done.
    stuck: Stuck,
    /// Destinations of which a directory could not be listed.
    out_of_reach: HashSet<DestName>,
    clock: ClockFile,
    /// Directories of fresh items that were synced, and when they had changed by then.
    synced: HashMap<String, UnixMs>,
    /// When somebody last accepted something.
    woken: Option<UnixMs>,
    /// Something was written that a sync of the whole file system has not covered.
    dirty: bool,
    poisoned: bool,
    pruner: prune::Pruner,
}

/// What reading an item at a place gave.
enum Got {
    Item(Box<Item>, u64),
    /// It has gone, was set aside, or is left alone.
    Nothing,
}

impl<'a> FileSession<'a> {
    pub(super) fn open(
        store: &'a FileStore,
        owner: &Owner<'_>,
        tight: Option<Room>,
        of_copy: bool,
    ) -> Result<Self, StoreError> {
        let since = store.disk.begin(&store.root);
        let since = since.map_err(|source| io_error("open", &store.root, source))?;
        let replayed = replay::replay(store)?;
        let (clock, was_set_back) = ClockFile::read(store, owner.now, replayed.latest, of_copy)?;
        let mut session = Self {
            store,
            since,
            lock: None,
            tight,
            now: owner.now,
            told_of_corrupt: owner.told_of_corrupt.to_vec(),
            told_in_text: owner.told_in_text.to_vec(),
            journal: None,
            last_segment: replayed.last_segment,
            recorded: Vec::new(),
            moving: HashSet::new(),
            in_hand: BTreeMap::new(),
            next_handle: 0,
            windows: BTreeMap::new(),
            notices: replayed.notices,
            claimed_at: replayed.claimed_at,
            met: Met::default(),
            names_aside: replayed.stuck.names_aside().map(str::to_owned).collect(),
            not_aside: Vec::new(),
            foreign_seen: HashSet::new(),
            boxes: HashMap::new(),
            claims_failed: HashMap::new(),
            keeps_claims: false,
            pruned: twin::Pruned::default(),
            claimed_left: HashMap::new(),
            slots: HashMap::new(),
            unusable: HashSet::new(),
            stuck: replayed.stuck,
            out_of_reach: HashSet::new(),
            clock,
            synced: HashMap::new(),
            woken: woken_at(store),
            dirty: replayed.last_segment > 0 || was_set_back,
            poisoned: false,
            pruner: prune::Pruner::default(),
        };
        for (path, why) in replayed.foreign {
            session.foreign(&path, &why);
        }
        session.displaced(replayed.displaced)?;
        session.guard(|session| session.sweep_unfinished())?;
        if session.dirty {
            // What is replayed must be in the directories before anything builds on it.
            session.guard(Self::checkpoint)?;
        }
        Ok(session)
    }

    /// Gives it the lock, which it owns until it is dropped.
    pub(super) fn with(mut self, lock: Box<dyn Lock>) -> Self {
        self.lock = Some(lock);
        self
    }

    /// Does a step, and once more with the reserve's room if there is none left.
    fn with_room<T>(
        &mut self,
        mut step: impl FnMut(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match step(self) {
            Err(error) if reserve::is_for_room(&error) && self.loosen() => step(self),
            other => other,
        }
    }

    /// Gives the reserve up. The session is tight from here on. False if there was none.
    fn loosen(&mut self) -> bool {
        if self.tight.is_some() {
            return false;
        }
        let room = self.store.disk.room(&self.store.root).ok();
        self.tight = room.or(Some(Room {
            bytes: 0,
            files: 0,
            bytes_total: 0,
        }));
        reserve::give_up(self.store)
    }

    /// Removes what processes that died left unfinished in `tmp/`: nothing there was ever
    /// acknowledged, and nobody writes a file for a day.
    fn sweep_unfinished(&self) -> Result<(), StoreError> {
        let mut names = Vec::new();
        self.store.list("tmp", &mut |name, kind| {
            if kind == Kind::File {
                names.push(name.to_owned());
            }
        })?;
        for name in names {
            let path = self.store.path("tmp").join(name);
            let old = self
                .store
                .disk
                .stat(&path)
                .is_ok_and(|meta| self.now.since(meta.changed) > DAY_MS);
            if old {
                self.store
                    .disk
                    .unlink(&path)
                    .map_err(|source| io_error("remove", &path, source))?;
            }
        }
        Ok(())
    }

    /// Runs a step that writes. The first error makes the session refuse all further ones:
    /// after a failed write or sync nothing about the disk is certain.
    fn guard<T>(
        &mut self,
        step: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if self.poisoned {
            return Err(StoreError::Poisoned);
        }
        let result = step(self);
        self.poisoned = result.is_err();
        if result.as_ref().is_err_and(reserve::is_for_room) {
            // The next session goes on with its room.
            self.loosen();
        }
        result
    }

    fn journal(&mut self) -> Result<&mut Journal, StoreError> {
        if self.journal.is_none() {
            let mut number = self.last_segment + 1;
            // Something that is no file of ours may stand there.
            let path = |number| format!("journal/{}", super::journal::segment_name(number));
            let is_taken = |number| {
                self.store
                    .disk
                    .stat(&self.store.path(&path(number)))
                    .is_ok()
            };
            while is_taken(number) {
                number += 1;
            }
            let journal = self.with_room(|session| {
                let store = session.store;
                store.with_dir("journal", || {
                    Journal::begin(store.disk.as_ref(), &store.root, number)
                })
            })?;
            self.last_segment = number;
            self.journal = Some(journal);
            self.dirty = true;
        }
        self.journal.as_mut().ok_or(StoreError::Poisoned)
    }

    /// Puts a move into the journal. It is done in the directories after the next sync.
    fn record(&mut self, step: MoveRecord, bytes_good: Option<u64>) -> Result<(), StoreError> {
        if !step.is_of_drop() {
            self.promise(&step);
        }
        if let Some(event) = &step.event {
            self.clock.latest = self.clock.latest.max(event.at);
        }
        self.append(&Record::Move(Box::new(step.clone())))?;
        if let Some(from) = Place::parse(&step.from) {
            self.moving.insert(from.id);
            if let (Slot::Claimed(n), Some(left)) = (from.slot, self.claimed_left.get_mut(&from.id))
            {
                left.retain(|other| *other != n);
            }
        }
        self.recorded.push(Recorded { step, bytes_good });
        Ok(())
    }

    /// Takes up who is told of a move, and what is set aside by it.
    fn promise(&mut self, step: &MoveRecord) {
        for notice in &step.notices {
            self.notices.add(notice);
        }
        if let (Some(why), Some(name)) = (&step.why, step.to.strip_prefix("corrupt/")) {
            self.met.set_aside.push(SetAside {
                from: step.from.clone(),
                name: name.to_owned(),
                why: why.clone(),
            });
        }
    }

    /// Syncs the journal, then does in the directories what it says of moves.
    fn write_out(&mut self) -> Result<(), StoreError> {
        if let Some(journal) = &mut self.journal {
            journal.sync()?;
        }
        self.moving.clear();
        let mut displaced = Vec::new();
        let mut noted = String::new();
        for recorded in std::mem::take(&mut self.recorded) {
            let Recorded { step, bytes_good } = &recorded;
            let (dir, _) = step.to.rsplit_once('/').unwrap_or_default();
            if noted != dir {
                dir.clone_into(&mut noted);
                self.note_slot(&step.to);
            }
            if self.stuck.holds_path(&step.from) {
                self.stuck.keep(step);
                continue;
            }
            let done = self.with_room(|session| {
                replay::apply(session.store, step, *bytes_good, None, &mut displaced)
            });
            match done {
                // Of a drop nobody is told before: it may stay, and is met again.
                Ok(true) if step.is_of_drop() => self.promise(step),
                Ok(_) => {}
                Err(error) => {
                    let why = stuck::of_one_file(error)?;
                    if let (true, Some(refusal)) = (step.is_of_drop(), &step.why) {
                        let why = format!("{why}; so it stays, and is refused: {refusal}");
                        self.not_aside.push((step.from.clone(), why));
                        continue;
                    }
                    self.stuck.keep(step);
                    if let Some(told) = self.stuck.told(&step.from, &why) {
                        self.foreign(&step.from, &told);
                    }
                }
            }
        }
        self.displaced(displaced)
    }

    /// Tells of files that stood where an item had to go.
    fn displaced(&mut self, files: Vec<SetAside>) -> Result<(), StoreError> {
        for file in files {
            let destination = file.from.split('/').nth(1).unwrap_or_default();
            let notices = self.corrupt_notices(&file.name, destination, &Asked::default());
            self.tell_of(notices)?;
            self.names_aside.insert(file.name.clone());
            self.met.set_aside.push(file);
        }
        Ok(())
    }

    fn corrupt_notices(&self, name: &str, destination: &str, asked: &Asked) -> Vec<Notice> {
        let about = About::Corrupt;
        // A name in corrupt/ is used again once a person has emptied it; the time is not.
        Notice::of_file(
            about,
            name,
            &self.now.to_string(),
            destination,
            about.word(),
            asked,
            &self.told_of_corrupt,
        )
    }

    fn tell_of(&mut self, notices: Vec<Notice>) -> Result<(), StoreError> {
        for notice in &notices {
            self.notices.add(notice);
        }
        self.append(&Record::Tell { notices })
    }

    /// As [`Self::write_out`], and begins a new segment when the journal has grown large. Not
    /// to be called between a claim's record and its renames: the record would be gone.
    fn flush(&mut self) -> Result<(), StoreError> {
        self.write_out()?;
        if self
            .journal
            .as_ref()
            .is_some_and(|j| j.bytes() > SEGMENT_BYTES)
        {
            self.rotate()?;
        }
        Ok(())
    }

    /// Makes the directories durable and begins a new segment that carries what of the old one
    /// still matters.
    fn rotate(&mut self) -> Result<(), StoreError> {
        self.sync_all()?;
        let Some(old) = self.journal.take() else {
            return Ok(());
        };
        self.journal()?;
        self.reserve_settles(0)?;
        self.carry_on()?;
        drop(old);
        // Also what the session began with: its records would be carried twice after a crash.
        let name = self.journal()?.name().to_owned();
        self.remove_segments_but(Some(&name))?;
        // If there was no room for it: now there is that of the old one.
        self.reserve_settles(0).map(drop)
    }

    fn remove_segments_but(&self, kept: Option<&str>) -> Result<(), StoreError> {
        let segments = super::journal::segments(self.store.disk.as_ref(), &self.store.root)?;
        segments
            .iter()
            .filter(|(_, name)| kept != Some(name))
            .try_for_each(|(_, name)| self.remove_segment(name))
    }

    /// Writes into a new segment what of those before still matters.
    fn carry_on(&mut self) -> Result<(), StoreError> {
        let carried = |hand: &InHand| CarriedClaim {
            id: hand.claimed.id,
            at: hand.at,
        };
        let mut records = vec![Record::Carry {
            claims: self.in_hand.values().map(carried).collect(),
            notices: self.notices.clone(),
        }];
        records.extend(self.stuck.records().cloned());
        for record in &records {
            self.append(record)?;
        }
        self.journal()?.sync()
    }

    /// Sets the journal's space aside for the settles of what is in hand, and of `wanted` items, or of
    /// as many of them as there is room for. Returns how many that are; if it is none of some, the
    /// session is tight.
    fn reserve_settles(&mut self, wanted: usize) -> Result<usize, StoreError> {
        let mut more = wanted;
        loop {
            // One more than there are: for what is told besides.
            let items = self.in_hand.len().saturating_add(more).saturating_add(1);
            let bytes = SETTLE_BYTES.saturating_mul(items as u64);
            // Asked first: some file systems keep the part that they found of what was asked for, and
            // everything else would be out of room.
            let lacking = self.journal()?.lacking(bytes);
            if more > 0 && reserve::would_be_tight(self.store, lacking) {
                more /= 2;
                continue;
            }
            match self.journal()?.reserve(bytes) {
                Ok(()) => break,
                // A quota, which the file system's own numbers do not show.
                Err(error) if reserve::is_for_room(&error) && more > 0 => more /= 2,
                Err(error) if reserve::is_for_room(&error) && self.loosen() => {}
                // What is in hand had its space when it was claimed.
                Err(error) if reserve::is_for_room(&error) => break,
                Err(error) => return Err(error),
            }
        }
        if wanted > 0 && more == 0 {
            self.loosen();
        }
        Ok(more)
    }

    /// Where no space could be set aside, in that of the reserve.
    fn append(&mut self, record: &Record) -> Result<(), StoreError> {
        self.with_room(|session| session.journal()?.append(record))
    }

    fn remove_segment(&self, name: &str) -> Result<(), StoreError> {
        let path = self.store.path(&format!("journal/{name}"));
        match self.store.disk.unlink(&path) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(io_error("remove", &path, source)),
        }
    }

    fn sync_all(&self) -> Result<(), StoreError> {
        self.store
            .disk
            .sync_all(&self.store.root, &self.since)
            .map_err(|source| io_error("sync", &self.store.root, source))
    }

    /// Everything in its place and durable, the notices accepted, the journal gone. Nothing is
    /// in hand, or [`Session::close`] has noted on the files when it was claimed.
    ///
    /// Notices whose place is out of reach, and what cannot be done, stay in the journal alone, in a
    /// segment of their own.
    fn checkpoint(&mut self) -> Result<(), StoreError> {
        self.flush()?;
        // Those kept by a segment may be accepted now: it must not speak of them to a later session,
        // which would take what it adds to them for told.
        self.dirty |= !self.notices.is_empty();
        self.accept_notices()?;
        if !self.dirty {
            return Ok(());
        }
        // The journal, which tells when something was claimed last, goes.
        self.clock.latest = self.clock.latest.max(self.now);
        self.with_room(|session| session.clock.write(session.store))?;
        self.sync_all()?;
        self.journal = None;
        let mut kept = None;
        if !self.notices.is_empty() || !self.stuck.is_empty() || self.keeps_claims {
            self.carry_on()?;
            kept = Some(self.journal()?.name().to_owned());
            // What comes next begins another, and makes this session dirty again.
            self.journal = None;
        }
        self.remove_segments_but(kept.as_deref())?;
        // One that came back alone would do again what it says of a drop's name, or of a claim.
        self.store
            .with_dir("journal", || self.store.sync_dir("journal"))?;
        if kept.is_none() {
            self.last_segment = 0;
        }
        self.dirty = false;
        Ok(())
    }

    /// Makes durable that a fresh item is where it is, before anything is built on it: whoever
    /// accepted it may have died before its directory was synced.
    fn sync_fresh(&mut self, place: &Place) -> Result<(), StoreError> {
        let dir = place.dir();
        let path = self.store.path(&dir);
        let meta = self
            .store
            .disk
            .stat(&path)
            .map_err(|source| io_error("look at", &path, source))?;
        if self.synced.get(&dir) != Some(&meta.changed) {
            self.store.sync_place(&dir)?;
            self.synced.insert(dir, meta.changed);
        }
        Ok(())
    }

    fn foreign(&mut self, path: &str, why: &str) {
        if self.foreign_seen.insert(path.to_owned()) {
            self.met.foreign.push(format!("{path}: {why}"));
        }
    }

    /// Reads the item at a place; sets it aside if it is none.
    fn get(&mut self, place: &Place) -> Result<Got, StoreError> {
        self.get_with_doubt(place).map(|(got, _)| got)
    }

    /// As [`Self::get`], with whether it may be another file than the item's own.
    fn get_with_doubt(&mut self, place: &Place) -> Result<(Got, Doubt), StoreError> {
        let relative = place.path();
        if self.moving.contains(&place.id) {
            // The file is as it was before what is recorded of it; deciding on that would lose
            // one of two events. Of another file of the item it decides too.
            self.flush()?;
        }
        let path = self.store.path(&relative);
        let nothing = Ok((Got::Nothing, Doubt::None));
        if self.stuck.holds(place.id) {
            // The journal knows more of it than its file.
            return nothing;
        }
        let (bytes, meta) = match self.store.disk.read_with_meta(&path, ITEM_BYTES_MAX) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return nothing,
            Err(error) if error.kind() == io::ErrorKind::InvalidInput || is_loop(&error) => {
                let kind = self.store.disk.stat(&path).map(|meta| meta.kind);
                if matches!(kind, Ok(Kind::File)) {
                    let asked = Asked::default();
                    self.set_aside(&relative, &place.destination, &error.to_string(), &asked)?;
                } else {
                    self.foreign(&relative, &format!("{error}; it was left as it is"));
                }
                return nothing;
            }
            Err(error) => {
                // A bad sector, or a mode that somebody changed: it costs one item.
                self.foreign(
                    &relative,
                    &format!("cannot read it: {error}; it was left as it is"),
                );
                return nothing;
            }
        };
        let checked = Item::parse(&bytes).and_then(|parsed| {
            parsed.item.check_place(&place.destination, place.id)?;
            Ok(parsed)
        });
        match checked {
            Ok(parsed) => {
                let doubt = self.doubt(place, &parsed.item, &meta);
                let got = Got::Item(Box::new(parsed.item), parsed.bytes_good as u64);
                Ok((got, doubt))
            }
            Err(Damage::Newer(found)) => {
                self.foreign(&relative, &format!("{}", Damage::Newer(found)));
                nothing
            }
            Err(damage) => {
                let asked = Asked::in_damaged(&bytes);
                self.set_aside(&relative, &place.destination, &damage.to_string(), &asked)?;
                nothing
            }
        }
    }

    /// Sets a file aside, and tells those who are told of such files and who `asked` for it.
    fn set_aside(
        &mut self,
        from: &str,
        destination: &str,
        why: &str,
        asked: &Asked,
    ) -> Result<(), StoreError> {
        self.set_aside_as(from, from, destination, why, asked)
    }

    /// As [`Self::set_aside`], under a name as near to that of `like` as is free.
    fn set_aside_as(
        &mut self,
        from: &str,
        like: &str,
        destination: &str,
        why: &str,
        asked: &Asked,
    ) -> Result<(), StoreError> {
        let name = aside::free_name(self.store, like, &self.names_aside);
        let notices = self.corrupt_notices(&name, destination, asked);
        let file = FileMark::of(self.store.disk.as_ref(), &self.store.path(from));
        self.record(
            MoveRecord {
                from: from.to_owned(),
                to: format!("corrupt/{name}"),
                event: None,
                event_number: 0,
                turn: None,
                why: Some(why.to_owned()),
                file,
                notices,
            },
            None,
        )?;
        self.names_aside.insert(name);
        Ok(())
    }

    /// Sets a file's time, or tells that it cannot be: then it costs another look. False if not.
    fn hint_or_tell(&mut self, relative: &str, turn: UnixMs) -> Result<bool, StoreError> {
        let Err(error) = self.store.hint_at(relative, turn) else {
            return Ok(true);
        };
        let why = stuck::of_one_file(error)?;
        self.foreign(relative, &why);
        Ok(false)
    }

    fn refile(&mut self, from: &Place, item: &Item, bytes_good: u64) -> Result<bool, StoreError> {
        let to = Place::of(item, self.now);
        if to == *from {
            // Its file's time brought it up at the wrong time; next time it does not.
            if let Some(turn) = item.turn() {
                let due = item.is_due(self.now);
                let turn = if due { turn.min(self.now) } else { turn };
                self.hint_or_tell(&from.path(), turn)?;
            }
            return Ok(false);
        }
        self.record(MoveRecord::plain(from, &to, item.turn()), Some(bytes_good))?;
        Ok(true)
    }

    fn move_with_event(
        &mut self,
        from: &Place,
        item: &Item,
        bytes_good: u64,
        event: Event,
        notices: Vec<Notice>,
    ) -> Result<(), StoreError> {
        let to = Place::filed(
            event.state,
            &from.destination,
            from.id,
            due_after(&item.envelope, &event),
            item.envelope.not_after,
            event.at,
        );
        self.record(
            MoveRecord {
                from: from.path(),
                to: to.path(),
                turn: turn_after(&item.envelope, &event),
                event: Some(event),
                event_number: item.events.len() + 1,
                why: None,
                file: None,
                notices,
            },
            Some(bytes_good),
        )
    }

    /// Does what was decided about an item that is not claimed. True if it moved.
    fn decide(
        &mut self,
        place: &Place,
        item: &Item,
        bytes_good: u64,
        decision: Decision,
    ) -> Result<bool, StoreError> {
        match decision {
            Decision::Settle(event, notices) => {
                self.move_with_event(place, item, bytes_good, *event, notices)?;
                Ok(true)
            }
            Decision::Wait => self.refile(place, item, bytes_good),
            Decision::Leave | Decision::Claim => Ok(false),
        }
    }

    fn destination_names(&mut self, states: &[State]) -> Result<Vec<DestName>, StoreError> {
        let mut names = std::collections::BTreeSet::new();
        let mut foreign = Vec::new();
        for state in states {
            self.store.list(state.as_str(), &mut |name, kind| match (
                kind,
                name.to_str().and_then(|name| name.parse().ok()),
            ) {
                (Kind::Directory, Some(name)) => {
                    names.insert(name);
                }
                _ => foreign.push(format!("{state}/{}", name.display())),
            })?;
        }
        for path in foreign {
            self.foreign(&path, "it does not belong here; it was left as it is");
        }
        Ok(names.into_iter().collect())
    }

    /// Whether anything lies in a destination's directories of waiting items. An empty directory is
    /// removed, which tells that it is empty without listing it: whoever needs it makes it again.
    fn has_waiting_in(&mut self, destination: &DestName) -> Result<bool, StoreError> {
        self.flush()?;
        let disk = &self.store.disk;
        let is_empty = |dir: &str| match disk.remove_dir(&self.store.path(dir)) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        for state in [State::Pending, State::Unknown, State::Held] {
            let top = super::layout::slot_dir(state, destination.as_str(), Slot::Root);
            if is_empty(&top) {
                continue;
            }
            let (mut dirs, mut any) = (Vec::new(), false);
            let listed = self.store.list(&top, &mut |name, kind| match kind {
                Kind::Directory => dirs.push(format!("{top}/{}", name.display())),
                Kind::File | Kind::Other => any = true,
            });
            // One that cannot be listed may hold anything, and costs no other destination its turn.
            if listed.is_err() || any || !dirs.iter().all(|dir| is_empty(dir)) {
                return Ok(true);
            }
            is_empty(&top);
        }
        Ok(false)
    }
}

impl Session for FileSession<'_> {
    fn recover(
        &mut self,
        decide: &mut dyn FnMut(&Interrupted) -> (Event, Vec<Notice>),
    ) -> Result<u64, StoreError> {
        self.guard(|session| session.recover_all(decide))
    }

    fn drop_boxes(&mut self) -> Result<Vec<(DestName, bool)>, StoreError> {
        self.list_boxes()
    }

    fn take_in(
        &mut self,
        destination: &DestName,
        bytes_max: u64,
        limits: &Limits,
        decide: &mut dyn FnMut(&Dropped<'_>) -> Intake,
    ) -> Result<TakenIn, StoreError> {
        self.guard(|session| session.take_in_box(destination, bytes_max, limits, decide))
    }

    fn destinations(&mut self) -> Result<Vec<DestName>, StoreError> {
        self.destination_names(&[State::Pending, State::Unknown, State::Held])
    }

    fn has_waiting(&mut self, destination: &DestName) -> Result<bool, StoreError> {
        self.guard(|session| session.has_waiting_in(destination))
    }

    fn claim(
        &mut self,
        wants: &[Want],
        now: UnixMs,
        decide: &mut dyn FnMut(&Item) -> Decision,
    ) -> Result<Vec<Claimed>, StoreError> {
        self.guard(|session| session.claim_group(wants, now, decide))
    }

    fn is_exhausted(&self, destination: &DestName) -> bool {
        let window = self.windows.get(destination);
        self.unusable.contains(destination)
            || self.out_of_reach.contains(destination)
            || window.is_some_and(Window::is_exhausted)
    }

    fn accepted_meanwhile(&mut self) -> Result<Vec<DestName>, StoreError> {
        self.guard(|session| {
            let woken = woken_at(session.store);
            if woken == session.woken {
                return Ok(Vec::new());
            }
            session.woken = woken;
            session.flush()?;
            let names = session.destination_names(&[State::Pending])?;
            for name in &names {
                session.windows.remove(name);
            }
            Ok(names)
        })
    }

    fn left(&mut self, destination: &DestName, now: UnixMs) -> Result<u64, StoreError> {
        self.guard(|session| {
            if !session.is_usable(destination) {
                return Ok(0);
            }
            if !session.windows.contains_key(destination) {
                session.fill(destination, now)?;
            }
            let window = session.windows.get(destination);
            Ok(window.map_or(0, |window| window.remaining() as u64))
        })
    }

    fn put_back(&mut self, claimed: &Claimed) -> Result<(), StoreError> {
        self.guard(|session| {
            let Some(hand) = session.in_hand.remove(&claimed.handle) else {
                return Ok(());
            };
            session.record(
                MoveRecord::plain(&hand.claimed, &hand.from, None),
                Some(hand.bytes_good),
            )
        })
    }

    fn settle(
        &mut self,
        claimed: &Claimed,
        event: Event,
        notices: Vec<Notice>,
    ) -> Result<(), StoreError> {
        self.guard(|session| {
            let Some(hand) = session.in_hand.remove(&claimed.handle) else {
                return Ok(());
            };
            session.move_with_event(
                &hand.claimed,
                &claimed.item,
                hand.bytes_good,
                event,
                notices,
            )
        })
    }

    fn change(
        &mut self,
        found: &Found,
        decide: &mut dyn FnMut(&Item) -> Decision,
    ) -> Result<bool, StoreError> {
        self.guard(|session| {
            let Some(place) = Place::parse(&found.place) else {
                return Ok(false);
            };
            if matches!(place.slot, Slot::Claimed(_)) {
                // It is being sent or was interrupted, which its events do not say yet.
                return Ok(false);
            }
            match session.get_only(&place)? {
                Got::Item(item, bytes_good) => {
                    if (place.state, place.slot) == (State::Pending, Slot::Root) {
                        session.sync_fresh(&place)?;
                    }
                    let decision = decide(&item);
                    session.decide(&place, &item, bytes_good, decision)
                }
                Got::Nothing => {
                    if session.stuck.holds(place.id) {
                        let why =
                            "what was decided of it before cannot be done; it is left until it is";
                        session.foreign(&place.path(), why);
                    }
                    Ok(false)
                }
            }
        })
    }

    fn wake(
        &mut self,
        destination: &DestName,
        now: UnixMs,
        items_max: usize,
        decide: &mut dyn FnMut(&Item) -> Decision,
    ) -> Result<u64, StoreError> {
        self.guard(|session| {
            session.now = now;
            let places = session.waking_places(destination, now, items_max)?;
            session.offer(&places, Some(now), decide)
        })
    }

    fn reconsider(
        &mut self,
        destination: &DestName,
        decide: &mut dyn FnMut(&Item) -> Decision,
    ) -> Result<u64, StoreError> {
        self.guard(|session| {
            let mut places = Vec::new();
            let scope = super::super::Scope {
                states: vec![State::Held],
                destination: Some(destination.to_string()),
            };
            reader::scan(session.store, &scope, &mut |found| {
                places.extend(Place::parse(&found.place));
                Ok(())
            })?;
            session.offer(&places, None, decide)
        })
    }

    fn prune(
        &mut self,
        retention: &Retention,
        now: UnixMs,
        items_max: usize,
    ) -> Result<Pruned, StoreError> {
        self.guard(|session| session.prune_some(retention, now, items_max))
    }

    fn audit(&mut self) -> Result<Audit, StoreError> {
        // What this session has moved must lie in its place.
        self.guard(Self::flush)?;
        audit::audit(self.store, audit::IDS_MAX)
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.guard(Self::flush)
    }

    fn tell(&mut self, notices: Vec<Notice>) -> Result<(), StoreError> {
        self.guard(|session| session.tell_of(notices))
    }

    fn publish(&mut self, now: UnixMs) -> Result<Vec<DestName>, StoreError> {
        self.guard(|session| {
            session.now = now;
            let names = session.notices.addresses();
            if names.is_empty() {
                return Ok(names);
            }
            session.checkpoint()?;
            for name in &names {
                // What was listed before does not know of them.
                session.windows.remove(name);
                session.unusable.remove(name);
            }
            Ok(names)
        })
    }

    fn remember(&mut self, destination: &DestName, memory: &Memory) -> Result<bool, StoreError> {
        self.guard(|session| {
            let json = serde_json::to_vec(memory).map_err(|source| StoreError::Encode {
                what: "a destination's memory",
                source,
            })?;
            let relative = format!("destinations/{destination}.json");
            match session.with_room(|session| session.store.write_whole(&relative, &json)) {
                // Something else stands there, or a mode forbids it.
                Err(StoreError::Io {
                    op: "rename",
                    source,
                    ..
                }) if !stuck::is_of_the_disk(&source) => {
                    let why = format!("cannot replace it: {source}; it was left as it is");
                    session.foreign(&relative, &why);
                    Ok(false)
                }
                written => written.map(|()| true),
            }
        })
    }

    fn sync_memories(&mut self) -> Result<(), StoreError> {
        self.guard(|session| session.store.sync_dir("destinations"))
    }

    fn mend(&mut self, checkup: &Checkup<'_>) -> Result<(), StoreError> {
        self.guard(|session| session.mend_all(checkup))
    }

    fn adopt(mut self: Box<Self>, now: UnixMs, store_id: Uuid) -> Result<(), StoreError> {
        self.guard(|session| session.become_own(now, store_id))?;
        self.close(now, None)
    }

    fn is_stuck(&self, id: RequestId) -> bool {
        self.stuck.holds(id)
    }

    fn met(&self) -> &Met {
        &self.met
    }

    fn set_back_until(&self) -> Option<UnixMs> {
        self.clock.set_back_until
    }

    fn note_set_back(&mut self, until: UnixMs) -> Result<(), StoreError> {
        if self.clock.set_back_until >= Some(until) {
            return Ok(());
        }
        self.guard(|session| {
            session.clock.set_back_until = Some(until);
            session.dirty = true;
            session.checkpoint()
        })
    }

    fn tight(&self) -> Option<Room> {
        self.tight
    }

    fn close(
        mut self: Box<Self>,
        now: UnixMs,
        line: Option<&serde_json::Value>,
    ) -> Result<(), StoreError> {
        self.now = now;
        self.guard(|session| {
            session.flush()?;
            let hands = session.in_hand.values();
            let claims: Vec<_> = hands.map(|hand| (hand.claimed.path(), hand.at)).collect();
            for (path, at) in claims {
                // The journal goes; the file's own time now tells when the claim was.
                session.keeps_claims |= !session.hint_or_tell(&path, at)?;
            }
            let mut appended = Ok(());
            if let Some(line) = line {
                let path = session.store.path(&logs::tick_log(session.store, now)?);
                let mut text = format!("{line}\n");
                appended = session.with_room(|session| {
                    session.store.with_dir("log", || {
                        let appended = session.store.disk.append_line(&path, text.as_bytes());
                        // The second time after what the first has torn off.
                        text.insert(0, '\n');
                        appended.map_err(|source| io_error("append to", &path, source))
                    })
                });
            }
            // A log that cannot be written to keeps nothing from being settled.
            session.checkpoint()?;
            appended
        })?;
        if self.tight.is_some() {
            reserve::close(self.store);
        }
        let listed: Vec<String> = std::mem::take(&mut self.windows)
            .into_values()
            .flat_map(|window| window.listed)
            .collect();
        for dir in listed {
            drop(self.store.disk.remove_dir(&self.store.path(&dir)));
        }
        if let Some(mut lock) = self.lock.take() {
            // For people only; the lock itself goes with the file handle.
            drop(lock.describe(""));
        }
        Ok(())
    }
}

/// When `wake` was touched last: each accept does so, after its item is there.
fn woken_at(store: &FileStore) -> Option<UnixMs> {
    let meta = store.disk.stat(&store.path("wake"));
    meta.ok().map(|meta| meta.changed)
}

/// `ELOOP`: what an open that does not follow links says of a link.
fn is_loop(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}
