//! How far something is that takes a while: one line on stderr, for a person at a terminal only.
//!
//! It shows after a second, so that what is quick stays quiet, and is gone at the end. In a pipe,
//! with `--quiet`, `--json` or `--verbose` there is none.

use std::cell::Cell;
use std::io::{self, IsTerminal as _};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};

use super::output::Output;
use crate::clock::{Clock as _, SystemClock};

/// What takes less time is not shown, in milliseconds.
const QUIET_MS: u64 = 1000;

/// How often the time in the line is written anew, in milliseconds.
const REDRAW_MS: u64 = 1000;

/// The line, or nothing where nobody would see it. Dropping it clears the line.
#[derive(Debug)]
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    clock: SystemClock,
    drawn_ms: Cell<u64>,
}

impl Progress {
    /// Whether anybody would see a line.
    pub(super) fn is_seen(out: Output) -> bool {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        !out.quiet && !out.json && out.verbose == 0 && !dumb && io::stderr().is_terminal()
    }

    /// Begins to count `what`, a plural, towards `total` if that is known.
    pub(super) fn start(out: Output, total: Option<u64>, what: &'static str) -> Self {
        let bar = Self::is_seen(out).then(|| {
            let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden())
                .with_finish(ProgressFinish::AndClear)
                .with_message(what);
            let template = if total.is_some() {
                "[{bar:24}] {pos} of {len} {msg}"
            } else {
                "{pos} {msg} in {elapsed}"
            };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("=> "));
            }
            bar
        });
        Self {
            bar,
            clock: SystemClock::new(),
            drawn_ms: Cell::new(0),
        }
    }

    /// Counts `n` more.
    pub(super) fn add(&self, n: u64) {
        if let Some(bar) = &self.bar {
            let position = bar.position().saturating_add(n);
            // More than was known of came up meanwhile.
            if bar.length().is_some_and(|length| length < position) {
                bar.set_length(position);
            }
            bar.set_position(position);
        }
        self.look();
    }

    /// Shows the line as soon as it has taken long enough. To be called now and then while
    /// nothing is counted.
    pub(super) fn look(&self) {
        let Some(bar) = &self.bar else {
            return;
        };
        let now_ms = self.clock.steady_ms();
        if bar.is_hidden() {
            if now_ms >= QUIET_MS {
                bar.set_draw_target(ProgressDrawTarget::stderr());
            }
        } else if bar.length().is_some() || now_ms < self.drawn_ms.get() + REDRAW_MS {
            // Only a line without a total has a clock in it.
            return;
        }
        self.drawn_ms.set(now_ms);
        bar.tick();
    }

    /// Does something that prints, with the line out of its way.
    pub(super) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Ends it; the line goes.
    pub(super) fn done(self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
