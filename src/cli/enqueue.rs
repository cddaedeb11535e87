//! `enqueue`: exit 0 means that the item is durable.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use serde_json::{Value, json};

use super::exit::CliError;
use super::progress::Progress;
use super::{Context, batch, destination, tick, times, whoami};
use crate::clock::{Clock as _, SystemClock};
use crate::config::Config;
use crate::engine::Options;
use crate::intake::{self, By};
use crate::model::draft::Draft;
use crate::model::ids::{DestName, RequestId};
use crate::model::state::State;
use crate::model::time::{MINUTE_MS, UnixMs};
use crate::store::file::{Aside, FileStore};
use crate::store::{Answer, BodyError, NewBody, Store, StoreError};
use crate::users;

/// A last tick older than this is warned of, in milliseconds.
const TICK_OLD_MS: u64 = 15 * MINUTE_MS;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  echo '{\"amount\":5}' | tickpost enqueue billing --path /v1/charges --notify ops\n  tickpost enqueue billing --path /v1/charges --file invoice.json --key invoice-17\n  tickpost enqueue --batch < items.jsonl > ids"
)]
pub(super) struct Enqueue {
    /// The destination, by its name in the configuration
    #[arg(required_unless_present = "batch")]
    dest: Option<String>,
    /// Accept many: JSON objects on standard input, one a line, each with `destination` (else DEST)
    /// and `request`; prints an id a line once the item is durable, an empty line for a bad one
    #[arg(long, conflicts_with = "item")]
    batch: bool,
    #[command(flatten)]
    item: ItemArgs,
    /// Then tick that destination at once, as `tickpost tick` would
    #[arg(long)]
    tick: bool,
}

#[derive(Debug, clap::Args)]
#[group(id = "item", multiple = true)]
struct ItemArgs {
    /// The body [default: standard input]
    #[arg(long, value_name = "STRING", conflicts_with = "file")]
    data: Option<String>,
    /// The body from a file; - is standard input
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// The HTTP method [default: POST]
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
    /// The path below the destination's `base_url`
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// A query parameter, not encoded; may be repeated
    #[arg(long, value_name = "K=V", value_parser = pair)]
    query: Vec<(String, String)>,
    /// A header; may be repeated
    #[arg(long, value_name = "K: V", value_parser = header)]
    header: Vec<(String, String)>,
    /// The Content-Type [default: application/json if the body is JSON]
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Your own id: repeated with the same method, path, query and body, it is the same item
    #[arg(long, value_name = "UUID")]
    request_id: Option<RequestId>,
    /// A dedupe key: repeated with the same method, path, query and body, the first item's id is
    /// printed and nothing new accepted, until that item is pruned
    #[arg(long, value_name = "STRING")]
    key: Option<String>,
    /// Not to be sent before: 2026-11-29T15:40:03Z or +10m
    #[arg(long, value_name = "TIME")]
    not_before: Option<String>,
    /// Worthless after: 2026-11-29T15:40:03Z or +10m
    #[arg(long, value_name = "TIME")]
    not_after: Option<String>,
    /// Hold it until somebody releases it, for this reason
    #[arg(long, value_name = "REASON")]
    hold: Option<String>,
    /// Who asks [default: your user name]
    #[arg(long, value_name = "NAME")]
    principal: Option<String>,
    /// The conversation, deployment or job that it belongs to
    #[arg(long, value_name = "NAME")]
    thread: Option<String>,
    /// A label; may be repeated
    #[arg(long, value_name = "K=V", value_parser = pair)]
    label: Vec<(String, String)>,
    /// A destination that is told if it does not end well; may be repeated
    #[arg(long, value_name = "DEST")]
    notify: Vec<String>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write it as NAME=VALUE".to_owned()),
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("write it as 'Name: value'".to_owned()),
    }
}

pub(super) fn run(context: &Context, arguments: Enqueue) -> anyhow::Result<()> {
    let config = context.config()?;
    let only = match &arguments.dest {
        Some(text) => Some(destination(&config, text)?.name.clone()),
        None => None,
    };
    let now = SystemClock::new().now();
    let store = context.store(&config)?;
    store.check_owner()?;
    store.check_original()?;
    let accepted = match (arguments.batch, &only) {
        (false, Some(name)) => one(context, &config, &store, name, arguments.item, now).map(Some),
        _ => batch::run(context, &config, &store, only.as_ref()).map(|()| None),
    };
    warn_of_old_tick(context, &store, now);
    // Of a batch some may be accepted whatever became of the rest.
    if arguments.tick && (accepted.is_ok() || arguments.batch) {
        tick_now(context, &config, &store, only);
        if let Ok(Some(id)) = &accepted
            && let Some((state, why)) = standing_of(&store, *id)?
            && state != State::Confirmed
        {
            let why = if state == State::Pending {
                format!("`tickpost show {id}` says what it waits for")
            } else {
                why
            };
            context.out.warn(&format!("it is {state}: {why}"));
        }
    }
    accepted.map(|_| ())
}

/// Accepts one item from the command line.
fn one(
    context: &Context,
    config: &Config,
    store: &FileStore,
    name: &DestName,
    item: ItemArgs,
    now: UnixMs,
) -> anyhow::Result<RequestId> {
    let uid = rustix::process::getuid().as_raw();
    let by = By {
        now,
        who: whoami(),
        principal: users::name(uid),
        id: None,
    };
    let (bytes, body) = body(context, config, store, &item)?;
    let draft = match draft(config, name, item, bytes, now) {
        Ok(draft) => draft,
        Err(error) => {
            if let Some(body) = body {
                store.discard_body(body);
            }
            return Err(error);
        }
    };
    let is_untold = intake::is_untold(config, &draft.notify);
    let offer = intake::offer(config, draft, body, store, &by).map_err(|(refused, body)| {
        if let Some(body) = body {
            store.discard_body(body);
        }
        CliError::Data(refused.to_string())
    })?;
    let mut answers = Vec::new();
    store
        .accept_all(vec![offer], &intake::limits(config), &mut answers)
        .map_err(|error| not_accepted(config, store, error))?;
    let mut is_known = false;
    let id = match answers.into_iter().next() {
        Some(Answer::New(id)) => {
            if is_untold {
                context.out.warn(
                    "nobody is told if it does not end well; use --notify DEST, or [notify] destinations or command in the configuration",
                );
            }
            id
        }
        Some(Answer::Known(id)) => {
            is_known = true;
            tell_of_known(context, store, id)?;
            id
        }
        Some(Answer::Aside(id)) => {
            is_known = true;
            context.out.warn(&of_aside(store, id)?);
            id
        }
        Some(Answer::Refused(refusal)) => return Err(CliError::Data(refusal.to_string()).into()),
        Some(Answer::Full(full)) => return Err(CliError::Full(intake::full(config, &full)).into()),
        Some(Answer::Busy | Answer::Open) | None => {
            let text = "another process has been accepting an item under the same key or id for half a minute; run it again: whichever comes second gets the id of the first";
            return Err(CliError::Timeout(text.to_owned()).into());
        }
    };
    match (context.out.json, is_known) {
        (false, _) => context.out.line(&id.to_string()),
        (true, false) => context.out.json(&json!({"request_id": id})),
        (true, true) => context.out.json(&json!({"request_id": id, "known": true})),
    }?;
    Ok(id)
}

/// An error of accepting: on a full disk nothing was accepted, and that is what is said.
fn not_accepted(config: &Config, store: &FileStore, error: StoreError) -> anyhow::Error {
    match intake::no_room(config, store, &error) {
        Some(full) => CliError::Full(full).into(),
        None => error.into(),
    }
}

/// A repeat accepts nothing new. Whoever repeats in the hope that it goes this time must hear
/// that it does not.
fn tell_of_known(context: &Context, store: &FileStore, id: RequestId) -> anyhow::Result<()> {
    let state = standing_of(store, id)?;
    match state {
        Some((state @ (State::Failed | State::Held), why)) => context.out.warn(&format!(
            "it was accepted before and is {state} ({why}); a repeat does not send it: `tickpost {} {id}` does",
            if state == State::Failed { "retry" } else { "release" },
        )),
        Some((State::Unknown, why)) => context.out.warn(&format!(
            "it was accepted before and is unknown ({why}): the receiver may have acted on it, see `tickpost show {id}`"
        )),
        Some((State::Pending | State::Confirmed, _)) | None if context.out.verbose > 0 => context
            .out
            .say("it was accepted before; nothing new was accepted"),
        Some((State::Pending | State::Confirmed, _)) | None => {}
    }
    Ok(())
}

/// What whoever repeats an item has to know whose file was set aside.
pub(super) fn of_aside(store: &FileStore, id: RequestId) -> anyhow::Result<String> {
    let aside = store.set_aside(&id.to_string(), 1)?.pop();
    let what = match aside {
        Some(Aside {
            name,
            is_there: true,
            ..
        }) => {
            format!("its file was damaged and set aside as corrupt/{name}")
        }
        Some(Aside { name, .. }) => format!(
            "its file was damaged, set aside, and removed by somebody; corrupt/{name}.why.json says why"
        ),
        None => "its file was damaged and set aside".to_owned(),
    };
    Ok(format!(
        "{id} was accepted before, and {what}: it is not sent, and a repeat does not send it either; to send it again, give it a new key or id"
    ))
}

/// The state of an item, and why.
fn standing_of(store: &FileStore, id: RequestId) -> anyhow::Result<Option<(State, String)>> {
    let Some(found) = store.find(id)? else {
        return Ok(None);
    };
    let item = store.read(&found)?.and_then(Result::ok);
    let why = item.and_then(|item| item.standing().reason);
    Ok(Some((
        found.state,
        why.map_or_else(|| "no reason".to_owned(), |why| why.to_string()),
    )))
}

/// What the command line says of an item.
fn draft(
    config: &Config,
    name: &DestName,
    item: ItemArgs,
    body: Vec<u8>,
    now: UnixMs,
) -> anyhow::Result<Draft> {
    let time = |text: Option<String>| -> Result<Option<UnixMs>, CliError> {
        text.map(|text| times::future(&text, now).map_err(CliError::Usage))
            .transpose()
    };
    let mut draft = Draft::new(name.clone());
    draft.not_before = time(item.not_before)?;
    draft.not_after = time(item.not_after)?;
    for text in &item.notify {
        draft.notify.push(destination(config, text)?.name.clone());
    }
    if let Some(method) = item.method {
        draft.method = method;
    }
    draft.path = item.path.unwrap_or_default();
    draft.query = item.query;
    draft.headers = item.header;
    draft.content_type = item.content_type;
    draft.body = body;
    draft.request_id = item.request_id;
    draft.key = item.key;
    draft.hold = item.hold;
    draft.requester.principal = item.principal;
    draft.requester.thread = item.thread;
    draft.labels = item.label.into_iter().collect();
    Ok(draft)
}

/// The body: in memory while it is small, else taken in by the store piece by piece.
fn body(
    context: &Context,
    config: &Config,
    store: &FileStore,
    item: &ItemArgs,
) -> anyhow::Result<(Vec<u8>, Option<NewBody>)> {
    let (name, mut input): (String, Box<dyn Read>) = match (&item.data, &item.file) {
        (Some(data), _) => return Ok((data.clone().into_bytes(), None)),
        (None, Some(path)) if path.as_os_str() != "-" => {
            let name = path.display().to_string();
            let file = File::open(path).map_err(|source| CliError::Input {
                path: name.clone(),
                source,
            })?;
            (name, Box::new(file))
        }
        (None, _) => {
            if io::stdin().is_terminal() {
                context
                    .out
                    .warn("reading the body from the terminal; end it with Ctrl-D");
            }
            ("standard input".to_owned(), Box::new(io::stdin().lock()))
        }
    };
    let (bytes, body) = match intake::take_body(config, store, &mut input) {
        Ok(taken) => taken,
        Err(BodyError::Input(source)) => {
            let path = name;
            return Err(CliError::Input { path, source }.into());
        }
        Err(BodyError::TooLarge) => return Err(CliError::Data(intake::too_large(config)).into()),
        Err(BodyError::Store(error)) => return Err(not_accepted(config, store, error)),
    };
    let method = item.method.as_deref().unwrap_or("POST");
    let is_empty = bytes.is_empty() && body.is_none();
    if is_empty && item.file.is_none() && ["POST", "PUT", "PATCH"].contains(&method) {
        context.out.warn(
            "standard input was empty, and so is the body; `--data ''` says that this is meant",
        );
    }
    Ok((bytes, body))
}

/// Ticks the destination. What was accepted is accepted, whatever comes of it.
fn tick_now(context: &Context, config: &Config, store: &FileStore, only: Option<DestName>) {
    let options = Options {
        destination: only,
        ..Options::default()
    };
    let progress = Progress::start(context.out, None, "attempts");
    let never = AtomicBool::new(false);
    let ticked = tick::pass(context, config, store, &options, &never, &progress);
    progress.done();
    match ticked {
        Ok(report) => {
            for warning in &report.warnings {
                context.out.warn(&super::output::plain(warning));
            }
            if let Some(room) = report.no_room {
                let error = CliError::NoRoom(room);
                context.out.warn(&format!("it is accepted, but {error}"));
            }
        }
        Err(StoreError::Locked { owner, .. }) => context
            .out
            .warn(&format!("not ticked now: {owner}; a later tick sends it")),
        Err(error) => {
            let error = anyhow::Error::from(error);
            context
                .out
                .warn(&format!("it is accepted, but the tick failed: {error:#}"));
        }
    }
}

/// A dead timer shows nowhere else.
fn warn_of_old_tick(context: &Context, store: &FileStore, now: UnixMs) {
    let Ok(last) = store.last_tick() else {
        return;
    };
    let ended_at = last
        .as_ref()
        .and_then(|line| line.get("ended_at"))
        .and_then(Value::as_str)
        .and_then(|text| UnixMs::parse(text).ok());
    let age = |at: UnixMs| {
        Some(now.since(at))
            .filter(|ms| *ms > TICK_OLD_MS)
            .map(times::span)
    };
    match ended_at {
        None if age(store.created_at()).is_some() => context.out.warn(
            "no tick has run yet: it is sent when `tickpost tick` runs, by hand, a timer or cron",
        ),
        None => {}
        Some(at) => {
            if let Some(age) = age(at) {
                context.out.warn(&format!(
                    "the last tick ended {age} ago; is the timer still running?"
                ));
            }
        }
    }
}
