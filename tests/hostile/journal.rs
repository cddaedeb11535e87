//! Journals that no tickpost has written.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};
use tickpost::model::envelope::sha256_hex;

use super::bench::{Bench, KEYED};
use super::support::Receiver;
use super::{good_item, make_fifo};

const ID: &str = "01a228af-9284-74bb-b250-40eff85f347b";

fn bench() -> (Bench, Receiver) {
    let receiver = Receiver::start(vec![]);
    let bench = Bench::with(&[("shop", &receiver.url(), KEYED)]);
    (bench, receiver)
}

/// A record as a line of a journal, its checksum right.
fn line(record: &Value) -> String {
    let json = record.to_string();
    format!("{} {json}\n", &sha256_hex(json.as_bytes())[..16])
}

fn write(bench: &Bench, bytes: impl AsRef<[u8]>) {
    fs::write(bench.spool().join("journal/00000001.jsonl"), bytes).unwrap();
}

fn move_of(from: &str, to: &str, why: Option<&str>) -> Value {
    let mut record = json!({"op": "move", "from": from, "to": to});
    if let Some(why) = why {
        record["why"] = json!(why);
    }
    record
}

/// Every command that reads, and a tick, with whatever exit code; none may be a bug.
fn read_all(bench: &Bench) {
    for words in [
        &["status"][..],
        &["list"],
        &["show", ID],
        &["status", "--check"],
        &["tick", "--dry-run"],
    ] {
        let ran = bench.run(words);
        assert!(
            ran.code.is_some_and(|code| code != 70 && code != 101),
            "{ran:#?}"
        );
    }
}

#[test]
fn a_record_that_names_a_place_outside_moves_nothing() {
    let (outer, inner) = ("outside", format!("{ID}.jsonl"));
    let item = format!("pending/shop/{ID}.jsonl");
    let absolute = |bench: &Bench| bench.dir().join(outer).display().to_string();
    let (plain, _receiver) = bench();
    let absolute_path = absolute(&plain);
    drop(plain);
    let records = [
        move_of("../outside", "corrupt/x", Some("w")),
        move_of(&absolute_path, "corrupt/x", Some("w")),
        move_of("pending/../../outside", "corrupt/x", Some("w")),
        move_of("incoming/../../outside", "corrupt/x", Some("w")),
        move_of("tickpost.toml", "corrupt/x", Some("w")),
        move_of("spool.json", "corrupt/x", Some("w")),
        move_of("incoming/shop/\u{0}", "corrupt/x", Some("w")),
        move_of(&item, "../taken", Some("w")),
        move_of(&item, "corrupt/../../taken", Some("w")),
        move_of(&item, "corrupt/a/b", Some("w")),
        move_of(&item, "/tmp/tickpost-taken", Some("w")),
        move_of(&item, "../taken", None),
        move_of(&item, &format!("pending/../{inner}"), None),
        move_of(&item, &format!("/pending/shop/{inner}"), None),
        move_of(
            &item,
            "confirmed/shop/20260101/01a228af-9284-74bb-b250-40eff85f3400.jsonl",
            None,
        ),
        move_of(&format!("../{item}"), &item, None),
        move_of("../outside", &item, None),
        json!({"op": "claim", "at": "2026-11-29T15:40:30.000Z", "items": [{"from": "../outside", "n": 1}]}),
        json!({"op": "claim", "at": "2026-11-29T15:40:30.000Z",
               "items": [{"from": format!("pending/../{inner}"), "n": 1}]}),
    ];
    for record in records {
        let (bench, receiver) = bench();
        let outside = bench.file(outer, "not ours");
        let near = bench.spool().join(&inner);
        fs::write(&near, "nor this").unwrap();
        fs::create_dir_all(bench.spool().join("pending/shop")).unwrap();
        fs::write(bench.spool().join(&item), good_item(ID, "shop")).unwrap();
        let config = fs::read(bench.spool().join("tickpost.toml")).unwrap();
        let bytes = line(&record).replace(&absolute_path, &outside);
        // The checksum is of what is written.
        let text = bytes.split_once(' ').unwrap().1.trim_end();
        write(&bench, line(&serde_json::from_str(text).unwrap()));
        read_all(&bench);
        bench.run(&["tick"]).ok().says("was not touched");
        assert_eq!(fs::read(&outside).unwrap(), b"not ours", "{record}");
        assert_eq!(fs::read(&near).unwrap(), b"nor this", "{record}");
        assert_eq!(
            fs::read(bench.spool().join("tickpost.toml")).unwrap(),
            config
        );
        assert!(!bench.dir().join("taken").exists(), "{record}");
        assert!(!Path::new("/tmp/tickpost-taken").exists());
        assert!(bench.files("corrupt/").is_empty(), "{record}");
        // The item is sent, once.
        assert_eq!(receiver.arrivals().len(), 1, "{record}");
        let confirmed = bench.files("confirmed/");
        assert_eq!(confirmed.len(), 1, "{record}");
        bench.run(&["tick"]).ok().says_not("was not touched");
    }
}

#[test]
fn a_record_does_not_lead_through_a_link() {
    let (bench, receiver) = bench();
    let away = bench.dir().join("away");
    fs::create_dir(&away).unwrap();
    let name = format!("{ID}.jsonl");
    fs::write(away.join(&name), good_item(ID, "linked")).unwrap();
    symlink(&away, bench.spool().join("pending/linked")).unwrap();
    let from = format!("pending/linked/{name}");
    let claim =
        json!({"op": "claim", "at": "2026-11-29T15:40:30.000Z", "items": [{"from": from, "n": 1}]});
    for record in [claim, move_of(&from, &format!("held/linked/{name}"), None)] {
        write(&bench, line(&record));
        read_all(&bench);
        bench.run(&["tick"]).ok().says("pending/linked");
        assert!(away.join(&name).exists());
        assert_eq!(fs::read_dir(&away).unwrap().count(), 1);
    }
    fs::remove_file(bench.spool().join("pending/linked")).unwrap();
    bench.run(&["tick"]).ok();
    assert!(receiver.arrivals().is_empty());
    assert!(away.join(&name).exists());
}

#[test]
fn what_is_no_record_is_the_end_of_a_journal() {
    let good = line(&move_of(
        &format!("pending/shop/{ID}.jsonl"),
        &format!("held/shop/{ID}.jsonl"),
        None,
    ));
    let huge = format!("{} {}\n", "0".repeat(16), "x".repeat(32 << 20));
    let mut flipped = good.clone().into_bytes();
    flipped[20] ^= 1;
    for bytes in [
        Vec::new(),
        b"garbage".to_vec(),
        vec![0; 100_000],
        vec![0xff; 1000],
        vec![b'\n'; 1000],
        huge.into_bytes(),
        flipped,
        good.as_bytes()[..good.len() - 1].to_vec(),
        format!("0000000000000000 {}", good.split_once(' ').unwrap().1).into_bytes(),
        format!("{} {}", sha256_hex(b""), "{}\n").into_bytes(),
        "[".repeat(1_000_000).into_bytes(),
    ] {
        let (bench, receiver) = bench();
        let id = bench.enqueue("shop", &["--data", "x"]);
        write(&bench, &bytes);
        read_all(&bench);
        bench.run(&["tick"]).ok();
        assert!(bench.place(&id).starts_with("confirmed/"));
        assert_eq!(receiver.arrivals().len(), 1);
        assert!(bench.files("journal/").is_empty());
    }
}

#[test]
fn a_sparse_journal_is_read_and_gone() {
    let (bench, receiver) = bench();
    let id = bench.enqueue("shop", &["--data", "x"]);
    let file = fs::File::create(bench.spool().join("journal/00000001.jsonl")).unwrap();
    file.set_len(300 << 20).unwrap();
    bench.run(&["tick"]).ok();
    assert!(bench.place(&id).starts_with("confirmed/"));
    assert_eq!(receiver.arrivals().len(), 1);
}

/// A whole record of another kind was written by a newer build; what it did is not ours to forget.
#[test]
fn a_journal_of_a_newer_build_is_refused_untouched() {
    let (bench, receiver) = bench();
    let id = bench.enqueue("shop", &["--data", "x"]);
    for record in [
        json!({"op": "teleport", "from": "a"}),
        json!({"op": "move", "from": 1}),
        json!(7),
    ] {
        write(&bench, line(&record));
        let before = bench.tree();
        bench
            .run(&["tick"])
            .code(78)
            .says("journal/00000001.jsonl")
            .says("newer");
        bench.run(&["cancel", &id]).code(78).says("newer");
        for words in [&["status"][..], &["list"], &["show", &id]] {
            bench.run(words).code(78).says("newer");
        }
        let after = bench.tree();
        let changed = |(path, entry): (&String, &super::bench::Entry)| {
            before.get(path).is_none_or(|old| old.bytes != entry.bytes)
                && !path.starts_with("reserve")
                && path != "lock"
        };
        assert!(!after.iter().any(changed));
    }
    assert!(receiver.arrivals().is_empty());
}

#[test]
fn what_is_no_journal_is_left_and_in_nobodys_way() {
    let (bench, receiver) = bench();
    let id = bench.enqueue("shop", &["--data", "x"]);
    let journal = bench.spool().join("journal");
    let outside = bench.file("outside", "not ours");
    fs::create_dir(journal.join("00000001.jsonl")).unwrap();
    symlink(&outside, journal.join("00000002.jsonl")).unwrap();
    make_fifo(&journal.join("00000003.jsonl"));
    for name in [
        "18446744073709551615.jsonl",
        "4.jsonl",
        "+0000005.jsonl",
        "notes",
    ] {
        fs::write(journal.join(name), "mine").unwrap();
    }
    read_all(&bench);
    let ran = bench.run(&["tick"]).ok();
    for name in [
        "00000001",
        "00000002",
        "00000003",
        "18446744073709551615",
        "/4.jsonl",
        "notes",
    ] {
        assert!(ran.stderr.contains(name), "{name}: {ran:#?}");
    }
    assert!(bench.place(&id).starts_with("confirmed/"));
    assert_eq!(receiver.arrivals().len(), 1);
    assert_eq!(fs::read(&outside).unwrap(), b"not ours");
    assert_eq!(fs::read_dir(&journal).unwrap().count(), 7);
}
