//! What a tick does with files that are no items, with links, with foreign names, and with a
//! clock that cannot be right.
//!
//! CONTRACT 3 (item file, `corrupt/`) and 4 (the clock).

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/bench.rs"]
mod bench;
mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::{Command, Output};

use bench::{Bench, KEYED, assert_fields};
use support::{Receiver, Reply};

/// An id that nobody minted.
const ID: &str = "01a228af-9284-74bb-b250-40eff85f347b";

fn bench() -> (Bench, Receiver) {
    let receiver = Receiver::start(vec![]);
    let bench = Bench::with(&[("shop", &receiver.url(), KEYED)]);
    (bench, receiver)
}

/// Puts bytes where an item of `shop` would lie.
fn plant(bench: &Bench, bytes: impl AsRef<[u8]>) -> String {
    let dir = bench.spool().join("pending/shop");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join(format!("{ID}.jsonl")), bytes).unwrap();
    format!("{ID}.jsonl")
}

#[test]
fn what_is_no_item_is_set_aside_with_the_reason_and_counted() {
    for (what, bytes) in [
        ("nothing", Vec::new()),
        ("garbage", b"garbage".to_vec()),
        ("zeros", vec![0; 4096]),
        ("no text", vec![0xff; 100]),
        ("other JSON", b"{\"v\":1}\n{}\n".to_vec()),
        ("a list", b"[]\n[]\n".to_vec()),
        ("deep JSON", "[".repeat(100_000).into_bytes()),
    ] {
        let (bench, receiver) = bench();
        let name = plant(&bench, &bytes);
        let good = bench.enqueue("shop", &["--data", "x"]);
        bench.run(&["list"]).ok().says("cannot be read");
        bench.run(&["show", ID]).code(65).says("cannot be read");
        let said = bench
            .run(&["--json", "tick"])
            .ok()
            .says(&name)
            .says("corrupt/");
        assert_eq!(said.json()["corrupt"], 1, "{what}");
        let kept = fs::read(bench.spool().join("corrupt").join(&name)).unwrap();
        assert_eq!(kept, bytes, "{what}: nothing of it is lost");
        let why = bench.read_json(&format!("corrupt/{name}.why.json"));
        assert_fields(&why, "from reason");
        assert!(!why["reason"].as_str().unwrap().is_empty(), "{why:#}");
        assert_eq!(why["from"], format!("pending/shop/{name}"));
        // A bad item costs one item.
        assert!(bench.place(&good).starts_with("confirmed/"), "{what}");
        assert_eq!(receiver.arrivals().len(), 1);
        assert_eq!(bench.json(&["status"])["corrupt"], 1);
        assert_eq!(bench.tick()["corrupt"], 0, "it is told of once");
        assert_eq!(bench.files("corrupt/").len(), 2, "and never deleted");
        bench.run(&["show", ID]).code(66);
    }
}

#[test]
fn one_changed_byte_anywhere_in_the_envelope_is_found() {
    let (sample, _receiver) = bench();
    let options = [
        "--data",
        "amount=5",
        "--path",
        "/v1/charges",
        "--label",
        "a=b",
    ];
    let id = sample.enqueue("shop", &options);
    let good = fs::read_to_string(sample.spool().join(sample.place(&id))).unwrap();
    for (from, to) in [
        ("amount=5", "amount=6"),
        ("/v1/charges", "/v1/chargez"),
        ("\"a\":\"b\"", "\"a\":\"c\""),
        ("POST", "PUTT"),
        ("\"shop\"", "\"shoq\""),
    ] {
        let (bench, receiver) = bench();
        let dir = bench.spool().join("pending/shop");
        fs::create_dir_all(&dir).unwrap();
        assert!(good.contains(from));
        fs::write(dir.join(format!("{id}.jsonl")), good.replacen(from, to, 1)).unwrap();
        assert_eq!(bench.tick()["corrupt"], 1, "{from} -> {to}");
        assert_eq!(receiver.arrivals().len(), 0, "it is not sent");
    }
}

#[test]
fn a_file_under_another_items_name_is_set_aside() {
    let (bench, receiver) = bench();
    let id = bench.enqueue("shop", &["--data", "x"]);
    let from = bench.spool().join(bench.place(&id));
    fs::rename(&from, from.with_file_name(format!("{ID}.jsonl"))).unwrap();
    assert_eq!(bench.tick()["corrupt"], 1);
    assert_eq!(receiver.arrivals().len(), 0);
}

#[test]
fn a_damaged_tail_is_cut_off_and_the_item_goes_on() {
    for tail in [
        "{\"event\":\"attempt\",\"n\":1,\"sta",
        "\0\0\0\0",
        "\0\0\0\0end of a line\n",
        "\n",
    ] {
        let (bench, receiver) = bench();
        let id = bench.enqueue("shop", &["--data", "x"]);
        let path = bench.spool().join(bench.place(&id));
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str(tail);
        fs::write(&path, text).unwrap();
        assert_eq!(bench.show(&id)["state"], "pending", "{tail:?}");
        let said = bench.tick();
        assert_eq!(said["corrupt"], 0, "{tail:?}");
        assert_eq!(said["confirmed"], 1, "{tail:?}");
        let item = bench.item(&id);
        assert_eq!(item.len(), 3, "{tail:?}");
        assert_eq!(item[2]["state"], "confirmed");
        assert_eq!(receiver.arrivals().len(), 1);
    }
}

#[test]
fn a_whole_line_that_is_damaged_is_never_taken_for_none() {
    let (bench, receiver) = bench();
    let id = bench.enqueue("shop", &["--data", "x"]);
    bench.run(&["tick"]).ok();
    let place = bench.place(&id);
    let path = bench.spool().join(&place);
    let mut bytes = fs::read(&path).unwrap();
    // One bit of the last event's first name: it was confirmed, and the file does not say so now.
    let last = bytes[..bytes.len() - 1].iter().rposition(|b| *b == b'\n');
    bytes[last.unwrap() + 3] ^= 8;
    fs::write(&path, &bytes).unwrap();
    for words in [
        &["cancel", &id][..],
        &["hold", &id],
        &["retry", &id],
        &["resolve", "--resend", &id],
    ] {
        bench.run(words);
        assert!(!bench.places(&id)[0].starts_with("pending/"), "{words:?}");
        assert!(!bench.places(&id)[0].starts_with("failed/"), "{words:?}");
    }
    bench.run(&["tick"]).ok();
    assert_eq!(receiver.arrivals().len(), 1, "never sent again");
    assert_eq!(
        fs::read(bench.spool().join(format!("corrupt/{id}.jsonl"))).unwrap(),
        bytes
    );
}

#[test]
fn an_item_whose_events_do_not_know_of_its_attempt_is_parked() {
    let receiver = Receiver::start(vec![Reply::close()]);
    let more = format!("{KEYED}\nretry = {{ base = \"1ms\", max = \"1ms\" }}");
    let bench = Bench::with(&[("shop", &receiver.url(), &more)]);
    let id = bench.enqueue("shop", &["--data", "x"]);
    bench.run(&["tick"]).ok();
    let path = bench.spool().join(bench.place(&id));
    let text = fs::read_to_string(&path).unwrap();
    let two: String = text.split_inclusive('\n').take(2).collect();
    // A loss of power kept the rename and not what was appended before it.
    fs::write(&path, format!("{two}\0\0\0")).unwrap();
    bench.run(&["cancel", &id]).code(1).says("resolve");
    bench.run(&["tick"]).ok();
    assert!(bench.place(&id).starts_with("unknown/shop/parked/"));
    assert_eq!(bench.last_event(&id)["reason"], "interrupted");
    assert_eq!(receiver.arrivals().len(), 1);
}

#[test]
fn links_in_place_of_directories_are_refused_before_anything_is_accepted() {
    let (bench, receiver) = bench();
    let id = bench.enqueue("shop", &["--data", "x"]);
    for linked in ["pending/shop", "pending"] {
        let path = bench.spool().join(linked);
        let away = bench.dir().join("away");
        fs::rename(&path, &away).unwrap();
        symlink(&away, &path).unwrap();
        bench
            .run(&["enqueue", "shop", "--data", "y"])
            .code(78)
            .says(&format!("{linked} is not a directory"));
        let ran = bench.run(&["tick"]);
        ran.says(linked);
        assert_eq!(receiver.arrivals().len(), 0);
        fs::remove_file(&path).unwrap();
        fs::rename(&away, &path).unwrap();
    }
    bench.run(&["tick"]).ok();
    assert!(bench.place(&id).starts_with("confirmed/"));
    assert_eq!(receiver.arrivals().len(), 1);
}

#[test]
fn a_file_in_place_of_a_directory_costs_nobody_else_anything() {
    let receiver = Receiver::start(vec![]);
    let other = Receiver::start(vec![Reply::status(400)]);
    let ops = Receiver::start(vec![]);
    let bench = Bench::new();
    bench.configure(
        "[notify]\ndestinations = [\"ops\"]",
        &[
            ("shop", &receiver.url(), KEYED),
            ("bad", &other.url(), KEYED),
            ("ops", &ops.url(), ""),
            ("stuck", &receiver.url(), ""),
        ],
    );
    bench.enqueue("stuck", &["--data", "x"]);
    bench.enqueue("bad", &["--data", "x"]);
    fs::write(bench.spool().join("pending/ops"), "a file").unwrap();
    fs::write(bench.spool().join("unknown/stuck"), "a file").unwrap();
    let today = today();
    fs::create_dir(bench.spool().join("confirmed/shop")).unwrap();
    fs::write(bench.spool().join(format!("confirmed/shop/{today}")), "").unwrap();
    for round in 1..=2 {
        let id = bench.enqueue("shop", &["--data", "x"]);
        let ran = bench.run(&["tick"]).ok();
        ran.says("unknown/stuck is not a directory");
        assert!(bench.place(&id).starts_with("confirmed/"), "round {round}");
        assert_eq!(receiver.arrivals().len(), round);
    }
    assert_eq!(bench.json(&["status"])["states"]["failed"], 1);
    // Whoever is to be told is told, also of the files that were in the way.
    let told: Vec<String> = ops.arrivals().iter().map(support::Arrival::text).collect();
    for what in ["\"notice\":\"failed\"", "\"notice\":\"corrupt\""] {
        assert!(told.iter().any(|text| text.contains(what)), "{told:#?}");
    }
    assert!(bench.files("corrupt/").len() >= 2);
}

fn today() -> String {
    use tickpost::clock::{Clock as _, SystemClock};
    SystemClock::new().now().day_name()
}

#[test]
fn links_in_place_of_a_days_directory_are_set_aside_and_never_followed() {
    for target in ["/nonexistent", ".", "itself"] {
        let (bench, receiver) = bench();
        let away = bench.dir().join("away");
        fs::create_dir(&away).unwrap();
        let day = bench.spool().join(format!("confirmed/shop/{}", today()));
        fs::create_dir(bench.spool().join("confirmed/shop")).unwrap();
        match target {
            "itself" => symlink(&day, &day).unwrap(),
            "." => symlink(&away, &day).unwrap(),
            other => symlink(other, &day).unwrap(),
        }
        let id = bench.enqueue("shop", &["--data", "x"]);
        bench.run(&["tick"]).ok().says("was set aside");
        assert!(bench.place(&id).starts_with("confirmed/shop/"), "{target}");
        assert_eq!(fs::read_dir(&away).unwrap().count(), 0, "{target}");
        assert_eq!(receiver.arrivals().len(), 1);
    }
}

#[test]
fn a_copy_that_cannot_be_accepted_hides_no_other() {
    let (bench, _receiver) = bench();
    bench.configure(
        "",
        &[
            ("a", "http://127.0.0.1:1", ""),
            ("b", "http://127.0.0.1:1", ""),
        ],
    );
    let [good, bad] = ["a", "b"].map(|name| bench.enqueue(name, &["--data", "x"]));
    bench.run(&["cancel", &good, &bad]).ok();
    fs::remove_dir(bench.spool().join("pending/b")).unwrap();
    fs::write(bench.spool().join("pending/b"), "").unwrap();
    let ran = bench
        .run(&["--json", "retry", "--new-id", &bad, &good])
        .code(1)
        .json();
    assert_eq!(ran["new"][0]["retry_of"], *good, "{ran:#}");
    assert_eq!(ran["unread"][0]["request_id"], *bad, "{ran:#}");
}

#[test]
fn a_second_obstacle_of_one_name_is_told_of_as_the_first_was() {
    let receiver = Receiver::start(vec![]).otherwise(Reply::status(400));
    let ops = Receiver::start(vec![]);
    let bench = Bench::new();
    bench.configure(
        "[notify]\ndestinations = [\"ops\"]",
        &[("shop", &receiver.url(), ""), ("ops", &ops.url(), "")],
    );
    for round in 1..=2 {
        let pending = bench.spool().join("pending/ops");
        drop(fs::remove_dir(&pending));
        fs::write(&pending, "").unwrap();
        bench.enqueue("shop", &["--data", "x"]);
        bench.run(&["tick"]).ok();
        assert_eq!(ops.arrivals().len(), 2 * round, "failed and corrupt");
        for name in bench.files("corrupt/") {
            fs::remove_file(bench.spool().join(name)).unwrap();
        }
    }
    assert_eq!(bench.json(&["status"])["corrupt"], 0);
}

#[test]
fn a_command_on_a_damaged_item_says_so_and_the_item_can_still_be_asked_for() {
    for json in [false, true] {
        let (bench, _receiver) = bench();
        let id = bench.enqueue("shop", &["--data", "x"]);
        bench.run(&["hold", &id]).ok();
        let path = bench.spool().join(bench.place(&id));
        let text = fs::read_to_string(&path).unwrap();
        fs::write(
            &path,
            text.replace("\"event\":\"held\"", "\"event\":\"h\u{1}ld\""),
        )
        .unwrap();
        let dry = bench.run(&["release", "--dry-run", &id]).code(1);
        dry.says("line 3 is damaged");
        let words: &[&str] = if json {
            &["--json", "release", &id]
        } else {
            &["release", &id]
        };
        let ran = bench.run(words).code(1);
        if json {
            assert_eq!(ran.json()["unread"][0]["request_id"], *id);
        } else {
            ran.says("was set aside as corrupt/");
        }
        bench
            .run(&["show", &id])
            .code(66)
            .says(&format!("corrupt/{id}.jsonl.why.json"));
    }
}

/// Gives the spool to a user for whom modes count, and runs commands as that user.
fn as_nobody(bench: &Bench) -> impl Fn(&[&str]) -> Output {
    let program = bench.program_for_all();
    let owned = Command::new("chown")
        .args(["-R", "65534:65534"])
        .arg(bench.spool())
        .status()
        .unwrap();
    assert!(owned.success());
    move |words| {
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&program)
            .arg("--spool")
            .arg(bench.spool())
            .args(words)
            .output()
            .unwrap()
    }
}

/// Only the clock of the last tick and the line of this one are lost with it.
#[test]
fn a_log_of_ticks_that_cannot_be_used_keeps_nothing_from_being_sent() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let receiver = Receiver::by_path([("/lost", vec![Reply::reset()])]);
    let bench = Bench::with(&[("shop", &receiver.url(), KEYED)]);
    let lost = bench.enqueue("shop", &["--data", "x", "--path", "/lost"]);
    bench.tick();
    let to_resend = bench.place(&lost);
    assert!(to_resend.starts_with("unknown/shop/20"), "{to_resend}");
    let id = bench.enqueue("shop", &["--data", "x"]);
    let log = bench.files("log/ticks-").remove(0);
    let run = as_nobody(&bench);
    let closed = fs::Permissions::from_mode(0o000);
    fs::set_permissions(bench.spool().join(&log), closed).unwrap();
    for _ in 0..2 {
        let ticked = run(&["tick"]);
        let said = String::from_utf8_lossy(&ticked.stderr);
        assert_eq!(ticked.status.code(), Some(77), "{said}");
        assert!(said.contains("cannot append to"), "{said}");
    }
    assert_eq!(receiver.arrivals().len(), 2);
    assert!(bench.place(&id).starts_with("confirmed/"));
    assert_eq!(bench.place(&lost), to_resend, "nobody has to look at it");
    assert_eq!(bench.files("journal/"), Vec::<String>::new());
    let checked = run(&["status", "--check"]);
    let said = String::from_utf8_lossy(&checked.stdout);
    assert_ne!(checked.status.code(), Some(0), "{said}");
    assert!(said.contains(&log), "{said}");
    assert_eq!(run(&["audit"]).status.code(), Some(0));
}

#[test]
fn a_destination_whose_memory_cannot_be_read_is_told_of_by_a_check() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (bench, receiver) = bench();
    bench.enqueue("shop", &["--data", "x"]);
    bench.tick();
    let id = bench.enqueue("shop", &["--data", "x"]);
    let run = as_nobody(&bench);
    let memory = bench.spool().join("destinations/shop.json");
    fs::set_permissions(&memory, fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(run(&["tick"]).status.code(), Some(0));
    assert!(bench.place(&id).starts_with("pending/"));
    assert_eq!(receiver.arrivals().len(), 1);
    let checked = run(&["--json", "status", "--check"]);
    let said = String::from_utf8_lossy(&checked.stdout);
    assert_eq!(checked.status.code(), Some(1), "{said}");
    assert!(said.contains("out_of_reach"), "{said}");
}

/// Whether it is a copy, whose items the original sends too, shows once it can be read.
#[test]
fn what_cannot_be_looked_into_is_not_made_a_spool() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let bench = Bench::new();
    let mode = |dir: &str, mode| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(bench.spool().join(dir), mode).unwrap();
    };
    fs::create_dir(bench.spool().join("incoming/shop")).unwrap();
    fs::remove_file(bench.spool().join("spool.json")).unwrap();
    fs::remove_dir(bench.spool().join("bodies")).unwrap();
    let run = as_nobody(&bench);
    for dir in ["pending", "keys", "incoming", "incoming/shop"] {
        mode(dir, 0o000);
        let ran = run(&["init"]);
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(77), "{dir}: {said}");
        assert!(said.contains(dir), "{said}");
        assert!(!bench.spool().join("spool.json").exists(), "{dir}");
        assert!(!bench.spool().join("bodies").exists(), "{dir}");
        mode(dir, 0o700);
    }
    assert_eq!(run(&["init"]).status.code(), Some(0));
    assert_eq!(run(&["tick"]).status.code(), Some(0));
}

#[test]
fn an_item_that_cannot_be_read_costs_one_item() {
    if !rustix::process::geteuid().is_root() {
        // Only root can give the spool to another user, for whom modes count.
        return;
    }
    let (bench, receiver) = bench();
    let bad = bench.enqueue("shop", &["--data", "x"]);
    let good = bench.enqueue("shop", &["--data", "x"]);
    let path = bench.spool().join(bench.place(&bad));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    let run = as_nobody(&bench);
    let ticked = run(&["tick"]);
    let said = String::from_utf8_lossy(&ticked.stderr);
    assert_eq!(ticked.status.code(), Some(0), "{said}");
    assert!(
        said.contains(&bad) && said.contains("cannot read it"),
        "{said}"
    );
    assert_eq!(receiver.arrivals().len(), 1);
    let checked = run(&["status", "--check"]);
    assert_eq!(checked.status.code(), Some(1));
    let said = String::from_utf8_lossy(&checked.stdout);
    let want = format!("1 cannot be read: pending/shop/{bad}.jsonl");
    assert!(said.contains(&want), "{said}");
    let said = run(&["status"]).stdout;
    assert!(String::from_utf8_lossy(&said).contains(&bad));
    let said = run(&["show", &bad]).stderr;
    assert!(String::from_utf8_lossy(&said).contains("ticks leave it as it is"));
    let listed = run(&["list"]);
    assert_eq!(listed.status.code(), Some(0));
    let said = String::from_utf8_lossy(&listed.stderr);
    assert!(said.contains("ticks leave it as it is"), "{said}");
    assert!(String::from_utf8_lossy(&listed.stdout).contains(&good));
    // After the rename everything is "perhaps accepted": 74, never 77, whatever failed.
    let pending = bench.spool().join("pending/shop");
    fs::set_permissions(&pending, fs::Permissions::from_mode(0o300)).unwrap();
    let accepted = run(&["enqueue", "shop", "--data", "z"]);
    assert_eq!(accepted.status.code(), Some(74));
}

#[test]
fn an_item_of_a_newer_version_is_left_and_told_of() {
    let (bench, receiver) = bench();
    let id = bench.enqueue("shop", &["--data", "x"]);
    let path = bench.spool().join(bench.place(&id));
    let text = fs::read_to_string(&path)
        .unwrap()
        .replacen("\"v\":1", "\"v\":2", 1);
    fs::write(&path, &text).unwrap();
    let said = bench.run(&["--json", "tick"]).ok().says(&id);
    assert_eq!(said.json()["corrupt"], 0);
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    assert_eq!(bench.place(&id), format!("pending/shop/{id}.jsonl"));
    assert_eq!(receiver.arrivals().len(), 0);
}

#[test]
fn links_pipes_and_directories_are_left_told_of_and_never_block() {
    let (bench, receiver) = bench();
    let good = bench.enqueue("shop", &["--data", "x"]);
    let outside = bench.file("outside", "not mine");
    let dir = bench.spool().join("pending/shop");
    let other = "01a228af-9284-74bb-b250-40eff85f3400";
    let third = "01a228af-9284-74bb-b250-40eff85f3411";
    symlink(&outside, dir.join(format!("{ID}.jsonl"))).unwrap();
    let pipe = dir.join(format!("{other}.jsonl"));
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    fs::create_dir(dir.join(format!("{third}.jsonl"))).unwrap();
    let ran = bench.run(&["--json", "tick"]).ok();
    for id in [ID, other, third] {
        assert!(ran.stderr.contains(id), "{id}: {ran:#?}");
        let kind = &bench.tree()[&format!("pending/shop/{id}.jsonl")].kind;
        assert_ne!(*kind, "file");
    }
    assert_eq!(ran.json()["corrupt"], 0);
    assert!(bench.place(&good).starts_with("confirmed/"));
    assert_eq!(fs::read(&outside).unwrap(), b"not mine");
    assert_eq!(receiver.arrivals().len(), 1);
    // Readers do not block either.
    assert_eq!(bench.list(&[]).len(), 1);
    bench.run(&["status"]).ok().prints(ID);
    let checked = bench.run(&["status", "--check"]).code(1);
    checked.prints("3 cannot be read: ").prints(ID);
    bench.run(&["show", ID]).code(66);
    bench.run(&["cancel", other]).code(66);
}

#[test]
fn a_link_in_the_place_of_a_directory_is_not_followed() {
    let (bench, receiver) = bench();
    let elsewhere = bench.dir().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let id = bench.enqueue("shop", &["--data", "x"]);
    let name = format!("{id}.jsonl");
    fs::rename(
        bench.spool().join("pending/shop").join(&name),
        elsewhere.join(&name),
    )
    .unwrap();
    symlink(&elsewhere, bench.spool().join("pending/linked")).unwrap();
    bench.configure(
        "",
        &[
            ("shop", &receiver.url(), ""),
            ("linked", &receiver.url(), ""),
        ],
    );
    bench.run(&["tick"]).ok();
    assert_eq!(receiver.arrivals().len(), 0);
    assert!(elsewhere.join(&name).exists());
    bench.run(&["status"]).ok().prints("pending/linked");
}

#[test]
fn foreign_names_are_left_and_told_of() {
    let (bench, _receiver) = bench();
    let good = bench.enqueue("shop", &["--data", "x"]);
    let spool = bench.spool();
    let upper = format!("pending/shop/{}.jsonl", ID.to_uppercase());
    let names = [
        "pending/shop/notes.txt",
        "pending/shop/.hidden",
        "pending/stray",
        &upper,
    ];
    for name in names {
        fs::write(spool.join(name), "mine").unwrap();
    }
    for dir in ["pending/BAD", "pending/shop/old", "pending/shop/2026"] {
        fs::create_dir(spool.join(dir)).unwrap();
    }
    bench.run(&["tick"]).ok();
    for name in names {
        assert_eq!(fs::read(spool.join(name)).unwrap(), b"mine", "{name}");
    }
    assert!(bench.place(&good).starts_with("confirmed/"));
    let foreign = bench.json(&["status"])["foreign"].to_string();
    for name in names
        .iter()
        .chain(&["pending/BAD", "pending/shop/old", "pending/shop/2026"])
    {
        assert!(foreign.contains(name), "{name}: {foreign}");
    }
    assert_eq!(bench.list(&[]).len(), 1);
}

/// A renamed item is one that nobody sends: a monitor is told, and a person how to get it back.
#[test]
fn an_item_that_was_renamed_is_told_of_and_comes_back() {
    let (bench, _receiver) = bench();
    bench.tick();
    bench.run(&["status", "--check"]).ok();
    let id = bench.enqueue("shop", &["--data", "x"]);
    let item = bench.spool().join(bench.place(&id));
    for (name, way_back) in [
        (
            "pending/shop/foo.jsonl",
            "Name a missing one ID.jsonl again",
        ),
        ("pending/FOO", "Name a missing one ID.jsonl again"),
        ("pending/shop/old", "Move the ID.jsonl of a missing one"),
    ] {
        let moved = bench.spool().join(name);
        let file = if name.ends_with("old") {
            fs::create_dir(&moved).unwrap();
            moved.join(item.file_name().unwrap())
        } else {
            moved.clone()
        };
        fs::rename(&item, &file).unwrap();
        bench.run(&["tick"]).ok().says(name);
        bench.run(&["status", "--check"]).code(1).prints(&format!(
            "1 among the items without an item's name, perhaps renamed: {name};"
        ));
        bench.run(&["status"]).ok().prints(name);
        bench
            .run(&["doctor", "--repair"])
            .code(1)
            .prints(name)
            .prints("`tickpost audit` names those that are missing")
            .prints(way_back);
        bench.run(&["audit"]).code(1).prints(&id).prints(
            "files of other names in the directories of the states, which `tickpost doctor` lists",
        );
        fs::rename(&file, &item).unwrap();
        if moved.is_dir() {
            fs::remove_dir(moved).unwrap();
        }
    }
    bench.run(&["audit"]).ok();
    assert_eq!(bench.tick()["confirmed"], 1);
    bench.run(&["status", "--check"]).ok();
}

#[test]
fn who_is_to_be_told_of_corrupt_files_is_told() {
    let receiver = Receiver::start(vec![]);
    let bench = Bench::new();
    bench.configure(
        "[notify]\ndestinations = [\"ops\"]",
        &[("shop", &receiver.url(), ""), ("ops", &receiver.url(), "")],
    );
    let name = plant(&bench, "garbage");
    bench.run(&["tick"]).ok();
    let arrivals = receiver.wait_for(1);
    assert!(arrivals[0].text().contains(&name), "{}", arrivals[0].text());
}

#[test]
fn who_asked_for_an_item_is_told_that_it_was_damaged() {
    let receiver = Receiver::start(vec![]);
    let bench = Bench::with(&[("shop", &receiver.url(), ""), ("ops", &receiver.url(), "")]);
    let large = bench.file("large", vec![b'x'; 100_000]);
    let accept = |words: &[&str]| {
        let words = [words, &["--notify", "ops", "--principal", "alice"]].concat();
        bench.enqueue("shop", &words)
    };
    let torn = accept(&["--data", "x"]);
    let edited = accept(&["--data", "before"]);
    let bodiless = accept(&["--file", &large]);
    // A line that is no event, a hand that changed what was accepted, and a body that is gone.
    let path = |id: &str| bench.spool().join(bench.place(id));
    let text = fs::read_to_string(path(&torn)).unwrap();
    fs::write(path(&torn), format!("{text}garbage\n{{}}\n")).unwrap();
    let text = fs::read_to_string(path(&edited)).unwrap();
    fs::write(path(&edited), text.replace("before", "behind")).unwrap();
    fs::remove_file(bench.spool().join("bodies").join(&bodiless)).unwrap();

    assert_eq!(bench.tick()["corrupt"], 3);
    let arrivals = receiver.wait_for(1);
    let said: serde_json::Value = serde_json::from_str(&arrivals[0].text()).unwrap();
    assert_eq!(
        (&said["notice"], &said["count"]),
        (&"corrupt".into(), &3.into())
    );
    for id in [torn, edited, bodiless] {
        assert!(arrivals[0].text().contains(&id), "{said:#}");
    }
    assert!(arrivals[0].text().contains("alice"), "{said:#}");
}

#[test]
fn a_clock_before_the_last_tick_is_suspect_once_and_nothing_expires() {
    let (bench, receiver) = bench();
    let id = bench.enqueue("shop", &["--data", "x", "--not-after", "+1ms"]);
    let held = bench.enqueue("shop", &["--data", "x", "--not-after", "+1ms"]);
    bench.run(&["hold", &held]).ok();
    bench.write_tick_line("20960101", "2096-01-01T00:00:00.000Z");
    let ran = bench
        .run(&["--json", "tick"])
        .ok()
        .says("before the end of the last tick");
    let said = ran.json();
    assert!(said["clock_suspect"].is_string(), "{said:#}");
    assert_eq!(said["failed"], 0);
    assert!(
        bench.place(&id).starts_with("pending/"),
        "what may be worthless is neither sent nor failed"
    );
    assert!(bench.place(&held).starts_with("held/"));
    // The line of this tick is the last one now, whatever the day of the one before.
    let next = bench
        .run(&["--json", "tick"])
        .ok()
        .says_not("the last tick");
    assert!(next.json().get("clock_suspect").is_none(), "{next:#?}");
    assert_eq!(next.json()["failed"], 2);
    assert!(bench.place(&held).starts_with("failed/"));
    assert!(bench.place(&id).starts_with("failed/"));
    assert_eq!(receiver.arrivals().len(), 0);
}

#[test]
fn a_clock_that_leapt_ahead_is_suspect() {
    let (bench, _receiver) = bench();
    bench.write_tick_line("20200101", "2020-01-01T00:00:00.000Z");
    bench.run(&["tick"]).ok().says("the clock leapt ahead");
    assert_eq!(bench.run(&["tick"]).ok().stderr, "");
}

#[test]
fn a_damaged_log_and_damaged_memory_cost_nothing() {
    let (bench, _receiver) = bench();
    let id = bench.enqueue("shop", &["--data", "x"]);
    fs::write(
        bench.spool().join("log/ticks-20260101.jsonl"),
        "garbage\n{\"ended",
    )
    .unwrap();
    fs::write(bench.spool().join("destinations/shop.json"), "garbage").unwrap();
    assert!(bench.json(&["status"])["last_tick"].is_null());
    bench.run(&["tick"]).ok();
    assert!(bench.place(&id).starts_with("confirmed/"));
}

#[test]
fn directories_that_are_missing_are_no_reason_to_lose_anything() {
    let (bench, _receiver) = bench();
    let id = bench.enqueue("shop", &["--data", "x"]);
    for dir in [
        "confirmed",
        "held",
        "failed",
        "corrupt",
        "log",
        "destinations",
        "journal",
        "tmp",
        "unknown",
    ] {
        fs::remove_dir_all(bench.spool().join(dir)).unwrap();
    }
    let ran = bench.run(&["tick"]).ok();
    assert!(bench.place(&id).starts_with("confirmed/"), "{ran:#?}");
}

#[test]
fn a_directory_that_is_missing_is_made_by_whatever_needs_it() {
    let (bench, _receiver) = bench();
    let gone = |dir: &str| drop(fs::remove_dir_all(bench.spool().join(dir)));
    for dir in ["tmp", "corrupt", "journal", "destinations", "log"] {
        gone(dir);
        bench.run(&["doctor"]).code(1);
        bench.run(&["doctor", "--repair"]).ok();
        bench.run(&["doctor"]).ok();
        gone(dir);
        bench.enqueue("shop", &["--data", "x", "--key", dir]);
        gone(dir);
        let id = bench.enqueue("shop", &["--hold", "x", "--data", "x"]);
        gone(dir);
        bench.run(&["cancel", &id]).ok();
        gone(dir);
        bench.run(&["hold", "--destination", "shop"]).ok();
        gone(dir);
        bench.run(&["release", "--destination", "shop"]).ok();
        let id = bench.enqueue("shop", &["--data", "x"]);
        fs::write(bench.spool().join(bench.place(&id)), "").unwrap();
        gone(dir);
        bench.run(&["tick"]).ok();
        assert!(
            bench
                .places(&id)
                .iter()
                .all(|path| path.starts_with("corrupt/"))
        );
        assert_eq!(bench.places(&id).len(), 2, "{dir}");
        assert_eq!(bench.files("pending/"), Vec::<String>::new(), "{dir}");
        for file in bench.files("corrupt/") {
            fs::remove_file(bench.spool().join(file)).unwrap();
        }
    }
}
