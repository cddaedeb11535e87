//! Giving notices to a program: the command of `[notify]`.
//!
//! # Guarantees
//!
//! 1. The item's body, exactly, is on its standard input. What it says is kept as an answer's body
//!    is: bounded, without secrets, and without control characters.
//! 2. It inherits nothing of the tick's: no descriptor that the tick opened (the lock among them),
//!    and of the environment only `PATH`, `HOME` and `LANG`. Its directory is `/`.
//! 3. It is its own process group. At its timeout, or when the transport is dropped, the group gets
//!    SIGTERM, and after [`NotifyCommand::KILL_MS`] SIGKILL.
//! 4. It slows nothing else: it has threads of its own.
//!
//! The outcome is an answer whose status is the exit code, or 128 and the number of the signal.
//!
//! # Not here
//!
//! What it leaves running when it exits by itself is left alone: mailers deliver in the background.

use std::ffi::OsString;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use secrecy::ExposeSecret as _;

use super::redact::Redactor;
use super::secret::{self, basic};
use super::{Send, Sent, Transport};
use crate::config::{Auth, Config, NotifyCommand};
use crate::model::outcome::{Answer, Failure, Outcome, TransportClass};

/// At most so much of what a command says is kept.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// So much of it goes into the note of a run that did not end by itself.
const NOTE_CHARS_MAX: usize = 512;

/// What a command said is waited for so long after its end: something that it left running may
/// keep the pipe open.
const OUTPUT_WAIT: Duration = Duration::from_millis(500);

/// Nothing survives SIGKILL, but a process that the kernel holds can be late.
const KILLED_WAIT: Duration = Duration::from_secs(5);

/// Where programs are looked for if nobody says.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs the command of `[notify]`. Costs nothing before the first notice.
#[derive(Debug)]
pub struct CommandRunner {
    around: Arc<Around>,
    reports: Sender<Sent>,
    sent: Receiver<Sent>,
    running: Vec<(Sender<Word>, JoinHandle<()>)>,
}

/// What all runs share.
#[derive(Debug)]
struct Around {
    spool: PathBuf,
    /// How requests prove who we are: a script may well use the same secrets.
    auths: Vec<Auth>,
    proxy_passwords: Redactor,
}

/// What a run is waiting for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Word {
    /// The command has ended.
    Ended,
    /// It is not wanted any more.
    Stop,
}

/// Why a run is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Over {
    /// It ended by itself.
    Ended,
    /// Its time is over.
    Timeout,
    /// The tick ends.
    Stopped,
}

impl CommandRunner {
    /// A runner that has not started anything. `spool` is what the command is told of as
    /// `TICKPOST_SPOOL`.
    #[must_use]
    pub fn new(config: &Config, spool: PathBuf) -> Self {
        let (reports, sent) = mpsc::channel();
        let destinations = config.destinations.values();
        let mut proxy_passwords = Redactor::default();
        for proxy in destinations.clone().filter_map(|d| d.proxy.as_ref()) {
            proxy_passwords.add(proxy.password().unwrap_or_default());
        }
        Self {
            around: Arc::new(Around {
                spool,
                auths: destinations.filter_map(|d| d.auth.clone()).collect(),
                proxy_passwords,
            }),
            reports,
            sent,
            running: Vec::new(),
        }
    }
}

impl Transport for CommandRunner {
    fn begin(&mut self, send: Send) {
        self.running.retain(|(_, thread)| !thread.is_finished());
        let report = Report {
            token: send.token,
            since: Instant::now(),
            outcome: Outcome::Interrupted,
            to: self.reports.clone(),
        };
        let around = Arc::clone(&self.around);
        let (words, heard) = mpsc::channel();
        let ended = words.clone();
        let thread = thread::Builder::new()
            .name("command".to_owned())
            .spawn(move || {
                let mut report = report;
                report.outcome = run(&around, &send, &heard, ended);
            });
        match thread {
            Ok(thread) => self.running.push((words, thread)),
            // The report went with the thread, and has been made: interrupted, so tried again.
            Err(error) => drop(error),
        }
    }

    fn next(&mut self, limit: Duration) -> Option<Sent> {
        self.sent.recv_timeout(limit).ok()
    }
}

impl Drop for CommandRunner {
    fn drop(&mut self) {
        for (words, _) in &self.running {
            // One that has ended hears nothing any more.
            words.send(Word::Stop).unwrap_or_default();
        }
        for (_, thread) in self.running.drain(..) {
            // A panic has been reported as an interruption.
            drop(thread.join());
        }
    }
}

/// The duty to tell one run's end, whatever happens.
struct Report {
    token: u64,
    since: Instant,
    outcome: Outcome,
    to: Sender<Sent>,
}

impl Drop for Report {
    fn drop(&mut self) {
        let sent = Sent {
            token: self.token,
            outcome: std::mem::replace(&mut self.outcome, Outcome::Interrupted),
            ms: u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        // Nobody listens any more once the runner is dropped.
        drop(self.to.send(sent));
    }
}

/// One run, from item to outcome.
fn run(around: &Around, send: &Send, heard: &Receiver<Word>, ended: Sender<Word>) -> Outcome {
    let Some(command) = &send.destination.command else {
        return not_started("there is no command");
    };
    if !send.envelope.notice {
        return not_started("it is given notices only, and this item is none");
    }
    let body = match send.envelope.request.body_bytes() {
        // A notice has its body within itself.
        Ok(body) => body.unwrap_or_default(),
        Err(error) => return not_started(error.to_string()),
    };
    let (child, output) = match start(around, send, command, body, ended) {
        Ok(started) => started,
        Err(error) => {
            let program = command.program.display();
            return not_started(format!("cannot start `{program}`: {error}"));
        }
    };
    let over = match heard.recv_timeout(Duration::from_millis(command.timeout_ms)) {
        Ok(Word::Ended) => Over::Ended,
        Ok(Word::Stop) => Over::Stopped,
        Err(_) => Over::Timeout,
    };
    let status = finish(child, heard, over);
    let (bytes, cut) = output.take();
    let said = around.clean(bytes, cut);
    match (over, status) {
        (Over::Ended, Some(status)) => Outcome::Answered(Answer {
            status: code(status),
            headers: Vec::new(),
            body: said.into_bytes(),
            cut,
        }),
        (Over::Stopped, _) => Outcome::Interrupted,
        (Over::Ended | Over::Timeout, _) => {
            let limit = Duration::from_millis(command.timeout_ms);
            let mut detail = format!("it had not ended after {limit:?} and was killed");
            if !said.trim().is_empty() {
                detail.push_str("; it said: ");
                detail.extend(said.trim().chars().take(NOTE_CHARS_MAX));
            }
            Outcome::MaybeSent(Failure {
                class: TransportClass::TimeoutAfterSend,
                detail: detail.replace(['\n', '\t'], " "),
            })
        }
    }
}

fn not_started(why: impl Into<String>) -> Outcome {
    Outcome::NotSent(Failure {
        class: TransportClass::LocalError,
        detail: why.into(),
    })
}

/// The exit code, or as a shell has it 128 and the signal's number.
fn code(status: ExitStatus) -> u16 {
    let code = status
        .code()
        .or_else(|| Some(128 + status.signal()?))
        .unwrap_or(255);
    u16::try_from(code).unwrap_or(255)
}

/// Starts the command and its threads. The threads first: one that cannot be had must not be
/// missed when the command runs already.
fn start(
    around: &Around,
    send: &Send,
    command: &NotifyCommand,
    body: Vec<u8>,
    ended: Sender<Word>,
) -> io::Result<(Child, Output)> {
    let (its_input, input) = io::pipe()?;
    let (output, its_output) = io::pipe()?;
    let its_errors = its_output.try_clone()?;
    let output = Output::collect(output)?;
    feed(input, body)?;
    let pid = watch(ended)?;

    // What is run depends on no directory that the tick happens to be in.
    let program = if command.program.components().count() > 1 {
        std::path::absolute(&command.program)?
    } else {
        command.program.clone()
    };
    let inherited = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let mut made = Command::new(program);
    made.args(&command.arguments)
        .env_clear()
        .env("PATH", inherited("PATH").unwrap_or(USUAL_PATH.into()))
        .env("HOME", inherited("HOME").unwrap_or(OsString::from("/")))
        .env("LANG", inherited("LANG").unwrap_or("C.UTF-8".into()))
        .env("TICKPOST_REQUEST_ID", send.envelope.request_id.to_string())
        .env("TICKPOST_SPOOL", &around.spool)
        .current_dir("/")
        .process_group(0)
        .stdin(its_input)
        .stdout(its_output)
        .stderr(its_errors);
    let child = made.spawn()?;
    // Nobody listens only if the thread is gone, and it ends no earlier than the command.
    pid.send(Pid::from_child(&child)).unwrap_or_default();
    Ok((child, output))
}

/// Writes a command's standard input. Whether it is read is the command's own affair.
fn feed(mut input: PipeWriter, body: Vec<u8>) -> io::Result<()> {
    let write = move || drop(input.write_all(&body));
    thread::Builder::new().spawn(write).map(drop)
}

/// Waits for the end of the command whose id it will be given, and says so. The command stays a
/// zombie, so that its id is nobody else's while its group may still be killed.
fn watch(ended: Sender<Word>) -> io::Result<Sender<Pid>> {
    let (pid, given) = mpsc::channel();
    let wait = move || {
        let Ok(pid) = given.recv() else { return };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(Errno::INTR) = waitid(WaitId::Pid(pid), options) {}
        // Nobody listens if the run was given up.
        ended.send(Word::Ended).unwrap_or_default();
    };
    thread::Builder::new().spawn(wait)?;
    Ok(pid)
}

/// Brings a run to its end. `None` if it could not be ended.
fn finish(mut child: Child, heard: &Receiver<Word>, over: Over) -> Option<ExitStatus> {
    if over != Over::Ended {
        let group = Pid::from_child(&child);
        signal(group, Signal::TERM);
        let ended = wait_for_end(heard, Duration::from_millis(NotifyCommand::KILL_MS));
        // Also when the command itself has gone: what it started has not, perhaps.
        signal(group, Signal::KILL);
        if !ended && !wait_for_end(heard, KILLED_WAIT) {
            return None;
        }
    }
    child.wait().ok()
}

/// Nothing is wrong with a group that has gone.
fn signal(group: Pid, signal: Signal) {
    kill_process_group(group, signal).unwrap_or_default();
}

/// True if the command has ended within that time.
fn wait_for_end(heard: &Receiver<Word>, limit: Duration) -> bool {
    let since = Instant::now();
    loop {
        match heard.recv_timeout(limit.saturating_sub(since.elapsed())) {
            Ok(Word::Ended) => return true,
            // It is being ended already.
            Ok(Word::Stop) => {}
            Err(_) => return false,
        }
    }
}

/// What a command says, both pipes in one, as it comes.
struct Output {
    kept: Arc<Mutex<(Vec<u8>, bool)>>,
    whole: Receiver<()>,
}

impl Output {
    fn collect(mut from: PipeReader) -> io::Result<Self> {
        let kept = Arc::new(Mutex::new((Vec::new(), false)));
        let shared = Arc::clone(&kept);
        let (done, whole) = mpsc::channel();
        thread::Builder::new().spawn(move || {
            let mut piece = [0; 4096];
            // What is not kept is read all the same: nobody waits for a full pipe.
            loop {
                match from.read(&mut piece) {
                    Ok(0) => break,
                    Ok(len) => {
                        let mut kept = shared.lock().unwrap_or_else(PoisonError::into_inner);
                        let room = OUTPUT_BYTES_MAX - kept.0.len();
                        kept.0.extend_from_slice(&piece[..len.min(room)]);
                        kept.1 |= len > room;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
            // Nobody listens if the run was given up.
            done.send(()).unwrap_or_default();
        })?;
        Ok(Self { kept, whole })
    }

    /// What was said so far, and whether there is more.
    fn take(&self) -> (Vec<u8>, bool) {
        let whole = self.whole.recv_timeout(OUTPUT_WAIT).is_ok();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        (std::mem::take(&mut kept.0), kept.1 || !whole)
    }
}

impl Around {
    /// What a command said, for people: no secret that is known here, no control characters.
    fn clean(&self, bytes: Vec<u8>, cut: bool) -> String {
        if bytes.is_empty() {
            return String::new();
        }
        let mut redactor = self.proxy_passwords.clone();
        for auth in &self.auths {
            // A secret that cannot be read is not one that could be known.
            if let Ok(secret) = secret::read(auth.secret()) {
                if let Auth::Basic { user, .. } = auth {
                    redactor.add(&basic(user, secret.expose_secret()));
                }
                redactor.add(secret.expose_secret());
            }
        }
        String::from_utf8_lossy(&redactor.bytes(bytes, cut))
            .chars()
            .map(|c| {
                if c.is_control() && !matches!(c, '\n' | '\t') {
                    ' '
                } else {
                    c
                }
            })
            .collect()
    }
}
