//! A process that is killed at any moment: the next one finds the written objects, nothing wrong,
//! and nothing that was purged.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use foregate_cache::{Purge, Strength, Tag};
use foregate_io::wait;

use crate::scene::{Random, Scene, by_each_engine};

const FOLDER: &str = "FOREGATE_DISK_TEST";
const NUMBERS: u64 = 400;

/// The number of kills, more with `FOREGATE_KILLS`.
fn kills() -> u64 {
    std::env::var("FOREGATE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(25)
}

/// Not a test by itself: the process that is killed.
#[test]
fn child() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let scene = Scene::open(Path::new(&folder));
    let mut random = Random(u64::from(std::process::id()));
    let mut purged =
        fs::OpenOptions::new().append(true).create(true).open(Path::new(&folder).join("told")).unwrap();
    println!("ready");
    std::io::stdout().flush().unwrap();
    loop {
        let (number, version) = (random.below(NUMBERS), random.below(1 << 30));
        match random.below(100) {
            0..4 => drop(scene.fill(number, version, 66_000 + random.below(2_000_000) as usize)),
            4..7 => {
                let tag = random.below(10);
                let purge = Purge::Tag(Tag::new(format!("t{tag}").as_bytes()));
                let floor = wait(scene.disk.purge(&purge, Strength::Hard)).unwrap();
                // From here on the purge must hold. One short write to a file is whole or not
                // there.
                purged.write_all(format!("{tag} {}\n", floor.get()).as_bytes()).unwrap();
            }
            7..60 => drop(scene.put(number, version, 24 + random.below(40_000) as usize)),
            _ => drop(scene.get(number, None)),
        }
    }
}

#[test]
fn a_kill_at_any_moment_leaves_a_store_that_is_right() {
    by_each_engine(|| {
        let folder = tempfile::tempdir().unwrap();
        let told = folder.path().join("told");
        let mut random = Random(7);
        let (mut found, mut restored) = (0_u64, 0_u64);
        for kill in 0..kills() {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["kills::child", "--exact", "--nocapture"])
                .env(FOLDER, folder.path())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            while !lines.next().expect("a child that begins").unwrap().contains("ready") {}
            std::thread::sleep(Duration::from_micros(random.below(60_000)));
            child.kill().unwrap();
            child.wait().unwrap();
            let scene = Scene::open(folder.path()).recovered();
            let stat = scene.stat();
            restored += stat.entries as u64;
            let floors: Vec<_> = fs::read_to_string(&told)
                .unwrap_or_default()
                .lines()
                .map(|line| {
                    line.split_once(' ')
                        .map(|(tag, floor)| (tag.parse().unwrap(), floor.parse().unwrap()))
                        .unwrap()
                })
                .collect::<Vec<(u64, u64)>>();
            for number in 0..NUMBERS {
                let (key, text) = scene.key(number);
                let sequence = match wait(scene.disk.get(key, &text, &foregate_wire::HeaderList::new())) {
                    foregate_disk::DiskLookup::Object { object, .. }
                    | foregate_disk::DiskLookup::File { object, .. } => object.sequence().get(),
                    _ => continue,
                };
                found += 1;
                // Looks at each byte.
                assert!(scene.get(number, None).is_some());
                let floor =
                    floors.iter().filter(|(tag, _)| *tag == number % 10).map(|(_, floor)| *floor).max();
                assert!(
                    floor.is_none_or(|floor| sequence >= floor),
                    "kill {kill}: {number} was purged by {floor:?}"
                );
            }
            assert_eq!((stat.errors, stat.off), (0, false), "kill {kill}: {stat:?}");
            scene.close();
        }
        println!("{} kills, {restored} entries restored, {found} objects found", kills());
        assert!(found > kills() * 20, "{found} objects found after {} kills", kills());
    });
}
