//! The command; all of it is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    tickpost::cli::main()
}
