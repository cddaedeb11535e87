//! Names that become paths: checked once here, safe everywhere after.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// An item's identity, and the key that every attempt carries: a lower-case UUID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub Uuid);

/// Why a text is not a request id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a request id: a lower-case UUID such as 019adf3e-6b6b-7cc3-98f2-3a1c5d2e8f10"
)]
pub struct RequestIdError(pub String);

impl FromStr for RequestId {
    type Err = RequestIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || RequestIdError(text.to_owned());
        let id = Uuid::try_parse(text).map_err(|_| refuse())?;
        // One spelling only: the id is a file name and an idempotency key, compared byte by byte.
        if id.hyphenated().to_string() == text && !id.is_nil() {
            Ok(Self(id))
        } else {
            Err(refuse())
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A destination's name: `[a-z0-9][a-z0-9._-]{0,62}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DestName(String);

/// Why a text is not a destination's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` is not a destination name: 1 to 63 of a-z 0-9 . _ -, the first a letter or digit",
    .0.escape_debug()
)]
pub struct DestNameError(pub String);

impl DestName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DestName {
    type Err = DestNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = text.as_bytes();
        let plain = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let fits = (1..=63).contains(&bytes.len())
            && bytes.first().is_some_and(plain)
            && bytes.iter().all(|b| plain(b) || b"._-".contains(b));
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            Err(DestNameError(text.to_owned()))
        }
    }
}

impl fmt::Display for DestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for DestName {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for DestName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling_of_an_id() {
        assert!(
            "019adf3e-6b6b-7cc3-98f2-3a1c5d2e8f10"
                .parse::<RequestId>()
                .is_ok()
        );
        for text in [
            "",
            "019ADF3E-6b6b-7cc3-98f2-3a1c5d2e8f10",
            "019adf3e6b6b7cc398f23a1c5d2e8f10",
            "{019adf3e-6b6b-7cc3-98f2-3a1c5d2e8f10}",
            "urn:uuid:019adf3e-6b6b-7cc3-98f2-3a1c5d2e8f10",
            "00000000-0000-0000-0000-000000000000",
            "../../../etc/passwd",
        ] {
            assert!(text.parse::<RequestId>().is_err(), "{text}");
        }
    }

    #[test]
    fn destination_names() {
        let longest = "a".repeat(63);
        for name in ["a", "0", "billing", "a.b_c-d", longest.as_str()] {
            assert!(name.parse::<DestName>().is_ok(), "{name}");
        }
        let long = "a".repeat(64);
        for name in [
            "",
            ".",
            "..",
            ".a",
            "-a",
            "A",
            "a/b",
            "a b",
            "ü",
            "a\0",
            long.as_str(),
        ] {
            assert!(name.parse::<DestName>().is_err(), "{name}");
        }
    }

    #[test]
    fn a_name_is_shown_as_it_was_given() {
        for name in ["billing", "a.b_c-d"] {
            let parsed: Result<DestName, _> = name.parse();
            let shown = parsed.map(|name| (name.as_str().to_owned(), name.to_string()));
            assert_eq!(shown, Ok((name.to_owned(), name.to_owned())));
        }
    }
}
