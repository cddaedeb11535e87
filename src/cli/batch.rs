//! `enqueue --batch`: many items from standard input, in groups that are made durable together.
//!
//! A line of output for each line of input: the id once its item is durable, an empty line for a
//! bad one. Memory is bounded by the largest line and the largest group, whatever is read. When
//! the producer pauses, what it has written so far is accepted: it may be waiting for the ids.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write as _};
use std::os::fd::AsFd as _;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;

use super::exit::CliError;
use super::progress::Progress;
use super::{Context, enqueue, whoami};
use crate::clock::{Clock as _, SystemClock};
use crate::config::Config;
use crate::intake::{self, By, Full};
use crate::model::draft::Draft;
use crate::model::ids::{DestName, RequestId};
use crate::store::file::FileStore;
use crate::store::{Answer, Offer, Store};
use crate::users;

/// How many items are made durable together.
const GROUP_ITEMS_MAX: usize = 1000;

/// How many bytes of input one group is at most, the last line apart.
const GROUP_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How long a pause of the producer is before its lines are accepted, in milliseconds.
const PAUSE_MS: i64 = 10;

/// How much of the input is read at once.
const INPUT_BYTES: usize = 128 * 1024;

/// Bad lines of which each is told; of the rest there is a count.
const BAD_TOLD_MAX: u64 = 100;

/// A line that was read: an offer, nothing, or why it is none.
enum Line {
    Offer(Box<Offer>),
    Blank,
    Bad(String),
}

struct Batch<'a> {
    context: &'a Context,
    config: &'a Config,
    store: &'a FileStore,
    destination: Option<&'a DestName>,
    who: String,
    principal: Option<String>,
    bytes_max: u64,
    /// The number of the first line of the group, from 1.
    first: u64,
    lines: Vec<Line>,
    bytes: usize,
    bad: u64,
    /// Lines that repeat an item whose file was set aside.
    aside: u64,
    /// Those of the bad ones that only came at the wrong time.
    busy: u64,
    untold: bool,
    progress: Progress,
}

/// Accepts what standard input holds. `destination` is that of lines which name none.
pub(super) fn run(
    context: &Context,
    config: &Config,
    store: &FileStore,
    destination: Option<&DestName>,
) -> anyhow::Result<()> {
    let mut batch = Batch {
        context,
        config,
        store,
        destination,
        who: whoami(),
        principal: users::name(rustix::process::getuid().as_raw()),
        bytes_max: intake::text_bytes_max(config),
        first: 1,
        lines: Vec::new(),
        bytes: 0,
        bad: 0,
        aside: 0,
        busy: 0,
        untold: false,
        progress: Progress::start(context.out, None, "lines"),
    };
    let stdin = io::stdin().as_fd().try_clone_to_owned();
    let stdin = stdin.map_err(unreadable)?;
    let mut input = BufReader::with_capacity(INPUT_BYTES, File::from(stdin));
    let mut line = Vec::new();
    loop {
        if !batch.lines.is_empty() && (batch.is_full() || is_pausing(&input)) {
            batch.commit()?;
        }
        line.clear();
        let read = read_line(&mut input, &mut line, batch.bytes_max);
        match read.map_err(unreadable)? {
            Read::End => break,
            Read::Line => batch.add(&line),
            Read::TooLong => {
                let why = format!(
                    "it is longer than {} bytes; raise max_body in [limits] of {} if the receiver takes more",
                    batch.bytes_max,
                    config.path.display()
                );
                batch.lines.push(Line::Bad(why));
            }
        }
    }
    batch.commit()?;
    batch.end()
}

fn unreadable(source: io::Error) -> CliError {
    CliError::Input {
        path: "standard input".to_owned(),
        source,
    }
}

enum Read {
    Line,
    TooLong,
    End,
}

/// Reads a line without its newline. Of one that is too long nothing is kept.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>, bytes_max: u64) -> io::Result<Read> {
    let (mut any, mut too_long) = (false, false);
    loop {
        let piece = match input.fill_buf() {
            Ok(piece) => piece,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if piece.is_empty() && !any {
            return Ok(Read::End);
        }
        let newline = piece.iter().position(|b| *b == b'\n');
        let end = newline.unwrap_or(piece.len());
        any = true;
        if (line.len() + end) as u64 > bytes_max {
            too_long = true;
            *line = Vec::new();
        }
        if !too_long {
            line.extend_from_slice(&piece[..end]);
        }
        let ended = piece.is_empty() || newline.is_some();
        let used = end + usize::from(newline.is_some());
        input.consume(used);
        if ended {
            return Ok(if too_long { Read::TooLong } else { Read::Line });
        }
    }
}

/// Whether no whole line is there and nothing comes for a while: then nothing more is waited for.
fn is_pausing(input: &BufReader<File>) -> bool {
    if input.buffer().contains(&b'\n') {
        return false;
    }
    let mut polled = [PollFd::new(input.get_ref(), PollFlags::IN)];
    let pause = Timespec {
        tv_sec: 0,
        tv_nsec: PAUSE_MS * 1_000_000,
    };
    // An error shows when it is read.
    matches!(poll(&mut polled, Some(&pause)), Ok(0))
}

impl Batch<'_> {
    fn is_full(&self) -> bool {
        self.lines.len() >= GROUP_ITEMS_MAX || self.bytes >= GROUP_BYTES_MAX
    }

    fn add(&mut self, line: &[u8]) {
        self.bytes += line.len();
        let line = if line.iter().all(u8::is_ascii_whitespace) {
            Line::Blank
        } else {
            match self.offer(line) {
                Ok(offer) => Line::Offer(Box::new(offer)),
                Err(why) => Line::Bad(why),
            }
        };
        self.lines.push(line);
    }

    fn offer(&mut self, line: &[u8]) -> Result<Offer, String> {
        // Each is one line to the parser, which says so.
        let mut draft = Draft::parse(line).map_err(|error| {
            error
                .to_string()
                .replace(" at line 1 column ", " at column ")
        })?;
        if draft.destination.is_none() {
            draft.destination = self.destination.cloned();
        }
        let by = By {
            now: SystemClock::new().now(),
            who: self.who.clone(),
            principal: self.principal.clone(),
            id: None,
        };
        let untold = intake::is_untold(self.config, &draft.notify);
        let offer = intake::offer(self.config, draft, None, self.store, &by);
        let offer = offer.map_err(|(refused, _)| refused.to_string())?;
        self.untold |= untold;
        Ok(offer)
    }

    /// Makes the group durable, then prints its ids.
    fn commit(&mut self) -> anyhow::Result<()> {
        let lines = std::mem::take(&mut self.lines);
        self.bytes = 0;
        if lines.is_empty() {
            return Ok(());
        }
        let first = self.first;
        self.first += lines.len() as u64;
        let mut offers = Vec::new();
        let mut told: Vec<Result<Option<RequestId>, String>> = Vec::with_capacity(lines.len());
        let mut at = Vec::new();
        for line in lines {
            match line {
                Line::Offer(offer) => {
                    at.push(told.len());
                    told.push(Ok(None));
                    offers.push(*offer);
                }
                Line::Blank => told.push(Ok(None)),
                Line::Bad(why) => told.push(Err(why)),
            }
        }
        let mut answers = Vec::new();
        let limits = intake::limits(self.config);
        let accepted = self.store.accept_all(offers, &limits, &mut answers);
        let mut full = None;
        for (index, answer) in at.into_iter().zip(answers) {
            told[index] = match answer {
                Answer::New(id) | Answer::Known(id) => Ok(Some(id)),
                Answer::Aside(id) => {
                    self.warn_of_aside(first + index as u64, id);
                    Ok(Some(id))
                }
                Answer::Refused(refusal) => Err(refusal.to_string()),
                Answer::Full(why) => {
                    full.get_or_insert((index, why));
                    Ok(None)
                }
                Answer::Busy => {
                    self.busy += 1;
                    Err("another process accepts an item under its key; give it again".to_owned())
                }
                Answer::Open => Ok(None),
            };
        }
        // Also before an error: whose id is not printed is not accepted.
        self.print(first, &told)?;
        if let Err(error) = accepted {
            let Some(full) = intake::no_room(self.config, self.store, &error) else {
                return Err(error.into());
            };
            let text = format!("stopped; what got no id is not accepted: {full}");
            return Err(CliError::Full(Full::new(text)).into());
        }
        if let Some((index, why)) = full {
            let line = first + index as u64;
            let why = intake::full(self.config, &why);
            let text = format!("stopped at line {line}: {why}");
            return Err(CliError::Full(Full::new(text)).into());
        }
        Ok(())
    }

    fn warn_of_aside(&mut self, line: u64, id: RequestId) {
        self.aside += 1;
        if self.aside <= BAD_TOLD_MAX {
            // No error may keep back the ids that are accepted.
            let why = enqueue::of_aside(self.store, id)
                .unwrap_or_else(|error| format!("item {id} is in corrupt/: {error}"));
            let text = super::output::plain(&format!("line {line}: {why}"));
            self.progress.aside(|| self.context.out.warn(&text));
        }
    }

    /// One line of output for each of input, all at once.
    fn print(
        &mut self,
        first: u64,
        told: &[Result<Option<RequestId>, String>],
    ) -> anyhow::Result<()> {
        let mut text = String::new();
        for (number, told) in (first..).zip(told) {
            if let Err(why) = told {
                self.bad += 1;
                if self.bad <= BAD_TOLD_MAX {
                    let why = super::output::plain(why);
                    let text = format!("line {number}: {why}");
                    self.progress.aside(|| self.context.out.say(&text));
                }
            }
            let line = match (told, self.context.out.json) {
                (Ok(Some(id)), false) => id.to_string(),
                (Ok(None) | Err(_), false) => String::new(),
                (Ok(Some(id)), true) => json!({"line": number, "request_id": id}).to_string(),
                (Ok(None), true) => json!({"line": number}).to_string(),
                (Err(why), true) => json!({"line": number, "error": why}).to_string(),
            };
            text.push_str(&line);
            text.push('\n');
        }
        self.progress.add(told.len() as u64);
        // Not as other results, where a reader that has gone has seen enough: whoever accepts on
        // without anybody to take the ids has lost them.
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .map_err(CliError::Output)?;
        Ok(())
    }

    fn end(self) -> anyhow::Result<()> {
        self.progress.done();
        if self.untold {
            self.context.out.warn(
                "nobody is told of some of these if they do not end well; give `notify`, or [notify] destinations or command in the configuration",
            );
        }
        if let Some(more @ 1..) = self.aside.checked_sub(BAD_TOLD_MAX) {
            self.context.out.warn(&format!(
                "{more} more lines repeat items that were damaged and set aside: they are not sent"
            ));
        }
        if self.bad == 0 {
            return Ok(());
        }
        let lines = self.first - 1;
        let text = format!(
            "{} of {lines} lines were not accepted{}",
            self.bad,
            if self.bad < lines {
                "; the others were"
            } else {
                ""
            }
        );
        Err(if self.bad == self.busy {
            CliError::Timeout(text).into()
        } else {
            CliError::Data(text).into()
        })
    }
}
