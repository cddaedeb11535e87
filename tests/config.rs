//! What a configuration means, and what is said of one that means nothing.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use tickpost::config::{
    Auth, Config, ConfigError, Destination, FileFault, NOTIFY_COMMAND, Rate, SAMPLE, SecretRef,
};
use tickpost::model::ids::DestName;
use tickpost::model::key::{KeyFormat, KeyPlace};
use tickpost::model::notice::Form;
use tickpost::model::policy::{Dedupe, OnUnknown, Stale};
use tickpost::model::tombstone::Retention;

/// Loads a configuration of these files; the first is the main one.
fn load(files: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    Config::load(&dir.path().join(files[0].0))
}

fn good(text: &str) -> Config {
    load(&[("tickpost.toml", text)]).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn faults(text: &str) -> Vec<FileFault> {
    let result = load(&[("tickpost.toml", text)]);
    result
        .err()
        .map(|error| error.faults().to_vec())
        .unwrap_or_default()
}

/// The one destination of a text.
fn destination(keys: &str) -> Destination {
    let text = format!("[destination.d]\nbase_url = \"https://x.example\"\n{keys}\n");
    good(&text).destinations.into_values().next().unwrap()
}

/// Asserts that each text has exactly one fault, in this line, with these words.
fn refused(head: &str, rows: &[(&str, usize, &str, &str)]) {
    for (text, line, message, hint) in rows {
        let found = faults(&format!("{head}{text}\n"));
        let [fault] = found.as_slice() else {
            panic!("one fault expected in {text}: {found:#?}");
        };
        assert_eq!(fault.line, *line, "{text}: {fault}");
        assert!(fault.message.contains(message), "{text}: {fault}");
        let said = fault.hint.as_deref().unwrap_or_default();
        assert!(said.contains(hint) && !said.is_empty(), "{text}: {fault}");
        assert!(!fault.message.starts_with(char::is_uppercase), "{fault}");
        assert!(!fault.message.ends_with('.'), "{fault}");
    }
}

const HEAD: &str = "[destination.d]\nbase_url = \"https://x.example\"\n";

#[test]
fn an_empty_file_is_a_configuration() {
    let config = good("");
    assert!(config.destinations.is_empty());
    assert_eq!(config.tick.max_runtime_ms, 50_000);
    assert_eq!(config.tick.concurrency, 32);
    assert_eq!(config.tick.grace_ms, None);
    assert_eq!(config.retention, Retention::default());
    assert_eq!(config.limits.max_body_bytes, 1_048_576);
    assert!(config.notify.destinations.is_empty());
    let on = config.notify.on;
    assert!(on.held && on.failed && on.parked && on.corrupt);
    assert!(!config.store.allow_network_filesystem);
}

#[test]
fn the_defaults_of_a_destination() {
    let d = destination("");
    assert_eq!(d.base_url.as_str(), "https://x.example/");
    assert_eq!(d.auth, None);
    assert_eq!(d.headers, []);
    assert_eq!(d.key.place, KeyPlace::None);
    assert_eq!(d.key.format, KeyFormat::Raw);
    assert_eq!(
        (d.connect_timeout_ms, d.response_timeout_ms),
        (5_000, 60_000)
    );
    assert_eq!(d.concurrency, 8);
    assert_eq!((d.rate, d.proxy, d.tls.ca_file), (None, None, None));
    let policy = d.policy;
    assert_eq!(
        (policy.on_unknown, policy.dedupe),
        (OnUnknown::Park, Dedupe::Never)
    );
    assert_eq!(policy.key_window_ms, None);
    assert_eq!(policy.total_timeout_ms, 65_000);
    assert_eq!(
        (policy.backoff.base_ms, policy.backoff.max_ms),
        (30_000, 3_600_000)
    );
    assert!((policy.backoff.factor - 2.0).abs() < f64::EPSILON);
    assert_eq!((policy.attempts_max, policy.age_ms_max), (20, 259_200_000));
    assert_eq!(policy.wait_ms_max, 86_400_000);
    assert_eq!((policy.stale_after_ms, policy.stale), (None, Stale::Send));
}

#[test]
fn every_key_does_something() {
    let config = good(
        r#"
        [tick]
        max_runtime = "10s"
        concurrency = 0x10
        grace = "0s"
        [retry]
        base = "1s"
        factor = 1.5
        age = "1d"
        [limits]
        max_body = "512KiB"
        [notify]
        destinations = ["b"]
        on = ["parked", "corrupt"]
        [store]
        allow_network_filesystem = true
        [destination.a]
        base_url = "http://10.0.0.1:8080/api"
        allow_plain_http = true
        auth = { basic = { user = "u", password = { env = "PW" } } }
        headers = { "X-B" = "2", "X-A" = "1" }
        key = { kind = "json_body", name = "nonce", format = "short22", max = 25, window = "5m" }
        timeout = { connect = "1s", response = "2s" }
        retry = { max = "2m", attempts = 3, max_wait = "1h" }
        concurrency = 1
        rate = "100/m"
        proxy = "http://127.0.0.1:3128"
        tls = { ca_file = "/ca.pem", client_cert = "c.pem", client_key = "tls/k.pem" }
        stale_after = "1d"
        stale = "hold"
        [destination.b]
        base_url = "http://localhost"
        on_unknown = "resend"
        "#,
    );
    assert_eq!(config.tick.max_runtime_ms, 10_000);
    assert_eq!(
        (config.tick.concurrency, config.tick.grace_ms),
        (16, Some(0))
    );
    assert_eq!(config.limits.max_body_bytes, 524_288);
    let on = config.notify.on;
    assert!(!on.held && !on.failed && on.parked && on.corrupt);
    assert!(config.store.allow_network_filesystem);
    let [a, b] = config.destinations.values().collect::<Vec<_>>()[..] else {
        panic!("two destinations");
    };
    assert_eq!(config.notify.destinations, std::slice::from_ref(&b.name));
    assert_eq!(
        a.auth,
        Some(Auth::Basic {
            user: "u".into(),
            password: SecretRef::Env("PW".into())
        })
    );
    let headers = [("X-A", "1"), ("X-B", "2")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(a.headers, headers);
    assert_eq!(a.key.place, KeyPlace::JsonBody("/nonce".into()));
    assert_eq!(a.key.format, KeyFormat::Short22);
    assert_eq!(a.policy.key_window_ms, Some(300_000));
    assert_eq!(
        (a.policy.on_unknown, a.policy.dedupe),
        (OnUnknown::Resend, Dedupe::Key)
    );
    assert_eq!(a.policy.total_timeout_ms, 3_000);
    assert_eq!(
        (a.policy.backoff.base_ms, a.policy.backoff.max_ms),
        (1_000, 120_000)
    );
    assert!((a.policy.backoff.factor - 1.5).abs() < f64::EPSILON);
    assert_eq!(
        (a.policy.attempts_max, a.policy.age_ms_max),
        (3, 86_400_000)
    );
    assert_eq!(a.policy.wait_ms_max, 3_600_000);
    assert_eq!(
        (a.policy.stale, a.policy.stale_after_ms),
        (Stale::Hold, Some(86_400_000))
    );
    assert_eq!(a.concurrency, 1);
    assert_eq!(
        a.rate,
        Some(Rate {
            count: 100,
            per_ms: 60_000
        })
    );
    assert_eq!(
        a.proxy.as_ref().map(url::Url::as_str),
        Some("http://127.0.0.1:3128/")
    );
    let base = config.path.parent().unwrap();
    assert_eq!(a.tls.ca_file.as_deref(), Some(Path::new("/ca.pem")));
    assert_eq!(a.tls.client_cert, Some(base.join("c.pem")));
    assert_eq!(a.tls.client_key, Some(base.join("tls/k.pem")));
    assert_eq!(b.policy.dedupe, Dedupe::IdempotentMethods);
    assert_eq!(b.policy.attempts_max, 20);
}

#[test]
fn secrets_are_referred_to() {
    let text = format!("{HEAD}auth = {{ bearer = {{ file = \"t\" }} }}");
    let config = good(&text);
    let file = config.path.parent().unwrap().join("t");
    let d = config.destinations.values().next().unwrap();
    assert_eq!(d.auth, Some(Auth::Bearer(SecretRef::File(file))));
    let d = destination("auth = { bearer = { credential = \"c\" } }");
    assert_eq!(
        d.auth,
        Some(Auth::Bearer(SecretRef::Credential("c".into())))
    );
    let d = destination(
        "[destination.d.auth.header]\nname = \"Authorization\"\nprefix = \"Token \"\n\
         value = { env = \"T\" }",
    );
    assert_eq!(
        d.auth,
        Some(Auth::Header {
            name: "Authorization".into(),
            prefix: "Token ".into(),
            value: SecretRef::Env("T".into())
        })
    );
}

#[test]
fn a_pasted_secret_is_refused_and_never_shown() {
    for text in [
        "auth = \"s3cret\"",
        "auth = { bearer = \"s3cret\" }",
        "auth = { bearer = [\"s3cret\"] }",
        "auth = { bearer = { file = [\"s3cret\"] } }",
        "auth = { bearer = { env = \"s3cret=\" } }",
        "auth = { bearer = { credential = \"s3cret/\" } }",
        "auth = { basic = \"s3cret\" }",
        "auth = { basic = { user = \"u\", password = \"s3cret\" } }",
        "auth = { basic = { user = \"u:s3cret\", password = { env = \"P\" } } }",
        "auth = { header = \"s3cret\" }",
        "auth = { header = { name = \"X\", value = \"s3cret\" } }",
        "auth = { header = { name = \"X\", prefix = \"s3cret\\u0000\", value = { env = \"P\" } } }",
        "headers = { Authorization = \"Bearer s3cret\" }",
        "headers = { \"X-A\" = \"s3cret\\n\" }",
        "proxy = \"http://u:s3cret@p\"",
        "auth = { bearer = s3cret }",
        "auth = { bearer = 's3cret",
        "auth = { bearer = \"s3cret\\q\" }",
    ] {
        let found = faults(&format!("{HEAD}{text}\n"));
        assert!(!found.is_empty(), "{text}");
        for fault in found {
            assert!(!format!("{fault:?} {fault}").contains("s3cret"), "{fault}");
            assert_eq!(fault.line, 3, "{fault}");
        }
    }
    let found = faults("[destination.d]\nbase_url = \"https://u:s3cret@x.example\"\n");
    assert!(
        found.len() == 1 && !found[0].to_string().contains("s3cret"),
        "{found:?}"
    );
    refused(
        HEAD,
        &[
            (
                "auth = { bearer = \"abc\" }",
                3,
                "auth.bearer holds a secret in plain text",
                "file = ",
            ),
            (
                "auth = \"abc\"",
                3,
                "holds a secret in plain text",
                "credential = ",
            ),
            (
                "headers = { authorization = \"x\" }",
                3,
                "secret in plain text",
                "use auth",
            ),
        ],
    );
}

#[test]
#[rustfmt::skip] // One row a line.
fn faults_outside_of_destinations() {
    refused(
        "",
        &[
            ("[tikc]", 1, "unknown key `tikc`", "did you mean `tick`?"),
            ("zzz = 1", 1, "unknown key `zzz`", "known are: tick retry"),
            ("tick = 5", 1, "must be a table, not an integer", "[tick]"),
            ("\n[tick]\nmax_runtim = \"1s\"", 3, "unknown key `max_runtim` in tick", "`max_runtime`"),
            ("[tick]\nmax_runtime = 5", 2, "tick.max_runtime is a bare number", "\"5s\""),
            ("[tick]\nmax_runtime = 5.0", 2, "is a bare number", "\"5s\""),
            ("[tick]\nmax_runtime = \"0s\"", 2, "is too short: `0s`", "1ms"),
            ("[tick]\nmax_runtime = \"101 years\"", 2, "is too long", "100 years"),
            ("[tick]\nmax_runtime = \"soon\"", 2, "`soon`, which is no duration", "1h 30m"),
            ("[tick]\nmax_runtime = true", 2, "must be a duration, not a boolean", "string"),
            ("[tick]\nconcurrency = 0", 2, "is out of bounds", "from 1 to"),
            ("[tick]\nconcurrency = -1", 2, "is out of bounds", "from 1 to"),
            ("[tick]\nconcurrency = 99999999999999999999", 2, "is out of bounds", "from 1 to"),
            ("[tick]\nconcurrency = \"8\"", 2, "must be a whole number, not a string", "without quotes"),
            ("[retry]\nfactor = 0.5", 2, "retry.factor is not a factor", "at least 1"),
            ("[retry]\nfactor = inf", 2, "is not a factor", "at least 1"),
            ("[retry]\nfactor = nan", 2, "is not a factor", "at least 1"),
            ("[retry]\nfactor = \"2\"", 2, "must be a number", "without quotes"),
            ("[retry]\nattempts = 0", 2, "is out of bounds", "from 1 to"),
            ("[retry]\nmax = \"0s\"", 2, "is too short", "at least 1ms"),
            ("[retry]\nage = \"0s\"", 2, "is too short", "at least 1ms"),
            ("[retry]\nmax_age = \"1d\"", 2, "unknown key `max_age`", "known are: base factor"),
            ("[limits]\nmax_body = 0", 2, "is out of bounds", "1 byte"),
            ("[limits]\nmax_body = \"1M\"", 2, "`1M`, which is no size", "MiB"),
            ("[limits]\nmax_items = 0", 2, "limits.max_items is out of bounds", "from 1"),
            ("[limits]\nmin_free = \"much\"", 2, "`much`, which is no size", "MiB"),
            ("[retention]\nconfirmed = 7", 2, "retention.confirmed is a bare number", "\"5s\""),
            ("[retention]\nfailed = \"long\"", 2, "`long`, which is no duration", "1h 30m"),
            ("[retention]\ntombstones = \"23h\"", 2, "retention.tombstones is too short", "at least"),
            ("[retention]\nheld = \"7d\"", 2, "unknown key `held` in retention", "known are: confirmed failed tombstones"),
            ("retention = \"7d\"", 1, "must be a table, not a string", "[retention]"),
            ("[metrics]\nfile = \"x\"", 1, "metrics is not in this version yet", "remove"),
            ("[report]", 1, "report is not in this version yet", "remove"),
            ("[notify]\ncommand = \"mail -s x\"", 2, "notify.command is a string", "as a list"),
            ("[notify]\ncommand = []\ndestinations = [\"notify-command\"]", 2, "notify.command names no program", "sendmail"),
            ("[notify]\ncommand = [\"\"]", 2, "notify.command[0] is empty", "name"),
            ("[notify]\ncommand = [\"a\", 7]", 2, "notify.command[1] must be a string", "quotes"),
            ("[notify]\ncommand = [\"a\", \"\\u0000\"]", 2, "notify.command[1] holds a NUL", "remove"),
            ("[notify]\ncommand = 7", 2, "notify.command must be a list", "brackets"),
            ("[notify]\ncommand = [\"a\"]\ncommand_timeout = \"0s\"", 3, "is too short", "1ms"),
            ("[notify]\ncommand_timeout = \"5s\"", 2, "does nothing without notify.command", "sendmail"),
            ("[notify]\ndestinations = [\"notify-command\"]", 2, "which is not configured", "add command ="),
            ("[destination.notify-command]\nbase_url = \"https://x\"", 1, "the command of [notify] is told", "another name"),
            ("[notify]\ndestinations = [\"ops\"]", 2, "`ops`, which is not configured", "[destination.ops]"),
            ("[notify]\ndestinations = [\"Ops\"]", 2, "is no name", "[destination.*]"),
            ("[notify]\ndestinations = \"ops\"", 2, "must be a list", "brackets"),
            ("[notify]\ndestinations = [\n1]", 3, "destinations[0] must be a string", "quotes"),
            ("[notify]\non = [\"held\", \"faild\"]", 2, "cannot be `faild`", "`failed`"),
            ("[notify]\non = [\"confirmed\"]", 2, "cannot be `confirmed`", "one of: held"),
            ("[store]\nurl = \"postgres://db\"", 2, "store.url is not in this version yet", "PostgreSQL is not"),
            ("[store]\nallow_network_filesystem = 1", 2, "must be true or false", "without quotes"),
            ("[destination.UPPER]\nbase_url = \"https://x\"", 1, "is not a destination name", "[destination."),
            ("[destination]\na = 1", 2, "destination.a must be a table", "[destination.NAME]"),
            ("[[destination]]", 1, "must be a table, not an array", "[destination.NAME]"),
            ("[tick]\n[tick]", 2, "is not TOML: duplicate key `tick`", "further up"),
            ("[tick]\ngrace = \"1s\"\n  grace = \"2s\"", 3, "is not TOML: duplicate key `grace`", "further up"),
            ("[destination.\"é\"]\n[destination.\"é\"]", 2, "is not TOML: duplicate key `\"é\"`", "further up"),
            ("[retry]\n[destination.shop]\nretry = { base = \"1s\", base = \"2s\" }", 3, "duplicate key `base`", "further up"),
            ("\n\na = = 1", 3, "is not TOML", "toml.io"),
        ],
    );
}

#[test]
#[rustfmt::skip] // One row a line.
fn faults_of_addresses() {
    refused(
        "[destination.d]\n",
        &[
            ("", 1, "destination.d.base_url is missing", "https://api.example.com"),
            ("base_url = 1", 2, "must be an address, not an integer", "quotes"),
            ("base_url = \"x.example\"", 2, "is no address with a scheme", "https://"),
            ("base_url = \"ftp://x.example\"", 2, "must start with https:// or http://", "https://"),
            ("base_url = \"https://x:y\"", 2, "is no address", "https://"),
            ("base_url = \"https://u:p@x.example\"", 2, "holds a user or a password", "auth = "),
            ("base_url = \"https://x.example?a=1\"", 2, "holds a `?` or `#`", "--query"),
            ("base_url = \"https://x.example#a\"", 2, "holds a `?` or `#`", "--query"),
            ("base_url = \"http://x.example\"", 2, "in the clear", "allow_plain_http = true"),
            ("base_url = \"http://x.example\"\nallow_plain_http = false", 2, "in the clear", "allow_plain_http"),
            ("base_url = \"http://127.0.0.1\"\nproxy = \"http://x.example\"", 3, "off this machine", "allow_plain_http"),
        ],
    );
    refused(
        HEAD,
        &[
            ("proxy = \"https://p.example\"", 3, "must be an http:// address", "tunnel"),
            ("proxy = \"http://u:p@p.example\"", 3, "holds a user or a password", "secret"),
            ("proxy = \"http://p.example/x\"", 3, "more than host and port", "3128"),
        ],
    );
    for host in ["localhost", "127.0.0.1", "127.8.9.1:80", "[::1]:8080"] {
        good(&format!(
            "[destination.d]\nbase_url = \"http://{host}/x\"\n"
        ));
    }
}

#[test]
#[rustfmt::skip] // One row a line.
fn faults_of_keys_and_repeats() {
    refused(
        HEAD,
        &[
            ("key = \"header\"", 3, "must be a table", "kind = \"header\""),
            ("key = {}", 3, "destination.d.key.kind is missing", "one of: header"),
            ("key = { kind = \"heder\", name = \"K\" }", 3, "cannot be `heder`", "`header`"),
            ("key = { kind = \"header\" }", 3, "key.name is missing", "Idempotency-Key"),
            ("key = { kind = \"query\", name = \"\" }", 3, "is empty", "leave the key out"),
            ("key = { kind = \"form_body\" }", 3, "key.name is missing", "field"),
            ("key = { kind = \"json_body\", name = \"/a~\" }", 3, "is no JSON pointer", "~0"),
            ("key = { kind = \"header\", name = \"a b\" }", 3, "cannot be sent", "Idempotency-Key"),
            ("key = { kind = \"header\", name = \"Host\" }", 3, "cannot be sent", "Idempotency-Key"),
            ("key = { kind = \"header\", name = \"K\", max = 35 }", 3, "is 35, but a key of this format has 36", "short22"),
            ("key = { kind = \"header\", name = \"K\", max = 35, format = \"uuid\" }", 3, "has 36", "short22"),
            ("key = { kind = \"header\", name = \"K\", max = 37, format = \"sf-string\" }", 3, "has 38", "short22"),
            ("key = { kind = \"header\", name = \"K\", max = 21, format = \"short22\" }", 3, "has 22", "tid"),
            ("key = { kind = \"header\", name = \"K\", max = 12, format = \"tid\" }", 3, "has 13", "no format"),
            ("key = { kind = \"header\", name = \"K\", max = 0 }", 3, "is out of bounds", "from 1"),
            ("key = { kind = \"header\", name = \"K\", format = \"hex\" }", 3, "cannot be `hex`", "one of: raw"),
            ("key = { kind = \"header\", name = \"K\", window = 5 }", 3, "is a bare number", "\"5s\""),
            ("key = { kind = \"header\", name = \"K\", windw = \"1h\" }", 3, "unknown key `windw`", "`window`"),
            ("key = { kind = \"url_path\", name = \"K\" }", 3, "does nothing here", "{request_id}"),
            ("key = { kind = \"natural\", max = 50 }", 3, "does nothing here", "remove it"),
            ("key = { kind = \"none\", window = \"1h\" }", 3, "does nothing here", "remove it"),
            ("key = { kind = \"header\", name = \"K\", window = \"65s\" }", 3, "could ever be sent again", "timeout"),
            ("on_unknown = \"probe\"", 3, "\"probe\", which is not in this version yet", "park"),
            ("on_unknown = \"resent\"", 3, "cannot be `resent`", "`resend`"),
            ("key = { kind = \"header\", name = \"K\" }\non_unknown = \"resend\"", 4, "the key has no window", "window = \"24h\""),
        ],
    );
    let window_of_a_parked_key =
        "key = { kind = \"query\", name = \"K\", window = \"1s\" }\non_unknown = \"park\"";
    assert_eq!(
        destination(window_of_a_parked_key).policy.key_window_ms,
        Some(1000)
    );
}

#[test]
#[rustfmt::skip] // One row a line.
fn faults_of_the_rest_of_a_destination() {
    refused(
        HEAD,
        &[
            ("bse_url = \"x\"", 3, "unknown key `bse_url` in destination.d", "`base_url`"),
            ("profile = \"stripe\"", 3, "destination.d.profile is not in this version yet", "rules"),
            ("group = \"g\"", 3, "is not in this version yet", "rate"),
            ("auth = {}", 3, "must be one of bearer, basic and header", "basic"),
            ("auth = { bearer = {} }", 3, "must be one of file, env and credential", "file"),
            ("auth = { bearer = { file = \"a\", env = \"b\" } }", 3, "must be one of file, env", "file"),
            ("auth = { bearer = { file = \"\" } }", 3, "is empty", "name something"),
            ("auth = { bearer = { fil = \"a\", env = \"b\" } }", 3, "unknown key `fil`", "`file`"),
            ("auth = { bearer = { credential = \"../x\" } }", 3, "is no name of a systemd credential", "LoadCredential"),
            ("auth = { basic = { password = { env = \"P\" } } }", 3, "auth.basic.user is missing", "plain"),
            ("auth = { basic = { user = \"u\" } }", 3, "password is missing", "file"),
            ("auth = { header = { value = { env = \"P\" } } }", 3, "name is missing", "X-Api-Key"),
            ("auth = { header = { name = \"X\" } }", 3, "value is missing", "file"),
            ("auth = { header = { name = \"Host\", value = { env = \"P\" } } }", 3, "cannot be sent", "X-Api-Key"),
            ("headers = { \"a b\" = \"1\" }", 3, "cannot be sent: header name", "remove"),
            ("headers = { Host = \"1\" }", 3, "cannot be sent", "remove"),
            ("headers = { a = 1 }", 3, "headers.a must be a string", "quotes"),
            ("headers = { a = \"1\", A = \"2\" }", 3, "in another spelling", "case"),
            ("headers = { x = \"1\" }\nkey = { kind = \"header\", name = \"X\" }", 3, "is set by auth or key", "one"),
            ("timeout = { connect = 5 }", 3, "timeout.connect is a bare number", "\"5s\""),
            ("timeout = { response = \"0s\" }", 3, "is too short", "1ms"),
            ("timeout = { conect = \"5s\" }", 3, "unknown key `conect` in destination.d.timeout", "`connect`"),
            ("timeout = \"5s\"", 3, "must be a table", "connect"),
            ("retry = { factor = 0 }", 3, "retry.factor is not a factor", "at least 1"),
            ("retry = { atempts = 1 }", 3, "unknown key `atempts`", "`attempts`"),
            ("concurrency = 0", 3, "is out of bounds", "from 1"),
            ("rate = \"25\"", 3, "`25`, which is no rate", "\"25/s\""),
            ("rate = 25", 3, "must be a rate, not an integer", "quotes"),
            ("tls = { client_cert = \"c\" }", 3, "client_key is missing", "together"),
            ("tls = { client_key = \"c\" }", 3, "client_cert is missing", "together"),
            ("tls = { ca = \"c\" }", 3, "unknown key `ca`", "ca_file"),
            ("stale = \"hold\"", 3, "does nothing without stale_after", "stale_after"),
            ("stale_after = \"0s\"", 3, "is too short", "1ms"),
            ("stale_after = \"1d\"\nstale = \"drop\"", 4, "cannot be `drop`", "one of: send"),
        ],
    );
}

#[test]
fn all_faults_of_a_file_are_told_at_once_in_order() {
    let text = "[tick]\n\
                max_runtime = 5\n\
                [destination.d]\n\
                bse_url = \"x\"\n\
                concurrency = 0\n\
                auth = { bearer = \"abc\" }\n\
                [notify]\n\
                destinations = [\"e\"]\n\
                [zzz]\n";
    let error = load(&[("t.toml", text)]).unwrap_err();
    let lines: Vec<usize> = error.faults().iter().map(|fault| fault.line).collect();
    assert_eq!(lines, [2, 3, 4, 5, 6, 8, 9], "{error}");
    let shown = error.to_string();
    assert_eq!(shown.lines().count(), 7, "{shown}");
    let first = shown.lines().next().unwrap();
    let want =
        "t.toml:2: tick.max_runtime is a bare number, not a duration (write the unit, in quotes: ";
    assert!(first.contains(want), "{first}");
}

#[test]
fn a_syntax_error_hides_no_other_fault_and_makes_none() {
    let text = "[tick]\n\
                concurrency = 0\n\
                [destination.d]\n\
                base_url = https://x.example\n\
                [notify]\n\
                destinations = [\"e\"]\n";
    let found = faults(text);
    let lines: Vec<usize> = found.iter().map(|fault| fault.line).collect();
    assert_eq!(lines, [2, 4], "{found:#?}");
    assert!(
        found[1].message.starts_with("is not TOML: "),
        "{}",
        found[1]
    );
}

#[test]
fn a_dotted_name_needs_quotes() {
    let found = faults("[destination.api.example]\nbase_url = \"https://x\"\n");
    let hints: Vec<&str> = found
        .iter()
        .filter_map(|fault| fault.hint.as_deref())
        .collect();
    assert!(
        hints.iter().any(|hint| hint.contains("quotes")),
        "{found:#?}"
    );
    good("[destination.\"api.example\"]\nbase_url = \"https://x\"\n");
}

#[test]
fn files_of_destinations_d_are_read_in_the_order_of_their_names() {
    let one = "[destination.one]\nbase_url = \"https://x\"\nauth = { bearer = { file = \"t\" } }\n";
    let config = load(&[
        (
            "tickpost.toml",
            "[notify]\ndestinations = [\"two\"]\n[retry]\nattempts = 7\n",
        ),
        ("destinations.d/a.toml", one),
        (
            "destinations.d/b.toml",
            "[destination.two]\nbase_url = \"https://x\"\n",
        ),
        ("destinations.d/c.toml.bak", "nonsense"),
        ("destinations.d/.d.toml", "nonsense"),
    ])
    .unwrap();
    let names: Vec<&str> = config.destinations.keys().map(DestName::as_str).collect();
    assert_eq!(names, ["one", "two"]);
    assert!(
        config
            .destinations
            .values()
            .all(|d| d.policy.attempts_max == 7)
    );
    let secret = SecretRef::File(config.path.parent().unwrap().join("t"));
    assert_eq!(
        config.destinations.values().next().unwrap().auth,
        Some(Auth::Bearer(secret))
    );
}

#[test]
fn a_link_to_the_configuration_is_followed_and_paths_start_from_the_real_file() {
    let dir = tempfile::tempdir().unwrap();
    let etc = dir.path().join("etc");
    let spool = dir.path().join("spool");
    fs::create_dir_all(etc.join("destinations.d")).unwrap();
    fs::create_dir_all(spool.join("destinations.d")).unwrap();
    let one = "[destination.one]\nbase_url = \"https://x\"\nauth = { bearer = { file = \"t\" } }\n";
    let two = "[destination.two]\nbase_url = \"https://x\"\nauth = { bearer = { file = \"u\" } }\n";
    fs::write(etc.join("tickpost.toml"), one).unwrap();
    fs::write(etc.join("destinations.d/two.toml"), two).unwrap();
    // What stands beside the link is not beside the configuration.
    fs::write(spool.join("destinations.d/three.toml"), "nonsense").unwrap();
    let link = spool.join("tickpost.toml");
    std::os::unix::fs::symlink("../etc/tickpost.toml", &link).unwrap();
    let config = Config::load(&link).unwrap();
    let etc = fs::canonicalize(etc).unwrap();
    let secrets: Vec<_> = config.destinations.values().map(|d| &d.auth).collect();
    let wanted = ["t", "u"].map(|name| Some(Auth::Bearer(SecretRef::File(etc.join(name)))));
    assert_eq!(secrets, wanted.iter().collect::<Vec<_>>());
    assert_eq!(config.path, link, "it is named as the user named it");
}

#[test]
fn faults_of_destinations_d_name_their_file() {
    let error = load(&[
        (
            "tickpost.toml",
            "[destination.one]\nbase_url = \"https://x\"\n",
        ),
        ("destinations.d/b.toml", "[tick]\nconcurrency = 1\n"),
        (
            "destinations.d/a.toml",
            "\n[destination.one]\nbase_url = \"https://x\"\n",
        ),
        ("destinations.d/c.toml/file", ""),
    ])
    .unwrap_err();
    let [twice, tick, unreadable] = error.faults() else {
        panic!("{error}");
    };
    assert!(
        twice.file.ends_with("destinations.d/a.toml") && twice.line == 2,
        "{twice}"
    );
    assert!(
        twice.message.contains("destination `one` is there twice"),
        "{twice}"
    );
    assert!(
        twice.hint.as_deref().unwrap().contains("tickpost.toml:1"),
        "{twice}"
    );
    assert!(
        tick.file.ends_with("destinations.d/b.toml") && tick.line == 1,
        "{tick}"
    );
    assert!(
        tick.message.contains("does not belong in destinations.d"),
        "{tick}"
    );
    assert!(
        unreadable.message.contains("cannot be read"),
        "{unreadable}"
    );
}

#[test]
fn a_missing_file_says_what_to_do() {
    let error = Config::load(Path::new("/nonexistent/tickpost.toml")).unwrap_err();
    assert!(matches!(error, ConfigError::Missing { .. }));
    assert!(error.to_string().contains("tickpost init"), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let error = Config::load(dir.path()).unwrap_err();
    assert!(matches!(error, ConfigError::Io { .. }), "{error}");
}

#[test]
fn bytes_that_are_no_text_have_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.toml");
    fs::write(&path, b"# one\n# two \xff\n").unwrap();
    let error = Config::load(&path).unwrap_err();
    assert!(
        error.to_string().contains("t.toml:2: is not UTF-8 text"),
        "{error}"
    );
}

#[test]
fn the_command_is_one_more_destination_and_the_last_that_is_told() {
    let name: DestName = NOTIFY_COMMAND.parse().unwrap();
    assert!(!good("").destinations.contains_key(&name));
    let text = "[retry]\nattempts = 7\n\
                [notify]\n\
                destinations = [\"d\"]\n\
                command = [\"bin/tell\", \"\", \"a b\"]\n\
                [destination.d]\n\
                base_url = \"https://x.example\"\n\
                notice = \"text\"\n";
    let config = good(text);
    let told: Vec<&str> = config
        .notify
        .destinations
        .iter()
        .map(DestName::as_str)
        .collect();
    assert_eq!(told, ["d", NOTIFY_COMMAND]);
    assert_eq!(config.notify.in_text, ["d".parse().unwrap()]);
    let it = &config.destinations[&name];
    let command = it.command.as_ref().unwrap();
    assert_eq!(
        command.program,
        config.path.with_file_name("bin/tell"),
        "relative to the file"
    );
    assert_eq!(command.arguments, ["", "a b"]);
    assert_eq!(command.timeout_ms, 30_000);
    assert!(
        it.policy.total_timeout_ms > 30_000,
        "grace lets it end by itself"
    );
    assert_eq!((it.policy.attempts_max, it.concurrency), (7, 1));
    assert_eq!(it.notice, Form::Json);

    let twice = good(
        "[notify]\n\
         destinations = [\"notify-command\"]\n\
         command = [\"tell\"]\n\
         command_timeout = \"5s\"\n",
    );
    assert_eq!(twice.notify.destinations, std::slice::from_ref(&name));
    let command = twice.destinations[&name].command.as_ref().unwrap();
    assert_eq!(
        command.program,
        Path::new("tell"),
        "a bare name is for PATH"
    );
    assert_eq!(command.timeout_ms, 5_000);
    assert_ne!(it.fingerprint, twice.destinations[&name].fingerprint);
}

#[test]
fn a_notice_of_text_has_no_place_for_a_key_in_its_body() {
    refused(
        HEAD,
        &[
            (
                "notice = \"html\"",
                3,
                "notice cannot be `html`",
                "json text",
            ),
            (
                "notice = \"text\"\nkey = { kind = \"json_body\", name = \"id\" }",
                3,
                "destination.d.notice is \"text\"",
                "header",
            ),
            (
                "notice = \"text\"\nkey = { kind = \"form_body\", name = \"id\" }",
                3,
                "destination.d.notice is \"text\"",
                "header",
            ),
        ],
    );
    let header = "notice = \"text\"\nkey = { kind = \"header\", name = \"K\", window = \"1h\" }";
    assert_eq!(destination(header).notice, Form::Text);
    let json = "notice = \"json\"\nkey = { kind = \"json_body\", name = \"id\" }";
    assert_eq!(destination(json).notice, Form::Json);
}

#[test]
fn the_fingerprint_changes_with_the_destination_alone() {
    let print = |keys: &str, rest: &str| {
        let text = format!("{rest}\n{HEAD}{keys}\n");
        good(&text)
            .destinations
            .into_values()
            .next()
            .unwrap()
            .fingerprint
    };
    let plain = print("", "");
    assert_eq!(plain.len(), 64);
    assert_eq!(plain, print("# comment", "[tick]\nconcurrency = 4"));
    assert_ne!(plain, print("concurrency = 8", ""));
}

/// A commented-out setting has no blank after its `#`; an explanation has one.
fn uncommented(sample: &str) -> String {
    let setting = |line: &str| line.len() > 1 && line.starts_with('#') && !line.starts_with("# ");
    let line = |line| if setting(line) { &line[1..] } else { line };
    sample.lines().map(line).collect::<Vec<&str>>().join(
        "
",
    )
}

#[test]
fn the_sample_loads_as_it_is_and_says_nothing() {
    let (sample, empty) = (good(SAMPLE), good(""));
    assert_eq!(sample.tick, empty.tick);
    assert_eq!(sample.limits, empty.limits);
    assert_eq!(sample.notify, empty.notify);
    assert!(sample.destinations.is_empty());
}

#[test]
fn the_sample_loads_with_every_setting_in_force_and_shows_the_defaults() {
    let text = uncommented(SAMPLE);
    let (sample, empty) = (good(&text), good(""));
    assert_eq!(sample.tick.max_runtime_ms, empty.tick.max_runtime_ms);
    assert_eq!(sample.tick.concurrency, empty.tick.concurrency);
    assert_eq!(sample.tick.grace_ms, Some(65_000));
    assert_eq!(sample.retention, empty.retention);
    assert_eq!(sample.limits.max_body_bytes, empty.limits.max_body_bytes);
    assert_eq!(sample.limits.min_free_bytes, empty.limits.min_free_bytes);
    assert_eq!(sample.limits.max_items, Some(1_000_000));
    assert_eq!(sample.notify.on, empty.notify.on);
    assert_eq!(sample.store, empty.store);
    let (command, mut rest): (Vec<_>, Vec<_>) = sample
        .destinations
        .into_values()
        .partition(|shown| shown.command.is_some());
    assert_eq!(command[0].response_timeout_ms, 30_000);
    let shown = rest.pop().unwrap();
    let plain = destination("");
    assert_eq!(shown.policy.backoff, plain.policy.backoff);
    assert_eq!(shown.policy.attempts_max, plain.policy.attempts_max);
    assert_eq!(shown.policy.age_ms_max, plain.policy.age_ms_max);
    assert_eq!(shown.policy.wait_ms_max, plain.policy.wait_ms_max);
    assert_eq!(shown.policy.total_timeout_ms, plain.policy.total_timeout_ms);
    assert_eq!(shown.policy.stale, plain.policy.stale);
    assert_eq!(shown.concurrency, plain.concurrency);
    // Whoever adds a key shows it: every known key of each section stands in the sample.
    for line in text
        .lines()
        .filter(|l| l.starts_with('[') && !l.starts_with("[["))
    {
        let wrong = text.replacen(line, &format!("{line}\nzzzzzz = 1"), 1);
        let found = faults(&wrong);
        let hint = found
            .iter()
            .find(|f| f.message.contains("unknown key `zzzzzz`"));
        let hint = hint
            .and_then(|fault| fault.hint.clone())
            .unwrap_or_default();
        for key in hint
            .strip_prefix("known are: ")
            .unwrap_or_default()
            .split(' ')
        {
            let rules = ["rule", "strict_503", "atomic_body"];
            let shown = text
                .lines()
                .any(|line| line.starts_with(&format!("{key} = ")));
            assert!(shown || rules.contains(&key), "{line} {key}");
        }
    }
}

/// Lines that are nearly right, to get behind the parser.
fn lines() -> impl Strategy<Value = String> {
    let keys = prop::sample::select(vec![
        "[tick]",
        "[destination.d]",
        "[destination]",
        "[[destination]]",
        "[notify]",
        "[retry]",
        "max_runtime =",
        "concurrency =",
        "base_url =",
        "auth =",
        "auth.bearer =",
        "headers =",
        "key =",
        "key.kind =",
        "key.window =",
        "key.name =",
        "key.max =",
        "retry =",
        "rate =",
        "proxy =",
        "tls =",
        "stale =",
        "on =",
        "destinations =",
        "command =",
        "command_timeout =",
        "notice =",
        "on_unknown =",
        "factor =",
        "",
    ]);
    let values = prop_oneof![
        Just(String::new()),
        prop::sample::select(vec![
            "\"header\"",
            "\"1h\"",
            "{}",
            "[]",
            "[[]]",
            "true",
            "1",
            "-1",
            "1e400",
            "inf",
            "\"99999999999y 99999999999y 1000000000ns\"",
            "{ kind = \"natural\" }",
            "0xfffffffffff",
            "\"http://[::1]\"",
            "\"https://x\"",
            "{ file = \"a\" }",
            "1979-05-27",
            "\"\\u0000\"",
        ])
        .prop_map(str::to_owned),
        "\\PC{0,12}",
    ];
    let line = (keys, values).prop_map(|(key, value)| format!("{key} {value}\n"));
    prop::collection::vec(line, 0..12).prop_map(|lines| lines.concat())
}

fn survives(bytes: &[u8]) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.toml");
    fs::write(&path, bytes).unwrap();
    if let Err(error) = Config::load(&path) {
        let lines = 1 + String::from_utf8_lossy(bytes).matches('\n').count();
        assert!(!error.faults().is_empty());
        for fault in error.faults() {
            assert!((1..=lines).contains(&fault.line), "{fault}");
            assert!(!fault.to_string().contains('\n'), "{fault}");
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        survives(&bytes);
    }

    #[test]
    fn nearly_right_lines_never_panic(text in lines()) {
        survives(text.as_bytes());
    }
}
