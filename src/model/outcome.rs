//! What the wire showed of one attempt, without an opinion.

use serde::{Deserialize, Serialize};

/// What was seen of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A response head arrived.
    Answered(Answer),
    /// Certain: no byte of the request can have reached the receiver's application.
    NotSent(Failure),
    /// The request, or a part of it, may have reached the receiver.
    MaybeSent(Failure),
    /// The process that was sending it died; nothing is known.
    Interrupted,
}

/// The same without its contents, as events store it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeKind {
    /// See [`Outcome::Answered`].
    Answered,
    /// See [`Outcome::NotSent`].
    NotSent,
    /// See [`Outcome::MaybeSent`].
    MaybeSent,
    /// See [`Outcome::Interrupted`].
    Interrupted,
}

impl Outcome {
    /// The outcome without its contents.
    #[must_use]
    pub fn kind(&self) -> OutcomeKind {
        match self {
            Self::Answered(_) => OutcomeKind::Answered,
            Self::NotSent(_) => OutcomeKind::NotSent,
            Self::MaybeSent(_) => OutcomeKind::MaybeSent,
            Self::Interrupted => OutcomeKind::Interrupted,
        }
    }

    /// The outcome of a transport failure, by its class.
    #[must_use]
    pub fn failed(class: TransportClass, detail: impl Into<String>) -> Self {
        let failure = Failure {
            class,
            detail: detail.into(),
        };
        if class.is_not_sent() {
            Self::NotSent(failure)
        } else {
            Self::MaybeSent(failure)
        }
    }
}

/// A response, as far as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// Header names in lower case, and values; in the order of arrival.
    pub headers: Vec<(String, String)>,
    /// The body, at most 64 KiB of it.
    pub body: Vec<u8>,
    /// The body is not whole: it broke off, or it was longer than what is read. No rule looks
    /// into a body that was cut.
    pub cut: bool,
}

impl Answer {
    /// The first value of a header; `name` in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }
}

/// How the transport failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The class that rules match.
    pub class: TransportClass,
    /// The cause in words, for a person; never a secret, never a URL's query.
    pub detail: String,
}

macro_rules! classes {
    ($($variant:ident $text:literal $not_sent:literal $doc:literal,)*) => {
        /// How an attempt failed without a whole answer. The names are those of rules and of
        /// `rules test --transport`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum TransportClass { $(#[doc = $doc] $variant,)* }

        impl TransportClass {
            /// Every class.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name that rules use.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// Whether it is certain that no byte of the request reached the application.
            #[must_use]
            pub fn is_not_sent(self) -> bool {
                match self { $(Self::$variant => $not_sent,)* }
            }

            /// Reads a class by the name that rules use.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|class| class.as_str() == text)
            }
        }
    };
}

classes! {
    DnsFailure "dns_failure" true "The name could not be resolved.",
    ConnectRefused "connect_refused" true "The connection was refused.",
    ConnectTimeout "connect_timeout" true "No connection within the connect timeout.",
    ConnectUnreachable "connect_unreachable" true "No route, reset while connecting, and the like.",
    ProxyConnectFailed "proxy_connect_failed" true "The proxy could not make the connection.",
    TlsHandshakeFailed "tls_handshake_failed" true "The TLS handshake failed without a verdict on the certificate.",
    TlsCertInvalid "tls_cert_invalid" true "The certificate is expired, untrusted or of another name.",
    LocalError "local_error" true "The request could not be built on this side.",
    ClosedBeforeWrite "closed_before_write" true "The connection closed before the first byte was handed over.",
    H2RefusedStream "h2_refused_stream" true "HTTP/2 `REFUSED_STREAM`: guaranteed unprocessed (RFC 9113, 8.7).",
    H2GoawayUnprocessed "h2_goaway_unprocessed" true "HTTP/2 GOAWAY below our stream: guaranteed unprocessed (RFC 9113, 8.7).",
    WriteInterrupted "write_interrupted" false "Broke after the first byte and before the last.",
    TimeoutAfterSend "timeout_after_send" false "Sent, and no answer in time.",
    ResetAfterSend "reset_after_send" false "Sent, then reset.",
    ClosedNoResponse "closed_no_response" false "Sent, then closed without an answer.",
    MalformedResponse "malformed_response" false "What came back is not HTTP.",
    TruncatedHeaders "truncated_headers" false "The answer broke off inside its head.",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_of_two_things() {
        for class in TransportClass::ALL.iter().copied() {
            assert_eq!(TransportClass::parse(class.as_str()), Some(class));
            let outcome = Outcome::failed(class, "why");
            let failure = Failure {
                class,
                detail: "why".to_owned(),
            };
            let (want, kind) = if class.is_not_sent() {
                (Outcome::NotSent(failure), OutcomeKind::NotSent)
            } else {
                (Outcome::MaybeSent(failure), OutcomeKind::MaybeSent)
            };
            assert_eq!((outcome.kind(), outcome), (kind, want));
        }
        let answered = Outcome::Answered(Answer::default());
        assert_eq!(answered.kind(), OutcomeKind::Answered);
        assert_eq!(Outcome::Interrupted.kind(), OutcomeKind::Interrupted);
    }

    #[test]
    fn only_what_comes_before_the_first_byte_is_certain() {
        let sent: Vec<&str> = TransportClass::ALL
            .iter()
            .filter(|class| !class.is_not_sent())
            .map(|class| class.as_str())
            .collect();
        let want = [
            "write_interrupted",
            "timeout_after_send",
            "reset_after_send",
            "closed_no_response",
            "malformed_response",
            "truncated_headers",
        ];
        assert_eq!(sent, want);
        assert_eq!(TransportClass::ALL.len(), 17);
    }

    #[test]
    fn the_first_line_of_a_header_counts() {
        let headers = [("a", "1"), ("b", "2"), ("b", "3")];
        let answer = Answer {
            headers: headers.map(|(n, v)| (n.to_owned(), v.to_owned())).to_vec(),
            ..Answer::default()
        };
        assert_eq!(
            (answer.header("a"), answer.header("b")),
            (Some("1"), Some("2"))
        );
        assert_eq!(answer.header("c"), None);
    }
}
