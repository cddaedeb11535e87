//! A history as a list of entries, drawn from its seed before anything runs: so an entry, or a
//! fault of one, can be left out and the rest stays as it was.

use rustix::io::Errno;

use crate::crash_disk::{Profile, Rng};

/// What one actor does at once.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Everything random within the step comes from it.
    pub(crate) seed: u64,
    pub(crate) step: Step,
    /// What happens when.
    pub(crate) triggers: Vec<(When, Trigger)>,
}

/// Before which operation of the process, counted from 1: any, one on the wire, or a sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum When {
    Any(u32),
    Wire(u32),
    Sync(u32),
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A producer offers so many items, together.
    Enqueue { items: u64 },
    /// A program drops a file.
    Drop,
    /// A tick; of a hundred answers so many are good.
    Tick { good: u64, limit: Option<u64> },
    /// An operator moves items.
    Operate(Order),
    /// An operator holds or releases a destination.
    HoldDestination { dest: usize, hold: bool },
    /// Whatever is settled and of an earlier day is pruned.
    Prune,
    /// A reader looks for everything.
    Read,
    /// Time passes.
    Pass { ms: u64 },
    /// Somebody sets the wall clock.
    Leap { ms: i64 },
    /// Power is lost between two steps.
    Power,
    /// So much more fits onto the disk.
    Fill { bytes: u64 },
    /// There is room again, and no operation fails.
    Free,
}

/// What an operator orders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    Hold {
        release_in_ms: Option<u64>,
    },
    Release,
    Cancel,
    Retry,
    RetryNewId,
    /// Looks at the receiver and says what it sees.
    Resolve,
}

#[derive(Clone, Debug)]
pub(crate) enum Trigger {
    /// The process is killed.
    Kill,
    /// Power is lost.
    Power,
    /// The operation fails, and, if that lasts, all of its kind.
    Fault { errno: Errno, lasts: bool },
    /// The process is asked to end.
    Stop,
    /// Another process does all of this meanwhile.
    Meanwhile(Box<Entry>),
}

pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) profile: Profile,
    pub(crate) entries: Vec<Entry>,
}

impl Plan {
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let profile = if rng.percent(60) {
            Profile::Strict
        } else {
            Profile::Ext4
        };
        // Of some histories one thing is the subject.
        let calm = rng.percent(50);
        let length = 8 + rng.below(14);
        let mut entries = Vec::new();
        for index in 0..length {
            entries.push(entry(&mut rng, if calm { 25 } else { 55 }, index < 3, 0));
        }
        Self {
            seed,
            profile,
            entries,
        }
    }
}

fn entry(rng: &mut Rng, trigger_percent: u64, early: bool, depth: u32) -> Entry {
    let step = step(rng, early, depth);
    let mut triggers = Vec::new();
    let many = matches!(
        step,
        Step::Enqueue { .. }
            | Step::Drop
            | Step::Tick { .. }
            | Step::Operate(_)
            | Step::Prune
            | Step::Read
            | Step::HoldDestination { .. }
    );
    if many && rng.percent(trigger_percent) {
        for _ in 0..1 + rng.below(2) {
            triggers.push((moment(rng), trigger(rng, trigger_percent, depth)));
        }
    }
    Entry {
        seed: rng.next(),
        step,
        triggers,
    }
}

/// Small numbers often, large ones at times.
fn moment(rng: &mut Rng) -> When {
    let mut number = |tops: &[u64]| {
        let top = *rng.pick(tops);
        u32::try_from(1 + rng.below(top)).unwrap()
    };
    let (any, wire, sync) = (
        number(&[8, 30, 60, 120, 250, 500]),
        number(&[3, 12]),
        number(&[3, 8, 20]),
    );
    match rng.below(10) {
        0..5 => When::Any(any),
        5..7 => When::Wire(wire),
        _ => When::Sync(sync),
    }
}

fn trigger(rng: &mut Rng, trigger_percent: u64, depth: u32) -> Trigger {
    match rng.below(100) {
        0..25 => Trigger::Kill,
        25..50 => Trigger::Power,
        50..65 => {
            let errnos = [Errno::IO, Errno::NOSPC, Errno::DQUOT, Errno::ACCESS];
            Trigger::Fault {
                errno: *rng.pick(&errnos),
                lasts: rng.percent(30),
            }
        }
        65..70 => Trigger::Stop,
        _ if depth >= 2 => Trigger::Kill,
        _ => Trigger::Meanwhile(Box::new(entry(rng, trigger_percent / 2, false, depth + 1))),
    }
}

fn step(rng: &mut Rng, early: bool, depth: u32) -> Step {
    const MINUTE_MS: u64 = 60_000;
    let fill = |rng: &mut Rng| {
        let items = if rng.percent(25) { 2 + rng.below(5) } else { 1 };
        Step::Enqueue { items }
    };
    if early && rng.percent(70) {
        return fill(rng);
    }
    match rng.below(100) {
        0..22 => fill(rng),
        22..31 => Step::Drop,
        31..65 => Step::Tick {
            good: *rng.pick(&[100, 60, 30, 0]),
            limit: rng.percent(10).then(|| 1 + rng.below(3)),
        },
        65..73 => Step::Operate(order(rng)),
        73..75 => Step::HoldDestination {
            dest: rng.index(4),
            hold: rng.percent(50),
        },
        75..78 => Step::Prune,
        78..83 => Step::Read,
        // Time, power and room are nobody's.
        _ if depth > 0 => Step::Read,
        83..93 => Step::Pass {
            ms: match rng.below(10) {
                0..3 => rng.below(5 * MINUTE_MS),
                // A key is remembered for an hour.
                3..8 => 12 * MINUTE_MS + rng.below(45 * MINUTE_MS),
                _ => rng.below(30 * 60 * MINUTE_MS),
            },
        },
        93..95 => {
            let ms = i64::try_from(rng.below(180 * MINUTE_MS)).unwrap();
            Step::Leap {
                ms: if rng.percent(50) { -ms } else { ms },
            }
        }
        95..97 => Step::Power,
        97..98 => Step::Fill {
            bytes: rng.below(60_000),
        },
        _ => Step::Free,
    }
}

fn order(rng: &mut Rng) -> Order {
    match rng.below(12) {
        0..2 => Order::Hold {
            release_in_ms: rng.percent(50).then(|| 1 + rng.below(7_200_000)),
        },
        2..4 => Order::Release,
        4..6 => Order::Cancel,
        6..8 => Order::Retry,
        8 => Order::RetryNewId,
        _ => Order::Resolve,
    }
}
