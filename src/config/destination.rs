//! One `[destination.NAME]`.

use std::path::{Path, PathBuf};

use url::Url;

use super::key::{self, Key};
use super::reader::{Section, Value};
use super::sections::{self, Retry};
use super::{Auth, Destination, Tls, address, auth, command, fingerprint, units};
use crate::model::envelope::check_header;
use crate::model::ids::DestName;
use crate::model::key::KeyPlace;
use crate::model::policy::{Dedupe, OnUnknown, Policy, Stale};
use crate::model::rules::RuleSet;

const CONNECT_MS: u64 = 5_000;
const RESPONSE_MS: u64 = 60_000;
const CONCURRENCY: usize = 8;

/// Reads a destination's table; `None` when it has no usable address, which is recorded.
///
/// `base` is the directory from which relative paths of files start.
pub(super) fn read(
    name: &DestName,
    mut section: Section<'_>,
    usual: &Retry,
    base: &Path,
) -> Option<Destination> {
    for (key, hint) in [
        (
            "profile",
            "write the rules and the key of the receiver here",
        ),
        ("group", "set the rate of each destination instead"),
    ] {
        section.not_yet(key, hint);
    }
    let base_url = addresses(&mut section);
    let auth = section
        .take("auth")
        .and_then(|value| auth::read(&value, base));
    let key_value = section.take("key");
    let key = match &key_value {
        Some(value) => key::read(value),
        None => Some(Key::none()),
    };
    let headers = headers(&mut section, auth.as_ref(), key.as_ref());
    let (connect_timeout_ms, response_timeout_ms) = timeouts(&mut section);
    let total_timeout_ms = connect_timeout_ms.saturating_add(response_timeout_ms);
    let retry = section
        .take("retry")
        .and_then(|value| value.section("{ base = \"30s\", attempts = 20 }"))
        .map_or_else(|| usual.clone(), |section| sections::retry(section, usual));
    let (on_unknown, dedupe) = repeats(&mut section, key.as_ref());
    let key = key.unwrap_or_else(Key::none);
    if let (OnUnknown::Resend, Some(window_ms)) = (on_unknown, key.window_ms)
        && window_ms <= total_timeout_ms
        && let Some(value) = key_value
    {
        value.refuse(
            "has a window no longer than the whole timeout, so nothing could ever be sent again",
            "make key.window longer than timeout.connect and timeout.response together",
        );
    }
    let (stale, stale_after_ms) = stale(&mut section);
    let concurrency = sections::concurrency(&mut section).unwrap_or(CONCURRENCY);
    let rate = section
        .take("rate")
        .and_then(|value| value.parsed("a rate", units::rate));
    let tls = tls(&mut section, base);
    let notice = command::form(&mut section, &key.spec.place);
    section.leave(RuleSet::KEYS);
    let (rules, faults) = RuleSet::from_table(&format!("destination:{name}"), section.table());
    for fault in faults {
        section.faults().add(fault);
    }
    let fingerprint = fingerprint::of(section.table());
    section.finish();
    let (base_url, proxy) = base_url?;
    Some(Destination {
        name: name.clone(),
        base_url,
        auth,
        headers,
        key: key.spec,
        policy: Policy {
            on_unknown,
            dedupe,
            key_window_ms: key.window_ms,
            total_timeout_ms,
            backoff: retry.backoff,
            attempts_max: retry.attempts_max,
            age_ms_max: retry.age_ms_max,
            wait_ms_max: retry.wait_ms_max,
            stale_after_ms,
            stale,
        },
        connect_timeout_ms,
        response_timeout_ms,
        concurrency,
        rate,
        proxy,
        tls,
        rules,
        fingerprint,
        notice,
        command: None,
    })
}

/// `base_url` and `proxy`, neither of which may carry requests in the clear unasked.
fn addresses(section: &mut Section<'_>) -> Option<(Url, Option<Url>)> {
    let plain = section
        .take("allow_plain_http")
        .and_then(|value| value.boolean());
    let proxy_value = section.take("proxy");
    let proxy = proxy_value
        .as_ref()
        .and_then(|value| value.parsed("an address", address::proxy));
    let Some(value) = section.take("base_url") else {
        section.missing("base_url", "such as base_url = \"https://api.example.com\"");
        return None;
    };
    let url = value.parsed("an address", address::base_url)?;
    if url.scheme() == "http" && plain != Some(true) {
        let hint = "use https://, or write allow_plain_http = true if the way there is safe";
        if !address::is_loopback(&url) {
            value.refuse("would send requests and secrets in the clear", hint);
        } else if let (Some(value), Some(proxy)) = (&proxy_value, &proxy)
            && !address::is_loopback(proxy)
        {
            value.refuse("would carry plain http requests off this machine", hint);
        }
    }
    Some((url, proxy))
}

fn headers(
    section: &mut Section<'_>,
    auth: Option<&Auth>,
    key: Option<&Key>,
) -> Vec<(String, String)> {
    let mut headers: Vec<(String, String)> = Vec::new();
    let key_header = key.and_then(|key| match &key.spec.place {
        KeyPlace::Header(name) => Some(name.as_str()),
        KeyPlace::JsonBody(_)
        | KeyPlace::FormBody(_)
        | KeyPlace::Query(_)
        | KeyPlace::UrlPath
        | KeyPlace::Natural
        | KeyPlace::None => None,
    });
    let auth_header = auth.map(|auth| match auth {
        Auth::Bearer(_) | Auth::Basic { .. } => "authorization",
        Auth::Header { name, .. } => name.as_str(),
    });
    if let (Some(key), Some(auth)) = (key_header, auth_header)
        && key.eq_ignore_ascii_case(auth)
    {
        section.refuse(
            "sends its key and its auth in one header",
            "give key another name",
        );
    }
    let table = section
        .take("headers")
        .and_then(|value| value.section("{ \"X-App\" = \"shop\" }"));
    for (name, value) in table.iter().flat_map(Section::take_all) {
        let taken = |other: Option<&str>| other.is_some_and(|o| o.eq_ignore_ascii_case(name));
        if name.eq_ignore_ascii_case("authorization") {
            let hint = "use auth = { bearer = { file = \"…\" } }, or basic, or header";
            value.refuse_key("holds a secret in plain text", hint);
        } else if taken(auth_header) || taken(key_header) {
            value.refuse_key("is set by auth or key as well", "remove one of them");
        } else if headers.iter().any(|(other, _)| taken(Some(other))) {
            value.refuse_key(
                "is there in another spelling",
                "the case of letters does not count",
            );
        } else if let Some(text) = value.text() {
            match check_header(name, text) {
                Ok(()) => headers.push((name.to_owned(), text.to_owned())),
                Err(error) => value.refuse_key(&format!("cannot be sent: {error}"), "remove it"),
            }
        }
    }
    headers
}

fn timeouts(section: &mut Section<'_>) -> (u64, u64) {
    let table = section
        .take("timeout")
        .and_then(|value| value.section("{ connect = \"5s\", response = \"60s\" }"));
    let Some(mut table) = table else {
        return (CONNECT_MS, RESPONSE_MS);
    };
    let connect = sections::duration(&mut table, "connect", 1).unwrap_or(CONNECT_MS);
    let response = sections::duration(&mut table, "response", 1).unwrap_or(RESPONSE_MS);
    table.finish();
    (connect, response)
}

fn repeats(section: &mut Section<'_>, key: Option<&Key>) -> (OnUnknown, Dedupe) {
    let parked = (OnUnknown::Park, Dedupe::Never);
    let value = section.take("on_unknown");
    if let Some(value) = value.as_ref().filter(|value| value.is("probe")) {
        value.refuse(
            "is \"probe\", which is not in this version yet",
            "use \"resend\" or \"park\"",
        );
        return parked;
    }
    let words = [("resend", OnUnknown::Resend), ("park", OnUnknown::Park)];
    let asked = value.as_ref().and_then(|value| value.choice(&words));
    let Some(key) = key else { return parked };
    match (key::ground(key, asked), value) {
        (Ok(ground), _) => ground,
        (Err(wrong), Some(value)) => {
            value.refuse(wrong.message, wrong.hint);
            parked
        }
        (Err(_), None) => parked,
    }
}

fn stale(section: &mut Section<'_>) -> (Stale, Option<u64>) {
    let after = section.take("stale_after");
    let value = section.take("stale");
    let stale = value.as_ref().and_then(|value| {
        value.choice(&[
            ("send", Stale::Send),
            ("hold", Stale::Hold),
            ("fail", Stale::Fail),
        ])
    });
    if let (Some(value), None) = (&value, &after)
        && matches!(stale, Some(Stale::Hold | Stale::Fail))
    {
        value.refuse_key(
            "does nothing without stale_after",
            "add stale_after = \"1d\"",
        );
    }
    let after_ms = after.and_then(|value| value.duration_ms(1));
    (stale.unwrap_or(Stale::Send), after_ms)
}

fn tls(section: &mut Section<'_>, base: &Path) -> Tls {
    let hint = "{ ca_file = \"…\", client_cert = \"…\", client_key = \"…\" }";
    let Some(mut table) = section.take("tls").and_then(|value| value.section(hint)) else {
        return Tls::default();
    };
    let ca_file = table.take("ca_file");
    let client_cert = table.take("client_cert");
    let client_key = table.take("client_key");
    match (&client_cert, &client_key) {
        (Some(_), None) => table.missing("client_key", "client_cert and client_key go together"),
        (None, Some(_)) => table.missing("client_cert", "client_cert and client_key go together"),
        (Some(_), Some(_)) | (None, None) => {}
    }
    table.finish();
    let path = |value: Option<Value<'_>>| -> Option<PathBuf> {
        value?.filled().map(|path| base.join(path))
    };
    Tls {
        ca_file: path(ca_file),
        client_cert: path(client_cert),
        client_key: path(client_key),
    }
}
