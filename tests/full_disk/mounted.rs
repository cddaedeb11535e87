//! The part of `tests/full_disk.rs` that runs in a mount namespace: the built binary on file
//! systems that are full indeed. Outside of one these tests do nothing.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use tickpost::clock::{Clock as _, SystemClock};
use tickpost::model::event::{Event, EventKind};
use tickpost::model::item::{Item, event_line};
use tickpost::model::reason::Reason;
use tickpost::model::state::State;
use tickpost::model::time::DAY_MS;
use tickpost::store::file::layout::Place;

use super::bench::{Bench, KEYED};
use super::common;
use super::support::{Receiver, Reply};

/// A small file system and the spool on it.
struct Small {
    bench: Bench,
    mount: PathBuf,
    what: &'static str,
    is_loop: bool,
    _dir: TempDir,
}

/// What is used up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Bytes,
    Inodes,
}

impl Small {
    fn tmpfs(what: &'static str, options: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let mount = dir.path().join("fs");
        fs::create_dir(&mount).unwrap();
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "t"])
            .arg(&mount)
            .status()
            .unwrap();
        assert!(done.success());
        Self {
            bench: Bench::at(mount.join("spool")),
            mount,
            what,
            is_loop: false,
            _dir: dir,
        }
    }

    /// `None` where there is no loop device or no mkfs.
    fn ext4() -> Option<Self> {
        let dir = TempDir::new().unwrap();
        let (image, mount) = (dir.path().join("image"), dir.path().join("fs"));
        File::create(&image).unwrap().set_len(48 << 20).unwrap();
        fs::create_dir(&mount).unwrap();
        let made = Command::new("mkfs.ext4")
            .args(["-q", "-m", "0", "-N", "4000"])
            .arg(&image)
            .status();
        let mounted = made.is_ok_and(|status| status.success())
            && Command::new("mount")
                .args(["-o", "loop"])
                .args([&image, &mount])
                .status()
                .is_ok_and(|status| status.success());
        mounted.then(|| Self {
            bench: Bench::at(mount.join("spool")),
            mount,
            what: "ext4",
            is_loop: true,
            _dir: dir,
        })
    }

    /// Uses everything up.
    fn fill(&self, of: Of) {
        let dir = self.mount.join("filler");
        fs::create_dir_all(&dir).unwrap();
        match of {
            Of::Bytes => {
                let path = dir.join("bytes");
                let mut file = File::options()
                    .append(true)
                    .create(true)
                    .open(path)
                    .unwrap();
                for size in [1 << 20, 4096, 1] {
                    while file.write_all(&vec![b'x'; size]).is_ok() && file.sync_data().is_ok() {}
                }
            }
            Of::Inodes => {
                let mut n = 0;
                while File::options()
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(dir.join(n.to_string()))
                    .is_ok()
                {
                    n += 1;
                }
            }
        }
    }

    fn free(&self) {
        fs::remove_dir_all(self.mount.join("filler")).unwrap();
    }

    fn has_reserve(&self) -> bool {
        self.bench.spool().join("reserve/32").exists()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        if self.is_loop {
            // Before the image goes.
            drop(Command::new("umount").arg(&self.mount).status());
        }
    }
}

/// Does something on every kind of small disk.
fn everywhere(each: impl Fn(&Small, Of)) {
    if std::env::var_os(super::ENCLOSED).is_none() {
        return;
    }
    let bytes = Small::tmpfs("tmpfs without bytes", "size=48m");
    each(&bytes, Of::Bytes);
    let inodes = Small::tmpfs("tmpfs without inodes", "size=48m,nr_inodes=3000");
    each(&inodes, Of::Inodes);
    for of in [Of::Bytes, Of::Inodes] {
        match Small::ext4() {
            Some(ext4) => each(&ext4, of),
            None => println!("no ext4 on a loop device here"),
        }
    }
}

/// Plants an item to `shop` that was confirmed so many days ago.
fn plant_old(spool: &Path, n: u64, days: u64) {
    let at = SystemClock::new().now().minus(days * DAY_MS);
    let mut envelope = common::envelope(n);
    envelope.destination = "shop".parse().unwrap();
    envelope.enqueued_at = at;
    let id = envelope.request_id;
    let accepted = Event::new(EventKind::Accepted, at, State::Pending);
    let (_, mut bytes) = Item::accept(envelope, accepted).unwrap();
    let mut event = common::attempt(1, at, State::Confirmed, None);
    event.reason = Some(Reason::ACCEPTED);
    bytes.extend(event_line(&event).unwrap());
    let place = Place::filed(State::Confirmed, "shop", id, None, None, at).path();
    let path = spool.join(place);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
}

#[test]
fn what_was_sent_is_settled_and_everything_goes_on_when_there_is_room() {
    everywhere(|small, of| {
        let what = small.what;
        let receiver = Receiver::start(vec![Reply::ok().gated()]);
        let bench = &small.bench;
        bench.run(&["init"]).ok();
        bench.configure("", &[("shop", &receiver.url(), "concurrency = 1")]);
        let ids: Vec<String> = (0..4)
            .map(|_| bench.enqueue("shop", &["--data", "x"]))
            .collect();
        let tick = bench.call(&["tick"]).start();
        receiver.wait_for(1);
        assert!(small.has_reserve(), "{what}");
        small.fill(of);
        receiver.open_gate();
        tick.end()
            .code(74)
            .says("no room on the disk")
            .says("[retention]");
        assert!(
            bench.place(&ids[0]).starts_with("confirmed/shop/"),
            "{what}"
        );
        assert!(!small.has_reserve(), "{what}");
        assert!(bench.files("journal/").is_empty(), "{what}");

        // Still full: nothing is sent, and a person can work.
        bench.run(&["tick"]).code(74).says("no room on the disk");
        bench
            .run(&["status", "--check"])
            .code(2)
            .prints("the last tick stopped for want of room");
        bench.run(&["hold", &ids[1]]).ok();
        bench.run(&["cancel", &ids[2]]).ok();
        bench.run(&["release", &ids[1]]).ok();
        bench.run(&["hold", "--destination", "shop"]).ok();
        bench.run(&["release", "--destination", "shop"]).ok();
        let before: Vec<String> = bench.tree().into_keys().collect();
        bench.run(&["enqueue", "shop", "--data", "y"]).code(75);
        let after: Vec<String> = bench.tree().into_keys().collect();
        assert_eq!(after, before, "{what}");
        assert_eq!(receiver.arrivals().len(), 1, "{what}");

        small.free();
        bench.run(&["tick"]).ok();
        for (n, state) in ["confirmed", "confirmed", "failed", "confirmed"]
            .iter()
            .enumerate()
        {
            assert!(bench.place(&ids[n]).starts_with(state), "{what} {n}");
        }
        assert_eq!(receiver.arrivals().len(), 3, "{what}");
        assert!(small.has_reserve(), "{what}");
        bench.run(&["tick"]).ok();
        assert_eq!(receiver.arrivals().len(), 3, "{what}");
    });
}

/// The journal asks for what it needs, not for what many items at once would need: on a small file
/// system it gets that.
#[test]
fn many_items_go_through_a_file_system_that_is_nearly_full() {
    if std::env::var_os(super::ENCLOSED).is_none() {
        return;
    }
    let small = Small::tmpfs("tmpfs", "size=6m");
    let receiver = Receiver::start(vec![]);
    let bench = &small.bench;
    bench.run(&["init"]).ok();
    let general = "[limits]\nmin_free = \"1KiB\"\n";
    bench.configure(general, &[("shop", &receiver.url(), KEYED)]);
    let data = "x".repeat(9000);
    let line = format!(
        "{{\"destination\":\"shop\",\"request\":{{\"path\":\"/\",\"body\":{{\"text\":\"{data}\"}}}}}}\n"
    );
    let accepting = bench.call(&["enqueue", "--batch"]).stdin(line.repeat(400));
    drop(accepting.run());
    let count = bench.files("pending/shop/").len();
    assert!(count > 300, "{count}");
    let mut left = count;
    while left > 0 {
        let tick = bench.call(&["tick"]).run();
        assert!([Some(0), Some(74)].contains(&tick.code), "{tick:#?}");
        tick.says_not("cannot");
        assert!(bench.files("unknown/shop/").is_empty());
        let now = bench.files("pending/shop/").len();
        assert!(now < left, "{now} of {left} are left");
        left = now;
    }
    assert_eq!(receiver.arrivals().len(), count);
    assert_eq!(bench.files("confirmed/shop/").len(), count);
}

#[test]
fn a_tick_that_dies_on_a_full_disk_is_recovered_on_it() {
    everywhere(|small, of| {
        let what = small.what;
        let receiver = Receiver::start(vec![Reply::silent().taking_effect()]);
        let bench = &small.bench;
        bench.run(&["init"]).ok();
        let keyless = ("shop", receiver.url(), "");
        bench.configure("", &[(keyless.0, &keyless.1, keyless.2)]);
        let id = bench.enqueue("shop", &["--data", "x"]);
        let tick = bench.call(&["tick"]).start();
        receiver.wait_for(1);
        small.fill(of);
        tick.kill();
        drop(tick.end());
        bench.run(&["tick"]).code(74).says("no room on the disk");
        let place = bench.place(&id);
        assert!(place.starts_with("unknown/shop/parked/"), "{what}: {place}");
        bench.run(&["resolve", &id, "--confirmed"]).ok();
        assert!(bench.place(&id).starts_with("confirmed/shop/"), "{what}");
        small.free();
        bench.run(&["tick"]).ok();
        assert_eq!(receiver.arrivals().len(), 1, "{what}");
    });
}

#[test]
fn prune_frees_a_full_disk() {
    everywhere(|small, of| {
        for by_hand in [true, false] {
            let what = small.what;
            let receiver = Receiver::start(vec![]);
            let bench = &small.bench;
            bench.run(&["init"]).ok();
            bench.configure(
                "[limits]\nmin_free = \"1B\"\n",
                &[("shop", &receiver.url(), KEYED)],
            );
            bench.run(&["tick"]).ok();
            assert!(small.has_reserve(), "{what}");
            for n in 0..40 {
                plant_old(bench.spool(), n + 100, 20);
            }
            let id = bench.enqueue("shop", &["--data", "x"]);
            small.fill(of);
            if by_hand {
                bench.run(&["prune"]).ok().prints("40 items pruned");
            } else {
                bench.run(&["tick"]).code(74).says("no room on the disk");
            }
            let logs = bench.files("log/pruned-");
            let kept = fs::read_to_string(bench.spool().join(&logs[0])).unwrap();
            assert_eq!(kept.lines().count() % 40, 0, "{what}");
            assert!(!bench.spool().join("bodies").join("x").exists());
            assert_eq!(receiver.arrivals().len(), 0, "{what}");
            small.free();
            bench.run(&["tick"]).ok();
            assert!(bench.place(&id).starts_with("confirmed/"), "{what}");
            assert_eq!(receiver.arrivals().len(), 1, "{what}");
        }
    });
}

/// As the kernel turns a file system whose disk it does not trust any more.
#[test]
fn a_check_tells_that_nothing_can_be_written() {
    if std::env::var_os(super::ENCLOSED).is_none() {
        return;
    }
    let small = Small::tmpfs("tmpfs", "size=48m");
    let bench = &small.bench;
    bench.run(&["init"]).ok();
    bench.run(&["tick"]).ok();
    bench.run(&["status", "--check"]).ok();
    let mut done = Command::new("mount");
    done.args(["-o", "remount,ro"]);
    assert!(done.arg(&small.mount).status().unwrap().success());
    bench.run(&["tick"]).code(74);
    let checked = bench.run(&["status", "--check"]).code(2);
    checked.prints("no tick can run").prints("is read-only");
}

/// Without a limit of its own `enqueue` meets the full disk itself.
#[test]
fn what_does_not_fit_is_not_accepted_and_leaves_nothing() {
    everywhere(|small, of| {
        let what = small.what;
        let bench = &small.bench;
        bench.run(&["init"]).ok();
        let nowhere = "http://127.0.0.1:9";
        bench.configure("[limits]\nmin_free = \"1B\"\n", &[("shop", nowhere, "")]);
        bench.run(&["tick"]).ok();
        small.fill(of);
        let before = bench.files("");
        let large = "x".repeat(200_000);
        for min_free in ["1B", "16MiB"] {
            let general = format!("[limits]\nmin_free = \"{min_free}\"\n");
            let configured = format!("{general}[destination.shop]\nbase_url = \"{nowhere}\"\n");
            let file = bench.file("other.toml", configured);
            let words = ["--config", &file, "enqueue"];
            for more in [
                &["shop", "--data", "x"][..],
                &["shop", "--data", "x", "--key", "k"],
                &[
                    "shop",
                    "--data",
                    "x",
                    "--request-id",
                    "3f0c8a52-3b0f-4b6e-9d5e-0c1f3a2b4c5d",
                ],
            ] {
                let ran = bench.run(&[&words, more].concat());
                ran.code(75).says("until there is room").prints_nothing();
            }
            let call = || bench.call(&[&words[..], &["shop", "--file", "-"]].concat());
            let ran = call().stdin(large.clone()).run();
            ran.code(75).says("until there is room").prints_nothing();
            let line = "{\"destination\":\"shop\",\"request\":{},\"key\":\"b\"}\n";
            let call = || bench.call(&[&words[..], &["--batch"]].concat());
            let ran = call().stdin(line).run();
            assert_eq!(ran.stdout.trim(), "", "{what}");
            ran.code(75).says("until there is room");
        }
        assert_eq!(bench.files(""), before, "{what}");
        let ran = bench.run(&["status"]).ok();
        let says_so = ran.stdout.contains("nothing more is accepted");
        assert!(says_so || of == Of::Bytes, "{what}: {}", ran.stdout);
        bench.run(&["list"]).ok();
        small.free();
    });
}
