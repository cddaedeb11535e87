//! The disk in memory does what the real one does, as far as processes see.

use std::fmt::Debug;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use tickpost::model::time::UnixMs;
use tickpost::store::disk::{Disk, Kind, RealDisk, Since};

use crate::crash_disk::{CrashDisk, NoWatch, Profile, Rng};

/// Directories within each other, files in them, and names that are taken for either.
const NAMES: [&str; 9] = ["a", "a/x", "a/y", "a/b", "a/b/x", "c", "c/x", "x", "x/y"];

fn shown<T: Debug>(result: io::Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("{:?}", error.kind()),
    }
}

/// One operation on a disk, and what came of it.
fn operate(disk: &dyn Disk, root: &Path, rng: &mut Rng) -> String {
    let path = |rng: &mut Rng| -> PathBuf { root.join(rng.pick(&NAMES)) };
    let (one, two) = (path(rng), path(rng));
    let length = rng.index(40);
    let bytes: Vec<u8> = (b'a'..=b'z').cycle().take(length).collect();
    let few = rng.below(30);
    let name = one.strip_prefix(root).unwrap().display().to_string();
    let came = match rng.below(22) {
        0 | 1 => shown(disk.make_dir(&one)),
        2 => shown(disk.remove_dir(&one)),
        3 | 4 => shown(disk.create(&one, &bytes, Some(UnixMs(1_000_000 + few)))),
        5 => shown(disk.write_new(&one, &bytes, None)),
        6 => shown(disk.append(&one, few, &bytes)),
        7 => shown(disk.append_line(&one, &bytes)),
        8 | 9 => shown(disk.rename(&one, &two)),
        10 => shown(disk.replace(&one, &two)),
        11 => shown(disk.unlink(&one)),
        12 => shown(disk.read(&one, few)),
        13 => shown(disk.read_part(&one, few, 7)),
        14 => {
            let mut names = Vec::new();
            let listed = disk.list(&one, &mut |name, kind| names.push((name.to_owned(), kind)));
            names.sort_by(|a, b| a.0.cmp(&b.0));
            shown(listed.map(|()| names))
        }
        15 => {
            let meta = disk.stat(&one);
            shown(meta.map(|meta| match meta.kind {
                Kind::File => (meta.kind, meta.bytes, meta.nlink, meta.uid),
                Kind::Directory | Kind::Other => (meta.kind, 0, 0, meta.uid),
            }))
        }
        16 => {
            let set = disk.set_mtime(&one, UnixMs(2_000_000 + few));
            shown(set.and_then(|()| disk.stat(&one)).map(|meta| meta.mtime))
        }
        17 => {
            let lock = disk.lock(&one);
            let again = disk.lock(&one).map(|lock| lock.is_some());
            let owned = lock.as_ref().map(Option::is_some).map_err(io::Error::kind);
            let inode = |disk: &dyn Disk| disk.stat(&one).map(|meta| meta.inode).ok();
            let same = match &lock {
                Ok(Some(lock)) => lock.inode().ok() == inode(disk),
                Ok(None) | Err(_) => false,
            };
            format!("{owned:?} {same} {}", shown(again))
        }
        18 => {
            let grown = disk.open_log(&one).and_then(|mut log| {
                log.reserve(100)?;
                log.append(&bytes)?;
                log.sync()
            });
            shown(grown)
        }
        19 => format!(
            "{} {} {}",
            shown(disk.sync_dir(&one)),
            shown(disk.sync_file(&one)),
            shown(disk.sync_all(root, &Since::default()))
        ),
        20 => {
            let mut seen = 0;
            let mut from = bytes.as_slice();
            let made = disk.create_from(&one, &mut from, few, &mut |part| seen += part.len());
            format!("{} {seen}", shown(made.map(Result::ok)))
        }
        _ => {
            let mut text = Vec::new();
            let read = disk
                .open(&one)
                .and_then(|mut file| file.read_to_end(&mut text));
            format!("{} {text:?}", shown(read))
        }
    };
    format!(
        "{name} {} {came}",
        two.strip_prefix(root).unwrap().display()
    )
}

#[test]
fn the_disk_in_memory_is_like_the_real_one() {
    let begun = std::time::Instant::now();
    for seed in 0..400 {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let dir = dir.unwrap();
        let crash = CrashDisk::new(Profile::Ext4, seed, Rc::new(NoWatch));
        let root = Path::new("/top");
        crash.make_dir(root).unwrap();
        let mut rngs = (Rng::new(seed), Rng::new(seed));
        let mut story = Vec::new();
        for step in 0..60 {
            let real = operate(&RealDisk, dir.path(), &mut rngs.0);
            let ours = operate(&crash, root, &mut rngs.1);
            story.push(real.clone());
            assert_eq!(ours, real, "seed {seed}, step {step}, after {story:#?}");
        }
        if begun.elapsed().as_secs() > 20 {
            break;
        }
    }
}
