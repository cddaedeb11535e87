//! Drop boxes: any program renames a file into one, and it becomes one item, under its owner's
//! uid. What a death leaves is tried in `accept_deaths.rs`.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/bench.rs"]
mod bench;
#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use bench::{Bench, KEYED};
use serde_json::json;
use support::{Receiver, closed_port};

fn bench() -> Bench {
    let bench = Bench::new();
    let closed = closed_port();
    bench.configure("", &[("shop", &closed, KEYED), ("ops", &closed, "")]);
    // The first tick makes the boxes.
    bench.run(&["tick"]).ok();
    bench.run(&["hold", "--destination", "shop"]).ok();
    bench
}

/// Drops a file as the protocol says.
fn drop_file(bench: &Bench, destination: &str, name: &str, text: &str) {
    let dir = bench.spool().join("incoming").join(destination);
    let temporary = dir.join(format!(".{name}.new"));
    fs::write(&temporary, text).unwrap();
    fs::rename(&temporary, dir.join(name)).unwrap();
}

#[test]
fn a_dropped_file_becomes_an_item() {
    let bench = bench();
    drop_file(
        &bench,
        "shop",
        "invoice 17.json",
        r#"{
            "request": {
                "path": "/v1/charges",
                "body": { "json": { "amount": 5.00 } }
            },
            "requester": { "thread": "t" },
            "labels": { "a": "b" }
        }"#,
    );
    let report = bench.tick();
    assert_eq!(report["ingested"], 1);
    let id = bench.list_ids(&[]).remove(0);
    let item = bench.item(&id);
    assert_eq!(
        item[0]["request"]["body"],
        json!({"text": "{ \"amount\": 5.00 }"})
    );
    assert_eq!(item[0]["request"]["path"], "/v1/charges");
    assert_eq!(item[0]["requester"]["thread"], "t");
    assert_eq!(item[0]["labels"], json!({"a": "b"}));
    let uid = rustix::process::getuid().as_raw();
    let by = item[1]["by"].as_str().unwrap();
    assert!(by.ends_with(&format!("({uid})")), "{by}");
    assert_eq!(bench.files("incoming/"), Vec::<String>::new());
    assert_eq!(bench.files("tmp/"), Vec::<String>::new());
    assert_eq!(bench.tick()["ingested"], 0);
}

#[test]
fn boxes_are_made_for_every_destination() {
    let bench = bench();
    for name in ["shop", "ops"] {
        let entry = &bench.tree()[&format!("incoming/{name}")];
        assert_eq!((entry.kind, entry.mode & 0o777), ("dir", 0o700));
    }
    // What the administrator opens stays open.
    let path = bench.spool().join("incoming/shop");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o3730)).unwrap();
    drop_file(&bench, "shop", "a.json", r#"{"request":{}}"#);
    assert_eq!(bench.tick()["ingested"], 1);
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o7777,
        0o3730
    );
}

#[test]
fn what_does_not_parse_is_set_aside_and_told() {
    let receiver = Receiver::start(vec![]);
    let bench = Bench::new();
    bench.configure(
        "[notify]\ndestinations = [\"ops\"]\n[limits]\nmax_body = 1000",
        &[
            ("shop", &closed_port(), KEYED),
            ("ops", &receiver.url(), ""),
        ],
    );
    bench.tick();
    let large = "x".repeat(2 << 20);
    let long_body = json!({"request": {"body": {"text": "x".repeat(1001)}}}).to_string();
    let rows = [
        ("a.json", "", "EOF"),
        ("b.json", "{\"request\":{}", "EOF"),
        (
            "c.json",
            r#"{"request":{},"destination":"ops"}"#,
            "names destination `ops`",
        ),
        (
            "d.json",
            r#"{"request":{"path":"nowhere"}}"#,
            "must start with `/`",
        ),
        (
            "e.json",
            r#"{"request":{},"notify":["who"]}"#,
            "`who` is not configured",
        ),
        ("f.json", r#"{"v":7,"request":{}}"#, "`v` is 7"),
        ("g.json", &large, "too large"),
        ("h.json", &long_body, "max_body"),
        (
            "i.json",
            r#"{"request":{},"not_after":"2020-01-01T00:00:00Z"}"#,
            "not_after",
        ),
        ("j.json", "\u{0}\u{ff}", "not a JSON object"),
    ];
    for (name, text, _) in rows {
        drop_file(&bench, "shop", name, text);
    }
    drop_file(&bench, "shop", "good.json", r#"{"request":{}}"#);
    let report = bench.tick();
    assert_eq!(report["ingested"], 1);
    assert_eq!(report["corrupt"], rows.len());
    for (name, text, why) in rows {
        assert!(fs::read_to_string(bench.spool().join("corrupt").join(name)).unwrap() == text);
        let said = bench.read_json(&format!("corrupt/{name}.why.json"));
        let said = said["reason"].as_str().unwrap();
        assert!(said.contains(why), "{name}: {said}");
    }
    // One notice of all of them.
    let told = receiver.wait_for(1);
    assert_eq!(told.len(), 1);
    assert!(
        told[0].text().contains("\"notice\":\"corrupt\""),
        "{}",
        told[0].text()
    );
    assert!(
        told[0].text().contains("\"count\":10"),
        "{}",
        told[0].text()
    );
}

#[test]
fn what_is_no_regular_file_is_reported_and_left() {
    let bench = bench();
    let dir = bench.spool().join("incoming/shop");
    let elsewhere = bench.file("elsewhere", r#"{"request":{}}"#);
    symlink(&elsewhere, dir.join("link.json")).unwrap();
    symlink("/nowhere", dir.join("dangling.json")).unwrap();
    fs::hard_link(&elsewhere, dir.join("hard.json")).unwrap();
    fs::create_dir(dir.join("dir.json")).unwrap();
    let made = Command::new("mkfifo").arg(dir.join("fifo.json")).status();
    assert!(made.unwrap().success());
    fs::write(dir.join("other.txt"), "x").unwrap();
    fs::write(dir.join(".unfinished.json"), "{").unwrap();
    let before = bench.files("incoming/");
    let ran = bench.run(&["tick"]).ok();
    for (name, why) in [
        ("link.json", "not a regular file"),
        ("dangling.json", "not a regular file"),
        ("hard.json", "more than one name"),
        ("dir.json", "not a regular file"),
        ("fifo.json", "not a regular file"),
        ("other.txt", "does not end in .json"),
    ] {
        let line = ran.stderr.lines().find(|line| line.contains(name));
        assert!(
            line.is_some_and(|line| line.contains(why)),
            "{name}: {ran:#?}"
        );
    }
    assert!(!ran.stderr.contains("unfinished"), "{ran:#?}");
    assert_eq!(bench.files("incoming/"), before);
    assert_eq!(bench.files("pending/"), Vec::<String>::new());
    assert_eq!(fs::read_to_string(elsewhere).unwrap(), r#"{"request":{}}"#);
}

#[test]
fn keys_and_own_ids_hold_for_dropped_files_too() {
    let bench = bench();
    let id = "3f0c8a52-3b0f-4b6e-9d5e-0c1f3a2b4c5d";
    let first = bench.enqueue("shop", &["--key", "k", "--data", "a"]);
    let keyed = |body: &str| json!({"key": "k", "request": {"body": {"text": body}}}).to_string();
    let own =
        |body: &str| json!({"request_id": id, "request": {"body": {"text": body}}}).to_string();
    drop_file(&bench, "shop", "same.json", &keyed("a"));
    drop_file(&bench, "shop", "other.json", &keyed("b"));
    drop_file(&bench, "shop", "own.json", &own("a"));
    drop_file(&bench, "shop", "own again.json", &own("a"));
    let report = bench.tick();
    assert_eq!(report["ingested"], 1, "{report}");
    assert_eq!(report["corrupt"], 1, "{report}");
    // Another destination's box asks for an id that is taken.
    drop_file(&bench, "ops", "own.json", &own("a"));
    let report = bench.tick();
    assert_eq!(report["ingested"], 0, "{report}");
    assert_eq!(report["corrupt"], 1, "{report}");
    let mut ids = bench.list_ids(&[]);
    ids.sort();
    let mut want = vec![first.clone(), id.to_owned()];
    want.sort();
    assert_eq!(ids, want);
    let why = bench.read_json("corrupt/other.json.why.json");
    assert!(why["reason"].as_str().unwrap().contains(&first), "{why}");
    assert_eq!(bench.files("incoming/"), Vec::<String>::new());
}

#[test]
fn a_box_of_no_destination_waits_and_is_told_of() {
    let bench = bench();
    fs::create_dir(bench.spool().join("incoming/gone")).unwrap();
    bench.run(&["tick"]).ok().says_not("gone");
    drop_file(&bench, "gone", "a.json", r#"{"request":{}}"#);
    bench
        .run(&["tick"])
        .ok()
        .says("destination `gone` is not configured; its files wait");
    assert_eq!(bench.json(&["status"])["incoming"], 1);
}

#[test]
fn without_room_the_boxes_wait() {
    let bench = bench();
    let limited = |limit: &str| {
        bench.configure(
            &format!("[limits]\n{limit}"),
            &[("shop", &closed_port(), "")],
        );
    };
    limited("min_free = \"1000000GiB\"");
    bench.run(&["tick"]).ok().says_not("waits");
    for n in 0..7 {
        drop_file(&bench, "shop", &format!("{n}.json"), r#"{"request":{}}"#);
    }
    bench
        .run(&["tick"])
        .ok()
        .says("incoming/shop waits")
        .says("min_free");
    assert_eq!(bench.files("incoming/").len(), 7);
    // As many as fit, and the others when there is room.
    limited("max_items = 3");
    assert_eq!(bench.tick()["ingested"], 3);
    bench.run(&["tick"]).ok().says("max_items");
    limited("");
    assert_eq!(bench.tick()["ingested"], 4);
    assert_eq!(bench.files("incoming/"), Vec::<String>::new());
    assert_eq!(bench.files("pending/").len(), 7);
}

/// Names as long as they come, and what cannot be taken in, cost the others nothing.
#[test]
fn hostile_files_cost_the_others_nothing() {
    let bench = bench();
    let long = format!("{}.json", "x".repeat(250));
    let dir = bench.spool().join("incoming/shop");
    fs::write(dir.join(&long), "not JSON").unwrap();
    fs::write(dir.join(format!("{}.json", "ü".repeat(120))), "nor this").unwrap();
    fs::write(
        dir.join(format!("{}.json", "y".repeat(250))),
        r#"{"request":{}}"#,
    )
    .unwrap();
    let elsewhere = bench.file("elsewhere", "{}");
    for n in 0..4500 {
        fs::hard_link(&elsewhere, dir.join(format!("{n}.json"))).unwrap();
    }
    for n in 0..5 {
        drop_file(
            &bench,
            "shop",
            &format!("good{n}.json"),
            r#"{"request":{}}"#,
        );
    }
    let ran = bench.run(&["--json", "tick"]).ok();
    assert_eq!(ran.json()["ingested"], 6);
    assert_eq!(ran.json()["corrupt"], 2);
    // Of very many the first are named, and how many there are.
    let named = ran
        .stderr
        .lines()
        .filter(|line| line.contains("more than one name"));
    assert!(named.count() <= 20, "{ran:#?}");
    assert!(ran.stderr.contains("4480 more files are left"), "{ran:#?}");
    assert_eq!(bench.files("incoming/").len(), 4500);
    let aside = bench.files("corrupt/");
    assert_eq!(aside.len(), 4, "{aside:?}");
}

/// A name that only a tick gives, made by a producer, with an id that is somebody else's.
#[test]
fn a_made_up_name_takes_over_nobodys_item() {
    let bench = bench();
    let dir = bench.spool().join("incoming");
    let planted = |destination: &str, id: &str| {
        let path = dir.join(destination).join(format!("x.{id}.taking"));
        fs::write(path, r#"{"request":{"path":"/planted"}}"#).unwrap();
    };
    // Of an item that is there.
    let minted = bench.enqueue("shop", &["--path", "/mine", "--data", ""]);
    planted("shop", &minted);
    // Of an id that its caller has reserved, and died.
    let own = "3f0c8a52-3b0f-4b6e-9d5e-0c1f3a2b4c5d";
    let words = ["--request-id", own, "--path", "/mine", "--data", ""];
    assert_eq!(bench.enqueue("shop", &words), own);
    fs::remove_file(bench.spool().join(format!("pending/shop/{own}.jsonl"))).unwrap();
    planted("ops", own);
    // Of an item that is dropped in the same moment, with a body of its own.
    let dropped = "4f0c8a52-3b0f-4b6e-9d5e-0c1f3a2b4c5d";
    let body = "b".repeat(100_000);
    let mine = json!({"request_id": dropped, "request": {"path": "/mine", "body": {"text": body}}});
    drop_file(&bench, "shop", "a.json", &mine.to_string());
    planted("shop", dropped);
    bench.tick();
    let paths = |id: &str| -> Vec<String> {
        let places = bench.places(id).into_iter();
        let items = places.filter(|path| path.contains("/shop/") || path.contains("/ops/"));
        let items = items.filter(|path| path.strip_suffix(".jsonl").is_some());
        items
            .map(|path| {
                bench.first_line(&path)["request"]["path"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            })
            .collect()
    };
    assert_eq!(paths(&minted), ["/mine"]);
    assert_eq!(paths(dropped).len(), 1);
    // Whoever repeats hears that the id is another's now, or has the item.
    let again = [&["-q", "enqueue", "shop"][..], &words].concat();
    let ran = bench.run(&again);
    if ran.code == Some(0) {
        assert_eq!(paths(own), ["/mine"], "{ran:#?}");
    } else {
        assert_eq!(ran.code, Some(65), "{ran:#?}");
        assert_eq!(paths(own), ["/planted"]);
    }
}

/// A tick died after the item was there, or a person made the name up: what is in the file tells.
#[test]
fn a_file_with_the_id_of_an_item_goes_only_if_it_holds_its_request() {
    let pruned = "3f0c8a52-3b0f-4b6e-9d5e-0c1f3a2b4c5d";
    let mine = r#"{"request":{"path":"/mine","headers":{"X-Trace":"7"},"body":{"text":"x"}}}"#;
    // It was accepted in time.
    let late =
        r#"{"request":{"path":"/mine","body":{"text":"x"}},"not_after":"2020-01-01T00:00:00Z"}"#;
    let path = r#"{"request":{"path":"/planted","body":{"text":"x"}}}"#;
    let body = r#"{"request":{"path":"/mine","body":{"text":"y"}}}"#;
    let late_body = r#"{"request":{"path":"/mine"},"not_after":"2020-01-01T00:00:00Z"}"#;
    let rows = [
        ("shop", false, mine, None),
        ("shop", false, late, None),
        ("shop", false, path, Some("exists already")),
        ("shop", false, body, Some("exists already")),
        ("ops", false, mine, Some("exists already")),
        ("ops", false, late, Some("not_after is over")),
        ("shop", false, late_body, Some("not_after is over")),
        ("shop", false, "{", Some("EOF")),
        ("shop", true, mine, None),
        // Nothing is left to tell these apart.
        ("shop", true, path, None),
        ("shop", true, body, Some("is pruned")),
        ("ops", true, mine, Some("is pruned")),
        ("shop", true, "{", Some("EOF")),
    ];
    for (destination, is_pruned, text, why) in rows {
        let bench = bench();
        let minted = bench.enqueue("shop", &["--path", "/mine", "--data", "x"]);
        let sum = tickpost::model::envelope::sha256_hex(b"x");
        let tombstone = format!(
            r#"{{"request_id":"{pruned}","destination":"shop","state":"confirmed","enqueued_at":"2026-01-01T00:00:00Z","settled_at":"2026-01-01T00:00:00Z","pruned_at":"2026-01-02T00:00:00Z","attempts":1,"body_sha256":"{sum}"}}"#
        );
        let log = bench.spool().join("log/pruned-20260102.jsonl");
        fs::write(log, format!("{tombstone}\n")).unwrap();
        let id = if is_pruned { pruned } else { &minted };
        let before = bench.places(&minted);
        drop_file(&bench, destination, &format!("x.{id}.taking"), text);
        let report = bench.tick();
        let row = format!("{destination} {is_pruned} {text}");
        assert_eq!(report["ingested"], 0, "{row}");
        assert_eq!(report["corrupt"], u64::from(why.is_some()), "{row}");
        assert_eq!(bench.files("incoming/"), Vec::<String>::new(), "{row}");
        assert_eq!(bench.places(&minted), before, "{row}");
        if let Some(why) = why {
            let kept = fs::read_to_string(bench.spool().join("corrupt/x.json")).unwrap();
            assert_eq!(kept, text, "{row}");
            let said = bench.read_json("corrupt/x.json.why.json");
            assert!(
                said["reason"].as_str().unwrap().contains(why),
                "{row}: {said}"
            );
        } else {
            assert_eq!(bench.files("corrupt/"), Vec::<String>::new(), "{row}");
        }
    }
}

/// As of any file that is refused.
#[test]
fn who_is_asked_for_is_told_of_a_file_with_the_id_of_another_item() {
    let receiver = Receiver::start(vec![]);
    let bench = Bench::new();
    let ops = receiver.url();
    bench.configure("", &[("shop", &closed_port(), KEYED), ("ops", &ops, "")]);
    bench.tick();
    bench.run(&["hold", "--destination", "shop"]).ok();
    let id = bench.enqueue("shop", &["--path", "/mine", "--data", ""]);
    let text = r#"{"request":{"path":"/planted"},"notify":["ops"]}"#;
    drop_file(&bench, "shop", &format!("x.{id}.taking"), text);
    bench.tick();
    let told = receiver.wait_for(1);
    assert_eq!(told.len(), 1);
    let told = told[0].text();
    assert!(told.contains("\"notice\":\"corrupt\""), "{told}");
}

#[test]
fn words_beside_the_request_are_bounded() {
    let bench = bench();
    let long = "x".repeat(20_000);
    for item in [
        json!({"request": {}, "requester": {"thread": long}}),
        json!({"request": {}, "requester": {"principal": long}}),
        json!({"request": {}, "labels": {"a": long}}),
        json!({"request": {}, "hold": long}),
    ] {
        drop_file(&bench, "shop", "a.json", &item.to_string());
        assert_eq!(bench.tick()["corrupt"], 1);
    }
    bench
        .run(&["enqueue", "shop", "--data", "x", "--thread", &long])
        .code(65)
        .says("at most 16384");
}

#[test]
fn many_files_are_taken_in_by_one_tick() {
    let bench = bench();
    for n in 0..2300 {
        let text = json!({"request": {"path": format!("/{n}")}}).to_string();
        let path = bench.spool().join(format!("incoming/shop/{n}.json"));
        fs::write(path, text).unwrap();
    }
    assert_eq!(bench.tick()["ingested"], 2300);
    assert_eq!(bench.files("pending/shop/").len(), 2300);
    assert_eq!(bench.files("incoming/"), Vec::<String>::new());
}

/// Two other users, by their ids: only root can be another user.
#[test]
fn other_users_files_are_taken_in_under_their_uid() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let bench = bench();
    let open = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let group = 14_000;
    open(bench.dir(), 0o711);
    open(bench.spool(), 0o711);
    open(&bench.spool().join("incoming"), 0o711);
    let the_box = bench.spool().join("incoming/shop");
    std::os::unix::fs::chown(&the_box, None, Some(group)).unwrap();
    open(&the_box, 0o3730);
    let as_user = |uid: u32, gid: u32, script: &str| {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).current_dir("/");
        command.env("BOX", &the_box).uid(uid).gid(gid);
        command.output().unwrap()
    };
    let script = r#"umask 027; printf '{"request":{"path":"/%s"}}' "$(id -u)" > "$BOX/.$$.new" && mv "$BOX/.$$.new" "$BOX/$$.json""#;
    for uid in [14_001, 14_002] {
        let done = as_user(uid, group, script);
        assert!(done.status.success(), "{done:?}");
    }
    // Whoever is not of the group can do nothing, and those who are cannot look at or take away
    // each other's files.
    assert!(!as_user(14_003, 14_003, script).status.success());
    assert!(!as_user(14_001, group, r#"ls "$BOX""#).status.success());
    let other = fs::read_dir(&the_box)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    for path in other {
        let uid = std::os::unix::fs::MetadataExt::uid(&fs::metadata(&path).unwrap());
        let other = if uid == 14_001 { 14_002 } else { 14_001 };
        let script = format!("rm -f '{}'", path.display());
        assert!(!as_user(other, group, &script).status.success());
    }
    // A file that a third one planted by a link of ours stays ours.
    assert_eq!(bench.tick()["ingested"], 2);
    let mut by = BTreeMap::new();
    for id in bench.list_ids(&[]) {
        let item = bench.item(&id);
        let path = item[0]["request"]["path"].as_str().unwrap().to_owned();
        by.insert(path, item[1]["by"].as_str().unwrap().to_owned());
        let place = bench.spool().join(bench.place(&id));
        let meta = fs::metadata(place).unwrap();
        assert_eq!(
            std::os::unix::fs::MetadataExt::uid(&meta),
            0,
            "the spool's own copy"
        );
    }
    let want = [("/14001", "(14001)"), ("/14002", "(14002)")];
    let want = want.map(|(path, by)| (path.to_owned(), by.to_owned()));
    assert_eq!(by, BTreeMap::from(want));
    assert_eq!(bench.files("incoming/"), Vec::<String>::new());
}

/// A refused file lies in `corrupt/` under the name that its producer chose, also if that is an id.
#[test]
fn a_refused_file_stands_for_no_item() {
    let bench = bench();
    let id = "cccccccc-bbbb-4ccc-8ddd-eeeeeeeeeeee";
    let name = format!("{id}.json");
    let text = |member: &str| format!(r#"{{"request_id":"{id}","request":{{"{member}":"/x"}}}}"#);
    drop_file(&bench, "shop", &name, &text("pth"));
    assert_eq!(bench.tick()["corrupt"], 1);
    // The way out: mended, under its own name.
    fs::remove_file(bench.spool().join("corrupt").join(&name)).unwrap();
    drop_file(&bench, "shop", &name, &text("path"));
    assert_eq!(bench.tick()["ingested"], 1);
    assert_eq!(bench.show(id)["state"], "pending");

    let other = "cccccccc-bbbb-4ccc-8ddd-ffffffffffff";
    drop_file(&bench, "shop", &format!("{other}.json"), "no JSON");
    bench.tick();
    assert_eq!(
        bench.enqueue("shop", &["--data", "x", "--request-id", other]),
        other
    );
    assert_eq!(bench.show(other)["state"], "pending");
}

#[test]
fn a_refused_file_is_never_taken_for_the_reason_of_another() {
    let bench = bench();
    drop_file(&bench, "shop", "x.json.why.json", "IMPORTANT");
    bench.tick();
    assert_eq!(bench.json(&["status"])["corrupt"], 1);
    drop_file(&bench, "shop", "x.json", "garbage");
    bench.tick();
    assert_eq!(bench.json(&["status"])["corrupt"], 2);
    let kept = fs::read(bench.spool().join("corrupt/x.json.why.json.2")).unwrap();
    assert_eq!(kept, b"IMPORTANT");
    // Nor for the record of an item that is missing.
    let id = bench.enqueue("shop", &["--data", "x"]);
    fs::remove_file(bench.spool().join(bench.place(&id))).unwrap();
    bench.run(&["audit"]).code(1);
    drop_file(&bench, "shop", &format!("{id}.jsonl.why.json"), "garbage");
    bench.tick();
    bench.run(&["audit"]).code(1).prints(&id);
}
