//! Telling whoever asked: what is said, to whom, and how many moves become one notice.
//!
//! A notice is itself an item, so it is as durable as what it tells of; it never causes another.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize};
use uuid::Uuid;

use super::envelope::{Body, Envelope, Request, Requester, VERSION, sha256_hex};
use super::event::Event;
use super::ids::{DestName, RequestId};
use super::item::Item;
use super::reason::Reason;
use super::state::State;
use super::time::UnixMs;

/// How many ids a merged notice names.
pub const IDS_MAX: usize = 100;

/// How many destinations the text of a notice names; its JSON has more.
const NAMED_MAX: usize = 5;

/// What a notice's body is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Form {
    /// A JSON object, for programs.
    #[default]
    Json,
    /// The text alone, for receivers that show a body as it is.
    Text,
}

/// What kind of end is told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum About {
    /// Items that are held.
    Held,
    /// Items that failed.
    Failed,
    /// Unknown items that only a person can settle.
    Parked,
    /// Files set aside in `corrupt/`.
    Corrupt,
    /// Items of a destination that is no longer configured.
    Unconfigured,
    /// A destination that nothing can be sent to before a person mends something here.
    Suspended,
}

/// One move that somebody is to be told of. It lies in the journal record of the move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// The notice's own request id, a pure function of item, event number and address: made
    /// again after a crash it is the same.
    pub id: RequestId,
    /// The destination that is told.
    pub to: DestName,
    /// What kind of end.
    pub about: About,
    /// Why.
    pub reason: String,
    /// The item, or the file's name.
    pub subject: String,
    /// The item's destination.
    pub destination: String,
    /// Who asked for it.
    #[serde(default)]
    pub requester: Requester,
}

impl Notice {
    /// The notices that an event of an item calls for, one for each address of `to`.
    ///
    /// `event_number` counts the item's events from 1 (`accepted`).
    #[must_use]
    pub fn of(item: &Item, event: &Event, event_number: usize, to: &[DestName]) -> Vec<Self> {
        let about = match event.state {
            State::Held => About::Held,
            State::Failed => About::Failed,
            State::Unknown if event.is_parked() => About::Parked,
            State::Unknown | State::Pending | State::Confirmed => return Vec::new(),
        };
        let envelope = &item.envelope;
        if envelope.notice {
            return Vec::new();
        }
        addresses(&envelope.notify, to)
            .into_iter()
            .enumerate()
            .map(|(index, to)| Self {
                id: notice_id(envelope.request_id.0, event_number, index, to),
                to: to.clone(),
                about,
                reason: event
                    .reason
                    .as_ref()
                    .map_or_else(|| about.word().to_owned(), ToString::to_string),
                subject: envelope.request_id.to_string(),
                destination: envelope.destination.to_string(),
                requester: envelope.requester.clone(),
            })
            .collect()
    }

    /// The notices of a file set aside, or of a destination that nobody configured. `once` is
    /// what makes the occasion one of its kind: a second telling is another notice. Whoever asked
    /// for what is in the file is told first.
    #[must_use]
    pub fn of_file(
        about: About,
        subject: &str,
        once: &str,
        destination: &str,
        reason: &str,
        asked: &Asked,
        to: &[DestName],
    ) -> Vec<Self> {
        let occasion = format!("{}/{subject}/{once}", about.word());
        let name = Uuid::new_v5(&Uuid::NAMESPACE_URL, occasion.as_bytes());
        addresses(&asked.notify, to)
            .into_iter()
            .enumerate()
            .map(|(index, to)| Self {
                id: notice_id(name, 0, index, to),
                to: to.clone(),
                about,
                reason: reason.to_owned(),
                subject: subject.to_owned(),
                destination: destination.to_owned(),
                requester: asked.requester.clone(),
            })
            .collect()
    }
}

/// No item is accepted with a longer first line: 64 KiB beside the body, and as much of that, each
/// character of which JSON may write with six.
const LINE_BYTES_MAX: usize = 512 * 1024;

/// A requester whose words are longer is none that was accepted, in bytes.
const REQUESTER_BYTES_MAX: usize = 16 * 1024;

/// Who asked for what a file holds, and whom to tell of it, as it says itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Asked {
    #[serde(default, deserialize_with = "names_among")]
    notify: Vec<DestName>,
    #[serde(default)]
    requester: Requester,
    #[serde(default)]
    notice: bool,
}

impl Asked {
    /// As an item's envelope has it. A notice's own end is told to nobody.
    #[must_use]
    pub fn of(envelope: &Envelope) -> Self {
        if envelope.notice {
            return Self::default();
        }
        Self {
            notify: envelope.notify.clone(),
            requester: envelope.requester.clone(),
            notice: false,
        }
    }

    /// As the first line of a damaged item has it, if that much can be read.
    #[must_use]
    pub fn in_damaged(bytes: &[u8]) -> Self {
        let line = bytes.split(|byte| *byte == b'\n').next();
        let mut asked: Self = line
            .filter(|line| line.len() <= LINE_BYTES_MAX)
            .and_then(|line| serde_json::from_slice(line).ok())
            .unwrap_or_default();
        if asked.notice {
            return Self::default();
        }
        let Requester { principal, thread } = &asked.requester;
        let words = [principal, thread].into_iter().flatten();
        if words.map(String::len).sum::<usize>() > REQUESTER_BYTES_MAX {
            asked.requester = Requester::default();
        }
        asked
    }
}

/// Of a list that damage may have touched, each name once, and no more of them than a notice has ids.
fn names_among<'de, D: Deserializer<'de>>(list: D) -> Result<Vec<DestName>, D::Error> {
    let mut seen = BTreeSet::new();
    let names = Vec::<serde_json::Value>::deserialize(list)?
        .into_iter()
        .filter_map(|name| serde_json::from_value::<DestName>(name).ok());
    Ok(names
        .filter(|name| seen.insert(name.clone()))
        .take(IDS_MAX)
        .collect())
}

/// The item's own addresses, then the configured ones, each once.
fn addresses<'a>(own: &'a [DestName], to: &'a [DestName]) -> Vec<&'a DestName> {
    let mut seen = BTreeSet::new();
    own.iter()
        .chain(to)
        .filter(|name| seen.insert(*name))
        .collect()
}

/// Whether an item of this id may be a notice: each has an id of version 5, which few others have.
#[must_use]
pub fn may_be_notice(id: RequestId) -> bool {
    id.0.get_version_num() == 5
}

/// UUID version 5 of the item and the event's number; a second address adds its name.
fn notice_id(item: Uuid, event_number: usize, index: usize, to: &DestName) -> RequestId {
    let name = if index == 0 {
        event_number.to_string()
    } else {
        format!("{event_number}/{to}")
    };
    RequestId(Uuid::new_v5(&item, name.as_bytes()))
}

impl About {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Failed => "failed",
            Self::Parked => "parked",
            Self::Corrupt => "corrupt",
            Self::Unconfigured => "unconfigured",
            Self::Suspended => "suspended",
        }
    }

    /// What whoever is told does next. It fits one item and many.
    fn advice(self) -> &'static str {
        match self {
            Self::Held => {
                "Nothing was acted on and nothing is lost. When the cause is mended: `tickpost release ID` sends it, `tickpost cancel ID` gives it up."
            }
            Self::Failed => {
                "Nothing was acted on, and nothing more is sent by itself. `tickpost show ID` tells what the receiver said; when the cause is mended, `tickpost retry ID`."
            }
            Self::Parked => {
                "The receiver may have acted already: look before you repeat anything, also by other means. Look at the receiver, then say what you found: `tickpost resolve --confirmed ID`, `--failed ID`, or `--resend ID` if it certainly did not arrive."
            }
            Self::Corrupt => {
                "Nothing of it was deleted: it lies unchanged in corrupt/, with the reason beside it. Look before you repeat what it asked for: it may have been sent."
            }
            Self::Suspended => {
                "Its items wait and none is lost. Mend what `tickpost status` shows; the first tick after that sends them."
            }
            Self::Unconfigured => {
                "Nothing is lost: all stay where they are. Put the destination into the configuration again, or give its items up with `tickpost cancel`."
            }
        }
    }
}

/// Notices of one tick, merged by address, kind and reason. Bounded: it keeps a count and the
/// first [`IDS_MAX`] of each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merged(Vec<Group>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Group {
    first: Notice,
    count: u64,
    subjects: Vec<String>,
    destinations: BTreeSet<String>,
    requesters: BTreeSet<(Option<String>, Option<String>)>,
}

impl Merged {
    /// Whether nobody is to be told of anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The groups one by one, each as a whole of its own.
    #[must_use]
    pub fn singly(self) -> Vec<Self> {
        self.0.into_iter().map(|group| Self(vec![group])).collect()
    }

    /// Adds the groups of another, which stay what they are.
    pub fn join(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// Adds a notice to its group.
    pub fn add(&mut self, notice: &Notice) {
        let same = |group: &&mut Group| {
            group.first.to == notice.to
                && group.first.about == notice.about
                && group.first.reason == notice.reason
        };
        let requester = (
            notice.requester.principal.clone(),
            notice.requester.thread.clone(),
        );
        if let Some(group) = self.0.iter_mut().find(same) {
            group.count += 1;
            if group.subjects.len() < IDS_MAX {
                group.subjects.push(notice.subject.clone());
            }
            if group.destinations.len() < IDS_MAX {
                group.destinations.insert(notice.destination.clone());
            }
            if group.requesters.len() < IDS_MAX {
                group.requesters.insert(requester);
            }
        } else {
            self.0.push(Group {
                first: notice.clone(),
                count: 1,
                subjects: vec![notice.subject.clone()],
                destinations: BTreeSet::from([notice.destination.clone()]),
                requesters: BTreeSet::from([requester]),
            });
        }
    }

    /// The notices as items to accept at `now`. Those to an address of `in_text` are plain text.
    #[must_use]
    pub fn envelopes(&self, now: UnixMs, in_text: &[DestName]) -> Vec<Envelope> {
        let form = |to: &DestName| {
            if in_text.contains(to) {
                Form::Text
            } else {
                Form::Json
            }
        };
        self.0
            .iter()
            .map(|group| group.envelope(now, form(&group.first.to)))
            .collect()
    }

    /// Whom the notices are for, each once, by name.
    #[must_use]
    pub fn addresses(&self) -> Vec<DestName> {
        let all: BTreeSet<&DestName> = self.0.iter().map(|group| &group.first.to).collect();
        all.into_iter().cloned().collect()
    }
}

impl Group {
    fn envelope(&self, now: UnixMs, form: Form) -> Envelope {
        // Stored as it will be sent: every attempt carries these bytes, whatever is configured
        // meanwhile.
        let (content_type, body) = match form {
            Form::Json => ("application/json", self.json()),
            Form::Text => ("text/plain; charset=utf-8", self.text()),
        };
        Envelope {
            v: VERSION,
            request_id: self.first.id,
            destination: self.first.to.clone(),
            enqueued_at: now,
            request: Request {
                method: "POST".to_owned(),
                path: String::new(),
                query: Vec::new(),
                headers: Vec::new(),
                content_type: Some(content_type.to_owned()),
                body_sha256: sha256_hex(body.as_bytes()),
                body: Some(Body::Text(body)),
            },
            requester: Requester {
                principal: Some("tickpost".to_owned()),
                thread: None,
            },
            notify: Vec::new(),
            labels: BTreeMap::new(),
            key: None,
            retry_of: None,
            not_before: None,
            not_after: None,
            notice: true,
        }
    }

    fn json(&self) -> String {
        let requesters: Vec<BTreeMap<&str, &str>> = self
            .requesters
            .iter()
            .map(|(principal, thread)| {
                let named = [("principal", principal), ("thread", thread)];
                named
                    .into_iter()
                    .filter_map(|(name, value)| Some((name, value.as_deref()?)))
                    .collect::<BTreeMap<_, _>>()
            })
            .filter(|requester| !requester.is_empty())
            .collect();
        serde_json::json!({
            "notice": self.first.about.word(),
            "reason": self.first.reason,
            "count": self.count,
            "request_ids": self.subjects,
            "destinations": self.destinations,
            "requesters": requesters,
            "text": self.text(),
        })
        .to_string()
    }

    fn text(&self) -> String {
        let about = self.first.about;
        let what = match (about, self.count) {
            (About::Corrupt, 1) => "1 file".to_owned(),
            (About::Corrupt, n) => format!("{n} files"),
            (About::Suspended, _) => "sending".to_owned(),
            (_, 1) => "1 item".to_owned(),
            (_, n) => format!("{n} items"),
        };
        let mut destinations: Vec<&str> = self.destinations.iter().map(String::as_str).collect();
        if destinations.len() > NAMED_MAX {
            destinations.truncate(NAMED_MAX);
            destinations.push("and others");
        }
        let verb = match (about, self.count) {
            (About::Held, 1) => "is held",
            (About::Held, _) => "are held",
            (About::Failed, _) => "failed",
            (About::Parked, 1) => "is parked as unknown",
            (About::Parked, _) => "are parked as unknown",
            (About::Corrupt, 1) => "was set aside as unreadable",
            (About::Corrupt, _) => "were set aside as unreadable",
            (About::Suspended, _) => "is not possible, for its secret cannot be read",
            (About::Unconfigured, 1) => "waits for a destination that is not configured",
            (About::Unconfigured, _) => "wait for a destination that is not configured",
        };
        let reason = self.first.reason.as_str();
        let verb = match (about, reason) {
            (About::Held | About::Failed | About::Parked, "operator") => {
                format!("{verb} by a person (operator).")
            }
            // Its word stands in the place of a reason that nobody has given.
            (About::Held | About::Failed | About::Parked, _) if reason == about.word() => {
                format!("{verb}, and no reason was given.")
            }
            (About::Corrupt, _) if reason == about.word() => format!("{verb}."),
            _ => format!("{verb}: {reason}."),
        };
        let why = match about {
            _ if reason == "operator" => String::new(),
            // What happened has been said, and better than by a reason made for answers.
            About::Suspended | About::Unconfigured => String::new(),
            About::Held | About::Failed | About::Parked | About::Corrupt => {
                Reason::parse(&self.first.reason)
                    .map_or(String::new(), |reason| format!(" {}", reason.explain()))
            }
        };
        format!(
            "{what} to {} {verb}{why} {} First: {}",
            destinations.join(", "),
            about.advice(),
            self.first.subject,
        )
    }
}

#[cfg(test)]
mod tests;
