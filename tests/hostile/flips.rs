//! One changed byte, and one cut, anywhere in an item's file, in each state.

use std::collections::BTreeMap;
use std::fs;

use tickpost::model::event::Event;
use tickpost::model::ids::RequestId;
use tickpost::model::item::{Item, event_line};
use tickpost::model::state::State;
use tickpost::model::time::UnixMs;

use super::bench::{Bench, KEYED};
use super::common;
use super::support::Receiver;

const BODY: &str = "{\"n\":1}";

/// The `n`th item in a state, and where it belongs.
fn item(n: usize, state: State) -> (RequestId, String, Vec<u8>) {
    let mut envelope = common::envelope(1);
    let id = common::id(n as u64);
    envelope.request_id = id;
    envelope.destination = "shop".parse().unwrap();
    let (_, mut bytes) = Item::accept(envelope, common::accepted()).unwrap();
    let place = match state {
        State::Pending => format!("pending/shop/{id}.jsonl"),
        State::Unknown => format!("unknown/shop/20261129T1541Z/{id}.jsonl"),
        State::Held => format!("held/shop/{id}.jsonl"),
        State::Confirmed => format!("confirmed/shop/20261129/{id}.jsonl"),
        State::Failed => format!("failed/shop/20261129/{id}.jsonl"),
    };
    let due = UnixMs(common::NOW.0 + 1000);
    let due = [State::Unknown, State::Pending]
        .contains(&state)
        .then_some(due);
    let event: Event = common::attempt(1, common::NOW, state, due);
    bytes.extend(event_line(&event).unwrap());
    (id, place, bytes)
}

/// Spoils each byte of an item of its own, and ticks.
fn spoil(state: State, what: &str, change: impl Fn(&mut Vec<u8>, usize)) {
    let receiver = Receiver::start(vec![]);
    let bench = Bench::with(&[("shop", &receiver.url(), KEYED)]);
    let (_, _, whole) = item(0, state);
    let envelope_bytes = whole.iter().position(|b| *b == b'\n').unwrap();
    let mut planted = BTreeMap::new();
    for at in 0..whole.len() {
        let (id, place, mut bytes) = item(at, state);
        change(&mut bytes, at);
        let path = bench.spool().join(&place);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, &bytes).unwrap();
        planted.insert(id.to_string(), (at, place, bytes));
    }
    let good = bench.enqueue("shop", &["--data", BODY]);
    for words in [&["status"][..], &["list"], &["tick", "--dry-run"]] {
        let ran = bench.run(words);
        assert!([Some(0), Some(1)].contains(&ran.code), "{what}: {ran:#?}");
    }
    bench.run(&["tick"]).ok();
    bench.run(&["tick"]).ok();
    let effects = receiver.effects();
    assert_eq!(effects[&good].times, 1, "{what} {state}");
    for arrival in receiver.arrivals() {
        // Whatever was judged good was sent as it was accepted.
        assert_eq!(arrival.text(), BODY, "{what} {state}");
    }
    let mut judged: BTreeMap<&str, usize> = BTreeMap::new();
    let files = bench.tree();
    for (id, (at, place, bytes)) in &planted {
        let aside = files.get(&format!("corrupt/{id}.jsonl"));
        let sent = effects.get(id);
        if let Some(aside) = aside {
            assert_eq!(
                &aside.bytes, bytes,
                "{what} {state} at {at}: nothing of it is lost"
            );
            assert!(files.contains_key(&format!("corrupt/{id}.jsonl.why.json")));
            assert_eq!(sent, None, "{what} {state} at {at}");
            *judged.entry("set aside").or_default() += 1;
            continue;
        }
        let places = bench_places(&files, id);
        assert_eq!(places.len(), 1, "{what} {state} at {at}: {places:?}");
        if [State::Pending, State::Unknown].contains(&state) {
            assert!(
                *at > envelope_bytes,
                "{what} {state} at {at}: in the envelope, and not found"
            );
        }
        match sent {
            Some(effect) => {
                assert_eq!(effect.times, 1, "{what} {state} at {at}");
                assert!(
                    [State::Pending, State::Unknown].contains(&state),
                    "{what} {state}"
                );
                assert!(
                    places[0].starts_with("confirmed/"),
                    "{what} {state} at {at}: {places:?}"
                );
                *judged.entry("sent").or_default() += 1;
            }
            None if places[0] == place => *judged.entry("left").or_default() += 1,
            None => *judged.entry("moved").or_default() += 1,
        }
    }
    println!("{what} {state}: {judged:?}");
}

fn bench_places<'t>(files: &'t BTreeMap<String, super::bench::Entry>, id: &str) -> Vec<&'t String> {
    files.keys().filter(|path| path.contains(id)).collect()
}

#[test]
fn a_changed_byte_is_found_or_harmless_in_every_state() {
    for state in State::ALL {
        spoil(state, "flip", |bytes, at| bytes[at] ^= 1);
    }
}

#[test]
fn a_cut_is_found_or_harmless_in_every_state() {
    for state in State::ALL {
        spoil(state, "cut", Vec::truncate);
    }
}
