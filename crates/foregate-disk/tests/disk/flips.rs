//! Any bit of any file may be another one: no wrong byte comes out, and nothing that was purged.

use std::fs;
use std::path::{Path, PathBuf};

use foregate_cache::{Purge, Strength, Tag};
use foregate_io::wait;

use crate::scene::{Random, Scene, by_each_engine};

/// The number of flips, more with `FOREGATE_FLIPS`.
fn flips() -> u64 {
    std::env::var("FOREGATE_FLIPS").ok().and_then(|text| text.parse().ok()).unwrap_or(300)
}

fn files(path: &Path, below: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            files(&entry, below);
        } else {
            below.push(entry);
        }
    }
}

#[test]
fn no_flipped_bit_comes_out() {
    by_each_engine(|| {
        let folder = tempfile::tempdir().unwrap();
        let scene = Scene::open(folder.path()).recovered();
        for number in 0..60 {
            assert!(scene.put(number, 1, 24 + number as usize * 150));
            assert!(scene.disk.put(&scene.object(
                200 + number % 3,
                number,
                500,
                Some(["en", "de", "fr"][number as usize % 3])
            )));
        }
        assert!(scene.fill(100, 1, 70_000) && scene.fill(101, 1, 66_000));
        scene.flush();
        wait(scene.disk.purge(&Purge::Tag(Tag::new(b"t3")), Strength::Hard)).unwrap();
        scene.close();
        // Segments are sealed when they are full; one of these is.
        let mut names = Vec::new();
        files(folder.path(), &mut names);
        let contents: Vec<_> = names.iter().map(|name| fs::read(name).unwrap()).collect();
        let mut random = Random(42);
        let (mut found, mut lost) = (0, 0);
        for flip in 0..flips() {
            let copy = tempfile::tempdir().unwrap();
            // Each file is as likely as the others, so that short ones are hit often.
            let at = random.below(names.len() as u64) as usize;
            for (number, (name, content)) in names.iter().zip(&contents).enumerate() {
                let name = copy.path().join(name.strip_prefix(folder.path()).unwrap());
                fs::create_dir_all(name.parent().unwrap()).unwrap();
                let mut content = content.clone();
                if number == at && !content.is_empty() {
                    let length = content.len() as u64;
                    // Often near the ends, where headers and tails are.
                    let byte = match random.below(3) {
                        0 => random.below(length.min(300)),
                        1 => length - 1 - random.below(length.min(300)),
                        _ => random.below(length),
                    };
                    content[byte as usize] ^= 1 << random.below(8);
                }
                fs::write(name, content).unwrap();
            }
            let scene = Scene::open(copy.path()).recovered();
            for number in (0..60).chain([100, 101]) {
                let got = scene.get(number, None);
                assert!(
                    got.is_none() || number % 10 != 3,
                    "flip {flip} in {:?}: {number} was purged",
                    names[at]
                );
                *if got.is_some() { &mut found } else { &mut lost } += 1;
            }
            for number in 200..203 {
                for language in ["en", "de", "fr", "it"] {
                    scene.get(number, Some(language));
                }
            }
        }
        println!("{found} found, {lost} lost");
        assert!(found > lost, "{found} found, {lost} lost");
    });
}
