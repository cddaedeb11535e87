//! The command line: its words, and where they lead. The only layer that prints.

mod adopt;
mod audit;
mod batch;
mod check;
mod completions;
mod config;
mod demo;
mod doctor;
mod enqueue;
mod exit;
mod init;
mod inspect;
mod man;
mod moves;
mod output;
mod own;
mod progress;
mod prune;
mod rules;
mod select;
mod status;
mod table;
mod tick;
mod times;
mod wait;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Parser, Subcommand, ValueEnum};

use self::output::Output;
use crate::config::Config;
use crate::intake;
use crate::store::StoreError;
use crate::store::file::{self, FileStore};
use crate::users;

/// Sendmail for HTTP APIs: a durable spool, sent by ticks, in five states that `ls` can show.
#[derive(Debug, Parser)]
#[command(
    name = "tickpost",
    version,
    after_help = "Exit codes: 0 done, 1 not all of it, 2 usage, 65 bad data, 66 no such item or file, \
                  70 a bug, 73 no spool, 74 input/output error, 75 busy, full or timed out, 77 permission, \
                  78 configuration.\n\nExample:\n  echo '{\"amount\":5}' | tickpost enqueue billing --path /v1/charges\n  tickpost tick"
)]
struct Arguments {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, clap::Args)]
struct Global {
    /// The spool's directory [default: `$TICKPOST_SPOOL`, else ./spool if it is one, else
    /// /var/spool/tickpost]
    #[arg(long, global = true, value_name = "DIR")]
    spool: Option<PathBuf>,
    /// The configuration [default: tickpost.toml in the spool]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print results as JSON, one object a line for lists
    #[arg(long, global = true)]
    json: bool,
    /// When to use colours
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: Color,
    /// No warnings
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Say more: a line an attempt; twice: also what was said of it
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// When to use colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make or complete a spool; again, it changes nothing
    Init(init::Init),
    /// Accept an item: exit 0 means that it is durable; prints its request id
    Enqueue(Box<enqueue::Enqueue>),
    /// Make one pass: send what is due
    Tick(tick::TickArgs),
    /// Counts by state and destination, ages, suspensions, the last tick
    Status(status::StatusArgs),
    /// List items by state, destination, requester, reason, time
    List(inspect::ListArgs),
    /// Everything of an item: envelope, history, where the file is, what happens next
    Show(inspect::ShowArgs),
    /// Wait until items are settled, held or parked
    Wait(wait::WaitArgs),
    /// Hold items back, or with --destination alone the whole destination
    Hold(moves::HoldArgs),
    /// Give held items back, or with --destination alone resume the whole destination
    Release(moves::ReleaseArgs),
    /// Give up items that are pending or held
    Cancel(moves::CancelArgs),
    /// Try failed items again
    Retry(moves::RetryArgs),
    /// Say what became of unknown items
    Resolve(moves::ResolveArgs),
    /// Delete settled items that are past retention; what became of them stays known
    Prune(prune::PruneArgs),
    /// Look for every item that was ever accepted: in one place, or pruned
    Audit(audit::AuditArgs),
    /// Find what is wrong in the spool, and mend it with --repair; adopt a copy
    Doctor(doctor::DoctorArgs),
    /// Look at the rules that judge answers
    #[command(subcommand)]
    Rules(rules::RulesCommand),
    /// Look at the configuration
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Watch it work: a receiver on loopback, a temporary spool, items in all five states
    Demo(demo::DemoArgs),
    /// Print completions for a shell
    Completions(completions::CompletionsArgs),
    /// Write manual pages into a directory
    Man(man::ManArgs),
}

/// The arguments of one command alone. clap makes the options of every command before it looks at a
/// word, and that takes longer than an empty tick; the two that are started most often are spared it.
#[derive(Debug, Parser)]
struct Alone<C: Subcommand> {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: C,
}

#[derive(Debug, Subcommand)]
enum Tick {
    Tick(tick::TickArgs),
}

#[derive(Debug, Subcommand)]
enum Enqueue {
    Enqueue(Box<enqueue::Enqueue>),
}

/// Reads the arguments. What is wrong, and help, is said of all commands.
fn parse(words: Vec<OsString>) -> Result<Arguments, clap::Error> {
    let is_often = |word: &&OsString| *word == "tick" || *word == "enqueue";
    let (global, command) = match words.iter().find(is_often) {
        Some(word) if word == "tick" => match Alone::try_parse_from(&words) {
            Ok(Alone {
                global,
                command: Tick::Tick(arguments),
            }) => (global, Command::Tick(arguments)),
            Err(_) => return Arguments::try_parse_from(words),
        },
        Some(_) => match Alone::try_parse_from(&words) {
            Ok(Alone {
                global,
                command: Enqueue::Enqueue(arguments),
            }) => (global, Command::Enqueue(arguments)),
            Err(_) => return Arguments::try_parse_from(words),
        },
        None => return Arguments::try_parse_from(words),
    };
    Ok(Arguments { global, command })
}

/// What a command works with.
struct Context {
    global: Global,
    out: Output,
}

/// Runs the command line and returns the exit code.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = match parse(std::env::args_os().collect()) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are asked for and go to stdout; the rest is usage.
            output::usage(&error, std::env::args_os());
            if error.use_stderr() && std::env::args_os().any(|word| word == "--check") {
                // A monitor would take 2 for critical.
                return exit::code(check::wrong_usage(&error));
            }
            return exit::code(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let out = Output::new(&arguments.global);
    let context = Context {
        global: arguments.global,
        out,
    };
    // A limit on the size of files is to be an error that is told of, and not to end the process.
    // Where it cannot be, it does: nothing is lost by that.
    drop(signal_hook::flag::register(
        signal_hook::consts::SIGXFSZ,
        Arc::default(),
    ));
    // A panic is a bug of ours: say so with the code that is set aside for it.
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        run(&context, arguments.command)
    }));
    let error = match ran {
        Ok(Ok(())) => return exit::code(0),
        Ok(Err(error)) => error,
        Err(_) => anyhow::anyhow!("tickpost has met a bug of its own and stopped"),
    };
    let (code, hint) = exit::judge(&error);
    if !exit::is_said(&error) {
        context.out.error(&error, hint.as_deref());
    }
    exit::code(code)
}

fn run(context: &Context, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Init(arguments) => init::run(context, &arguments),
        Command::Enqueue(arguments) => enqueue::run(context, *arguments),
        Command::Tick(arguments) => tick::run(context, &arguments),
        Command::Status(arguments) => status::run(context, &arguments),
        Command::List(arguments) => inspect::list(context, &arguments),
        Command::Show(arguments) => inspect::show(context, &arguments),
        Command::Wait(arguments) => wait::run(context, &arguments),
        Command::Hold(arguments) => moves::hold(context, &arguments),
        Command::Release(arguments) => moves::release(context, &arguments),
        Command::Cancel(arguments) => moves::cancel(context, &arguments),
        Command::Retry(arguments) => moves::retry(context, &arguments),
        Command::Resolve(arguments) => moves::resolve(context, &arguments),
        Command::Prune(arguments) => prune::run(context, &arguments),
        Command::Audit(arguments) => audit::run(context, &arguments),
        Command::Doctor(arguments) => doctor::run(context, &arguments),
        Command::Rules(command) => rules::run(context, &command),
        Command::Config(command) => config::run(context, &command),
        Command::Demo(arguments) => demo::run(context, &arguments),
        Command::Completions(arguments) => completions::run(context, &arguments),
        Command::Man(arguments) => man::run(context, &arguments),
    }
}

impl Context {
    /// The spool's directory, by the option, the environment, or where one is.
    fn root(&self) -> PathBuf {
        if let Some(root) = &self.global.spool {
            return root.clone();
        }
        // Set and empty is as good as not set.
        if let Some(root) = std::env::var_os("TICKPOST_SPOOL").filter(|root| !root.is_empty()) {
            return PathBuf::from(root);
        }
        let here = PathBuf::from("spool");
        if file::is_spool(&here) {
            here
        } else {
            PathBuf::from("/var/spool/tickpost")
        }
    }

    /// The configuration's path.
    fn config_path(&self) -> PathBuf {
        self.global
            .config
            .clone()
            .unwrap_or_else(|| self.root().join("tickpost.toml"))
    }

    /// Reads the whole configuration.
    fn config(&self) -> anyhow::Result<Config> {
        if self.global.config.is_none() {
            file::look(&self.root())?;
        }
        Config::load(&self.config_path()).map_err(|error| self.not_ours(error))
    }

    /// Of another's spool nothing can be read where only its drop box is open: that is what is
    /// wrong, and not the file that came first.
    fn not_ours(&self, error: impl Into<anyhow::Error>) -> anyhow::Error {
        let error = error.into();
        let denied = error.chain().any(|cause| {
            let io = cause.downcast_ref::<std::io::Error>();
            io.is_some_and(|io| io.kind() == std::io::ErrorKind::PermissionDenied)
        });
        match file::check_owner_of(&self.root()) {
            Err(owner @ StoreError::NotOwner { .. }) if denied => owner.into(),
            Ok(()) | Err(_) => error,
        }
    }

    /// Opens the spool. Nothing is written.
    fn store(&self, config: &Config) -> anyhow::Result<FileStore> {
        Ok(FileStore::open(
            &self.root(),
            config.store.allow_network_filesystem,
        )?)
    }

    /// The configuration if it can be read: readers go on without it, and say so.
    fn config_if_any(&self) -> Option<Config> {
        match Config::load(&self.config_path()) {
            Ok(config) => Some(config),
            Err(error) => {
                self.out
                    .warn(&format!("no tick can run with this configuration: {error}"));
                None
            }
        }
    }

    /// Opens the spool for a reader.
    fn store_to_read(&self) -> anyhow::Result<FileStore> {
        // A reader takes no lock and relies on none.
        FileStore::open(&self.root(), true).map_err(|error| self.not_ours(error))
    }

    /// The spool's whole path, for people and for JSON.
    fn whole_root(&self) -> String {
        let root = self.root();
        std::fs::canonicalize(&root)
            .unwrap_or(root)
            .display()
            .to_string()
    }
}

/// Who runs the command, as events store it: `alice(1000)`.
fn whoami() -> String {
    users::with_uid(rustix::process::getuid().as_raw())
}

/// Turns a destination's name from the command line into a name, or exit code 65.
fn dest_name(text: &str) -> anyhow::Result<crate::model::ids::DestName> {
    text.parse()
        .map_err(|error: crate::model::ids::DestNameError| {
            exit::CliError::Data(error.to_string()).into()
        })
}

/// The destination of that name in the configuration, or exit code 65 with the way out.
fn destination<'c>(
    config: &'c Config,
    text: &str,
) -> anyhow::Result<&'c crate::config::Destination> {
    let name = dest_name(text)?;
    intake::known_destination(config, &name).map_err(|why| exit::CliError::Data(why).into())
}

/// Reads a file that the user named, or standard input for `-`.
fn read_input(path: &std::path::Path, bytes_max: u64) -> anyhow::Result<Vec<u8>> {
    use std::io::Read as _;
    let fail = |source| exit::CliError::Input {
        path: path.display().to_string(),
        source,
    };
    let mut bytes = Vec::new();
    let limit = bytes_max.saturating_add(1);
    if path.as_os_str() == "-" {
        std::io::stdin()
            .lock()
            .take(limit)
            .read_to_end(&mut bytes)
            .map_err(fail)?;
    } else {
        std::fs::File::open(path)
            .map_err(fail)?
            .take(limit)
            .read_to_end(&mut bytes)
            .map_err(fail)
            .with_context(|| format!("`{}` was named as input", path.display()))?;
    }
    Ok(bytes)
}
