//! One item as `list` and `show` tell of it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::config::Config;
use crate::model::event::EventKind;
use crate::model::ids::RequestId;
use crate::model::item::{Item, Standing};
use crate::model::reason::Reason;
use crate::model::state::State;
use crate::model::time::UnixMs;
use crate::store::{Found, Memory};

/// A row of `list`. The names are those of the JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The item.
    pub request_id: RequestId,
    /// Its state.
    pub state: State,
    /// Unknown, and only a person can settle it.
    pub parked: bool,
    /// Its destination.
    pub destination: String,
    /// Why it is where it is.
    pub reason: Option<Reason>,
    /// When it is acted on next.
    pub due: Option<UnixMs>,
    /// Attempts that count.
    pub attempts: u32,
    /// Attempts in all, counted or not, since it was accepted: for people.
    #[serde(skip)]
    pub tries: u32,
    /// When it was accepted.
    pub enqueued_at: UnixMs,
    /// Who asked.
    pub principal: Option<String>,
    /// For what.
    pub thread: Option<String>,
    /// The requester's labels.
    pub labels: BTreeMap<String, String>,
    /// The requester's dedupe key.
    pub key: Option<String>,
    /// The first claim.
    pub first_sent_at: Option<UnixMs>,
    /// The last event.
    pub updated_at: UnixMs,
    /// Where the file is.
    pub file: String,
}

impl Row {
    /// The row of an item that was found at `file`.
    #[must_use]
    pub fn of(found: &Found, item: &Item, file: String) -> Self {
        let standing = item.standing();
        let envelope = &item.envelope;
        Self {
            request_id: envelope.request_id,
            state: found.state,
            parked: found.parked,
            destination: envelope.destination.to_string(),
            reason: standing.reason,
            due: if found.state.is_terminal() {
                None
            } else {
                standing.due
            },
            attempts: standing.attempts,
            tries: standing.last_n,
            enqueued_at: envelope.enqueued_at,
            principal: envelope.requester.principal.clone(),
            thread: envelope.requester.thread.clone(),
            labels: envelope.labels.clone(),
            key: envelope.key.clone(),
            first_sent_at: standing.first_sent_at,
            updated_at: standing.updated_at,
            file,
        }
    }
}

/// What is known of an item's destination, and how times are written.
pub struct Outlook<'a> {
    /// The configuration, if it can be read.
    pub config: Option<&'a Config>,
    /// What ticks remember of the destination.
    pub memory: &'a Memory,
    /// An operator holds the destination.
    pub operator_hold: bool,
    /// The time.
    pub now: UnixMs,
    /// Writes an instant.
    pub time: &'a dyn Fn(UnixMs) -> String,
}

/// Whether a person's word, not an answer, was the last thing that happened.
fn by_person(item: &Item) -> bool {
    item.events
        .last()
        .is_some_and(|event| event.event == EventKind::Resolved)
}

/// What happens to an item next, in words for a person.
#[must_use]
pub fn next(found: &Found, item: &Item, standing: &Standing, outlook: &Outlook<'_>) -> String {
    let id = item.envelope.request_id;
    let name = &item.envelope.destination;
    let time = outlook.time;
    let gone = outlook
        .config
        .is_some_and(|config| !config.destinations.contains_key(name));
    let is_parked = found.state == State::Unknown && found.parked;
    let waits = matches!(found.state, State::Pending | State::Unknown) && !is_parked;
    if waits && outlook.operator_hold {
        return format!(
            "it waits: an operator holds destination `{name}`; `tickpost release --destination {name}` resumes it"
        );
    }
    match found.state {
        State::Confirmed if by_person(item) => "nothing: a person confirmed it".to_owned(),
        State::Confirmed => "nothing: the receiver acknowledged it".to_owned(),
        State::Failed => format!(
            "nothing by itself; when the cause is mended, `tickpost retry {id}` tries it again"
        ),
        State::Held => match standing.due {
            Some(due) => {
                format!(
                    "it is given back by itself at {}, or now by `tickpost release {id}`",
                    time(due)
                )
            }
            None if standing.reason.as_ref() == Some(&Reason::RESTORED) => format!(
                "first see what the original has sent since the copy was made: this may have been sent already. If not, `tickpost release {id}` sends it; `tickpost cancel {id}` gives it up"
            ),
            None => format!(
                "when the cause is mended, `tickpost release {id}` sends it; `tickpost cancel {id}` gives it up"
            ),
        },
        State::Unknown if found.parked => format!(
            "a person must look: the receiver may have acted on it. Look there before you repeat anything, then `tickpost resolve --confirmed {id}`, `--failed {id}`, or `--resend {id}`"
        ),
        State::Unknown | State::Pending if gone => {
            format!("nothing: destination `{name}` is not in the configuration")
        }
        State::Unknown => match standing.due {
            Some(due) => format!("it is sent again with the same key at {}", time(due)),
            None => {
                "it is being sent, or the tick that was sending it died; the next tick says which"
                    .to_owned()
            }
        },
        State::Pending => match &outlook.memory.suspended {
            Some(suspension) => {
                let note = suspension
                    .note
                    .as_ref()
                    .map_or(String::new(), |note| format!(": {note}"));
                let until = match suspension.until {
                    None => "until a person releases it".to_owned(),
                    Some(at) if at <= outlook.now => "and the next tick tries it".to_owned(),
                    Some(at) => format!("until {}", time(at)),
                };
                format!(
                    "it waits: destination `{name}` is suspended ({}{note}) {until}",
                    suspension.reason
                )
            }
            None => match standing.due {
                Some(due) if due > outlook.now => {
                    format!("it is sent at {} or by the first tick after", time(due))
                }
                Some(_) | None => "the next tick sends it".to_owned(),
            },
        },
    }
}
