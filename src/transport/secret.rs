//! Secrets: read when they are needed, shown to nobody.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::SecretString;
use secrecy::zeroize::Zeroizing;

use crate::config::{Auth, SecretRef, open_regular};
use crate::model::envelope::sha256_hex;

/// A secret is a line of text; whatever is longer was named by mistake.
const SECRET_BYTES_MAX: u64 = 16 * 1024;

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
    open_regular(path)?
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

/// The credentials of Basic, as its header carries them.
pub(super) fn basic(user: &str, password: &str) -> String {
    STANDARD.encode(format!("{user}:{password}"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use secrecy::ExposeSecret as _;

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
}
