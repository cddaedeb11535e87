//! Secrets: read when they are needed, shown to nobody, cut out of what comes back.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret as _, SecretString};

use crate::config::{Auth, SecretRef};
use crate::model::envelope::sha256_hex;

/// A secret is a line of text; whatever is longer was named by mistake.
const SECRET_BYTES_MAX: u64 = 16 * 1024;

/// What stands where a secret stood.
const MARK: &str = "[secret]";

/// Why a secret cannot be used. Names the place, never the value.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read.
    #[error("cannot read the secret in {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said; in the text, for the text is all that is kept.
        source: io::Error,
    },
    /// The variable is not set, or is not UTF-8.
    #[error("environment variable {0} with the secret is not set")]
    Env(String),
    /// The credential's name would leave the directory.
    #[error("credential `{}` is not the name of a systemd credential", .0.escape_debug())]
    CredentialName(String),
    /// Not started by systemd with credentials.
    #[error("credential {0} cannot be read: CREDENTIALS_DIRECTORY is not set")]
    NoCredentials(String),
    /// The value cannot be a credential.
    #[error("the secret in {place} {why}")]
    Unusable {
        /// The file or variable.
        place: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// The secret that an authentication needs.
#[must_use]
pub fn reference(auth: &Auth) -> &SecretRef {
    match auth {
        Auth::Bearer(secret)
        | Auth::Basic {
            password: secret, ..
        }
        | Auth::Header { value: secret, .. } => secret,
    }
}

/// Reads a secret, less one newline at its end.
///
/// # Errors
///
/// [`SecretError`] if it is not there, empty, or no line of text.
pub fn read(secret: &SecretRef) -> Result<SecretString, SecretError> {
    let (place, text) = match secret {
        SecretRef::Env(name) => {
            let text = std::env::var(name).map_err(|_| SecretError::Env(name.clone()))?;
            (format!("environment variable {name}"), Zeroizing::new(text))
        }
        SecretRef::File(_) | SecretRef::Credential(_) => {
            let path = file_of(secret)?;
            let place = path.display().to_string();
            let text = read_file(&path)
                .map_err(|source| SecretError::Read { path, source })?
                .ok_or_else(|| SecretError::Unusable {
                    place: place.clone(),
                    why: "is too long or not UTF-8",
                })?;
            (place, text)
        }
    };
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    let why = if line.is_empty() {
        "is empty"
    } else if line.chars().any(char::is_control) {
        "holds a control character, such as a second line"
    } else {
        return Ok(SecretString::from(line));
    };
    Err(SecretError::Unusable { place, why })
}

/// Something that changes when the file of a secret is changed or replaced; `None` for an
/// environment variable and for a file that is not there. It says nothing of the value.
#[must_use]
pub fn fingerprint(secret: &SecretRef) -> Option<String> {
    let found = fs::metadata(file_of(secret).ok()?).ok()?;
    let seen = [
        i128::from(found.dev()),
        i128::from(found.ino()),
        i128::from(found.size()),
        i128::from(found.mtime()),
        i128::from(found.mtime_nsec()),
    ];
    // Hashed, so that not even the length can be read from it.
    Some(sha256_hex(format!("{seen:?}").as_bytes()))
}

fn file_of(secret: &SecretRef) -> Result<PathBuf, SecretError> {
    match secret {
        SecretRef::File(path) => Ok(path.clone()),
        SecretRef::Credential(name) => {
            if name.is_empty() || name.starts_with('.') || name.contains('/') {
                return Err(SecretError::CredentialName(name.clone()));
            }
            std::env::var_os("CREDENTIALS_DIRECTORY")
                .map(|directory| Path::new(&directory).join(name))
                .ok_or_else(|| SecretError::NoCredentials(name.clone()))
        }
        SecretRef::Env(name) => Err(SecretError::Env(name.clone())),
    }
}

/// The text of a file; `None` if it is too long or no text.
fn read_file(path: &Path) -> io::Result<Option<Zeroizing<String>>> {
    let mut bytes = Zeroizing::new(Vec::new());
    File::open(path)?
        .take(SECRET_BYTES_MAX + 1)
        .read_to_end(&mut bytes)?;
    let fits = u64::try_from(bytes.len()).is_ok_and(|len| len <= SECRET_BYTES_MAX);
    let text = std::str::from_utf8(&bytes).ok().filter(|_| fits);
    Ok(text.map(|text| Zeroizing::new(text.to_owned())))
}

/// A header that proves who we are.
#[derive(Clone, Debug)]
pub struct Credential {
    name: String,
    value: SecretString,
}

impl Credential {
    /// Makes the header of an authentication from its secret.
    #[must_use]
    pub fn new(auth: &Auth, secret: &str) -> Self {
        let (name, value) = match auth {
            Auth::Bearer(_) => ("authorization", format!("Bearer {secret}")),
            Auth::Basic { user, .. } => ("authorization", format!("Basic {}", basic(user, secret))),
            Auth::Header { name, prefix, .. } => (name.as_str(), format!("{prefix}{secret}")),
        };
        Self {
            name: name.to_ascii_lowercase(),
            value: SecretString::from(value),
        }
    }

    /// The header's name, in lower case.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The header's value, secret and all.
    #[must_use]
    pub fn value(&self) -> &SecretString {
        &self.value
    }
}

fn basic(user: &str, password: &str) -> String {
    STANDARD.encode(format!("{user}:{password}"))
}

/// Cuts secrets out of what comes back: an echo of our request must not end in the spool.
///
/// A secret is found as it is, in base64 and in hex; and each character of these as it is or as
/// JSON, HTML and URLs escape it. Which characters are escaped is every library's own choice, so
/// any mixture counts.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
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
    #[must_use]
    pub fn new(auth: &Auth, secret: &str) -> Self {
        let mut redactor = Self::default();
        if let Auth::Basic { user, .. } = auth {
            redactor.add(&basic(user, secret));
        }
        redactor.add(secret);
        redactor
    }

    /// Also cuts out this one.
    pub fn add(&mut self, secret: &str) {
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
    #[must_use]
    pub fn text(&self, text: String) -> String {
        match self.clean(text.as_bytes(), false) {
            Some(clean) => String::from_utf8_lossy(&clean).into_owned(),
            None => text,
        }
    }

    /// The bytes without secrets; without the first part of one at the end, if they were `cut`.
    #[must_use]
    pub fn bytes(&self, bytes: Vec<u8>, cut: bool) -> Vec<u8> {
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

    fn file(bytes: &[u8]) -> (tempfile::TempDir, SecretRef) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        fs::write(&path, bytes).unwrap();
        (dir, SecretRef::File(path))
    }

    #[test]
    fn one_newline_is_cut_and_nothing_else() {
        for (bytes, want) in [
            (&b"abc"[..], "abc"),
            (b"abc\n", "abc"),
            (b"abc\r\n", "abc"),
            (b" a b \n", " a b "),
        ] {
            let (_dir, secret) = file(bytes);
            assert_eq!(read(&secret).unwrap().expose_secret(), want);
        }
        let long = vec![b'x'; 20_000];
        for bytes in [&b""[..], b"\n", b"a\n\n", b"a\nb", b"a\0", b"\xff", &long] {
            let (dir, secret) = file(bytes);
            let error = read(&secret).unwrap_err().to_string();
            assert!(error.contains(dir.path().to_str().unwrap()), "{error}");
        }
    }

    #[test]
    fn what_is_not_there_is_named() {
        for (secret, want) in [
            (SecretRef::File("/nonexistent/a".into()), "/nonexistent/a"),
            (
                SecretRef::Env("TICKPOST_NOT_SET".into()),
                "TICKPOST_NOT_SET",
            ),
            (SecretRef::Credential("../x".into()), "../x"),
        ] {
            let error = read(&secret).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
            assert_eq!(fingerprint(&secret), None);
        }
    }

    #[test]
    fn fingerprint_follows_the_file() {
        let (_dir, secret) = file(b"one");
        let SecretRef::File(path) = &secret else {
            unreachable!("made above")
        };
        let first = fingerprint(&secret).unwrap();
        assert_eq!(fingerprint(&secret).unwrap(), first);
        let other = path.with_extension("new");
        fs::write(&other, "two").unwrap();
        fs::rename(&other, path).unwrap();
        assert_ne!(
            fingerprint(&secret).unwrap(),
            first,
            "replaced by one of the same length"
        );
    }

    #[test]
    fn headers_of_every_authentication() {
        let secret = || SecretRef::Env("X".into());
        let rows = [
            (Auth::Bearer(secret()), "authorization", "Bearer pw"),
            (
                Auth::Basic {
                    user: "u".into(),
                    password: secret(),
                },
                "authorization",
                "Basic dTpwdw==",
            ),
            (
                Auth::Header {
                    name: "X-Token".into(),
                    prefix: "v1 ".into(),
                    value: secret(),
                },
                "x-token",
                "v1 pw",
            ),
        ];
        for (auth, name, value) in rows {
            let credential = Credential::new(&auth, "pw");
            assert_eq!(credential.name(), name);
            assert_eq!(credential.value().expose_secret(), value);
            assert!(!format!("{credential:?}").contains("pw"));
        }
    }

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
