//! Sending what is due: claims ahead of the network, attempts begun in turn, outcomes received,
//! until nothing is due or it is time to stop.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::attempt::Flight;
use super::causes::{check_secret, secret_fingerprint};
use super::judge::turn;
use super::lane::Lane;
use super::report::StoppedBy;
use super::{Tick, lane_of, notices};
use crate::model::ids::DestName;
use crate::model::key::KeyPlace;
use crate::model::notice::{About, Asked, Notice};
use crate::model::reason::Reason;
use crate::model::time::UnixMs;
use crate::store::{Claimed, Decision, StoreError, Want};
use crate::transport::secret::SecretError;
use crate::transport::{self, Streamed};

/// What was settled is made durable after this long at the latest, in milliseconds.
const SYNC_AFTER_MS: u64 = 100;

/// What was settled is made durable when it is this many items.
const SYNC_AFTER_ITEMS: usize = 256;

/// How many items may be claimed at once, begun or not, over all destinations.
const CLAIMED_MAX: usize = 1024;

/// How many due items of a destination are looked at for one group of claims: between two groups
/// the tick sees whether it is time to stop.
const LOOKS_MAX: usize = 1024;

impl Tick<'_, '_> {
    /// Sends what is due until nothing is, or until it is time to stop.
    pub(super) fn deliver(&mut self, begun_ms: u64) -> Result<(), StoreError> {
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

    /// What was accepted while this tick ran is sent by it too: a path unit that starts a tick at
    /// each accept does not start another one while this one runs.
    pub(super) fn deliver_news(&mut self, begun_ms: u64) -> Result<(), StoreError> {
        while self.report.stopped_by == StoppedBy::Done {
            let news = self.session.accepted_meanwhile()?;
            if news.is_empty() {
                break;
            }
            let now = self.now();
            for name in news {
                let only = self.options.destination.as_ref();
                if only.is_some_and(|only| *only != name) {
                    continue;
                }
                match lane_of(&mut self.lanes, &name) {
                    Some(lane) => lane.dry = false,
                    None if self.engine.config.destinations.contains_key(&name) => {
                        self.open_lane(&name, now)?;
                    }
                    // The next tick tells of it.
                    None => {}
                }
            }
            self.deliver(begun_ms)?;
        }
        Ok(())
    }

    /// Whoever is to be told is told at once: the notices become items and are sent. A notice
    /// never causes another.
    pub(super) fn tell(&mut self, begun_ms: u64) -> Result<(), StoreError> {
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

    pub(super) fn stop_cause(&self, begun_ms: u64) -> Option<StoppedBy> {
        if (self.engine.stop)() {
            return Some(StoppedBy::Signal);
        }
        let limit = self.options.limit;
        if limit.is_some_and(|limit| self.report.attempts >= limit) {
            return Some(StoppedBy::Limit);
        }
        let spent_ms = self.engine.clock.steady_ms().saturating_sub(begun_ms);
        if spent_ms >= self.max_runtime_ms() {
            return Some(StoppedBy::MaxRuntime);
        }
        self.session.tight().map(|_| StoppedBy::NoRoom)
    }

    pub(super) fn max_runtime_ms(&self) -> u64 {
        self.options
            .max_runtime_ms
            .unwrap_or(self.engine.config.tick.max_runtime_ms)
    }

    /// How long what is being sent may go on after the end.
    pub(super) fn grace_ms(&self) -> u64 {
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
    pub(super) fn waits(&self, now: UnixMs) -> bool {
        self.lanes.iter().any(|lane| {
            lane.is_open()
                && (!lane.ready.is_empty()
                    || (!lane.dry && lane.quota > 0 && lane.rate_opens_at(now).is_some()))
        })
    }

    /// Begins what may begin, one of each destination in turn.
    pub(super) fn begin_ready(&mut self) -> Result<(), StoreError> {
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
                let envelope = &claimed.item.envelope;
                let in_a_file = envelope.request.file_bytes().is_some();
                let body = in_a_file
                    .then(|| Streamed::new(self.engine.store.open_body(envelope.request_id)));
                self.transport.begin(transport::Send {
                    token,
                    destination: Arc::clone(&lane.destination),
                    envelope: Arc::new(envelope.clone()),
                    body,
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
    pub(super) fn free_for(&self, index: usize) -> usize {
        let is_command = |lane: &Lane| lane.destination.command.is_some();
        if is_command(&self.lanes[index]) {
            // A program that hangs takes no place from requests.
            return usize::from(self.lanes[index].in_flight == 0);
        }
        let all = self.engine.config.tick.concurrency;
        let commands = self.lanes.iter().filter(|lane| is_command(lane));
        let running: usize = commands.map(|lane| lane.in_flight).sum();
        let free = all.saturating_sub(self.flights.len().saturating_sub(running));
        let kept = self
            .lanes
            .iter()
            .enumerate()
            .filter(|(other, lane)| {
                *other != index
                    && !is_command(lane)
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
    pub(super) fn claim(&mut self) -> Result<bool, StoreError> {
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
            if lane.destination.key.place == KeyPlace::None {
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
                    let told = lane.suspend_for_secret(&error.to_string(), now);
                    let name = lane.destination.name.clone();
                    self.warn_of_secret(&name, &error);
                    if told {
                        self.tell_of_secret(&name, now)?;
                    }
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

    fn warn_of_secret(&mut self, name: &DestName, error: &SecretError) {
        self.report.warnings.push(format!(
            "destination `{name}`: {error}; nothing is sent to it, its items wait"
        ));
    }

    /// A secret that cannot be read holds no item, so nobody would hear of it otherwise.
    fn tell_of_secret(&mut self, name: &DestName, now: UnixMs) -> Result<(), StoreError> {
        let told = Notice::of_file(
            About::Suspended,
            name.as_str(),
            &now.to_string(),
            name.as_str(),
            Reason::LOCAL_ERROR.as_str(),
            &Asked::default(),
            &self.engine.config.notify.destinations,
        );
        if told.is_empty() {
            return Ok(());
        }
        self.session.tell(told)
    }

    /// While a secret cannot be read every tick says so; once it can, nothing waits any longer.
    pub(super) fn look_at_secret(&mut self, index: usize) {
        let now = self.now();
        let lane = &mut self.lanes[index];
        let waits = lane
            .memory
            .suspended
            .as_ref()
            .is_some_and(|suspended| suspended.reason == Reason::LOCAL_ERROR);
        if !waits {
            return;
        }
        match check_secret(&lane.destination) {
            Ok(()) => drop(lane.lift(now)),
            Err(error) => {
                let name = lane.destination.name.clone();
                self.warn_of_secret(&name, &error);
            }
        }
    }

    /// Claims, settling on the way what has expired, is stale, or may not be sent again. With
    /// `instead`, items that would be sent are held for that reason.
    pub(super) fn claim_by_turn(
        &mut self,
        wants: &[Want],
        now: UnixMs,
        instead: Option<&Reason>,
    ) -> Result<Vec<Claimed>, StoreError> {
        let config = self.engine.config;
        let trust = &self.trust;
        let untold = &mut self.untold;
        let lanes = &self.lanes;
        let mut states = Vec::new();
        let claims = self.session.claim(wants, now, &mut |item| {
            let Some(destination) = config.destinations.get(&item.envelope.destination) else {
                return Decision::Leave;
            };
            let lane = lanes
                .iter()
                .find(|lane| lane.destination.name == destination.name);
            let since = lane.map(Lane::since).unwrap_or_default();
            let decision = turn(destination, item, now, trust, since, instead);
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

    /// What was claimed and not begun goes back: it is as if it had not been claimed.
    pub(super) fn put_back_ready(&mut self) -> Result<(), StoreError> {
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

    pub(super) fn receive(&mut self, now: UnixMs) -> Result<(), StoreError> {
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
}
