//! Secrets cut out of what comes back.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use secrecy::{ExposeSecret as _, SecretString};

use super::secret::basic;
use crate::config::Auth;

/// What stands where a secret stood.
const MARK: &str = "[secret]";

/// Cuts secrets out of what comes back: an echo of our request must not end in the spool.
///
/// A secret is found as it is, in base64 and in hex; and each character of these as it is or as
/// JSON, HTML and URLs escape it. Which characters are escaped is every library's own choice, so
/// any mixture counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Redactor {
    secrets: Vec<SecretString>,
}

/// A coded secret that is shorter stands in too many innocent texts.
const CODED_BYTES_MIN: usize = 4;

/// So much of a secret at the end of a text that broke off is a part of that secret.
const PART_BYTES_MIN: usize = 8;

/// No escape of one character is longer.
const ESCAPE_BYTES_MAX: usize = 10;

impl Redactor {
    /// A redactor of one authentication.
    pub(super) fn new(auth: &Auth, secret: &str) -> Self {
        let mut redactor = Self::default();
        if let Auth::Basic { user, .. } = auth {
            redactor.add(&basic(user, secret));
        }
        redactor.add(secret);
        redactor
    }

    /// Also cuts out this one.
    pub(super) fn add(&mut self, secret: &str) {
        let hex = in_hex(secret);
        let coded = [
            STANDARD.encode(secret),
            STANDARD_NO_PAD.encode(secret),
            URL_SAFE.encode(secret),
            URL_SAFE_NO_PAD.encode(secret),
            hex.to_ascii_uppercase(),
            hex,
        ];
        self.know(secret);
        for coded in coded {
            if coded.len() >= CODED_BYTES_MIN {
                self.know(&coded);
            }
        }
    }

    fn know(&mut self, text: &str) {
        let known = |known: &SecretString| known.expose_secret() == text;
        if !text.is_empty() && !self.secrets.iter().any(known) {
            self.secrets.push(SecretString::from(text));
        }
    }

    /// The text without secrets.
    pub(super) fn text(&self, text: String) -> String {
        match self.clean(text.as_bytes(), false) {
            Some(clean) => String::from_utf8_lossy(&clean).into_owned(),
            None => text,
        }
    }

    /// The bytes without secrets; without the first part of one at the end, if they were `cut`.
    pub(super) fn bytes(&self, bytes: Vec<u8>, cut: bool) -> Vec<u8> {
        self.clean(&bytes, cut).unwrap_or(bytes)
    }

    /// `None` if there is nothing to cut out.
    fn clean(&self, text: &[u8], cut: bool) -> Option<Vec<u8>> {
        let mut clean = Vec::new();
        let mut kept = 0;
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            let found = self
                .secrets
                .iter()
                .filter_map(|secret| length(secret.expose_secret(), rest, cut))
                .max();
            if let Some(len) = found {
                clean.extend_from_slice(&text[kept..at]);
                clean.extend_from_slice(MARK.as_bytes());
                at += len;
                kept = at;
            } else {
                at += 1;
            }
        }
        if kept == 0 {
            return None;
        }
        clean.extend_from_slice(&text[kept..]);
        Some(clean)
    }
}

/// How long the secret is that `text` begins with, as it is spelled there.
fn length(secret: &str, text: &[u8], cut: bool) -> Option<usize> {
    let first = secret.as_bytes().first()?;
    if text[0] != *first && !matches!(text[0], b'\\' | b'%' | b'&' | b'+') {
        return None;
    }
    // A secret may itself hold what looks like an escape, so both readings are followed.
    let mut ends = vec![0];
    for (index, c) in secret.char_indices() {
        let mut next: Vec<usize> = Vec::new();
        for end in ends {
            let rest = &text[end..];
            if cut && index >= PART_BYTES_MIN && breaks_off(c, rest) {
                return Some(text.len());
            }
            for len in [plain(c, rest), escaped(c, rest)].into_iter().flatten() {
                if !next.contains(&(end + len)) {
                    next.push(end + len);
                }
            }
        }
        if next.is_empty() {
            return None;
        }
        ends = next;
    }
    ends.into_iter().max()
}

/// Whether the text ends before or within a character.
fn breaks_off(c: char, rest: &[u8]) -> bool {
    let mut buffer = [0; 4];
    let whole = c.encode_utf8(&mut buffer).as_bytes();
    let escape = rest.len() < ESCAPE_BYTES_MAX
        && matches!(rest.first(), Some(b'\\' | b'%' | b'&'))
        && rest[1..]
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'#');
    rest.len() < whole.len() && whole.starts_with(rest)
        || escape && plain(c, rest).is_none() && escaped(c, rest).is_none()
}

/// The length of a character that stands for itself.
fn plain(c: char, text: &[u8]) -> Option<usize> {
    let mut buffer = [0; 4];
    let whole = c.encode_utf8(&mut buffer).as_bytes();
    text.starts_with(whole).then_some(whole.len())
}

/// The length of a character's escape in JSON, HTML or a URL.
fn escaped(c: char, text: &[u8]) -> Option<usize> {
    match *text.first()? {
        b'+' => (c == ' ').then_some(1),
        b'\\' => match *text.get(1)? {
            b'u' => (hex(text.get(2..6)?)? == u32::from(c)).then_some(6),
            mark @ (b'/' | b'"' | b'\'' | b'\\') => (c == char::from(mark)).then_some(2),
            _ => None,
        },
        b'%' => {
            let mut buffer = [0; 4];
            let bytes = c.encode_utf8(&mut buffer).as_bytes();
            let same = |(&byte, code): (&u8, &[u8])| {
                code[0] == b'%' && hex(&code[1..]) == Some(u32::from(byte))
            };
            let codes = text.get(..3 * bytes.len())?.chunks_exact(3);
            bytes.iter().zip(codes).all(same).then_some(3 * bytes.len())
        }
        b'&' => {
            let inside = text
                .iter()
                .take(ESCAPE_BYTES_MAX)
                .position(|b| *b == b';')?;
            let name = &text[1..inside];
            let meant = match name {
                b"amp" | b"AMP" => Some(u32::from('&')),
                b"lt" | b"LT" => Some(u32::from('<')),
                b"gt" | b"GT" => Some(u32::from('>')),
                b"quot" | b"QUOT" => Some(u32::from('"')),
                b"apos" => Some(u32::from('\'')),
                [b'#', b'x' | b'X', code @ ..] => hex(code),
                [b'#', code @ ..] => std::str::from_utf8(code).ok()?.parse().ok(),
                _ => None,
            };
            (meant? == u32::from(c)).then_some(inside + 1)
        }
        _ => None,
    }
}

fn in_hex(text: &str) -> String {
    text.bytes()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

fn hex(digits: &[u8]) -> Option<u32> {
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use crate::config::SecretRef;

    #[test]
    fn every_form_of_a_secret_is_cut_out() {
        let auth = Auth::Basic {
            user: "u".into(),
            password: SecretRef::Env("X".into()),
        };
        let redactor = Redactor::new(&auth, "p\"w&");
        let coded = basic("u", "p\"w&");
        let echo = format!("a p\"w& b Basic {coded} c p\\\"w& d p%22w%26 p\"w&p\"w&");
        let want = "a [secret] b Basic [secret] c [secret] d [secret] [secret][secret]";
        assert_eq!(redactor.text(echo.clone()), want);
        assert_eq!(redactor.bytes(echo.into_bytes(), false), want.as_bytes());
        assert_eq!(redactor.bytes(b"\xff\0".to_vec(), false), b"\xff\0");
        assert_eq!(Redactor::default().text("x".into()), "x");
        assert!(!format!("{redactor:?}").contains("p\\\"w"));
    }

    #[test]
    fn every_library_escapes_in_its_own_way() {
        let secret = "abcDEF/ghi+jkl&mno==<>'\"é";
        let redactor = Redactor::new(&Auth::Bearer(SecretRef::Env("X".into())), secret);
        let each = |escape: &dyn Fn(char) -> Option<String>| -> String {
            secret
                .chars()
                .map(|c| escape(c).unwrap_or_else(|| c.to_string()))
                .collect()
        };
        let mark = |c: char| !c.is_ascii_alphanumeric();
        let percent = |c: char, upper: bool| -> String {
            let mut buffer = [0; 4];
            let bytes = c.encode_utf8(&mut buffer).bytes();
            bytes
                .map(|b| {
                    if upper {
                        format!("%{b:02X}")
                    } else {
                        format!("%{b:02x}")
                    }
                })
                .collect()
        };
        let hex = in_hex(secret);
        let echoes = [
            secret.replace('"', "\\\""),
            secret.replace('/', "\\/").replace('"', "\\\""),
            each(&|c| mark(c).then(|| format!("\\u{:04x}", u32::from(c)))),
            each(&|c| mark(c).then(|| format!("\\u{:04X}", u32::from(c)))),
            each(&|c| {
                "&<>"
                    .contains(c)
                    .then(|| format!("\\u{:04x}", u32::from(c)))
            }),
            secret
                .replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('>', "&gt;")
                .replace('"', "&quot;")
                .replace('\'', "&#39;"),
            secret
                .replace('&', "&amp;")
                .replace('/', "&#x2F;")
                .replace('\'', "&#x27;"),
            each(&|c| mark(c).then(|| percent(c, true))),
            each(&|c| mark(c).then(|| percent(c, false))),
            each(&|c| (mark(c) && c != '/').then(|| percent(c, true))),
            each(&|c| (mark(c) && c != '/').then(|| percent(c, false))),
            STANDARD.encode(secret),
            STANDARD_NO_PAD.encode(secret),
            URL_SAFE.encode(secret),
            URL_SAFE_NO_PAD.encode(secret),
            STANDARD
                .encode(secret)
                .replace('/', "\\/")
                .replace('=', "%3d"),
            hex.to_ascii_uppercase(),
            hex,
        ];
        for echo in echoes {
            let text = format!("\\ & % &amp; {echo} é");
            assert_eq!(redactor.text(text), "\\ & % &amp; [secret] é", "{echo}");
        }
        let innocent = "abcDEF/ghi+jkl&amp;mno= %41 \\u0041 &#65; &unknown; \\";
        assert_eq!(redactor.text(innocent.to_owned()), innocent);
        // What looks like an escape may be the secret's own.
        let mut odd = Redactor::default();
        odd.add("100%25&amp;x");
        assert_eq!(
            odd.text("a 100%25&amp;x b 100%2525&amp;amp;x".to_owned()),
            "a [secret] b [secret]"
        );
    }

    #[test]
    fn the_first_part_of_a_secret_is_cut_off_a_text_that_broke_off() {
        let redactor = Redactor::new(&Auth::Bearer(SecretRef::Env("X".into())), "abcDEF/ghi+jkl");
        let clean = |text: &str, cut| {
            String::from_utf8(redactor.bytes(text.as_bytes().to_vec(), cut)).unwrap()
        };
        for end in [
            "abcDEF/g",
            "abcDEF/ghi+jk",
            "abcDEF%2Fg",
            "abcDEF\\/ghi\\u00",
            "abcDEF/ghi%",
            "abcDEF/ghi&#4",
        ] {
            let text = format!("a {end}");
            assert_eq!(clean(&text, true), "a [secret]", "{end}");
            assert_eq!(clean(&text, false), text, "{end}");
        }
        for kept in ["a abcDEF/", "a abcDEF/gh!", "a abcDEF/ghi&lt;"] {
            assert_eq!(clean(kept, true), kept);
        }
    }
}
