//! A saved HTTP response, as `curl -i` prints it → an answer that rules can judge.

use super::outcome::Answer;

/// How much of a body is kept, as when it is read from the wire.
pub const BODY_BYTES_MAX: usize = 64 * 1024;

/// Why a text is not a saved response. Lines count from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SavedError {
    /// There is nothing in it.
    #[error("the response is empty")]
    Empty,
    /// A head should begin here, but no status line does.
    #[error("line {line} is `{text}`, not a status line such as `HTTP/1.1 200 OK`")]
    NoStatusLine {
        /// Which line.
        line: usize,
        /// Its beginning.
        text: String,
    },
    /// A line of the head is not a header.
    #[error("line {line} is `{text}`, not a header such as `name: value`")]
    BadHeader {
        /// Which line.
        line: usize,
        /// Its beginning.
        text: String,
    },
}

/// Reads a response: status line (HTTP/1.0, 1.1, 2 or 3), headers, a blank line, the body.
///
/// Lines end with CRLF or LF. Interim answers (1xx) and a proxy's `Connection established`
/// before the answer are skipped. A body shorter than `content-length` is marked as cut, a
/// longer one ends there, and so does one of more than 64 KiB; where the answer was encoded,
/// the length is not compared, because curl may have decoded the body.
///
/// # Errors
///
/// [`SavedError`] if it does not begin with the head of a response.
pub fn parse(bytes: &[u8]) -> Result<Answer, SavedError> {
    let mut lines = Lines {
        rest: bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes),
        line: 0,
    };
    if lines.rest.iter().all(u8::is_ascii_whitespace) {
        return Err(SavedError::Empty);
    }
    loop {
        let (mut answer, phrase) = head(&mut lines)?;
        if is_interim(answer.status, &phrase) && lines.rest.starts_with(b"HTTP/") {
            continue;
        }
        body(&mut answer, lines.rest);
        return Ok(answer);
    }
}

fn is_interim(status: u16, phrase: &str) -> bool {
    (100..200).contains(&status) || phrase.eq_ignore_ascii_case("connection established")
}

struct Lines<'a> {
    rest: &'a [u8],
    line: usize,
}

impl Lines<'_> {
    /// The next line without its end; `None` after the last.
    fn next(&mut self) -> Option<String> {
        if self.rest.is_empty() {
            return None;
        }
        self.line += 1;
        let end = self.rest.iter().position(|b| *b == b'\n');
        let (line, rest) = match end {
            Some(end) => (&self.rest[..end], &self.rest[end + 1..]),
            None => (self.rest, &self.rest[self.rest.len()..]),
        };
        self.rest = rest;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        Some(String::from_utf8_lossy(line).into_owned())
    }
}

fn head(lines: &mut Lines<'_>) -> Result<(Answer, String), SavedError> {
    let mut first = String::new();
    while let Some(line) = lines.next() {
        if !line.trim().is_empty() {
            first = line;
            break;
        }
    }
    let Some((status, phrase)) = status_line(&first) else {
        return Err(SavedError::NoStatusLine {
            line: lines.line,
            text: beginning(&first),
        });
    };
    let mut answer = Answer {
        status,
        ..Answer::default()
    };
    while let Some(line) = lines.next().filter(|line| !line.is_empty()) {
        // RFC 9112, 5.2: an obsolete fold goes on with the value before it.
        if line.starts_with([' ', '\t'])
            && let Some((_, value)) = answer.headers.last_mut()
        {
            let more = line.trim();
            if !value.is_empty() && !more.is_empty() {
                value.push(' ');
            }
            value.push_str(more);
            continue;
        }
        match line.split_once(':') {
            Some((name, value)) if is_token(name) => answer
                .headers
                .push((name.to_ascii_lowercase(), value.trim().to_owned())),
            Some(_) | None => {
                return Err(SavedError::BadHeader {
                    line: lines.line,
                    text: beginning(&line),
                });
            }
        }
    }
    Ok((answer, phrase))
}

/// The status and the phrase behind it.
fn status_line(line: &str) -> Option<(u16, String)> {
    let (version, rest) = line.trim_end().split_once(' ')?;
    if !matches!(
        version,
        "HTTP/1.0" | "HTTP/1.1" | "HTTP/2" | "HTTP/2.0" | "HTTP/3" | "HTTP/3.0"
    ) {
        return None;
    }
    let rest = rest.trim_start();
    let (code, phrase) = rest.split_once(' ').unwrap_or((rest, ""));
    match code.as_bytes() {
        [b'1'..=b'9', b'0'..=b'9', b'0'..=b'9'] => {
            Some((code.parse().ok()?, phrase.trim().to_owned()))
        }
        _ => None,
    }
}

fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

fn beginning(line: &str) -> String {
    line.chars().take(40).collect()
}

fn body(answer: &mut Answer, bytes: &[u8]) {
    let mut bytes = bytes;
    // These have no body, whatever length they name (RFC 9110, 8.6).
    let bodiless = matches!(answer.status, 100..=199 | 204 | 304);
    let encoded = answer
        .header("content-encoding")
        .is_some_and(|how| !how.eq_ignore_ascii_case("identity"))
        || answer.header("transfer-encoding").is_some();
    let length = answer
        .header("content-length")
        .and_then(|length| length.parse::<usize>().ok())
        .filter(|_| !bodiless && !encoded);
    if let Some(length) = length {
        answer.cut = bytes.len() < length;
        bytes = &bytes[..bytes.len().min(length)];
    }
    if bytes.len() > BODY_BYTES_MAX {
        answer.cut = true;
        bytes = &bytes[..BODY_BYTES_MAX];
    }
    answer.body = bytes.to_vec();
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    /// Text, status, headers, body, cut, why.
    type Row = (
        &'static str,
        u16,
        &'static [(&'static str, &'static str)],
        &'static str,
        bool,
        &'static str,
    );

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table of cases")]
    fn what_curl_prints() {
        let rows: [Row; 13] = [
            (
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX: 1\r\n\r\nhi\r\n",
                200,
                &[("content-type", "text/plain"), ("x", "1")],
                "hi\r\n",
                false,
                "CRLF; the body is kept to the byte",
            ),
            (
                "HTTP/1.0 404 Not Found\nX: 1\n\n",
                404,
                &[("x", "1")],
                "",
                false,
                "LF",
            ),
            (
                "HTTP/2 503 \r\nretry-after: 5\r\n\r\n{}",
                503,
                &[("retry-after", "5")],
                "{}",
                false,
                "2",
            ),
            ("HTTP/3 429\n\n", 429, &[], "", false, "3, no phrase"),
            (
                "HTTP/1.1 429 Slow\nRetry-After: 1",
                429,
                &[("retry-after", "1")],
                "",
                false,
                "head only",
            ),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 C\r\n\r\nx",
                201,
                &[],
                "x",
                false,
                "interim",
            ),
            (
                "HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/2 202\r\n\r\n",
                202,
                &[],
                "",
                false,
                "a proxy, then hints",
            ),
            (
                "HTTP/1.1 100 Continue\r\n\r\n",
                100,
                &[],
                "",
                false,
                "an interim answer alone",
            ),
            (
                "HTTP/1.1 200 OK\nContent-Length: 9\n\nabc",
                200,
                &[("content-length", "9")],
                "abc",
                true,
                "cut",
            ),
            (
                "HTTP/1.1 200 OK\nContent-Length: 2\n\nab\n",
                200,
                &[("content-length", "2")],
                "ab",
                false,
                "an editor's newline",
            ),
            (
                "HTTP/1.1 304 N\nContent-Length: 9\n\n",
                304,
                &[("content-length", "9")],
                "",
                false,
                "no body by rule",
            ),
            (
                "HTTP/1.1 200 OK\nX: a\n  b\n\n",
                200,
                &[("x", "a b")],
                "",
                false,
                "a folded header",
            ),
            (
                "\nHTTP/1.1 200 OK\n\nHTTP/1.1 is a text",
                200,
                &[],
                "HTTP/1.1 is a text",
                false,
                "a body about HTTP",
            ),
        ];
        for (text, status, headers, body, cut, why) in rows {
            let answer = parse(text.as_bytes()).unwrap();
            assert_eq!(answer.status, status, "{why}");
            let got: Vec<(&str, &str)> = answer
                .headers
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect();
            assert_eq!(got, headers, "{why}");
            assert_eq!(answer.body, body.as_bytes(), "{why}");
            assert_eq!(answer.cut, cut, "{why}");
        }
    }

    #[test]
    fn a_long_body_is_cut() {
        let mut bytes = b"HTTP/1.1 200 OK\n\n".to_vec();
        bytes.resize(bytes.len() + BODY_BYTES_MAX + 1, b'x');
        let answer = parse(&bytes).unwrap();
        assert_eq!((answer.body.len(), answer.cut), (BODY_BYTES_MAX, true));
    }

    #[test]
    fn garbage_is_told_by_its_line() {
        let rows: [(&[u8], &str); 6] = [
            (b" \n", "the response is empty"),
            (
                b"{\"a\":1}",
                "line 1 is `{\"a\":1}`, not a status line such as `HTTP/1.1 200 OK`",
            ),
            (
                b"HTTP/1.1 20 OK\n\n",
                "line 1 is `HTTP/1.1 20 OK`, not a status line such as `HTTP/1.1 200 OK`",
            ),
            (
                b"HTTP/9 200 OK\n\n",
                "line 1 is `HTTP/9 200 OK`, not a status line such as `HTTP/1.1 200 OK`",
            ),
            (
                b"HTTP/1.1 200 OK\n{}\n",
                "line 2 is `{}`, not a header such as `name: value`",
            ),
            (
                b"HTTP/1.1 100 C\n\nHTTP/1.1 x\n\n",
                "line 3 is `HTTP/1.1 x`, not a status line such as `HTTP/1.1 200 OK`",
            ),
        ];
        for (bytes, want) in rows {
            assert_eq!(parse(bytes).unwrap_err().to_string(), want);
        }
        assert!(
            parse(&[0xff, 0xfe, 0, b'\n', 0xff]).is_err(),
            "no panic on bytes"
        );
    }

    #[test]
    fn what_is_no_part_of_a_line() {
        let rows = [
            ("x: a\n\n", "a", "a blank before"),
            ("x:a  \n\n", "a", "blanks behind"),
            ("x: a\n b\n\tc\n\n", "a b c", "two folds"),
            ("x:\n b\n\n", "b", "a fold of nothing"),
            ("x: a\n \n\n", "a", "a fold with nothing"),
            (
                "X-a!#$%&'*+.^_`|~9: a: b\n\n",
                "a: b",
                "every character of a name",
            ),
        ];
        for (head, want, why) in rows {
            let answer = parse(format!("HTTP/1.1 200 OK\n{head}").as_bytes()).unwrap();
            let [(name, value)] = &answer.headers[..] else {
                panic!("one header: {why}");
            };
            assert_eq!(value, want, "{why}");
            assert_eq!(*name, name.to_ascii_lowercase(), "{why}");
        }
        for head in [" x: a\n\n", ": a\n\n", "a b: c\n\n", "\u{e4}: c\n\n"] {
            let error = parse(format!("HTTP/1.1 200 OK\n{head}").as_bytes()).unwrap_err();
            assert!(
                matches!(error, SavedError::BadHeader { line: 2, .. }),
                "{head}"
            );
        }
        let long = format!("HTTP/1.1 200 OK\r\nx: 1\r\n{}", "\u{e4}".repeat(50));
        let error = parse(long.as_bytes()).unwrap_err();
        let text = "\u{e4}".repeat(40);
        assert_eq!(error, SavedError::BadHeader { line: 3, text });
    }

    #[test]
    fn every_version_and_status() {
        for version in ["1.0", "1.1", "2", "2.0", "3", "3.0"] {
            for (code, want) in [("100", 100), ("204", 204), ("599", 599), ("999", 999)] {
                for phrase in ["", " ", " OK", " Not OK"] {
                    let line = format!("HTTP/{version} {code}{phrase}\n\n");
                    assert_eq!(parse(line.as_bytes()).unwrap().status, want, "{line}");
                }
            }
        }
        for line in [
            "HTTP/0.9 200",
            "HTTP/1.1 099",
            "HTTP/1.1 2000",
            "HTTP/1.1 2x0",
            "HTTP/1.1",
        ] {
            let error = parse(line.as_bytes()).unwrap_err();
            assert!(
                matches!(error, SavedError::NoStatusLine { line: 1, .. }),
                "{line}"
            );
        }
    }

    #[test]
    fn only_heads_before_the_answer_are_skipped() {
        let rows = [
            ("HTTP/1.1 199 X\n\n", 204, "interim"),
            ("HTTP/1.1 200 connection ESTABLISHED\n\n", 204, "a proxy"),
            ("HTTP/1.1 200 OK\n\n", 200, "an answer"),
        ];
        for (head, want, why) in rows {
            let text = format!("{head}HTTP/1.1 204 N\n\n");
            assert_eq!(parse(text.as_bytes()).unwrap().status, want, "{why}");
            let text = format!("{head}else");
            let answer = parse(text.as_bytes()).unwrap();
            assert_ne!(answer.status, 204, "{why}: what follows is its body");
            assert_eq!(answer.body, b"else", "{why}");
        }
    }

    #[test]
    fn a_body_is_as_long_as_its_head_says() {
        let rows = [
            ("content-length: 3", "abc", "abc", false, "exactly"),
            ("content-length: 2", "abc", "ab", false, "more came"),
            ("content-length: 4", "abc", "abc", true, "less came"),
            (
                "content-length: 4\ncontent-encoding: gzip",
                "abc",
                "abc",
                false,
                "decoded",
            ),
            (
                "content-length: 4\ncontent-encoding: Identity",
                "abc",
                "abc",
                true,
                "as it is",
            ),
            (
                "content-length: 4\ntransfer-encoding: chunked",
                "abc",
                "abc",
                false,
                "framed",
            ),
            ("content-length: four", "abc", "abc", false, "not a number"),
        ];
        for (head, body, want, cut, why) in rows {
            let text = format!("HTTP/1.1 200 OK\n{head}\n\n{body}");
            let answer = parse(text.as_bytes()).unwrap();
            assert_eq!(
                (answer.body.as_slice(), answer.cut),
                (want.as_bytes(), cut),
                "{why}"
            );
        }
        for (status, cut) in [
            (100, false),
            (199, false),
            (200, true),
            (204, false),
            (205, true),
            (304, false),
        ] {
            let text = format!("HTTP/1.1 {status} X\ncontent-length: 4\n\nabc");
            assert_eq!(parse(text.as_bytes()).unwrap().cut, cut, "{status}");
        }
        assert_eq!(BODY_BYTES_MAX, 65_536);
        let mut bytes = b"HTTP/1.1 200 OK\n\n".to_vec();
        bytes.resize(bytes.len() + BODY_BYTES_MAX, b'x');
        assert!(!parse(&bytes).unwrap().cut, "it just fits");
    }
}
