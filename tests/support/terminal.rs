//! A terminal of a chosen width, for a program to run on. Included by `#[path]` where it is
//! needed.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// A program on a terminal: its results, and what it says besides, go to the screen.
#[derive(Debug)]
pub(crate) struct Screen {
    child: Child,
    keyboard: File,
    shown: Vec<u8>,
}

impl Screen {
    /// Starts a program on a terminal of so many columns. The environment is empty but for these
    /// variables and the kind of terminal.
    pub(crate) fn start(columns: u16, environment: &[(&str, &str)], mut command: Command) -> Self {
        let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&near).unwrap();
        unlockpt(&near).unwrap();
        let name = ptsname(&near, Vec::new()).unwrap();
        let far = File::options()
            .read(true)
            .write(true)
            .open(name.to_str().unwrap())
            .unwrap();
        let size = Winsize {
            ws_row: 24,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&far, size).unwrap();
        let end = || -> OwnedFd { far.try_clone().unwrap().into() };
        command
            .env_clear()
            .env("TERM", "xterm-256color")
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(end())
            .stderr(end());
        let child = command.spawn().unwrap();
        // As long as anybody here has the far side open, the near side never ends.
        drop(command);
        drop(far);
        Self {
            child,
            keyboard: near.into(),
            shown: Vec::new(),
        }
    }

    /// Reads on until the screen has shown this.
    pub(crate) fn wait_for(&mut self, text: &str) {
        while !self.text().contains(text) {
            assert!(self.read(), "it ended without {text:?}: {}", self.text());
        }
    }

    /// Reads to the end; returns all that was ever written, escapes included, and the exit code.
    pub(crate) fn end(mut self) -> (String, i32) {
        while self.read() {}
        let code = self.child.wait().unwrap().code().unwrap();
        (self.text(), code)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown).replace("\r\n", "\n")
    }

    /// Whether there was more.
    fn read(&mut self) -> bool {
        let mut buffer = [0; 4096];
        // The end of a terminal is an error of input.
        match self.keyboard.read(&mut buffer) {
            Ok(0) | Err(_) => false,
            Ok(n) => {
                self.shown.extend_from_slice(&buffer[..n]);
                true
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
