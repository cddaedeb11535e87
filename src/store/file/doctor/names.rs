//! Keys, callers' own ids and bodies that belong to no item.

use std::collections::HashSet;

use super::super::super::StoreError;
use super::super::super::checkup::FindingKind;
use super::super::super::disk::Kind;
use super::super::keys::Reservation;
use super::super::tombstones::{self, LogReader};
use super::items::hash_of;
use super::{Look, Mend};
use crate::model::envelope::BODIES;
use crate::model::ids::{DestName, RequestId};

/// A name in `keys/` of an id that is in no state.
struct Orphan {
    path: String,
    id: Option<RequestId>,
}

impl Look<'_> {
    pub(super) fn names(&mut self) -> Result<(), StoreError> {
        let aside = self.set_aside()?;
        let mut orphans = Vec::new();
        for entry in self.entries("keys") {
            let name = entry.name.clone().unwrap_or_default();
            let is_ids = name == "_ids";
            if entry.kind != Kind::Directory || !(is_ids || name.parse::<DestName>().is_ok()) {
                self.foreign(
                    &entry.path,
                    "only directories named as destinations belong here",
                );
                continue;
            }
            self.check_access(&entry.path, 0o700);
            for file in self.entries(&entry.path) {
                let name = file.name.clone().unwrap_or_default();
                let is_name = if is_ids {
                    name.parse::<RequestId>().is_ok()
                } else {
                    name.len() == 64 && name.bytes().all(|b| b.is_ascii_hexdigit())
                };
                if file.kind != Kind::File || !is_name {
                    self.foreign(&file.path, "only reservations belong here");
                    continue;
                }
                let own = name.parse().ok().filter(|_| is_ids);
                orphans.extend(self.name(file.path, own, &aside));
            }
        }
        self.orphans(orphans)?;
        self.bodies(&aside);
        Ok(())
    }

    /// The ids of files in `corrupt/`: what belongs to them is kept.
    fn set_aside(&self) -> Result<HashSet<RequestId>, StoreError> {
        let mut aside = HashSet::new();
        self.store.list("corrupt", &mut |name, _| {
            let name = name.to_str().and_then(|name| name.get(..36));
            aside.extend(name.and_then(|name| name.parse::<RequestId>().ok()));
        })?;
        Ok(aside)
    }

    /// One name in `keys/`; `own` is the id that it is, where it is one. Returned if it may be
    /// nobody's.
    fn name(
        &mut self,
        path: String,
        own: Option<RequestId>,
        aside: &HashSet<RequestId>,
    ) -> Option<Orphan> {
        let meta = self.stat(&path)?;
        self.check_meta(&path, &meta, 0o600);
        if self.flagged.contains(&path) {
            return None;
        }
        // One that cannot be read says nothing: of an id its name does.
        let known: Option<Reservation> = self.store.read_json(&path).ok()?;
        let id = own.or_else(|| known.map(|known| known.request_id));
        if let Some(id) = id {
            if self.is_moving(id) || aside.contains(&id) || self.unread.contains(&id) {
                return None;
            }
            if self.is_there(id) {
                let is_its =
                    own.is_some() || self.keyed.binary_search(&(id, hash_of(&path))).is_ok();
                if !is_its {
                    self.add_of(
                        FindingKind::Key,
                        &path,
                        Some(id),
                        &format!("names item {id}, which has another key or destination"),
                        "look at the item; if nothing should stand for this key, remove the file",
                        Mend::Person,
                    );
                }
                return None;
            }
        }
        if !self.is_old(&meta) {
            self.reserved.extend(id);
            return None;
        }
        Some(Orphan { path, id })
    }

    /// Of those that may be nobody's: what was pruned has a tombstone.
    fn orphans(&mut self, orphans: Vec<Orphan>) -> Result<(), StoreError> {
        if orphans.is_empty() {
            return Ok(());
        }
        let asked: HashSet<RequestId> = orphans.iter().filter_map(|orphan| orphan.id).collect();
        let mut pruned = HashSet::new();
        for day in tombstones::days(self.store)? {
            let mut log = LogReader::new(day);
            while let Some(part) = log.next(self.store, |_| true)? {
                let ids = part.iter().map(|tombstone| tombstone.request_id);
                pruned.extend(ids.filter(|id| asked.contains(id)));
            }
        }
        for Orphan { path, id } in orphans {
            if id.is_some_and(|id| pruned.contains(&id)) {
                continue;
            }
            let what = id.map_or_else(
                || "is damaged, and no item has this key".to_owned(),
                |id| format!("names item {id}, which is nowhere and was not pruned"),
            );
            self.add_of(
                FindingKind::OrphanKey,
                &path,
                id,
                &format!("{what}: whoever reserved it died more than a day ago"),
                "it is removed; nothing was accepted under it",
                Mend::DropKey,
            );
        }
        Ok(())
    }

    fn bodies(&mut self, aside: &HashSet<RequestId>) {
        for entry in self.entries(BODIES.trim_end_matches('/')) {
            let id = entry.name.as_deref().and_then(|name| name.parse().ok());
            let (Kind::File, Some(id)) = (entry.kind, id) else {
                self.foreign(&entry.path, "only bodies named as their items belong here");
                continue;
            };
            let Some(meta) = self.stat(&entry.path) else {
                continue;
            };
            self.check_meta(&entry.path, &meta, 0o600);
            let is_used = self.is_there(id)
                || self.is_moving(id)
                || aside.contains(&id)
                || self.reserved.contains(&id);
            if !is_used && self.is_old(&meta) {
                self.add_of(
                    FindingKind::OrphanBody,
                    &entry.path,
                    Some(id),
                    "no item has this body, and nobody has touched it for a day",
                    "it is removed; nothing was accepted with it",
                    Mend::Body(id),
                );
            }
        }
    }
}
