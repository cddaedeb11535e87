//! The small steps of reading TOML: each takes one value, or says at its place what is wrong.

use std::ops::Range;

use regex_lite::{Regex, RegexBuilder};
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use crate::model::fault::{Fault, nearest};

/// A compiled expression larger than this is refused: it would only slow down a tick.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// A value and its place.
pub(super) type Item<'a> = &'a Spanned<DeValue<'a>>;

/// Collects the faults of one table.
pub(super) struct Reader {
    pub(super) faults: Vec<Fault>,
    /// The table is ours: it may use what no user may.
    pub(super) built_in: bool,
}

impl Reader {
    pub(super) fn fault(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.faults.push(Fault::new(span, message));
    }

    pub(super) fn fault_hint(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.faults.push(Fault::new(span, message).hint(hint));
    }

    /// One fault for each key that is none of `known`.
    /// Returns whether there was none.
    pub(super) fn unknown_keys(
        &mut self,
        table: &DeTable<'_>,
        known: &[&str],
        within: &str,
    ) -> bool {
        let before = self.faults.len();
        for key in table.keys() {
            let name = key.get_ref().as_ref();
            if known.contains(&name) || (self.built_in && within == "a rule" && name == "switch") {
                continue;
            }
            let hint = match nearest(name, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the keys of {within} are {}", known.join(", ")),
            };
            self.fault_hint(
                key.span(),
                format!("`{name}` is not a key of {within}"),
                hint,
            );
        }
        self.faults.len() == before
    }

    pub(super) fn regex(&mut self, item: Item<'_>) -> Option<Regex> {
        let text = self.text(item, "an expression")?;
        match RegexBuilder::new(text).size_limit(REGEX_BYTES_MAX).build() {
            Ok(regex) => Some(regex),
            Err(error) => {
                self.fault(item.span(), format!("the expression is not valid: {error}"));
                None
            }
        }
    }

    /// One thing or a list of them.
    pub(super) fn each<T>(
        &mut self,
        item: Item<'_>,
        mut one: impl FnMut(&mut Self, Item<'_>) -> Option<T>,
    ) -> Vec<T> {
        match item.get_ref() {
            DeValue::Array(entries) => entries
                .iter()
                .filter_map(|entry| one(self, entry))
                .collect(),
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Table(_) => one(self, item).into_iter().collect(),
        }
    }

    pub(super) fn required<'t>(
        &mut self,
        table: &'t DeTable<'t>,
        key: &str,
        span: &Range<usize>,
    ) -> Option<Item<'t>> {
        let found = table.get(key);
        if found.is_none() {
            self.fault(span.clone(), format!("`{key}` is missing"));
        }
        found
    }

    pub(super) fn as_table<'t>(&mut self, item: Item<'t>, what: &str) -> Option<&'t DeTable<'t>> {
        let found = item.get_ref().as_table();
        if found.is_none() {
            self.fault(item.span(), format!("{what} is not a table"));
        }
        found
    }

    pub(super) fn text<'t>(&mut self, item: Item<'t>, key: &str) -> Option<&'t str> {
        let found = item.get_ref().as_str();
        if found.is_none() {
            self.fault(item.span(), format!("{key} is not a text"));
        }
        found
    }

    pub(super) fn flag(&mut self, item: Item<'_>, key: &str) -> Option<bool> {
        let found = item.get_ref().as_bool();
        if found.is_none() {
            self.fault(item.span(), format!("`{key}` is neither true nor false"));
        }
        found
    }

    pub(super) fn number(&mut self, item: Item<'_>, key: &str) -> Option<f64> {
        let found = match item.get_ref() {
            DeValue::Integer(integer) => int(integer).and_then(|n| n.to_string().parse().ok()),
            DeValue::Float(float) => float.as_str().parse().ok(),
            DeValue::String(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => None,
        };
        let found = found.filter(|number: &f64| number.is_finite());
        if found.is_none() {
            self.fault(item.span(), format!("`{key}` is not a number"));
        }
        found
    }

    /// A text that must be one of a list.
    pub(super) fn word<'t>(
        &mut self,
        item: Item<'t>,
        key: &str,
        known: &[&str],
    ) -> Option<&'t str> {
        let text = self.text(item, key)?;
        if known.contains(&text) {
            return Some(text);
        }
        let hint = match nearest(text, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("use one of {}", known.join(", ")),
        };
        self.fault_hint(
            item.span(),
            format!("`{text}` is not a value of `{key}`"),
            hint,
        );
        None
    }
}

pub(super) fn int(integer: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(integer.as_str(), integer.radix()).ok()
}
