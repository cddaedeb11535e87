//! What to send. Line 1 of an item file; it never changes after enqueue.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use super::body::{BODIES, Body, INLINE_BYTES_MAX};
use percent_encoding::percent_decode;

use super::ids::{DestName, RequestId};
use super::time::UnixMs;

/// The envelope's version that this build writes and reads.
pub const VERSION: u32 = 1;

/// The longest request head (path, query and headers together) that is accepted, in bytes.
/// Below it the transport can tell "not sent" from "maybe sent".
pub const HEAD_BYTES_MAX: usize = 64 * 1024;

/// What to send, where, and who asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// The format of this line, [`VERSION`].
    pub v: u32,
    /// The item's identity, and the key of every attempt.
    pub request_id: RequestId,
    /// Where it goes: a name in the configuration.
    pub destination: DestName,
    /// When it was accepted.
    pub enqueued_at: UnixMs,
    /// The HTTP request.
    pub request: Request,
    /// Who asked.
    #[serde(default, skip_serializing_if = "Requester::is_empty")]
    pub requester: Requester,
    /// Destinations that are told when it does not end well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notify: Vec<DestName>,
    /// The requester's own labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The requester's dedupe key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The item of which this is a deliberate repeat under a new id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<RequestId>,
    /// Not to be sent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<UnixMs>,
    /// Worthless after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<UnixMs>,
    /// It tells somebody of other items; nobody is told of its own end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub notice: bool,
}

/// An HTTP request below a destination's base URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The HTTP method.
    pub method: String,
    /// The path below the base URL, starting with `/`; empty for the base URL itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Query parameters, not yet encoded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub query: Vec<(String, String)>,
    /// Headers of this item.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The `Content-Type`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The body; absent means empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Body>,
    /// SHA-256 of the body, in hex.
    pub body_sha256: String,
}

/// Who asked for an item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requester {
    /// The person or program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// The conversation, deployment or job it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
}

impl Requester {
    fn is_empty(&self) -> bool {
        self.principal.is_none() && self.thread.is_none()
    }
}

/// What is wrong with a request, in words that name the part and the way out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The method is not an HTTP token.
    #[error("method `{}` is not an HTTP method such as POST", .0.escape_debug())]
    Method(String),
    /// The path would leave the destination, or cannot be a path.
    #[error("path `{}` {why}", path.escape_debug())]
    Path {
        /// What was given.
        path: String,
        /// What is wrong, and the way out.
        why: &'static str,
    },
    /// A header's name is not an HTTP token.
    #[error("header name `{}` is not an HTTP header name", .0.escape_debug())]
    HeaderName(String),
    /// A header's value holds what would break the request.
    #[error("the value of header `{0}` holds a control character; remove it")]
    HeaderValue(String),
    /// A header that tickpost sets itself.
    #[error("header `{0}` is set by tickpost from the request itself; leave it out")]
    HeaderReserved(String),
    /// Path, query and headers are too long together.
    #[error("path, query and headers are {0} bytes together; at most {HEAD_BYTES_MAX} are sent")]
    HeadTooLong(usize),
    /// The base64 text is not base64.
    #[error("the body is not base64")]
    Base64,
    /// The hash in the envelope is not that of the body.
    #[error("the body does not match its SHA-256")]
    BodyHash,
}

impl Request {
    /// The body's bytes, checked against the stored hash; `None` if they are in a file.
    ///
    /// # Errors
    ///
    /// [`RequestError::Base64`] or [`RequestError::BodyHash`] if the stored body is damaged.
    pub fn body_bytes(&self) -> Result<Option<Vec<u8>>, RequestError> {
        let bytes = match &self.body {
            Some(body) => body.to_bytes()?,
            None => Some(Vec::new()),
        };
        match bytes {
            Some(bytes) if sha256_hex(&bytes) != self.body_sha256 => Err(RequestError::BodyHash),
            other => Ok(other),
        }
    }

    /// What makes it the same request when it is offered again: SHA-256, in hex, of the JSON array
    /// of method, path, query and body hash. Headers may differ: they trace who asked.
    #[must_use]
    pub fn sha256(&self) -> String {
        let parts = serde_json::json!([self.method, self.path, self.query, self.body_sha256]);
        sha256_hex(parts.to_string().as_bytes())
    }

    /// How long a body is that lies in a file; `None` for any other.
    #[must_use]
    pub fn file_bytes(&self) -> Option<u64> {
        match self.body {
            Some(Body::File { bytes, .. }) => Some(bytes),
            Some(Body::Text(_) | Body::Base64(_)) | None => None,
        }
    }

    /// Checks everything that could break a request or leave the destination.
    ///
    /// The path is joined to the base URL as text and never resolved, so `..` and `//` are
    /// refused instead of guessed at (also in their percent-encoded forms).
    ///
    /// # Errors
    ///
    /// The first [`RequestError`] found.
    pub fn check(&self) -> Result<(), RequestError> {
        if self.method.is_empty() || !self.method.bytes().all(is_token) {
            return Err(RequestError::Method(self.method.clone()));
        }
        check_path(&self.path).map_err(|why| RequestError::Path {
            path: self.path.clone(),
            why,
        })?;
        let typed = self
            .content_type
            .iter()
            .map(|value| ("content-type", value.as_str()));
        let named = self
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let mut head_bytes = self.method.len() + self.path.len();
        for (name, value) in named.chain(typed) {
            check_header(name, value)?;
            head_bytes += name.len() + value.len() + 4;
        }
        // Percent-encoding makes a byte three at most.
        head_bytes += self
            .query
            .iter()
            .map(|(name, value)| 3 * (name.len() + value.len()) + 2)
            .sum::<usize>();
        if head_bytes > HEAD_BYTES_MAX {
            return Err(RequestError::HeadTooLong(head_bytes));
        }
        Ok(())
    }
}

/// Checks one header of an item or of a destination.
///
/// # Errors
///
/// [`RequestError::HeaderName`], [`RequestError::HeaderValue`], or
/// [`RequestError::HeaderReserved`] for those that frame the message.
pub fn check_header(name: &str, value: &str) -> Result<(), RequestError> {
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(RequestError::HeaderName(name.to_owned()));
    }
    if value.bytes().any(|b| (b < 0x20 && b != b'\t') || b == 0x7f) {
        return Err(RequestError::HeaderValue(name.to_owned()));
    }
    let reserved = [
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "upgrade",
        "te",
        "trailer",
        "expect",
        "keep-alive",
        "proxy-connection",
    ];
    if reserved.contains(&name.to_ascii_lowercase().as_str()) {
        return Err(RequestError::HeaderReserved(name.to_owned()));
    }
    Ok(())
}

/// A byte of a token (RFC 9110, 5.6.2).
fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

fn check_path(path: &str) -> Result<(), &'static str> {
    if path.is_empty() {
        return Ok(());
    }
    if !path.starts_with('/') {
        return Err("must start with `/`; it is joined to the destination's base_url");
    }
    if path.contains(['?', '#']) {
        return Err("holds `?` or `#`; give parameters as query");
    }
    if path.contains('\\') {
        return Err("holds a backslash, which some servers take for `/`; write it as %5C");
    }
    if path.bytes().any(|b| b <= 0x20 || b >= 0x7f) {
        return Err("holds a blank, a control or a non-ASCII character; percent-encode it");
    }
    // As the most lenient receiver would read it: decoded until nothing changes, and what follows
    // a name cut off.
    let mut plain = path.as_bytes().to_vec();
    loop {
        let decoded: Vec<u8> = percent_decode(&plain).collect();
        if decoded == plain {
            break;
        }
        plain = decoded;
    }
    if plain.contains(&0) {
        return Err("holds an encoded NUL, which some servers take for the end");
    }
    for segment in plain.split(|b| b"/\\".contains(b)) {
        let ends = |b: &u8| b";?#".contains(b) || *b <= b' ';
        let name = segment.split(ends).next().unwrap_or_default();
        if name == b"." || name == b".." {
            return Err(
                "holds `.` or `..`, also encoded, which could leave the destination's base_url",
            );
        }
    }
    if path.starts_with("//") {
        return Err("starts with `//`, which could name another host");
    }
    Ok(())
}

/// SHA-256 in lower-case hex.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Bytes in lower-case hex.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

#[cfg(test)]
mod tests;
