//! The sections that are not destinations: `[tick]`, `[retry]`, `[retention]`, `[limits]`,
//! `[notify]`, `[store]`.

use std::ops::Range;

use super::reader::{Section, Value};
use super::{Limits, Notify, NotifyCommand, NotifyOn, Store, Tick, command};
use crate::model::ids::DestName;
use crate::model::policy::Backoff;
use crate::model::time::DAY_MS;
use crate::model::tombstone::Retention;

/// More at once than a tick could keep apart; also far below what a semaphore can count.
pub(super) const CONCURRENCY_MAX: u32 = 65_536;

/// Why a promised key is refused.
const NOT_YET: &str = "remove it; a setting that does nothing is not accepted";

/// What `[retry]` says, and what a destination overrides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Retry {
    /// Waits between attempts.
    pub(super) backoff: Backoff,
    /// How many counted attempts.
    pub(super) attempts_max: u32,
    /// How long an item is tried, in milliseconds.
    pub(super) age_ms_max: u64,
    /// The longest wait that is not a hold, in milliseconds.
    pub(super) wait_ms_max: u64,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            backoff: Backoff {
                base_ms: 30_000,
                factor: 2.0,
                max_ms: 3_600_000,
            },
            attempts_max: 20,
            age_ms_max: 3 * 86_400_000,
            wait_ms_max: 86_400_000,
        }
    }
}

impl Default for Tick {
    fn default() -> Self {
        Self {
            max_runtime_ms: 50_000,
            concurrency: 32,
            grace_ms: None,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_body_bytes: 1 << 20,
            max_items: None,
            min_free_bytes: 16 << 20,
        }
    }
}

/// What a file says beside its destinations.
#[derive(Default)]
pub(super) struct General {
    pub(super) tick: Tick,
    pub(super) retry: Retry,
    pub(super) retention: Retention,
    pub(super) limits: Limits,
    pub(super) notify: Notify,
    /// Where the names in `notify.destinations` stand, to check them when all are known.
    pub(super) notify_spans: Vec<Range<usize>>,
    pub(super) command: Option<NotifyCommand>,
    /// Also when it is at fault: who refers to it is not wrong.
    pub(super) has_command: bool,
    pub(super) store: Store,
}

/// Reads everything but `[destination.*]`.
pub(super) fn read(root: &mut Section<'_>) -> General {
    let mut general = General::default();
    if let Some(section) = table(root, "tick") {
        general.tick = tick(section);
    }
    if let Some(section) = table(root, "retry") {
        general.retry = retry(section, &general.retry);
    }
    if let Some(section) = table(root, "retention") {
        general.retention = retention(section);
    }
    if let Some(section) = table(root, "limits") {
        general.limits = limits(section);
    }
    if let Some(mut section) = table(root, "notify") {
        general.has_command = section.table().contains_key("command");
        general.command = command::read(&mut section);
        (general.notify, general.notify_spans) = notify(section);
    }
    if let Some(section) = table(root, "store") {
        general.store = store(section);
    }
    for key in ["metrics", "report"] {
        root.not_yet(key, NOT_YET);
    }
    general
}

fn table<'a>(root: &mut Section<'a>, key: &'static str) -> Option<Section<'a>> {
    root.take(key)?.section(&format!(
        "write [{key}] on a line of its own, its keys below"
    ))
}

fn tick(mut section: Section<'_>) -> Tick {
    let usual = Tick::default();
    let tick = Tick {
        max_runtime_ms: duration(&mut section, "max_runtime", 1).unwrap_or(usual.max_runtime_ms),
        concurrency: concurrency(&mut section).unwrap_or(usual.concurrency),
        // Nothing is waited for: a choice, if a harsh one.
        grace_ms: duration(&mut section, "grace", 0),
    };
    section.finish();
    tick
}

/// Reads `[retry]`, or a destination's `retry`, over what holds without it.
pub(super) fn retry(mut section: Section<'_>, usual: &Retry) -> Retry {
    let retry = Retry {
        backoff: Backoff {
            base_ms: duration(&mut section, "base", 0).unwrap_or(usual.backoff.base_ms),
            factor: section
                .take("factor")
                .and_then(|value| value.factor())
                .unwrap_or(usual.backoff.factor),
            max_ms: duration(&mut section, "max", 1).unwrap_or(usual.backoff.max_ms),
        },
        attempts_max: section
            .take("attempts")
            .and_then(|value| value.integer(1..=u32::MAX))
            .unwrap_or(usual.attempts_max),
        age_ms_max: duration(&mut section, "age", 1).unwrap_or(usual.age_ms_max),
        wait_ms_max: duration(&mut section, "max_wait", 1).unwrap_or(usual.wait_ms_max),
    };
    section.finish();
    retry
}

fn retention(mut section: Section<'_>) -> Retention {
    let usual = Retention::default();
    let retention = Retention {
        confirmed_ms: duration(&mut section, "confirmed", 0).unwrap_or(usual.confirmed_ms),
        failed_ms: duration(&mut section, "failed", 0).unwrap_or(usual.failed_ms),
        // Whoever got an id from us may ask for it; that must be worth trying.
        tombstones_ms: duration(&mut section, "tombstones", DAY_MS).unwrap_or(usual.tombstones_ms),
    };
    section.finish();
    retention
}

fn limits(mut section: Section<'_>) -> Limits {
    let usual = Limits::default();
    let mut size = |name: &'static str| section.take(name).and_then(|value| value.size());
    let max_body = size("max_body");
    let min_free = size("min_free");
    let max_items = section
        .take("max_items")
        .and_then(|value| value.integer(1..=u32::MAX));
    section.finish();
    Limits {
        max_body_bytes: max_body.unwrap_or(usual.max_body_bytes),
        max_items: max_items.map(u64::from),
        min_free_bytes: min_free.unwrap_or(usual.min_free_bytes),
    }
}

fn notify(mut section: Section<'_>) -> (Notify, Vec<Range<usize>>) {
    let mut notify = Notify::default();
    let mut spans = Vec::new();
    for value in list(&mut section, "destinations").unwrap_or_default() {
        let Some(text) = value.text() else { continue };
        match text.parse::<DestName>() {
            Ok(name) if notify.destinations.contains(&name) => {
                value.refuse(format!("names `{name}` twice"), "once is enough");
            }
            Ok(name) => {
                notify.destinations.push(name);
                spans.push(value.span());
            }
            Err(error) => value.refuse(format!("is no name: {error}"), "name a [destination.*]"),
        }
    }
    if let Some(words) = list(&mut section, "on") {
        notify.on = NotifyOn {
            held: false,
            failed: false,
            parked: false,
            corrupt: false,
        };
        for value in words {
            let on = &mut notify.on;
            let words = [("held", 0), ("failed", 1), ("parked", 2), ("corrupt", 3)];
            match value.choice(&words) {
                Some(0) => on.held = true,
                Some(1) => on.failed = true,
                Some(2) => on.parked = true,
                Some(_) => on.corrupt = true,
                None => {}
            }
        }
    }
    section.finish();
    (notify, spans)
}

fn store(mut section: Section<'_>) -> Store {
    let mut store = Store::default();
    let allowed = section.take("allow_network_filesystem");
    if let Some(allowed) = allowed.and_then(|value| value.boolean()) {
        store.allow_network_filesystem = allowed;
    }
    section.not_yet(
        "url",
        "the spool's directory is the only store: PostgreSQL is not in this version; remove it",
    );
    section.finish();
    store
}

/// A duration in milliseconds, if the key is there and right.
pub(super) fn duration(section: &mut Section<'_>, key: &'static str, low_ms: u64) -> Option<u64> {
    section.take(key)?.duration_ms(low_ms)
}

/// `concurrency`, if it is there and right.
pub(super) fn concurrency(section: &mut Section<'_>) -> Option<usize> {
    let count = section.take("concurrency")?.integer(1..=CONCURRENCY_MAX)?;
    usize::try_from(count).ok()
}

fn list<'a>(section: &mut Section<'a>, key: &'static str) -> Option<Vec<Value<'a>>> {
    section.take(key).map(|value| value.list())
}
