//! The spool's own files and directories, and what does not belong.

use super::super::super::StoreError;
use super::super::super::checkup::FindingKind;
use super::super::super::disk::Kind;
use super::super::{DIRS, journal, reserve};
use super::{Look, Mend};
use crate::model::ids::DestName;

/// What else than directories may lie at the top of a spool.
const TOP: [&str; 9] = [
    "spool.json",
    "tickpost.toml",
    "lock",
    "wake",
    reserve::DIR,
    "README.md",
    "destinations.d",
    "profiles.d",
    "lost+found",
];

/// The mode bits that an administrator may add on the way to a drop box: to pass, not to look.
const PASS: u32 = 0o011;

impl Look<'_> {
    pub(super) fn tree(&mut self, owned: bool) -> Result<(), StoreError> {
        self.own_top();
        self.top();
        if !owned {
            self.leftover_journal()?;
        }
        for dir in ["journal", "order", "log", "destinations", "tmp"] {
            self.own_files(dir);
        }
        self.boxes();
        let waiting = self.entries("corrupt");
        let files = waiting.iter().filter(|entry| {
            let is_why = |name: &String| name.ends_with(".why.json");
            !entry.name.as_ref().is_some_and(is_why)
        });
        let count = files.count();
        if count > 0 {
            let word = if count == 1 {
                "file waits"
            } else {
                "files wait"
            };
            self.add(
                FindingKind::Corrupt,
                "corrupt",
                &format!("{count} {word} for a person"),
                "read each .why.json; spool/README.md, corrupt/, says the way out",
                Mend::Person,
            );
        }
        Ok(())
    }

    /// The spool itself and what of it lies at its top: one look at each, and none into it.
    pub(super) fn own_top(&mut self) {
        self.check_open_dir("");
        for dir in DIRS {
            match self.stat(dir) {
                None => self.add(
                    FindingKind::Missing,
                    dir,
                    "the directory is missing",
                    "it is made",
                    Mend::MakeDir,
                ),
                Some(meta) if meta.kind != Kind::Directory => {
                    self.foreign(dir, "a directory of the spool belongs here");
                }
                Some(_) if dir == "incoming" => self.check_open_dir(dir),
                Some(meta) => self.check_meta(dir, &meta, 0o700),
            }
        }
        match self.stat(reserve::DIR) {
            Some(meta) if meta.kind == Kind::Directory => {
                self.check_meta(reserve::DIR, &meta, 0o700);
            }
            Some(_) => self.foreign(reserve::DIR, "the directory of the reserve belongs here"),
            // It was given up, or the spool has never been locked.
            None => {}
        }
        for file in ["spool.json", "lock", "wake"] {
            match self.stat(file) {
                Some(meta) if meta.kind == Kind::File => self.check_meta(file, &meta, 0o600),
                Some(_) => self.foreign(file, "a file of the spool belongs here"),
                None if file == "wake" => self.add(
                    FindingKind::Missing,
                    file,
                    "the file is missing: no path unit sees what is accepted",
                    "it is made",
                    Mend::MakeFile,
                ),
                None if file == "lock" => self.add(
                    FindingKind::Missing,
                    file,
                    "the file is missing: by it a spool is told from a copy, and no tick runs without it",
                    "make sure that no other spool holds these items, then `tickpost doctor --adopt`",
                    Mend::Person,
                ),
                None => {}
            }
        }
    }

    fn top(&mut self) {
        self.own_files(reserve::DIR);
        if let Err(error @ StoreError::Copied { .. }) = self.store.check_original() {
            self.add(
                FindingKind::Copied,
                "lock",
                &error.to_string(),
                "`tickpost doctor --adopt` makes it a spool of its own: nothing of it is sent before you release it",
                Mend::Person,
            );
        }
        for entry in self.entries("") {
            let name = entry.name.as_deref().unwrap_or_default();
            let is_ours = DIRS.contains(&name)
                || TOP.contains(&name)
                || name.starts_with("tickpost.toml")
                || name.starts_with('.');
            if !is_ours {
                let path = entry.path.trim_start_matches('/').to_owned();
                self.foreign(&path, "nothing of this name belongs in a spool");
            }
        }
    }

    /// A directory that may be passed by others on their way to a drop box, but not be listed.
    fn check_open_dir(&mut self, dir: &str) {
        let path = self.store.path(dir);
        let shown = if dir.is_empty() { "." } else { dir };
        if let Some(meta) = self.stat(dir).filter(|meta| meta.uid != self.owner) {
            self.check_meta(shown, &meta, 0o700);
        }
        if let Ok(Some(mode)) = self.store.disk.mode(&path) {
            self.check_mode(shown, mode, 0o700 | (mode & PASS));
        }
    }

    /// A journal while nobody owns the lock: its owner died. While somebody owns it, it is at work.
    fn leftover_journal(&mut self) -> Result<(), StoreError> {
        let segments = journal::segments(self.store.disk.as_ref(), &self.store.root)?;
        if segments.is_empty() {
            return Ok(());
        }
        // Owned for this moment alone, and only where somebody has died or is at work.
        let is_free = matches!(self.store.disk.lock(&self.store.path("lock")), Ok(Some(_)));
        if is_free {
            self.add(
                FindingKind::Journal,
                "journal",
                "moves or notices are in it alone: whoever owned the lock last has died, or a place is \
                 out of reach, of which ticks warn",
                "what can be done is done; the next tick does it too",
                Mend::Owner,
            );
        }
        Ok(())
    }

    /// Directories that hold files of ours and nothing else.
    fn own_files(&mut self, dir: &str) {
        for entry in self.entries(dir) {
            let name = entry.name.clone().unwrap_or_default();
            if entry.kind != Kind::File {
                self.foreign(&entry.path, "only files belong here");
                continue;
            }
            let belongs = match dir {
                "journal" => name
                    .strip_suffix(".jsonl")
                    .is_some_and(|stem| stem.parse::<u64>().is_ok()),
                "destinations" => name.strip_suffix(".json").is_some_and(|stem| {
                    let stem = stem.strip_suffix(".hold").unwrap_or(stem);
                    stem.parse::<DestName>().is_ok()
                }),
                "order" => false,
                _ => entry.name.is_some(),
            };
            if !belongs {
                self.foreign(&entry.path, "nothing of this name belongs here");
                continue;
            }
            let Some(meta) = self.stat(&entry.path) else {
                continue;
            };
            self.check_meta(&entry.path, &meta, 0o600);
            if dir == "tmp" && self.is_old(&meta) {
                self.add(
                    FindingKind::Unfinished,
                    &entry.path,
                    "was begun more than a day ago and never finished: nothing of it was accepted",
                    "it is removed; the next tick does it too",
                    Mend::Owner,
                );
            }
        }
    }

    /// The drop boxes. Their modes, and the files of others in them, are the administrator's.
    fn boxes(&mut self) {
        for entry in self.entries("incoming") {
            let destination = entry.name.as_deref().and_then(|name| name.parse().ok());
            let (Kind::Directory, Some(destination)) = (entry.kind, destination) else {
                self.foreign(
                    &entry.path,
                    "only directories named as destinations belong here",
                );
                continue;
            };
            if let Ok(Some(mode)) = self.store.disk.mode(&self.store.path(&entry.path)) {
                self.check_mode(&entry.path, mode, 0o700 | (mode & 0o077));
            }
            let files = self.drops(&entry.path);
            let is_known = self
                .checkup
                .configured
                .is_none_or(|configured| configured.contains(&destination));
            if files > 0 && !is_known {
                let word = if files == 1 {
                    "file waits"
                } else {
                    "files wait"
                };
                self.add(
                    FindingKind::Unconfigured,
                    &entry.path,
                    &format!("destination `{destination}` is not configured, and {files} {word}"),
                    "configure the destination, or move the files away",
                    Mend::Person,
                );
            }
        }
    }

    /// Looks at the files in a box, and counts them.
    fn drops(&mut self, dir: &str) -> u64 {
        let mut files = 0;
        for entry in self.entries(dir) {
            let name = entry.name.clone().unwrap_or_default();
            if name.starts_with('.') {
                // Still being written.
                continue;
            }
            files += 1;
            let is_taking = name.ends_with(".taking");
            let meta = self.stat(&entry.path);
            if entry.kind != Kind::File {
                self.foreign(
                    &entry.path,
                    "it is not a regular file, and is never taken in",
                );
            } else if !is_taking && name.strip_suffix(".json").is_none() {
                self.foreign(
                    &entry.path,
                    "its name does not end in .json: it is never taken in",
                );
            } else if meta.is_some_and(|meta| meta.nlink > 1) {
                self.foreign(
                    &entry.path,
                    "it has a second name (a hard link): it is never taken in",
                );
            } else if is_taking && meta.is_some_and(|meta| self.is_old(&meta)) {
                self.add(
                    FindingKind::Unfinished,
                    &entry.path,
                    "was to be taken in more than a day ago, and is still there",
                    "the next tick that can takes it in; look at what `tickpost tick` says of it",
                    Mend::Person,
                );
            }
        }
        files
    }
}
