//! What a caller writes: it is refused in words, or it becomes an item that says the same and that
//! can only be sent to its destination.

use std::sync::OnceLock;

use tickpost::config::Config;
use tickpost::intake::{self, By};
use tickpost::model::draft::Draft;
use tickpost::model::envelope::INLINE_BYTES_MAX;
use tickpost::model::item::Item;
use tickpost::model::time::UnixMs;
use tickpost::store::memory::MemoryStore;
use tickpost::transport::request::{Payload, assemble};

use super::Target;

/// See [`check`].
pub const TARGET: Target = Target {
    name: "drop_box",
    check,
    seeds,
};

const NOW: UnixMs = UnixMs(1_795_966_830_000);

const CONFIG: &str = r#"
[destination.billing]
base_url = "https://api.example.com/base"
key = { kind = "header", name = "Idempotency-Key", window = "24h" }
[destination.path]
base_url = "https://api.example.com/base/"
key = { kind = "url_path", window = "24h" }
[destination.json]
base_url = "https://api.example.com"
key = { kind = "json_body", name = "/meta/key", window = "24h" }
[destination.form]
base_url = "https://api.example.com"
key = { kind = "form_body", name = "key", window = "24h" }
[destination.query]
base_url = "https://api.example.com/"
key = { kind = "query", name = "key", window = "24h" }
[destination.none]
base_url = "https://api.example.com/x"
[notify]
destinations = ["none"]
"#;

/// A configuration with every place of a key.
fn config() -> &'static Config {
    static READ: OnceLock<Config> = OnceLock::new();
    READ.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tickpost.toml");
        std::fs::write(&path, CONFIG).unwrap();
        Config::load(&path).unwrap()
    })
}

/// Holds for any bytes.
///
/// # Panics
///
/// If it does not.
pub fn check(bytes: &[u8]) {
    let draft = match Draft::parse(bytes) {
        Ok(draft) => draft,
        Err(error) => {
            let text = error.to_string();
            assert!(!text.is_empty());
            return;
        }
    };
    assert_eq!(
        Draft::parse(bytes).as_ref(),
        Ok(&draft),
        "read twice, it is the same"
    );
    let config = config();
    let store = MemoryStore::new();
    let by = By {
        now: NOW,
        who: "alice(1000)".to_owned(),
        principal: Some("alice".to_owned()),
        id: Some("019adf3e-6b6b-7cc3-98f2-3a1c5d2e8f10".parse().unwrap()),
    };
    for name in config.destinations.keys() {
        let mut draft = draft.clone();
        draft.destination = Some(name.clone());
        draft
            .notify
            .retain(|name| config.destinations.contains_key(name));
        let asked = draft.clone();
        let offer = match intake::offer(config, draft, None, &store, &by) {
            Ok(offer) => offer,
            Err((refused, _)) => {
                let text = refused.to_string();
                assert!(!text.is_empty());
                continue;
            }
        };
        assert_eq!(offer.body.is_some(), asked.body.len() > INLINE_BYTES_MAX);
        let (item, written) = Item::accept(offer.envelope, offer.accepted).unwrap();
        let read = Item::parse(&written).expect("what is written can be read");
        assert_eq!((&read.item, read.bytes_good), (&item, written.len()));
        let request = &item.envelope.request;
        if request.file_bytes().is_none() {
            assert_eq!(request.body_bytes().unwrap().unwrap(), asked.body);
        }
        assert_eq!(
            (&request.method, &request.path),
            (&asked.method, &asked.path)
        );
        assert_eq!(
            (&request.query, &request.headers),
            (&asked.query, &asked.headers)
        );
        // What was accepted can be sent, and to nobody else.
        let destination = &config.destinations[name];
        let sent = assemble(&item.envelope, destination, None, Some(asked.body))
            .expect("what was accepted can be sent");
        let base = &destination.base_url;
        assert_eq!(sent.url.origin(), base.origin());
        let stem = base.path().trim_end_matches('/');
        assert!(sent.url.path().starts_with(stem), "{}", sent.url);
        assert!(sent.url.fragment().is_none() && sent.url.username().is_empty());
        for (name, value) in &sent.headers {
            assert!(!name.is_empty());
            assert!(!value.contains(['\r', '\n', '\0']), "{name}: {value:?}");
        }
        assert!(matches!(
            sent.body,
            Payload::Bytes(_) | Payload::Streamed(_)
        ));
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = [
        r#"{"request":{}}"#,
        r#"{"destination":"billing","request":{"path":"/v1/{request_id}","body":{"json":{"amount":5,"meta":{}}}}}"#,
        r#"{"request":{"method":"PUT","path":"/{request_id}","headers":{"X-A":"1"},"query":{"a":"b c"}}}"#,
        r#"{"request":{"content_type":"application/x-www-form-urlencoded","body":{"text":"a=b&c=%20"}}}"#,
        r#"{"request":{"body":{"base64":"/wA="},"query":[["a","b"],["a","c"]]},"notify":["none"],"labels":{"a":"b"},"key":"k","hold":"operator","requester":{"principal":"p","thread":"t"}}"#,
        r#"{"v":1,"request_id":"019adf3e-6b6b-7cc3-98f2-3a1c5d2e8f10","enqueued_at":"2026-11-29T15:40:03.123Z","request":{"path":"/a%2fb;c=d"},"not_before":"2026-12-01T00:00:00Z","not_after":"2027-01-01T00:00:00+01:00"}"#,
        r#"{"request":{"path":"/..%2f..%2fx"}}"#,
        r#"{"request":{"body":{"json":{"meta":{"key":"mine"}}}},"notice":true}"#,
    ]
    .iter()
    .map(|text| text.as_bytes().to_vec())
    .collect();
    seeds.extend(
        super::examples("json")
            .into_iter()
            .filter(|block| block.contains("\"request\""))
            .map(String::into_bytes),
    );
    seeds
}
