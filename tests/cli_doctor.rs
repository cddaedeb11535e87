//! `doctor`: every kind of thing that can be wrong is found, and what can be mended is mended: a
//! second look finds nothing, and ticks act on the items again.
//!
//! CONTRACT 3 and 5. What takes a day to be wrong is in `file_doctor.rs`, copies in `cli_adopt.rs`.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/bench.rs"]
mod bench;
mod support;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::Command;

use bench::{Bench, KEYED, assert_fields, assert_time};
use serde_json::Value;
use support::{Receiver, Reply};

/// An id that nobody minted.
const ID: &str = "01a228af-9284-74bb-b250-40eff85f347b";

fn bench() -> (Bench, Receiver) {
    let receiver = Receiver::start(vec![]);
    let bench = Bench::with(&[("shop", &receiver.url(), KEYED)]);
    (bench, receiver)
}

/// What `doctor --json` prints, with more options.
#[track_caller]
fn look(bench: &Bench, options: &[&str]) -> Value {
    let mut all = vec!["--json", "doctor"];
    all.extend(options);
    let ran = bench.run(&all);
    let said = ran.stdout.clone();
    let value: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{ran:#?}"));
    assert_eq!(
        ran.code,
        Some(i32::from(value["clean"] == false)),
        "{ran:#?}"
    );
    value
}

/// Every finding, as its kind and path.
fn found(said: &Value) -> Vec<String> {
    let all = said["found"].as_array().unwrap();
    all.iter()
        .map(|finding| {
            let word = |name: &str| finding[name].as_str().unwrap().to_owned();
            format!("{} {}", word("kind"), word("path"))
        })
        .collect()
}

/// What is found is mended, and a second look finds nothing.
#[track_caller]
fn mends(bench: &Bench, wanted: &[String]) {
    let before = bench.tree();
    let said = look(bench, &[]);
    assert_eq!(found(&said), wanted, "{said:#}");
    assert_eq!(bench.tree(), before, "a look writes nothing");
    let said = look(bench, &["--repair"]);
    assert_eq!(found(&said), wanted, "{said:#}");
    assert_eq!(said["repaired"], wanted.len(), "{said:#}");
    let again = look(bench, &["--repair"]);
    assert_eq!(found(&again), Vec::<String>::new(), "{again:#}");
    assert_eq!(again["repaired"], 0);
}

/// What is found is told, and left as it is.
#[track_caller]
fn is_told(bench: &Bench, wanted: &[String]) -> Value {
    for options in [&[][..], &["--repair"], &["--repair"]] {
        let said = look(bench, options);
        assert_eq!(found(&said), wanted, "{options:?}: {said:#}");
        assert_eq!(said["repaired"], 0);
    }
    look(bench, &[])
}

/// Moves a file of the spool, making the directory.
fn put(bench: &Bench, from: &str, to: &str) {
    let to = bench.spool().join(to);
    make_dir(to.parent().unwrap());
    fs::rename(bench.spool().join(from), to).unwrap();
}

/// Makes a directory as the spool has them, and those above it.
fn make_dir(path: &Path) {
    if !path.exists() {
        make_dir(path.parent().unwrap());
        fs::create_dir(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    }
}

fn write(path: &Path, bytes: impl AsRef<[u8]>) {
    make_dir(path.parent().unwrap());
    fs::write(path, bytes).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn a_spool_with_items_in_every_state_is_clean() {
    let receiver = Receiver::start(vec![
        Reply::ok(),
        Reply::status(400),
        Reply::status(401),
        Reply::close(),
        Reply::close(),
    ]);
    let url = receiver.url();
    let bench = Bench::with(&[
        ("a", &url, KEYED),
        ("b", &url, KEYED),
        ("c", &url, KEYED),
        ("d", &url, KEYED),
        ("plain", &url, ""),
    ]);
    for name in ["a", "b", "c", "d", "plain"] {
        bench.enqueue(name, &["--data", "x", "--key", "k"]);
        bench.tick();
    }
    bench.enqueue("a", &["--data", "x"]);
    bench.enqueue("a", &["--data", "x", "--not-before", "+5h"]);
    bench.enqueue(
        "a",
        &[
            "--data",
            "x",
            "--request-id",
            "3f1b0c5e-94d6-4c33-9a6c-5d6f0d6a0f11",
        ],
    );
    let later = bench.enqueue("a", &["--data", "x"]);
    bench.run(&["hold", &later, "--release-at", "+3h"]).ok();
    let large = bench.file("large", vec![b'x'; 100_000]);
    bench.enqueue("a", &["--file", &large, "--hold", "not yet"]);
    let before = bench.tree();
    bench.run(&["doctor"]).ok().prints("nothing found");
    let said = look(&bench, &[]);
    assert_fields(&said, "at clean repaired found");
    assert_time(&said["at"]);
    assert_eq!(
        (&said["clean"], &said["repaired"]),
        (&true.into(), &0.into())
    );
    assert_eq!(bench.tree(), before, "and nothing is written");
    let said = look(&bench, &["--repair"]);
    assert_eq!(found(&said), Vec::<String>::new(), "{said:#}");
}

#[test]
fn missing_directories_and_wake_are_made() {
    let (bench, _receiver) = bench();
    fs::remove_file(bench.spool().join("wake")).unwrap();
    for dir in ["failed", "tmp", "keys"] {
        fs::remove_dir(bench.spool().join(dir)).unwrap();
    }
    let missing = ["failed", "keys", "tmp", "wake"].map(|name| format!("missing {name}"));
    mends(&bench, &missing);
    assert_eq!(bench.tree()["failed"].mode, 0o700);
    assert_eq!(bench.tree()["wake"].mode, 0o600);
}

#[test]
fn modes_are_set_but_for_those_of_a_drop_box() {
    let (bench, _receiver) = bench();
    let id = bench.enqueue("shop", &["--data", "x"]);
    let place = bench.place(&id);
    bench.tick();
    let settled = bench.place(&id);
    assert_ne!(place, settled);
    let set = |path: &str, mode: u32| {
        let path = bench.spool().join(path);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    // What an administrator opens.
    set("", 0o711);
    set("incoming", 0o711);
    set("incoming/shop", 0o3730);
    set("tickpost.toml", 0o644);
    write(&bench.spool().join("incoming/shop/.new"), "{");
    set("incoming/shop/.new", 0o640);
    assert_eq!(found(&look(&bench, &[])), Vec::<String>::new());
    // What nobody does on purpose.
    set("pending", 0o755);
    set("lock", 0o644);
    set(&settled, 0o640);
    set("", 0o755);
    set("incoming/shop", 0o3130);
    let wanted = [".", "incoming/shop", "lock", "pending"].map(|path| format!("mode {path}"));
    let mut wanted: Vec<String> = [&wanted[..], &[format!("mode {settled}")]].concat();
    wanted.sort();
    mends(&bench, &wanted);
    let tree = bench.tree();
    assert_eq!(tree["pending"].mode, 0o700);
    assert_eq!(tree[&settled].mode, 0o600);
    assert_eq!(tree["incoming/shop"].mode, 0o3730);
    assert_eq!(tree["incoming"].mode, 0o711);
    let root = fs::metadata(bench.spool()).unwrap().permissions().mode();
    assert_eq!(root & 0o7777, 0o711, "the way to the box stays open");
}

#[test]
fn files_of_another_user_are_told() {
    let (bench, _receiver) = bench();
    let id = bench.enqueue("shop", &["--data", "x"]);
    let place = bench.place(&id);
    if chown(bench.spool().join(&place), Some(54_321), None).is_err() {
        // Only root gives files away.
        return;
    }
    let said = is_told(&bench, &[format!("owner {place}")]);
    assert!(said["found"][0]["next"].as_str().unwrap().contains("chown"));
}

#[test]
fn what_does_not_belong_is_told_and_never_touched() {
    let (bench, _receiver) = bench();
    let good = bench.enqueue("shop", &["--data", "x", "--hold", "wait"]);
    let at = |path: &str| bench.spool().join(path);
    let outside = bench.file("outside", "secret");
    make_dir(&at("pending/shop"));
    symlink(&outside, at(&format!("pending/shop/{ID}.jsonl"))).unwrap();
    symlink(bench.dir(), at("failed/shop")).unwrap();
    fs::create_dir(at(&format!("held/shop/{ID}.jsonl"))).unwrap();
    write(&at("pending/shop/notes.txt"), "mine");
    write(
        &at("pending/shop/20261129/01a228af-9284-74bb-b250-40eff85f347c.3.jsonl"),
        "x",
    );
    write(&at("strange"), "mine");
    write(&at("order/strange"), "mine");
    write(&at("bodies/strange"), "mine");
    write(&at("keys/shop/strange"), "mine");
    write(&at("destinations/UP.json"), "{}");
    write(&at("incoming/shop/order.txt"), "{}");
    let fifo = at("pending/shop/fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let odd = at("held/shop").join(OsStr::from_bytes(b"\xff.jsonl"));
    fs::write(&odd, "x").unwrap();
    let wanted = [
        "bodies/strange",
        "destinations/UP.json",
        "failed/shop",
        &format!("held/shop/{ID}.jsonl"),
        "held/shop/\u{fffd}.jsonl",
        "incoming/shop/order.txt",
        "keys/shop/strange",
        "order/strange",
        &format!("pending/shop/{ID}.jsonl"),
        "pending/shop/20261129/01a228af-9284-74bb-b250-40eff85f347c.3.jsonl",
        "pending/shop/fifo",
        "pending/shop/notes.txt",
        "strange",
    ]
    .map(|path| format!("foreign {path}"));
    let mut wanted = wanted.to_vec();
    wanted.sort();
    let said = is_told(&bench, &wanted);
    assert_fields(&said["found"][0], "kind path what next repaired");
    assert_eq!(fs::read(&outside).unwrap(), b"secret");
    assert!(odd.exists() && fifo.exists());
    assert_eq!(fs::read(at("strange")).unwrap(), b"mine");
    assert!(at(&format!("held/shop/{good}.jsonl")).exists());
}

#[test]
fn items_that_no_tick_would_look_at_in_time_are_filed_anew_and_sent() {
    let (bench, receiver) = bench();
    let at_places = [
        "pending/shop/29991231T2359Z",
        "pending/shop/29991231",
        "pending/shop/parked",
        "held/shop/29991231",
        "confirmed/shop",
    ];
    let mut ids = Vec::new();
    let mut wanted = Vec::new();
    for dir in &at_places[..3] {
        let id = bench.enqueue("shop", &["--data", "x"]);
        let to = format!("{dir}/{id}.jsonl");
        put(&bench, &bench.place(&id), &to);
        wanted.push(format!("misplaced {to}"));
        ids.push(id);
    }
    wanted.sort();
    assert_eq!(bench.tick()["attempts"], 0, "no tick looks there");
    mends(&bench, &wanted);
    assert_eq!(bench.tick()["confirmed"], 3);
    assert_eq!(receiver.arrivals().len(), 3);
    // Settled ones where prune never looks.
    put(
        &bench,
        &bench.place(&ids[0]),
        &format!("{}/{}.jsonl", at_places[4], ids[0]),
    );
    mends(
        &bench,
        &[format!("misplaced confirmed/shop/{}.jsonl", ids[0])],
    );
}

#[test]
fn holds_with_a_time_lie_where_it_is_seen() {
    let (bench, receiver) = bench();
    let timed = bench.enqueue("shop", &["--data", "x"]);
    bench.run(&["hold", &timed, "--release-at", "+3h"]).ok();
    let place = bench.place(&timed);
    put(&bench, &place, &format!("held/shop/{timed}.jsonl"));
    mends(&bench, &[format!("misplaced held/shop/{timed}.jsonl")]);
    assert_eq!(bench.place(&timed), place);
    put(&bench, &place, &format!("held/shop/29991231/{timed}.jsonl"));
    mends(
        &bench,
        &[format!("misplaced held/shop/29991231/{timed}.jsonl")],
    );
    assert_eq!(bench.place(&timed), place);
    // By its events it is held: a tick must not send it from where it was put.
    put(&bench, &place, &format!("pending/shop/{timed}.jsonl"));
    mends(&bench, &[format!("misplaced pending/shop/{timed}.jsonl")]);
    assert_eq!(bench.place(&timed), place);
    assert_eq!(receiver.arrivals().len(), 0);
}

#[test]
fn unknown_items_lie_where_they_are_sent_again_or_parked() {
    let receiver = Receiver::start(vec![Reply::close(), Reply::close()]);
    let url = receiver.url();
    let bench = Bench::with(&[("keyed", &url, KEYED), ("plain", &url, "")]);
    let resent = bench.enqueue("keyed", &["--data", "x"]);
    bench.tick();
    let parked = bench.enqueue("plain", &["--data", "x"]);
    bench.tick();
    let (minute, park) = (bench.place(&resent), bench.place(&parked));
    put(
        &bench,
        &minute,
        &format!("unknown/keyed/parked/{resent}.jsonl"),
    );
    put(&bench, &park, &format!("unknown/plain/{parked}.jsonl"));
    let wanted = [
        format!("misplaced unknown/keyed/parked/{resent}.jsonl"),
        format!("misplaced unknown/plain/{parked}.jsonl"),
    ];
    mends(&bench, &wanted);
    assert_eq!(bench.place(&resent), minute);
    assert_eq!(bench.place(&parked), park);
    // A name that says claimed, in a place that is not for claims: it may have been sent.
    let claimed = bench.enqueue("plain", &["--data", "y"]);
    put(
        &bench,
        &bench.place(&claimed),
        &format!("pending/plain/{claimed}.1.jsonl"),
    );
    mends(
        &bench,
        &[format!("misplaced pending/plain/{claimed}.1.jsonl")],
    );
    assert!(bench.place(&claimed).starts_with("unknown/plain/parked/"));
    assert_eq!(bench.last_event(&claimed)["outcome"], "interrupted");
}

#[test]
fn what_lost_the_event_that_brought_it_there_is_never_sent_blindly() {
    let (bench, receiver) = bench();
    let mut wanted = Vec::new();
    let mut ids = Vec::new();
    for dir in [
        "confirmed/shop/20261129",
        "failed/shop/20261129",
        "unknown/shop/parked",
        "held/shop",
    ] {
        let id = bench.enqueue("shop", &["--data", "x"]);
        put(&bench, &bench.place(&id), &format!("{dir}/{id}.jsonl"));
        wanted.push(format!("misplaced {dir}/{id}.jsonl"));
        ids.push(id);
    }
    wanted.sort();
    mends(&bench, &wanted);
    bench.tick();
    assert_eq!(receiver.arrivals().len(), 0);
    for id in &ids[..3] {
        assert!(bench.place(id).starts_with("unknown/shop/parked/"), "{id}");
    }
    assert!(bench.place(&ids[3]).starts_with("held/shop/"));
    bench.run(&["release", &ids[3]]).ok();
    bench.run(&["resolve", "--resend", &ids[0]]).ok();
    assert_eq!(bench.tick()["confirmed"], 2);
}

#[test]
fn of_one_file_under_two_names_the_later_stays() {
    let (bench, receiver) = bench();
    let at = |path: &str| bench.spool().join(path);
    let id = bench.enqueue("shop", &["--data", "x"]);
    let first = bench.place(&id);
    make_dir(&at("unknown/shop"));
    fs::hard_link(at(&first), at(&format!("unknown/shop/{id}.1.jsonl"))).unwrap();
    mends(&bench, &[format!("doubled {first}")]);
    // It may have been sent: the claim counts.
    assert!(
        bench.place(&id).starts_with("unknown/"),
        "{}",
        bench.place(&id)
    );
    assert_eq!(bench.last_event(&id)["outcome"], "interrupted");
    assert_eq!(receiver.arrivals().len(), 0);

    let id = bench.enqueue("shop", &["--data", "y"]);
    let first = bench.place(&id);
    bench.run(&["hold", &id]).ok();
    fs::hard_link(at(&bench.place(&id)), at(&first)).unwrap();
    mends(&bench, &[format!("doubled {first}")]);
    assert!(bench.place(&id).starts_with("held/shop/"));
}

#[test]
fn of_two_files_of_one_id_the_one_that_knows_more_stays_and_no_byte_is_lost() {
    let (bench, receiver) = bench();
    let at = |path: &str| bench.spool().join(path);
    let id = bench.enqueue("shop", &["--data", "x"]);
    let first = bench.place(&id);
    let old = fs::read(at(&first)).unwrap();
    bench.run(&["hold", &id]).ok();
    let held = bench.place(&id);
    bench.run(&["release", &id]).ok();
    // The one that knows more is pending, the copy of before lies in held.
    write(&at(&held), &old);
    let said = look(&bench, &["--repair"]);
    assert_eq!(
        found(&said),
        ["corrupt corrupt".to_owned(), format!("doubled {held}")]
            .into_iter()
            .rev()
            .collect::<Vec<_>>()
    );
    assert_eq!(said["repaired"], 1);
    assert_eq!(fs::read(at(&format!("corrupt/{id}.jsonl"))).unwrap(), old);
    let why = bench.read_json(&format!("corrupt/{id}.jsonl.why.json"));
    assert!(why["reason"].as_str().unwrap().contains("stays"), "{why}");
    assert_eq!(bench.tick()["confirmed"], 1);
    assert_eq!(receiver.arrivals().len(), 1);
}

#[test]
fn damaged_items_anywhere_are_set_aside_and_newer_ones_left() {
    let (bench, _receiver) = bench();
    let at = |path: &str| bench.spool().join(path);
    let good = bench.enqueue("shop", &["--data", "x"]);
    let text = fs::read_to_string(at(&bench.place(&good))).unwrap();
    let flipped = text.replacen("\"x\"", "\"y\"", 1).replace(&good, ID);
    let path = format!("held/shop/{ID}.jsonl");
    write(&at(&path), &flipped);
    let newer = "01a228af-9284-74bb-b250-40eff85f347d";
    let newer_path = format!("failed/shop/20261129/{newer}.jsonl");
    write(
        &at(&newer_path),
        text.replacen("\"v\":1", "\"v\":9", 1).replace(&good, newer),
    );
    let said = look(&bench, &[]);
    assert_eq!(
        found(&said),
        [format!("damaged {path}"), format!("newer {newer_path}")]
    );
    assert_eq!(said["found"][0]["request_id"], ID);
    let said = look(&bench, &["--repair"]);
    assert_eq!(
        found(&said),
        [
            format!("damaged {path}"),
            format!("newer {newer_path}"),
            "corrupt corrupt".to_owned(),
        ]
    );
    assert_eq!(
        fs::read_to_string(at(&format!("corrupt/{ID}.jsonl"))).unwrap(),
        flipped
    );
    for file in bench.files("corrupt/") {
        fs::remove_file(at(&file)).unwrap();
    }
    fs::remove_file(at(&newer_path)).unwrap();
    assert_eq!(look(&bench, &[])["clean"], true);
    assert_eq!(bench.tick()["confirmed"], 1);
}

#[test]
fn missing_and_wrong_bodies_of_waiting_items_are_told() {
    let (bench, _receiver) = bench();
    let large = bench.file("large", vec![b'x'; 100_000]);
    let mut ids: Vec<String> = (0..3)
        .map(|_| bench.enqueue("shop", &["--file", &large]))
        .collect();
    ids.sort();
    let body = |id: &str| bench.spool().join(format!("bodies/{id}"));
    fs::remove_file(body(&ids[0])).unwrap();
    write(&body(&ids[1]), "short");
    write(&body(&ids[2]), vec![b'y'; 100_000]);
    let wanted: Vec<String> = ids.iter().map(|id| format!("body bodies/{id}")).collect();
    let said = is_told(&bench, &wanted);
    for (index, words) in ["gone", "5 bytes", "SHA-256"].iter().enumerate() {
        let what = said["found"][index]["what"].as_str().unwrap();
        assert!(what.contains(words), "{what}");
    }
}

#[test]
fn keys_that_do_not_say_what_their_item_says_are_written_again() {
    let own = "3f1b0c5e-94d6-4c33-9a6c-5d6f0d6a0f11";
    let options = ["--data", "x", "--key", "invoice-17"];
    let (bench, receiver) = bench();
    let id = bench.enqueue("shop", &options);
    bench.enqueue("shop", &["--data", "z", "--request-id", own]);
    let key = bench.files("keys/shop/").remove(0);
    let own_key = format!("keys/_ids/{own}");
    let at = |path: &str| bench.spool().join(path);
    let good = fs::read_to_string(at(&key)).unwrap();
    for damaged in [
        None,
        Some(String::new()),
        Some("{".to_owned()),
        Some(good.replace(&id, ID)),
        Some(good.replacen("\"request_sha256\":\"", "\"request_sha256\":\"0", 1)),
    ] {
        for key in [&key, &own_key] {
            match &damaged {
                None => fs::remove_file(at(key)).unwrap(),
                Some(bytes) => write(&at(key), bytes),
            }
        }
        mends(&bench, &[format!("key {own_key}"), format!("key {key}")]);
        assert_eq!(fs::read_to_string(at(&key)).unwrap(), good);
        // And so a repeat is known for one.
        assert_eq!(bench.enqueue("shop", &options), id);
        assert_eq!(
            bench.enqueue("shop", &["--data", "z", "--request-id", own]),
            own
        );
    }
    assert_eq!(bench.tick()["confirmed"], 2);
    assert_eq!(receiver.arrivals().len(), 2);
}

#[test]
fn keys_that_name_an_item_with_another_key_are_told() {
    let (bench, _receiver) = bench();
    bench.enqueue("shop", &["--data", "x", "--key", "one"]);
    bench.enqueue("shop", &["--data", "y", "--key", "two"]);
    let keys = bench.files("keys/shop/");
    let at = |path: &str| bench.spool().join(path);
    let stray = format!("keys/shop/{}", "a".repeat(64));
    fs::copy(at(&keys[0]), at(&stray)).unwrap();
    is_told(&bench, &[format!("key {stray}")]);
    fs::remove_file(at(&stray)).unwrap();
    // Two items that stand for one key.
    fs::copy(at(&keys[0]), at(&keys[1])).unwrap();
    is_told(&bench, &[format!("key {}", keys[1])]);
}

#[test]
fn destinations_that_are_not_configured_are_told() {
    let (bench, receiver) = bench();
    bench.enqueue("shop", &["--data", "x"]);
    bench.enqueue("shop", &["--data", "x", "--hold", "wait"]);
    bench.tick();
    write(&bench.spool().join("incoming/shop/order.json"), "{}");
    assert_eq!(look(&bench, &[])["clean"], true);
    bench.configure("", &[("other", &receiver.url(), "")]);
    let said = is_told(
        &bench,
        &[
            "unconfigured held/shop".to_owned(),
            "unconfigured incoming/shop".to_owned(),
        ],
    );
    let what = said["found"][0]["what"].as_str().unwrap();
    assert!(
        what.contains("`shop`") && what.contains("1 item waits"),
        "{what}"
    );
    bench.write_config("[nonsense");
    let said = bench.run(&["doctor"]).ok().says("configuration");
    said.prints("nothing found");
    bench.run(&["doctor", "--repair"]).code(78);
}

#[test]
fn people_see_a_line_a_finding_and_no_more_than_a_hundred_of_a_kind() {
    let (bench, _receiver) = bench();
    for n in 0..103 {
        write(&bench.spool().join(format!("order/{n:03}")), "");
    }
    fs::remove_file(bench.spool().join("wake")).unwrap();
    let ran = bench.run(&["doctor"]).code(1);
    assert_eq!(ran.stdout.lines().count(), 1 + 101 + 1, "{}", ran.stdout);
    ran.prints("missing       wake: ")
        .prints("foreign       order/099: ")
        .prints("and 3 more")
        .prints("1 found that --repair mends, 103 for a person");
    bench
        .run(&["doctor", "--repair"])
        .code(1)
        .prints("1 mended, 103 left for a person");
}

#[test]
fn a_running_tick_is_no_fault_and_a_dead_ones_journal_is() {
    let receiver = Receiver::start(vec![Reply::ok().gated()]);
    let bench = Bench::with(&[("shop", &receiver.url(), KEYED)]);
    let id = bench.enqueue("shop", &["--data", "x"]);
    bench.enqueue("shop", &["--data", "x", "--not-before", "+5h"]);
    let tick = bench.call(&["tick"]).start();
    receiver.wait_for(1);
    assert_eq!(found(&look(&bench, &[])), Vec::<String>::new());
    bench
        .run(&["doctor", "--repair", "--wait", "0"])
        .code(75)
        .says("tick");
    tick.kill();
    tick.end();
    mends(&bench, &["journal journal".to_owned()]);
    assert!(bench.place(&id).starts_with("unknown/shop/"));
    assert_eq!(bench.last_event(&id)["outcome"], "interrupted");
    receiver.open_gate();
}

#[test]
fn of_an_item_that_cannot_be_read_no_key_is_called_wrong() {
    let (bench, _receiver) = bench();
    let empty = bench.enqueue("shop", &["--data", "x", "--key", "a"]);
    let newer = bench.enqueue("shop", &["--data", "x", "--key", "b"]);
    let path = bench.spool().join(bench.place(&newer));
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("\"v\":1", "\"v\":2", 1)).unwrap();
    fs::write(bench.spool().join(bench.place(&empty)), "").unwrap();
    let at = |id: &str| format!("pending/shop/{id}.jsonl");
    let want = [
        format!("damaged {}", at(&empty)),
        format!("newer {}", at(&newer)),
    ];
    assert_eq!(found(&look(&bench, &[])), want);
    let ran = bench.run(&["doctor", "--repair"]).code(1);
    assert!(ran.stdout.contains("; mended\n"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("keys/"), "{}", ran.stdout);
}
