//! The key that every attempt of an item carries, in the receiver's spelling.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use uuid::Builder;

use super::ids::RequestId;

/// Where a destination's key goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// The place in the request.
    pub place: KeyPlace,
    /// The receiver's spelling.
    pub format: KeyFormat,
}

/// The place of the key in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPlace {
    /// A header of this name.
    Header(String),
    /// A member of the JSON body, by JSON pointer.
    JsonBody(String),
    /// A field of the form body.
    FormBody(String),
    /// A query parameter.
    Query(String),
    /// The placeholder `{request_id}` in the path.
    UrlPath,
    /// The content names itself; nothing is put in.
    Natural,
    /// No key is sent.
    None,
}

/// The receiver's spelling of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFormat {
    /// The request id as it is.
    Raw,
    /// A structured-field string: in double quotes (RFC 9651, 4.1.6).
    SfString,
    /// A UUID of version 4 made from the id's hash, where a receiver insists on that version.
    Uuid,
    /// The id's 128 bits in base64url: 22 characters.
    Short22,
    /// A timestamp identifier of AT Protocol: 13 characters from 63 bits of the id's hash.
    Tid,
}

/// The alphabet of AT Protocol's sortable base32.
const SORTABLE: &[u8; 32] = b"234567abcdefghijklmnopqrstuvwxyz";

impl KeySpec {
    /// Whether a key by which the receiver de-duplicates goes along with every attempt. A
    /// natural key does so without anything being put in.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        !matches!(self.place, KeyPlace::None)
    }

    /// The text to put into the request; `None` when nothing is put in.
    #[must_use]
    pub fn text(&self, id: RequestId) -> Option<String> {
        match self.place {
            KeyPlace::Header(_)
            | KeyPlace::JsonBody(_)
            | KeyPlace::FormBody(_)
            | KeyPlace::Query(_)
            | KeyPlace::UrlPath => Some(self.format.text(id)),
            KeyPlace::Natural | KeyPlace::None => None,
        }
    }
}

impl KeyFormat {
    /// An item's key in this spelling: a pure function of the id, never of the attempt.
    #[must_use]
    pub fn text(self, id: RequestId) -> String {
        match self {
            Self::Raw => id.to_string(),
            // An id holds neither quotes nor backslashes, so there is nothing to escape.
            Self::SfString => format!("\"{id}\""),
            Self::Uuid => {
                let mut bytes = [0; 16];
                bytes.copy_from_slice(&hash(id)[..16]);
                Builder::from_random_bytes(bytes)
                    .into_uuid()
                    .hyphenated()
                    .to_string()
            }
            Self::Short22 => URL_SAFE_NO_PAD.encode(id.0.as_bytes()),
            Self::Tid => tid(id),
        }
    }
}

/// The first 63 bits of the id's hash as 13 sortable characters. The top bit stays zero, as the
/// format asks.
fn tid(id: RequestId) -> String {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hash(id)[..8]);
    let bits = u64::from_be_bytes(bytes) >> 1;
    (0..13)
        .rev()
        .map(|place| {
            let five = usize::try_from((bits >> (5 * place)) & 31).unwrap_or(0);
            char::from(SORTABLE[five])
        })
        .collect()
}

fn hash(id: RequestId) -> [u8; 32] {
    Sha256::digest(id.to_string().as_bytes()).into()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use std::collections::BTreeSet;

    use super::*;

    fn id(text: &str) -> RequestId {
        text.parse().unwrap()
    }

    const ONE: &str = "019adf3e-6b6b-7cc3-98f2-3a1c5d2e8f10";

    #[test]
    fn every_spelling_of_one_id() {
        // Fixed for ever: a change here would send a second key for an item under way.
        let rows = [
            (KeyFormat::Raw, ONE),
            (
                KeyFormat::SfString,
                "\"019adf3e-6b6b-7cc3-98f2-3a1c5d2e8f10\"",
            ),
            (KeyFormat::Uuid, "2580509c-8f3b-42d2-9def-ff977727d30f"),
            (KeyFormat::Short22, "AZrfPmtrfMOY8jocXS6PEA"),
            (KeyFormat::Tid, "37k3cdt5tvcfd"),
        ];
        for (format, want) in rows {
            assert_eq!(format.text(id(ONE)), want, "{format:?}");
        }
    }

    #[test]
    fn spellings_keep_to_their_alphabets_and_differ() {
        let ids: Vec<_> = (1..500_u128)
            .map(|n| RequestId(uuid::Uuid::from_u128(n << 64 | n)))
            .collect();
        for format in [
            KeyFormat::Raw,
            KeyFormat::SfString,
            KeyFormat::Uuid,
            KeyFormat::Short22,
            KeyFormat::Tid,
        ] {
            let texts: BTreeSet<_> = ids.iter().map(|id| format.text(*id)).collect();
            assert_eq!(texts.len(), ids.len(), "{format:?}");
        }
        for id in ids {
            let uuid: uuid::Uuid = KeyFormat::Uuid.text(id).parse().unwrap();
            assert_eq!(uuid.get_version_num(), 4);
            assert_eq!(uuid.get_variant(), uuid::Variant::RFC4122);
            assert_eq!(KeyFormat::Short22.text(id).len(), 22);
            let tid = KeyFormat::Tid.text(id);
            assert_eq!(tid.len(), 13);
            assert!(b"234567abcdefghij".contains(&tid.as_bytes()[0]), "{tid}");
            assert!(tid.bytes().all(|b| SORTABLE.contains(&b)), "{tid}");
        }
    }

    #[test]
    fn what_counts_as_sent_and_what_is_put_in() {
        let rows = [
            (KeyPlace::Header("x".into()), true, true),
            (KeyPlace::JsonBody("/x".into()), true, true),
            (KeyPlace::FormBody("x".into()), true, true),
            (KeyPlace::Query("x".into()), true, true),
            (KeyPlace::UrlPath, true, true),
            (KeyPlace::Natural, true, false),
            (KeyPlace::None, false, false),
        ];
        for (place, sent, put_in) in rows {
            let spec = KeySpec {
                place,
                format: KeyFormat::Raw,
            };
            assert_eq!(spec.is_sent(), sent, "{spec:?}");
            assert_eq!(spec.text(id(ONE)).is_some(), put_in, "{spec:?}");
        }
    }
}
