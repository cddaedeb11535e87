//! The closed list of reasons: why an item is where it is.
//!
//! Logic reads the reason; the text for people is [`Reason::explain`]. A user's own profile may
//! add reasons that start with `x_`.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why an item is where it is; one of a closed list, or `x_…` from a user's own rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Reason(Cow<'static, str>);

/// Why a text is not a reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a reason: use one of the list in `tickpost rules list --reasons`, or x_NAME")]
pub struct ReasonError(pub String);

macro_rules! reasons {
    ($($name:ident $text:literal $explain:literal,)*) => {
        impl Reason {
            $(#[doc = $explain]
            pub const $name: Reason = Reason(Cow::Borrowed($text));)*

            /// Every built-in reason with its text for people, in the order of this file.
            pub const ALL: &'static [(&'static str, &'static str)] = &[$(($text, $explain),)*];
        }
    };
}

reasons! {
    ACCEPTED "accepted" "The receiver acknowledged it.",
    ACCEPTED_ASYNC "accepted_async" "The receiver took it and will act on it later.",
    ACCEPTED_PARTIAL "accepted_partial" "The receiver took it, but dropped a part.",
    DUPLICATE_CONFIRMED "duplicate_confirmed" "The receiver says that it had already acted on it.",
    IN_PROGRESS "in_progress" "The receiver is still working on an earlier attempt.",
    KEY_REUSED "key_reused" "The receiver knows this key with another body.",
    KEY_INVALID "key_invalid" "The receiver does not accept the form of the key.",
    KEY_REQUIRED "key_required" "The receiver wants an idempotency key and got none.",
    RATE_LIMITED "rate_limited" "The receiver asks to slow down.",
    QUOTA_EXHAUSTED "quota_exhausted" "A daily, monthly or storage limit is used up.",
    OVERLOADED "overloaded" "The receiver is overloaded.",
    MAINTENANCE "maintenance" "The receiver is being maintained.",
    TRANSIENT "transient" "The receiver says that the trouble will pass.",
    RESOURCE_LOCKED "resource_locked" "The resource is locked for now.",
    AUTH_INVALID "auth_invalid" "The receiver does not accept the credentials.",
    AUTH_EXPIRED "auth_expired" "The credentials have expired.",
    PERMISSION_DENIED "permission_denied" "The credentials do not permit this.",
    ACCOUNT_SUSPENDED "account_suspended" "The account is suspended.",
    BILLING_REQUIRED "billing_required" "The receiver wants to be paid first.",
    REVIEW_REQUIRED "review_required" "The receiver wants a person to review this.",
    LEGAL_BLOCK "legal_block" "The receiver refuses for legal reasons.",
    DESTINATION_GONE "destination_gone" "The address is gone for good.",
    DESTINATION_NOT_FOUND "destination_not_found" "The receiver does not know this address.",
    DESTINATION_MISCONFIGURED "destination_misconfigured" "The receiver refuses how the request is made.",
    DESTINATION_DISABLED "destination_disabled" "The destination is disabled.",
    MOVED "moved" "The address has moved; redirects are never followed.",
    INVALID_REQUEST "invalid_request" "The receiver rejects the content of the request.",
    TOO_LARGE "too_large" "The receiver rejects the request as too large.",
    TOO_LARGE_FOR_NOW "too_large_for_now" "The request is too large for the receiver at the moment.",
    CONTENT_REJECTED "content_rejected" "The receiver rejects what the request says.",
    CONTENT_DUPLICATE "content_duplicate" "The receiver already has the same content.",
    RECIPIENT_REJECTED "recipient_rejected" "The receiver rejects the addressee.",
    DUPLICATE_CONFLICT "duplicate_conflict" "Something of this name exists already.",
    CONFLICT "conflict" "The request conflicts with what the receiver holds.",
    POSSIBLE_DUPLICATE "possible_duplicate" "An earlier attempt of this item may have been acted on.",
    PARTIAL "partial" "The receiver acted on a part of it.",
    ERROR_IN_SUCCESS "error_in_success" "The status says success, the body says error.",
    UNRECOGNISED_ERROR "unrecognised_error" "The receiver names an error that no rule knows.",
    SERVER_ERROR "server_error" "The receiver failed while it handled the request.",
    CACHED_SERVER_ERROR "cached_server_error" "The receiver replays a stored failure for this key.",
    GATEWAY_ERROR "gateway_error" "A gateway lost the receiver's answer.",
    GATEWAY_TIMEOUT "gateway_timeout" "A gateway waited in vain for the receiver's answer.",
    ORIGIN_UNREACHABLE "origin_unreachable" "A gateway could not reach the receiver.",
    REQUEST_TIMEOUT "request_timeout" "The receiver did not get the whole request in time.",
    MISDIRECTED "misdirected" "The request reached a server that does not serve this address.",
    TOO_EARLY "too_early" "The receiver will not risk a request that might be replayed.",
    REDIRECT_AFTER_POST "redirect_after_post" "The receiver answered with a redirect, which may follow success.",
    UNEXPECTED_RESPONSE "unexpected_response" "The answer is not one that any rule knows.",
    NOT_ACCEPTED "not_accepted" "The answer is a success that no rule of this destination recognises.",
    DNS_FAILURE "dns_failure" "The host name could not be resolved.",
    CONNECT_FAILED "connect_failed" "No connection could be made.",
    TLS_ERROR "tls_error" "The TLS handshake failed.",
    TLS_CERT_INVALID "tls_cert_invalid" "The receiver's certificate is not valid.",
    LOCAL_ERROR "local_error" "The request could not be made on this side.",
    NOT_PROCESSED "not_processed" "The connection closed before the request was sent.",
    WRITE_INTERRUPTED "write_interrupted" "The connection broke while the request was being sent.",
    TIMEOUT_AFTER_SEND "timeout_after_send" "The request was sent and no answer came in time.",
    CONNECTION_LOST "connection_lost" "The request was sent and the connection broke before an answer.",
    TRUNCATED_BODY "truncated_body" "The answer broke off inside its body.",
    INTERRUPTED "interrupted" "The tick that was sending it ended before it saw an answer.",
    EXHAUSTED "exhausted" "No attempts are left.",
    EXPIRED "expired" "Its time was over before it could be delivered.",
    KEY_WINDOW_CLOSED "key_window_closed" "The receiver may have forgotten the key, so a repeat could act twice.",
    RESTORED "restored" "It comes from a copied or restored spool.",
    CANCELLED "cancelled" "A person cancelled it.",
    OPERATOR "operator" "A person decided it.",
    STALE "stale" "It would be sent for the first time long after it was due.",
}

impl Reason {
    /// The reason as it is stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads a reason that a rule or a command may use.
    ///
    /// # Errors
    ///
    /// [`ReasonError`] if `text` is neither on the list nor `x_` and a name of a-z, 0-9 and `_`.
    pub fn parse(text: &str) -> Result<Self, ReasonError> {
        if let Some((known, _)) = Self::ALL.iter().find(|(known, _)| *known == text) {
            return Ok(Self(Cow::Borrowed(known)));
        }
        match text.strip_prefix("x_") {
            Some(name) if is_word(name) => Ok(Self(Cow::Owned(text.to_owned()))),
            _ => Err(ReasonError(text.to_owned())),
        }
    }

    /// One sentence for a person.
    #[must_use]
    pub fn explain(&self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(known, _)| *known == self.0)
            .map_or("A rule of your own decided it.", |(_, text)| text)
    }
}

fn is_word(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Reason {
    /// Takes any word: an item may carry a reason that a later version knows.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(from)?;
        match Self::parse(&text) {
            Ok(reason) => Ok(reason),
            Err(_) if is_word(&text) => Ok(Self(Cow::Owned(text.into_owned()))),
            Err(error) => Err(serde::de::Error::custom(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn every_reason_is_read_shown_and_explained() {
        for (text, explain) in Reason::ALL {
            let reason = Reason::parse(text).unwrap();
            assert_eq!((reason.as_str(), reason.explain()), (*text, *explain));
            assert_eq!(reason.to_string(), *text);
            assert!(explain.ends_with('.'), "{text} is a sentence");
            let json = serde_json::to_string(&reason).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<Reason>(&json).unwrap(), reason);
        }
        assert_eq!(Reason::EXHAUSTED.as_str(), "exhausted");
        let mut names: Vec<&str> = Reason::ALL.iter().map(|(text, _)| *text).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Reason::ALL.len(), "each once");
    }

    #[test]
    fn own_reasons_and_those_of_a_later_version() {
        let longest = "a".repeat(64);
        let long = "a".repeat(65);
        let rows = [
            // A word behind `x_`, a word alone: may a rule use it, may an item carry it.
            ("mine", true, true),
            ("m1_", true, true),
            (longest.as_str(), true, true),
            (long.as_str(), false, false),
            ("", false, false),
            ("Mine", false, false),
            ("a-b", false, false),
            ("a b", false, false),
            ("\u{e4}", false, false),
        ];
        for (word, own, carried) in rows {
            let text = format!("x_{word}");
            let parsed = Reason::parse(&text);
            assert_eq!(parsed.is_ok(), own, "{text}");
            if let Ok(reason) = parsed {
                assert_eq!(reason.as_str(), text);
                assert_eq!(reason.explain(), "A rule of your own decided it.");
            }
            assert!(Reason::parse(word).is_err(), "{word} is not on the list");
            let read = serde_json::from_value::<Reason>(word.into());
            assert_eq!(read.is_ok(), carried, "{word}");
        }
    }
}
