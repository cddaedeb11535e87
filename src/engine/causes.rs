//! What keeps a destination's items back, and what sets them free again: lanes as a tick opens
//! them, causes that have gone, times that have come.

use std::sync::Arc;

use super::lane::Lane;
use super::report::StoppedBy;
use super::{Tick, notices};
use crate::config::Destination;
use crate::model::event::{Event, EventKind};
use crate::model::ids::DestName;
use crate::model::notice::{About, Asked, Notice};
use crate::model::reason::Reason;
use crate::model::state::State;
use crate::model::time::UnixMs;
use crate::store::{Decision, DestinationHold, Memory, StoreError, Want};
use crate::transport::secret;

/// How many due items of a suspended destination are looked at in a tick, for expiry.
const EXPIRY_LOOKS_MAX: usize = 256;

/// How many held items a destination gives back in a tick.
const WAKE_MAX: usize = 10_000;

/// How many items of a destination are sent in a tick while the clock is suspect.
const SUSPECT_BURST: usize = 100;

impl Tick<'_, '_> {
    pub(super) fn open_lanes(&mut self) -> Result<(), StoreError> {
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
            self.look_at_secret(index);
        }
        Ok(())
    }

    pub(super) fn open_lane(&mut self, name: &DestName, now: UnixMs) -> Result<(), StoreError> {
        let Some(destination) = self.engine.config.destinations.get(name) else {
            return self.unconfigured(name);
        };
        let Some(memory) = self.memory(name, "nothing is sent there")? else {
            return Ok(());
        };
        let mut lane = Lane::new(Arc::new(destination.clone()), memory, now);
        if self.trust.is_suspect() {
            lane.quota = SUSPECT_BURST;
        }
        let hold = self.engine.store.destination_hold(name.as_str())?;
        if let Some(why) = hold.as_ref().and_then(DestinationHold::fault) {
            self.report.warnings.push(format!(
                "destination `{name}`: {why}; it counts as a hold, and nothing is sent there: `tickpost release --destination {name}` lifts it"
            ));
        }
        lane.operator_hold = hold.is_some();
        if lane.note_ways(now) {
            if !self.session.remember(name, &lane.memory)? {
                // Later ticks would take what is sent now for what went another way.
                self.report.warnings.push(format!(
                    "destination `{name}`: where and under which key its items go cannot be remembered; nothing is sent there"
                ));
                return Ok(());
            }
            self.session.sync_memories()?;
        }
        self.lanes.push(lane);
        Ok(())
    }

    /// What is remembered of a destination. `None` if that is out of reach, which costs that
    /// destination this tick: it may be suspended, or its keys be others than they were.
    fn memory(&mut self, name: &DestName, cost: &str) -> Result<Option<Memory>, StoreError> {
        match self.engine.store.memory(name) {
            Ok(memory) => Ok(Some(memory)),
            Err(StoreError::Io { path, source, .. }) => {
                self.report.warnings.push(format!(
                    "destination `{name}`: {} cannot be read: {source}; {cost}",
                    path.display()
                ));
                self.report.foreign += 1;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Items of a destination that is not configured stay; somebody is told once.
    pub(super) fn unconfigured(&mut self, name: &DestName) -> Result<(), StoreError> {
        if !self.session.has_waiting(name)? {
            return Ok(());
        }
        self.report.warnings.push(format!(
            "destination `{name}` is not configured; its items stay where they are"
        ));
        let Some(mut memory) = self.memory(name, "nobody is told of it")? else {
            return Ok(());
        };
        if memory.told_unconfigured {
            return Ok(());
        }
        let told = Notice::of_file(
            About::Unconfigured,
            name.as_str(),
            &self.now().to_string(),
            name.as_str(),
            Reason::DESTINATION_DISABLED.as_str(),
            &Asked::default(),
            &self.engine.config.notify.destinations,
        );
        if !told.is_empty() {
            self.session.tell(told)?;
        }
        memory.told_unconfigured = true;
        // What is remembered must not outlive what it says was told.
        self.session.sync()?;
        self.session.remember(name, &memory).map(drop)
    }

    /// When the destination's configuration or its secret has changed, what was held or
    /// suspended because of it may go.
    pub(super) fn notice_changed_cause(&mut self, index: usize) -> Result<(), StoreError> {
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
    pub(super) fn release_held(
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
    pub(super) fn wake(&mut self) -> Result<(), StoreError> {
        let now = self.now();
        let suspect = self.trust.is_suspect();
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

    /// Of a suspended destination nothing is claimed, but what has expired ends. After the rest:
    /// what was looked at is not handed out again, should the destination be released meanwhile.
    pub(super) fn expire_suspended(&mut self) -> Result<(), StoreError> {
        let now = self.now();
        if self.trust.is_suspect() || self.report.stopped_by == StoppedBy::Signal {
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
}

pub(super) fn secret_fingerprint(destination: &Destination) -> Option<String> {
    let auth = destination.auth.as_ref()?;
    secret::fingerprint(auth.secret())
}

/// A secret that cannot be read concerns the destination, not the item whose turn it is.
pub(super) fn check_secret(destination: &Destination) -> Result<(), secret::SecretError> {
    match &destination.auth {
        Some(auth) => secret::read(auth.secret()).map(drop),
        None => Ok(()),
    }
}

pub(super) fn is_auth(reason: &Reason) -> bool {
    [Reason::AUTH_INVALID, Reason::AUTH_EXPIRED].contains(reason)
}

pub(super) fn is_reachability(reason: &Reason) -> bool {
    [
        Reason::DNS_FAILURE,
        Reason::TLS_ERROR,
        Reason::TLS_CERT_INVALID,
        Reason::CONNECT_FAILED,
    ]
    .contains(reason)
}

/// Reasons that a change of the destination's configuration may remove.
pub(super) fn is_configured_cause(reason: &Reason) -> bool {
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
