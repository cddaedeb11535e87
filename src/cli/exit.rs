//! Error → exit code and hint, in one place.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::ExitCode;

use crate::config::ConfigError;
use crate::intake::Full;
use crate::store::StoreError;
use crate::store::disk::Room;
use crate::store::file::is_spool;
use crate::users;

/// An error of a command's own, with its exit code.
#[derive(Debug, thiserror::Error)]
pub(super) enum CliError {
    /// The words on the command line do not go together. Exit code 2.
    #[error("{0}")]
    Usage(String),
    /// What was given is not acceptable. Exit code 65.
    #[error("{0}")]
    Data(String),
    /// There is no such item or file. Exit code 66.
    #[error("{0}")]
    NoInput(String),
    /// There is no room for more. Exit code 75.
    #[error(transparent)]
    Full(#[from] Full),
    /// There is no room on the disk for a tick. Exit code 74.
    #[error(
        "no room on the disk ({} bytes, {} files free): nothing more is sent, and nothing taken in",
        .0.bytes, .0.files
    )]
    NoRoom(Room),
    /// It was done, but not all of it. Exit code 1.
    #[error("{0}")]
    Partly(String),
    /// It was waited for, and the time is over. Exit code 75.
    #[error("{0}")]
    Timeout(String),
    /// The results say it all: only the exit code is left.
    #[error("exit code {0}")]
    Said(u8),
    /// The configuration refers to what cannot be read. Exit code 78.
    #[error("{0}")]
    Config(String),
    /// Standard output cannot be written. Exit code 74.
    #[error("cannot write the results")]
    Output(#[source] std::io::Error),
    /// A file of the user's cannot be read. Exit code 74, or 66 if it is not there.
    #[error("cannot read {path}")]
    Input {
        /// Which.
        path: String,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// A file that the user wants cannot be written. Exit code 74, or 77 without the right to.
    #[error("cannot write {path}")]
    Unwritable {
        /// Which.
        path: String,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

/// Whether the results say it all already.
#[must_use]
pub(super) fn is_said(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(CliError::Said(_)))
}

/// What an error says, with its causes and what to do next, where it is a part of an answer.
#[must_use]
pub(super) fn in_words(error: &anyhow::Error) -> String {
    let (_, hint) = judge(error);
    let hint = hint.map_or(String::new(), |hint| format!("; {hint}"));
    format!("{error:#}{hint}")
}

/// The exit code of an error, and what to do next.
#[must_use]
pub(super) fn judge(error: &anyhow::Error) -> (u8, Option<String>) {
    for cause in error.chain() {
        if let Some(error) = cause.downcast_ref::<CliError>() {
            return of_cli(error);
        }
        if let Some(error) = cause.downcast_ref::<StoreError>() {
            return of_store(error);
        }
        if let Some(error) = cause.downcast_ref::<ConfigError>() {
            return (78, of_config(error));
        }
    }
    (
        70,
        Some("this is a bug in tickpost; nothing was lost".to_owned()),
    )
}

fn of_cli(error: &CliError) -> (u8, Option<String>) {
    match error {
        CliError::Usage(_) => (2, None),
        CliError::Data(_) => (65, None),
        CliError::NoInput(_) => (66, None),
        CliError::NoRoom(_) => (
            74,
            Some(
                "free some space, or shorten [retention] of the configuration; the next tick goes on once there is room"
                    .to_owned(),
            ),
        ),
        CliError::Partly(_) => (1, None),
        CliError::Full(_) | CliError::Timeout(_) => (75, None),
        CliError::Said(code) => (*code, None),
        CliError::Config(_) => (78, None),
        CliError::Input { source, .. } if source.kind() == ErrorKind::NotFound => (66, None),
        CliError::Input { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            (77, None)
        }
        CliError::Unwritable { source, .. } if source.kind() == ErrorKind::PermissionDenied => (
            77,
            Some("name a directory that you may write to".to_owned()),
        ),
        CliError::Input { .. } | CliError::Output(_) | CliError::Unwritable { .. } => (74, None),
    }
}

fn of_config(error: &ConfigError) -> Option<String> {
    let is_fault = !error.faults().is_empty();
    is_fault.then(|| {
        "nothing was touched; mend the configuration and look at it with `tickpost config check`"
            .to_owned()
    })
}

fn of_store(error: &StoreError) -> (u8, Option<String>) {
    let (code, hint) = match error {
        StoreError::Missing { .. } => (
            73,
            "make one with `tickpost --spool DIR init`, or name another with --spool or $TICKPOST_SPOOL",
        ),
        StoreError::Undescribed { .. } => (
            73,
            "put the file back from a backup of this spool; without one, `tickpost init` makes a new one, and then `tickpost doctor --adopt` holds or parks all that waits until you release or resolve it",
        ),
        StoreError::NotCreatable { .. } => (
            73,
            "make its parent directory, or name a place that you may write to with --spool",
        ),
        StoreError::Nested { .. } => (73, "nothing was made; name a directory elsewhere"),
        StoreError::Occupied { .. } => (
            73,
            "nothing was changed; name a directory that is empty or not there yet, as in `tickpost --spool DIR/spool init`",
        ),
        StoreError::Locked { .. } => (75, "try again later, or wait for it with `--wait SECONDS`"),
        StoreError::NotOwner { owner, you, .. } => {
            let name = users::name(*owner).unwrap_or_else(|| format!("#{owner}"));
            let become_it = if *you == 0 { "runuser" } else { "sudo" };
            let dashes = if *you == 0 { " --" } else { "" };
            return (
                77,
                Some(format!(
                    "run it as the spool's owner, `{become_it} -u {name}{dashes} tickpost …`, or hand items in through its drop box, incoming/DEST, if that is open to you"
                )),
            );
        }
        StoreError::FormatTooNew { .. } | StoreError::JournalTooNew { .. } => (
            78,
            "nothing was touched; use the newer tickpost that wrote it",
        ),
        StoreError::BadSpoolFile { .. } => (
            78,
            "nothing was touched; put the file back from a backup of this spool. Without one, move the file out of the spool, then `tickpost init` makes a new one, and `tickpost doctor --adopt` holds or parks all that waits until you release or resolve it",
        ),
        StoreError::Copied { .. } => (
            78,
            "two spools with the same items would send them twice. If the original is gone, or is never to send again, `tickpost doctor --adopt` makes this one a spool of its own: all that waits in it is held or parked until you have seen what was sent since, and release or resolve it",
        ),
        StoreError::Network { .. } => (
            78,
            "locks and syncs cannot be relied on there; use a local disk, or set `allow_network_filesystem = true` in [store] of the configuration",
        ),
        StoreError::NotDirectory { .. } => (
            78,
            "links are not followed: put a directory there, or move the whole spool and name it with --spool",
        ),
        StoreError::Exists { .. } => (65, "nothing was changed"),
        StoreError::Restless { .. } => (
            75,
            "run it again; nothing was accepted under that key or id",
        ),
        // After the rename: the item is perhaps accepted, which 77 would deny.
        StoreError::Io {
            op: "sync directory" | "sync directory again",
            ..
        } => (
            74,
            "what was being written is perhaps there: look with `tickpost list` before you repeat it",
        ),
        StoreError::Io { path, source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            return (77, Some(access_words(path)));
        }
        StoreError::Io { path, source, .. }
            if source.kind() == ErrorKind::NotFound && is_lock(path) =>
        {
            (
                74,
                "by its lock a spool is told from a copy, and nothing is sent or accepted without it: make sure that no other spool holds these items, then `tickpost doctor --adopt` makes a new one, and holds or parks all that waits until you release or resolve it",
            )
        }
        StoreError::Io { source, .. } if source.kind() == ErrorKind::NotFound => (
            74,
            "something of the spool is not there any more: `tickpost init` makes directories that are missing",
        ),
        StoreError::Io { source, .. } if is_full(source) => (
            74,
            "make room on the disk and run the command again; what was recorded is not lost",
        ),
        StoreError::Io { .. } => (
            74,
            "nothing more was done; what was recorded is not lost, and the next tick goes on from there. An `enqueue` is repeated safely under the same --key or --request-id",
        ),
        StoreError::Poisoned => (74, "look at the first error; run the command again"),
        StoreError::Encode { .. } => (70, "this is a bug in tickpost; nothing was lost"),
    };
    (code, Some(hint.to_owned()))
}

/// What to do where the spool's owner may not do something: the right that is missing is that of
/// the path, or of the directory that it is in, or would be.
fn access_words(path: &Path) -> String {
    let lacks = |at: &Path| {
        let meta = std::fs::symlink_metadata(at).ok()?;
        let wanted = if meta.is_dir() { 0o700 } else { 0o600 };
        (!meta.is_symlink() && meta.permissions().mode() & wanted != wanted).then(|| meta.is_dir())
    };
    let mut way = path.ancestors();
    let lacking = way.find_map(|at| Some((at, lacks(at)?)));
    let what = "the spool's owner must be able to read and write it";
    match lacking {
        Some((at, is_dir)) => {
            let right = if is_dir { "u+rwx" } else { "u+rw" };
            format!("{what}: `chmod {right} '{}'`", at.display())
        }
        None => what.to_owned(),
    }
}

/// Whether a path is that of a spool's lock.
fn is_lock(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "lock") && path.parent().is_some_and(is_spool)
}

fn is_full(source: &std::io::Error) -> bool {
    [ErrorKind::StorageFull, ErrorKind::QuotaExceeded].contains(&source.kind())
}

/// A code as the process ends with it.
#[must_use]
pub(super) fn code(code: u8) -> ExitCode {
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use std::fs::{self, Permissions};

    use super::*;

    #[test]
    fn the_right_that_is_missing_is_named_with_the_command_that_gives_it() {
        let dir = tempfile::tempdir().unwrap();
        let journal = dir.path().join("journal");
        let file = journal.join("00000001.jsonl");
        fs::create_dir(&journal).unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
        let words = |path: &Path| access_words(path);
        assert!(!words(&file).contains("chmod"), "{}", words(&file));
        for lacking in [0, 0o500] {
            mode(&journal, lacking).unwrap();
            let want = format!("`chmod u+rwx '{}'`", journal.display());
            assert!(words(&file).ends_with(&want), "{}", words(&file));
            assert!(words(&journal).ends_with(&want), "{}", words(&journal));
        }
        mode(&journal, 0o700).unwrap();
        fs::write(&file, "").unwrap();
        mode(&file, 0o400).unwrap();
        let want = format!("`chmod u+rw '{}'`", file.display());
        assert!(words(&file).ends_with(&want), "{}", words(&file));
    }
}
