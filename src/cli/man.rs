//! `man`: manual pages, one for the program and one for each command, made from its help.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};

use super::exit::CliError;
use super::{Arguments, Context};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tickpost man pages && man -l pages/tickpost-enqueue.1")]
pub(super) struct ManArgs {
    /// The directory to write tickpost.1 and tickpost-COMMAND.1 into; it is made if it is not there
    dir: PathBuf,
}

pub(super) fn run(context: &Context, arguments: &ManArgs) -> anyhow::Result<()> {
    let dir = &arguments.dir;
    let mut root = Arguments::command().disable_help_subcommand(true);
    // Gives each command its whole name, and the global options.
    root.build();
    let mut pages = Vec::new();
    render(&root, &mut pages)?;
    pages.sort();
    fs::create_dir_all(dir).map_err(|source| unwritable(dir, source))?;
    for (name, page) in &pages {
        let path = dir.join(name);
        fs::write(&path, page).map_err(|source| unwritable(&path, source))?;
    }
    let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
    if context.out.json {
        return context
            .out
            .json(&serde_json::json!({"dir": dir.display().to_string(), "pages": names}));
    }
    context
        .out
        .line(&format!("{} pages in {}", names.len(), dir.display()))
}

fn unwritable(path: &Path, source: io::Error) -> CliError {
    CliError::Unwritable {
        path: path.display().to_string(),
        source,
    }
}

/// Adds the page of `command`, and those of its commands.
fn render(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) -> anyhow::Result<()> {
    for inner in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        render(inner, pages)?;
    }
    let whole_name = command
        .get_display_name()
        .unwrap_or_else(|| command.get_name());
    let of_program = command.get_name() == whole_name;
    let man = Man::new(command.clone());
    // By hand, for there is no date, and an empty word has to be quoted.
    let version = env!("CARGO_PKG_VERSION");
    let title = format!(".TH {whole_name} 1 \"\" \"tickpost {version}\" \"tickpost manual\"\n");
    let mut page = title.into_bytes();
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut end = Roff::new();
    if let Some(text) = command.get_after_help() {
        after_help(&mut end, &text.to_string());
    }
    if of_program {
        files(&mut end);
    } else {
        end.control("SH", ["SEE ALSO"]);
        end.text([bold("tickpost"), roman("(1)")]);
    }
    end.to_writer(&mut page)?;
    pages.push((man.get_filename(), in_ascii(&page)));
    Ok(())
}

/// A page as every roff reads it: other characters by their names, as `groff_char`(7) has them.
fn in_ascii(page: &[u8]) -> Vec<u8> {
    let mut text = String::with_capacity(page.len());
    for c in String::from_utf8_lossy(page).chars() {
        if c.is_ascii() {
            text.push(c);
        } else {
            let code = format!("\\[u{:04X}]", u32::from(c));
            text.push_str(&code);
        }
    }
    text.into_bytes()
}

/// What stands below the options of the help: examples as they are typed, all else as sections.
fn after_help(page: &mut Roff, text: &str) {
    for part in text.split("\n\n") {
        let (heading, rest) = part.split_once(':').unwrap_or(("Notes", part));
        let examples = heading.starts_with("Example");
        let heading = match heading {
            "Example" => "EXAMPLES".to_owned(),
            "Exit codes" => "EXIT STATUS".to_owned(),
            _ => heading.to_uppercase(),
        };
        page.control("SH", [heading.as_str()]);
        if examples {
            page.control("nf", []);
        }
        for line in rest.lines().map(str::trim).filter(|line| !line.is_empty()) {
            page.text([roman(line)]);
        }
        if examples {
            page.control("fi", []);
        }
    }
}

fn files(page: &mut Roff) {
    page.control("SH", ["ENVIRONMENT"]);
    page.control("TP", []);
    page.text([bold("TICKPOST_SPOOL")]);
    page.text([roman("The spool, where --spool does not name one.")]);
    page.control("SH", ["FILES"]);
    for (path, what) in [
        ("/var/spool/tickpost", "The spool of the machine."),
        (
            "tickpost.toml",
            "The configuration, in the spool; every setting is explained in it. The Debian package \
             links it to /etc/tickpost/tickpost.toml.",
        ),
    ] {
        page.control("TP", []);
        page.text([italic(path)]);
        page.text([roman(what)]);
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([
        bold("systemctl"),
        roman("(1), "),
        bold("journalctl"),
        roman("(1)"),
    ]);
}
