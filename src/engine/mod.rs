//! One tick: recover → wake → due → claim → send → classify → settle, under one lock.
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
mod lane;
pub mod plan;
pub mod report;
mod suspicion;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use self::attempt::Flight;
use self::lane::Lane;
use self::report::{Report, StoppedBy, Untold};
use crate::clock::Clock;
use crate::config::{Config, Destination, NotifyOn};
use crate::model::classify::{Exchange, classify};
use crate::model::event::{Event, EventKind};
use crate::model::ids::{DestName, RequestId};
use crate::model::item::Item;
use crate::model::notice::{About, Notice};
use crate::model::outcome::Outcome;
use crate::model::reason::Reason;
use crate::model::settle::{self, Settling, Turn};
use crate::model::state::State;
use crate::model::time::UnixMs;
use crate::store::{
    Claimed, Decision, Interrupted, Memory, Owner, Session, SetAside, Store, StoreError, Want,
};
use crate::transport::{self, Sent, Transport};

/// What was settled is made durable after this long at the latest, in milliseconds.
const SYNC_AFTER_MS: u64 = 100;

/// What was settled is made durable when it is this many items.
const SYNC_AFTER_ITEMS: usize = 256;

/// How many items may be claimed at once, begun or not, over all destinations.
const CLAIMED_MAX: usize = 1024;

/// How many due items of a suspended destination are looked at in a tick, for expiry.
const EXPIRY_LOOKS_MAX: usize = 256;

/// How many due items of a destination are looked at for one group of claims: between two groups
/// the tick sees whether it is time to stop.
const LOOKS_MAX: usize = 1024;

/// How many held items a destination gives back in a tick.
const WAKE_MAX: usize = 10_000;

/// How many items of a destination are sent in a tick while the clock is suspect.
const SUSPECT_BURST: usize = 100;

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
        let on = self.config.notify.on;
        let told: &[DestName] = if on.corrupt {
            &self.config.notify.destinations
        } else {
            &[]
        };
        let who = format!("tick, process {}", std::process::id());
        let session = self.store.lock(&Owner {
            who: &who,
            now,
            told_of_corrupt: told,
        })?;
        let mut report = Report::begin(now);
        report.clock_suspect = clock_suspicion(self.store, self.clock)?;
        let suspect = report.clock_suspect.is_some();
        Tick {
            engine: self,
            session,
            transport,
            options,
            report,
            suspect,
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
    suspect: bool,
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
        self.open_lanes()?;
        self.wake()?;
        self.deliver(begun_ms)?;
        self.expire_suspended()?;
        self.tell(begun_ms)?;
        self.remember()?;
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
            self.suspect,
            |item, event, told| self.untold.note(item, event, told),
        )?;
        self.report.recovered = states.len() as u64;
        for state in states {
            self.report.count(state);
        }
        Ok(())
    }

    fn open_lanes(&mut self) -> Result<(), StoreError> {
        let now = self.now();
        for name in self.session.destinations()? {
            let wanted = self.options.destination.as_ref();
            if wanted.is_some_and(|wanted| *wanted != name) {
                continue;
            }
            self.open_lane(&name, now)?;
        }
        // What all share, the tick's concurrency and time, goes first to those who answer: silent
        // destinations that fill it would keep the others out in every tick.
        self.lanes
            .sort_by_key(|lane| lane.memory.lost_in_a_row.len());
        for index in 0..self.lanes.len() {
            self.notice_changed_cause(index)?;
        }
        Ok(())
    }

    fn open_lane(&mut self, name: &DestName, now: UnixMs) -> Result<(), StoreError> {
        let Some(destination) = self.engine.config.destinations.get(name) else {
            return self.unconfigured(name);
        };
        let memory = self.engine.store.memory(name)?;
        let mut lane = Lane::new(Arc::new(destination.clone()), memory, now);
        if self.suspect {
            lane.quota = SUSPECT_BURST;
        }
        lane.operator_hold = self.engine.store.destination_hold(name.as_str())?.is_some();
        self.lanes.push(lane);
        Ok(())
    }

    /// Items of a destination that is not configured stay; somebody is told once.
    fn unconfigured(&mut self, name: &DestName) -> Result<(), StoreError> {
        self.report.warnings.push(format!(
            "destination `{name}` is not configured; its items stay where they are"
        ));
        let mut memory = self.engine.store.memory(name)?;
        if memory.told_unconfigured {
            return Ok(());
        }
        let told = Notice::of_file(
            About::Unconfigured,
            name.as_str(),
            &self.now().to_string(),
            name.as_str(),
            Reason::DESTINATION_DISABLED.as_str(),
            &self.engine.config.notify.destinations,
        );
        if !told.is_empty() {
            self.session.tell(told)?;
        }
        memory.told_unconfigured = true;
        // What is remembered must not outlive what it says was told.
        self.session.sync()?;
        self.session.remember(name, &memory)
    }

    /// When the destination's configuration or its secret has changed, what was held or
    /// suspended because of it may go.
    fn notice_changed_cause(&mut self, index: usize) -> Result<(), StoreError> {
        let now = self.now();
        let lane = &mut self.lanes[index];
        if lane.memory.told_unconfigured {
            lane.memory.told_unconfigured = false;
            lane.changed = true;
        }
        let changed = |before: &Option<String>, now: Option<String>| {
            before.is_some() && now.is_some() && *before != now
        };
        let secret = secret_fingerprint(&lane.destination);
        let config_changed = changed(
            &lane.memory.fingerprint,
            Some(lane.destination.fingerprint.clone()),
        );
        let secret_changed = changed(&lane.memory.secret_fingerprint, secret);
        if !config_changed && !secret_changed {
            return Ok(());
        }
        let cause_may_go = move |reason: &Reason| {
            is_auth(reason) || (config_changed && is_configured_cause(reason))
        };
        let suspension = lane.memory.suspended.as_ref();
        if suspension.is_some_and(|suspension| cause_may_go(&suspension.reason)) {
            lane.lift(now);
        }
        lane.memory.fingerprint = None;
        lane.memory.secret_fingerprint = None;
        lane.changed = true;
        self.release_held(index, &cause_may_go)
    }

    /// Gives back held items whose reason `gone` accepts.
    fn release_held(
        &mut self,
        index: usize,
        gone: &dyn Fn(&Reason) -> bool,
    ) -> Result<(), StoreError> {
        let now = self.now();
        let name = self.lanes[index].destination.name.clone();
        self.report.released += self.session.reconsider(&name, &mut |item| {
            let standing = item.standing();
            let last = item.events.last();
            // What a person holds only a person gives back.
            let by_person = last.is_none_or(|event| event.by.is_some());
            if !by_person && standing.reason.as_ref().is_some_and(gone) {
                let mut event = Event::new(EventKind::Released, now, State::Pending);
                event.reason = standing.reason;
                event.note = Some("its cause is gone".to_owned());
                Decision::Settle(Box::new(event), Vec::new())
            } else {
                Decision::Leave
            }
        })?;
        Ok(())
    }

    /// Held items whose time has come are given back, or have expired.
    fn wake(&mut self) -> Result<(), StoreError> {
        let now = self.now();
        let suspect = self.suspect;
        let config = self.engine.config;
        let untold = &mut self.untold;
        for lane in &self.lanes {
            let name = lane.destination.name.clone();
            let mut expired = 0;
            let woken = self.session.wake(&name, now, WAKE_MAX, &mut |item| {
                let over = item.envelope.not_after.is_some_and(|end| end <= now);
                let due = item.standing().due.is_some_and(|due| due <= now);
                if over && !suspect {
                    expired += 1;
                    let mut event = Event::new(EventKind::Expired, now, State::Failed);
                    event.reason = Some(Reason::EXPIRED);
                    let told = notices(config, item, &event);
                    untold.note(item, &event, &told);
                    Decision::Settle(Box::new(event), told)
                } else if due {
                    let mut event = Event::new(EventKind::Released, now, State::Pending);
                    event.reason = item.standing().reason;
                    Decision::Settle(Box::new(event), Vec::new())
                } else {
                    Decision::Wait
                }
            })?;
            self.report.failed += expired;
            self.report.released += woken - expired;
        }
        Ok(())
    }

    /// Sends what is due until nothing is, or until it is time to stop.
    fn deliver(&mut self, begun_ms: u64) -> Result<(), StoreError> {
        let mut stopping_since: Option<u64> = None;
        loop {
            if stopping_since.is_none() {
                if let Some(cause) = self.stop_cause(begun_ms) {
                    self.report.stopped_by = cause;
                    stopping_since = Some(self.engine.clock.steady_ms());
                    self.put_back_ready()?;
                } else {
                    self.begin_ready()?;
                    if self.claim()? {
                        continue;
                    }
                }
            }
            let now = self.now();
            if self.flights.is_empty() && (stopping_since.is_some() || !self.waits(now)) {
                break;
            }
            if let Some(since) = stopping_since {
                let spent = self.engine.clock.steady_ms().saturating_sub(since);
                if spent >= self.grace_ms() {
                    // What is being sent stays unknown, as it is.
                    break;
                }
            }
            self.receive(now)?;
        }
        self.put_back_ready()?;
        self.session.sync()
    }

    /// Whoever is to be told is told at once: the notices become items and are sent. A notice
    /// never causes another.
    fn tell(&mut self, begun_ms: u64) -> Result<(), StoreError> {
        if self.report.stopped_by != StoppedBy::Done {
            // The next tick sends them: accepted when this one closes.
            return Ok(());
        }
        let now = self.now();
        for name in self.session.publish(now)? {
            match lane_of(&mut self.lanes, &name) {
                Some(lane) => lane.dry = false,
                None => self.open_lane(&name, now)?,
            }
        }
        self.deliver(begun_ms)
    }

    fn stop_cause(&self, begun_ms: u64) -> Option<StoppedBy> {
        if (self.engine.stop)() {
            return Some(StoppedBy::Signal);
        }
        let limit = self.options.limit;
        if limit.is_some_and(|limit| self.report.attempts >= limit) {
            return Some(StoppedBy::Limit);
        }
        let bound_ms = self
            .options
            .max_runtime_ms
            .unwrap_or(self.engine.config.tick.max_runtime_ms);
        let spent_ms = self.engine.clock.steady_ms().saturating_sub(begun_ms);
        (spent_ms >= bound_ms).then_some(StoppedBy::MaxRuntime)
    }

    /// How long what is being sent may go on after the end.
    fn grace_ms(&self) -> u64 {
        let longest = self
            .lanes
            .iter()
            .map(|lane| lane.destination.policy.total_timeout_ms)
            .max();
        self.engine
            .config
            .tick
            .grace_ms
            .unwrap_or(longest.unwrap_or(0))
    }

    /// Whether a lane has something that a rate alone keeps back.
    fn waits(&self, now: UnixMs) -> bool {
        self.lanes.iter().any(|lane| {
            lane.is_open()
                && (!lane.ready.is_empty()
                    || (!lane.dry && lane.quota > 0 && lane.rate_opens_at(now).is_some()))
        })
    }

    /// Begins what may begin, one of each destination in turn.
    fn begin_ready(&mut self) -> Result<(), StoreError> {
        let now = self.now();
        for lane in &mut self.lanes {
            if !lane.ready.is_empty() && lane.may_begin(now) == Ok(true) {
                // What was claimed ahead is not begun any more once an operator says so.
                let name = lane.destination.name.as_str();
                lane.operator_hold = self.engine.store.destination_hold(name)?.is_some();
            }
        }
        let limit = self.options.limit.unwrap_or(u64::MAX);
        let mut begun = true;
        while begun {
            begun = false;
            for index in 0..self.lanes.len() {
                let free = self.free_for(index);
                let lane = &mut self.lanes[index];
                if free == 0 || self.report.attempts >= limit || lane.may_begin(now) != Ok(true) {
                    continue;
                }
                let Some(claimed) = lane.ready.pop_front() else {
                    continue;
                };
                let token = self.next_token;
                self.next_token += 1;
                lane.begun(now);
                begun = true;
                self.report.attempts += 1;
                self.transport.begin(transport::Send {
                    token,
                    destination: Arc::clone(&lane.destination),
                    envelope: Arc::new(claimed.item.envelope.clone()),
                });
                self.flights.insert(
                    token,
                    Flight {
                        destination: lane.destination.name.clone(),
                        claimed,
                    },
                );
            }
        }
        Ok(())
    }

    /// How many attempts of a lane the tick's concurrency lets begin. Every destination that
    /// has work and nothing under way has a place kept for it: silent ones cannot take all.
    fn free_for(&self, index: usize) -> usize {
        let all = self.engine.config.tick.concurrency;
        let free = all.saturating_sub(self.flights.len());
        let kept = self
            .lanes
            .iter()
            .enumerate()
            .filter(|(other, lane)| {
                *other != index
                    && lane.is_open()
                    && lane.in_flight == 0
                    && (!lane.ready.is_empty() || !lane.dry)
            })
            .count();
        if self.lanes[index].in_flight == 0 {
            free.saturating_sub(kept).max(free.min(1))
        } else {
            free.saturating_sub(kept)
        }
    }

    /// Claims a group for every lane that wants more. True if anything was claimed.
    fn claim(&mut self) -> Result<bool, StoreError> {
        let now = self.now();
        let mut wants = Vec::new();
        let mut room = CLAIMED_MAX
            .saturating_sub(self.flights.len())
            .saturating_sub(self.lanes.iter().map(|lane| lane.ready.len()).sum());
        let limit = self.options.limit.unwrap_or(u64::MAX);
        let left = usize::try_from(limit.saturating_sub(self.report.attempts)).unwrap_or(room);
        room = room.min(left);
        for index in 0..self.lanes.len() {
            let free = self.free_for(index);
            let lane = &mut self.lanes[index];
            if lane.operator_hold && !lane.dry {
                // It may have been released meanwhile.
                let name = lane.destination.name.as_str();
                lane.operator_hold = self.engine.store.destination_hold(name)?.is_some();
            }
            let mut items_max = lane.wants(now).min(room);
            if lane.destination.key.place == crate::model::key::KeyPlace::None {
                items_max = items_max.min(free);
            }
            if items_max == 0 {
                continue;
            }
            let name = lane.destination.name.as_str();
            lane.operator_hold = self.engine.store.destination_hold(name)?.is_some();
            if lane.operator_hold {
                continue;
            }
            if !lane.secret_checked {
                lane.secret_checked = true;
                // Before it is read for sending: if it changes from here on, that is a change.
                lane.secret_seen = secret_fingerprint(&lane.destination);
                if let Err(error) = check_secret(&lane.destination) {
                    self.report.warnings.push(format!(
                        "destination `{name}`: {error}; nothing is sent to it, its items wait"
                    ));
                    lane.suspend_for_secret(&error.to_string(), now);
                    continue;
                }
            }
            room -= items_max;
            wants.push(Want {
                destination: lane.destination.name.clone(),
                items_max,
                looks_max: LOOKS_MAX.max(items_max),
            });
        }
        if wants.is_empty() {
            return Ok(false);
        }
        let claims = self.claim_by_turn(&wants, now, None)?;
        let mut got: BTreeMap<&DestName, usize> = BTreeMap::new();
        for claimed in &claims {
            *got.entry(&claimed.item.envelope.destination).or_default() += 1;
        }
        for want in &wants {
            let count = got.get(&want.destination).copied().unwrap_or(0);
            if let Some(lane) = lane_of(&mut self.lanes, &want.destination) {
                lane.dry = self.session.is_exhausted(&want.destination);
                lane.quota = lane.quota.saturating_sub(count);
            }
        }
        if !claims.is_empty() {
            // Making claims durable makes durable what was settled before.
            self.unsynced = 0;
        }
        // Also when everything looked at ended without an attempt there may be more.
        let more = wants
            .iter()
            .any(|want| !self.session.is_exhausted(&want.destination));
        let any = more || !claims.is_empty();
        for claimed in claims {
            if let Some(lane) = lane_of(&mut self.lanes, &claimed.item.envelope.destination) {
                lane.ready.push_back(claimed);
            }
        }
        Ok(any)
    }

    /// Claims, settling on the way what has expired, is stale, or may not be sent again. With
    /// `instead`, items that would be sent are held for that reason.
    fn claim_by_turn(
        &mut self,
        wants: &[Want],
        now: UnixMs,
        instead: Option<&Reason>,
    ) -> Result<Vec<Claimed>, StoreError> {
        let config = self.engine.config;
        let suspect = self.suspect;
        let untold = &mut self.untold;
        let mut states = Vec::new();
        let claims = self.session.claim(wants, now, &mut |item| {
            let Some(destination) = config.destinations.get(&item.envelope.destination) else {
                return Decision::Leave;
            };
            let decision = turn(destination, item, now, suspect, instead);
            match decision {
                Decision::Settle(event, _) => {
                    states.push(event.state);
                    let told = notices(config, item, &event);
                    untold.note(item, &event, &told);
                    Decision::Settle(event, told)
                }
                Decision::Claim | Decision::Wait | Decision::Leave => decision,
            }
        })?;
        self.unsynced += states.len();
        for state in states {
            self.report.count(state);
        }
        Ok(claims)
    }

    /// Of a suspended destination nothing is claimed, but what has expired ends. After the rest:
    /// what was looked at is not handed out again, should the destination be released meanwhile.
    fn expire_suspended(&mut self) -> Result<(), StoreError> {
        let now = self.now();
        if self.suspect || self.report.stopped_by == StoppedBy::Signal {
            return Ok(());
        }
        let config = self.engine.config;
        let wants: Vec<Want> = self
            .lanes
            .iter()
            .filter(|lane| !lane.is_open())
            .map(|lane| Want {
                destination: lane.destination.name.clone(),
                items_max: 0,
                looks_max: EXPIRY_LOOKS_MAX,
            })
            .collect();
        if wants.is_empty() {
            return Ok(());
        }
        let untold = &mut self.untold;
        let mut states = Vec::new();
        let mut left = 0;
        self.session.claim(&wants, now, &mut |item| {
            if item.envelope.not_after.is_none_or(|end| end > now) {
                // Looked at, it is not among what the session counts as left.
                left += u64::from(item.standing().due.is_none_or(|due| due <= now));
                return Decision::Leave;
            }
            let standing = item.standing();
            let state = if standing.state == State::Unknown {
                State::Unknown
            } else {
                State::Failed
            };
            let mut event = Event::new(EventKind::Expired, now, state);
            event.reason = Some(Reason::EXPIRED);
            states.push(state);
            let told = notices(config, item, &event);
            untold.note(item, &event, &told);
            Decision::Settle(Box::new(event), told)
        })?;
        self.report.left += left;
        for state in states {
            self.report.count(state);
        }
        self.session.sync()
    }

    /// What was claimed and not begun goes back: it is as if it had not been claimed.
    fn put_back_ready(&mut self) -> Result<(), StoreError> {
        let before = self.report.left;
        for lane in &mut self.lanes {
            while let Some(claimed) = lane.ready.pop_front() {
                self.report.left += 1;
                self.session.put_back(&claimed)?;
            }
        }
        if self.report.left > before {
            // They are where they belong also while what is being sent gets its grace.
            self.session.sync()?;
            self.unsynced = 0;
        }
        Ok(())
    }

    fn receive(&mut self, now: UnixMs) -> Result<(), StoreError> {
        let mut limit_ms = SYNC_AFTER_MS;
        if self.unsynced > 0 {
            let age = self
                .engine
                .clock
                .steady_ms()
                .saturating_sub(self.unsynced_since);
            limit_ms = SYNC_AFTER_MS.saturating_sub(age);
        }
        for lane in &self.lanes {
            if let (Some(at), false) = (lane.rate_opens_at(now), lane.dry && lane.ready.is_empty())
            {
                limit_ms = limit_ms.min(at.since(now));
            }
        }
        let mut next = self.transport.next(Duration::from_millis(limit_ms));
        while let Some(sent) = next {
            self.settle(&sent)?;
            next = self.transport.next(Duration::ZERO);
        }
        let age = self
            .engine
            .clock
            .steady_ms()
            .saturating_sub(self.unsynced_since);
        if self.unsynced >= SYNC_AFTER_ITEMS || (self.unsynced > 0 && age >= SYNC_AFTER_MS) {
            self.session.sync()?;
            self.unsynced = 0;
        }
        Ok(())
    }

    /// An attempt has ended: judge it and write it down.
    fn settle(&mut self, sent: &Sent) -> Result<(), StoreError> {
        let Some(flight) = self.flights.remove(&sent.token) else {
            return Ok(());
        };
        let now = self.now();
        let claimed = &flight.claimed;
        let item = &claimed.item;
        let before = item.standing();
        let Some(index) = self
            .lanes
            .iter()
            .position(|lane| lane.destination.name == flight.destination)
        else {
            return Ok(());
        };
        let lane = &mut self.lanes[index];
        lane.in_flight -= 1;
        let mut verdict = classify(
            &lane.destination.rules,
            &Exchange {
                outcome: &sent.outcome,
                method: &item.envelope.request.method,
                prior_maybe: before.maybe_acted,
                key_sent: lane.destination.key.is_sent(),
                at: now,
            },
        );
        let unreachable = lane.is_unreachable(now)
            && verdict.state == State::Pending
            && (verdict.reason == Reason::DNS_FAILURE || verdict.reason == Reason::TLS_ERROR);
        if unreachable {
            verdict.state = State::Held;
        }
        let mut event = settle::attempt(
            &lane.destination.policy,
            &verdict,
            &sent.outcome,
            &Settling {
                before: &before,
                method: &item.envelope.request.method,
                n: claimed.n,
                claimed_at: claimed.at,
                at: now,
                ms: sent.ms,
                suspended_ms: lane::suspended_ms(&lane.memory, before.counting_since, now),
                not_after: item.envelope.not_after,
                clock_suspect: self.suspect,
                jitter: (self.engine.jitter)(),
            },
        );
        if let Outcome::Answered(answer) = &sent.outcome {
            event.response = Some(attempt::note_of(answer));
        }
        let learned = lane.learn(
            item.envelope.request_id,
            &sent.outcome,
            &verdict,
            &event,
            now,
        );
        if let (true, Some(suspended)) = (learned.suspended, &mut lane.memory.suspended) {
            suspended.note.clone_from(&event.note);
        }
        if learned.suspended || event.state == State::Held {
            lane.memory.fingerprint = Some(lane.destination.fingerprint.clone());
            lane.memory.secret_fingerprint.clone_from(&lane.secret_seen);
            lane.changed = true;
        }
        let told = notices(self.engine.config, item, &event);
        self.untold.note(item, &event, &told);
        self.session.settle(claimed, event.clone(), told)?;
        self.report.count(event.state);
        (self.engine.watch)(&AttemptLine {
            id: item.envelope.request_id,
            destination: flight.destination.clone(),
            event,
        });
        if self.unsynced == 0 {
            self.unsynced_since = self.engine.clock.steady_ms();
        }
        self.unsynced += 1;
        if learned.suspended {
            self.close_lane(index, unreachable.then_some(&verdict.reason))?;
        }
        if let Some(reason) = learned.lifted {
            let lane = &mut self.lanes[index];
            lane.dry = false;
            self.release_held(index, &|held| {
                // Of other causes one item's success says nothing: a path that is not there
                // would be asked for, and told of, again and again.
                (is_auth(&reason) && is_auth(held)) || is_reachability(held)
            })?;
        }
        Ok(())
    }

    /// The destination has been suspended: give back what was claimed for it, and hold what is
    /// due if it has been unreachable for a day.
    fn close_lane(&mut self, index: usize, hold_due: Option<&Reason>) -> Result<(), StoreError> {
        while let Some(claimed) = self.lanes[index].ready.pop_front() {
            self.report.left += 1;
            self.session.put_back(&claimed)?;
        }
        if let Some(reason) = hold_due {
            let want = Want {
                destination: self.lanes[index].destination.name.clone(),
                items_max: 0,
                looks_max: usize::MAX,
            };
            let now = self.now();
            self.claim_by_turn(&[want], now, Some(reason))?;
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
        let aside = |file: &SetAside| {
            format!(
                "{} was set aside as corrupt/{}: {}",
                file.from, file.name, file.why
            )
        };
        self.report.warnings.extend(met.set_aside.iter().map(aside));
        self.report.warnings.extend(met.foreign.iter().cloned());
        self.report
            .warnings
            .extend(std::mem::take(&mut self.untold).warnings());
        self.report
            .warnings
            .extend(self.report.clock_suspect.iter().map(|why| {
                format!("{why}; nothing expires and no key window counts as open in this tick")
            }));
        let clock = self.engine.clock;
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

/// What an item's turn brings.
fn turn(
    destination: &Destination,
    item: &Item,
    now: UnixMs,
    suspect: bool,
    instead: Option<&Reason>,
) -> Decision {
    let envelope = &item.envelope;
    let standing = item.standing();
    let turn = settle::turn(
        &destination.policy,
        &standing,
        &envelope.request.method,
        envelope.not_after,
        envelope.enqueued_at,
        now,
        suspect,
    );
    match (turn, instead) {
        (Turn::Send, Some(reason)) if !standing.maybe_acted => {
            let mut event = Event::new(EventKind::Held, now, State::Held);
            event.reason = Some(reason.clone());
            Decision::Settle(Box::new(event), Vec::new())
        }
        (Turn::Send, None) => Decision::Claim,
        (Turn::Send, Some(_)) => Decision::Leave,
        (Turn::Wait, _) => Decision::Wait,
        (Turn::Settle(event), _) => Decision::Settle(event, Vec::new()),
    }
}

/// Why the clock is not to be trusted; `None` if nothing speaks against it.
///
/// # Errors
///
/// The first [`StoreError`] met.
pub fn clock_suspicion(store: &dyn Store, clock: &dyn Clock) -> Result<Option<String>, StoreError> {
    let last = store.last_tick()?;
    let boot = clock.boot();
    Ok(suspicion::check(last.as_ref(), clock.now(), boot.as_ref()))
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
    clock_suspect: bool,
    mut watch: impl FnMut(&Item, &Event, &[Notice]),
) -> Result<Vec<State>, StoreError> {
    let mut states = Vec::new();
    session.recover(&mut |interrupted| {
        // Memory that cannot be read counts as empty.
        let memory = store
            .memory(&interrupted.item.envelope.destination)
            .unwrap_or_default();
        let event = interrupted_event(config, interrupted, &memory, now, clock_suspect, jitter());
        states.push(event.state);
        let told = notices(config, &interrupted.item, &event);
        watch(&interrupted.item, &event, &told);
        (event, told)
    })?;
    Ok(states)
}

fn interrupted_event(
    config: &Config,
    interrupted: &Interrupted,
    memory: &Memory,
    now: UnixMs,
    suspect: bool,
    jitter: u16,
) -> Event {
    let item = &interrupted.item;
    let before = item.standing();
    let method = &item.envelope.request.method;
    let outcome = Outcome::Interrupted;
    let Some(destination) = config.destinations.get(&item.envelope.destination) else {
        // Nobody says whether a repeat is harmless: a person must look.
        let mut event = Event::new(EventKind::Attempt, now, State::Unknown);
        event.n = Some(interrupted.n);
        event.outcome = Some(outcome.kind());
        event.claimed_at = Some(interrupted.claimed_at);
        event.reason = Some(Reason::INTERRUPTED);
        return event;
    };
    let verdict = classify(
        &destination.rules,
        &Exchange {
            outcome: &outcome,
            method,
            prior_maybe: before.maybe_acted,
            key_sent: destination.key.is_sent(),
            at: now,
        },
    );
    settle::attempt(
        &destination.policy,
        &verdict,
        &outcome,
        &Settling {
            before: &before,
            method,
            n: interrupted.n,
            claimed_at: interrupted.claimed_at,
            at: now,
            ms: 0,
            suspended_ms: lane::suspended_ms(memory, before.counting_since, now),
            not_after: item.envelope.not_after,
            clock_suspect: suspect,
            jitter,
        },
    )
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

fn secret_fingerprint(destination: &Destination) -> Option<String> {
    let auth = destination.auth.as_ref()?;
    transport::secret::fingerprint(transport::secret::reference(auth))
}

/// A secret that cannot be read concerns the destination, not the item whose turn it is.
fn check_secret(destination: &Destination) -> Result<(), transport::secret::SecretError> {
    match &destination.auth {
        Some(auth) => transport::secret::read(transport::secret::reference(auth)).map(drop),
        None => Ok(()),
    }
}

fn is_auth(reason: &Reason) -> bool {
    [Reason::AUTH_INVALID, Reason::AUTH_EXPIRED].contains(reason)
}

fn is_reachability(reason: &Reason) -> bool {
    [
        Reason::DNS_FAILURE,
        Reason::TLS_ERROR,
        Reason::TLS_CERT_INVALID,
        Reason::CONNECT_FAILED,
    ]
    .contains(reason)
}

/// Reasons that a change of the destination's configuration may remove.
fn is_configured_cause(reason: &Reason) -> bool {
    is_reachability(reason)
        || [
            Reason::MOVED,
            Reason::DESTINATION_GONE,
            Reason::DESTINATION_NOT_FOUND,
            Reason::DESTINATION_MISCONFIGURED,
            Reason::PERMISSION_DENIED,
            Reason::KEY_REQUIRED,
            Reason::KEY_INVALID,
            Reason::LOCAL_ERROR,
        ]
        .contains(reason)
}
