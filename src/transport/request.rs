//! An item and its destination → the request that goes out. Pure: the same item gives the same
//! request at every attempt.
//!
//! # Guarantees
//!
//! 1. The request keeps the destination's scheme, host, port and base path.
//! 2. The key stands where the destination wants it, or there is no request.
//! 3. Beside the key not one byte of the body is changed.

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use url::Url;
use url::form_urlencoded;

use super::secret::Credential;
use crate::config::Destination;
use crate::model::envelope::{Envelope, HEAD_BYTES_MAX, Request, RequestError};
use crate::model::key::KeyPlace;

/// What stands in an item's path for the key.
pub const PLACEHOLDER: &str = "{request_id}";

/// The longest head of a whole request, the destination's part included. Far below what hyper
/// would write before it asks for the body, on which the transport's knowledge rests.
const WHOLE_HEAD_BYTES_MAX: usize = 2 * HEAD_BYTES_MAX;

/// A request, ready for the wire.
#[derive(Clone, Debug)]
pub struct Assembled {
    /// The HTTP method.
    pub method: String,
    /// The whole address.
    pub url: Url,
    /// Every header but the credential, names as given.
    pub headers: Vec<(String, String)>,
    /// The header that proves who we are.
    pub credential: Option<Credential>,
    /// The body with the key in it.
    pub body: Payload,
}

/// The body of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// These bytes; none for no body.
    Bytes(Vec<u8>),
    /// So many bytes, read from the item's body file while they are sent.
    Streamed(u64),
}

/// Why no request can be made of an item. The text names the way out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssembleError {
    /// The item's request is damaged or would break out.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// `CONNECT` asks for a tunnel, not for an effect.
    #[error("method CONNECT cannot be sent")]
    Connect,
    /// The base address cannot carry requests.
    #[error("base_url {0}")]
    Base(&'static str),
    /// The address would not be the destination's any more.
    #[error("the path would leave the destination's base_url")]
    Leaves,
    /// The item brings a header that the destination sets.
    #[error(
        "the item brings header `{name}`, which the destination sets as its {what}; leave it out"
    )]
    HeaderTaken {
        /// The header.
        name: String,
        /// What the destination uses it for.
        what: &'static str,
    },
    /// The path has no place for the key.
    #[error("the key goes into the path, but the path does not hold {PLACEHOLDER}")]
    NoPlaceholder,
    /// The item brings another value where the key goes.
    #[error("the item brings its own value in {0} where the key goes; leave it out")]
    KeyTaken(String),
    /// The key goes into a JSON body that does not take it.
    #[error("the key goes to `{pointer}` of the JSON body, but {why}")]
    Json {
        /// The key's place.
        pointer: String,
        /// What is in the way.
        why: String,
    },
    /// The key goes into a form, and the body is none.
    #[error(
        "the key goes into a form field, but the content type is {0}; \
         it must be application/x-www-form-urlencoded"
    )]
    NotForm(String),
    /// The key goes into a body that lies in a file, and the file was not read.
    #[error("the key goes into the body, which could not be read")]
    NoBody,
    /// All of the head together is too long.
    #[error("the head of the request is {0} bytes long; at most {WHOLE_HEAD_BYTES_MAX} are sent")]
    HeadTooLong(usize),
}

/// Whether the key goes into the body, so that the whole body is needed to make a request.
#[must_use]
pub fn needs_body(destination: &Destination) -> bool {
    matches!(
        destination.key.place,
        KeyPlace::JsonBody(_) | KeyPlace::FormBody(_)
    )
}

/// Makes the request of an item. `file_body` is what its body file holds, if it has one and
/// [`needs_body`] says so.
///
/// # Errors
///
/// [`AssembleError`]: nothing can be sent, and nothing was.
pub fn assemble(
    envelope: &Envelope,
    destination: &Destination,
    credential: Option<&Credential>,
    file_body: Option<Vec<u8>>,
) -> Result<Assembled, AssembleError> {
    let request = &envelope.request;
    request.check()?;
    if request.method.eq_ignore_ascii_case("CONNECT") {
        return Err(AssembleError::Connect);
    }
    let place = &destination.key.place;
    let key = destination.key.text(envelope.request_id);
    let key = key.as_deref();
    let url = address(request, &destination.base_url, place, key)?;
    let headers = headers(request, destination, credential, key)?;
    let body = match (request.body_bytes()?, request.file_bytes()) {
        (Some(body), _) => Some(body),
        (None, Some(_)) if file_body.is_some() => file_body,
        (None, _) => None,
    };
    let body = match (place, key, body) {
        (KeyPlace::JsonBody(pointer), Some(key), Some(body)) => {
            Payload::Bytes(json_with(body, pointer, key)?)
        }
        (KeyPlace::FormBody(name), Some(key), Some(body)) => {
            let content_type = value_of(&headers, "content-type");
            Payload::Bytes(form_with(body, content_type, name, key)?)
        }
        (KeyPlace::JsonBody(_) | KeyPlace::FormBody(_), Some(_), None) => {
            return Err(AssembleError::NoBody);
        }
        (_, _, Some(body)) => Payload::Bytes(body),
        (_, _, None) => Payload::Streamed(request.file_bytes().unwrap_or(0)),
    };
    let assembled = Assembled {
        method: request.method.clone(),
        url,
        headers,
        credential: credential.cloned(),
        body,
    };
    let head_bytes = assembled.head_bytes();
    if head_bytes > WHOLE_HEAD_BYTES_MAX {
        return Err(AssembleError::HeadTooLong(head_bytes));
    }
    Ok(assembled)
}

impl Assembled {
    fn head_bytes(&self) -> usize {
        let headers: usize = self
            .headers
            .iter()
            .map(|(n, v)| n.len() + v.len() + 4)
            .sum();
        self.method.len() + self.url.as_str().len() + headers
    }
}

/// The whole address: base, path, query and, where it goes there, the key.
fn address(
    request: &Request,
    base: &Url,
    place: &KeyPlace,
    key: Option<&str>,
) -> Result<Url, AssembleError> {
    if !matches!(base.scheme(), "http" | "https") {
        return Err(AssembleError::Base("is neither http nor https"));
    }
    if !base.username().is_empty() || base.password().is_some() {
        // It would be sent as an Authorization header.
        return Err(AssembleError::Base("holds a user or password; use auth"));
    }
    let mut path = request.path.clone();
    if let (KeyPlace::UrlPath, Some(key)) = (place, key) {
        if !path.contains(PLACEHOLDER) {
            return Err(AssembleError::NoPlaceholder);
        }
        path = path.replace(PLACEHOLDER, key);
    }
    let mut url = base.clone();
    url.set_fragment(None);
    let base_path = base.path().strip_suffix('/').unwrap_or(base.path());
    if !path.is_empty() {
        url.set_path(&format!("{base_path}{path}"));
    }
    let mut pairs = request.query.clone();
    if let (KeyPlace::Query(name), Some(key)) = (place, key) {
        let known = base
            .query_pairs()
            .map(|(n, v)| (n.into_owned(), v.into_owned()));
        let brought = known.chain(pairs.iter().cloned());
        if !is_there(brought, name, key, || format!("query parameter `{name}`"))? {
            pairs.push((name.clone(), key.to_owned()));
        }
    }
    if !pairs.is_empty() {
        url.query_pairs_mut().extend_pairs(&pairs);
    }
    let below = url
        .path()
        .strip_prefix(base_path)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if below && same_origin(&url, base) {
        Ok(url)
    } else {
        Err(AssembleError::Leaves)
    }
}

fn same_origin(one: &Url, other: &Url) -> bool {
    one.scheme() == other.scheme()
        && one.host() == other.host()
        && one.port_or_known_default() == other.port_or_known_default()
        && one.username().is_empty()
        && one.password().is_none()
}

/// Whether the key stands there already. Another value in its place is refused: to overrule it
/// would be as wrong as to send it.
fn is_there(
    pairs: impl Iterator<Item = (String, String)>,
    name: &str,
    key: &str,
    place: impl Fn() -> String,
) -> Result<bool, AssembleError> {
    let mut found = false;
    for (known, value) in pairs {
        if known == name {
            if value != key {
                return Err(AssembleError::KeyTaken(place()));
            }
            found = true;
        }
    }
    Ok(found)
}

/// The item's headers, the destination's where the item has none of that name, and the key.
fn headers(
    request: &Request,
    destination: &Destination,
    credential: Option<&Credential>,
    key: Option<&str>,
) -> Result<Vec<(String, String)>, AssembleError> {
    let key_header = match (&destination.key.place, key) {
        (KeyPlace::Header(name), Some(key)) => Some((name.as_str(), key)),
        _ => None,
    };
    let taken = [
        credential.map(|credential| (credential.name(), "credential")),
        key_header.map(|(name, _)| (name, "key")),
    ];
    let taken_as = |name: &str| {
        taken
            .iter()
            .flatten()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, what)| *what)
    };

    let mut headers: Vec<(String, String)> = Vec::new();
    for (name, value) in &request.headers {
        if let Some(what) = taken_as(name) {
            let name = name.clone();
            return Err(AssembleError::HeaderTaken { name, what });
        }
        // The envelope's own field for it is the more deliberate one.
        if request.content_type.is_none() || !name.eq_ignore_ascii_case("content-type") {
            headers.push((name.clone(), value.clone()));
        }
    }
    if let Some(value) = &request.content_type {
        headers.push(("Content-Type".to_owned(), value.clone()));
    }
    let own = headers.len();
    for (name, value) in &destination.headers {
        if taken_as(name).is_none() && value_of(&headers[..own], name).is_none() {
            headers.push((name.clone(), value.clone()));
        }
    }
    if let Some((name, key)) = key_header {
        headers.push((name.to_owned(), key.to_owned()));
    }
    if value_of(&headers, "user-agent").is_none() {
        let agent = concat!("tickpost/", env!("CARGO_PKG_VERSION"));
        headers.push(("User-Agent".to_owned(), agent.to_owned()));
    }
    Ok(headers)
}

fn value_of<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.as_str())
}

/// Appends the key to a form.
fn form_with(
    mut body: Vec<u8>,
    content_type: Option<&str>,
    name: &str,
    key: &str,
) -> Result<Vec<u8>, AssembleError> {
    let kind = content_type.unwrap_or("missing");
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return Err(AssembleError::NotForm(kind.to_owned()));
    }
    let fields = form_urlencoded::parse(&body).map(|(n, v)| (n.into_owned(), v.into_owned()));
    if is_there(fields, name, key, || format!("form field `{name}`"))? {
        return Ok(body);
    }
    if !body.is_empty() && !body.ends_with(b"&") {
        body.push(b'&');
    }
    let field = form_urlencoded::Serializer::new(String::new())
        .append_pair(name, key)
        .finish();
    body.extend_from_slice(field.as_bytes());
    Ok(body)
}

/// Puts the key into a JSON body as text, so that number spelling, order and whitespace of
/// everything else stay as they were enqueued.
fn json_with(body: Vec<u8>, pointer: &str, key: &str) -> Result<Vec<u8>, AssembleError> {
    let refuse = |why: &str| AssembleError::Json {
        pointer: pointer.to_owned(),
        why: why.to_owned(),
    };
    let Some(path) = pointer.strip_prefix('/') else {
        return Err(refuse("a JSON pointer starts with `/`"));
    };
    let mut names: Vec<String> = path
        .split('/')
        .map(|part| part.replace("~1", "/").replace("~0", "~"))
        .collect();
    let name = names.pop().unwrap_or_default();

    let text = String::from_utf8(body).map_err(|_| refuse("the body is not UTF-8"))?;
    let mut parent: &RawValue = serde_json::from_str(&text)
        .map_err(|error| refuse(&format!("the body is not JSON: {error}")))?;
    for name in &names {
        parent = match member(parent, name) {
            Ok(Some(value)) => value,
            Ok(None) => return Err(refuse(&format!("`{name}` is missing"))),
            Err(why) => return Err(refuse(why)),
        };
    }
    match member(parent, &name) {
        Ok(None) => {}
        Ok(Some(value)) => {
            return if serde_json::from_str::<String>(value.get()).is_ok_and(|value| value == key) {
                Ok(text.into_bytes())
            } else {
                Err(AssembleError::KeyTaken(format!(
                    "`{pointer}` of the JSON body"
                )))
            };
        }
        Err(why) => return Err(refuse(why)),
    }

    // The raw value borrows from the text, so its distance from the start is its place in it.
    let brace = parent.get().as_ptr().addr() - text.as_ptr().addr();
    let (before, after) = text
        .split_at_checked(brace + 1)
        .filter(|(before, _)| before.ends_with('{'))
        .ok_or_else(|| refuse("the parent is not an object"))?;
    let comma = if after.trim_start().starts_with('}') {
        ""
    } else {
        ","
    };
    let quote = |text: &str| serde_json::Value::from(text).to_string();
    Ok(format!("{before}{}:{}{comma}{after}", quote(&name), quote(key)).into_bytes())
}

/// The one member of this name. Two of them would leave it to the receiver which one counts.
fn member<'a>(object: &'a RawValue, name: &str) -> Result<Option<&'a RawValue>, &'static str> {
    let members: Members = serde_json::from_str(object.get()).map_err(|_| {
        if object.get().starts_with('{') {
            "an object in the body cannot be read"
        } else {
            "what would hold it is not an object"
        }
    })?;
    let mut named = members.0.into_iter().filter(|(known, _)| known == name);
    let found = named.next().map(|(_, value)| value);
    if named.next().is_some() {
        return Err("a member on the way stands there twice");
    }
    Ok(found)
}

/// An object's members in order, none folded into another, values untouched.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry::<String, &'de RawValue>()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        from.deserialize_map(Collect)
    }
}

#[cfg(test)]
mod tests;
