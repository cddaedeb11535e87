//! `log/clock.json`: what the clock has shown to owners of the lock.

use serde::{Deserialize, Serialize};

use super::super::StoreError;
use super::FileStore;
use super::journal::io_error;
use crate::model::time::{STEP_BACK_MS, UnixMs};

/// Where it is.
const CLOCK: &str = "log/clock.json";

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct ClockFile {
    /// The time of the last one.
    pub(super) latest: UnixMs,
    /// The latest time that the clock had shown before it was set back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) set_back_until: Option<UnixMs>,
}

impl ClockFile {
    /// As the last owner left it; `claimed` is when one that died has claimed something last.
    pub(super) fn read(
        store: &FileStore,
        now: UnixMs,
        replayed: Option<UnixMs>,
    ) -> Result<(Self, bool), StoreError> {
        let mut clock: Self = store.read_json(CLOCK)?.unwrap_or_default();
        let latest = replayed.map_or(clock.latest, |at| at.max(clock.latest));
        let was_set_back = latest > now.plus(STEP_BACK_MS);
        if was_set_back {
            clock.set_back_until = clock.set_back_until.max(Some(latest));
        }
        clock.latest = now;
        Ok((clock, was_set_back))
    }

    /// Synced only where it says what nothing else does; a sync of everything follows.
    pub(super) fn write(&self, store: &FileStore) -> Result<(), StoreError> {
        let json = serde_json::to_vec(self).map_err(|source| StoreError::Encode {
            what: "the clock's file",
            source,
        })?;
        store.make_dirs("log")?;
        if self.set_back_until.is_some() {
            return store.write_whole(CLOCK, &json);
        }
        let name = CLOCK.replace('/', "_");
        let temporary = store.temporary(&name, |path| store.disk.write_new(path, &json, None))?;
        let target = store.path(CLOCK);
        store
            .disk
            .replace(&temporary, &target)
            .map_err(|source| io_error("rename", &target, source))
    }
}
