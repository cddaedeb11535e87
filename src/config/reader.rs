//! Takes a TOML table apart by hand: every key is asked for with its type, and what nobody asked
//! for is a fault that names the nearest key. A fault never stops the reading, so that a person
//! sees all of them at once.

use std::cell::RefCell;
use std::ops::{Range, RangeInclusive};

use toml::de::{DeTable, DeValue};

use super::units;
use crate::model::fault::{Fault, nearest};

/// The faults of one file.
#[derive(Default)]
pub(super) struct Faults {
    found: RefCell<Vec<Fault>>,
    /// The text has syntax errors, so what seems to be missing may only be unreadable.
    broken: bool,
}

impl Faults {
    /// Starts with what the parser found.
    pub(super) fn new(found: Vec<Fault>) -> Self {
        Self {
            broken: !found.is_empty(),
            found: RefCell::new(found),
        }
    }

    /// Records a fault.
    pub(super) fn add(&self, fault: Fault) {
        self.found.borrow_mut().push(fault);
    }

    /// Records that something is not there, if the file could be read whole.
    pub(super) fn missing(&self, fault: Fault) {
        if !self.broken {
            self.add(fault);
        }
    }

    /// Whether the text has syntax errors.
    pub(super) fn broken(&self) -> bool {
        self.broken
    }

    /// How many were recorded so far.
    pub(super) fn count(&self) -> usize {
        self.found.borrow().len()
    }

    /// All of them.
    pub(super) fn into_inner(self) -> Vec<Fault> {
        self.found.into_inner()
    }
}

/// A table being read.
pub(super) struct Section<'a> {
    table: &'a DeTable<'a>,
    path: String,
    span: Range<usize>,
    known: Vec<&'static str>,
    faults: &'a Faults,
}

impl<'a> Section<'a> {
    /// The table of a whole file.
    pub(super) fn root(table: &'a DeTable<'a>, faults: &'a Faults) -> Self {
        Self {
            table,
            path: String::new(),
            span: 0..0,
            known: Vec::new(),
            faults,
        }
    }

    /// The table itself.
    pub(super) fn table(&self) -> &'a DeTable<'a> {
        self.table
    }

    /// The faults of the file.
    pub(super) fn faults(&self) -> &'a Faults {
        self.faults
    }

    /// The value of a key, which counts as known from here on.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Value<'a>> {
        self.known.push(key);
        let (at, value) = self.table.get_key_value(key)?;
        Some(self.value(at.get_ref(), at.span(), value))
    }

    /// Every key with its value, whatever its name.
    pub(super) fn take_all(&self) -> impl Iterator<Item = (&'a str, Value<'a>)> {
        self.table.iter().map(|(key, value)| {
            (
                key.get_ref().as_ref(),
                self.value(key.get_ref(), key.span(), value),
            )
        })
    }

    /// Lets keys pass that somebody else reads.
    pub(super) fn leave(&mut self, keys: &[&'static str]) {
        self.known.extend(keys);
    }

    /// Refuses a key that is promised but not there yet: a setting that does nothing is worse
    /// than none.
    pub(super) fn not_yet(&mut self, key: &'static str, hint: &'static str) {
        // Not among the known keys unless it stands there, so that no hint recommends it.
        if self.table.contains_key(key)
            && let Some(value) = self.take(key)
        {
            value.refuse_key("is not in this version yet", hint);
        }
    }

    /// Records that `key` must be there.
    pub(super) fn missing(&self, key: &str, hint: impl Into<String>) {
        let message = format!("{} is missing", self.name(key));
        self.faults
            .missing(Fault::new(self.span.clone(), message).hint(hint));
    }

    /// A fault of the whole section.
    pub(super) fn refuse(&self, message: &str, hint: impl Into<String>) {
        let message = format!("{} {message}", self.path);
        self.faults
            .add(Fault::new(self.span.clone(), message).hint(hint));
    }

    /// Ends the reading: what nobody asked for is unknown.
    pub(super) fn finish(self) {
        for (key, value) in self.table {
            if self.known.contains(&key.get_ref().as_ref()) {
                continue;
            }
            let place = match self.path.as_str() {
                "" => String::new(),
                path => format!(" in {path}"),
            };
            let message = format!("unknown key `{}`{place}", key.get_ref().escape_debug());
            let hint = match nearest(key.get_ref(), self.known.iter().copied()) {
                Some(name) => format!("did you mean `{name}`?"),
                None if value.get_ref().is_table() && self.path.starts_with("destination.") => {
                    "a name that holds a dot is written in quotes: [destination.\"a.b\"]".to_owned()
                }
                None => format!("known are: {}", self.known.join(" ")),
            };
            self.faults.add(Fault::new(key.span(), message).hint(hint));
        }
    }

    fn name(&self, key: &str) -> String {
        match self.path.as_str() {
            "" => key.escape_debug().to_string(),
            path => format!("{path}.{}", key.escape_debug()),
        }
    }

    fn value(
        &self,
        key: &str,
        key_span: Range<usize>,
        value: &'a toml::Spanned<DeValue<'a>>,
    ) -> Value<'a> {
        Value {
            path: self.name(key),
            key_span,
            span: value.span(),
            toml: value.get_ref(),
            faults: self.faults,
        }
    }
}

/// A value being read; the type it must have is the method that is called.
pub(super) struct Value<'a> {
    path: String,
    key_span: Range<usize>,
    span: Range<usize>,
    toml: &'a DeValue<'a>,
    faults: &'a Faults,
}

impl<'a> Value<'a> {
    /// The faults of the file.
    pub(super) fn faults(&self) -> &'a Faults {
        self.faults
    }

    /// Where it stands.
    pub(super) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Where its key stands.
    pub(super) fn key_span(&self) -> Range<usize> {
        self.key_span.clone()
    }

    /// A fault of the value: `message` follows the key's name.
    pub(super) fn refuse(&self, message: impl AsRef<str>, hint: impl Into<String>) {
        let message = format!("{} {}", self.path, message.as_ref());
        self.faults
            .add(Fault::new(self.span.clone(), message).hint(hint));
    }

    /// A fault of the key, wherever its value stands.
    pub(super) fn refuse_key(&self, message: &str, hint: impl Into<String>) {
        let message = format!("{} {message}", self.path);
        self.faults
            .add(Fault::new(self.key_span.clone(), message).hint(hint));
    }

    /// Whether it is a string.
    pub(super) fn is_text(&self) -> bool {
        self.toml.is_str()
    }

    /// A string.
    pub(super) fn text(&self) -> Option<&'a str> {
        let text = self.toml.as_str();
        if text.is_none() {
            self.mistyped("a string", "write it in double quotes");
        }
        text
    }

    /// A string with something in it.
    pub(super) fn filled(&self) -> Option<&'a str> {
        let text = self.text()?;
        if text.is_empty() {
            self.refuse("is empty", "name something, or leave the key out");
            return None;
        }
        Some(text)
    }

    /// True or false.
    pub(super) fn boolean(&self) -> Option<bool> {
        let value = self.toml.as_bool();
        if value.is_none() {
            self.mistyped("true or false", "write true or false, without quotes");
        }
        value
    }

    /// A whole number within bounds.
    pub(super) fn integer(&self, bounds: RangeInclusive<u32>) -> Option<u32> {
        let (low, high) = (*bounds.start(), *bounds.end());
        let hint = format!("a whole number from {low} to {high}, without quotes");
        let Some(integer) = self.toml.as_integer() else {
            self.mistyped("a whole number", hint);
            return None;
        };
        let number = u32::from_str_radix(integer.as_str(), integer.radix()).ok();
        let number = number.filter(|number| bounds.contains(number));
        if number.is_none() {
            self.refuse("is out of bounds", hint);
        }
        number
    }

    /// A number of at least 1.
    pub(super) fn factor(&self) -> Option<f64> {
        let number = match (self.toml.as_integer(), self.toml.as_float()) {
            (Some(integer), _) => u32::from_str_radix(integer.as_str(), integer.radix())
                .ok()
                .map(f64::from),
            (None, Some(float)) => float.as_str().parse::<f64>().ok(),
            (None, None) => {
                self.mistyped("a number", "such as 2 or 1.5, without quotes");
                return None;
            }
        };
        let number = number.filter(|number| number.is_finite() && *number >= 1.0);
        if number.is_none() {
            self.refuse(
                "is not a factor",
                "a number of at least 1, such as 2 or 1.5",
            );
        }
        number
    }

    /// A duration in milliseconds; nothing shorter than `low_ms`.
    pub(super) fn duration_ms(&self, low_ms: u64) -> Option<u64> {
        if self.toml.is_integer() || self.toml.is_float() {
            let hint = "write the unit, in quotes: \"5s\", \"10m\", \"24h\", \"3d\"";
            self.refuse("is a bare number, not a duration", hint);
            return None;
        }
        self.parsed("a duration", |text| units::duration_ms(text, low_ms))
    }

    /// A size in bytes.
    pub(super) fn size(&self) -> Option<u64> {
        if let Some(integer) = self.toml.as_integer() {
            let bytes = u64::from_str_radix(integer.as_str(), integer.radix()).ok();
            let bytes = bytes.filter(|bytes| *bytes > 0);
            if bytes.is_none() {
                self.refuse("is out of bounds", "at least 1 byte");
            }
            return bytes;
        }
        self.parsed("a size", units::bytes)
    }

    /// A string that `parse` understands.
    pub(super) fn parsed<T>(
        &self,
        kind: &str,
        parse: impl FnOnce(&str) -> Result<T, units::Wrong>,
    ) -> Option<T> {
        let Some(text) = self.toml.as_str() else {
            self.mistyped(kind, "a string in double quotes");
            return None;
        };
        match parse(text) {
            Ok(value) => Some(value),
            Err(wrong) => {
                self.refuse(wrong.message, wrong.hint);
                None
            }
        }
    }

    /// Whether it is this text.
    pub(super) fn is(&self, text: &str) -> bool {
        self.toml.as_str() == Some(text)
    }

    /// One of several words.
    pub(super) fn choice<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let Some(text) = self.toml.as_str() else {
            self.mistyped("a word", format!("one of: {}", names.join(" ")));
            return None;
        };
        let found = words.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let hint = match nearest(text, names.iter().copied()) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("one of: {}", names.join(" ")),
            };
            self.refuse(format!("cannot be `{}`", text.escape_debug()), hint);
        }
        found.map(|(_, value)| *value)
    }

    /// The elements of a list.
    pub(super) fn list(&self) -> Vec<Value<'a>> {
        let Some(elements) = self.toml.as_array() else {
            self.mistyped("a list", "write it in brackets: [\"one\", \"two\"]");
            return Vec::new();
        };
        let element = |(index, value): (usize, &'a toml::Spanned<DeValue<'a>>)| Value {
            path: format!("{}[{index}]", self.path),
            key_span: value.span(),
            span: value.span(),
            toml: value.get_ref(),
            faults: self.faults,
        };
        elements.iter().enumerate().map(element).collect()
    }

    /// A table.
    pub(super) fn section(&self, hint: &str) -> Option<Section<'a>> {
        let Some(table) = self.toml.as_table() else {
            self.mistyped("a table", hint);
            return None;
        };
        Some(Section {
            table,
            path: self.path.clone(),
            span: self.key_span.clone(),
            known: Vec::new(),
            faults: self.faults,
        })
    }

    fn mistyped(&self, want: &str, hint: impl Into<String>) {
        // The value itself is not shown: it may be a secret in the wrong place.
        let found = self.toml.type_str();
        self.refuse(format!("must be {want}, not {}", with_article(found)), hint);
    }
}

fn with_article(kind: &str) -> String {
    if kind.starts_with(['a', 'i']) {
        format!("an {kind}")
    } else {
        format!("a {kind}")
    }
}
