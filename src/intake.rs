//! What every way in has in common: a draft is checked against the configuration and becomes an
//! offer to the store. What could never be sent is refused now, while somebody listens.

use std::io::Read;

use crate::config::{Config, Destination};
use crate::entropy;
use crate::model::draft::Draft;
use crate::model::envelope::{
    Body, Envelope, INLINE_BYTES_MAX, Request, Requester, VERSION, sha256_hex,
};
use crate::model::event::{Event, EventKind};
use crate::model::fault::nearest;
use crate::model::ids::{DestName, RequestId};
use crate::model::reason::Reason;
use crate::model::state::State;
use crate::model::time::UnixMs;
use crate::store::{self, BodyError, Limits, NewBody, Offer, Store, StoreError};
use crate::transport::request::{self, needs_body};
use crate::transport::secret::Credential;

/// How long principal, thread, labels, notify and hold may be together, in bytes.
const WORDS_BYTES_MAX: usize = 16 * 1024;

/// The longest key, in bytes.
const KEY_BYTES_MAX: usize = 4096;

/// With fewer free files than this on its file system a spool is full.
const FREE_FILES_MIN: u64 = 1024;

/// Why a draft does not become an item. The text names the part and the way out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(String);

/// Why nothing is accepted now. Exit code 75.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Full(String);

impl Refused {
    /// A refusal in these words.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(text)
    }
}

impl Full {
    /// Says it with more around it.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(text)
    }
}

/// Who offers, and when.
#[derive(Clone, Debug)]
pub struct By {
    /// The time.
    pub now: UnixMs,
    /// As the item's first event names it: `alice(1000)`.
    pub who: String,
    /// Who asks, where the draft does not say.
    pub principal: Option<String>,
    /// The id that the item has already, if it has.
    pub id: Option<RequestId>,
}

/// Reads a body: one that fits into an envelope into memory, a larger one piece by piece into the
/// store.
///
/// # Errors
///
/// [`BodyError`]; nothing is kept then.
pub fn take_body(
    config: &Config,
    store: &dyn Store,
    from: &mut dyn Read,
) -> Result<(Vec<u8>, Option<NewBody>), BodyError> {
    let mut bytes = Vec::new();
    let small = INLINE_BYTES_MAX as u64 + 1;
    from.take(small)
        .read_to_end(&mut bytes)
        .map_err(BodyError::Input)?;
    if (bytes.len() as u64) < small {
        return Ok((bytes, None));
    }
    let mut whole = bytes.as_slice().chain(from);
    let body = store.take_body(&mut whole, config.limits.max_body_bytes)?;
    Ok((Vec::new(), Some(body)))
}

/// Makes an offer of a draft. `body` is the body where it is not the draft's own.
///
/// # Errors
///
/// [`Refused`]: nothing is accepted. A body that was given is given back.
pub fn offer(
    config: &Config,
    draft: Draft,
    body: Option<NewBody>,
    store: &dyn Store,
    by: &By,
) -> Result<Offer, (Refused, Option<NewBody>)> {
    match prepared(config, draft, body.as_ref(), store, by) {
        Ok((envelope, accepted, own_id, own_body)) => Ok(Offer {
            envelope,
            accepted,
            own_id,
            body: body.or(own_body),
        }),
        Err(why) => Err((Refused(why), body)),
    }
}

/// The parts of an offer: envelope, first event, whether the id is the caller's own, and the
/// draft's own body where it is large.
type Parts = (Envelope, Event, bool, Option<NewBody>);

fn prepared(
    config: &Config,
    draft: Draft,
    body: Option<&NewBody>,
    store: &dyn Store,
    by: &By,
) -> Result<Parts, String> {
    let name = draft
        .destination
        .as_ref()
        .ok_or("`destination` is missing")?;
    let destination = known_destination(config, name)?;
    if destination.command.is_some() {
        return Err(format!(
            "`{name}` takes notices only; name it in `notify`, or give a destination of the configuration"
        ));
    }
    for name in &draft.notify {
        known_destination(config, name)?;
    }
    check_method(&draft.method)?;
    check_times(&draft, by.now)?;
    check_key(draft.key.as_deref())?;
    check_words(&draft)?;
    let length = body.map_or(draft.body.len() as u64, |body| body.bytes);
    check_length(config, length)?;
    let sum = body.map_or_else(|| sha256_hex(&draft.body), |body| body.sha256.clone());
    if draft.body_sha256.as_ref().is_some_and(|said| *said != sum) {
        return Err(format!(
            "request.body_sha256 is not that of the body, which is {sum}; leave it out or mend it"
        ));
    }
    let id = by
        .id
        .or(draft.request_id)
        .unwrap_or_else(entropy::request_id);
    let content_type = match (draft.content_type, body) {
        (Some(given), _) => Some(given),
        (None, None) => json_type(!draft.body.is_empty() && is_json(draft.body.as_slice())),
        (None, Some(body)) => json_type(store.open_new_body(body).is_ok_and(is_json)),
    };
    let mut own_body = None;
    // Of a body in a file the check below needs no more than that it is one.
    let stored = if body.is_some() || draft.body.len() > INLINE_BYTES_MAX {
        Some(Body::File { id, bytes: length })
    } else {
        (!draft.body.is_empty()).then(|| Body::from_bytes(draft.body.clone()))
    };
    let in_a_file = matches!(stored, Some(Body::File { .. }));
    let envelope = Envelope {
        v: VERSION,
        request_id: id,
        destination: destination.name.clone(),
        enqueued_at: by.now,
        request: Request {
            method: draft.method,
            path: draft.path,
            query: draft.query,
            headers: draft.headers,
            content_type,
            body: stored,
            body_sha256: sum,
        },
        requester: Requester {
            principal: draft.requester.principal.or_else(|| by.principal.clone()),
            thread: draft.requester.thread,
        },
        notify: draft.notify,
        labels: draft.labels,
        key: draft.key,
        retry_of: None,
        not_before: draft.not_before,
        not_after: draft.not_after,
        notice: false,
    };
    let mut whole = None;
    if in_a_file && needs_body(destination) {
        whole = Some(match body {
            None => draft.body.clone(),
            Some(body) => read_all(store, body)?,
        });
    }
    check_request(&envelope, destination, whole)?;
    if in_a_file && body.is_none() {
        own_body = Some(NewBody::new(draft.body));
    }
    let accepted = first_event(draft.hold.as_deref(), by);
    // One that a file carries is reserved too: whoever dropped it may have made the name.
    let own_id = draft.request_id.is_some() || by.id.is_some();
    Ok((envelope, accepted, own_id, own_body))
}

fn read_all(store: &dyn Store, body: &NewBody) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    store
        .open_new_body(body)
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .map_err(|error| format!("the body cannot be read again: {error}"))?;
    Ok(bytes)
}

fn is_json(body: impl Read) -> bool {
    let reader = std::io::BufReader::new(body);
    serde_json::from_reader::<_, serde::de::IgnoredAny>(reader).is_ok()
}

fn json_type(is_json: bool) -> Option<String> {
    is_json.then(|| "application/json".to_owned())
}

/// The destination of that name in the configuration, or the way out.
///
/// # Errors
///
/// A text that says what is configured.
pub fn known_destination<'c>(
    config: &'c Config,
    name: &DestName,
) -> Result<&'c Destination, String> {
    config.destinations.get(name).ok_or_else(|| {
        let known: Vec<&str> = config.destinations.keys().map(DestName::as_str).collect();
        let hint = match nearest(name.as_str(), known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None if known.is_empty() => format!(
                "none is configured yet; add [destination.{name}] to {}",
                config.path.display()
            ),
            None => format!("configured are: {}", known.join(", ")),
        };
        format!("destination `{name}` is not configured; {hint}")
    })
}

/// Methods are case-sensitive (RFC 9110, 9.1), and `get` is one that no receiver knows.
fn check_method(method: &str) -> Result<(), String> {
    let upper = method.to_ascii_uppercase();
    let known = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    if method != upper && known.contains(&upper.as_str()) {
        return Err(format!("method `{method}` is written `{upper}`"));
    }
    Ok(())
}

fn check_times(draft: &Draft, now: UnixMs) -> Result<(), String> {
    let begin = now.max(draft.not_before.unwrap_or(now));
    if draft.not_after.is_some_and(|end| end <= begin) {
        return Err(
            "not_after is over before the item could be sent; give a later time".to_owned(),
        );
    }
    Ok(())
}

fn check_key(key: Option<&str>) -> Result<(), String> {
    match key {
        Some("") => Err("the key is empty; leave it out, or give one".to_owned()),
        Some(key) if key.len() > KEY_BYTES_MAX => Err(format!(
            "the key is {} bytes long; at most {KEY_BYTES_MAX} are taken",
            key.len()
        )),
        Some(_) | None => Ok(()),
    }
}

/// What an item says besides its request is in memory whenever it is looked at.
fn check_words(draft: &Draft) -> Result<(), String> {
    let requester = [&draft.requester.principal, &draft.requester.thread];
    let words = requester
        .into_iter()
        .flatten()
        .chain(&draft.hold)
        .map(String::len);
    let labels = draft.labels.iter().map(|(k, v)| k.len() + v.len());
    let notify = draft.notify.iter().map(|name| name.as_str().len());
    let bytes: usize = words.chain(labels).chain(notify).sum();
    if bytes > WORDS_BYTES_MAX {
        return Err(format!(
            "principal, thread, labels, notify and hold are {bytes} bytes together; at most {WORDS_BYTES_MAX} are taken"
        ));
    }
    Ok(())
}

/// Checks a body's length.
///
/// # Errors
///
/// A text that names the setting.
pub fn check_length(config: &Config, bytes: u64) -> Result<(), String> {
    let bytes_max = config.limits.max_body_bytes;
    if bytes > bytes_max {
        return Err(too_large(config));
    }
    Ok(())
}

/// The largest text of an item that is read, in bytes: JSON can make six characters of one byte.
#[must_use]
pub fn text_bytes_max(config: &Config) -> u64 {
    let body_max = config.limits.max_body_bytes;
    body_max.saturating_mul(6).saturating_add(1 << 20)
}

/// What is said of a body that is too large.
#[must_use]
pub fn too_large(config: &Config) -> String {
    format!(
        "the body is larger than max_body, {}; raise max_body in [limits] of {} if the receiver takes more",
        size(config.limits.max_body_bytes),
        config.path.display()
    )
}

fn check_request(
    envelope: &Envelope,
    destination: &Destination,
    body: Option<Vec<u8>>,
) -> Result<(), String> {
    let words = |error: &dyn std::error::Error| error.to_string();
    envelope.request.check().map_err(|error| words(&error))?;
    let credential = destination
        .auth
        .as_ref()
        .map(|auth| Credential::new(auth, "x"));
    request::assemble(envelope, destination, credential.as_ref(), body)
        .map_err(|error| words(&error))?;
    // Guarantee G12: an item never holds a secret.
    let secret = ["authorization", "proxy-authorization", "cookie"];
    let mut headers = envelope.request.headers.iter();
    if let Some((name, _)) =
        headers.find(|(name, _)| secret.contains(&name.to_ascii_lowercase().as_str()))
    {
        return Err(format!(
            "header `{name}` holds a secret, and items are stored as they are; set `auth` in [destination.{}] instead",
            destination.name
        ));
    }
    Ok(())
}

/// The item's first event: pending, or held for a reason of the list, or for what a person says.
fn first_event(hold: Option<&str>, by: &By) -> Event {
    let state = hold.map_or(State::Pending, |_| State::Held);
    let mut accepted = Event::new(EventKind::Accepted, by.now, state);
    accepted.by = Some(by.who.clone());
    if let Some(text) = hold {
        if let Ok(reason) = Reason::parse(text) {
            accepted.reason = Some(reason);
        } else {
            accepted.reason = Some(Reason::OPERATOR);
            accepted.note = Some(text.to_owned());
        }
    }
    accepted
}

/// Whether nobody would be told of an item's end.
#[must_use]
pub fn is_untold(config: &Config, notify: &[DestName]) -> bool {
    config.notify.destinations.is_empty() && notify.is_empty()
}

/// What the configuration lets a store accept.
#[must_use]
pub fn limits(config: &Config) -> Limits {
    Limits {
        items_max: config.limits.max_items,
        free_bytes_min: config.limits.min_free_bytes,
        free_files_min: FREE_FILES_MIN,
    }
}

/// A number of bytes for people.
fn size(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.iter().find(|(_, shift)| bytes >> shift >= 10);
    unit.map_or_else(
        || format!("{bytes} bytes"),
        |(name, shift)| format!("{} {name}", bytes >> shift),
    )
}

/// What is said where the disk had no room for what was offered: nothing more of it is accepted.
/// `None` if the error is another one.
#[must_use]
pub fn no_room(config: &Config, store: &dyn Store, error: &StoreError) -> Option<Full> {
    if !error.is_no_room() {
        return None;
    }
    let limits = limits(config);
    let why = store.room(0).ok().and_then(|room| {
        let (_, why) = limits.fit(&room);
        why.filter(|why| !matches!(why, store::Full::Items(_)))
    });
    // A quota, which the file system's own numbers do not show, or a limit that is off.
    Some(why.map_or_else(
        || {
            let cause = std::error::Error::source(error).map(ToString::to_string);
            Full(format!(
                "{error}: {}: nothing is accepted until there is room; `tickpost prune` frees what is past its retention",
                cause.unwrap_or_default()
            ))
        },
        |why| full(config, &why),
    ))
}

/// Which limit is in the way, and the way out.
#[must_use]
pub fn full(config: &Config, full: &store::Full) -> Full {
    let file = config.path.display();
    Full(match full {
        store::Full::Items(max) => format!(
            "max_items in [limits] of {file} is {max}, and as many items wait: nothing more is accepted until some are settled; `tickpost status` shows where they wait"
        ),
        store::Full::Bytes(free) => format!(
            "the spool's file system has {} free, and min_free in [limits] of {file} is {}: nothing more is accepted until there is room; `tickpost prune` frees what is past its retention",
            size(*free),
            size(config.limits.min_free_bytes)
        ),
        store::Full::Files(free) => format!(
            "the spool's file system has room for {free} more files only: nothing more is accepted until there is room; `tickpost prune` frees what is past its retention"
        ),
    })
}
