#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::config::{Auth, SecretRef, Tls};
use crate::model::envelope::{Body, Requester, VERSION, sha256_hex};
use crate::model::key::{KeyFormat, KeySpec};
use crate::model::policy::{Backoff, Dedupe, OnUnknown, Policy, Stale};
use crate::model::rules::RuleSet;
use crate::model::time::UnixMs;

const ID: &str = "019adf3e-6b6b-7cc3-98f2-3a1c5d2e8f10";

fn destination(base: &str, place: KeyPlace) -> Destination {
    Destination {
        name: "d".parse().unwrap(),
        base_url: base.parse().unwrap(),
        auth: None,
        headers: vec![],
        key: KeySpec {
            place,
            format: KeyFormat::Raw,
        },
        policy: Policy {
            on_unknown: OnUnknown::Park,
            dedupe: Dedupe::Never,
            key_window_ms: None,
            total_timeout_ms: 2,
            backoff: Backoff {
                base_ms: 1,
                factor: 2.0,
                max_ms: 1,
            },
            attempts_max: 1,
            age_ms_max: 1,
            wait_ms_max: 1,
            stale_after_ms: None,
            stale: Stale::Send,
        },
        connect_timeout_ms: 1,
        response_timeout_ms: 1,
        concurrency: 1,
        rate: None,
        proxy: None,
        tls: Tls::default(),
        notice: crate::model::notice::Form::Json,
        command: None,
        rules: RuleSet::default_only(),
        fingerprint: String::new(),
    }
}

fn envelope(path: &str, body: &str) -> Envelope {
    Envelope {
        v: VERSION,
        request_id: ID.parse().unwrap(),
        destination: "d".parse().unwrap(),
        enqueued_at: UnixMs(0),
        request: Request {
            method: "POST".into(),
            path: path.into(),
            query: vec![],
            headers: vec![],
            content_type: None,
            body: (!body.is_empty()).then(|| Body::Text(body.into())),
            body_sha256: sha256_hex(body.as_bytes()),
        },
        requester: Requester::default(),
        notify: vec![],
        labels: BTreeMap::new(),
        key: None,
        retry_of: None,
        not_before: None,
        not_after: None,
        notice: false,
    }
}

fn url_of(base: &str, path: &str) -> Result<String, AssembleError> {
    let to = destination(base, KeyPlace::None);
    assemble(&envelope(path, ""), &to, None, None).map(|made| made.url.to_string())
}

fn json(body: &str, pointer: &str) -> Result<String, AssembleError> {
    let to = destination("https://h", KeyPlace::JsonBody(pointer.into()));
    let made = assemble(&envelope("/", body), &to, None, None)?;
    let Payload::Bytes(body) = made.body else {
        panic!("the body is in no file");
    };
    Ok(String::from_utf8(body).unwrap())
}

fn form(body: &str, content_type: Option<&str>) -> Result<String, AssembleError> {
    let to = destination("https://h", KeyPlace::FormBody("k k".into()));
    let mut item = envelope("/", body);
    item.request.content_type = content_type.map(Into::into);
    let made = assemble(&item, &to, None, None)?;
    let Payload::Bytes(body) = made.body else {
        panic!("the body is in no file");
    };
    Ok(String::from_utf8(body).unwrap())
}

#[test]
fn path_below_base() {
    for (base, path, want) in [
        ("https://h", "", "https://h/"),
        ("https://h", "/v1/x", "https://h/v1/x"),
        ("https://h/api", "/v1/x", "https://h/api/v1/x"),
        ("https://h/api/", "/v1/x", "https://h/api/v1/x"),
        ("https://h/api", "", "https://h/api"),
        ("https://h/api/", "", "https://h/api/"),
        ("https://h/api", "/", "https://h/api/"),
        ("https://h:8443/a", "/%2Fb//c", "https://h:8443/a/%2Fb//c"),
        ("http://[::1]:80/a?x=1", "/b", "http://[::1]/a/b?x=1"),
    ] {
        assert_eq!(url_of(base, path).unwrap(), want, "{base} {path}");
    }
    for path in ["/../x", "//evil", "x", "/a/%2e%2e/%2E%2e/b", "/a\tb"] {
        assert!(url_of("https://h/api", path).is_err(), "{path:?}");
    }
    assert_eq!(
        url_of("https://u:p@h", "/"),
        Err(AssembleError::Base("holds a user or password; use auth"))
    );
}

#[test]
fn query_is_appended_and_encoded() {
    let to = destination("https://h/a?x=1", KeyPlace::Query("requestId".into()));
    let mut item = envelope("/b", "");
    item.request.query = vec![("q".into(), "a b&c=d#".into())];
    let made = assemble(&item, &to, None, None).unwrap();
    let want = format!("https://h/a/b?x=1&q=a+b%26c%3Dd%23&requestId={ID}");
    assert_eq!(made.url.as_str(), want);

    item.request.query = vec![("requestId".into(), ID.into())];
    let made = assemble(&item, &to, None, None).unwrap();
    assert_eq!(
        made.url.as_str(),
        format!("https://h/a/b?x=1&requestId={ID}")
    );

    item.request.query = vec![("requestId".into(), "mine".into())];
    assert!(matches!(
        assemble(&item, &to, None, None),
        Err(AssembleError::KeyTaken(_))
    ));
}

#[test]
fn key_in_path() {
    let mut to = destination("https://h/m", KeyPlace::UrlPath);
    let made = assemble(&envelope("/send/{request_id}", ""), &to, None, None).unwrap();
    assert_eq!(made.url.as_str(), format!("https://h/m/send/{ID}"));
    assert_eq!(
        assemble(&envelope("/send", ""), &to, None, None).err(),
        Some(AssembleError::NoPlaceholder)
    );
    to.key.format = KeyFormat::SfString;
    let made = assemble(&envelope("/{request_id}", ""), &to, None, None).unwrap();
    assert_eq!(made.url.as_str(), format!("https://h/m/%22{ID}%22"));
}

#[test]
fn key_in_json_leaves_the_rest_as_it_is() {
    let k = format!("\"k\":\"{ID}\"");
    for (body, pointer, want) in [
        ("{}", "/k", format!("{{{k}}}")),
        (" { } ", "/k", format!(" {{{k} }} ")),
        ("{\"a\":1.0e2}", "/k", format!("{{{k},\"a\":1.0e2}}")),
        ("\n{ \"b\" :{}}", "/b/k", format!("\n{{ \"b\" :{{{k}}}}}")),
        (
            "{\"z\":[{\"b\":0}],\"b\":{\"c\":{\"x\":1}}}",
            "/b/c/k",
            format!("{{\"z\":[{{\"b\":0}}],\"b\":{{\"c\":{{{k},\"x\":1}}}}}}"),
        ),
        ("{\"a/b\":{}}", "/a~1b/k", format!("{{\"a/b\":{{{k}}}}}")),
        (
            "{\"big\":12345678901234567890123.50,\"ü\":\"\\u00fc\"}",
            "/k",
            format!("{{{k},\"big\":12345678901234567890123.50,\"ü\":\"\\u00fc\"}}"),
        ),
    ] {
        assert_eq!(json(body, pointer).unwrap(), want, "{body} {pointer}");
    }
    let there = format!("{{ \"a\":1, {k} }}");
    assert_eq!(json(&there, "/k").unwrap(), there, "already there");
}

#[test]
fn json_that_does_not_take_the_key() {
    for (body, pointer) in [
        ("", "/k"),
        ("[]", "/k"),
        ("\"x\"", "/k"),
        ("{", "/k"),
        ("{} x", "/k"),
        ("a=b", "/k"),
        ("{}", "/a/k"),
        ("{\"a\":1}", "/a/k"),
        ("{\"a\":[{}]}", "/a/k"),
        ("{\"k\":\"other\"}", "/k"),
        ("{\"k\":null}", "/k"),
        ("{\"k\":1}", "/k"),
        ("{\"a\":{},\"a\":{}}", "/a/k"),
        ("{}", "k"),
        ("{}", ""),
    ] {
        let error = json(body, pointer).unwrap_err();
        let text = error.to_string();
        assert!(
            !text.is_empty() && !text.ends_with('.'),
            "{body} {pointer}: {text}"
        );
    }
}

#[test]
fn key_in_form() {
    let kind = Some("Application/X-WWW-Form-Urlencoded; charset=utf-8");
    assert_eq!(form("", kind).unwrap(), format!("k+k={ID}"));
    assert_eq!(form("a=1", kind).unwrap(), format!("a=1&k+k={ID}"));
    assert_eq!(form("a=1&", kind).unwrap(), format!("a=1&k+k={ID}"));
    let there = format!("k%20k={ID}&a");
    assert_eq!(form(&there, kind).unwrap(), there);
    assert!(matches!(
        form("k+k=2", kind),
        Err(AssembleError::KeyTaken(_))
    ));
    for kind in [None, Some("application/json"), Some("")] {
        assert!(
            matches!(form("a=1", kind), Err(AssembleError::NotForm(_))),
            "{kind:?}"
        );
    }
}

#[test]
fn headers_of_the_item_win_but_not_over_key_and_credential() {
    let mut to = destination("https://h", KeyPlace::Header("Idempotency-Key".into()));
    to.headers = vec![
        ("X-App".into(), "shop".into()),
        ("user-agent".into(), "shop/1".into()),
        ("authorization".into(), "static".into()),
        ("content-type".into(), "text/plain".into()),
    ];
    let auth = Auth::Bearer(SecretRef::Env("X".into()));
    let credential = Credential::new(&auth, "s3cret");
    let mut item = envelope("/", "{}");
    item.request.headers = vec![("x-app".into(), "mine".into()), ("X-B".into(), "1".into())];
    item.request.content_type = Some("application/json".into());

    let made = assemble(&item, &to, Some(&credential), None).unwrap();
    let mut headers: Vec<_> = made
        .headers
        .iter()
        .map(|(name, value)| format!("{}: {value}", name.to_ascii_lowercase()))
        .collect();
    headers.sort();
    assert_eq!(
        headers,
        [
            "content-type: application/json",
            &format!("idempotency-key: {ID}"),
            "user-agent: shop/1",
            "x-app: mine",
            "x-b: 1",
        ]
    );
    assert_eq!(made.credential.as_ref().unwrap().name(), "authorization");
    assert!(
        !format!("{made:?}").contains("s3cret"),
        "debug shows no secret"
    );

    for name in ["AUTHORIZATION", "idempotency-key"] {
        let mut item = item.clone();
        item.request.headers.push((name.into(), "x".into()));
        let error = assemble(&item, &to, Some(&credential), None).unwrap_err();
        assert!(
            matches!(error, AssembleError::HeaderTaken { .. }),
            "{error}"
        );
    }
    item.request.headers = vec![("Authorization".into(), "mine".into())];
    let made = assemble(&item, &to, None, None).unwrap();
    assert_eq!(value_of(&made.headers, "authorization"), Some("mine"));
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let to = destination("https://h", KeyPlace::None);
    let mut item = envelope("/", "");
    item.request.method = "CONNECT".into();
    assert_eq!(
        assemble(&item, &to, None, None).err(),
        Some(AssembleError::Connect)
    );

    let mut item = envelope("/", "body");
    item.request.body_sha256 = sha256_hex(b"another");
    assert_eq!(
        assemble(&item, &to, None, None).err(),
        Some(AssembleError::Request(RequestError::BodyHash))
    );

    let mut long = to.clone();
    long.headers = vec![("x".into(), "y".repeat(WHOLE_HEAD_BYTES_MAX))];
    let refused = assemble(&envelope("/", ""), &long, None, None);
    assert!(matches!(refused, Err(AssembleError::HeadTooLong(_))));
}

proptest! {
    /// No path, whatever its bytes, leaves the origin and the base path.
    #[test]
    fn no_path_leaves(path in "(/|//|\\.|%2e|%2E|\\\\|@|:|\\?|#|[a-z]|ü| |\t|%2f){0,12}") {
        if let Ok(url) = url_of("https://h:444/api", &path) {
            prop_assert!(url == "https://h:444/api" || url.starts_with("https://h:444/api/"), "{}", url);
        }
    }

    /// The key is the only difference that a reader of the JSON can see.
    #[test]
    fn json_gains_one_member(names in prop::collection::vec("[a-z\"\\\\{}, ]{0,4}", 0..5)) {
        let before: serde_json::Map<String, serde_json::Value> = names
            .iter()
            .map(|name| (format!("_{name}"), serde_json::json!({ name: [name] })))
            .collect();
        let text = serde_json::to_string_pretty(&before).unwrap();
        let mut after: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(&json(&text, "/k").unwrap()).unwrap();
        prop_assert_eq!(after.remove("k"), Some(serde_json::Value::from(ID)));
        prop_assert_eq!(after, before);
    }
}
