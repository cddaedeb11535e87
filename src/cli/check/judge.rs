//! What is wrong with a spool, by its values and the limits for them: pure, without clock or spool.

use serde::Serialize;

use super::super::times;
use super::STOPPED_FOR_ROOM;
use crate::model::time::MINUTE_MS;

/// How many destinations are named in the line.
const NAMES_MAX: usize = 5;

/// How bad it is; the number is the exit code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    Ok = 0,
    Warning = 1,
    Critical = 2,
    Unknown = 3,
}

impl Level {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Warning => "WARNING",
            Self::Critical => "CRITICAL",
            Self::Unknown => "UNKNOWN",
        }
    }
}

/// Above which values something is wrong; absent means never.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Limit {
    pub(super) warn: Option<u64>,
    pub(super) crit: Option<u64>,
}

impl Limit {
    /// Reads `WARN`, `WARN,CRIT` or `off`.
    pub(super) fn parse(
        option: &str,
        text: &str,
        number: fn(&str) -> Result<u64, String>,
    ) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self {
                warn: None,
                crit: None,
            });
        }
        let read =
            |part: &str| number(part.trim()).map_err(|why| format!("--{option} `{text}`: {why}"));
        let (warn, crit) = match text.split_once(',') {
            Some((warn, crit)) => (read(warn)?, Some(read(crit)?)),
            None => (read(text)?, None),
        };
        if crit.is_some_and(|crit| crit < warn) {
            return Err(format!(
                "--{option} `{text}`: the second value, for critical, is below the first"
            ));
        }
        Ok(Self {
            warn: Some(warn),
            crit,
        })
    }

    pub(super) fn level(self, value: u64) -> Level {
        if self.crit.is_some_and(|crit| value > crit) {
            Level::Critical
        } else if self.warn.is_some_and(|warn| value > warn) {
            Level::Warning
        } else {
            Level::Ok
        }
    }
}

/// All limits; ages in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Limits {
    pub(super) tick_age: Limit,
    pub(super) pending_age: Limit,
    pub(super) parked: Limit,
    pub(super) held: Limit,
    pub(super) corrupt: Limit,
    pub(super) suspended: Limit,
    pub(super) unconfigured: Limit,
    pub(super) incoming_age: Limit,
    pub(super) untold: Limit,
    pub(super) failed: Limit,
}

/// What is judged; ages in milliseconds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Values {
    /// Since the last tick ended, or since the spool was made.
    pub(super) tick_age: u64,
    /// A tick has run.
    pub(super) has_ticked: bool,
    /// How far ahead of now the last tick ended.
    pub(super) tick_ahead: u64,
    /// How long the pending item has been due that has been due longest.
    pub(super) pending_age: u64,
    pub(super) pending: u64,
    pub(super) unknown: u64,
    pub(super) parked: u64,
    pub(super) held: u64,
    pub(super) confirmed: u64,
    pub(super) failed: u64,
    pub(super) corrupt: u64,
    /// Suspended destinations, each with the cause.
    pub(super) suspended: Vec<String>,
    /// Destinations that are not configured, with their waiting items.
    pub(super) unconfigured: Vec<(String, u64)>,
    /// How long the oldest file has been in a drop box.
    pub(super) incoming_age: u64,
    /// Addresses of notices, with what did not reach them.
    pub(super) untold: Vec<(String, u64)>,
    /// Items and directories that cannot be read, with the cause.
    pub(super) unreadable: Vec<String>,
    /// What lies among the items and has no item's name.
    pub(super) foreign: Vec<String>,
    /// How much the last tick left as it was.
    pub(super) left_by_tick: u64,
    /// The last tick stopped for want of room.
    pub(super) stopped_for_room: bool,
    /// Why no tick can run.
    pub(super) no_tick: Option<String>,
    /// Why nothing is accepted.
    pub(super) full: Option<String>,
    /// Own directories and files that the spool's user cannot use.
    pub(super) barred: Vec<String>,
}

/// Something that is wrong. The names are those of the JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Problem {
    pub(super) level: Level,
    pub(super) what: &'static str,
    pub(super) text: String,
}

/// What is wrong, worst first.
pub(super) fn judge(values: &Values, limits: &Limits) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut note = |level: Level, what: &'static str, text: String| {
        if level != Level::Ok {
            problems.push(Problem { level, what, text });
        }
    };
    if let Some(why) = &values.no_tick {
        note(
            Level::Critical,
            "configuration",
            format!("no tick can run: {why}"),
        );
    }
    if let Some(why) = &values.full {
        note(Level::Critical, "room", why.clone());
    }
    if values.stopped_for_room {
        note(Level::Critical, "tick_room", STOPPED_FOR_ROOM.to_owned());
    }
    let ago = times::span(values.tick_age);
    note(
        limits.tick_age.level(values.tick_age),
        "tick_age",
        if values.has_ticked {
            format!("the last tick ended {ago} ago; is the timer still running?")
        } else {
            format!(
                "no tick has run since the spool was made {ago} ago; `tickpost tick` sends what is due"
            )
        },
    );
    // A last tick in the future would hide a timer that has stopped.
    if values.tick_ahead > MINUTE_MS {
        note(
            Level::Warning,
            "clock",
            format!(
                "the last tick ended {} in the future; set the clock right",
                times::span(values.tick_ahead)
            ),
        );
    }
    note(
        limits.pending_age.level(values.pending_age),
        "pending_age",
        format!(
            "a pending item has been due for {}",
            times::span(values.pending_age)
        ),
    );
    note(
        limits.parked.level(values.parked),
        "parked",
        format!(
            "{} parked, see `tickpost list --state unknown`",
            values.parked
        ),
    );
    note(
        limits.held.level(values.held),
        "held",
        format!("{} held, see `tickpost list --state held`", values.held),
    );
    note(
        limits.corrupt.level(values.corrupt),
        "corrupt",
        format!("{} set aside in corrupt/", values.corrupt),
    );
    note(
        limits.suspended.level(values.suspended.len() as u64),
        "suspended",
        format!(
            "{} suspended: {}",
            values.suspended.len(),
            some(&values.suspended)
        ),
    );
    let names: Vec<String> = values
        .unconfigured
        .iter()
        .map(|(name, _)| name.clone())
        .collect();
    let waiting = waiting(values);
    note(
        limits.unconfigured.level(waiting),
        "unconfigured",
        format!(
            "{waiting} for destinations that are not configured: {}",
            some(&names)
        ),
    );
    unseen(values, limits, &mut note);
    problems.sort_by_key(|problem| std::cmp::Reverse(problem.level));
    problems
}

/// What no item's state shows: who may use the spool, drop boxes, undelivered notices, and the
/// failed where asked for.
fn unseen(values: &Values, limits: &Limits, note: &mut dyn FnMut(Level, &'static str, String)) {
    if !values.barred.is_empty() {
        note(
            Level::Critical,
            "access",
            format!(
                "{} of the spool's own files and directories keep its user out: {}; until that is mended, items may not be sent or accepted",
                values.barred.len(),
                some(&values.barred)
            ),
        );
    }
    note(
        limits.incoming_age.level(values.incoming_age),
        "incoming_age",
        format!(
            "something has been in a drop box for {}; `tickpost tick` says why it is left",
            times::span(values.incoming_age)
        ),
    );
    if !values.unreadable.is_empty() {
        let n = values.unreadable.len();
        note(
            Level::Warning,
            "unreadable",
            format!("{n} cannot be read: {}", some(&values.unreadable)),
        );
    }
    if !values.foreign.is_empty() {
        let n = values.foreign.len();
        note(
            Level::Warning,
            "foreign",
            format!(
                "{n} among the items without an item's name, perhaps renamed: {}; `tickpost doctor` says what to do",
                some(&values.foreign)
            ),
        );
    }
    // What else there is, these do not name.
    if values.left_by_tick > 0 && values.unreadable.is_empty() && values.foreign.is_empty() {
        note(
            Level::Warning,
            "out_of_reach",
            format!(
                "the last tick left {} as they are, which it could not move, write to or use, or which are none of the spool's: `tickpost tick` says which, and why",
                values.left_by_tick
            ),
        );
    }
    let untold = untold(values);
    let names: Vec<String> = values.untold.iter().map(|(name, _)| name.clone()).collect();
    note(
        limits.untold.level(untold),
        "untold",
        format!(
            "{untold} did not reach whom it was to tell: {}; see `tickpost list --destination NAME`, then retry, release or resolve it, or give it up with cancel",
            some(&names)
        ),
    );
    note(
        limits.failed.level(values.failed),
        "failed",
        format!(
            "{} failed, see `tickpost list --state failed`",
            values.failed
        ),
    );
}

pub(super) fn untold(values: &Values) -> u64 {
    values.untold.iter().map(|(_, items)| items).sum()
}

pub(super) fn waiting(values: &Values) -> u64 {
    values.unconfigured.iter().map(|(_, count)| count).sum()
}

/// The first few of a list.
pub(super) fn some(names: &[String]) -> String {
    let first: Vec<&str> = names.iter().take(NAMES_MAX).map(String::as_str).collect();
    let more = if names.len() > NAMES_MAX { ", …" } else { "" };
    format!("{}{more}", first.join(", "))
}

/// What the line says when nothing is wrong.
pub(super) fn all_is_well(values: &Values) -> String {
    let tick = if values.has_ticked {
        format!("last tick {} ago", times::span(values.tick_age))
    } else {
        "no tick has run yet".to_owned()
    };
    format!("{} pending, {tick}", values.pending)
}

/// The part behind the `|`: what a monitor draws curves of.
pub(super) fn perfdata(values: &Values, limits: &Limits) -> String {
    let seconds = |ms: u64| (ms / 1000).to_string();
    let limit = |limit: Option<u64>, unit: u64| {
        limit.map_or(String::new(), |limit| (limit / unit).to_string())
    };
    let age = |name: &str, ms: u64, own: Limit| {
        let (warn, crit) = (limit(own.warn, 1000), limit(own.crit, 1000));
        format!("{name}={}s;{warn};{crit};0", seconds(ms))
    };
    let count = |name: &str, value: u64, own: Limit| {
        let (warn, crit) = (limit(own.warn, 1), limit(own.crit, 1));
        format!("{name}={value};{warn};{crit};0")
    };
    [
        age("tick_age", values.tick_age, limits.tick_age),
        age("pending_age", values.pending_age, limits.pending_age),
        count("parked", values.parked, limits.parked),
        count("held", values.held, limits.held),
        count("corrupt", values.corrupt, limits.corrupt),
        count("suspended", values.suspended.len() as u64, limits.suspended),
        count("unconfigured", waiting(values), limits.unconfigured),
        age("incoming_age", values.incoming_age, limits.incoming_age),
        count("untold", untold(values), limits.untold),
        count("failed", values.failed, limits.failed),
        format!("pending={}", values.pending),
        format!("unknown={}", values.unknown),
        format!("confirmed={}", values.confirmed),
    ]
    .join(" ")
}
