//! Owning the lock outside a tick.

use std::sync::atomic::AtomicBool;

use super::tick::patiently;
use super::whoami;
use crate::clock::{Clock as _, SystemClock};
use crate::config::Config;
use crate::engine::{self, Trust};
use crate::entropy;
use crate::model::time::UnixMs;
use crate::store::file::FileStore;
use crate::store::{Owner, Session, Store as _};

/// The lock, its owner's time, and how far that can be trusted.
pub(super) struct Owned<'a> {
    pub(super) session: Box<dyn Session + 'a>,
    pub(super) now: UnixMs,
    pub(super) trust: Trust,
}

/// How an owner of the lock is named to who waits for it.
pub(super) fn who() -> String {
    format!("{}, process {}", whoami(), std::process::id())
}

/// Waits so many seconds for a running tick. What a dead tick was sending is recorded by whoever
/// owns the lock next, so that no decision misses it.
pub(super) fn own<'a>(
    config: &Config,
    store: &'a FileStore,
    wait_s: u64,
) -> anyhow::Result<Owned<'a>> {
    let clock = SystemClock::new();
    let who = who();
    let session = patiently(wait_s.saturating_mul(1000), &AtomicBool::new(false), || {
        store.lock(&Owner {
            who: &who,
            now: clock.now(),
            told_of_corrupt: config.notify.told_of_corrupt(),
            told_in_text: &config.notify.in_text,
        })
    })?;
    // Not earlier: whoever owned the lock until now may have claimed meanwhile, and an interruption
    // before its claim would look like a clock that was set back.
    let now = clock.now();
    let trust = engine::clock_trust(store, &clock)?;
    let mut owned = Owned {
        session,
        now,
        trust,
    };
    owned.recover(config, store)?;
    Ok(owned)
}

impl Owned<'_> {
    /// Records what was being sent when somebody died.
    pub(super) fn recover(&mut self, config: &Config, store: &FileStore) -> anyhow::Result<()> {
        engine::recover(
            self.session.as_mut(),
            store,
            config,
            &mut entropy::jitter,
            self.now,
            &self.trust,
            |_, _, _| {},
        )?;
        Ok(())
    }
}
