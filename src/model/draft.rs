//! What a caller writes to have an item made: a line of a batch, or a file in a drop box.
//!
//! It has the form of an envelope of which only `request` is required, and is more lenient in
//! spelling: headers and query parameters may be an object, the body any JSON value. What only
//! tickpost itself says of an item is refused.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::envelope::{Requester, VERSION};
use super::ids::{DestName, DestNameError, RequestId};
use super::time::UnixMs;

/// An item as a caller asks for it.
///
/// ```
/// use tickpost::model::draft::Draft;
///
/// let line = r#"{"destination":"billing","request":{"path":"/v1/charges","body":{"json":{"amount":5}}}}"#;
/// let draft = Draft::parse(line.as_bytes())?;
/// assert_eq!(draft.method, "POST");
/// assert_eq!(draft.body, br#"{"amount":5}"#);
/// assert_eq!(draft.content_type.as_deref(), Some("application/json"));
/// # Ok::<(), tickpost::model::draft::DraftError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Draft {
    /// Where it goes: a name in the configuration.
    pub destination: Option<DestName>,
    /// The caller's own id: offered again, it is the same item.
    pub request_id: Option<RequestId>,
    /// The HTTP method; POST unless said.
    pub method: String,
    /// The path below the base URL, starting with `/`; empty for the base URL itself.
    pub path: String,
    /// Query parameters, not encoded.
    pub query: Vec<(String, String)>,
    /// Headers.
    pub headers: Vec<(String, String)>,
    /// The `Content-Type`.
    pub content_type: Option<String>,
    /// The body; empty for none.
    pub body: Vec<u8>,
    /// The body's SHA-256 in hex, if the caller says it: then it must be right.
    pub body_sha256: Option<String>,
    /// Who asks.
    pub requester: Requester,
    /// Destinations that are told when it does not end well.
    pub notify: Vec<DestName>,
    /// The requester's own labels.
    pub labels: BTreeMap<String, String>,
    /// The dedupe key: offered again with it, it is the same item.
    pub key: Option<String>,
    /// Not to be sent before.
    pub not_before: Option<UnixMs>,
    /// Worthless after.
    pub not_after: Option<UnixMs>,
    /// Held from the start, for this reason: one of the list, or any text.
    pub hold: Option<String>,
}

/// Why a text is not a draft.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DraftError {
    /// It is not such a JSON object.
    #[error("{0}")]
    Json(String),
    /// It is no JSON object.
    #[error(
        "it is not a JSON object such as {{\"request\":{{\"path\":\"/x\",\"body\":{{\"json\":1}}}}}}"
    )]
    NoObject,
    /// It has the form of a newer version.
    #[error("`v` is {0}; this build reads {VERSION}")]
    Newer(u32),
    /// The base64 text is not base64.
    #[error("request.body.base64 is not base64 with padding")]
    Base64,
    /// A body in more than one form, or in none.
    #[error("request.body has {0} of `text`, `base64` and `json`; give one")]
    Body(usize),
    /// What only tickpost says.
    #[error("`{0}` is set by tickpost itself; leave it out")]
    Ours(&'static str),
}

/// A draft as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<'a> {
    v: Option<u32>,
    destination: Option<DestName>,
    request_id: Option<RequestId>,
    /// An envelope copied from an item has it; the time of acceptance is ours to say.
    #[serde(rename = "enqueued_at")]
    _enqueued_at: Option<IgnoredAny>,
    #[serde(borrow)]
    request: WrittenRequest<'a>,
    #[serde(default)]
    requester: WrittenRequester,
    #[serde(default)]
    notify: Vec<DestName>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    key: Option<String>,
    not_before: Option<UnixMs>,
    not_after: Option<UnixMs>,
    hold: Option<String>,
}

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "`request` to be an object such as {\"path\":\"/x\",\"body\":{\"json\":1}}"
)]
struct WrittenRequest<'a> {
    method: Option<String>,
    #[serde(default)]
    path: String,
    #[serde(default)]
    query: Pairs,
    #[serde(default)]
    headers: Pairs,
    content_type: Option<String>,
    #[serde(borrow)]
    body: Option<WrittenBody<'a>>,
    body_sha256: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "`requester` to be an object with `principal`, `thread` or both"
)]
struct WrittenRequester {
    principal: Option<String>,
    thread: Option<String>,
}

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "`body` to be an object with `text`, `base64` or `json`"
)]
struct WrittenBody<'a> {
    text: Option<String>,
    base64: Option<String>,
    /// As it stands: numbers and order are not touched.
    #[serde(borrow)]
    json: Option<&'a RawValue>,
}

/// Names and values, as pairs or as an object.
#[derive(Default)]
struct Pairs(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'de> Visitor<'de> for Collect {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("pairs [[\"name\",\"value\"]] or an object {\"name\":\"value\"}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = seq.next_element()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }

        from.deserialize_any(Collect)
    }
}

/// What the parser says, but for fields of an envelope that only tickpost writes.
fn refusal(why: &str) -> DraftError {
    let is_named = |name: &&str| why.starts_with(&format!("unknown field `{name}`"));
    match ["retry_of", "notice"].into_iter().find(is_named) {
        Some(name) => DraftError::Ours(name),
        None => DraftError::Json(why.to_owned()),
    }
}

impl Draft {
    /// A POST of nothing to the base URL of the destination of this name.
    ///
    /// # Errors
    ///
    /// [`DestNameError`] if it is no name.
    pub fn to(destination: &str) -> Result<Self, DestNameError> {
        Ok(Self::new(destination.parse()?))
    }

    /// A POST of nothing to the destination's base URL.
    #[must_use]
    pub fn new(destination: DestName) -> Self {
        Self {
            destination: Some(destination),
            method: "POST".to_owned(),
            ..Self::default()
        }
    }

    /// Sets the HTTP method.
    #[must_use]
    pub fn method(mut self, method: &str) -> Self {
        method.clone_into(&mut self.method);
        self
    }

    /// Sets the path below the base URL.
    #[must_use]
    pub fn path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// Adds a query parameter, not encoded.
    #[must_use]
    pub fn query(mut self, name: &str, value: &str) -> Self {
        self.query.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the body and its type.
    #[must_use]
    pub fn body(mut self, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        self.content_type = Some(content_type.to_owned());
        self.body = body.into();
        self
    }

    /// Sets the body to a value as JSON.
    ///
    /// # Errors
    ///
    /// The encoder's error.
    pub fn json<T: Serialize>(self, value: &T) -> Result<Self, serde_json::Error> {
        Ok(self.body("application/json", serde_json::to_vec(value)?))
    }

    /// Sets the dedupe key.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    /// Adds a destination that is told when it does not end well.
    ///
    /// # Errors
    ///
    /// [`DestNameError`] if it is no name.
    pub fn notify(mut self, destination: &str) -> Result<Self, DestNameError> {
        self.notify.push(destination.parse()?);
        Ok(self)
    }

    /// Reads a JSON object.
    ///
    /// # Errors
    ///
    /// [`DraftError`]: what is wrong, and where.
    pub fn parse(bytes: &[u8]) -> Result<Self, DraftError> {
        // serde takes a struct from an array too, member by member.
        let first = bytes.iter().find(|b| !b.is_ascii_whitespace());
        if first.is_some_and(|b| *b != b'{') {
            return Err(DraftError::NoObject);
        }
        let written: Written<'_> =
            serde_json::from_slice(bytes).map_err(|error| refusal(&error.to_string()))?;
        if let Some(v) = written.v.filter(|v| *v > VERSION) {
            return Err(DraftError::Newer(v));
        }
        let request = written.request;
        let mut content_type = request.content_type;
        let body = match request.body {
            None => Vec::new(),
            Some(body) => match (body.text, body.base64, body.json) {
                (Some(text), None, None) => text.into_bytes(),
                (None, Some(text), None) => {
                    STANDARD.decode(text).map_err(|_| DraftError::Base64)?
                }
                (None, None, Some(json)) => {
                    content_type.get_or_insert_with(|| "application/json".to_owned());
                    json.get().as_bytes().to_vec()
                }
                (text, base64, json) => {
                    let given = [text.is_some(), base64.is_some(), json.is_some()];
                    return Err(DraftError::Body(given.iter().filter(|is| **is).count()));
                }
            },
        };
        Ok(Self {
            destination: written.destination,
            request_id: written.request_id,
            method: request.method.unwrap_or_else(|| "POST".to_owned()),
            path: request.path,
            query: request.query.0,
            headers: request.headers.0,
            content_type,
            body,
            body_sha256: request.body_sha256,
            requester: Requester {
                principal: written.requester.principal,
                thread: written.requester.thread,
            },
            notify: written.notify,
            labels: written.labels,
            key: written.key,
            not_before: written.not_before,
            not_after: written.not_after,
            hold: written.hold,
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn only_the_request_is_required() {
        let draft = Draft::parse(br#"{"request":{}}"#).unwrap();
        assert_eq!(draft.method, "POST");
        assert!(draft.body.is_empty());
    }

    #[test]
    fn an_envelope_of_an_item_is_a_draft() {
        let line = r#"{"v":1,"request_id":"019adf3e-6b6b-7cc3-98f2-3a1c5d2e8f10","destination":"billing","enqueued_at":"2026-11-29T15:40:03.123Z","request":{"method":"PUT","path":"/v1","query":[["expand","x"]],"headers":[["X-Trace","7"]],"content_type":"text/plain","body":{"text":"a"},"body_sha256":"ab"},"requester":{"principal":"alice","thread":"t"},"notify":["ops"],"labels":{"env":"prod"},"key":"k","not_before":"2026-11-29T15:40:03Z","not_after":"2026-11-29T15:40:04Z"}"#;
        let draft = Draft::parse(line.as_bytes()).unwrap();
        assert_eq!(draft.method, "PUT");
        assert_eq!(draft.query, [("expand".to_owned(), "x".to_owned())]);
        assert_eq!(draft.body, b"a");
        assert_eq!(draft.body_sha256.as_deref(), Some("ab"));
        assert_eq!(draft.requester.thread.as_deref(), Some("t"));
        assert_eq!(draft.key.as_deref(), Some("k"));
        assert_eq!(draft.labels["env"], "prod");
        assert!(draft.not_before < draft.not_after);
    }

    #[test]
    fn a_json_body_stays_as_it_is_spelled() {
        let line =
            b"{\"request\":{\"body\":{\"json\":  {\"b\": 1.0,\n \"a\":12345678901234567890123}}}}";
        let draft = Draft::parse(line).unwrap();
        assert_eq!(draft.body, b"{\"b\": 1.0,\n \"a\":12345678901234567890123}");
        assert_eq!(draft.content_type.as_deref(), Some("application/json"));
    }

    #[test]
    fn headers_and_query_may_be_an_object() {
        let line = br#"{"request":{"headers":{"X-A":"1","X-B":"2"},"query":{}}}"#;
        let draft = Draft::parse(line).unwrap();
        let want = [("X-A", "1"), ("X-B", "2")].map(|(n, v)| (n.to_owned(), v.to_owned()));
        assert_eq!(draft.headers, want);
    }

    #[test]
    fn what_is_refused_says_why() {
        for (text, want) in [
            ("", "EOF"),
            ("[1]", "not a JSON object"),
            ("\"x\"", "not a JSON object"),
            (
                r#"{"request":{"body":"x"}}"#,
                "expected `body` to be an object with `text`",
            ),
            ("{}", "missing field `request`"),
            (
                r#"{"request":{},"destnation":"x"}"#,
                "unknown field `destnation`",
            ),
            (r#"{"request":{"body":{}}}"#, "has 0 of"),
            (r#"{"request":{"body":{"text":"","json":1}}}"#, "has 2 of"),
            (r#"{"request":{"body":{"base64":"?"}}}"#, "not base64"),
            (
                r#"{"request":{"body":{"file":"/etc/passwd"}}}"#,
                "unknown field `file`",
            ),
            (r#"{"v":2,"request":{}}"#, "`v` is 2"),
            (r#"{"request":{},"notice":true}"#, "set by tickpost"),
            (r#"{"request":{},"request_id":"X"}"#, "is not a request id"),
            (
                r#"{"request":{},"destination":"A/B"}"#,
                "is not a destination name",
            ),
            (r#"{"request":{},"not_after":"tomorrow"}"#, "tomorrow"),
            (r#"{"request":{"headers":["x"]}}"#, "invalid type"),
            (
                r#"{"request":{"headers":7}}"#,
                "expected pairs [[\"name\",\"value\"]] or an object",
            ),
            (r#"{"request":{}} x"#, "trailing"),
        ] {
            let error = Draft::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(want), "{text}: {error}");
        }
    }

    #[test]
    fn each_setter_sets_its_part_and_keeps_the_others() {
        let draft = Draft::to("billing").unwrap();
        assert_eq!(draft, Draft::new("billing".parse().unwrap()));
        assert_eq!((draft.method.as_str(), draft.path.as_str()), ("POST", ""));
        let draft = draft
            .method("PUT")
            .path("/v1")
            .query("a", "b")
            .query("a", "c")
            .header("X-A", "1")
            .header("X-B", "2")
            .key("k")
            .notify("ops")
            .unwrap()
            .json(&serde_json::json!({"amount": 5}))
            .unwrap();
        let line = br#"{"destination":"billing","request":{"method":"PUT","path":"/v1","query":[["a","b"],["a","c"]],"headers":[["X-A","1"],["X-B","2"]],"body":{"json":{"amount":5}}},"key":"k","notify":["ops"]}"#;
        assert_eq!(draft, Draft::parse(line).unwrap());
        let text = draft.body("text/plain", "five");
        assert_eq!(text.content_type.as_deref(), Some("text/plain"));
        assert_eq!(
            (text.body.as_slice(), text.method.as_str()),
            (&b"five"[..], "PUT")
        );
        assert!(Draft::to("A/B").is_err());
        assert!(text.notify("A/B").is_err());
    }
}
