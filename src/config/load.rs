//! Files → texts → a checked configuration, or everything that is wrong with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::error::line_of;
use super::reader::{Faults, Section};
use super::sections::{self, General, Retry};
use super::{Config, ConfigError, Destination, FileFault, NOTIFY_COMMAND, command, destination};
use crate::model::fault::{Fault, nearest};
use crate::model::ids::DestName;
use crate::model::notice::Form;

/// The directory beside the configuration whose files are read too.
const DROP_IN: &str = "destinations.d";

/// How a syntax error is told.
const NOT_TOML: &str = "is not TOML";

/// One file that was read.
struct Source {
    path: PathBuf,
    text: String,
}

impl Config {
    /// Reads `path` and `destinations.d/*.toml` beside it, in the order of their names.
    ///
    /// Secrets are not looked at. Relative paths in any of the files start from the directory
    /// that `path` is in. Where `path` is a symbolic link, all this means the file that it leads
    /// to: a spool's `tickpost.toml` may be a link to a configuration in `/etc`.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Missing`] if `path` is not there, [`ConfigError::Io`] if it or the directory
    /// cannot be read, [`ConfigError::Faults`] with every fault of every file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let io = |path: &Path, source: io::Error| ConfigError::Io {
            path: path.to_owned(),
            source,
        };
        let bytes = fs::read(path).map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                ConfigError::Missing {
                    path: path.to_owned(),
                }
            } else {
                io(path, error)
            }
        })?;
        let mut sources = Vec::new();
        let mut faults = Vec::new();
        decode(path.to_owned(), bytes, &mut sources, &mut faults);
        let base = directory(path);
        let drop_in = base.join(DROP_IN);
        for file in toml_files(&drop_in).map_err(|error| io(&drop_in, error))? {
            match read_regular(&file) {
                Ok(bytes) => decode(file, bytes, &mut sources, &mut faults),
                Err(error) => faults.push(FileFault {
                    file,
                    line: 1,
                    message: format!("cannot be read: {error}"),
                    hint: Some("mend it, or take it out of destinations.d".to_owned()),
                }),
            }
        }
        check(path, &base, &sources, faults)
    }
}

/// The directory of the file itself, wherever a link to it stands.
fn directory(path: &Path) -> PathBuf {
    // A plain file keeps its directory as the user wrote it, which faults then name. A link that
    // leads to no path, as those of /proc to a pipe, has none either.
    let link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    let real = link.then(|| fs::canonicalize(path).ok()).flatten();
    match real.as_deref().unwrap_or(path).parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// The files to read in `directory`, by name; none if it is not there.
fn toml_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        // Editors leave their unfinished copies under names that start with a dot.
        let hidden = name.as_encoded_bytes().starts_with(b".");
        if !hidden
            && Path::new(&name)
                .extension()
                .is_some_and(|end| end == "toml")
        {
            files.push(directory.join(name));
        }
    }
    files.sort();
    Ok(files)
}

/// Opens a file that the configuration names, or is part of it. Waits for no FIFO.
///
/// # Errors
///
/// Those of opening a file, and one if it is none.
pub fn open_regular(path: &Path) -> io::Result<File> {
    if fs::metadata(path)?.is_file() {
        File::open(path)
    } else {
        Err(io::Error::other("it is no regular file"))
    }
}

/// Reads such a file.
///
/// # Errors
///
/// Those of [`open_regular`], and of reading.
pub fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Takes a file among the sources if it is text.
fn decode(path: PathBuf, bytes: Vec<u8>, sources: &mut Vec<Source>, faults: &mut Vec<FileFault>) {
    match String::from_utf8(bytes) {
        Ok(text) => sources.push(Source { path, text }),
        Err(error) => {
            let good = error.utf8_error().valid_up_to();
            let text = String::from_utf8_lossy(&error.as_bytes()[..good]).into_owned();
            let fault = Fault::new(good..good, "is not UTF-8 text").hint("save the file as UTF-8");
            faults.push(FileFault::locate(&path, &text, fault));
        }
    }
}

/// What all the files together say of destinations.
#[derive(Default)]
struct Found {
    destinations: BTreeMap<DestName, Destination>,
    /// Also those at fault: who refers to them is not wrong. With the place, as `FILE:LINE`.
    names: BTreeMap<DestName, String>,
}

/// Checks texts; touches nothing. `faults` are those found while reading.
fn check(
    path: &Path,
    base: &Path,
    sources: &[Source],
    faults: Vec<FileFault>,
) -> Result<Config, ConfigError> {
    // A file that could not be read may hold what another one refers to.
    let mut whole = faults.is_empty();
    let mut all = faults;
    let mut found = Found::default();
    let mut general = General::default();
    let mut of_main = None;
    for source in sources {
        let main = source.path == path;
        let (table, faults) = parse(&source.text);
        whole &= !faults.broken();
        let mut root = Section::root(table.get_ref(), &faults);
        if main {
            general = sections::read(&mut root);
        }
        destinations(&mut root, source, &general.retry, base, &mut found);
        if main {
            root.finish();
            of_main = Some((source, faults));
        } else {
            only_destinations(&root);
            all.extend(locate(source, faults));
        }
    }
    if let Some((source, faults)) = of_main {
        if whole {
            notified(&general, &found, &faults);
        }
        all.extend(locate(source, faults));
    }
    if !all.is_empty() {
        // The main file first, then the others by name; within a file by line.
        all.sort_by_cached_key(|fault| (fault.file != path, fault.file.clone(), fault.line));
        return Err(ConfigError::Faults(all));
    }
    told(&mut general, &mut found, directory(path).as_path());
    Ok(Config {
        path: path.to_owned(),
        tick: general.tick,
        retention: general.retention,
        limits: general.limits,
        notify: general.notify,
        store: general.store,
        destinations: found.destinations,
    })
}

/// Parses a text as far as it goes.
fn parse(text: &str) -> (toml::Spanned<DeTable<'_>>, Faults) {
    let (table, errors) = DeTable::parse_recoverable(text);
    let errors = errors.into_iter().map(|error| {
        let span = error.span().unwrap_or(0..0);
        // Only the first line: the rest lists what the parser would have taken.
        let mut message = error
            .message()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned();
        let hint = if message.contains("duplicate key") {
            if let Some(key) = text.get(span.clone()) {
                message = format!("{message} `{key}`");
            }
            "it stands further up in this file already: put its settings there"
        } else {
            "see https://toml.io"
        };
        Fault::new(span, format!("{NOT_TOML}: {message}")).hint(hint)
    });
    let faults = Faults::new(errors.collect());
    (table, faults)
}

fn destinations(
    root: &mut Section<'_>,
    source: &Source,
    retry: &Retry,
    base: &Path,
    found: &mut Found,
) {
    let hint = "write [destination.NAME] on a line of its own, its keys below";
    let Some(section) = root
        .take("destination")
        .and_then(|value| value.section(hint))
    else {
        return;
    };
    for (name, value) in section.take_all() {
        if name == NOTIFY_COMMAND {
            let fault = Fault::new(
                value.key_span(),
                format!("`{name}` is the name by which the command of [notify] is told"),
            );
            root.faults().add(fault.hint("choose another name"));
            continue;
        }
        let name = match name.parse::<DestName>() {
            Ok(name) => name,
            Err(error) => {
                let fault = Fault::new(value.key_span(), error.to_string());
                root.faults()
                    .add(fault.hint("such as [destination.billing]"));
                continue;
            }
        };
        if name.as_str().starts_with("group-") || name.as_str().strip_suffix(".hold").is_some() {
            // `destinations/` holds group-NAME.json and DEST.hold.json beside DEST.json.
            let fault = Fault::new(
                value.key_span(),
                format!("`{name}` would share a file with something else in the spool"),
            );
            root.faults().add(
                fault.hint("choose a name that neither begins with `group-` nor ends in `.hold`"),
            );
            continue;
        }
        if let Some(first) = found.names.get(&name) {
            let fault = Fault::new(
                value.key_span(),
                format!("destination `{name}` is there twice"),
            );
            root.faults()
                .add(fault.hint(format!("the other is in {first}; remove or rename one")));
        } else {
            let line = line_of(&source.text, value.key_span().start);
            let place = format!("{}:{line}", source.path.display());
            found.names.insert(name.clone(), place);
        }
        if let Some(section) = value.section(hint)
            && let Some(destination) = destination::read(&name, section, retry, base)
        {
            found.destinations.insert(name, destination);
        }
    }
}

/// Refuses everything else in a file of `destinations.d`.
fn only_destinations(root: &Section<'_>) {
    for (key, value) in root.take_all() {
        if key != "destination" {
            value.refuse_key(
                "does not belong in destinations.d",
                "only [destination.NAME] is read here; move it into the main configuration",
            );
        }
    }
}

/// Checks that whoever is told of things is configured.
fn notified(general: &General, found: &Found, faults: &Faults) {
    let mut known: BTreeSet<&str> = found.names.keys().map(DestName::as_str).collect();
    if general.has_command {
        known.insert(NOTIFY_COMMAND);
    }
    for (name, span) in general
        .notify
        .destinations
        .iter()
        .zip(&general.notify_spans)
    {
        if known.contains(name.as_str()) {
            continue;
        }
        let hint = match nearest(name.as_str(), known.iter().copied()) {
            Some(name) => format!("did you mean `{name}`?"),
            None if name.as_str() == NOTIFY_COMMAND => {
                "add command = [\"/usr/sbin/sendmail\", \"-t\"] to [notify], or remove it here"
                    .to_owned()
            }
            None => format!("add [destination.{name}], or remove it here"),
        };
        let message = format!("notify.destinations names `{name}`, which is not configured");
        faults.add(Fault::new(span.clone(), message).hint(hint));
    }
}

/// Makes the command one of the destinations and of those that are told, and notes who gets text.
fn told(general: &mut General, found: &mut Found, base: &Path) {
    let command = general.command.take();
    let command = command.and_then(|it| command::destination(it, &general.retry, base));
    if let Some(command) = command {
        let told = &mut general.notify.destinations;
        if !told.contains(&command.name) {
            told.push(command.name.clone());
        }
        found.destinations.insert(command.name.clone(), command);
    }
    let in_text = found.destinations.values();
    general.notify.in_text = in_text
        .filter(|destination| destination.notice == Form::Text)
        .map(|destination| destination.name.clone())
        .collect();
}

/// Gives faults their lines. A line that is not TOML has that one fault: others would be echoes.
fn locate(source: &Source, faults: Faults) -> Vec<FileFault> {
    let (mut located, others): (Vec<FileFault>, Vec<FileFault>) = faults
        .into_inner()
        .into_iter()
        .map(|fault| FileFault::locate(&source.path, &source.text, fault))
        .partition(|fault| fault.message.starts_with(NOT_TOML));
    let mut lines = BTreeSet::new();
    located.retain(|fault| lines.insert(fault.line));
    located.extend(
        others
            .into_iter()
            .filter(|fault| !lines.contains(&fault.line)),
    );
    located
}
