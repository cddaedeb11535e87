//! Printing: results to stdout, everything else to stderr.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};

use anstyle::{AnsiColor, Style};
use clap::ValueEnum as _;

use super::exit::CliError;
use super::table::Table;
use super::{Color, Global};
use crate::model::state::State;

/// Where results and words go, and in which form.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output {
    pub(super) json: bool,
    pub(super) quiet: bool,
    pub(super) verbose: u8,
}

#[expect(
    clippy::unused_self,
    reason = "who prints needs to be given the output"
)]
impl Output {
    pub(super) fn new(global: &Global) -> Self {
        choose(global.color);
        Self {
            json: global.json,
            quiet: global.quiet,
            verbose: global.verbose,
        }
    }

    /// Prints a line of results.
    pub(super) fn line(self, text: &str) -> anyhow::Result<()> {
        self.lines([text])
    }

    /// Prints lines of results.
    fn lines<'l>(self, texts: impl IntoIterator<Item = &'l str>) -> anyhow::Result<()> {
        let mut out = anstream::AutoStream::auto(io::stdout().lock());
        let print = || {
            for text in texts {
                writeln!(out, "{text}")?;
            }
            out.flush()
        };
        match print() {
            Ok(()) => Ok(()),
            // Whoever read the results has seen enough: `tickpost list | head`.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) => Err(CliError::Output(error).into()),
        }
    }

    /// Prints a value as one line of JSON.
    pub(super) fn json<T: serde::Serialize>(self, value: &T) -> anyhow::Result<()> {
        self.line(&serde_json::to_string(value)?)
    }

    /// Prints a table as a result: as wide as the terminal, or in a pipe as wide as it is.
    pub(super) fn table(self, table: &Table) -> anyhow::Result<()> {
        let laid = table.lay_out(terminal_width());
        self.lines(laid.lines.iter().map(String::as_str))?;
        if !laid.hidden.is_empty() && !self.quiet {
            self.say(&format!(
                "the terminal is too narrow for: {}",
                laid.hidden.join(", ")
            ));
        }
        Ok(())
    }

    /// Says something that is no result.
    pub(super) fn say(self, text: &str) {
        let mut err = anstream::AutoStream::auto(io::stderr().lock());
        // There is nobody to tell that nobody can be told.
        drop(writeln!(err, "{text}"));
    }

    /// Warns, unless the user wants quiet.
    pub(super) fn warn(self, text: &str) {
        if !self.quiet {
            let style = AnsiColor::Yellow.on_default();
            self.say(&format!("{style}warning:{style:#} {text}"));
        }
    }

    /// Says what failed, and what to do next.
    pub(super) fn error(self, error: &anyhow::Error, hint: Option<&str>) {
        let style = AnsiColor::Red.on_default().bold();
        self.say(&format!("{style}error:{style:#} {error:#}"));
        if let Some(hint) = hint {
            self.say(&format!("  {hint}"));
        }
    }

    /// Whether people read the results.
    pub(super) fn is_terminal(self) -> bool {
        io::stdout().is_terminal()
    }
}

fn choose(color: Color) {
    match color {
        Color::Auto => anstream::ColorChoice::Auto,
        Color::Always => anstream::ColorChoice::Always,
        Color::Never => anstream::ColorChoice::Never,
    }
    .write_global();
}

/// Prints what the command line itself has to say: help, the version, or what is wrong with it.
/// Its words could not be read, but the wish for colours is kept to all the same.
pub(super) fn usage(error: &clap::Error, words: impl Iterator<Item = OsString>) {
    choose(color_wished(words));
    let text = error.render().ansi().to_string();
    // There is nobody to tell that nobody can be told.
    drop(if error.use_stderr() {
        write!(anstream::AutoStream::auto(io::stderr().lock()), "{text}")
    } else {
        write!(anstream::AutoStream::auto(io::stdout().lock()), "{text}")
    });
}

fn color_wished(mut words: impl Iterator<Item = OsString>) -> Color {
    let mut wished = Color::Auto;
    while let Some(word) = words.next() {
        let word = word.to_string_lossy();
        let value = match word.strip_prefix("--color") {
            Some("") => words.next().map(|next| next.to_string_lossy().into_owned()),
            Some(rest) => rest.strip_prefix('=').map(str::to_owned),
            None if word == "--" => break,
            None => None,
        };
        if let Some(color) = value.and_then(|value| Color::from_str(&value, false).ok()) {
            wished = color;
        }
    }
    wished
}

/// How many columns the terminal has that shows the results. `None` in a pipe, and where the
/// terminal does not tell.
fn terminal_width() -> Option<u16> {
    // Anything else than a terminal has no such size.
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col)
}

/// Prints a line of results where there is no [`Output`] yet.
pub(super) fn bare_line(text: &str) {
    // There is nobody to tell that nobody can be told.
    drop(writeln!(io::stdout().lock(), "{text}"));
}

/// How a state is coloured.
pub(super) fn style_of(state: State) -> Style {
    match state {
        State::Pending => AnsiColor::Cyan.on_default(),
        State::Unknown => AnsiColor::Magenta.on_default().bold(),
        State::Held => AnsiColor::Yellow.on_default(),
        State::Confirmed => AnsiColor::Green.on_default(),
        State::Failed => AnsiColor::Red.on_default(),
    }
}

/// Text of others without what would steer a terminal.
pub(super) fn plain(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_control() && c != '\t' {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}
