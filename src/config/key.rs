//! `key` and `on_unknown`: where the key goes, and whether a repeat is harmless.

use super::reader::{Section, Value};
use super::units::Wrong;
use crate::model::envelope::check_header;
use crate::model::key::{KeyFormat, KeyPlace, KeySpec};
use crate::model::policy::{Dedupe, OnUnknown};

/// The kinds of PROVIDERS.md, section 7.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Header,
    JsonBody,
    FormBody,
    Query,
    UrlPath,
    Natural,
    None,
}

/// A destination's key and how long the receiver remembers it.
pub(super) struct Key {
    pub(super) spec: KeySpec,
    pub(super) window_ms: Option<u64>,
}

impl Key {
    /// No key at all.
    pub(super) fn none() -> Self {
        let spec = KeySpec {
            place: KeyPlace::None,
            format: KeyFormat::Raw,
        };
        Self {
            spec,
            window_ms: None,
        }
    }
}

/// Reads `key`; `None` when it is at fault.
pub(super) fn read(value: &Value<'_>) -> Option<Key> {
    let mut section =
        value.section("{ kind = \"header\", name = \"Idempotency-Key\", window = \"24h\" }")?;
    let faults_before = section.faults().count();
    let kind = section.take("kind");
    if kind.is_none() {
        section.missing(
            "kind",
            "one of: header json_body form_body query url_path natural none",
        );
    }
    let kind = kind.and_then(|value| {
        value.choice(&[
            ("header", Kind::Header),
            ("json_body", Kind::JsonBody),
            ("form_body", Kind::FormBody),
            ("query", Kind::Query),
            ("url_path", Kind::UrlPath),
            ("natural", Kind::Natural),
            ("none", Kind::None),
        ])
    });
    let name = section.take("name");
    let format = section.take("format");
    let max = section.take("max");
    let window = section.take("window");
    let parsed_format = format.as_ref().map_or(Some(KeyFormat::Raw), |value| {
        value.choice(&[
            ("raw", KeyFormat::Raw),
            ("sf-string", KeyFormat::SfString),
            ("uuid", KeyFormat::Uuid),
            ("short22", KeyFormat::Short22),
            ("tid", KeyFormat::Tid),
        ])
    });
    let window_ms = window.as_ref().and_then(|value| value.duration_ms(1));
    if let (Some(max), Some(format)) = (&max, parsed_format) {
        check_max(max, format);
    }
    let place = kind.and_then(|kind| {
        if matches!(kind, Kind::Natural | Kind::None) {
            let put = "does nothing here: this kind puts no key into the request";
            for value in [&format, &max].into_iter().flatten() {
                value.refuse_key(put, "remove it");
            }
        }
        if let (Kind::None, Some(window)) = (kind, &window) {
            window.refuse_key(
                "does nothing here: there is no key to remember",
                "remove it",
            );
        }
        place(&section, kind, name.as_ref())
    });
    section.finish();
    let sound = value.faults().count() == faults_before;
    let spec = place
        .zip(parsed_format)
        .map(|(place, format)| KeySpec { place, format });
    spec.filter(|_| sound).map(|spec| Key { spec, window_ms })
}

fn place(section: &Section<'_>, kind: Kind, name: Option<&Value<'_>>) -> Option<KeyPlace> {
    match kind {
        Kind::Header => {
            let (value, name) = named(section, name, "such as \"Idempotency-Key\"")?;
            if let Err(error) = check_header(name, "") {
                value.refuse(
                    format!("cannot be sent: {error}"),
                    "such as \"Idempotency-Key\"",
                );
                return None;
            }
            Some(KeyPlace::Header(name.to_owned()))
        }
        Kind::JsonBody => {
            let hint = "the member's name or JSON pointer, such as \"/idempotency_key\"";
            let (value, name) = named(section, name, hint)?;
            match pointer(name) {
                Ok(pointer) => Some(KeyPlace::JsonBody(pointer)),
                Err(wrong) => {
                    value.refuse(wrong.message, wrong.hint);
                    None
                }
            }
        }
        Kind::FormBody => {
            let (_, name) = named(
                section,
                name,
                "the field's name, such as \"IdempotencyKey\"",
            )?;
            Some(KeyPlace::FormBody(name.to_owned()))
        }
        Kind::Query => {
            let (_, name) = named(section, name, "the parameter's name, such as \"requestId\"")?;
            Some(KeyPlace::Query(name.to_owned()))
        }
        Kind::UrlPath => {
            nameless(
                name,
                "remove it; the key replaces {request_id} in an item's path",
            );
            Some(KeyPlace::UrlPath)
        }
        Kind::Natural => {
            nameless(name, "remove it");
            Some(KeyPlace::Natural)
        }
        Kind::None => {
            nameless(name, "remove it");
            Some(KeyPlace::None)
        }
    }
}

/// The name that this kind needs.
fn named<'v, 'a>(
    section: &Section<'_>,
    name: Option<&'v Value<'a>>,
    hint: &str,
) -> Option<(&'v Value<'a>, &'a str)> {
    if name.is_none() {
        section.missing("name", hint);
    }
    let value = name?;
    value.filled().map(|name| (value, name))
}

/// Refuses a name where it does nothing.
fn nameless(name: Option<&Value<'_>>, hint: &str) {
    if let Some(value) = name {
        value.refuse_key("does nothing here: this kind has no name", hint);
    }
}

/// A JSON pointer as it is (RFC 6901), or a bare member name made into one.
fn pointer(name: &str) -> Result<String, Wrong> {
    if !name.starts_with('/') {
        return Ok(format!("/{}", name.replace('~', "~0").replace('/', "~1")));
    }
    let mut escapes = name.split('~').skip(1);
    if escapes.all(|rest| rest.starts_with(['0', '1'])) {
        Ok(name.to_owned())
    } else {
        let hint = "in a pointer `~` is written ~0 and a `/` within a name ~1";
        Err(Wrong::new("is no JSON pointer", hint))
    }
}

/// Checks that a key of this format fits what the receiver takes.
fn check_max(value: &Value<'_>, format: KeyFormat) {
    let Some(max) = value.integer(1..=u32::MAX) else {
        return;
    };
    let length = match format {
        KeyFormat::Raw | KeyFormat::Uuid => 36,
        KeyFormat::SfString => 38,
        KeyFormat::Short22 => 22,
        KeyFormat::Tid => 13,
    };
    if length > max {
        let hint = match max {
            22.. => "format = \"short22\" fits",
            13.. => "format = \"tid\" fits",
            _ => "no format is as short as that; use kind = \"none\"",
        };
        value.refuse(
            format!("is {max}, but a key of this format has {length} characters"),
            hint,
        );
    }
}

/// What becomes of an item whose answer was lost, and on what ground a repeat is harmless.
///
/// A key helps only while the receiver is known to remember it. Without any key, `resend` is the
/// owner's word about PUT and DELETE; with a key of unknown memory it would be a promise that
/// nothing keeps, so it is refused instead of silently parking what the owner wants resent.
pub(super) fn ground(key: &Key, asked: Option<OnUnknown>) -> Result<(OnUnknown, Dedupe), Wrong> {
    let dedupe = match key.spec.place {
        KeyPlace::None => None,
        KeyPlace::Natural => Some(Dedupe::Key),
        KeyPlace::Header(_)
        | KeyPlace::JsonBody(_)
        | KeyPlace::FormBody(_)
        | KeyPlace::Query(_)
        | KeyPlace::UrlPath => match (key.window_ms, asked) {
            (Some(_), _) => Some(Dedupe::Key),
            (None, Some(OnUnknown::Resend)) => {
                let hint = "add to key how long the receiver remembers it, such as window = \"24h\", \
                            or write on_unknown = \"park\"";
                return Err(Wrong::new("is \"resend\", but the key has no window", hint));
            }
            (None, Some(OnUnknown::Park) | None) => None,
        },
    };
    Ok(match (dedupe, asked) {
        (Some(dedupe), None) => (OnUnknown::Resend, dedupe),
        (Some(dedupe), Some(asked)) => (asked, dedupe),
        (None, Some(OnUnknown::Resend)) => (OnUnknown::Resend, Dedupe::IdempotentMethods),
        (None, Some(OnUnknown::Park) | None) => (OnUnknown::Park, Dedupe::Never),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeat_needs_a_ground() {
        use OnUnknown::{Park, Resend};
        let header = || KeyPlace::Header("K".into());
        let rows = [
            (KeyPlace::None, None, None, Some((Park, Dedupe::Never))),
            (
                KeyPlace::None,
                None,
                Some(Park),
                Some((Park, Dedupe::Never)),
            ),
            (
                KeyPlace::None,
                None,
                Some(Resend),
                Some((Resend, Dedupe::IdempotentMethods)),
            ),
            (KeyPlace::Natural, None, None, Some((Resend, Dedupe::Key))),
            (
                KeyPlace::Natural,
                None,
                Some(Park),
                Some((Park, Dedupe::Key)),
            ),
            (header(), Some(1), None, Some((Resend, Dedupe::Key))),
            (header(), Some(1), Some(Resend), Some((Resend, Dedupe::Key))),
            (header(), Some(1), Some(Park), Some((Park, Dedupe::Key))),
            (header(), None, None, Some((Park, Dedupe::Never))),
            (header(), None, Some(Park), Some((Park, Dedupe::Never))),
            (header(), None, Some(Resend), None),
        ];
        for (place, window_ms, asked, want) in rows {
            let format = KeyFormat::Raw;
            let shown = format!("{place:?} {window_ms:?} {asked:?}");
            let spec = KeySpec { place, format };
            assert_eq!(
                ground(&Key { spec, window_ms }, asked).ok(),
                want,
                "{shown}"
            );
        }
    }

    #[test]
    fn a_bare_name_becomes_a_pointer() {
        let rows = [
            ("nonce", Some("/nonce")),
            ("/a/b", Some("/a/b")),
            ("a/b~", Some("/a~1b~0")),
            ("/a~1b", Some("/a~1b")),
            ("/a~", None),
            ("/a~2", None),
        ];
        for (name, want) in rows {
            assert_eq!(pointer(name).ok().as_deref(), want, "{name}");
        }
    }
}
