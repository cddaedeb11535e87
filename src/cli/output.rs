//! Printing: results to stdout, everything else to stderr.

use std::io::{self, IsTerminal as _, Write as _};

use anstyle::{AnsiColor, Style};

use super::exit::CliError;
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
        match global.color {
            Color::Auto => anstream::ColorChoice::Auto,
            Color::Always => anstream::ColorChoice::Always,
            Color::Never => anstream::ColorChoice::Never,
        }
        .write_global();
        Self {
            json: global.json,
            quiet: global.quiet,
            verbose: global.verbose,
        }
    }

    /// Prints a line of results.
    pub(super) fn line(self, text: &str) -> anyhow::Result<()> {
        let mut out = anstream::AutoStream::auto(io::stdout().lock());
        match writeln!(out, "{text}").and_then(|()| out.flush()) {
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

/// Lays rows out in columns, two blanks between.
pub(super) fn table(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            rows.iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    rows.iter()
        .map(|row| {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| {
                    let missing = width.saturating_sub(cell.chars().count());
                    format!("{cell}{}", " ".repeat(missing))
                })
                .collect();
            cells.join("  ").trim_end().to_owned()
        })
        .collect()
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
