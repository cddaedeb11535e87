//! `[notify] command`: a program that is told, as one more destination of a name that is kept for
//! it.

use std::path::Path;

use url::Url;

use super::reader::{Section, Value};
use super::sections::Retry;
use super::{Destination, NOTIFY_COMMAND, NotifyCommand, Tls};
use crate::model::envelope::sha256_hex;
use crate::model::key::{KeyFormat, KeyPlace, KeySpec};
use crate::model::notice::Form;
use crate::model::policy::{Dedupe, OnUnknown, Policy, Stale};
use crate::model::rules::RuleSet;

/// How long a command has.
const TIMEOUT_MS: u64 = 30_000;

/// Reads `command` and `command_timeout`.
pub(super) fn read(section: &mut Section<'_>) -> Option<NotifyCommand> {
    let value = section.take("command");
    let timeout = section.take("command_timeout");
    if let (None, Some(timeout)) = (&value, &timeout) {
        timeout.refuse_key(
            "does nothing without notify.command",
            "add command = [\"/usr/sbin/sendmail\", \"-t\"], or remove it",
        );
    }
    let timeout_ms = timeout.and_then(|value| value.duration_ms(1));
    let words = words(&value?)?;
    let (program, arguments) = words.split_first()?;
    Some(NotifyCommand {
        program: program.into(),
        arguments: arguments.to_vec(),
        timeout_ms: timeout_ms.unwrap_or(TIMEOUT_MS),
    })
}

/// The program and its arguments; `None` when they are at fault.
fn words(value: &Value<'_>) -> Option<Vec<String>> {
    let hint = "write the program and each argument as a list, for no shell takes it apart: \
                command = [\"/usr/sbin/sendmail\", \"-t\"]";
    if value.is_text() {
        value.refuse("is a string", hint);
        return None;
    }
    let faults_before = value.faults().count();
    let elements = value.list();
    if elements.is_empty() && value.faults().count() == faults_before {
        value.refuse("names no program", hint);
    }
    let mut words = Vec::new();
    for (index, element) in elements.iter().enumerate() {
        // An argument may be empty, a program's name may not.
        let word = if index == 0 {
            element.filled()
        } else {
            element.text()
        };
        match word {
            Some(word) if word.contains('\0') => {
                element.refuse("holds a NUL, which no program can be given", "remove it");
            }
            Some(word) => words.push(word.to_owned()),
            None => {}
        }
    }
    let whole = !words.is_empty() && words.len() == elements.len();
    whole.then_some(words)
}

/// The destination that a command is. Relative paths of programs start from `base`.
pub(super) fn destination(
    mut command: NotifyCommand,
    retry: &Retry,
    base: &Path,
) -> Option<Destination> {
    // A bare name is looked for in PATH.
    if command.program.components().count() > 1 {
        command.program = base.join(command.program);
    }
    Some(Destination {
        name: NOTIFY_COMMAND.parse().ok()?,
        base_url: Url::parse("command:notify").ok()?,
        auth: None,
        headers: Vec::new(),
        // Only what is run is claimed.
        key: KeySpec {
            place: KeyPlace::None,
            format: KeyFormat::Raw,
        },
        policy: Policy {
            // To tell twice is better than never.
            on_unknown: OnUnknown::Resend,
            dedupe: Dedupe::Key,
            key_window_ms: None,
            total_timeout_ms: command.timeout_ms.saturating_add(NotifyCommand::KILL_MS),
            backoff: retry.backoff,
            attempts_max: retry.attempts_max,
            age_ms_max: retry.age_ms_max,
            wait_ms_max: retry.wait_ms_max,
            stale_after_ms: None,
            stale: Stale::Send,
        },
        connect_timeout_ms: 0,
        response_timeout_ms: command.timeout_ms,
        concurrency: 1,
        rate: None,
        proxy: None,
        tls: Tls::default(),
        rules: RuleSet::of_command(),
        fingerprint: sha256_hex(format!("{command:?}").as_bytes()),
        notice: Form::Json,
        command: Some(command),
    })
}

/// `notice`: what the body of a notice to a destination is.
pub(super) fn form(section: &mut Section<'_>, key: &KeyPlace) -> Form {
    let value = section.take("notice");
    let form = value
        .as_ref()
        .and_then(|value| value.choice(&[("json", Form::Json), ("text", Form::Text)]));
    if let (Some(value), Some(Form::Text)) = (&value, form)
        && matches!(key, KeyPlace::JsonBody(_) | KeyPlace::FormBody(_))
    {
        value.refuse(
            "is \"text\", and a text has no place for the key, which goes into the body",
            "write notice = \"json\", or give key another kind, such as header",
        );
    }
    form.unwrap_or_default()
}
