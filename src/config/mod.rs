//! TOML → checked values, with file and line in every fault.
//!
//! # Guarantees
//!
//! 1. All faults are found in one go, each with its line and a way out.
//! 2. Nothing is ignored: a key that is not known, or not implemented yet, is a fault.
//! 3. No secret is read here, and no fault shows what may be one.
//!
//! # Not here
//!
//! Whether secrets and certificates exist, and whether a destination answers.

mod address;
mod auth;
mod command;
mod destination;
mod error;
mod fingerprint;
mod key;
mod load;
mod reader;
mod sections;
mod units;

pub use load::{open_regular, read_regular};

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::model::ids::DestName;
use crate::model::key::KeySpec;
use crate::model::notice::Form;
use crate::model::policy::Policy;
use crate::model::rules::RuleSet;
use crate::model::tombstone::Retention;

pub use error::{ConfigError, FileFault};

/// The configuration that `init` writes: every key with its default, commented out.
pub const SAMPLE: &str = include_str!("sample.toml");

/// The destination that `[notify] command` is. No other can have its name.
pub const NOTIFY_COMMAND: &str = "notify-command";

/// A whole, checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it was read from.
    pub path: PathBuf,
    /// `[tick]`.
    pub tick: Tick,
    /// `[retention]`.
    pub retention: Retention,
    /// `[limits]`.
    pub limits: Limits,
    /// `[notify]`.
    pub notify: Notify,
    /// `[store]`.
    pub store: Store,
    /// `[destination.*]`, by name; and [`NOTIFY_COMMAND`], if there is a command.
    pub destinations: BTreeMap<DestName, Destination>,
}

/// `[tick]`: bounds of one tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tick {
    /// No attempt begins later than this after the start, in milliseconds.
    pub max_runtime_ms: u64,
    /// Attempts under way at once, over all destinations.
    pub concurrency: usize,
    /// How long what is being sent may go on after the end, in milliseconds; absent means the
    /// longest total timeout of the destinations in use.
    pub grace_ms: Option<u64>,
}

/// `[limits]`: what `enqueue` refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest body in bytes.
    pub max_body_bytes: u64,
    /// How many items may be pending, unknown and held together; absent means any number.
    pub max_items: Option<u64>,
    /// How many bytes must be free on the spool's file system.
    pub min_free_bytes: u64,
}

/// `[notify]`: who is told when an item does not end well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notify {
    /// Destinations that are told of every item, beside the item's own. The command is the last.
    pub destinations: Vec<DestName>,
    /// Destinations to which notices go as plain text.
    pub in_text: Vec<DestName>,
    /// What is told.
    pub on: NotifyOn,
}

impl Notify {
    /// Who is told of files that are set aside.
    #[must_use]
    pub fn told_of_corrupt(&self) -> &[DestName] {
        if self.on.corrupt {
            &self.destinations
        } else {
            &[]
        }
    }
}

/// Which moves are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "four independent switches of the configuration"
)]
pub struct NotifyOn {
    /// Moves to held.
    pub held: bool,
    /// Moves to failed.
    pub failed: bool,
    /// Unknown items that only a person can settle.
    pub parked: bool,
    /// Files set aside in `corrupt/`.
    pub corrupt: bool,
}

impl Default for NotifyOn {
    fn default() -> Self {
        Self {
            held: true,
            failed: true,
            parked: true,
            corrupt: true,
        }
    }
}

/// `[store]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Store {
    /// Use a spool on a network file system all the same.
    pub allow_network_filesystem: bool,
}

/// One `[destination.NAME]`.
#[derive(Clone, Debug)]
pub struct Destination {
    /// Its name.
    pub name: DestName,
    /// Scheme, host, port and an optional path; no item can leave it.
    pub base_url: url::Url,
    /// How requests prove who we are.
    pub auth: Option<Auth>,
    /// Headers of every request.
    pub headers: Vec<(String, String)>,
    /// Where the key goes.
    pub key: KeySpec,
    /// Time and repetition.
    pub policy: Policy,
    /// No connection later than this, in milliseconds.
    pub connect_timeout_ms: u64,
    /// No whole answer later than this after the connection, in milliseconds.
    pub response_timeout_ms: u64,
    /// Attempts under way at once.
    pub concurrency: usize,
    /// The rate that is not exceeded.
    pub rate: Option<Rate>,
    /// The proxy; environment proxies are never used.
    pub proxy: Option<url::Url>,
    /// TLS beyond the system's roots.
    pub tls: Tls,
    /// What answers mean.
    pub rules: RuleSet,
    /// SHA-256 over the destination's own configuration, secrets not among it: when it
    /// changes, what the old one made hold may go.
    pub fingerprint: String,
    /// What the body of a notice to it is.
    pub notice: Form,
    /// Items are given to this program and not sent; then nothing of HTTP above counts.
    pub command: Option<NotifyCommand>,
}

/// The program of `[notify] command`. No shell comes into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotifyCommand {
    /// A path, or a bare name that is looked for in `PATH`.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// It is ended after this, in milliseconds.
    pub timeout_ms: u64,
}

impl NotifyCommand {
    /// Between SIGTERM and SIGKILL, in milliseconds.
    pub const KILL_MS: u64 = 2_000;
}

/// At most `count` requests in each `per_ms` milliseconds, evenly spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many.
    pub count: u32,
    /// In how many milliseconds.
    pub per_ms: u64,
}

/// How requests prove who we are. Secrets are referred to, never held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auth {
    /// `Authorization: Bearer …`.
    Bearer(SecretRef),
    /// `Authorization: Basic …`.
    Basic {
        /// The user, in plain.
        user: String,
        /// The password.
        password: SecretRef,
    },
    /// A header of any name.
    Header {
        /// The header's name.
        name: String,
        /// What stands before the secret in the value.
        prefix: String,
        /// The secret.
        value: SecretRef,
    },
}

impl Auth {
    /// Where its secret is found.
    #[must_use]
    pub fn secret(&self) -> &SecretRef {
        match self {
            Self::Bearer(secret)
            | Self::Basic {
                password: secret, ..
            }
            | Self::Header { value: secret, .. } => secret,
        }
    }
}

/// Where a secret is found. Its value never enters the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretRef {
    /// The contents of a file, less one newline at the end.
    File(PathBuf),
    /// An environment variable.
    Env(String),
    /// A systemd credential: a file of this name in `$CREDENTIALS_DIRECTORY`.
    Credential(String),
}

impl Destination {
    /// The files that its configuration names: of its secret and its certificates.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let secret = self.auth.as_ref().and_then(|auth| match auth.secret() {
            SecretRef::File(path) => Some(path),
            SecretRef::Env(_) | SecretRef::Credential(_) => None,
        });
        let Tls {
            ca_file,
            client_cert,
            client_key,
        } = &self.tls;
        let all = [
            secret,
            ca_file.as_ref(),
            client_cert.as_ref(),
            client_key.as_ref(),
        ];
        all.into_iter().flatten().map(PathBuf::as_path)
    }
}

/// TLS settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// A PEM file of roots, trusted beside the system's.
    pub ca_file: Option<PathBuf>,
    /// A PEM file with our certificate chain.
    pub client_cert: Option<PathBuf>,
    /// A PEM file with its key.
    pub client_key: Option<PathBuf>,
}
