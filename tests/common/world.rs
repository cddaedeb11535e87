//! A spool on the real disk, which can say of one place that it is out of reach, and real ticks
//! over it, with a clock that stands and a receiver that says 200.

#![allow(dead_code, reason = "every test crate uses a part of it")]

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::io::Errno;
use tempfile::TempDir;
use tickpost::clock::Clock;
use tickpost::config::Config;
use tickpost::engine::report::Report;
use tickpost::engine::{Engine, Options};
use tickpost::model::ids::RequestId;
use tickpost::model::outcome::{Answer, Outcome};
use tickpost::model::state::State;
use tickpost::model::time::UnixMs;
use tickpost::store::disk::{Disk as _, Meta, RealDisk};
use tickpost::store::file::FileStore;
use tickpost::store::{Decision, Dropped, Intake, Store as _, StoreError};
use tickpost::transport::{Send, Sent, Transport};

use crate::common::{
    self, Gate, Gated, MINUTE, NOW, accepted, dest, envelope, id, new_spool, owner, want,
};

/// A place that is out of reach.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    path: PathBuf,
    errno: Errno,
    /// What is there can be read.
    for_writes: bool,
    /// Nothing but these operations, if any are named.
    ops: &'static [&'static str],
}

/// When files were made, as the disk says.
#[derive(Debug, Default)]
pub(crate) struct Births {
    /// Of all but some, instead of when they were.
    all: Option<UnixMs>,
    /// Of some, by inode, and when they came to their place.
    some: HashMap<u64, (UnixMs, UnixMs)>,
}

#[derive(Clone, Default)]
pub(crate) struct Reach(Arc<Mutex<Option<Place>>>, Arc<Mutex<Births>>);

impl Reach {
    fn ask(&self, op: &str, path: &Path, writes: bool) -> io::Result<()> {
        let place = self.0.lock().unwrap();
        let Some(place) = place.as_ref().filter(|place| path.starts_with(&place.path)) else {
            return Ok(());
        };
        // A directory that may not be entered can be looked at from outside.
        let from_outside = op == "stat" && path == place.path && place.errno == Errno::ACCESS;
        let is_other = !place.ops.is_empty() && !place.ops.contains(&op);
        if from_outside || is_other || (place.for_writes && !writes) {
            return Ok(());
        }
        Err(io::Error::from_raw_os_error(place.errno.raw_os_error()))
    }
}

impl Gate for Reach {
    fn write(&self, op: &str, path: &Path) -> io::Result<()> {
        self.ask(op, path, true)
    }
    fn read(&self, op: &str, path: &Path) -> io::Result<()> {
        self.ask(op, path, false)
    }
    fn rename(&self, from: &Path, _: &Path) -> io::Result<()> {
        self.ask("rename", from, true)
    }
    fn meta(&self, meta: Meta) -> Meta {
        let births = self.1.lock().unwrap();
        let Some(all) = births.all else {
            return meta;
        };
        let known = births.some.get(&meta.inode.1);
        let (born, changed) = known.copied().unwrap_or((all, all));
        Meta {
            born: Some(born),
            changed,
            ..meta
        }
    }
}

/// It stands.
pub(crate) struct Still(UnixMs);

impl Clock for Still {
    fn now(&self) -> UnixMs {
        self.0
    }
    fn steady_ms(&self) -> u64 {
        0
    }
    fn boot(&self) -> Option<(String, u64)> {
        Some(("this boot".to_owned(), 5_000_000))
    }
}

/// Answers 200, after something has happened.
pub(crate) struct Wire<'w> {
    sent: Vec<(String, RequestId)>,
    under_way: VecDeque<u64>,
    when_sent: &'w dyn Fn(),
}

impl Transport for Wire<'_> {
    fn begin(&mut self, send: Send) {
        (self.when_sent)();
        let to = send.envelope.destination.to_string();
        self.sent.push((to, send.envelope.request_id));
        self.under_way.push_back(send.token);
    }

    fn next(&mut self, _: Duration) -> Option<Sent> {
        let token = self.under_way.pop_front()?;
        let outcome = Outcome::Answered(Answer {
            status: 200,
            ..Answer::default()
        });
        Some(Sent {
            token,
            outcome,
            ms: 1,
        })
    }
}

/// A spool with the destinations `a`, `b` and `ops`, which is told of everything.
pub(crate) struct World {
    _dir: TempDir,
    pub(crate) root: PathBuf,
    pub(crate) reach: Reach,
    pub(crate) config: Config,
    /// When ticks are.
    pub(crate) now: UnixMs,
}

impl World {
    pub(crate) fn new() -> Self {
        let (dir, root) = new_spool();
        let destinations = ["a", "b", "ops"].map(|name| {
            format!("[destination.{name}]\nbase_url = \"http://127.0.0.1:9\"\nkey = {{ kind = \"header\", name = \"Idempotency-Key\", window = \"24h\" }}\n")
        });
        let text = format!(
            "[notify]\ndestinations = [\"ops\"]\n{}",
            destinations.concat()
        );
        let path = dir.path().join("tickpost.toml");
        fs::write(&path, text).unwrap();
        let config = Config::load(&path).unwrap();
        Self {
            _dir: dir,
            root,
            reach: Reach::default(),
            config,
            now: NOW,
        }
    }

    pub(crate) fn store(&self) -> FileStore {
        common::store_on(Gated(self.reach.clone()), &self.root)
    }

    pub(crate) fn post(&self, to: &str, n: u64) {
        let mut envelope = envelope(n);
        envelope.destination = dest(to);
        self.store().accept(envelope, accepted()).unwrap();
    }

    pub(crate) fn plant(&self, relative: &str, text: &str) {
        let path = self.root.join(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn lose(&self, relative: &str, errno: Errno, for_writes: bool) {
        *self.reach.0.lock().unwrap() = Some(Place {
            path: self.root.join(relative),
            errno,
            for_writes,
            ops: &[],
        });
    }

    pub(crate) fn keep_closed(&self, relative: &str) {
        self.lose(relative, Errno::ACCESS, false);
        self.only(&["list", "sync_dir"]);
    }

    /// What is lost is lost for these operations alone.
    pub(crate) fn only(&self, ops: &'static [&'static str]) {
        self.reach.0.lock().unwrap().as_mut().unwrap().ops = ops;
    }

    /// From here on files count as made before anything happened, but for copies.
    pub(crate) fn no_file_is_a_copy(&self) {
        self.reach.1.lock().unwrap().all = Some(NOW.minus(MINUTE));
    }

    /// Puts a file there that counts as made by now.
    pub(crate) fn plant_copy(&self, relative: &str, text: &str) {
        self.plant_made(relative, text, self.now);
    }

    /// Puts a file there by now that was made when nothing had happened.
    pub(crate) fn plant_moved(&self, relative: &str, text: &str) {
        self.plant_made(relative, text, NOW.minus(MINUTE));
    }

    fn plant_made(&self, relative: &str, text: &str, born: UnixMs) {
        self.plant(relative, text);
        let path = self.root.join(relative);
        RealDisk.set_mtime(&path, NOW).unwrap();
        let inode = fs::metadata(path).unwrap().ino();
        self.reach
            .1
            .lock()
            .unwrap()
            .some
            .insert(inode, (born, self.now));
    }

    pub(crate) fn text(&self, relative: &str) -> String {
        fs::read_to_string(self.root.join(relative)).unwrap()
    }

    /// Moves a file, making the directory.
    pub(crate) fn shift(&self, from: &str, to: &str) {
        let to = self.root.join(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::rename(self.root.join(from), to).unwrap();
    }

    pub(crate) fn find_again(&self) {
        *self.reach.0.lock().unwrap() = None;
    }

    /// What a tick says, and what it sent to whom.
    #[track_caller]
    pub(crate) fn tick(&self) -> (Report, Vec<(String, RequestId)>) {
        self.tick_with(|| {})
    }

    /// Something happens whenever a request goes out.
    #[track_caller]
    pub(crate) fn tick_with(&self, when_sent: impl Fn()) -> (Report, Vec<(String, RequestId)>) {
        let (report, sent) = self.try_tick(when_sent);
        match report {
            Ok(report) => (report, sent),
            Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
        }
    }

    /// As [`Self::tick_with`], also of a tick that fails.
    pub(crate) fn try_tick(
        &self,
        when_sent: impl Fn(),
    ) -> (Result<Report, StoreError>, Vec<(String, RequestId)>) {
        let store = self.store();
        let mut wire = Wire {
            sent: Vec::new(),
            under_way: VecDeque::new(),
            when_sent: &when_sent,
        };
        let report = Engine {
            config: &self.config,
            store: &store,
            clock: &Still(self.now),
            jitter: &mut || 0,
            stop: &|| false,
            watch: &mut |_| {},
        }
        .tick(&mut wire, &Options::default());
        (report, wire.sent)
    }

    /// An owner of the lock dies with what it decided in its journal alone, a file in the way of
    /// whatever is set aside.
    pub(crate) fn die_with_the_record_of(&self, relative: &str) {
        let store = self.store();
        let told = [dest("ops")];
        let mut owner = owner(NOW);
        owner.told_of_corrupt = &told;
        let mut session = store.lock(&owner).unwrap();
        self.lose("corrupt", Errno::NOSPC, true);
        let limits = tickpost::store::Limits::NONE;
        let met = if relative.starts_with("incoming/") {
            let mut refuse = |_: &Dropped<'_>| Intake::Refuse("it is bad".to_owned());
            session
                .take_in(&dest("a"), 1000, &limits, &mut refuse)
                .err()
        } else {
            let claimed = session.claim(&want(1), NOW, &mut |_| Decision::Claim);
            claimed.err().or_else(|| session.sync().err())
        };
        assert!(met.is_some(), "{relative}");
    }

    pub(crate) fn state(&self, n: u64) -> State {
        self.store().find(id(n)).unwrap().unwrap().state
    }

    pub(crate) fn names(&self, relative: &str) -> Vec<String> {
        let listed = fs::read_dir(self.root.join(relative));
        let names = listed.into_iter().flatten();
        names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }
}

#[track_caller]
pub(crate) fn warned(report: &Report, of: &str) {
    let has = report.warnings.iter().any(|line| line.contains(of));
    assert!(has, "{of}: {:?}", report.warnings);
}

pub(crate) fn to_whom(sent: &[(String, RequestId)]) -> Vec<&str> {
    let mut names: Vec<&str> = sent.iter().map(|(to, _)| &**to).collect();
    names.sort_unstable();
    names
}
