//! Purges count at once, and in the next process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use foregate_cache::{Floors, Purge, Sequence, Strength, Tag, Uri};
use foregate_disk::{DiskLookup, OutsideDirectory};
use foregate_io::wait;
use foregate_wire::{HeaderList, Scheme};

use crate::scene::{SIZE, Scene, by_each_engine, directory};

#[test]
fn purges_by_tag_key_prefix_and_site_survive_restarts() {
    by_each_engine(|| {
        let folder = tempfile::tempdir().unwrap();
        let scene = Scene::open(folder.path()).recovered();
        for number in 0..40 {
            assert!(scene.put(number, 1, 2000));
        }
        assert!(scene.fill(43, 1, 100_000));
        scene.flush();
        let uri = Uri { scheme: Scheme::Http, host: "example.com", port: None, path: b"/2", query: None };
        wait(async {
            let tag = Purge::Tag(Tag::new(b"t3"));
            scene.disk.purge(&tag, Strength::Hard).await.unwrap();
            scene.disk.purge(&Purge::Key(scene.key(4).0), Strength::Hard).await.unwrap();
            scene.disk.purge(&Purge::Prefix(&uri), Strength::Hard).await.unwrap();
            scene.disk.purge(&Purge::Key(scene.key(5).0), Strength::Soft).await.unwrap();
        });
        let expected =
            |number: u64| !(number % 10 == 3 || number == 4 || number.to_string().starts_with('2'));
        let check = |scene: &Scene| {
            for number in (0..40).chain([43]) {
                assert_eq!(scene.get(number, None).is_some(), expected(number), "{number}");
            }
            let (key, text) = scene.key(5);
            let found = wait(scene.disk.get(key, &text, &HeaderList::new()));
            assert!(matches!(found, DiskLookup::Object { outdated: true, .. }), "a soft purge makes stale");
        };
        check(&scene);
        // Stored after the purge.
        assert!(scene.put(13, 2, 100));
        scene.flush();
        assert_eq!(scene.get(13, None), Some((2, 100)));
        scene.close();
        let scene = Scene::open(folder.path()).recovered();
        assert_eq!(scene.get(13, None), Some((2, 100)));
        assert_eq!(scene.get(23, None), None);
        assert_eq!(scene.floors.begin(), Sequence::new(4), "numbers go on where they were");
        let site = Uri { path: b"", ..uri };
        wait(scene.disk.purge(&Purge::Site(&site), Strength::Hard)).unwrap();
        scene.close();
        let scene = Scene::open(folder.path()).recovered();
        assert!((0..50).all(|number| scene.get(number, None).is_none()));
        scene.close();
    });
}

#[test]
fn a_fetch_that_began_before_a_purge_is_not_stored() {
    by_each_engine(|| {
        let folder = tempfile::tempdir().unwrap();
        let scene = Scene::open(folder.path()).recovered();
        let object = scene.object(3, 1, 100, None);
        let head = scene.head(13, 1, None);
        wait(scene.disk.purge(&Purge::Tag(Tag::new(b"t3")), Strength::Hard)).unwrap();
        scene.disk.put(&object);
        let mut fill = scene.disk.fill(scene.key(13).0, None).unwrap();
        wait(async {
            fill.push(&[0; 100_000]).await.unwrap();
            assert!(fill.finish(&head).await.is_err());
        });
        scene.flush();
        assert_eq!((scene.get(3, None), scene.get(13, None)), (None, None));
        assert_eq!(scene.stat().entries, 0);
        scene.close();
    });
}

/// Without the journal nobody knows the purges.
#[test]
fn a_lost_or_damaged_journal_purges_everything() {
    by_each_engine(|| {
        for damage in [0, 1, 2] {
            let folder = tempfile::tempdir().unwrap();
            let scene = Scene::open(folder.path()).recovered();
            scene.put(1, 1, 100);
            scene.put(3, 1, 100);
            scene.flush();
            wait(scene.disk.purge(&Purge::Tag(Tag::new(b"t3")), Strength::Hard)).unwrap();
            scene.close();
            let journal = folder.path().join("purges");
            let mut bytes = std::fs::read(&journal).unwrap();
            match damage {
                0 => std::fs::remove_file(&journal).unwrap(),
                1 => {
                    *bytes.last_mut().unwrap() ^= 1;
                    std::fs::write(&journal, &bytes).unwrap();
                }
                _ => {
                    // The beginning of a purge that nobody was told of.
                    bytes.extend_from_slice(&[9, 0, 0, 0, 0xf6]);
                    std::fs::write(&journal, &bytes).unwrap();
                }
            }
            let scene = Scene::open(folder.path()).recovered();
            assert_eq!(scene.get(3, None), None);
            assert_eq!(scene.get(1, None).is_some(), damage == 2, "{damage}");
            scene.close();
        }
    });
}

/// During an upgrade two processes serve, and one of them holds the directory.
#[test]
fn the_holder_takes_purges_from_the_inbox_and_others_learn_its_own() {
    by_each_engine(|| {
        let folder = tempfile::tempdir().unwrap();
        let scene = Scene::open(folder.path()).recovered();
        for number in 0..20 {
            assert!(scene.put(number, 1, 100));
        }
        scene.flush();
        wait(scene.disk.purge(&Purge::Tag(Tag::new(b"t3")), Strength::Hard)).unwrap();
        let settings = directory(folder.path(), SIZE);
        let outside = Arc::new(OutsideDirectory::new(&settings, Sequence::new(0)).unwrap());
        let known = outside.identity().unwrap().latest;
        let floors = Floors::default();
        floors.advance(known);
        outside.learn(&floors).unwrap();
        assert_eq!(floors.begin(), known, "a purge before the start is no news");
        wait(scene.disk.purge(&Purge::Tag(Tag::new(b"t4")), Strength::Hard)).unwrap();
        outside.learn(&floors).unwrap();
        outside.learn(&floors).unwrap();
        assert_eq!(floors.begin(), Sequence::new(known.get() + 1), "a later one is, once");
        let leave = |number: u64, key| {
            let purge = Purge::Key(key);
            wait(outside.leave(&purge, Strength::Hard, Sequence::new(number))).unwrap();
        };
        let inbox = folder.path().join("inbox");
        leave(7, scene.key(5).0);
        let until = Instant::now() + Duration::from_secs(10);
        while scene.get(5, None).is_some() || std::fs::metadata(&inbox).unwrap().len() > 0 {
            assert!(Instant::now() < until, "the holder does not take the purge");
            std::thread::sleep(Duration::from_millis(5));
        }
        let key = scene.key(6).0;
        scene.close();
        // Nobody holds it: the next process takes the purge.
        leave(8, key);
        let scene = Scene::open(folder.path()).recovered();
        let there =
            |scene: &Scene| (0..20).filter(|&number| scene.get(number, None).is_some()).collect::<Vec<_>>();
        assert_eq!(there(&scene), [0, 1, 2, 7, 8, 9, 10, 11, 12, 15, 16, 17, 18, 19]);
        let key = scene.key(7).0;
        scene.close();
        // A purge that cannot be read may be any.
        leave(9, key);
        let mut bytes = std::fs::read(&inbox).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&inbox, bytes).unwrap();
        let scene = Scene::open(folder.path()).recovered();
        assert_eq!(there(&scene), [0; 0]);
        scene.close();
    });
}
