//! TOML → rules, with every fault at once and at its place.

use std::ops::Range;

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::pointer::Pointer;
use super::reader::{Item, Reader, int};
use super::source::{Source, Wait};
use super::test::Test;
use super::when::{Prior, Statuses, TRUNCATED_BODY, Way, When};
use super::{Rule, Success, Switch};
use crate::model::classify::Action;
use crate::model::event::Scope;
use crate::model::fault::{Fault, nearest};
use crate::model::outcome::TransportClass;
use crate::model::reason::Reason;
use crate::model::retry_after::WaitForm;
use crate::model::state::State;
use crate::model::time::UnixMs;

const RULE_KEYS: &[&str] = &[
    "name",
    "state",
    "reason",
    "scope",
    "retry",
    "retry_combine",
    "receipt",
    "raw",
    "action",
    "certain",
    "when",
];

const WHEN_KEYS: &[&str] = &[
    "status",
    "transport",
    "header",
    "json",
    "text",
    "prior",
    "key_sent",
    "method",
];

const WAIT_KEYS: &[&str] = &["header", "json", "text", "as", "fixed"];

const SOURCE_KEYS: &[&str] = &["header", "json", "text"];

const TEST_KEYS: &[&str] = &["regex", "exists", "gt", "nonempty", "not"];

/// What is read from one table.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) rules: Vec<Rule>,
    pub(super) success: Option<Success>,
    pub(super) strict_503: Option<bool>,
    pub(super) atomic_body: Option<bool>,
    /// Only in the built-in table: for rules of any table that do not say themselves.
    pub(super) retry: Vec<Wait>,
    pub(super) raw: Vec<Source>,
}

/// Reads the keys of a table that belong to the rules; what has a fault is left out.
pub(super) fn table(origin: &str, table: &DeTable<'_>, built_in: bool) -> (Read, Vec<Fault>) {
    let mut reader = Reader {
        faults: Vec::new(),
        built_in,
    };
    let mut read = Read::default();
    if let Some(item) = table.get("success") {
        read.success = reader
            .word(item, "success", &["status", "require"])
            .map(|word| {
                if word == "require" {
                    Success::Require
                } else {
                    Success::Status
                }
            });
    }
    read.strict_503 = table
        .get("strict_503")
        .and_then(|item| reader.flag(item, "strict_503"));
    read.atomic_body = table
        .get("atomic_body")
        .and_then(|item| reader.flag(item, "atomic_body"));
    if built_in {
        read.retry = table
            .get("retry")
            .map(|item| reader.waits(item))
            .unwrap_or_default();
        read.raw = table
            .get("raw")
            .map(|item| reader.sources(item, "raw"))
            .unwrap_or_default();
    }
    if let Some(item) = table.get("rule") {
        read.rules = reader.rules(origin, item);
    }
    (read, reader.faults)
}

impl Reader {
    fn rules(&mut self, origin: &str, item: Item<'_>) -> Vec<Rule> {
        let DeValue::Array(entries) = item.get_ref() else {
            self.fault_hint(
                item.span(),
                "`rule` is not a list of tables",
                "write each rule under a heading in double brackets: `[[….rule]]`",
            );
            return Vec::new();
        };
        let mut names: Vec<String> = Vec::new();
        let mut rules = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let before = self.faults.len();
            let Some(table) = self.as_table(entry, "a rule") else {
                continue;
            };
            let name = match table.get("name") {
                Some(item) => self.name(item),
                None => Some((index + 1).to_string()),
            };
            let name = name.unwrap_or_default();
            if !self.built_in && names.contains(&name) {
                let span = table.get("name").map_or(entry.span(), Spanned::span);
                self.fault(span, format!("a second rule has the name `{name}`"));
            }
            let rule = self.rule(format!("{origin}/{name}"), entry.span(), table);
            names.push(name);
            // A rule that is half understood might confirm what the whole one would not.
            if self.faults.len() == before {
                rules.extend(rule);
            }
        }
        rules
    }

    fn name(&mut self, item: Item<'_>) -> Option<String> {
        let name = self.text(item, "name")?;
        let fits = (1..=64).contains(&name.len())
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        if !fits {
            self.fault_hint(
                item.span(),
                format!("`{name}` is not a name for a rule"),
                "use up to 64 letters, digits, `-`, `_` and `.`",
            );
            return None;
        }
        Some(name.to_owned())
    }

    fn rule(&mut self, name: String, span: Range<usize>, table: &DeTable<'_>) -> Option<Rule> {
        self.unknown_keys(table, RULE_KEYS, "a rule");
        let names = State::ALL.map(State::as_str);
        let state = self
            .required(table, "state", &span)
            .and_then(|item| self.word(item, "state", &names))
            .and_then(State::parse);
        let reason = self
            .required(table, "reason", &span)
            .and_then(|item| self.reason(item));
        let scope = match table.get("scope") {
            Some(item) => self
                .word(item, "scope", &["item", "destination", "group"])
                .map(|word| match word {
                    "destination" => Scope::Destination,
                    "group" => Scope::Group,
                    _ => Scope::Item,
                }),
            None => Some(Scope::Item),
        };
        let retry = table.get("retry").map(|item| self.waits(item));
        let longest = table
            .get("retry_combine")
            .and_then(|item| self.word(item, "retry_combine", &["first", "max"]))
            == Some("max");
        let receipt = table
            .get("receipt")
            .map(|item| self.sources(item, "receipt"));
        let raw = table.get("raw").map(|item| self.sources(item, "raw"));
        let names = Action::ALL.map(Action::as_str);
        let action = table
            .get("action")
            .and_then(|item| self.word(item, "action", &names))
            .and_then(Action::parse);
        let certain = table
            .get("certain")
            .and_then(|item| self.flag(item, "certain"));
        let switch = table
            .get("switch")
            .and_then(|item| self.word(item, "switch", &["strict_503", "atomic_body"]))
            .map(|word| {
                if word == "strict_503" {
                    Switch::Strict503
                } else {
                    Switch::AtomicBody
                }
            });
        let (when, when_span) = if let Some(item) = table.get("when") {
            (self.when(item), item.span())
        } else {
            self.fault_hint(
                span.clone(),
                "the rule has no `when`",
                "write `when = { status = [402] }`; `when = {}` matches every answer",
            );
            return None;
        };
        let rule = Rule {
            name,
            when,
            state: state?,
            reason: reason?,
            scope: scope?,
            retry,
            longest,
            receipt: receipt.unwrap_or_default(),
            raw,
            action,
            switch,
        };
        self.lint(&rule, certain == Some(true), table, &when_span);
        Some(rule)
    }

    fn when(&mut self, item: Item<'_>) -> When {
        let Some(table) = self.as_table(item, "`when`") else {
            return When::default();
        };
        self.unknown_keys(table, WHEN_KEYS, "`when`");
        When {
            status: table
                .get("status")
                .map(|item| self.each(item, Self::statuses)),
            transport: table
                .get("transport")
                .map(|item| self.each(item, Self::way)),
            headers: self.headers(table),
            json: self.json(table),
            text: table.get("text").map(|item| self.each(item, Self::regex)),
            prior: table.get("prior").and_then(|item| {
                let word = self.word(item, "prior", &["none", "maybe"])?;
                Some(if word == "maybe" {
                    Prior::Maybe
                } else {
                    Prior::None
                })
            }),
            key_sent: table
                .get("key_sent")
                .and_then(|item| self.flag(item, "key_sent")),
            method: table
                .get("method")
                .map(|item| self.each(item, Self::method)),
        }
    }

    fn headers(&mut self, when: &DeTable<'_>) -> Vec<(String, Test)> {
        let Some(item) = when.get("header") else {
            return Vec::new();
        };
        let Some(table) = self.as_table(item, "`header`") else {
            return Vec::new();
        };
        let mut tests = Vec::new();
        for (key, value) in table {
            let name = self.header_name(key.get_ref(), key.span());
            let test = self.test(value, true);
            tests.extend(name.zip(test));
        }
        tests
    }

    fn json(&mut self, when: &DeTable<'_>) -> Vec<(Pointer, Test)> {
        let Some(item) = when.get("json") else {
            return Vec::new();
        };
        let Some(table) = self.as_table(item, "`json`") else {
            return Vec::new();
        };
        let mut tests = Vec::new();
        for (key, value) in table {
            let pointer = self.pointer(key.get_ref(), key.span());
            let test = self.test(value, false);
            tests.extend(pointer.zip(test));
        }
        tests
    }

    fn header_name(&mut self, name: &str, span: Range<usize>) -> Option<String> {
        let fits = !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
        if !fits {
            self.fault(span, format!("`{name}` is not the name of a header"));
            return None;
        }
        Some(name.to_ascii_lowercase())
    }

    fn pointer(&mut self, text: &str, span: Range<usize>) -> Option<Pointer> {
        match Pointer::parse(text) {
            Ok(pointer) => Some(pointer),
            Err(message) => {
                self.fault_hint(
                    span,
                    message,
                    "a path looks like `/error/code` or `/errors/*/code`",
                );
                None
            }
        }
    }

    /// A test of a value. Headers are texts, so a number or a flag there can never be equal.
    fn test(&mut self, item: Item<'_>, header: bool) -> Option<Test> {
        let literal = match item.get_ref() {
            DeValue::String(text) => return Some(Test::Is(Value::from(text.as_ref()))),
            DeValue::Array(entries) => {
                let tests: Vec<Option<Test>> = entries
                    .iter()
                    .map(|entry| self.test(entry, header))
                    .collect();
                if tests.is_empty() {
                    self.fault(item.span(), "an empty list matches nothing");
                }
                return tests
                    .into_iter()
                    .collect::<Option<Vec<Test>>>()
                    .map(Test::AnyOf);
            }
            DeValue::Table(table) => return self.test_table(item, table, header),
            DeValue::Integer(integer) => int(integer).map(Value::from),
            DeValue::Float(float) => float.as_str().parse::<f64>().ok().map(Value::from),
            DeValue::Boolean(flag) => Some(Value::from(*flag)),
            DeValue::Datetime(_) => None,
        };
        match literal {
            Some(_) if header => {
                self.fault_hint(
                    item.span(),
                    "the value of a header is a text",
                    "put it in quotes, or use `{ gt = … }` to compare numbers",
                );
                None
            }
            Some(value) => Some(Test::Is(value)),
            None => {
                self.fault(
                    item.span(),
                    "neither a text, a number, true, false, a list nor a test",
                );
                None
            }
        }
    }

    fn test_table(&mut self, item: Item<'_>, table: &DeTable<'_>, header: bool) -> Option<Test> {
        if !self.unknown_keys(table, TEST_KEYS, "a test") {
            return None;
        }
        let mut tests = Vec::new();
        for (key, value) in table {
            let test = match key.get_ref().as_ref() {
                "regex" => self.regex(value).map(Test::Regex),
                "exists" => self.flag(value, "exists").map(Test::Exists),
                "nonempty" => self.flag(value, "nonempty").map(Test::Nonempty),
                "not" => self
                    .test(value, header)
                    .map(|test| Test::Not(Box::new(test))),
                "gt" => self.number(value, "gt").map(Test::Above),
                _ => None,
            };
            tests.push(test?);
        }
        match tests.len() {
            0 => {
                self.fault_hint(
                    item.span(),
                    "a test that asks nothing",
                    format!("the keys of a test are {}", TEST_KEYS.join(", ")),
                );
                None
            }
            1 => tests.pop(),
            _ => Some(Test::AllOf(tests)),
        }
    }

    fn waits(&mut self, item: Item<'_>) -> Vec<Wait> {
        self.each(item, Self::wait)
    }

    fn wait(&mut self, item: Item<'_>) -> Option<Wait> {
        let table = self.as_table(item, "an entry of `retry`")?;
        if !self.unknown_keys(table, WAIT_KEYS, "an entry of `retry`") {
            return None;
        }
        if let Some(fixed) = table.get("fixed") {
            if table.len() > 1 {
                self.fault(item.span(), "`fixed` stands alone");
            }
            let seconds = self.number(fixed, "fixed")?;
            if seconds < 0.0 {
                self.fault(fixed.span(), "`fixed` is a number of seconds");
                return None;
            }
            return WaitForm::Seconds
                .read(&seconds.to_string(), UnixMs(0))
                .map(Wait::Fixed);
        }
        let source = self.source(item, table);
        let names: Vec<&str> = WaitForm::ALL.iter().map(|form| form.as_str()).collect();
        let form = self
            .required(table, "as", &item.span())
            .and_then(|item| self.word(item, "as", &names))
            .and_then(WaitForm::parse);
        Some(Wait::Read(source?, form?))
    }

    fn sources(&mut self, item: Item<'_>, key: &str) -> Vec<Source> {
        let within = format!("`{key}`");
        self.each(item, |reader, item| {
            let table = reader.as_table(item, &within)?;
            let known = reader.unknown_keys(table, SOURCE_KEYS, &within);
            known.then(|| reader.source(item, table)).flatten()
        })
    }

    /// The one place that a table names.
    fn source(&mut self, item: Item<'_>, table: &DeTable<'_>) -> Option<Source> {
        let places = [table.get("header"), table.get("json"), table.get("text")];
        match places {
            [Some(item), None, None] => {
                let name = self.text(item, "header")?;
                self.header_name(name, item.span()).map(Source::Header)
            }
            [None, Some(item), None] => {
                let text = self.text(item, "json")?;
                self.pointer(text, item.span()).map(Source::Json)
            }
            [None, None, Some(item)] => self.regex(item).map(Source::Text),
            _ => {
                self.fault(item.span(), "name one place: `header`, `json` or `text`");
                None
            }
        }
    }

    fn statuses(&mut self, item: Item<'_>) -> Option<Statuses> {
        let text = match item.get_ref() {
            DeValue::String(text) => text.as_ref(),
            DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str(),
            DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => "",
        };
        let found = Statuses::parse(text);
        if found.is_none() {
            self.fault_hint(
                item.span(),
                "not a status",
                "write 429, \"5xx\" or \"400-403\"",
            );
        }
        found
    }

    fn way(&mut self, item: Item<'_>) -> Option<Way> {
        let mut names: Vec<&str> = TransportClass::ALL
            .iter()
            .map(|class| class.as_str())
            .collect();
        names.push(TRUNCATED_BODY);
        let word = self.word(item, "transport", &names)?;
        Some(TransportClass::parse(word).map_or(Way::TruncatedBody, Way::Class))
    }

    fn method(&mut self, item: Item<'_>) -> Option<String> {
        let method = self.text(item, "method")?;
        if method.is_empty()
            || !method
                .bytes()
                .all(|b| b.is_ascii_uppercase() || b"-_".contains(&b))
        {
            self.fault_hint(
                item.span(),
                format!("`{method}` is not a method"),
                "methods are written in capitals: `POST`",
            );
            return None;
        }
        Some(method.to_owned())
    }

    fn reason(&mut self, item: Item<'_>) -> Option<Reason> {
        let text = self.text(item, "reason")?;
        let found = Reason::parse(text).ok();
        if found.is_none() {
            let known = Reason::ALL.iter().map(|(known, _)| *known);
            let hint = match nearest(text, known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "use one of the closed list, or a name of your own that starts with `x_`"
                    .to_owned(),
            };
            self.fault_hint(item.span(), format!("`{text}` is not a reason"), hint);
        }
        found
    }
}

#[cfg(test)]
mod tests;
