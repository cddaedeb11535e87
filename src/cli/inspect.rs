//! `list`, `show`: looking at items, without the lock.

use std::path::PathBuf;

use super::exit::CliError;
use super::output::{self, style_of};
use super::select::{self, Filters, Located};
use super::table::{Cell, Column, Table};
use super::{Context, prune, times};
use crate::clock::{Clock as _, SystemClock};
use crate::model::envelope::{BODIES, Body};
use crate::model::item::{Damage, Item};
use crate::model::time::UnixMs;
use crate::store::file::FileStore;
use crate::store::{Found, Memory, Store, StoreError};
use crate::view::item::{Outlook, Row, next};

/// The table of `list`.
const ITEMS: [Column; 8] = [
    Column::new("request id", 0),
    Column::new("state", 0),
    Column::new("destination", 2),
    Column::new("reason", 1),
    Column::new("tries", 5),
    Column::new("accepted", 4),
    Column::new("due", 3),
    Column::text("by", 6),
];

/// How often an item that moves is looked for.
const LOOKS_MAX: usize = 10;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tickpost list --state held --reason auth_invalid --since 2h")]
pub(super) struct ListArgs {
    #[command(flatten)]
    filters: Filters,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tickpost show 019adf3e")]
pub(super) struct ShowArgs {
    /// Request ids, or unique beginnings of them; - reads ids from standard input
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
}

pub(super) fn list(context: &Context, arguments: &ListArgs) -> anyhow::Result<()> {
    let store = context.store_to_read()?;
    let rows = arguments.filters.select(context, &store)?;
    if context.out.json {
        for (_, _, row) in &rows {
            context.out.json(row)?;
        }
        return Ok(());
    }
    if rows.is_empty() {
        context.out.say("no item fits");
        return Ok(());
    }
    let mut table = Table::new(&ITEMS);
    for (_, _, row) in &rows {
        table.row(cells(row));
    }
    context.out.table(&table)
}

fn cells(row: &Row) -> Vec<Cell> {
    let state = if row.parked {
        format!("{} (parked)", row.state)
    } else {
        row.state.to_string()
    };
    let by = [row.principal.as_deref(), row.thread.as_deref()];
    vec![
        Cell::new(row.request_id.to_string()),
        Cell::styled(state, style_of(row.state)),
        Cell::new(row.destination.as_str()),
        Cell::new(
            row.reason
                .as_ref()
                .map_or(String::new(), ToString::to_string),
        ),
        Cell::new(row.tries.to_string()),
        Cell::new(times::local(row.enqueued_at)),
        Cell::new(row.due.map_or(String::new(), times::local)),
        Cell::new(by.into_iter().flatten().collect::<Vec<_>>().join(" ")),
    ]
}

pub(super) fn show(context: &Context, arguments: &ShowArgs) -> anyhow::Result<()> {
    let store = context.store_to_read()?;
    let config = context.config_if_any();
    let root = PathBuf::from(context.whole_root());
    let mut missing = Vec::new();
    for text in select::ids(&arguments.ids)? {
        let found = match select::locate(&store, &text) {
            Ok(Located::Found(found)) => found,
            Ok(Located::Pruned(tombstone)) => {
                prune::show(context, &tombstone)?;
                continue;
            }
            // One that is missing hides none of the others.
            Err(error) => match error.downcast_ref::<CliError>() {
                Some(CliError::NoInput(why)) => {
                    missing.push(why.clone());
                    continue;
                }
                _ => return Err(error),
            },
        };
        let item = read(&store, &text, found)?;
        let Some((found, item)) = item else {
            return Err(CliError::NoInput(format!("item `{text}` is moving; ask again")).into());
        };
        let file = root.join(&found.place).display().to_string();
        let item = item.map_err(|damage| {
            CliError::Data(format!(
                "{file} cannot be read: {damage}; {}",
                select::after(&damage)
            ))
        })?;
        let memory = match store.memory(&item.envelope.destination) {
            // Ticks warn of it.
            Err(StoreError::Io { .. }) => Memory::default(),
            other => other?,
        };
        let standing = item.standing();
        let hold = store.destination_hold(item.envelope.destination.as_str())?;
        let time = |at: UnixMs| {
            if context.out.json {
                at.to_string()
            } else {
                times::local(at)
            }
        };
        let outlook = Outlook {
            config: config.as_ref(),
            memory: &memory,
            operator_hold: hold.is_some(),
            now: SystemClock::new().now(),
            time: &time,
        };
        let after = next(&found, &item, &standing, &outlook);
        if context.out.json {
            context.out.json(&serde_json::json!({
                "request_id": found.id,
                "state": found.state,
                "parked": found.parked,
                "envelope": item.envelope,
                "events": item.events,
                "file": file,
                "next": after,
            }))?;
        } else {
            print_item(context, &found, &item, &file, &after)?;
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(CliError::NoInput(missing.join("\n")).into())
}

/// Reads an item that may move between being found and being read.
fn read(
    store: &FileStore,
    text: &str,
    mut found: Found,
) -> anyhow::Result<Option<(Found, Result<Item, Damage>)>> {
    for _ in 0..LOOKS_MAX {
        if let Some(item) = store.read(&found)? {
            return Ok(Some((found, item)));
        }
        found = select::find(store, text)?;
    }
    Ok(None)
}

fn print_item(
    context: &Context,
    found: &Found,
    item: &Item,
    file: &str,
    after: &str,
) -> anyhow::Result<()> {
    let out = context.out;
    let envelope = &item.envelope;
    let standing = item.standing();
    let style = style_of(found.state);
    let parked = if found.parked { ", parked" } else { "" };
    out.line(&format!(
        "{}  {style}{}{style:#}{parked}",
        found.id, found.state
    ))?;
    let field =
        |name: &str, value: &str| out.line(&format!("  {name:<12} {}", output::plain(value)));
    field("destination", envelope.destination.as_str())?;
    if let Some(reason) = &standing.reason {
        field("reason", &format!("{reason}: {}", reason.explain()))?;
    }
    let request = &envelope.request;
    field(
        "request",
        &format!(
            "{} {}",
            request.method,
            if request.path.is_empty() {
                "/"
            } else {
                &request.path
            }
        ),
    )?;
    for (name, value) in &request.query {
        field("query", &format!("{name}={value}"))?;
    }
    for (name, value) in &request.headers {
        field("header", &format!("{name}: {value}"))?;
    }
    if let Some(content_type) = &request.content_type {
        field("type", content_type)?;
    }
    let (bytes, text) = if let Some(Body::File { id, bytes }) = &request.body {
        (*bytes, format!("in {BODIES}{id}"))
    } else {
        let body = request.body_bytes().unwrap_or_default().unwrap_or_default();
        (body.len() as u64, shortened(&body))
    };
    field(
        "body",
        &format!("{bytes} bytes, SHA-256 {}", request.body_sha256),
    )?;
    if bytes > 0 {
        field("", &text)?;
    }
    for (name, value) in [
        ("principal", &envelope.requester.principal),
        ("thread", &envelope.requester.thread),
        ("key", &envelope.key),
    ] {
        if let Some(value) = value {
            field(name, value)?;
        }
    }
    for (name, value) in &envelope.labels {
        field("label", &format!("{name}={value}"))?;
    }
    for name in &envelope.notify {
        field("notify", name.as_str())?;
    }
    if let Some(old) = envelope.retry_of {
        field("repeats", &old.to_string())?;
    }
    if let Some(receipt) = &standing.receipt {
        field("receipt", receipt)?;
    }
    field("file", file)?;
    field("next", after)?;
    for event in &item.events {
        out.line(&format!("  {}", output::plain(&event_words(event))))?;
        for line in response_words(event) {
            out.line(&format!("      {}", output::plain(&line)))?;
        }
    }
    Ok(())
}

/// What the receiver answered, for a person.
fn response_words(event: &crate::model::event::Event) -> Vec<String> {
    let Some(response) = &event.response else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    for name in ["retry-after", "location", "www-authenticate"] {
        if let Some(value) = response.headers.get(name) {
            lines.push(format!("{name}: {value}"));
        }
    }
    if !response.excerpt.is_empty() {
        lines.push(shortened(response.excerpt.as_bytes()));
    }
    lines
}

/// The beginning of a body on one line.
fn shortened(body: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(body) else {
        return format!("binary, {} bytes", body.len());
    };
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let short: String = text.chars().take(200).collect();
    let more = if short.len() < text.len() { " …" } else { "" };
    format!("{short}{more}")
}

/// An event in one line for a person.
fn event_words(event: &crate::model::event::Event) -> String {
    use crate::model::event::EventKind;
    let mut words = vec![times::local(event.at)];
    words.push(match event.event {
        EventKind::Accepted => "accepted".to_owned(),
        EventKind::Attempt => format!("attempt {}", event.n.unwrap_or(0)),
        EventKind::Held => "held".to_owned(),
        EventKind::Released => "released".to_owned(),
        EventKind::Cancelled => "cancelled".to_owned(),
        EventKind::Retried => "retried".to_owned(),
        EventKind::Resolved => "resolved".to_owned(),
        EventKind::Expired => "ended before an attempt".to_owned(),
        EventKind::Recovered => "put right".to_owned(),
    });
    if let Some(status) = event.status {
        let by_command = |rule: &String| rule.starts_with("command/");
        let what = if event.rule.as_ref().is_some_and(by_command) {
            "exit code"
        } else {
            "HTTP"
        };
        words.push(format!("{what} {status}"));
    }
    if let Some(ms) = event.ms {
        words.push(format!("{ms} ms"));
    }
    words.push(format!("→ {}", event.state));
    if event.is_parked() {
        words.push("(parked)".to_owned());
    }
    if let Some(reason) = &event.reason {
        words.push(format!("because {reason}"));
    }
    if let Some(rule) = &event.rule {
        words.push(format!("by rule {rule}"));
    }
    if let Some(due) = event.due {
        words.push(format!("due {}", times::local(due)));
    }
    if let Some(by) = &event.by {
        words.push(format!("by {by}"));
    }
    if let Some(note) = &event.note {
        words.push(format!("“{note}”"));
    }
    words.join("  ")
}
