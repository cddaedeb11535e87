//! Comparing what the ledgers list with what is in the spool.
//!
//! The caller owns the lock and the journal is empty, so items can only appear. The ledgers are read
//! first and the places after them: what a ledger lists was in its place before. What is then seen
//! nowhere, or twice, is looked for once more.
//!
//! Memory is bounded: the ids are taken slice by slice of a hash, as many at once as fit, and the
//! ledgers and places are read once for each slice. Only what is missing or doubled is kept whole.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::super::StoreError;
use super::super::audit::{Audit, Part};
use super::super::disk::Kind;
use super::layout::{self, Place, Slot, slot_dir};
use super::logs;
use super::reader::subdirs;
use super::tombstones::LogReader;
use super::{FileStore, ledger};
use crate::model::ids::{DestName, RequestId};
use crate::model::state::State;
use crate::model::time::UnixMs;

/// So many ids are in memory at once, in about 40 bytes each.
pub(super) const IDS_MAX: usize = 1_800_000;

/// No line of a ledger is shorter, in bytes.
const LINE_BYTES_MIN: u64 = 121;

/// The ids whose hash begins with these bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slice {
    bits: u32,
    first: u64,
}

impl Slice {
    /// All ids, in so many slices that about `ids_max` of `ids` are in each.
    fn all(ids: u64, ids_max: usize) -> Vec<Self> {
        let mut bits = 0;
        while bits < 16 && ids >> bits > ids_max as u64 {
            bits += 1;
        }
        (0..1 << bits).map(|first| Self { bits, first }).collect()
    }

    fn holds(self, id: RequestId) -> bool {
        if self.bits == 0 {
            return true;
        }
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        hasher.finish() >> (u64::BITS - self.bits) == self.first
    }

    /// Both halves; `None` if there is no sense in dividing any more.
    fn halves(self) -> Option<[Self; 2]> {
        let bits = self.bits + 1;
        let half = |last| Self {
            bits,
            first: self.first << 1 | last,
        };
        (bits <= 32).then(|| [half(0), half(1)])
    }
}

/// Audits, with at most about `ids_max` ids in memory.
pub(super) fn audit(store: &FileStore, ids_max: usize) -> Result<Audit, StoreError> {
    let days = logs::days(store, logs::ACCEPTED)?.into_iter().collect();
    let mut audit = Audit::default();
    let mut slices = Slice::all(ledger::bytes(store)? / LINE_BYTES_MIN, ids_max);
    while let Some(slice) = slices.pop() {
        let halves = slice.halves();
        let most = if halves.is_some() {
            ids_max
        } else {
            usize::MAX
        };
        match (look(store, slice, &days, most)?, halves) {
            (Some(found), _) => audit.add(found),
            (None, halves) => slices.extend(halves.into_iter().flatten()),
        }
    }
    Ok(audit)
}

/// Audits the ids of a slice. `None` if there are more than `ids_max`. There are ledgers of `days`.
fn look(
    store: &FileStore,
    slice: Slice,
    days: &BTreeSet<UnixMs>,
    ids_max: usize,
) -> Result<Option<Audit>, StoreError> {
    let mut part = Part::default();
    let mut unreadable = 0;
    if slice.first == 0 {
        // What stands in the place of a ledger, and is none, hides what was accepted that day.
        unreadable += logs::strange(store, logs::ACCEPTED)?;
    }
    ledger::read(store, &mut |line| {
        // What has no id counts once in all slices.
        unreadable += u64::from(line.is_torn() && slice.first == 0);
        if let Some(id) = line.id() {
            if slice.holds(id) {
                match line.listed() {
                    Some(listed) => part.list(listed),
                    None => unreadable += 1,
                }
            }
        } else if !line.is_torn() {
            unreadable += u64::from(slice.first == 0);
        }
        part.len() <= ids_max
    })?;
    if part.len() <= ids_max {
        each_place(store, &mut |state, _, _, id| {
            if slice.holds(id) && part.len() <= ids_max {
                part.place(id, state);
            }
        })?;
    }
    if part.len() > ids_max {
        return Ok(None);
    }
    look_aside(store, &mut part)?;
    let places = look_again(store, &mut part)?;
    let mut found = part.finish(places, days);
    found.unreadable_lines = unreadable;
    Ok(Some(found))
}

/// Looks for what is in no state among what was set aside, and then among the tombstones.
fn look_aside(store: &FileStore, part: &mut Part) -> Result<(), StoreError> {
    store.list("corrupt", &mut |name, _| {
        if let Some(id) = name.to_str().and_then(set_aside_id) {
            part.corrupt(id);
        }
    })?;
    for day in logs::days(store, logs::PRUNED)? {
        let mut log = LogReader::new(day);
        loop {
            let missing = &*part;
            let wanted = |line: &[u8]| {
                let id = crate::model::ledger::Line::of(line).id();
                id.is_some_and(|id| missing.misses(id))
            };
            let Some(tombstones) = log.next(store, wanted)? else {
                break;
            };
            for tombstone in tombstones {
                part.pruned(tombstone.request_id);
            }
        }
    }
    Ok(())
}

/// Looks once more for what was seen nowhere or twice. Returns where each of those is.
fn look_again(
    store: &FileStore,
    part: &mut Part,
) -> Result<HashMap<RequestId, Vec<String>>, StoreError> {
    let suspects = part.suspects().into_iter();
    let mut places: HashMap<RequestId, Vec<String>> = suspects.map(|id| (id, vec![])).collect();
    if places.is_empty() {
        return Ok(places);
    }
    each_place(store, &mut |state, destination, slot, id| {
        if let Some(places) = places.get_mut(&id) {
            let place = Place {
                state,
                destination: destination.to_owned(),
                slot,
                id,
            };
            places.push(place.path());
            if part.misses(id) {
                part.place(id, state);
            }
        }
    })?;
    look_aside(store, part)?;
    Ok(places)
}

/// Calls `each` with every place of an item, in the order of its life. A directory that cannot be
/// read is an error: what is in it would be called missing.
fn each_place(
    store: &FileStore,
    each: &mut dyn FnMut(State, &str, Slot, RequestId),
) -> Result<(), StoreError> {
    for state in State::ALL {
        for destination in subdirs(store, state.as_str(), &mut |_| {})? {
            if destination.parse::<DestName>().is_err() {
                continue;
            }
            let mut slots = Vec::new();
            let root = slot_dir(state, &destination, Slot::Root);
            store.list(&root, &mut |name, kind| {
                let name = name.to_str().unwrap_or_default();
                match (kind, layout::parse_name(name)) {
                    (Kind::File, Some((id, None))) => each(state, &destination, Slot::Root, id),
                    (Kind::File, Some((id, Some(n)))) if state == State::Unknown => {
                        each(state, &destination, Slot::Claimed(n), id);
                    }
                    (Kind::Directory, _) => slots.extend(layout::parse_slot(name)),
                    _ => {}
                }
            })?;
            slots.sort();
            for slot in slots {
                store.list(&slot_dir(state, &destination, slot), &mut |name, kind| {
                    let parsed = layout::parse_name(name.to_str().unwrap_or_default());
                    if let (Kind::File, Some((id, None))) = (kind, parsed) {
                        each(state, &destination, slot, id);
                    }
                })?;
            }
        }
    }
    Ok(())
}

/// The item that a name in `corrupt/` speaks of: of its file, of another file that had the name, or
/// of the reason of either, which is the record where a person has removed the file.
pub(super) fn set_aside_id(name: &str) -> Option<RequestId> {
    let name = name.strip_suffix(".why.json").unwrap_or(name);
    let numbered = name.rsplit_once('.');
    let numbered = numbered.filter(|(_, n)| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    let name = numbered.map_or(name, |(name, _)| name);
    layout::parse_name(name).map(|(id, _)| id)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use super::super::super::{Limits, Offer, Store as _};
    use super::*;
    use crate::model::envelope::{Envelope, Request, Requester, VERSION, sha256_hex};
    use crate::model::event::{Event, EventKind};

    const NOW: UnixMs = UnixMs(1_795_966_830_000);

    fn id(n: u128) -> RequestId {
        RequestId(uuid::Uuid::from_u128(n + 1))
    }

    fn name(n: u128) -> &'static str {
        if n.is_multiple_of(3) { "a" } else { "b" }
    }

    /// However few ids fit into memory, the figures are the same, and no id is told of twice.
    #[test]
    fn slices_add_up() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("spool");
        FileStore::init(&root, "", uuid::Uuid::nil(), NOW).unwrap();
        let store = FileStore::open(&root, true).unwrap();
        let offers = (0..300).map(|n| Offer {
            envelope: Envelope {
                v: VERSION,
                request_id: id(n),
                destination: name(n).parse().unwrap(),
                enqueued_at: NOW,
                request: Request {
                    method: "POST".to_owned(),
                    path: String::new(),
                    query: vec![],
                    headers: vec![],
                    content_type: None,
                    body: None,
                    body_sha256: sha256_hex(b""),
                },
                requester: Requester::default(),
                notify: vec![],
                labels: std::collections::BTreeMap::new(),
                key: None,
                retry_of: None,
                not_before: None,
                not_after: None,
                notice: false,
            },
            accepted: Event::new(EventKind::Accepted, NOW, State::Pending),
            own_id: false,
            body: None,
        });
        let mut answers = Vec::new();
        store
            .accept_all(offers.collect(), &Limits::NONE, &mut answers)
            .unwrap();
        let at = |n: u128, state: &str| root.join(format!("{state}/{}/{}.jsonl", name(n), id(n)));
        for dir in ["held/a", "held/b"] {
            std::fs::create_dir(root.join(dir)).unwrap();
        }
        for n in 0..40 {
            std::fs::remove_file(at(n, "pending")).unwrap();
            std::fs::copy(at(n + 40, "pending"), at(n + 40, "held")).unwrap();
        }
        let aside = root.join(format!("corrupt/{}.jsonl", id(0)));
        std::fs::write(aside, "no item").unwrap();
        let ledger = root.join(format!("log/accepted-{}.jsonl", NOW.day_name()));
        let text = std::fs::read_to_string(&ledger).unwrap();
        let (lines, last) = text.split_at(text.trim_end().rfind('\n').unwrap() - 20);
        std::fs::write(&ledger, format!("\0\0\nno line\n{lines}\n{last}")).unwrap();

        let want = audit(&store, IDS_MAX).unwrap();
        assert_eq!((want.accepted, want.unlisted, want.corrupt), (299, 1, 1));
        assert_eq!((want.missing.len(), want.doubled.len()), (39, 40));
        assert_eq!(want.unreadable_lines, 4);
        assert_eq!(want.missing[0].request_id, id(1));
        assert_eq!(want.doubled[39].places.len(), 2);
        for ids_max in [1, 7, 299, 300] {
            assert_eq!(audit(&store, ids_max).unwrap(), want, "{ids_max}");
        }
        let whole = Slice { bits: 0, first: 0 };
        assert_eq!(look(&store, whole, &BTreeSet::new(), 299).unwrap(), None);
    }

    const ID: &str = "019adf3e-6b6b-7cc3-98f2-3a1c5d2e8f10";

    #[test]
    fn every_id_is_in_one_slice_of_any_number() {
        for (ids, ids_max, slices) in [(0, 1, 1), (8, 8, 1), (9, 8, 2), (1000, 10, 128)] {
            let all = Slice::all(ids, ids_max);
            assert_eq!(all.len(), slices);
            for n in 1..200 {
                let id = RequestId(uuid::Uuid::from_u128(n));
                let holding: Vec<&Slice> = all.iter().filter(|slice| slice.holds(id)).collect();
                assert_eq!(holding.len(), 1, "{n}");
                let halves = holding[0].halves().unwrap();
                assert_eq!(halves.iter().filter(|half| half.holds(id)).count(), 1);
            }
        }
    }

    #[test]
    fn names_of_what_was_set_aside() {
        let id = Some(ID.parse().unwrap());
        for end in [
            ".jsonl",
            ".3.jsonl",
            ".jsonl.2",
            ".3.jsonl.12",
            ".jsonl.why.json",
            ".jsonl.2.why.json",
        ] {
            assert_eq!(set_aside_id(&format!("{ID}{end}")), id, "{end}");
        }
        // A drop has the name that its producer chose.
        for end in [
            "",
            ".json",
            ".jsonl.json",
            ".json.why.json",
            ".jsonl.x",
            ".jsonl.",
        ] {
            assert_eq!(set_aside_id(&format!("{ID}{end}")), None, "{end}");
        }
    }
}
