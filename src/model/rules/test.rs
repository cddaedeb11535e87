//! What a rule may ask of one value of a header or of a JSON body.

use std::fmt;

use regex_lite::Regex;
use serde_json::Value;

/// One test. Over several values it is existential: one that passes is enough.
#[derive(Clone, Debug)]
pub(super) enum Test {
    /// The same value of the same type; numbers compare by value.
    Is(Value),
    /// Any of these.
    AnyOf(Vec<Test>),
    /// All of these, of the same value.
    AllOf(Vec<Test>),
    /// The text, or the number as text, has a match.
    Regex(Regex),
    /// There is, or is not, such a value.
    Exists(bool),
    /// A number, or a text that is one, above this.
    Above(f64),
    /// Something stands there: not absent, null, false, zero, or of no length.
    Nonempty(bool),
    /// The value does not pass.
    Not(Box<Test>),
}

impl Test {
    /// Whether a value passes; `None` stands for "no such value".
    ///
    /// An absent value passes only what asks about absence: a value that is not there is not
    /// "something else", or an unrelated document would pass a `not`.
    pub(super) fn passes(&self, value: Option<&Value>) -> bool {
        match self {
            Self::Is(want) => value.is_some_and(|value| same(want, value)),
            Self::AnyOf(tests) => tests.iter().any(|test| test.passes(value)),
            Self::AllOf(tests) => tests.iter().all(|test| test.passes(value)),
            Self::Regex(regex) => match value {
                Some(Value::String(text)) => regex.is_match(text),
                Some(Value::Number(number)) => regex.is_match(&number.to_string()),
                Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => {
                    false
                }
            },
            Self::Exists(wanted) => value.is_some() == *wanted,
            Self::Above(bound) => value.and_then(number).is_some_and(|found| found > *bound),
            Self::Nonempty(wanted) => value.is_some_and(is_nonempty) == *wanted,
            Self::Not(test) => {
                (value.is_some() || test.asks_about_absence()) && !test.passes(value)
            }
        }
    }

    fn asks_about_absence(&self) -> bool {
        match self {
            Self::Exists(_) | Self::Nonempty(_) => true,
            Self::Not(test) => test.asks_about_absence(),
            Self::AnyOf(tests) | Self::AllOf(tests) => tests.iter().any(Self::asks_about_absence),
            Self::Is(_) | Self::Regex(_) | Self::Above(_) => false,
        }
    }
}

/// Whether two values are the same, numbers by value: `1` is `1.0`, but `true` is not `"true"`.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) if x.is_f64() || y.is_f64() => {
            x.as_f64() == y.as_f64()
        }
        _ => a == b,
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn is_nonempty(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(yes) => *yes,
        // A count of errors: zero of them is none.
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(elements) => !elements.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(value) => write!(f, "is {value}"),
            Self::AnyOf(tests) => join(f, tests, " or "),
            Self::AllOf(tests) => join(f, tests, " and "),
            Self::Regex(regex) => write!(f, "matches /{}/", regex.as_str()),
            Self::Exists(true) => f.write_str("exists"),
            Self::Exists(false) => f.write_str("is absent"),
            Self::Above(bound) => write!(f, "is above {bound}"),
            Self::Nonempty(true) => f.write_str("is not empty"),
            Self::Nonempty(false) => f.write_str("is empty"),
            Self::Not(test) => write!(f, "not ({test})"),
        }
    }
}

/// Writes a list with a word between its entries.
pub(super) fn join<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    entries: &[T],
    between: &str,
) -> fmt::Result {
    for (index, entry) in entries.iter().enumerate() {
        if index > 0 {
            f.write_str(between)?;
        }
        write!(f, "{entry}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use serde_json::json;

    #[test]
    fn every_test_of_a_value() {
        let is = |value: Value| Test::Is(value);
        let not = |test: Test| Test::Not(Box::new(test));
        let regex = |text: &str| Test::Regex(Regex::new(text).unwrap());
        let some = Some;
        let rows: Vec<(Test, Option<Value>, bool, &str)> = vec![
            (is(json!(true)), some(json!(true)), true, ""),
            (is(json!(true)), some(json!("true")), false, "typed"),
            (is(json!(1)), some(json!(1.0)), true, "numbers by value"),
            (is(json!(1)), some(json!("1")), false, "typed"),
            (
                is(json!(9_007_199_254_740_993_u64)),
                some(json!(9_007_199_254_740_992_u64)),
                false,
                "large ids to the last digit",
            ),
            (is(json!("a")), None, false, "absent"),
            (
                Test::AnyOf(vec![is(json!("a")), is(json!(2))]),
                some(json!(2)),
                true,
                "",
            ),
            (Test::AnyOf(vec![]), some(json!(2)), false, "none of none"),
            (regex("(?i)^ab"), some(json!("ABC")), true, ""),
            (regex("^19\\d$"), some(json!(190)), true, "a number as text"),
            (regex(""), some(json!([])), false, "no text"),
            (Test::Exists(true), some(json!(null)), true, "null is there"),
            (Test::Exists(false), None, true, ""),
            (Test::Exists(false), some(json!(0)), false, ""),
            (Test::Above(0.0), some(json!(1)), true, ""),
            (
                Test::Above(0.0),
                some(json!("2")),
                true,
                "int64 as a string",
            ),
            (Test::Above(0.0), some(json!(0)), false, "above, not equal"),
            (Test::Above(0.0), None, false, ""),
            (Test::Nonempty(true), some(json!("x")), true, ""),
            (Test::Nonempty(true), some(json!(true)), true, ""),
            (Test::Nonempty(true), some(json!({"a": 1})), true, ""),
            (Test::Nonempty(true), some(json!(false)), false, ""),
            (Test::Nonempty(true), some(json!(0)), false, "no errors"),
            (Test::Nonempty(true), some(json!(3)), true, "three errors"),
            (Test::Nonempty(true), some(json!([])), false, ""),
            (Test::Nonempty(true), None, false, ""),
            (Test::Nonempty(false), None, true, "absent is empty"),
            (not(is(json!("a"))), some(json!("b")), true, ""),
            (not(is(json!("a"))), some(json!("a")), false, ""),
            (
                not(is(json!("a"))),
                None,
                false,
                "absent is not something else",
            ),
            (
                not(Test::Exists(true)),
                None,
                true,
                "but absence can be asked for",
            ),
            (not(Test::Nonempty(true)), None, true, ""),
            (
                Test::AllOf(vec![Test::Exists(true), not(is(json!(0)))]),
                some(json!(1)),
                true,
                "all of one value",
            ),
        ];
        for (test, value, want, why) in rows {
            assert_eq!(test.passes(value.as_ref()), want, "{test}: {value:?} {why}");
        }
    }
}
