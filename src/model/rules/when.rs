//! The condition of a rule. What is given must all hold; within a list one is enough.

use std::fmt;

use regex_lite::Regex;
use serde_json::Value;

use super::pointer::Pointer;
use super::test::{Test, join};
use super::view::View;
use crate::model::outcome::TransportClass;

/// The condition of a rule.
///
/// Without `transport` it never holds for an outcome that has no answer; without `status` it
/// holds for an answer of any status. It never holds for an interrupted attempt.
#[derive(Clone, Debug, Default)]
pub(super) struct When {
    pub(super) status: Option<Vec<Statuses>>,
    pub(super) transport: Option<Vec<Way>>,
    pub(super) headers: Vec<(String, Test)>,
    pub(super) json: Vec<(Pointer, Test)>,
    pub(super) text: Option<Vec<Regex>>,
    pub(super) prior: Option<Prior>,
    pub(super) key_sent: Option<bool>,
    pub(super) method: Option<Vec<String>>,
}

/// A span of statuses, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Statuses(pub(super) u16, pub(super) u16);

/// A way in which the transport failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// There was no answer.
    Class(TransportClass),
    /// There was one, but its body is not whole.
    TruncatedBody,
}

/// Whether an earlier attempt of the item may have been acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prior {
    /// Certainly none.
    None,
    /// One may have been.
    Maybe,
}

/// The name of a cut body among the transport classes.
pub(super) const TRUNCATED_BODY: &str = "truncated_body";

impl Statuses {
    /// Reads `429`, `5xx` or `400-403`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let one = |text: &str| match text.as_bytes() {
            [b'1'..=b'9', b'0'..=b'9', b'0'..=b'9'] => text.parse::<u16>().ok(),
            _ => None,
        };
        if let Some((from, to)) = text.split_once('-') {
            let (from, to) = (one(from.trim())?, one(to.trim())?);
            return (from <= to).then_some(Self(from, to));
        }
        match text.as_bytes() {
            [class @ b'1'..=b'9', b'x' | b'X', b'x' | b'X'] => {
                let from = u16::from(class - b'0') * 100;
                Some(Self(from, from + 99))
            }
            _ => one(text).map(|status| Self(status, status)),
        }
    }
}

impl When {
    /// Whether the condition holds; the cheap questions first.
    pub(super) fn holds(&self, view: &View<'_>) -> bool {
        self.transport_holds(view)
            && self.status_holds(view)
            && self.request_holds(view)
            && self.headers_hold(view)
            && self.json_holds(view)
            && self.text_holds(view)
    }

    fn transport_holds(&self, view: &View<'_>) -> bool {
        let seen = match (view.answer(), view.class()) {
            (Some(answer), _) if answer.cut => Some(Way::TruncatedBody),
            (_, class) => class.map(Way::Class),
        };
        match &self.transport {
            Some(ways) => seen.is_some_and(|seen| ways.contains(&seen)),
            None => view.answer().is_some(),
        }
    }

    fn status_holds(&self, view: &View<'_>) -> bool {
        self.status.as_ref().is_none_or(|spans| {
            view.answer()
                .is_some_and(|answer| spans.iter().any(|span| span.holds(answer.status)))
        })
    }

    fn request_holds(&self, view: &View<'_>) -> bool {
        let exchange = view.exchange;
        self.prior
            .is_none_or(|prior| (prior == Prior::Maybe) == exchange.prior_maybe)
            && self.key_sent.is_none_or(|sent| sent == exchange.key_sent)
            && self
                .method
                .as_ref()
                .is_none_or(|methods| methods.iter().any(|method| method == exchange.method))
    }

    fn headers_hold(&self, view: &View<'_>) -> bool {
        self.headers.iter().all(|(name, test)| {
            view.answer().is_some()
                && any_or_absent(
                    test,
                    view.header(name)
                        .map(|value| Value::String(value.to_owned())),
                )
        })
    }

    fn json_holds(&self, view: &View<'_>) -> bool {
        // Without a document nothing is known of its members, not even that they are absent.
        self.json.iter().all(|(pointer, test)| {
            view.json().is_some_and(|document| {
                let mut absent = true;
                pointer.any(document, &mut |value| {
                    absent = false;
                    test.passes(Some(value))
                }) || (absent && test.passes(None))
            })
        })
    }

    fn text_holds(&self, view: &View<'_>) -> bool {
        self.text.as_ref().is_none_or(|regexes| {
            view.text()
                .is_some_and(|text| regexes.iter().any(|regex| regex.is_match(text)))
        })
    }
}

impl Statuses {
    fn holds(self, status: u16) -> bool {
        (self.0..=self.1).contains(&status)
    }

    /// Whether any status from `from` to `to` is among them.
    pub(super) fn meets(self, from: u16, to: u16) -> bool {
        self.0 <= to && self.1 >= from
    }
}

fn any_or_absent(test: &Test, values: impl Iterator<Item = Value>) -> bool {
    let mut absent = true;
    for value in values {
        absent = false;
        if test.passes(Some(&value)) {
            return true;
        }
    }
    absent && test.passes(None)
}

impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (from, to) if from == to => write!(f, "{from}"),
            (from, to) if from % 100 == 0 && to == from + 99 => write!(f, "{}xx", from / 100),
            (from, to) => write!(f, "{from}-{to}"),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Class(class) => class.as_str(),
            Self::TruncatedBody => TRUNCATED_BODY,
        })
    }
}

impl fmt::Display for When {
    /// In words, for `rules list`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> = Vec::new();
        if let Some(ways) = &self.transport {
            words.push(format!("transport {}", List(ways)));
        }
        if let Some(spans) = &self.status {
            words.push(format!("status {}", List(spans)));
        }
        for (name, test) in &self.headers {
            words.push(format!("header {name} {test}"));
        }
        for (pointer, test) in &self.json {
            words.push(format!("json {pointer} {test}"));
        }
        if let Some(regexes) = &self.text {
            let regexes: Vec<String> = regexes
                .iter()
                .map(|regex| format!("/{}/", regex.as_str()))
                .collect();
            words.push(format!("text matches {}", List(&regexes)));
        }
        match self.prior {
            Some(Prior::Maybe) => words.push("an earlier attempt may have been acted on".into()),
            Some(Prior::None) => words.push("no earlier attempt was acted on".into()),
            None => {}
        }
        match self.key_sent {
            Some(true) => words.push("a key was sent".into()),
            Some(false) => words.push("no key was sent".into()),
            None => {}
        }
        if let Some(methods) = &self.method {
            words.push(format!("method {}", List(methods)));
        }
        if words.is_empty() {
            words.push("any answer".into());
        }
        join(f, &words, "; ")
    }
}

struct List<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for List<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        join(f, self.0, " or ")
    }
}
