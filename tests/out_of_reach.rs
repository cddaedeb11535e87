//! One directory or file that cannot be read or written costs what lies in it, and nobody else a tick:
//! real ticks on the real disk, which says of one place that it is out of reach.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "common/world.rs"]
mod world;

use std::fs;
use std::os::unix::fs::symlink;

use common::{NOW, accepted, by_hand, dest, envelope, id, owner, want};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;
use tickpost::model::envelope::sha256_hex;
use tickpost::model::event::EventKind;
use tickpost::model::item::{Item, event_line};
use tickpost::model::state::State;
use tickpost::store::checkup::{Checkup, Finding};
use tickpost::store::disk::RealDisk;
use tickpost::store::file::journal::{Journal, MoveRecord, Record};
use tickpost::store::{Answer, Decision, DestinationHold, Scope, Store as _};
use world::{World, to_whom, warned};

const BOTH: [Errno; 2] = [Errno::ACCESS, Errno::IO];

/// What a dead tick was sending may lie in it unseen.
#[test]
fn a_destination_whose_unknown_items_are_out_of_reach_is_sent_nothing_and_the_others_are() {
    for errno in BOTH {
        let world = World::new();
        world.post("a", 1);
        {
            let store = world.store();
            let mut session = store.lock(&owner(NOW)).unwrap();
            let claims = session.claim(&want(1), NOW, &mut |_| Decision::Claim);
            assert_eq!(claims.unwrap().len(), 1);
            session.close(NOW, None).unwrap();
        }
        world.post("a", 2);
        world.post("b", 3);
        world.lose("unknown/a", errno, false);
        let (report, sent) = world.tick();
        assert_eq!(to_whom(&sent), ["b"], "{errno}");
        warned(&report, "unknown/a");
        world.find_again();
        let (report, sent) = world.tick();
        assert_eq!(report.recovered, 1, "{errno}");
        assert!(sent.iter().any(|(_, sent)| *sent == id(2)), "{sent:?}");
    }
}

#[test]
fn a_destination_whose_held_items_are_out_of_reach_is_sent_nothing_and_the_others_are() {
    for (errno, lost) in BOTH.into_iter().flat_map(|errno| {
        let minute = format!("held/a/{}", NOW.minute().minute_name());
        [(errno, "held/a".to_owned()), (errno, minute)]
    }) {
        let world = World::new();
        let due = Some(NOW);
        let held = by_hand(EventKind::Accepted, NOW, State::Held, due);
        world.store().accept(envelope(1), held).unwrap();
        world.post("a", 2);
        world.post("b", 3);
        world.lose(&lost, errno, false);
        let (report, sent) = world.tick();
        assert_eq!(to_whom(&sent), ["b"], "{lost}, {errno}");
        warned(&report, &lost);
        world.find_again();
        assert_eq!(to_whom(&world.tick().1), ["a", "a"], "{lost}, {errno}");
    }
}

/// And the notice is not lost: it is told when its place is there again, once.
#[test]
fn a_notice_whose_place_is_out_of_reach_is_kept_and_stops_nobody() {
    for (errno, for_writes) in [
        (Errno::ACCESS, false),
        (Errno::ACCESS, true),
        (Errno::IO, false),
        (Errno::PERM, true),
    ] {
        let world = World::new();
        let why = format!("{errno}, {for_writes}");
        fs::create_dir(world.root.join("pending/ops")).unwrap();
        world.plant(&format!("pending/a/{}.jsonl", id(1)), "garbage");
        world.lose("pending/ops", errno, for_writes);
        let (report, _) = world.tick();
        assert_eq!(report.corrupt, 1, "{why}");
        warned(&report, "pending/ops");
        for n in [2, 3] {
            world.post("b", n);
            let (report, sent) = world.tick();
            assert_eq!(to_whom(&sent), ["b"], "{why}");
            warned(&report, "pending/ops");
            assert_eq!(world.names("journal").len(), 1, "{why}");
        }
        let checkup = Checkup {
            now: NOW,
            configured: None,
        };
        let found = world.store().examine(&checkup).unwrap();
        let says = |what: &Finding| what.path == "journal" && what.what.contains("out of reach");
        assert!(found.iter().any(says), "{why}: {found:?}");
        // A second one joins it.
        world.plant(&format!("pending/a/{}.jsonl", id(4)), "garbage");
        world.tick();
        world.find_again();
        let (_, sent) = world.tick();
        assert_eq!(to_whom(&sent), ["ops"], "{why}");
        assert_eq!(world.tick().1, [], "{why}");
        assert_eq!(world.names("journal"), Vec::<String>::new(), "{why}");
        assert_eq!(world.names("tmp"), Vec::<String>::new(), "{why}");
    }
}

#[test]
fn a_notice_in_a_directory_that_may_not_be_opened_is_told_once() {
    let world = World::new();
    fs::create_dir(world.root.join("pending/ops")).unwrap();
    world.plant(&format!("pending/a/{}.jsonl", id(1)), "garbage");
    world.keep_closed("pending/ops");
    let (report, _) = world.tick();
    warned(&report, "pending/ops");
    world.find_again();
    assert_eq!(to_whom(&world.tick().1), ["ops"]);
    assert_eq!(world.tick().1, []);
}

/// The segment that kept the first one does not outlive its acceptance: the second would join it, and
/// count as told.
#[test]
fn what_is_told_after_a_kept_notice_was_accepted_is_told_too() {
    let world = World::new();
    fs::create_dir(world.root.join("pending/ops")).unwrap();
    world.plant(&format!("pending/a/{}.jsonl", id(1)), "garbage");
    world.lose("pending/ops", Errno::ACCESS, true);
    world.tick();
    {
        let store = world.store();
        let told = [dest("ops")];
        let mut owner = owner(NOW);
        owner.told_of_corrupt = &told;
        let mut session = store.lock(&owner).unwrap();
        world.find_again();
        assert_eq!(session.publish(NOW).unwrap(), told);
        world.plant(&format!("pending/a/{}.jsonl", id(2)), "garbage");
        session
            .claim(&want(1), NOW, &mut |_| Decision::Claim)
            .unwrap();
        session.sync().unwrap();
        // It dies.
    }
    assert_eq!(to_whom(&world.tick().1), ["ops", "ops"]);
}

/// A full disk says nothing of one place.
#[test]
fn a_notice_for_which_there_is_no_room_ends_the_tick() {
    let world = World::new();
    fs::create_dir(world.root.join("pending/ops")).unwrap();
    world.plant(&format!("pending/a/{}.jsonl", id(1)), "garbage");
    world.lose("pending/ops", Errno::NOSPC, true);
    let store = world.store();
    let told = [dest("ops")];
    let mut owner = owner(NOW);
    owner.told_of_corrupt = &told;
    let mut session = store.lock(&owner).unwrap();
    session
        .claim(&want(1), NOW, &mut |_| Decision::Claim)
        .unwrap();
    assert!(session.close(NOW, None).is_err());
}

/// Whether a key or an id was used before can be told by what is out of reach alone: what was dropped
/// with one waits, and is accepted once, when that can be read again.
#[test]
fn a_drop_that_nobody_can_decide_on_waits_and_every_other_is_taken_in() {
    let day = NOW.day_name();
    let key = format!("keys/a/{}", sha256_hex(b"k"));
    let rows = [
        (format!("confirmed/old/{day}"), Errno::IO),
        ("confirmed/old".to_owned(), Errno::ACCESS),
        ("corrupt".to_owned(), Errno::ACCESS),
        (format!("log/pruned-{day}.jsonl"), Errno::IO),
        (key.clone(), Errno::IO),
        (key, Errno::ACCESS),
        ("keys/a".to_owned(), Errno::ACCESS),
    ];
    for (lost, errno) in rows {
        let world = World::new();
        let why = format!("{lost}, {errno}");
        world.tick();
        let day_dir = world.root.join(format!("confirmed/old/{day}"));
        fs::create_dir_all(day_dir).unwrap();
        world.plant(&format!("log/pruned-{day}.jsonl"), "");
        // Used before, by an item that is there, under the same key.
        accept_keyed(&world, 1).unwrap();
        let keyed = r#"{"request":{"path":"/x","body":{"text":"{\"n\":1}"}},"key":"k"}"#;
        let own = format!(r#"{{"request":{{}},"request_id":"{}"}}"#, id(77));
        world.plant("incoming/a/keyed.json", keyed);
        world.plant("incoming/a/own.json", &own);
        world.plant("incoming/a/plain.json", r#"{"request":{}}"#);
        world.plant("incoming/b/plain.json", r#"{"request":{}}"#);
        world.lose(&lost, errno, false);
        let mut all = 0;
        for _ in 0..3 {
            let (report, sent) = world.tick();
            all += sent.len();
            warned(&report, &lost);
            warned(&report, "incoming/a/");
        }
        let waiting = world.names("incoming/a").len();
        assert!((1..=2).contains(&waiting), "{why}: {waiting}");
        assert_eq!(world.names("incoming/b"), Vec::<String>::new(), "{why}");
        // The item of before, those without a name, and perhaps the id that nothing speaks of. The
        // file of the first is newer than its event, and may be one that was pruned.
        let own = world.names("incoming/a");
        let own = own.iter().any(|name| name.starts_with("own."));
        let is_doubtful = lost.starts_with("log/");
        assert_eq!(
            all,
            4 - usize::from(own) - usize::from(is_doubtful),
            "{why}"
        );
        world.find_again();
        all += world.tick().1.len();
        assert_eq!(all, 4, "{why}");
        assert_eq!(world.names("incoming/a"), Vec::<String>::new(), "{why}");
        assert_eq!(world.state(77), State::Confirmed, "{why}");
        let mut items = 0;
        world
            .store()
            .scan(&Scope::default(), &mut |_| {
                items += 1;
                Ok(())
            })
            .unwrap();
        assert_eq!(items, 4, "{why}: nothing twice, nothing lost");
        assert_eq!(world.names("corrupt"), Vec::<String>::new(), "{why}");
    }
}

/// Offers the request of the first item, under the key `k` and an id that a caller has made up for it.
fn accept_keyed(world: &World, n: u64) -> Result<Vec<Answer>, tickpost::store::StoreError> {
    let mut envelope = envelope(n);
    envelope.request = common::envelope(1).request;
    envelope.key = Some("k".to_owned());
    let offer = tickpost::store::Offer {
        envelope,
        accepted: accepted(),
        own_id: false,
        body: None,
    };
    let mut answers = Vec::new();
    let limits = tickpost::store::Limits::NONE;
    let store = world.store();
    store.accept_all(vec![offer], &limits, &mut answers)?;
    Ok(answers)
}

/// A link is not followed, so what is behind it may be the very item: its repeats wait, under whatever
/// name they come, and nobody else does.
#[test]
fn a_repeat_of_what_may_lie_behind_something_strange_is_not_accepted() {
    let day = NOW.minus(86_400_000).day_name();
    let later = NOW.plus(86_400_000 * 3);
    let file = format!("{}.jsonl", id(1));
    let directories = [
        "unknown/a/parked".to_owned(),
        format!("confirmed/a/{day}"),
        format!("failed/a/{day}"),
        format!("pending/a/{}", later.day_name()),
        format!("pending/a/{}", later.minute().minute_name()),
        "confirmed/a".to_owned(),
    ];
    let files = ["held/a", "unknown/a/parked"].map(|dir| format!("{dir}/{file}"));
    let links = directories.iter().map(|path| (path, "link"));
    let rows = links.chain(files.iter().flat_map(|path| {
        let kinds = ["link", "directory", "pipe"];
        kinds.map(|kind| (path, kind))
    }));
    for (path, kind) in rows {
        for way in ["key", "drop", "taking"] {
            let why = format!("{path}, {kind}, {way}");
            let world = World::new();
            world.tick();
            let accept = |n| accept_keyed(&world, n);
            accept(1).unwrap();
            let item = match path.ends_with(&file) {
                true => path.clone(),
                false if path == "confirmed/a" => format!("{path}/{day}/{file}"),
                false => format!("{path}/{file}"),
            };
            world.shift(&format!("pending/a/{file}"), &item);
            let (there, away) = (world.root.join(path), world.root.join("../away"));
            fs::rename(&there, &away).unwrap();
            match kind {
                "link" => symlink(&away, &there).unwrap(),
                "directory" => fs::create_dir(&there).unwrap(),
                _ => mknodat(CWD, &there, FileType::Fifo, Mode::RUSR, 0).unwrap(),
            }
            let repeat = r#"{"request":{"path":"/x","body":{"text":"{\"n\":1}"}}"#;
            let waits = match way {
                "key" => {
                    let error = accept(2).unwrap_err();
                    assert!(error.to_string().contains(path), "{why}: {error}");
                    None
                }
                "drop" => {
                    world.plant("incoming/a/keyed.json", &format!(r#"{repeat},"key":"k"}}"#));
                    Some("incoming/a/keyed.".to_owned())
                }
                _ => {
                    let name = format!("incoming/a/begun.{}.taking", id(1));
                    world.plant(&name, &format!("{repeat}}}"));
                    Some(name)
                }
            };
            // No repeats, or no item's that could be there.
            world.plant("incoming/a/plain.json", r#"{"request":{}}"#);
            world.plant("incoming/a/new.json", r#"{"request":{},"key":"l"}"#);
            let begun = format!("incoming/b/begun.{}.taking", id(3));
            world.plant(&begun, r#"{"request":{}}"#);
            world.plant("incoming/b/keyed.json", r#"{"request":{},"key":"k"}"#);
            let others = match &**path {
                "confirmed/a" => vec!["b", "b"],
                _ => vec!["a", "a", "b", "b"],
            };
            for round in 0..2 {
                let (report, sent) = world.tick();
                let others = if round == 0 { others.clone() } else { vec![] };
                assert_eq!(to_whom(&sent), others, "{why}");
                if let Some(waits) = &waits {
                    let told = |line: &&String| line.contains(waits) && line.contains(path);
                    let told = report.warnings.iter().find(told);
                    assert!(told.is_some(), "{why}: {:?}", report.warnings);
                }
            }
            if kind == "directory" {
                fs::remove_dir(&there).unwrap();
            } else {
                fs::remove_file(&there).unwrap();
            }
            fs::rename(&away, &there).unwrap();
            if way == "key" {
                assert_eq!(accept(2).unwrap(), [Answer::Known(id(1))], "{why}");
            }
            world.tick();
            assert_eq!(world.names("incoming/a"), [""; 0], "{why}");
            let mut items = 0;
            let mut count = |_: &tickpost::store::Found| {
                items += 1;
                Ok(())
            };
            world.store().scan(&Scope::default(), &mut count).unwrap();
            assert_eq!(items, 5, "{why}: nothing twice, nothing lost");
        }
    }
}

/// Nothing can hide an item that is seen.
#[test]
fn a_repeat_of_an_item_that_is_there_is_known_beside_something_strange() {
    let world = World::new();
    world.tick();
    accept_keyed(&world, 1).unwrap();
    fs::create_dir_all(world.root.join("failed/a")).unwrap();
    let link = world.root.join("failed/a").join(NOW.day_name());
    symlink("elsewhere", link).unwrap();
    assert_eq!(accept_keyed(&world, 2).unwrap(), [Answer::Known(id(1))]);
}

/// Whether the item that they repeat would outlast a loss of power, nobody can tell.
#[test]
fn what_repeats_an_item_in_a_directory_that_cannot_be_synced_waits_and_stops_nobody() {
    for errno in BOTH {
        let world = World::new();
        accept_keyed(&world, 1).unwrap();
        world.tick();
        let request = r#""request":{"path":"/x","body":{"text":"{\"n\":1}"}}"#;
        world.plant(
            "incoming/a/keyed.json",
            &format!("{{{request},\"key\":\"k\"}}"),
        );
        let begun = format!("incoming/a/begun.json.{}.taking", id(1));
        world.plant(&begun, &format!("{{{request}}}"));
        world.plant("incoming/b/plain.json", r#"{"request":{}}"#);
        world.post("b", 2);
        world.lose(&format!("confirmed/a/{}", NOW.day_name()), errno, false);
        world.only(&["sync_dir"]);
        let (report, sent) = world.tick();
        assert_eq!(to_whom(&sent), ["b", "b"], "{errno}");
        warned(&report, "incoming/a/keyed.");
        warned(&report, "incoming/a/begun.");
        assert_eq!(world.names("incoming/a").len(), 2, "{errno}");
        world.find_again();
        let (_, sent) = world.tick();
        assert_eq!(sent, [], "{errno}");
        assert_eq!(world.names("incoming/a"), Vec::<String>::new(), "{errno}");
        assert_eq!(world.names("corrupt"), Vec::<String>::new(), "{errno}");
    }
}

/// What stood there hides the items behind it as much as before.
#[test]
fn a_repeat_of_what_may_lie_behind_something_that_was_set_aside_is_not_accepted() {
    let day = NOW.day_name();
    for is_link in [true, false] {
        let world = World::new();
        accept_keyed(&world, 1).unwrap();
        world.tick();
        let there = world.root.join(format!("confirmed/a/{day}"));
        let away = world.root.join("../away");
        fs::rename(&there, &away).unwrap();
        if is_link {
            symlink(&away, &there).unwrap();
        } else {
            fs::write(&there, "").unwrap();
        }
        world.post("a", 2);
        let (_, sent) = world.tick();
        assert_eq!(to_whom(&sent), ["a", "ops"], "somebody is told of it");
        let aside = world.root.join("corrupt").join(&day);
        assert!(fs::symlink_metadata(&aside).is_ok(), "it was in the way");
        let said = accept_keyed(&world, 3).unwrap_err().to_string();
        assert!(said.contains(&format!("corrupt/{day}")), "{said}");
        let request = r#""request":{"path":"/x","body":{"text":"{\"n\":1}"}}"#;
        let keyed = format!("{{{request},\"key\":\"k\"}}");
        world.plant("incoming/a/keyed.json", &keyed);
        let begun = format!("incoming/a/begun.json.{}.taking", id(1));
        world.plant(&begun, &format!("{{{request}}}"));
        world.plant("incoming/b/keyed.json", &keyed);
        let (report, sent) = world.tick();
        assert_eq!(to_whom(&sent), ["b"], "others are accepted");
        warned(&report, "incoming/a/keyed.");
        warned(&report, "incoming/a/begun.");
        let file = format!("{}.jsonl", id(1));
        fs::rename(away.join(&file), there.join(&file)).unwrap();
        fs::remove_file(aside).unwrap();
        assert_eq!(accept_keyed(&world, 3).unwrap(), [Answer::Known(id(1))]);
        let (_, sent) = world.tick();
        assert_eq!(sent, []);
        assert_eq!(world.names("incoming/a"), [""; 0]);
    }
}

/// Their acceptance may still be lost.
#[test]
fn a_destination_whose_fresh_items_cannot_be_synced_is_sent_nothing_and_the_others_are() {
    for errno in BOTH {
        let world = World::new();
        world.post("a", 1);
        world.post("b", 2);
        world.lose("pending/a", errno, false);
        world.only(&["sync_dir"]);
        let (report, sent) = world.tick();
        assert_eq!(to_whom(&sent), ["b"], "{errno}");
        warned(&report, "pending/a: cannot sync it");
        world.find_again();
        assert_eq!(to_whom(&world.tick().1), ["a"], "{errno}");
    }
}

/// A full table of open files is no matter of one directory's list, and still costs that one alone;
/// after a sync that failed for want of room nobody can tell what lasts.
#[test]
fn an_error_of_the_disk_costs_one_directory_a_list_and_the_tick_a_sync() {
    let world = World::new();
    world.post("a", 1);
    world.post("b", 2);
    world.lose("pending/a", Errno::NFILE, false);
    world.only(&["list"]);
    let (report, sent) = world.tick();
    assert_eq!(to_whom(&sent), ["b"]);
    warned(&report, "pending/a: cannot read it");
    world.lose("pending/a", Errno::NOSPC, false);
    world.only(&["sync_dir"]);
    let (report, sent) = world.try_tick(|| {});
    assert!(report.is_err());
    assert_eq!(sent, []);
    world.find_again();
    assert_eq!(to_whom(&world.tick().1), ["a"]);
}

#[test]
fn a_file_in_the_place_of_a_destinations_keys_costs_those_who_use_keys() {
    let world = World::new();
    world.tick();
    world.plant("keys/a", "");
    world.plant("incoming/a/keyed.json", r#"{"request":{},"key":"k"}"#);
    world.plant("incoming/a/plain.json", r#"{"request":{}}"#);
    world.plant("incoming/b/keyed.json", r#"{"request":{},"key":"k"}"#);
    let (report, sent) = world.tick();
    warned(&report, "keys/a");
    assert_eq!(to_whom(&sent), ["a", "b"]);
    fs::remove_file(world.root.join("keys/a")).unwrap();
    assert_eq!(to_whom(&world.tick().1), ["a"]);
    assert_eq!(world.tick().1, []);
}

/// Nothing is accepted twice, and nothing lost.
#[test]
fn a_drop_whose_destination_cannot_be_written_to_stays_and_stops_nobody() {
    for errno in [Errno::ACCESS, Errno::PERM, Errno::XDEV, Errno::IO] {
        let world = World::new();
        world.tick();
        fs::create_dir_all(world.root.join("pending/a")).unwrap();
        let drops = [
            r#"{"request":{}}"#,
            r#"{"request":{},"key":"k"}"#,
            r#"{"request":{},"key":"l"}"#,
        ];
        for (n, drop) in drops.iter().enumerate() {
            world.plant(&format!("incoming/a/{n}.json"), drop);
        }
        world.plant("incoming/b/plain.json", r#"{"request":{}}"#);
        world.post("b", 1);
        world.lose("pending/a", errno, true);
        for round in 0..3 {
            let (report, sent) = world.tick();
            warned(&report, "incoming/a/");
            let others = if round == 0 { vec!["b", "b"] } else { vec![] };
            assert_eq!(to_whom(&sent), others, "{errno:?}");
            assert_eq!(world.names("incoming/a").len(), 3, "{errno:?}");
            assert_eq!(world.names("tmp"), [""; 0], "{errno:?}");
        }
        world.find_again();
        assert_eq!(to_whom(&world.tick().1), ["a", "a", "a"], "{errno:?}");
        assert_eq!(world.names("incoming/a"), [""; 0], "{errno:?}");
        assert_eq!(world.tick().1, [], "{errno:?}");
    }
}

/// Nobody is told that it was set aside, nothing is kept of it, and a good one that takes its name
/// meanwhile is taken in.
#[test]
fn a_refused_drop_that_cannot_be_set_aside_stays_and_keeps_its_name_from_nobody() {
    let bad = "incoming/a/report.json";
    // The reason cannot be written, or the drop not be moved.
    for lost in ["corrupt", bad] {
        for errno in [Errno::ACCESS, Errno::PERM, Errno::XDEV, Errno::IO] {
            let world = World::new();
            world.tick();
            world.plant(bad, "no envelope");
            world.plant("incoming/b/plain.json", r#"{"request":{}}"#);
            world.lose(lost, errno, true);
            for round in 0..3 {
                let (report, sent) = world.tick();
                warned(&report, bad);
                assert_eq!(report.corrupt, 0, "{lost} {errno:?}");
                let others = if round == 0 { vec!["b"] } else { vec![] };
                assert_eq!(to_whom(&sent), others, "{lost} {errno:?}: nobody is told");
                assert_eq!(world.names("journal"), [""; 0], "{lost} {errno:?}");
                assert_eq!(world.names("incoming/a"), ["report.json"]);
                assert_eq!(world.names("corrupt"), [""; 0], "{lost} {errno:?}");
            }
            world.find_again();
            let again = world.root.join("incoming/a/.report");
            fs::write(&again, r#"{"request":{}}"#).unwrap();
            fs::rename(again, world.root.join(bad)).unwrap();
            let (report, sent) = world.tick();
            assert_eq!(to_whom(&sent), ["a"], "{lost} {errno:?}");
            assert_eq!(report.corrupt, 0, "{lost} {errno:?}");
            world.plant(bad, "no envelope");
            let (report, sent) = world.tick();
            assert_eq!((report.corrupt, to_whom(&sent)), (1, vec!["ops"]));
            assert_eq!(world.names("corrupt").len(), 2, "{lost} {errno:?}");
        }
    }
}

/// As many as there may be: they say nothing of the destination's items.
#[test]
fn refused_drops_that_cannot_be_set_aside_keep_no_item_back() {
    let world = World::new();
    world.tick();
    for n in 0..50 {
        world.plant(&format!("incoming/a/{n}.json"), "no envelope");
    }
    world.post("a", 1);
    world.lose("corrupt", Errno::ACCESS, true);
    let (report, sent) = world.tick();
    assert_eq!(to_whom(&sent), ["a"]);
    assert!(report.warnings.len() < 30, "{:?}", report.warnings);
    warned(&report, "incoming/a: 30 more files");
}

/// An owner that died with the record of a bad drop, or item, and a good one since under its name.
#[test]
fn what_takes_the_name_of_a_file_that_was_to_be_set_aside_is_not() {
    let item = format!("pending/a/{}.jsonl", id(1));
    for (relative, is_kept) in [
        ("incoming/a/x.json", false),
        (&*item, false),
        (&*item, true),
    ] {
        let world = World::new();
        world.tick();
        world.post("a", 1);
        let good = match relative {
            "incoming/a/x.json" => r#"{"request":{}}"#.to_owned(),
            item => fs::read_to_string(world.root.join(item)).unwrap(),
        };
        world.plant(relative, "garbage");
        if is_kept {
            world.lose("corrupt", Errno::ACCESS, true);
            let (report, _) = world.tick();
            warned(&report, "stays in the journal");
        } else {
            world.die_with_the_record_of(relative);
        }
        world.find_again();
        let again = world.root.join("again");
        fs::write(&again, good).unwrap();
        fs::rename(again, world.root.join(relative)).unwrap();
        let (report, sent) = world.tick();
        assert_eq!(report.corrupt, 0, "{relative} {is_kept}");
        assert_eq!(world.names("corrupt"), [""; 0], "{relative} {is_kept}");
        let sent = sent.iter().filter(|(to, _)| to == "a").count();
        let all = if relative == item { 1 } else { 2 };
        assert_eq!(sent, all, "{relative} {is_kept}");
        assert_eq!(world.names("journal"), [""; 0]);
    }
}

/// What cannot be set aside has been promised a name, by a session before.
#[test]
fn a_name_that_is_promised_to_a_file_is_given_to_no_other() {
    let world = World::new();
    world.tick();
    let item = |n| format!("pending/a/{}.jsonl", id(n));
    world.plant(&item(1), "garbage");
    let step = MoveRecord {
        from: item(1),
        to: format!("corrupt/{}.jsonl", id(2)),
        event: None,
        event_number: 0,
        turn: None,
        why: Some("it is the first".to_owned()),
        file: None,
        notices: Vec::new(),
    };
    let mut journal = Journal::begin(&RealDisk, &world.root, 1).unwrap();
    journal.append(&Record::Move(Box::new(step))).unwrap();
    journal.sync().unwrap();
    drop(journal);
    world.lose(&item(1), Errno::ACCESS, true);
    world.plant(&item(2), "other garbage");
    world.tick();
    world.find_again();
    world.tick();
    let read = |name: &str| fs::read_to_string(world.root.join("corrupt").join(name)).unwrap();
    let name = format!("{}.jsonl", id(2));
    assert_eq!(read(&name), "garbage");
    assert!(read(&format!("{name}.why.json")).contains("it is the first"));
    assert_eq!(read(&format!("{name}.2")), "other garbage");
}

/// Those that share a group with it are accepted, tick after tick.
#[test]
fn a_key_that_cannot_be_read_keeps_one_drop_out() {
    for errno in BOTH {
        let world = World::new();
        world.tick();
        for n in 0..20 {
            let drop = format!(r#"{{"request":{{}},"key":"k{n}"}}"#);
            world.plant(&format!("incoming/a/{n}.json"), &drop);
        }
        let key = format!("keys/a/{}", sha256_hex(b"k7"));
        world.plant(&key, "");
        world.lose(&key, errno, false);
        let (report, sent) = world.tick();
        warned(&report, "incoming/a/7.");
        assert_eq!(sent.len(), 19, "{errno:?}");
        assert_eq!(world.names("incoming/a").len(), 1, "{errno:?}");
        world.find_again();
        assert_eq!(world.tick().1.len(), 1, "{errno:?}");
    }
}

/// Only the item can tell whether the drop is its own.
#[test]
fn a_drop_whose_item_cannot_be_read_stays_until_that_can_be() {
    for errno in BOTH {
        let world = World::new();
        world.tick();
        world.post("a", 1);
        let other = format!("incoming/a/other.{}.taking", id(1));
        world.plant(&other, r#"{"request":{"path":"/other"}}"#);
        world.plant("incoming/a/plain.json", r#"{"request":{}}"#);
        world.lose(&format!("pending/a/{}.jsonl", id(1)), errno, false);
        for _ in 0..2 {
            let (report, _) = world.tick();
            warned(&report, &other);
            let waiting = world.names("incoming/a");
            assert_eq!(waiting, [format!("other.{}.taking", id(1))], "{errno:?}");
        }
        world.find_again();
        world.tick();
        assert_eq!(world.names("incoming/a"), [""; 0], "{errno:?}");
        let aside = world.names("corrupt");
        assert_eq!(aside, ["other.json", "other.json.why.json"], "{errno:?}");
    }
}

/// Its id was reserved twice, and only the item can tell for which request.
#[test]
fn a_key_whose_item_is_damaged_costs_one_drop() {
    let world = World::new();
    world.tick();
    let reserve = |path: &str, request: &str, destination: &str| {
        let of = format!(
            r#"{{"request_id":"{}","body_sha256":"","request_sha256":"{request}"{destination}}}"#,
            id(1)
        );
        world.plant(path, &of);
    };
    let named = format!("keys/_ids/{}", id(1));
    reserve(&format!("keys/a/{}", sha256_hex(b"k")), "one", "");
    reserve(&named, "other", r#","destination":"a""#);
    world.plant(&format!("pending/a/{}.jsonl", id(1)), "garbage");
    world.plant("incoming/a/keyed.json", r#"{"request":{},"key":"k"}"#);
    world.plant("incoming/a/other.json", r#"{"request":{},"key":"l"}"#);
    world.post("b", 2);
    let (report, sent) = world.tick();
    warned(&report, "incoming/a/keyed.");
    assert_eq!(to_whom(&sent), ["a", "b", "ops"]);
}

/// It says nothing of other destinations, and is a hold of its own until it can be read.
#[test]
fn a_hold_that_cannot_be_read_keeps_one_destination_back() {
    for errno in BOTH {
        let world = World::new();
        let hold = DestinationHold {
            at: NOW,
            by: "someone(1)".to_owned(),
            note: None,
        };
        let store = world.store();
        store.set_destination_hold(&dest("a"), Some(&hold)).unwrap();
        world.post("a", 1);
        world.post("b", 2);
        world.lose("destinations/a.hold.json", errno, false);
        let (report, sent) = world.tick();
        assert_eq!(to_whom(&sent), ["b"], "{errno}");
        warned(&report, "a.hold.json");
        world.find_again();
        assert_eq!(world.tick().1, [], "{errno}");
        store.set_destination_hold(&dest("a"), None).unwrap();
        assert_eq!(to_whom(&world.tick().1), ["a"], "{errno}");
    }
}

/// It may be suspended.
#[test]
fn a_memory_that_cannot_be_read_keeps_one_destination_back_and_is_not_replaced() {
    for errno in BOTH {
        let world = World::new();
        let memory = r#"{"suspended":{"reason":"auth_invalid","since":"2026-11-29T15:00:00.000Z","tries":0}}"#;
        world.plant("destinations/a.json", memory);
        world.post("a", 1);
        world.post("b", 2);
        world.post("gone", 3);
        world.lose("destinations/a.json", errno, false);
        let (report, sent) = world.tick();
        assert_eq!(to_whom(&sent), ["b", "ops"], "{errno}");
        warned(&report, "a.json");
        let now = fs::read_to_string(world.root.join("destinations/a.json"));
        assert_eq!(now.unwrap(), memory, "{errno}");
        // Of one that is not configured it says whether somebody was told.
        world.lose("destinations/gone.json", errno, false);
        let (report, sent) = world.tick();
        assert_eq!(sent, [], "{errno}: it is suspended");
        warned(&report, "gone.json");
    }
}

/// A later tick would take what is sent now for what went to the receiver that it says.
#[test]
fn a_memory_that_cannot_be_written_keeps_one_destination_back_when_its_way_changes() {
    let world = World::new();
    world.tick();
    let memory =
        r#"{"key":{"fingerprint":"none raw "},"receiver":{"fingerprint":"http://elsewhere"}}"#;
    world.plant("destinations/a.json", memory);
    world.post("a", 1);
    world.post("b", 2);
    world.lose("destinations/a.json", Errno::PERM, true);
    let (report, sent) = world.tick();
    assert_eq!(to_whom(&sent), ["b"]);
    warned(&report, "destination `a`");
    world.find_again();
    let (_, sent) = world.tick();
    assert_eq!(to_whom(&sent), ["a"]);
}

/// A bad sector is no mode that somebody has set: what else is lost, nobody can tell.
#[test]
fn a_memory_for_which_the_disk_fails_ends_the_tick_before_anything_is_sent() {
    let world = World::new();
    world.post("a", 1);
    world.lose("destinations/a.json", Errno::IO, true);
    let (report, sent) = world.try_tick(|| {});
    assert!(report.is_err());
    assert_eq!(sent, []);
    world.find_again();
    assert_eq!(to_whom(&world.tick().1), ["a"]);
}

/// Nothing is claimed of it that could be taken for sent.
#[test]
fn an_item_whose_file_cannot_be_moved_costs_one_item() {
    for errno in [Errno::PERM, Errno::ACCESS, Errno::XDEV, Errno::IO] {
        let world = World::new();
        for n in 1..=3 {
            world.post(if n == 3 { "b" } else { "a" }, n);
        }
        let file = format!("pending/a/{}.jsonl", id(1));
        world.lose(&file, errno, true);
        for round in 0..3 {
            let (report, sent) = world.tick();
            warned(&report, &file);
            let others = if round == 0 { vec!["a", "b"] } else { vec![] };
            assert_eq!(to_whom(&sent), others, "{errno:?}");
            assert_eq!(world.state(1), State::Pending);
        }
        assert_eq!([world.state(2), world.state(3)], [State::Confirmed; 2]);
        assert_eq!(world.names("journal"), [""; 0], "{errno:?}");
        world.find_again();
        assert_eq!(world.tick().1.len(), 1);
        assert_eq!(world.state(1), State::Confirmed);
    }
}

/// The answer is in the journal, and counts, until the file can be written to and moved.
#[test]
fn an_item_that_was_sent_and_cannot_be_settled_is_not_sent_again() {
    let claimed = format!("unknown/a/{}.1.jsonl", id(1));
    for place in [&*claimed, "confirmed/a", "confirmed"] {
        for errno in [Errno::PERM, Errno::ACCESS, Errno::XDEV, Errno::IO] {
            let world = World::new();
            world.post("a", 1);
            world.post("b", 2);
            fs::create_dir_all(world.root.join("confirmed/a")).unwrap();
            let (_, sent) = world.tick_with(|| world.lose(place, errno, true));
            assert_eq!(to_whom(&sent), ["a", "b"], "{place} {errno:?}");
            for _ in 0..2 {
                let (report, sent) = world.tick();
                warned(&report, "stays in the journal");
                assert_eq!(to_whom(&sent), [""; 0], "{place} {errno:?}");
                assert_eq!(world.state(1), State::Confirmed, "{place} {errno:?}");
                assert_eq!(world.names("journal").len(), 1);
            }
            // What comes meanwhile goes, also to the same destination.
            world.post("a", 3);
            world.post("b", 4);
            let (_, sent) = world.tick();
            assert_eq!(to_whom(&sent), ["a", "b"], "{place} {errno:?}");
            world.find_again();
            let (report, sent) = world.tick();
            assert!(report.warnings.is_empty(), "{:?}", report.warnings);
            assert_eq!(to_whom(&sent), [""; 0]);
            assert_eq!(world.names("journal"), [""; 0]);
            let states = [1, 2, 3, 4].map(|n| world.state(n));
            assert_eq!(states, [State::Confirmed; 4], "{place} {errno:?}");
            let day = world.names("confirmed/a").into_iter().max().unwrap();
            let settled = world
                .root
                .join(format!("confirmed/a/{day}/{}.jsonl", id(1)));
            let text = fs::read_to_string(settled).unwrap();
            assert_eq!(text.matches("\"event\":\"attempt\"").count(), 1, "{text}");
        }
    }
}

/// It is no matter of single files any more.
#[test]
fn a_destination_whose_items_cannot_be_settled_is_sent_a_few_and_no_more() {
    let world = World::new();
    for n in 1..=600 {
        world.post(if n > 500 { "b" } else { "a" }, n);
    }
    world.lose("confirmed/a", Errno::XDEV, true);
    let mut sent = 0;
    for _ in 0..4 {
        let (report, to) = world.tick();
        sent += to.iter().filter(|(to, _)| to == "a").count();
        warned(&report, "stays in the journal");
    }
    let (report, to) = world.tick();
    assert_eq!(to.len(), 0);
    warned(&report, "nothing is sent there");
    assert!(sent < 500, "{sent}");
    assert_eq!(world.state(600), State::Confirmed);
    world.find_again();
    let (_, to) = world.tick();
    assert_eq!(to.len(), 500 - sent);
    for n in 1..=600 {
        assert_eq!(world.state(n), State::Confirmed, "{n}");
    }
}

/// An owner that died between the record of a claim and the rename, and a file that cannot be moved
/// since: it may have been sent, for all that anybody knows, and waits as that.
#[test]
fn a_claim_that_cannot_be_replayed_stays_claimed() {
    let world = World::new();
    world.post("a", 1);
    world.post("b", 2);
    let file = format!("pending/a/{}.jsonl", id(1));
    let store = world.store();
    let mut session = store.lock(&owner(NOW)).unwrap();
    let claims = session.claim(&want(1), NOW, &mut |_| Decision::Claim);
    assert_eq!(claims.unwrap().len(), 1);
    drop(session);
    let at = |path: &str| world.root.join(path);
    fs::rename(at(&format!("unknown/a/{}.1.jsonl", id(1))), at(&file)).unwrap();
    world.lose(&file, Errno::PERM, true);
    for round in 0..2 {
        let (report, sent) = world.tick();
        warned(&report, &file);
        assert_eq!(to_whom(&sent), if round == 0 { vec!["b"] } else { vec![] });
        assert_eq!(world.state(1), State::Unknown);
    }
    world.find_again();
    let (report, sent) = world.tick();
    assert_eq!(report.recovered, 1);
    // The key makes a repeat harmless.
    assert_eq!(to_whom(&sent), ["a"]);
    assert_eq!(world.state(1), State::Confirmed);
}

/// An owner that died after it had found that nothing can be done: nothing is to be done.
#[test]
fn a_claim_that_was_given_up_leaves_nothing() {
    let world = World::new();
    world.post("a", 1);
    world.lose(&format!("pending/a/{}.jsonl", id(1)), Errno::PERM, true);
    let store = world.store();
    let mut session = store.lock(&owner(NOW)).unwrap();
    let claims = session.claim(&want(1), NOW, &mut |_| Decision::Claim);
    assert_eq!(claims.unwrap().len(), 0);
    session.sync().unwrap();
    drop(session);
    assert_eq!(world.names("journal").len(), 1);
    store.lock(&owner(NOW)).unwrap().close(NOW, None).unwrap();
    assert_eq!(world.names("journal"), [""; 0]);
    assert_eq!(world.state(1), State::Pending);
}

/// What is past its retention and cannot be removed costs no other its turn.
#[test]
fn a_settled_file_that_cannot_be_removed_stays_and_stops_no_tick() {
    let world = World::new();
    let old = NOW.minus(30 * 86_400_000);
    let day = old.day_name();
    for n in [1, 2] {
        let mut envelope = envelope(n);
        envelope.enqueued_at = old;
        let mut begun = accepted();
        begun.at = old;
        let (_, mut bytes) = Item::accept(envelope, begun).unwrap();
        bytes.extend(event_line(&common::attempt(1, old, State::Confirmed, None)).unwrap());
        let path = format!("confirmed/a/{day}/{}.jsonl", id(n));
        world.plant(&path, std::str::from_utf8(&bytes).unwrap());
    }
    world.post("b", 3);
    let file = format!("confirmed/a/{day}/{}.jsonl", id(1));
    world.lose(&file, Errno::PERM, true);
    let (report, sent) = world.tick();
    warned(&report, &file);
    assert_eq!(to_whom(&sent), ["b"]);
    assert_eq!(world.names(&format!("confirmed/a/{day}")).len(), 1);
    world.find_again();
    world.tick();
    assert_eq!(world.names(&format!("confirmed/a/{day}")), [""; 0]);
}

/// What cannot be moved is where the journal says, for everybody.
#[test]
fn counts_say_of_what_cannot_be_moved_what_the_journal_says() {
    let world = World::new();
    world.post("a", 1);
    world.tick_with(|| world.lose("confirmed/a", Errno::XDEV, true));
    let counts = world.store().counts().unwrap();
    let of = |state| counts.destinations["a"].get(&state).copied();
    assert_eq!(of(State::Confirmed), Some(1));
    assert_eq!(of(State::Unknown), None);
}

/// Also where the item then does not arrive.
#[test]
fn what_stood_in_the_way_of_an_item_that_cannot_be_moved_is_told_of() {
    let world = World::new();
    world.post("a", 1);
    let (report, sent) = world.tick_with(|| {
        world.plant("confirmed/a", "a file");
        let day = format!("confirmed/a/{}", NOW.day_name());
        world.lose(&day, Errno::XDEV, true);
    });
    assert_eq!(report.corrupt, 1, "{:?}", report.warnings);
    assert_eq!(to_whom(&sent), ["a", "ops"]);
    assert_eq!(world.names("corrupt").len(), 2);
    assert_eq!(world.state(1), State::Confirmed);
}

/// The decision is durable, and nobody is told that it is done.
#[test]
fn what_a_person_decided_and_cannot_be_done_yet_is_known_to_be_so() {
    let world = World::new();
    world.post("a", 1);
    let file = format!("pending/a/{}.jsonl", id(1));
    world.lose(&file, Errno::PERM, true);
    let store = world.store();
    let found = store.find(id(1)).unwrap().unwrap();
    let mut session = store.lock(&owner(NOW)).unwrap();
    let mut hold = |_: &Item| {
        let event = by_hand(EventKind::Held, NOW, State::Held, None);
        Decision::Settle(Box::new(event), Vec::new())
    };
    assert!(session.change(&found, &mut hold).unwrap());
    session.sync().unwrap();
    assert!(session.is_stuck(id(1)));
    assert!(session.met().foreign[0].starts_with(&format!("{file}: ")));
    session.close(NOW, None).unwrap();
    assert_eq!(world.state(1), State::Held);
    world.find_again();
    assert_eq!(world.tick().1, []);
    assert_eq!(world.names("held/a").len(), 1);
}
