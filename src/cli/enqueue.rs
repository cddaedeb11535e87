//! `enqueue`: exit 0 means that the item is durable.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::PathBuf;

use serde_json::Value;

use super::exit::CliError;
use super::{Context, dest_name, read_input, times, user_name, whoami};
use crate::clock::{Clock as _, SystemClock};
use crate::config::{Config, Destination};
use crate::entropy;
use crate::model::envelope::{Body, Envelope, Request, Requester, VERSION, sha256_hex};
use crate::model::event::{Event, EventKind};
use crate::model::ids::DestName;
use crate::model::state::State;
use crate::model::time::{MINUTE_MS, UnixMs};
use crate::store::Store;
use crate::store::file::FileStore;
use crate::transport::request;

/// A last tick older than this is warned of, in milliseconds.
const TICK_OLD_MS: u64 = 15 * MINUTE_MS;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  echo '{\"amount\":5}' | tickpost enqueue billing --path /v1/charges --notify ops"
)]
pub(super) struct Enqueue {
    /// The destination, by its name in the configuration
    dest: String,
    /// The body [default: standard input]
    #[arg(long, value_name = "STRING", conflicts_with = "file")]
    data: Option<String>,
    /// The body from a file; - is standard input
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// The HTTP method
    #[arg(long, value_name = "METHOD", default_value = "POST")]
    method: String,
    /// The path below the destination's `base_url`
    #[arg(long, value_name = "PATH", default_value = "")]
    path: String,
    /// A query parameter, not encoded; may be repeated
    #[arg(long, value_name = "K=V", value_parser = pair)]
    query: Vec<(String, String)>,
    /// A header; may be repeated
    #[arg(long, value_name = "K: V", value_parser = header)]
    header: Vec<(String, String)>,
    /// The Content-Type [default: application/json if the body is JSON]
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Not to be sent before: 2026-11-29T15:40:03Z or +10m
    #[arg(long, value_name = "TIME")]
    not_before: Option<String>,
    /// Worthless after: 2026-11-29T15:40:03Z or +10m
    #[arg(long, value_name = "TIME")]
    not_after: Option<String>,
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
    let destination = super::destination_of_items(&config, &arguments.dest)?;
    let now = SystemClock::new().now();
    let store = context.store(&config)?;
    store.check_owner()?;
    store.check_original()?;
    let body = body(context, &config, &arguments)?;
    let envelope = envelope(&config, destination, arguments, body, now)?;
    let id = envelope.request_id;
    if config.notify.destinations.is_empty() && envelope.notify.is_empty() {
        context.out.warn(
            "nobody is told if it does not end well; use --notify DEST, or [notify] destinations or command in the configuration",
        );
    }
    let mut accepted = Event::new(EventKind::Accepted, now, State::Pending);
    accepted.by = Some(whoami());
    store.accept(envelope, accepted)?;
    if context.out.json {
        context.out.json(&serde_json::json!({"request_id": id}))?;
    } else {
        context.out.line(&id.to_string())?;
    }
    warn_of_old_tick(context, &store, now);
    Ok(())
}

/// The body's bytes, refused when there are too many.
fn body(context: &Context, config: &Config, arguments: &Enqueue) -> anyhow::Result<Vec<u8>> {
    let bytes_max = config.limits.max_body_bytes;
    let bytes = match (&arguments.data, &arguments.file) {
        (Some(data), _) => data.clone().into_bytes(),
        (None, Some(path)) => read_input(path, bytes_max)?,
        (None, None) => {
            if std::io::stdin().is_terminal() {
                context
                    .out
                    .warn("reading the body from the terminal; end it with Ctrl-D");
            }
            read_input(&PathBuf::from("-"), bytes_max)?
        }
    };
    let from_stdin = arguments.data.is_none() && arguments.file.is_none();
    if bytes.is_empty()
        && from_stdin
        && ["POST", "PUT", "PATCH"].contains(&arguments.method.as_str())
    {
        context.out.warn(
            "standard input was empty, and so is the body; `--data ''` says that this is meant",
        );
    }
    if bytes.len() as u64 > bytes_max {
        return Err(CliError::Data(format!(
            "the body is larger than max_body, {bytes_max} bytes; raise max_body in [limits] of {} if the receiver takes more",
            config.path.display()
        ))
        .into());
    }
    Ok(bytes)
}

fn envelope(
    config: &Config,
    destination: &Destination,
    arguments: Enqueue,
    body: Vec<u8>,
    now: UnixMs,
) -> anyhow::Result<Envelope> {
    let data = |error: String| CliError::Data(error);
    let time = |text: Option<String>| -> Result<Option<UnixMs>, CliError> {
        text.map(|text| times::future(&text, now).map_err(CliError::Usage))
            .transpose()
    };
    let not_before = time(arguments.not_before)?;
    let not_after = time(arguments.not_after)?;
    if not_after.is_some_and(|end| end <= now.max(not_before.unwrap_or(now))) {
        return Err(data(
            "--not-after is over before the item could be sent; give a later time".to_owned(),
        )
        .into());
    }
    let mut notify: Vec<DestName> = Vec::new();
    for name in &arguments.notify {
        super::destination(config, name)?;
        notify.push(dest_name(name)?);
    }
    let content_type = arguments.content_type.or_else(|| {
        let is_json =
            !body.is_empty() && serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok();
        is_json.then(|| "application/json".to_owned())
    });
    let envelope = Envelope {
        v: VERSION,
        request_id: entropy::request_id(),
        destination: destination.name.clone(),
        enqueued_at: now,
        request: Request {
            method: arguments.method,
            path: arguments.path,
            query: arguments.query,
            headers: arguments.header,
            content_type,
            body_sha256: sha256_hex(&body),
            body: (!body.is_empty()).then(|| Body::from_bytes(body)),
        },
        requester: Requester {
            principal: arguments
                .principal
                .or_else(|| user_name(rustix::process::getuid().as_raw())),
            thread: arguments.thread,
        },
        notify,
        labels: arguments.label.into_iter().collect::<BTreeMap<_, _>>(),
        key: None,
        retry_of: None,
        not_before,
        not_after,
        notice: false,
    };
    check(&envelope, destination)?;
    Ok(envelope)
}

/// What could never be sent is refused now, while somebody listens.
fn check(envelope: &Envelope, destination: &Destination) -> Result<(), CliError> {
    envelope
        .request
        .check()
        .map_err(|error| CliError::Data(error.to_string()))?;
    let credential = destination
        .auth
        .as_ref()
        .map(|auth| crate::transport::secret::Credential::new(auth, "x"));
    request::assemble(envelope, destination, credential.as_ref())
        .map_err(|error| CliError::Data(error.to_string()))?;
    // Guarantee G12: an item never holds a secret.
    let secret = ["authorization", "proxy-authorization", "cookie"];
    if let Some((name, _)) = envelope
        .request
        .headers
        .iter()
        .find(|(name, _)| secret.contains(&name.to_ascii_lowercase().as_str()))
    {
        return Err(CliError::Data(format!(
            "header `{name}` holds a secret, and items are stored as they are; set `auth` in [destination.{}] instead",
            destination.name
        )));
    }
    Ok(())
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
