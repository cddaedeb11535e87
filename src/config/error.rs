//! Faults of a configuration, all of them at once, each with the place a person must go to.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::model::fault::Fault;

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// There is no such file.
    #[error("{} does not exist (`tickpost init` writes a commented one; --config names another)", path.display())]
    Missing {
        /// The file that was asked for.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("cannot read {}", path.display())]
    Io {
        /// What was to be read.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// What was read is not a configuration. Never empty; sorted by file, then line.
    #[error("{}", Lines(.0))]
    Faults(Vec<FileFault>),
}

impl ConfigError {
    /// The faults of the text, if the text is what is wrong.
    #[must_use]
    pub fn faults(&self) -> &[FileFault] {
        match self {
            Self::Faults(faults) => faults,
            Self::Missing { .. } | Self::Io { .. } => &[],
        }
    }
}

/// One fault and its place, as `FILE:LINE: message (hint)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFault {
    /// The file.
    pub file: PathBuf,
    /// The line, the first being 1.
    pub line: usize,
    /// What is wrong, in lower case and without a period.
    pub message: String,
    /// What to do instead.
    pub hint: Option<String>,
}

impl FileFault {
    /// A fault of `text`, which stands in `file`.
    pub(super) fn locate(file: &std::path::Path, text: &str, fault: Fault) -> Self {
        Self {
            file: file.to_owned(),
            line: line_of(text, fault.span.start),
            message: fault.message,
            hint: fault.hint,
        }
    }
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

/// Faults, one a line.
struct Lines<'a>(&'a [FileFault]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

/// The line of a byte of `text`, the first being 1.
pub(super) fn line_of(text: &str, byte: usize) -> usize {
    let before = text.as_bytes().iter().take(byte);
    1 + before.filter(|&&b| b == b'\n').count()
}
