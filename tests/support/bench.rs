//! A spool in a directory of its own, and the built binary to run on it.
//!
//! ```ignore
//! let receiver = Receiver::start(vec![Reply::status(503)]);
//! let bench = Bench::with(&[("shop", &receiver.url(), "")]);
//! let id = bench.enqueue("shop", &["--data", "{}"]);
//! bench.run(&["tick"]).ok();
//! assert!(bench.place(&id).starts_with("pending/shop/"));
//! ```
//!
//! The binary gets an empty environment, standard input that is empty unless it is given, and
//! always `--spool`. Nothing here waits for a time to pass.

#![allow(dead_code, reason = "every test crate uses a part of it")]
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fs2::FileExt;
use serde_json::Value;
use tempfile::TempDir;

/// The key that most destinations of tests have: repeats are dropped, so an unknown item is sent
/// again.
pub(crate) const KEYED: &str =
    "key = { kind = \"header\", name = \"Idempotency-Key\", window = \"24h\" }";

/// Timeouts that end a wait for a silent receiver soon.
pub(crate) const IMPATIENT: &str = "timeout = { connect = \"2s\", response = \"300ms\" }";

/// A spool and what is needed around it.
#[derive(Debug)]
pub(crate) struct Bench {
    dir: TempDir,
    spool: PathBuf,
}

/// What a run of the binary came to.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The words that it was called with.
    pub(crate) arguments: Vec<OsString>,
    /// Its exit code; `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    /// What it printed as results.
    pub(crate) stdout: String,
    /// What it said besides.
    pub(crate) stderr: String,
}

/// A run in the making.
#[derive(Debug)]
pub(crate) struct Call {
    command: Command,
    arguments: Vec<OsString>,
    stdin: Option<Vec<u8>>,
}

/// A run under way. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Running {
    child: Option<Child>,
    arguments: Vec<OsString>,
}

/// The spool's lock, until it is dropped.
#[derive(Debug)]
pub(crate) struct HeldLock(File);

/// What is at a path of a spool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// `dir`, `file`, or `other`.
    pub(crate) kind: &'static str,
    /// The permission bits.
    pub(crate) mode: u32,
    /// Seconds and nanoseconds of the last change of content.
    pub(crate) mtime: (i64, i64),
    /// The inode.
    pub(crate) inode: u64,
    /// A file's bytes.
    pub(crate) bytes: Vec<u8>,
}

impl Bench {
    /// A directory without a spool. `bench.spool()` says where one would be.
    pub(crate) fn bare() -> Self {
        let dir = TempDir::new().unwrap();
        let spool = dir.path().join("spool");
        Self { dir, spool }
    }

    /// As [`Self::bare`], with the place of the spool elsewhere.
    pub(crate) fn at(spool: PathBuf) -> Self {
        let dir = TempDir::new().unwrap();
        Self { dir, spool }
    }

    /// A spool as `init` makes it.
    pub(crate) fn new() -> Self {
        let bench = Self::bare();
        bench.run(&["init"]).ok();
        bench
    }

    /// A spool with these destinations, each a name, a base URL, and more lines of TOML.
    pub(crate) fn with(destinations: &[(&str, &str, &str)]) -> Self {
        let bench = Self::new();
        bench.configure("", destinations);
        bench
    }

    /// Writes the configuration: lines of TOML, then destinations as in [`Self::with`].
    pub(crate) fn configure(&self, general: &str, destinations: &[(&str, &str, &str)]) {
        let mut text = format!("{general}\n");
        for (name, url, more) in destinations {
            text.push_str("[destination.");
            text.push_str(name);
            text.push_str("]\nbase_url = \"");
            text.push_str(url);
            text.push_str("\"\n");
            text.push_str(more);
            text.push('\n');
        }
        self.write_config(&text);
    }

    /// Writes the configuration as it is.
    pub(crate) fn write_config(&self, text: &str) {
        fs::write(self.spool.join("tickpost.toml"), text).unwrap();
    }

    /// The spool's directory.
    pub(crate) fn spool(&self) -> &Path {
        &self.spool
    }

    /// The directory around the spool, for files of the test's own.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A copy of the program where any user can reach it and the spool.
    pub(crate) fn program_for_all(&self) -> PathBuf {
        fs::set_permissions(self.dir(), fs::Permissions::from_mode(0o755)).unwrap();
        let program = self.dir().join("tickpost");
        // By a process of its own: a child of another test could inherit the descriptor that writes
        // it, and what somebody has open for writing cannot be run.
        let copied = Command::new("install")
            .args(["-m", "755", env!("CARGO_BIN_EXE_tickpost")])
            .arg(&program)
            .status()
            .unwrap();
        assert!(copied.success());
        program
    }

    /// Writes a file beside the spool and returns its path as text.
    pub(crate) fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Runs the binary on this spool.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Ran {
        self.call(arguments).run()
    }

    /// Runs it with `--json` and returns the one value that it prints.
    pub(crate) fn json<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Value {
        let mut all: Vec<&OsStr> = vec!["--json".as_ref()];
        all.extend(arguments.iter().map(AsRef::as_ref));
        self.run(&all).ok().json()
    }

    /// A run on this spool, to be given more before it begins.
    pub(crate) fn call<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Call {
        let mut all: Vec<&OsStr> = vec!["--spool".as_ref(), self.spool.as_ref()];
        all.extend(arguments.iter().map(AsRef::as_ref));
        self.call_plain(&all)
    }

    /// A run without `--spool`, in the directory around the spool.
    pub(crate) fn call_plain<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Call {
        let mut call = Call::of(env!("CARGO_BIN_EXE_tickpost").as_ref(), arguments);
        call.command.current_dir(self.dir.path());
        call
    }

    /// A run under another umask, such as `077`.
    pub(crate) fn call_with_umask<S: AsRef<OsStr>>(&self, umask: &str, arguments: &[S]) -> Call {
        self.call_by_shell(&format!("umask {umask} && exec \"$@\""), arguments)
    }

    /// A run on this spool by a script of the shell, in which it is `"$@"`.
    pub(crate) fn call_by_shell<S: AsRef<OsStr>>(&self, script: &str, arguments: &[S]) -> Call {
        let mut all: Vec<&OsStr> = vec![
            "-c".as_ref(),
            script.as_ref(),
            "sh".as_ref(),
            env!("CARGO_BIN_EXE_tickpost").as_ref(),
            "--spool".as_ref(),
            self.spool.as_ref(),
        ];
        all.extend(arguments.iter().map(AsRef::as_ref));
        let mut call = Call::of("/bin/sh".as_ref(), &all);
        call.command.current_dir(self.dir.path());
        call
    }

    /// Accepts an item and returns its id.
    pub(crate) fn enqueue(&self, destination: &str, options: &[&str]) -> String {
        let mut all = vec!["--quiet", "enqueue", destination];
        all.extend(options);
        self.run(&all).ok().id()
    }

    /// One tick; returns what it printed with `--json`.
    pub(crate) fn tick(&self) -> Value {
        self.json(&["tick"])
    }

    /// What `show --json` prints of an item.
    pub(crate) fn show(&self, id: &str) -> Value {
        self.json(&["show", id])
    }

    /// What `list --json` prints.
    pub(crate) fn list(&self, filters: &[&str]) -> Vec<Value> {
        let mut all = vec!["--json", "list"];
        all.extend(filters);
        self.run(&all).ok().lines()
    }

    /// The ids that `list` prints.
    pub(crate) fn list_ids(&self, filters: &[&str]) -> Vec<String> {
        let id = |row: &Value| row["request_id"].as_str().unwrap().to_owned();
        self.list(filters).iter().map(id).collect()
    }

    /// Every path below the spool, relative to it, with what is there.
    pub(crate) fn tree(&self) -> BTreeMap<String, Entry> {
        let mut tree = BTreeMap::new();
        walk(&self.spool, &mut |path, entry| {
            let relative = path.strip_prefix(&self.spool).unwrap();
            tree.insert(relative.to_str().unwrap().to_owned(), entry);
        });
        tree
    }

    /// The paths of files, relative to the spool, that begin so.
    pub(crate) fn files(&self, beginning: &str) -> Vec<String> {
        let tree = self.tree().into_iter();
        let wanted =
            tree.filter(|(path, entry)| entry.kind == "file" && path.starts_with(beginning));
        wanted.map(|(path, _)| path).collect()
    }

    /// Every file whose name holds the id, relative to the spool.
    pub(crate) fn places(&self, id: &str) -> Vec<String> {
        let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let tree = self.tree().into_keys();
        tree.filter(|path| name(path).contains(id)).collect()
    }

    /// The one file of an item, relative to the spool.
    pub(crate) fn place(&self, id: &str) -> String {
        let places = self.places(id);
        assert_eq!(places.len(), 1, "{id} must be in one place: {places:?}");
        places.into_iter().next().unwrap()
    }

    /// As [`Self::place`], for an item that has a body or a reason beside it.
    pub(crate) fn place_of_item(&self, id: &str) -> String {
        let is_item = |path: &String| path.strip_suffix(".jsonl").is_some();
        let places: Vec<String> = self.places(id).into_iter().filter(is_item).collect();
        assert_eq!(places.len(), 1, "{id} must be in one place: {places:?}");
        places.into_iter().next().unwrap()
    }

    /// The first line of a file of the spool.
    pub(crate) fn first_line(&self, relative: &str) -> Value {
        let text = fs::read_to_string(self.spool.join(relative)).unwrap();
        json_lines(&text).remove(0)
    }

    /// The lines of an item's file: the envelope, then the events.
    pub(crate) fn item(&self, id: &str) -> Vec<Value> {
        json_lines(&fs::read_to_string(self.spool.join(self.place(id))).unwrap())
    }

    /// The last event of an item, as its file has it.
    pub(crate) fn last_event(&self, id: &str) -> Value {
        self.item(id).pop().unwrap()
    }

    /// Reads a JSON file of the spool.
    pub(crate) fn read_json(&self, relative: &str) -> Value {
        let text = fs::read_to_string(self.spool.join(relative)).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// The lines that ticks have left in the log.
    pub(crate) fn tick_lines(&self) -> Vec<Value> {
        let read = |path: &String| fs::read_to_string(self.spool.join(path)).unwrap();
        let files = self.files("log/ticks-");
        files
            .iter()
            .flat_map(|path| json_lines(&read(path)))
            .collect()
    }

    /// Writes a tick's line into the log, as if it had ended then; `day` as in `20261129`.
    pub(crate) fn write_tick_line(&self, day: &str, ended_at: &str) {
        let line = serde_json::json!({"started_at": ended_at, "ended_at": ended_at, "ms": 1});
        let path = self.spool.join(format!("log/ticks-{day}.jsonl"));
        fs::write(path, format!("{line}\n")).unwrap();
    }

    /// Takes the spool's lock, as a running tick has it, until what it returns is dropped.
    pub(crate) fn hold_lock(&self, owner: &str) -> HeldLock {
        let path = self.spool.join("lock");
        let file = File::options().read(true).write(true).open(path).unwrap();
        // Not as methods: those of the same names in std win.
        FileExt::lock_exclusive(&file).unwrap();
        file.set_len(0).unwrap();
        (&file).write_all(owner.as_bytes()).unwrap();
        HeldLock(file)
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        // Closing is not enough: a child that another test is just starting has the file open
        // until it has become the binary.
        FileExt::unlock(&self.0).unwrap();
    }
}

impl Call {
    fn of<S: AsRef<OsStr>>(program: &OsStr, arguments: &[S]) -> Self {
        let mut command = Command::new(program);
        command.env_clear().args(arguments);
        Self {
            command,
            arguments: arguments
                .iter()
                .map(|word| word.as_ref().to_owned())
                .collect(),
            stdin: Some(Vec::new()),
        }
    }

    /// Sets a variable of the environment, which is empty otherwise.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Gives it standard input.
    pub(crate) fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// Leaves standard input open, for [`Running::take_stdin`].
    pub(crate) fn keep_stdin(mut self) -> Self {
        self.stdin = None;
        self
    }

    /// Runs it to its end.
    pub(crate) fn run(self) -> Ran {
        self.start().end()
    }

    /// Begins it.
    pub(crate) fn start(mut self) -> Running {
        let command = &mut self.command;
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        if let Some(bytes) = self.stdin {
            let mut pipe = child.stdin.take().unwrap();
            // Beside the test, which reads what comes out meanwhile. Whoever reads no input may
            // be gone already, which is its right.
            std::thread::spawn(move || drop(pipe.write_all(&bytes)));
        }
        Running {
            child: Some(child),
            arguments: self.arguments,
        }
    }
}

impl Running {
    /// Asks it to stop, as systemd does.
    pub(crate) fn terminate(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    /// Kills it without a chance to clear up.
    pub(crate) fn kill(&self) {
        self.signal(rustix::process::Signal::KILL);
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(self.child.as_ref().unwrap());
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Takes the pipe that it reads from, where [`Call::keep_stdin`] kept it.
    pub(crate) fn take_stdin(&mut self) -> std::process::ChildStdin {
        self.child.as_mut().unwrap().stdin.take().unwrap()
    }

    /// The most memory that it has had so far, in KiB.
    pub(crate) fn peak_memory_kib(&self) -> u64 {
        let pid = self.child.as_ref().unwrap().id();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:"));
        let kib = line.unwrap().split_whitespace().nth(1).unwrap();
        kib.parse().unwrap()
    }

    /// Takes the pipe of results, to be read while it runs, or closed.
    pub(crate) fn take_stdout(&mut self) -> std::process::ChildStdout {
        self.child.as_mut().unwrap().stdout.take().unwrap()
    }

    /// Takes the pipe of what it says besides, to be read while it runs.
    pub(crate) fn take_stderr(&mut self) -> std::process::ChildStderr {
        self.child.as_mut().unwrap().stderr.take().unwrap()
    }

    /// Whether it still runs.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.as_mut().unwrap().try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ran {
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        Ran {
            arguments: std::mem::take(&mut self.arguments),
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

impl Ran {
    /// Checks the exit code.
    #[track_caller]
    pub(crate) fn code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// Checks that it is done.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        self.code(0)
    }

    /// Checks that it says this, on stderr.
    #[track_caller]
    pub(crate) fn says(self, words: &str) -> Self {
        assert!(self.stderr.contains(words), "not said: {words}\n{self:#?}");
        self
    }

    /// Checks that it does not say this, on stderr.
    #[track_caller]
    pub(crate) fn says_not(self, words: &str) -> Self {
        assert!(!self.stderr.contains(words), "said: {words}\n{self:#?}");
        self
    }

    /// Checks that it prints this among its results.
    #[track_caller]
    pub(crate) fn prints(self, words: &str) -> Self {
        assert!(
            self.stdout.contains(words),
            "not printed: {words}\n{self:#?}"
        );
        self
    }

    /// Checks that it prints no results.
    #[track_caller]
    pub(crate) fn prints_nothing(self) -> Self {
        assert_eq!(self.stdout, "", "{self:#?}");
        self
    }

    /// The request id that it printed, which must be all that it printed.
    #[track_caller]
    pub(crate) fn id(&self) -> String {
        let id = self.stdout.strip_suffix('\n').unwrap_or_default();
        let parsed = uuid::Uuid::parse_str(id);
        let as_written = parsed.as_ref().map(ToString::to_string);
        assert_eq!(as_written.as_deref(), Ok(id), "{self:#?}");
        id.to_owned()
    }

    /// The one JSON value that it printed, on one line.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let mut lines = self.lines();
        assert_eq!(lines.len(), 1, "{self:#?}");
        lines.pop().unwrap()
    }

    /// The JSON values that it printed, one a line.
    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<Value> {
        json_lines(&self.stdout)
    }
}

/// Reads JSON Lines.
#[track_caller]
pub(crate) fn json_lines(text: &str) -> Vec<Value> {
    let value = |line: &str| serde_json::from_str(line).unwrap();
    text.lines().map(value).collect()
}

/// The names of an object's fields.
#[track_caller]
pub(crate) fn fields(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

/// Checks that an object has exactly these fields, in any order.
#[track_caller]
pub(crate) fn assert_fields(value: &Value, names: &str) {
    let mut wanted: Vec<&str> = names.split_whitespace().collect();
    wanted.sort_unstable();
    let mut got = fields(value);
    got.sort_unstable();
    assert_eq!(got, wanted, "{value:#}");
}

/// Checks that an object has at least these fields.
#[track_caller]
pub(crate) fn assert_has_fields(value: &Value, names: &str) {
    let got = fields(value);
    for name in names.split_whitespace() {
        assert!(got.contains(&name), "no field {name}: {value:#}");
    }
}

/// Checks that a value is a time as items store it: RFC 3339, UTC, milliseconds.
#[track_caller]
pub(crate) fn assert_time(value: &Value) {
    let text = value.as_str().unwrap_or_default();
    let shape: String = text
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    assert_eq!(shape, "0000-00-00T00:00:00.000Z", "{value}");
}

/// The digits of a stored time up to the minute, as directories are named: `20261129T1540Z`.
pub(crate) fn minute_of(time: &Value) -> String {
    let text = time.as_str().unwrap();
    let digits = |range: std::ops::Range<usize>| text[range].replace(['-', ':'], "");
    format!("{}T{}Z", digits(0..10), digits(11..16))
}

/// The digits of a stored time's day: `20261129`.
pub(crate) fn day_of(time: &Value) -> String {
    time.as_str().unwrap()[0..10].replace('-', "")
}

fn walk(dir: &Path, each: &mut dyn FnMut(&Path, Entry)) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        // What a running tick has just moved on is not there.
        let Ok(meta) = fs::symlink_metadata(&path) else {
            continue;
        };
        let (kind, bytes) = if meta.is_dir() {
            ("dir", Vec::new())
        } else if meta.is_file() {
            ("file", fs::read(&path).unwrap_or_default())
        } else {
            ("other", Vec::new())
        };
        let found = Entry {
            kind,
            mode: meta.mode() & 0o7777,
            mtime: (meta.mtime(), meta.mtime_nsec()),
            inode: meta.ino(),
            bytes,
        };
        each(&path, found);
        if meta.is_dir() {
            walk(&path, each);
        }
    }
}
