//! Paths into a JSON document: RFC 6901, with `*` for any element or member and one `**` for
//! any depth.

use std::fmt;

use serde_json::Value;

/// A path that may lead to many values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pointer {
    text: String,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Name(String),
    Any,
    AnyDepth,
}

impl Pointer {
    /// Reads a path; the error is a message for a [`crate::model::fault::Fault`].
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut steps = Vec::new();
        if !text.is_empty() {
            let Some(rest) = text.strip_prefix('/') else {
                return Err(format!("the path `{text}` does not start with `/`"));
            };
            for part in rest.split('/') {
                steps.push(match part {
                    "*" => Step::Any,
                    "**" => Step::AnyDepth,
                    name => Step::Name(unescape(name).ok_or_else(|| {
                        format!("in the path `{text}` a `~` is neither `~0` nor `~1`")
                    })?),
                });
            }
        }
        // Two of them would make the work grow with the square of the body's depth.
        if steps.iter().filter(|step| **step == Step::AnyDepth).count() > 1 {
            return Err(format!("the path `{text}` has more than one `**`"));
        }
        Ok(Self {
            text: text.to_owned(),
            steps,
        })
    }

    /// Shows `visit` each value that the path leads to, members by name and the outer before
    /// the inner, until it returns true; returns whether it did.
    pub(super) fn any<'v>(
        &self,
        document: &'v Value,
        visit: &mut dyn FnMut(&'v Value) -> bool,
    ) -> bool {
        walk(&self.steps, document, visit)
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn unescape(name: &str) -> Option<String> {
    let mut out = String::with_capacity(name.len());
    let mut chars = name.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            '~' => match chars.next() {
                Some('0') => '~',
                Some('1') => '/',
                Some(_) | None => return None,
            },
            other => other,
        });
    }
    Some(out)
}

/// The depth of recursion is bounded: the JSON reader refuses documents deeper than 128.
fn walk<'v>(steps: &[Step], value: &'v Value, visit: &mut dyn FnMut(&'v Value) -> bool) -> bool {
    let Some((step, rest)) = steps.split_first() else {
        return visit(value);
    };
    match step {
        Step::Name(name) => match child(value, name) {
            Some(child) => walk(rest, child, visit),
            None => false,
        },
        Step::Any => children(value).any(|child| walk(rest, child, visit)),
        Step::AnyDepth => {
            walk(rest, value, visit) || children(value).any(|child| walk(steps, child, visit))
        }
    }
}

fn child<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    match value {
        Value::Object(members) => members.get(name),
        Value::Array(elements) => {
            let plain = name == "0" || !name.starts_with(['0', '+']);
            elements.get(name.parse::<usize>().ok().filter(|_| plain)?)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Object(members) => Box::new(members.values()),
        Value::Array(elements) => Box::new(elements.iter()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Box::new(std::iter::empty())
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use serde_json::json;

    #[test]
    fn where_a_path_leads() {
        let document = json!({
            "a": {"b": 1, "c": [10, 11], "": 5},
            "x/y": 2, "m~n": 3,
            "error": {"code": "o", "inner": {"code": "i", "deep": [{"code": "d"}]}},
            "list": [{"code": "A"}, {"other": 0}, {"code": "B"}],
        });
        let rows = [
            ("/a/b", json!([1])),
            ("/a/c/1", json!([11])),
            ("/a/c/0", json!([10])),
            ("/a/c/00", json!([])),
            ("/a/c/-", json!([])),
            ("/a/c/01", json!([])),
            ("/a/c/+1", json!([])),
            ("/a/c/2", json!([])),
            ("/a/", json!([5])),
            ("/x~1y", json!([2])),
            ("/m~0n", json!([3])),
            ("/list/*/code", json!(["A", "B"])),
            ("/a/*", json!([5, 1, [10, 11]])),
            ("/error/**/code", json!(["o", "i", "d"])),
            ("/a/b/c", json!([])),
            ("/none", json!([])),
        ];
        for (path, want) in rows {
            let mut got = Vec::new();
            Pointer::parse(path).unwrap().any(&document, &mut |value| {
                got.push(value.clone());
                false
            });
            assert_eq!(Value::Array(got), want, "{path}");
        }
        assert!(
            Pointer::parse("")
                .unwrap()
                .any(&document, &mut |value| *value == document)
        );
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["a", "/a~", "/a~2", "/**/**/a"] {
            assert!(Pointer::parse(text).is_err(), "{text}");
        }
        for text in ["", "/", "/a~0~1b", "/*/**/*"] {
            let shown = Pointer::parse(text).map(|pointer| pointer.to_string());
            assert_eq!(shown, Ok(text.to_owned()), "shown as it was written");
        }
    }

    #[test]
    fn a_walk_ends_where_the_visitor_is_content() {
        let document = json!({"a": [1, 2, 3], "b": {"a": [4]}});
        for (path, content, want) in [
            ("/a/*", 2, vec![1, 2]),
            ("/a/*", 9, vec![1, 2, 3]),
            ("/**/a/*", 1, vec![1]),
            ("/**/a/*", 4, vec![1, 2, 3, 4]),
        ] {
            let mut seen = Vec::new();
            let found = Pointer::parse(path).unwrap().any(&document, &mut |value| {
                seen.extend(value.as_i64());
                value.as_i64() == Some(content)
            });
            assert_eq!((seen, found), (want, content != 9), "{path} {content}");
        }
    }
}
