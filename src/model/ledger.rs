//! The line of a ledger: that an item was accepted, for whom and when.

use serde::{Deserialize, Serialize};

use super::envelope::Envelope;
use super::ids::{DestName, RequestId};
use super::time::UnixMs;

/// How every line begins. JSON escapes quotes, so no text within a line holds this.
const START: &[u8] = b"{\"request_id\":\"";

/// How long an id is as text, in bytes.
const ID_BYTES: usize = 36;

/// One accepted item, as a ledger lists it.
///
/// Written as one line of JSON, the request id first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// The item.
    pub request_id: RequestId,
    /// Where it is to go.
    pub destination: DestName,
    /// The person or program that asked.
    #[serde(default)]
    pub principal: Option<String>,
    /// When it was accepted.
    pub at: UnixMs,
}

impl Listed {
    /// What a ledger says of an item that was accepted then.
    #[must_use]
    pub fn of(envelope: &Envelope, at: UnixMs) -> Self {
        Self {
            request_id: envelope.request_id,
            destination: envelope.destination.clone(),
            principal: envelope.requester.principal.clone(),
            at,
        }
    }

    /// It as a line with its newline.
    ///
    /// # Errors
    ///
    /// An error of JSON encoding, which this type does not have.
    pub fn line(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }
}

/// What stands between two newlines of a ledger. A loss of power leaves zeros or a piece of a line
/// without its end, and the next line is then appended to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'l> {
    text: Option<&'l [u8]>,
    torn: bool,
}

impl<'l> Line<'l> {
    /// Looks at a line.
    #[must_use]
    pub fn of(line: &'l [u8]) -> Self {
        let start = last_start(line);
        Self {
            text: start.map(|start| &line[start..]),
            torn: start.unwrap_or(line.len()) > 0,
        }
    }

    /// Whether something that cannot be read stands before its last beginning, or in place of all.
    #[must_use]
    pub fn is_torn(&self) -> bool {
        self.torn
    }

    /// The id that it begins with, whatever comes after.
    #[must_use]
    pub fn id(&self) -> Option<RequestId> {
        let id = self.text?.get(START.len()..START.len() + ID_BYTES)?;
        std::str::from_utf8(id).ok()?.parse().ok()
    }

    /// All of it; `None` if it is not whole.
    #[must_use]
    pub fn listed(&self) -> Option<Listed> {
        serde_json::from_slice(self.text?).ok()
    }
}

/// Where the last beginning of a line is.
fn last_start(line: &[u8]) -> Option<usize> {
    let mut end = line.len();
    while let Some(at) = line[..end].iter().rposition(|b| *b == b'{') {
        if line[at..].starts_with(START) {
            return Some(at);
        }
        end = at;
    }
    None
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    fn listed(principal: &str) -> Listed {
        Listed {
            request_id: "019adf3e-6b6b-7cc3-98f2-3a1c5d2e8f10".parse().unwrap(),
            destination: "billing".parse().unwrap(),
            principal: Some(principal.to_owned()),
            at: UnixMs::parse("2026-11-29T15:40:03.123Z").unwrap(),
        }
    }

    fn text(listed: &Listed) -> Vec<u8> {
        let mut line = listed.line().unwrap();
        assert_eq!(line.pop(), Some(b'\n'));
        line
    }

    #[test]
    fn a_line_comes_back_whatever_its_requester_is_called() {
        for name in ["alice", "", "{\"request_id\":\"", "a\nb\u{0}{{", "ü"] {
            let listed = listed(name);
            let text = text(&listed);
            assert!(text.starts_with(START) && !text.contains(&b'\n'), "{name}");
            let line = Line::of(&text);
            assert_eq!((line.listed(), line.is_torn()), (Some(listed), false));
            assert_eq!(line.id(), line.listed().map(|listed| listed.request_id));
        }
        let nobody = r#"{"request_id":"019adf3e-6b6b-7cc3-98f2-3a1c5d2e8f10","destination":"a","principal":null,"at":"2026-11-29T15:40:03.123Z","later":1}"#;
        assert_eq!(
            Line::of(nobody.as_bytes()).listed().unwrap().principal,
            None
        );
    }

    #[test]
    fn what_follows_damage_is_read_and_the_damage_is_told() {
        let whole = listed("alice");
        let line = text(&whole);
        for before in [&b"\0\0\0\0"[..], &line[..50], &line[..10], b"}", &line] {
            let text = [before, &line].concat();
            let torn = Line::of(&text);
            assert_eq!(torn.listed().as_ref(), Some(&whole));
            assert!(torn.is_torn());
        }
    }

    #[test]
    fn no_piece_of_a_line_lists_anything() {
        let line = text(&listed("alice"));
        for end in 0..line.len() {
            let piece = Line::of(&line[..end]);
            assert_eq!(piece.listed(), None, "{end}");
            assert_eq!(piece.id().is_some(), end >= START.len() + ID_BYTES, "{end}");
        }
        for start in 1..line.len() {
            let piece = Line::of(&line[start..]);
            assert_eq!(
                (piece.listed(), piece.id(), piece.is_torn()),
                (None, None, true)
            );
        }
        let mut zeros = line.clone();
        zeros[60..70].fill(0);
        assert_eq!(Line::of(&zeros).listed(), None);
        let mut other_id = line;
        other_id[20] = b'x';
        assert_eq!(Line::of(&other_id).id(), None);
    }
}
