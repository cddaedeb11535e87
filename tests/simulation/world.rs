//! The world of one history: disk, clock, receiver, and processes that run within each other.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use rustix::io::Errno;
use tickpost::clock::Clock;
use tickpost::config::Config;
use tickpost::model::ids::RequestId;
use tickpost::model::time::UnixMs;
use tickpost::store::StoreError;
use tickpost::store::file::FileStore;
use uuid::Uuid;

use crate::crash_disk::{self, CrashDisk, NoWatch, Profile, ROOT, Rng, Watch};
use crate::plan::{Entry, Step, Trigger, When};
use crate::truth::Truth;
use crate::wire::Receiver;

/// The middle of a minute in 2035. Ids that the product mints itself carry the machine's own time,
/// which lies before: so they sort before those of the simulation, whenever it runs.
pub(crate) const START: UnixMs = UnixMs(2_051_222_412_345);

/// The process was killed.
struct Killed;
/// Power was lost.
struct PowerLost;
/// An invariant is broken; [`World::why_broken`] tells which.
struct Broken;

/// A process that runs.
struct Frame {
    /// What is still to come.
    triggers: Vec<(When, Trigger)>,
    ops: u32,
    wires: u32,
    syncs: u32,
    stop: bool,
    /// It has met a fault, so that an error is no surprise.
    faulted: bool,
    /// It waits for locks of keys.
    waits: bool,
}

/// No process takes more operations than this.
const OPS_MAX: u32 = 200_000;

/// Operations that sync.
const SYNCS: [&str; 5] = ["log sync", "sync_dir", "sync_file", "sync_all", "create"];

impl Frame {
    fn count(&mut self, op: &str) {
        self.ops += 1;
        self.wires += u32::from(op == "wire");
        self.syncs += u32::from(SYNCS.contains(&op));
    }
}

/// A fault that lasts.
#[derive(Clone, Copy)]
struct Lasting {
    errno: Errno,
    op: &'static str,
}

pub(crate) struct World {
    me: Weak<Self>,
    disk: RefCell<Option<CrashDisk>>,
    pub(crate) config: Rc<Config>,
    pub(crate) truth: RefCell<Truth>,
    pub(crate) receiver: RefCell<Receiver>,
    wall: Cell<u64>,
    steady: Cell<u64>,
    boot: Cell<u64>,
    boot_began: Cell<u64>,
    frames: RefCell<Vec<Frame>>,
    lasting: Cell<Option<Lasting>>,
    bounded: Cell<bool>,
    ids: RefCell<Rng>,
    pub(crate) crashes: Cell<u64>,
    broken: RefCell<Option<String>>,
    trace: Option<RefCell<Vec<String>>>,
    profile: Profile,
}

impl World {
    /// A fresh spool on a fresh disk.
    pub(crate) fn new(config: Rc<Config>, profile: Profile, seed: u64, traced: bool) -> Rc<Self> {
        let world = Rc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            disk: RefCell::new(None),
            config,
            truth: RefCell::default(),
            receiver: RefCell::default(),
            wall: Cell::new(START.0),
            steady: Cell::new(5_000_000),
            boot: Cell::new(1),
            boot_began: Cell::new(0),
            frames: RefCell::default(),
            lasting: Cell::new(None),
            bounded: Cell::new(false),
            ids: RefCell::new(Rng::new(seed ^ 0x1d5)),
            crashes: Cell::new(0),
            broken: RefCell::default(),
            trace: traced.then(RefCell::default),
            profile,
        });
        let watch: Rc<dyn Watch> = Rc::<Self>::clone(&world);
        let disk = CrashDisk::new(profile, seed ^ 0xd15c, watch);
        let boxes = crate::actors::DESTS.map(|dest| format!("incoming/{dest}"));
        disk.lay_out(START, &boxes.each_ref().map(String::as_str));
        *world.disk.borrow_mut() = Some(disk);
        world
    }

    /// Ends the circle of references.
    pub(crate) fn end(&self) {
        let mut nothing = CrashDisk::new(self.profile, 0, Rc::new(NoWatch));
        if let Some(disk) = &mut *self.disk.borrow_mut() {
            std::mem::swap(disk, &mut nothing);
        }
    }

    pub(crate) fn now(&self) -> UnixMs {
        UnixMs(self.wall.get())
    }

    pub(crate) fn disk(&self) -> CrashDisk {
        self.disk.borrow().as_ref().unwrap().clone()
    }

    /// The spool, opened by a process of its own.
    pub(crate) fn store(&self) -> Result<FileStore, StoreError> {
        #[expect(
            clippy::arc_with_non_send_sync,
            reason = "a store wants an Arc, and a history has one thread"
        )]
        let disk = Arc::new(self.disk());
        FileStore::open_on(disk, Path::new(ROOT), true)
    }

    pub(crate) fn say(&self, text: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            let depth = self.frames.borrow().len();
            let at = self.now();
            let line = format!("{at} {}{}", "  ".repeat(depth), text());
            trace.borrow_mut().push(line);
        }
    }

    pub(crate) fn trace(&self) -> Vec<String> {
        self.trace
            .as_ref()
            .map(|trace| trace.borrow().clone())
            .unwrap_or_default()
    }

    /// An invariant does not hold: the history ends.
    pub(crate) fn broken(&self, what: String) -> ! {
        self.say(|| format!("BROKEN: {what}"));
        self.broken.borrow_mut().get_or_insert(what);
        resume_unwind(Box::new(Broken));
    }

    pub(crate) fn why_broken(&self) -> Option<String> {
        self.broken.borrow().clone()
    }

    /// An id of this history, with the time of its making.
    pub(crate) fn mint(&self) -> RequestId {
        let mut rng = self.ids.borrow_mut();
        let time = u128::from(self.now().0) << 80;
        let low = u128::from(rng.next() >> 2) | 0x8000_0000_0000_0000;
        let middle = 0x7000 | u128::from(rng.next() & 0xfff);
        RequestId(Uuid::from_u128(time | (middle << 64) | low))
    }

    /// Time passes, for every clock.
    pub(crate) fn pass(&self, ms: u64) {
        self.wall.set(self.wall.get() + ms);
        self.steady.set(self.steady.get() + ms);
    }

    /// Somebody sets the wall clock.
    pub(crate) fn leap(&self, ms: i64) {
        self.wall.set(self.wall.get().saturating_add_signed(ms));
    }

    /// The time that passes for the receiver, whatever clocks here say.
    pub(crate) fn true_ms(&self) -> u64 {
        self.steady.get()
    }

    /// Whether the process that runs was asked to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.frames.borrow().last().is_some_and(|frame| frame.stop)
    }

    /// Whether an error needs no explanation.
    pub(crate) fn is_faulty(&self) -> bool {
        self.bounded.get()
            || self.lasting.get().is_some()
            || self.frames.borrow().iter().any(|frame| frame.faulted)
    }

    pub(crate) fn bound(&self, bytes: u64) {
        self.disk().bound(bytes, u64::MAX >> 1);
        self.bounded.set(true);
    }

    pub(crate) fn free(&self) {
        self.disk().bound(u64::MAX >> 1, u64::MAX >> 1);
        self.bounded.set(false);
        self.lasting.set(None);
    }

    /// An error that nobody made is a violation.
    pub(crate) fn expect_fault(&self, error: &StoreError) {
        if matches!(error, StoreError::Locked { .. }) {
            self.say(|| "the spool is busy".to_owned());
            return;
        }
        self.say(|| format!("error: {error}: {:?}", std::error::Error::source(error)));
        if !self.is_faulty() {
            let source = std::error::Error::source(error).map(ToString::to_string);
            self.broken(format!("an error without a fault: {error}: {source:?}"));
        }
    }

    /// One process does one step, until its end or its death. True if power was lost.
    pub(crate) fn run(self: &Rc<Self>, entry: &Entry) -> bool {
        self.say(|| format!("{:?}", entry.step));
        let ended = self.process(entry.triggers.clone(), waits(&entry.step), || {
            crate::actors::act(self, entry);
        });
        match ended {
            Ended::Well => false,
            Ended::Killed => {
                self.crashes.set(self.crashes.get() + 1);
                false
            }
            Ended::PowerLost => true,
        }
    }

    /// Runs a process until its end or its death.
    pub(crate) fn process(
        self: &Rc<Self>,
        triggers: Vec<(When, Trigger)>,
        waits: bool,
        work: impl FnOnce(),
    ) -> Ended {
        let depth = self.frames.borrow().len();
        self.frames.borrow_mut().push(Frame {
            triggers,
            ops: 0,
            wires: 0,
            syncs: 0,
            stop: false,
            faulted: false,
            waits,
        });
        let ended = catch_unwind(AssertUnwindSafe(work));
        let frame = self.frames.borrow_mut().pop();
        debug_assert_eq!(depth, self.frames.borrow().len());
        let Err(payload) = ended else {
            return Ended::Well;
        };
        if payload.is::<Killed>() {
            self.say(|| {
                let ops = frame.map_or(0, |frame| frame.ops);
                format!("KILLED at operation {ops}")
            });
            return Ended::Killed;
        }
        if payload.is::<PowerLost>() {
            if depth > 0 {
                resume_unwind(payload);
            }
            self.crashes.set(self.crashes.get() + 1);
            return Ended::PowerLost;
        }
        self.note_panic(payload)
    }

    fn note_panic(&self, payload: Box<dyn Any + Send>) -> ! {
        if !payload.is::<Broken>() {
            let text = payload
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string));
            let text = format!("a panic: {text:?}");
            self.say(|| text.clone());
            self.broken.borrow_mut().get_or_insert(text);
        }
        resume_unwind(payload)
    }

    /// Power goes, between two steps.
    pub(crate) fn lose_power(&self) {
        self.say(|| "POWER LOST".to_owned());
        self.disk().lose_power();
        self.boot.set(self.boot.get() + 1);
        self.pass(30_000);
        self.boot_began.set(self.steady.get());
    }

    fn pull(&self, trigger: Trigger, op: &'static str, path: &Path) -> io::Result<()> {
        match trigger {
            Trigger::Kill => resume_unwind(Box::new(Killed)),
            Trigger::Power => {
                self.say(|| format!("at {op} {}:", path.display()));
                self.lose_power();
                resume_unwind(Box::new(PowerLost))
            }
            Trigger::Fault { errno, lasts } => {
                self.say(|| format!("{op} {} fails: {errno:?} {lasts}", path.display()));
                if lasts {
                    self.lasting.set(Some(Lasting { errno, op }));
                }
                if let Some(frame) = self.frames.borrow_mut().last_mut() {
                    frame.faulted = true;
                }
                if op == "wire" {
                    return Ok(());
                }
                Err(io::Error::from_raw_os_error(errno.raw_os_error()))
            }
            Trigger::Stop => {
                if let Some(frame) = self.frames.borrow_mut().last_mut() {
                    frame.stop = true;
                }
                Ok(())
            }
            Trigger::Meanwhile(entry) => {
                self.say(|| format!("meanwhile, at {op} {}:", path.display()));
                if let Some(world) = self.me.upgrade() {
                    world.run(&entry);
                }
                Ok(())
            }
        }
    }

    /// Counts an operation of the process that runs, and does what is to happen at it.
    pub(crate) fn count(&self, op: &'static str, path: &Path) -> io::Result<()> {
        let trigger = {
            let mut frames = self.frames.borrow_mut();
            let Some(frame) = frames.last_mut() else {
                return Ok(());
            };
            frame.count(op);
            let due = |(when, _): &(When, Trigger)| match *when {
                When::Any(at) => frame.ops == at,
                When::Wire(at) => op == "wire" && frame.wires == at,
                When::Sync(at) => SYNCS.contains(&op) && frame.syncs == at,
            };
            let index = frame.triggers.iter().position(due);
            index.map(|index| frame.triggers.remove(index))
        };
        let ops = self.frames.borrow().last().map_or(0, |frame| frame.ops);
        if ops > OPS_MAX {
            self.broken(format!(
                "G11: a process does not end: {op} {}",
                path.display()
            ));
        }
        if let Some((_, trigger)) = trigger {
            self.pull(trigger, op, path)?;
        }
        match self.lasting.get() {
            Some(lasting) if lasting.op == op && op != "wire" => {
                Err(io::Error::from_raw_os_error(lasting.errno.raw_os_error()))
            }
            _ => Ok(()),
        }
    }
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    Well,
    Killed,
    PowerLost,
}

/// Whether a process waits when somebody else accepts under its key.
fn waits(step: &Step) -> bool {
    matches!(step, Step::Enqueue { .. })
}

/// What the disk and the engine ask of the world.
impl Watch for World {
    fn before(&self, op: &'static str, path: &Path) -> io::Result<()> {
        self.count(op, path)
    }

    fn contended(&self, path: &Path) {
        let waits = self.frames.borrow().last().is_some_and(|frame| frame.waits);
        if waits && path.starts_with(crash_disk::path("keys")) {
            // It would wait for the other process, which itself waits here until it returns.
            resume_unwind(Box::new(Killed));
        }
    }

    fn now(&self) -> UnixMs {
        UnixMs(self.wall.get())
    }

    fn synced(&self) {
        self.pass(1);
    }
}

impl Clock for World {
    fn now(&self) -> UnixMs {
        UnixMs(self.wall.get())
    }

    fn steady_ms(&self) -> u64 {
        self.steady.get()
    }

    fn boot(&self) -> Option<(String, u64)> {
        let up = self.steady.get() - self.boot_began.get();
        Some((format!("boot {}", self.boot.get()), up))
    }
}
