//! Makes a large spool by writing the items' files, in the format of `spool/README.md`: nothing
//! that accepts and sends would get there in less than an hour.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::thread;
use std::time::SystemTime;

use anyhow::anyhow;
use chrono::{DateTime, Days, NaiveTime, SecondsFormat, Utc};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tickpost::model::envelope::hex;
use uuid::Uuid;

use crate::bare;
use crate::program::{Program, UNHEARD};

/// How many destinations have items.
pub(crate) const DESTINATIONS: u32 = 10;

/// Over how many days what waits is due, and what is confirmed was.
const DAYS: u32 = 7;

/// The first of the days on which something is due. Tomorrow may be near enough to be filed by its minutes.
const FIRST_DAY: u32 = 2;

/// The kinds of items, each in its own directories.
#[derive(Clone, Copy)]
enum Kind {
    Waiting,
    Confirmed,
    Held,
    Parked,
}

/// Makes a spool with so many waiting over 7 days and as many confirmed in the last 7, a tenth
/// as many held and as many parked, to 10 destinations.
pub(crate) fn make(spool: &Path, items: u32, body: &str) -> anyhow::Result<Program> {
    let program = Program::unheard(spool, 16)?;
    for n in 0..DESTINATIONS {
        program.add(&name(n), UNHEARD, 16)?;
    }
    let now = Utc::now();
    let mut ledgers: BTreeMap<String, String> = BTreeMap::new();
    thread::scope(|scope| {
        let made: Vec<_> = (0..DESTINATIONS)
            .map(|n| scope.spawn(move || destination(spool, n, items, body, now)))
            .collect();
        for made in made {
            let lines = made.join().map_err(|_| anyhow!("a thread panicked"))??;
            for (day, lines) in lines {
                *ledgers.entry(day).or_default() += &lines;
            }
        }
        anyhow::Ok(())
    })?;
    for (day, lines) in ledgers {
        write(&spool.join(format!("log/accepted-{day}.jsonl")), &lines)?;
    }
    bare::sync(spool)?;
    Ok(program)
}

/// The name of a destination.
fn name(n: u32) -> String {
    format!("d{n}")
}

/// The items of one destination; given back are the lines of the ledgers, by day.
fn destination(
    spool: &Path,
    n: u32,
    items: u32,
    body: &str,
    now: DateTime<Utc>,
) -> anyhow::Result<BTreeMap<String, String>> {
    let mut ledgers = BTreeMap::new();
    let kinds = [
        (Kind::Waiting, items),
        (Kind::Confirmed, items),
        (Kind::Held, items / 10),
        (Kind::Parked, items / 10),
    ];
    for (kind, items) in kinds {
        for item in (n..items).step_by(DESTINATIONS as usize) {
            one(
                spool,
                &name(n),
                kind,
                item / DESTINATIONS % DAYS,
                body,
                now,
                &mut ledgers,
            )?;
        }
    }
    Ok(ledgers)
}

/// One item.
fn one(
    spool: &Path,
    destination: &str,
    kind: Kind,
    day: u32,
    body: &str,
    now: DateTime<Utc>,
    ledgers: &mut BTreeMap<String, String>,
) -> anyhow::Result<()> {
    let id = Uuid::now_v7();
    let midnight = |at: DateTime<Utc>| at.with_time(NaiveTime::MIN).latest().unwrap_or(at);
    let due = midnight(now + Days::new(u64::from(FIRST_DAY + day)));
    let at = match kind {
        Kind::Confirmed => now - Days::new(u64::from(day)),
        Kind::Waiting | Kind::Held | Kind::Parked => now,
    };
    let day_of = |at: DateTime<Utc>| at.format("%Y%m%d").to_string();
    let text = at.to_rfc3339_opts(SecondsFormat::Millis, true);
    let mut envelope = json!({
        "v": 1, "request_id": id, "destination": destination, "enqueued_at": text,
        "request": {
            "method": "POST", "path": "/x", "content_type": "application/json",
            "body": {"text": body}, "body_sha256": hex(&Sha256::digest(body)),
        },
        "requester": {"principal": "bench"},
    });
    if matches!(kind, Kind::Waiting) {
        envelope["not_before"] = due.to_rfc3339_opts(SecondsFormat::Millis, true).into();
    }
    let envelope = envelope.to_string();
    let mut accepted = json!({
        "event": "accepted", "at": text, "by": "bench(0)", "state": "pending",
        "envelope_sha256": hex(&Sha256::digest(&envelope)),
    });
    let mut attempt = json!({"event": "attempt", "at": text, "n": 1, "ms": 1});
    let (place, attempt) = match kind {
        Kind::Waiting => (format!("pending/{destination}/{}", day_of(due)), None),
        Kind::Held => {
            accepted["state"] = "held".into();
            accepted["reason"] = "operator".into();
            (format!("held/{destination}"), None)
        }
        Kind::Confirmed => {
            let more = json!({"outcome": "answered", "status": 200, "reason": "accepted", "state": "confirmed"});
            merge(&mut attempt, more);
            (
                format!("confirmed/{destination}/{}", day_of(at)),
                Some(attempt),
            )
        }
        Kind::Parked => {
            let more = json!({"outcome": "maybe_sent", "reason": "timeout_after_send", "state": "unknown"});
            merge(&mut attempt, more);
            (format!("unknown/{destination}/parked"), Some(attempt))
        }
    };
    let mut item = format!("{envelope}\n{accepted}\n");
    if let Some(attempt) = attempt {
        writeln!(item, "{attempt}")?;
    }
    let place = spool.join(place);
    let path = place.join(format!("{id}.jsonl"));
    if !place.is_dir() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&place)?;
    }
    let file = write(&path, &item)?;
    if matches!(kind, Kind::Waiting) {
        file.set_modified(SystemTime::from(due))?;
    }
    let line = format!(
        r#"{{"request_id":"{id}","destination":"{destination}","principal":"bench","at":"{text}"}}"#
    );
    writeln!(ledgers.entry(day_of(at)).or_default(), "{line}")?;
    Ok(())
}

/// Adds the fields of an object to another.
fn merge(to: &mut serde_json::Value, more: serde_json::Value) {
    if let (Some(to), serde_json::Value::Object(more)) = (to.as_object_mut(), more) {
        to.extend(more);
    }
}

/// Writes a new file that is its owner's alone.
fn write(path: &Path, text: &str) -> anyhow::Result<File> {
    let mut file = fs::OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    Ok(file)
}
