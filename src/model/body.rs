//! The body of a request, as an envelope has it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};

use super::envelope::RequestError;
use super::ids::RequestId;

/// A larger body than this lies in a file of its own, in bytes.
pub const INLINE_BYTES_MAX: usize = 64 * 1024;

/// A body, as text where it is UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "BodyFields")]
pub enum Body {
    /// The bytes are this UTF-8 text.
    Text(String),
    /// The bytes in base64 with padding.
    Base64(String),
    /// The bytes are in `bodies/ID`, where ID is the item's own, and are so many.
    File {
        /// The item whose body it is.
        id: RequestId,
        /// Its length.
        bytes: u64,
    },
}

/// A body as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BodyFields {
    text: Option<String>,
    base64: Option<String>,
    file: Option<String>,
    bytes: Option<u64>,
}

/// Where the bodies of items lie, relative to the spool.
pub const BODIES: &str = "bodies/";

impl TryFrom<BodyFields> for Body {
    type Error = &'static str;

    fn try_from(fields: BodyFields) -> Result<Self, Self::Error> {
        match (fields.text, fields.base64, fields.file, fields.bytes) {
            (Some(text), None, None, None) => Ok(Self::Text(text)),
            (None, Some(base64), None, None) => Ok(Self::Base64(base64)),
            (None, None, Some(file), Some(bytes)) => {
                let id = file.strip_prefix(BODIES).and_then(|id| id.parse().ok());
                let id = id.ok_or("a body's file is bodies/ and the item's id")?;
                Ok(Self::File { id, bytes })
            }
            _ => Err("a body is `text`, or `base64`, or `file` and `bytes`"),
        }
    }
}

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        match self {
            Self::Text(text) => map.serialize_entry("text", text)?,
            Self::Base64(text) => map.serialize_entry("base64", text)?,
            Self::File { id, bytes } => {
                map.serialize_entry("file", &format!("{BODIES}{id}"))?;
                map.serialize_entry("bytes", bytes)?;
            }
        }
        map.end()
    }
}

impl Body {
    /// Wraps bytes, as text if they are UTF-8.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        String::from_utf8(bytes).map_or_else(
            |error| Self::Base64(STANDARD.encode(error.as_bytes())),
            Self::Text,
        )
    }

    /// The bytes; `None` if they are in a file.
    ///
    /// # Errors
    ///
    /// [`RequestError::Base64`] if the text is not base64.
    pub fn to_bytes(&self) -> Result<Option<Vec<u8>>, RequestError> {
        match self {
            Self::Text(text) => Ok(Some(text.clone().into_bytes())),
            Self::Base64(text) => STANDARD
                .decode(text)
                .map(Some)
                .map_err(|_| RequestError::Base64),
            Self::File { .. } => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn any_bytes_come_back() {
        for bytes in [&b""[..], b"text", &[0xff, 0, 1], "ü".as_bytes()] {
            let body = Body::from_bytes(bytes.to_vec());
            let stored = serde_json::to_string(&body).unwrap();
            let back: Body = serde_json::from_str(&stored).unwrap();
            assert_eq!(back.to_bytes().unwrap().unwrap(), bytes);
        }
    }

    #[test]
    fn a_body_is_written_in_one_of_three_ways() {
        let id = "019adf3e-6b6b-7cc3-98f2-3a1c5d2e8f10";
        for text in [
            r#"{"text":"a"}"#.to_owned(),
            r#"{"base64":"AA=="}"#.to_owned(),
            format!(r#"{{"file":"bodies/{id}","bytes":70000}}"#),
        ] {
            let body: Body = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_string(&body).unwrap(), text);
        }
        for text in [
            "{}".to_owned(),
            r#"{"text":"a","base64":"AA=="}"#.to_owned(),
            r#"{"text":"a","bytes":1}"#.to_owned(),
            format!(r#"{{"file":"bodies/{id}"}}"#),
            format!(r#"{{"file":"/etc/{id}","bytes":1}}"#),
            r#"{"file":"bodies/../lock","bytes":1}"#.to_owned(),
        ] {
            assert!(serde_json::from_str::<Body>(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_bound_of_a_body_in_its_envelope_is_as_documented() {
        assert_eq!(INLINE_BYTES_MAX, 65_536);
    }
}
