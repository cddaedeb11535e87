//! The configuration: any text is a configuration that keeps the promises of its types, or is
//! refused with a place for every fault.

use std::cell::OnceCell;
use std::path::Path;

use tickpost::config::{Config, Destination, SAMPLE};
use tickpost::model::policy::{Dedupe, OnUnknown};
use tickpost::model::schedule::wait_ms;

use super::Target;

/// See [`check`].
pub const TARGET: Target = Target {
    name: "config",
    check,
    seeds,
};

thread_local! {
    static DIR: OnceCell<tempfile::TempDir> = const { OnceCell::new() };
}

/// Holds for any bytes.
///
/// # Panics
///
/// If it does not.
pub fn check(bytes: &[u8]) {
    DIR.with(|dir| {
        let memory = Path::new("/dev/shm");
        let dir = dir.get_or_init(|| {
            let made = if memory.is_dir() {
                tempfile::tempdir_in(memory)
            } else {
                tempfile::tempdir()
            };
            made.unwrap()
        });
        let path = dir.path().join("tickpost.toml");
        std::fs::write(&path, bytes).unwrap();
        match Config::load(&path) {
            Ok(config) => {
                for (name, destination) in &config.destinations {
                    assert_eq!(*name, destination.name);
                    promises(destination, bytes);
                }
                let told = config.notify.destinations.iter();
                for name in told.chain(&config.notify.in_text) {
                    assert!(config.destinations.contains_key(name), "{name}");
                }
                assert!(config.tick.concurrency > 0);
                let again = Config::load(&path).unwrap();
                let prints = |config: &Config| -> Vec<String> {
                    let all = config.destinations.values();
                    all.map(|one| one.fingerprint.clone()).collect()
                };
                assert_eq!(
                    prints(&again),
                    prints(&config),
                    "read twice, it is the same"
                );
            }
            Err(error) => {
                let faults = error.faults();
                assert!(
                    !faults.is_empty(),
                    "a text is refused with its faults: {error}"
                );
                let lines = bytes.split(|b| *b == b'\n').count();
                for fault in faults {
                    assert!((1..=lines).contains(&fault.line), "{fault}");
                    assert!(!fault.message.is_empty(), "{fault}");
                    assert!(!fault.message.ends_with('.'), "{fault}");
                }
                assert!(faults.is_sorted_by_key(|fault| fault.line), "{error}");
            }
        }
    });
}

fn promises(destination: &Destination, bytes: &[u8]) {
    let policy = &destination.policy;
    if destination.command.is_none() {
        let base = &destination.base_url;
        assert!(matches!(base.scheme(), "http" | "https"), "{base}");
        assert!(
            base.username().is_empty() && base.password().is_none(),
            "{base}"
        );
        assert!(
            base.query().is_none() && base.fragment().is_none(),
            "{base}"
        );
        let allowed = bytes.windows(16).any(|part| part == b"allow_plain_http");
        let host = base.host_str().unwrap();
        let here = host.starts_with("127.") || host == "localhost" || host == "[::1]";
        assert!(base.scheme() == "https" || here || allowed, "{base}");
        assert_eq!(
            policy.total_timeout_ms,
            destination.connect_timeout_ms + destination.response_timeout_ms
        );
        let by_key = policy.on_unknown == OnUnknown::Resend && policy.dedupe == Dedupe::Key;
        assert!(!by_key || destination.key.is_sent(), "sent again by no key");
    }
    assert!(policy.backoff.factor >= 1.0 && policy.backoff.factor.is_finite());
    assert!(destination.concurrency > 0);
    if let Some(rate) = destination.rate {
        assert!(rate.count > 0 && rate.per_ms > 0);
    }
    let mut last = 0;
    for done in [0, 1, 2, 3, 10, 1_000, u32::MAX] {
        let wait = wait_ms(&policy.backoff, done, None, 0);
        assert!(wait >= last && wait <= policy.backoff.max_ms.max(wait));
        last = wait;
    }
    assert!(!destination.rules.describe().is_empty());
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![SAMPLE.as_bytes().to_vec()];
    // Every setting, switched on alone.
    let settings = SAMPLE
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .filter(|line| !line.starts_with(' ') && line.contains('='));
    for setting in settings {
        for section in [
            "[destination.a]\nbase_url = \"https://a.example\"\n",
            "[tick]\n",
            "[retry]\n",
            "[retention]\n",
            "[limits]\n",
            "[notify]\n",
        ] {
            let text = format!("{section}{setting}\n");
            let table = SAMPLE
                .split("\n[")
                .find(|part| part.contains(&format!("\n#{setting}\n")));
            let here = table.is_some_and(|part| section.contains(&part[..4]));
            let of_destination = section.contains("base_url") && !setting.starts_with("base_url");
            if here || (of_destination && table.is_none_or(|part| part.contains("store]"))) {
                seeds.push(text.into_bytes());
            }
        }
    }
    for text in [
        "[destination.a]\nbase_url = \"https://a.example/x\"\nkey = { kind = \"header\", name = \"K\", window = \"24h\" }\n\
         auth = { bearer = { file = \"t\" } }\nrate = \"5/s\"\n[[destination.a.rule]]\nstate = \"failed\"\n\
         reason = \"content_rejected\"\nwhen = { status = [402], json = { \"/error/code\" = \"card_declined\" } }\n",
        "[notify]\ncommand = [\"/bin/true\", \"x\"]\ncommand_timeout = \"30s\"\ndestinations = [\"a\"]\non = [\"held\"]\n\
         [destination.a]\nbase_url = \"http://127.0.0.1:1\"\nnotice = \"text\"\n",
    ] {
        seeds.push(text.as_bytes().to_vec());
    }
    seeds
}
