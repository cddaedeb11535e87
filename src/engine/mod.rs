//! One tick: recover → take in → wake → due → claim → send → classify → settle → prune, under one
//! lock.
//!
//! # Order of writes
//!
//! 1. The claim is durable before the first byte leaves.
//! 2. The request is sent.
//! 3. The settle is in the journal as soon as the answer is known, and durable with the next
//!    claims or within a tenth of a second.
//!
//! A crash before 1 leaves the item pending and nothing was sent; from then until 3 it is
//! unknown, and the next tick says so.
//!
//! # Failure
//!
//! The first failed write ends the tick: nothing more is sent, nothing is tried again.

mod attempt;
mod causes;
mod deliver;
mod ingest;
mod judge;
mod lane;
pub mod plan;
pub mod report;
mod suspicion;

use std::collections::HashMap;

use self::attempt::Flight;
use self::judge::interrupted_event;
use self::lane::Lane;
use self::report::{Report, StoppedBy, Untold};
pub use self::suspicion::Trust;
use crate::clock::Clock;
use crate::config::{Config, NotifyOn};
use crate::model::event::Event;
use crate::model::ids::{DestName, RequestId};
use crate::model::item::Item;
use crate::model::notice::Notice;
use crate::model::state::State;
use crate::model::time::UnixMs;
use crate::store::{Owner, Session, Store, StoreError};
use crate::transport::Transport;

/// How many items past retention one tick looks at, at most: pruning is what a tick does with the
/// time that is left, and must not make it long.
pub const PRUNE_ITEMS_MAX: usize = 5_000;

/// Between so many of them a tick sees whether it is time to stop.
const PRUNE_STEP_ITEMS: usize = 256;

/// How a tick is narrowed.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only this destination.
    pub destination: Option<DestName>,
    /// At most so many attempts.
    pub limit: Option<u64>,
    /// Instead of the configured `max_runtime`, in milliseconds.
    pub max_runtime_ms: Option<u64>,
}

/// One attempt, for whoever watches.
#[derive(Clone, Debug)]
pub struct AttemptLine {
    /// The item.
    pub id: RequestId,
    /// Its destination.
    pub destination: DestName,
    /// The event as it was written.
    pub event: Event,
}

/// What a tick works with. The parts that a test replaces are references.
pub struct Engine<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// The store.
    pub store: &'a dyn Store,
    /// The clock.
    pub clock: &'a dyn Clock,
    /// Draws a jitter from 0 to 1000.
    pub jitter: &'a mut dyn FnMut() -> u16,
    /// Whether a signal has asked to stop.
    pub stop: &'a dyn Fn() -> bool,
    /// Is told of every attempt.
    pub watch: &'a mut dyn FnMut(&AttemptLine),
}

impl Engine<'_> {
    /// Makes one pass.
    ///
    /// # Errors
    ///
    /// [`StoreError::Locked`] if another tick runs; any other [`StoreError`] ends the tick at
    /// once. What was settled before is not lost.
    pub fn tick(
        &mut self,
        transport: &mut dyn Transport,
        options: &Options,
    ) -> Result<Report, StoreError> {
        let now = self.clock.now();
        let who = format!("tick, process {}", std::process::id());
        let session = self.store.lock(&Owner {
            who: &who,
            now,
            told_of_corrupt: self.config.notify.told_of_corrupt(),
            told_in_text: &self.config.notify.in_text,
        })?;
        let mut report = Report::begin(now);
        let trust = clock_trust(self.store, self.clock)?.and(session.set_back_until());
        report.clock_suspect.clone_from(&trust.suspicion);
        report.set_back_until = trust.set_back_until;
        Tick {
            engine: self,
            session,
            transport,
            options,
            report,
            trust,
            lanes: Vec::new(),
            flights: HashMap::new(),
            next_token: 0,
            unsynced: 0,
            unsynced_since: 0,
            untold: Untold::default(),
        }
        .run()
    }
}

/// A tick under way.
struct Tick<'t, 'e> {
    engine: &'t mut Engine<'e>,
    session: Box<dyn Session + 't>,
    transport: &'t mut dyn Transport,
    options: &'t Options,
    report: Report,
    trust: Trust,
    lanes: Vec<Lane>,
    flights: HashMap<u64, Flight>,
    next_token: u64,
    unsynced: usize,
    unsynced_since: u64,
    untold: Untold,
}

impl Tick<'_, '_> {
    fn run(mut self) -> Result<Report, StoreError> {
        let begun_ms = self.engine.clock.steady_ms();
        self.recover()?;
        if self.session.tight().is_none() {
            self.take_in(begun_ms)?;
            self.open_lanes()?;
            self.wake()?;
        }
        self.deliver(begun_ms)?;
        self.deliver_news(begun_ms)?;
        self.expire_suspended()?;
        self.tell(begun_ms)?;
        self.remember()?;
        self.prune(begun_ms)?;
        self.close(begun_ms)
    }

    fn now(&self) -> UnixMs {
        self.engine.clock.now()
    }

    /// Everything that a dead tick was sending was interrupted: it is recorded and gets what
    /// its destination allows.
    fn recover(&mut self) -> Result<(), StoreError> {
        let now = self.now();
        let states = recover(
            self.session.as_mut(),
            self.engine.store,
            self.engine.config,
            self.engine.jitter,
            now,
            &self.trust,
            |item, event, told| self.untold.note(item, event, told),
        )?;
        self.report.recovered = states.len() as u64;
        for state in states {
            self.report.count(state);
        }
        Ok(())
    }

    fn remember(&mut self) -> Result<(), StoreError> {
        for lane in self.lanes.iter().filter(|lane| lane.changed) {
            self.session
                .remember(&lane.destination.name, &lane.memory)?;
        }
        Ok(())
    }

    /// Deletes a bounded number of what is past retention, if there is time for it, and nothing
    /// at all by a clock that is not to be trusted.
    fn prune(&mut self, begun_ms: u64) -> Result<(), StoreError> {
        // Where there is no room, this is what makes some.
        let goes_on = |cause| matches!(cause, StoppedBy::Done | StoppedBy::NoRoom);
        if self.trust.is_suspect() || !goes_on(self.report.stopped_by) {
            return Ok(());
        }
        let now = self.now();
        let mut looks = 0;
        while looks < PRUNE_ITEMS_MAX && self.stop_cause(begun_ms).is_none_or(goes_on) {
            let step = PRUNE_STEP_ITEMS.min(PRUNE_ITEMS_MAX - looks);
            let retention = &self.engine.config.retention;
            let pruned = self.session.prune(retention, now, step)?;
            self.report.pruned += pruned.items;
            if !pruned.left {
                break;
            }
            // A part of an old log of tombstones is a step too, and none of the bound.
            let looked = pruned.items.saturating_add(pruned.kept);
            looks = looks.saturating_add(usize::try_from(looked).unwrap_or(step));
        }
        Ok(())
    }

    fn close(mut self, begun_ms: u64) -> Result<Report, StoreError> {
        let now = self.now();
        let open: Vec<DestName> = self
            .lanes
            .iter()
            .filter(|lane| !lane.dry)
            .map(|lane| lane.destination.name.clone())
            .collect();
        for name in open {
            self.report.left += self.session.left(&name, now)?;
        }
        let met = self.session.met();
        self.report.corrupt = met.set_aside.len() as u64;
        self.report.foreign += met.foreign.len() as u64;
        self.report.warnings.extend(met.warnings());
        self.report
            .warnings
            .extend(std::mem::take(&mut self.untold).warnings());
        self.report
            .warnings
            .extend(self.report.clock_suspect.iter().map(|why| {
                format!("{why}; nothing expires and no key window counts as open in this tick")
            }));
        let clock = self.engine.clock;
        self.report.no_room = self.session.tight();
        if self.report.no_room.is_some() && self.report.stopped_by == StoppedBy::Done {
            self.report.stopped_by = StoppedBy::NoRoom;
        }
        self.report.ended_at = now;
        self.report.ms = clock.steady_ms().saturating_sub(begun_ms);
        if let Some((id, up_ms)) = clock.boot() {
            self.report.boot_id = Some(id);
            self.report.boot_ms = Some(up_ms);
        }
        let line = serde_json::to_value(&self.report).map_err(|source| StoreError::Encode {
            what: "the tick's line",
            source,
        })?;
        self.session.close(now, Some(&line))?;
        Ok(self.report)
    }
}

fn lane_of<'l>(lanes: &'l mut [Lane], name: &DestName) -> Option<&'l mut Lane> {
    lanes.iter_mut().find(|lane| lane.destination.name == *name)
}

/// How far the clock can be trusted, by what the last tick left behind. What cannot be read counts as
/// not there, as a damaged log does: what the owners of the lock have seen is kept elsewhere too.
///
/// # Errors
///
/// The first other [`StoreError`] met.
pub fn clock_trust(store: &dyn Store, clock: &dyn Clock) -> Result<Trust, StoreError> {
    let last = match store.last_tick() {
        Err(StoreError::Io { op: "read", .. }) => None,
        last => last?,
    };
    let boot = clock.boot();
    Ok(Trust::of(last.as_ref(), clock.now(), boot.as_ref()))
}

/// Records what a dead tick was sending, as the first step of whoever owns the lock. Returns
/// the state of each item afterwards.
///
/// # Errors
///
/// The first [`StoreError`] met.
pub fn recover(
    session: &mut dyn Session,
    store: &dyn Store,
    config: &Config,
    jitter: &mut dyn FnMut() -> u16,
    now: UnixMs,
    trust: &Trust,
    mut watch: impl FnMut(&Item, &Event, &[Notice]),
) -> Result<Vec<State>, StoreError> {
    let mut states = Vec::new();
    if let Some(until) = trust.set_back_until {
        // The line of the tick that showed it may go with the power, and nothing may be sent by a
        // clock that nobody knows to stand wrong.
        session.note_set_back(until)?;
    }
    let trust = &trust.clone().and(session.set_back_until());
    session.recover(&mut |interrupted| {
        // Memory that cannot be read counts as empty.
        let memory = store
            .memory(&interrupted.item.envelope.destination)
            .unwrap_or_default();
        let event = interrupted_event(config, interrupted, &memory, now, trust, jitter());
        states.push(event.state);
        let told = notices(config, &interrupted.item, &event);
        watch(&interrupted.item, &event, &told);
        (event, told)
    })?;
    Ok(states)
}

/// Who is told of an event: the item's own addresses always, the configured ones as they wish.
#[must_use]
pub fn notices(config: &Config, item: &Item, event: &Event) -> Vec<Notice> {
    let NotifyOn {
        held,
        failed,
        parked,
        corrupt: _,
    } = config.notify.on;
    let wished = match event.state {
        State::Held => held,
        State::Failed => failed,
        State::Unknown => parked,
        State::Pending | State::Confirmed => false,
    };
    let to: &[DestName] = if wished {
        &config.notify.destinations
    } else {
        &[]
    };
    Notice::of(item, event, item.events.len() + 1, to)
}
