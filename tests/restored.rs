//! Parts of a backup that were put back into a spool that went on: nothing is sent twice, and what
//! is known of an item is not lost to a file that knows less.
//!
//! CONTRACT 3 (one place an item) and 4 (G6, G7). Whole spools that were copied: `cli_adopt.rs`.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/bench.rs"]
mod bench;
mod support;

use std::fs;
use std::path::Path;

use bench::Bench;
use chrono::Datelike as _;
use support::{Receiver, Reply};

/// An item's file as it was, and where.
struct Kept {
    place: String,
    bytes: Vec<u8>,
}

impl Kept {
    fn of(bench: &Bench, id: &str) -> Self {
        let mut places = bench.places(id);
        places.retain(|place| !place.starts_with("corrupt/"));
        assert_eq!(places.len(), 1, "{places:?}");
        let place = places.remove(0);
        let bytes = fs::read(bench.spool().join(&place)).unwrap();
        Self { place, bytes }
    }

    /// Puts it back as `cp` does.
    fn put_back(&self, bench: &Bench) {
        write(&bench.spool().join(&self.place), &self.bytes);
    }
}

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn bench() -> (Bench, Receiver) {
    let receiver = Receiver::by_path([
        ("/held", vec![Reply::status(401)]),
        ("/unknown", vec![Reply::close()]),
        ("/failed", vec![Reply::status(422)]),
        ("/pending", vec![Reply::status(503).without_effect()]),
    ]);
    let bench = Bench::with(&[("shop", &receiver.url(), "")]);
    (bench, receiver)
}

#[test]
fn a_file_of_before_is_not_sent_again() {
    for state in ["confirmed", "failed", "held", "unknown"] {
        let (bench, receiver) = bench();
        let path = format!("/{state}");
        let id = bench.enqueue("shop", &["--path", &path, "--data", "x"]);
        let kept = Kept::of(&bench, &id);
        if state == "held" {
            bench.run(&["hold", &id]).ok();
        } else {
            assert_eq!(bench.tick()[state], 1, "{state}");
        }
        let sent = receiver.arrivals().len();
        let true_one = Kept::of(&bench, &id);
        assert!(true_one.place.starts_with(&format!("{state}/")));
        kept.put_back(&bench);

        bench.run(&["tick"]).ok().says("set aside as corrupt");
        assert_eq!(receiver.arrivals().len(), sent, "{state}: not again");
        assert_eq!(Kept::of(&bench, &id).bytes, true_one.bytes, "{state}");
        let why = bench.read_json(&format!("corrupt/{id}.jsonl.why.json"));
        let reason = why["reason"].as_str().unwrap();
        assert!(reason.contains(&true_one.place), "{reason}");
        bench.tick();
        assert_eq!(receiver.arrivals().len(), sent, "{state}");
    }
}

/// Also where the item waits for its next attempt: two files of it would be two requests.
#[test]
fn a_file_of_before_the_first_attempt_is_not_sent_beside_the_one_that_waits() {
    let (bench, receiver) = bench();
    let id = bench.enqueue("shop", &["--path", "/pending", "--data", "x"]);
    let kept = Kept::of(&bench, &id);
    assert_eq!(bench.tick()["pending"], 1);
    let waiting = Kept::of(&bench, &id);
    kept.put_back(&bench);
    bench.run(&["release", "--destination", "shop"]).ok();
    bench.run(&["tick"]).ok().says("set aside as corrupt");
    assert_eq!(receiver.arrivals().len(), 1);
    assert_eq!(Kept::of(&bench, &id).place, waiting.place);
}

/// The one that waits knows more: the other goes, and it is sent.
#[test]
fn a_file_that_knows_less_does_not_keep_its_item() {
    let (bench, receiver) = bench();
    let id = bench.enqueue("shop", &["--data", "x"]);
    bench.run(&["hold", &id]).ok();
    let kept = Kept::of(&bench, &id);
    bench.run(&["release", &id]).ok();
    kept.put_back(&bench);
    assert_eq!(bench.tick()["confirmed"], 1);
    assert_eq!(receiver.arrivals().len(), 1);
    assert!(bench.spool().join(format!("corrupt/{id}.jsonl")).exists());
}

/// `failed` says that nothing was done: it does not outdo a file that tells of a success, or of an
/// attempt.
#[test]
fn what_the_receiver_may_have_done_is_not_forgotten_for_a_cancelled_file() {
    for state in ["confirmed", "unknown", "held"] {
        let (bench, receiver) = bench();
        let path = format!("/{state}");
        let id = bench.enqueue("shop", &["--path", &path, "--data", "x"]);
        let pending = Kept::of(&bench, &id);
        bench.run(&["cancel", &id]).ok();
        let cancelled = Kept::of(&bench, &id);
        fs::remove_file(bench.spool().join(&cancelled.place)).unwrap();
        pending.put_back(&bench);
        assert_eq!(bench.tick()[state], 1);
        let told = Kept::of(&bench, &id);
        cancelled.put_back(&bench);
        bench.run(&["doctor", "--repair"]).code(1);
        assert_eq!(Kept::of(&bench, &id).place, told.place);
        assert_eq!(Kept::of(&bench, &id).bytes, told.bytes);
        assert_eq!(receiver.arrivals().len(), 1);
    }
}

/// Makes the events of a file a year older than the file.
fn age(path: &Path, bytes: &[u8]) {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let year: i32 = chrono::Utc::now().year();
    let (envelope, events) = text.split_once('\n').unwrap();
    let aged = events.replace(&format!("\"{year}-"), &format!("\"{}-", year - 1));
    assert_ne!(aged, events);
    write(path, format!("{envelope}\n{aged}").as_bytes());
}

/// An event would make it the younger of the two, and no file of before.
#[test]
fn a_file_of_before_is_looked_at_before_a_person_is_obeyed() {
    for words in ["release", "hold", "cancel"] {
        let (bench, receiver) = bench();
        let id = bench.enqueue("shop", &["--data", "x"]);
        if words == "release" {
            bench.run(&["hold", &id]).ok();
        }
        let kept = Kept::of(&bench, &id);
        if words == "release" {
            bench.run(&["release", &id]).ok();
        }
        assert_eq!(bench.tick()["confirmed"], 1);
        let confirmed = Kept::of(&bench, &id);
        age(&bench.spool().join(&confirmed.place), &confirmed.bytes);
        age(&bench.spool().join(&kept.place), &kept.bytes);

        let state = kept.place.split('/').next().unwrap();
        let all = ["--destination", "shop", "--state", state];
        bench
            .run(&[&[words][..], &all].concat())
            .code(1)
            .says(&confirmed.place);
        bench.tick();
        assert_eq!(receiver.arrivals().len(), 1, "{words}");
        assert_eq!(Kept::of(&bench, &id).place, confirmed.place, "{words}");
    }
}

/// Adopting holds what waits, and releasing sends it: but not what has been sent.
#[test]
fn what_was_sent_since_a_backup_is_not_adopted() {
    let (bench, receiver) = bench();
    let ids = ["1", "2"].map(|data| bench.enqueue("shop", &["--data", data]));
    let kept = ids.each_ref().map(|id| Kept::of(&bench, id));
    assert_eq!(bench.tick()["confirmed"], 2);
    for (id, kept) in ids.iter().zip(&kept) {
        let confirmed = Kept::of(&bench, id);
        age(&bench.spool().join(&confirmed.place), &confirmed.bytes);
        age(&bench.spool().join(&kept.place), &kept.bytes);
    }
    let lock = bench.spool().join("lock");
    fs::copy(&lock, bench.spool().join("lock.new")).unwrap();
    fs::rename(bench.spool().join("lock.new"), lock).unwrap();
    bench.run(&["tick"]).code(78);
    bench.run(&["doctor", "--adopt"]);
    for id in &ids {
        let aside = bench.spool().join(format!("corrupt/{id}.jsonl"));
        assert!(aside.exists(), "{}", aside.display());
    }
    bench.run(&["release", "--state", "held", "--destination", "shop"]);
    bench.tick();
    assert_eq!(receiver.arrivals().len(), 2);
}
