//! One attempt as rules look at it: the body is decoded once, and only when a rule asks.

use std::borrow::Cow;
use std::cell::OnceCell;

use serde_json::Value;

use super::pointer::Pointer;
use crate::model::classify::Exchange;
use crate::model::outcome::{Answer, Outcome, TransportClass};
use crate::model::retry_after;
use crate::model::time::UnixMs;

/// A look at one exchange.
pub(in crate::model) struct View<'a> {
    pub(super) exchange: &'a Exchange<'a>,
    text: OnceCell<Option<Cow<'a, str>>>,
    json: OnceCell<Option<Value>>,
}

impl<'a> View<'a> {
    pub(in crate::model) fn new(exchange: &'a Exchange<'a>) -> Self {
        Self {
            exchange,
            text: OnceCell::new(),
            json: OnceCell::new(),
        }
    }

    /// The answer, if there was one.
    pub(in crate::model) fn answer(&self) -> Option<&'a Answer> {
        match self.exchange.outcome {
            Outcome::Answered(answer) => Some(answer),
            Outcome::NotSent(_) | Outcome::MaybeSent(_) | Outcome::Interrupted => None,
        }
    }

    /// The class of the failure, if there was no answer.
    pub(super) fn class(&self) -> Option<TransportClass> {
        match self.exchange.outcome {
            Outcome::NotSent(failure) | Outcome::MaybeSent(failure) => Some(failure.class),
            Outcome::Answered(_) | Outcome::Interrupted => None,
        }
    }

    /// The whole body as text, wrong UTF-8 replaced; `None` if it was cut or there is none.
    pub(super) fn text(&self) -> Option<&str> {
        self.text
            .get_or_init(|| {
                let answer = self.answer().filter(|answer| !answer.cut)?;
                Some(String::from_utf8_lossy(&answer.body))
            })
            .as_deref()
    }

    /// The whole body as JSON, whatever its content type says; `None` if it is not.
    pub(super) fn json(&self) -> Option<&Value> {
        self.json
            .get_or_init(|| {
                // Read from the repaired text: one byte of Latin-1 must not hide an error.
                let text = self.text()?;
                serde_json::from_str(text.strip_prefix('\u{feff}').unwrap_or(text)).ok()
            })
            .as_ref()
    }

    /// The values of every line of a header; `name` in lower case.
    pub(super) fn header(&self, name: &str) -> impl Iterator<Item = &'a str> {
        self.answer()
            .into_iter()
            .flat_map(|answer| answer.headers.iter())
            .filter(move |(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
    }

    /// The scalars that a path leads to, as texts; those of no length are left out.
    pub(super) fn scalars(&self, pointer: &Pointer) -> Vec<String> {
        let mut found = Vec::new();
        if let Some(document) = self.json() {
            pointer.any(document, &mut |value| {
                match value {
                    Value::String(text) if !text.is_empty() => found.push(text.clone()),
                    Value::Number(number) => found.push(number.to_string()),
                    Value::String(_)
                    | Value::Null
                    | Value::Bool(_)
                    | Value::Array(_)
                    | Value::Object(_) => {}
                }
                false
            });
        }
        found
    }

    /// What the receiver's instants are counted from: its own clock where it says so.
    pub(super) fn receivers_now(&self) -> UnixMs {
        self.header("date")
            .next()
            .and_then(retry_after::http_date)
            .unwrap_or(self.exchange.at)
    }
}
