//! Objects come back as they were, in this process and in the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foregate_disk::Reason;

use crate::scene::{SIZE, Scene, by_each_engine, directory};

#[test]
fn objects_of_all_sizes_come_back_also_after_a_restart() {
    by_each_engine(|| {
        let folder = tempfile::tempdir().unwrap();
        let scene = Scene::open(folder.path()).recovered();
        // Around the lengths of blocks, and of the largest objects in segments here (64 KiB).
        let lengths = [0, 1, 23, 24, 4096, 32_767, 32_768, 32_769, 50_000];
        for (number, &length) in (0_u64..).zip(&lengths) {
            assert!(scene.put(number, 0, length), "{length}");
        }
        assert!(!scene.put(99, 1, 70_000), "too long for a segment of this size");
        for (number, length) in [(100, 0), (101, 65_536), (102, 70_000), (103, 1 << 20), (104, (2 << 20) + 1)]
        {
            assert!(scene.fill(number, 0, length), "{length}");
        }
        scene.flush();
        let check = |scene: &Scene| {
            for (number, &length) in (0_u64..).zip(&lengths) {
                assert_eq!(scene.get(number, None), Some((0, length)));
            }
            for (number, length) in
                [(100, 0), (101, 65_536), (102, 70_000), (103, 1 << 20), (104, (2 << 20) + 1)]
            {
                assert_eq!(scene.get(number, None), Some((0, length)));
            }
            assert_eq!(scene.get(99, None), None);
        };
        check(&scene);
        let stat = scene.stat();
        assert_eq!(
            (stat.entries, stat.files, stat.errors, stat.corrupt, stat.dropped),
            (14, 5, 0, 0, 0),
            "{stat:?}"
        );
        scene.close();
        for _ in 0..3 {
            let scene = Scene::open(folder.path()).recovered();
            check(&scene);
            assert_eq!(scene.stat().entries, 14);
            scene.close();
        }
    });
}

#[test]
fn the_latest_version_wins_also_after_a_restart() {
    by_each_engine(|| {
        let folder = tempfile::tempdir().unwrap();
        let scene = Scene::open(folder.path()).recovered();
        for version in 1..=20 {
            for number in 0..50 {
                assert!(scene.put(number, version, 5000));
            }
            scene.flush();
        }
        // From a segment to a file and back.
        assert!(scene.fill(7, 30, 100_000));
        assert!(scene.fill(8, 30, 100_000));
        assert!(scene.put(8, 31, 300));
        assert!(scene.fill(9, 30, 100_000) && scene.fill(9, 31, 80_000));
        scene.flush();
        let check = |scene: &Scene| {
            assert_eq!(scene.get(3, None), Some((20, 5000)));
            assert_eq!(scene.get(7, None), Some((30, 100_000)));
            assert_eq!(scene.get(8, None), Some((31, 300)));
            assert_eq!(scene.get(9, None), Some((31, 80_000)));
            assert_eq!(scene.stat().files, 2);
        };
        check(&scene);
        scene.close();
        let scene = Scene::open(folder.path()).recovered();
        check(&scene);
        scene.close();
    });
}

#[test]
fn variants_are_told_apart() {
    by_each_engine(|| {
        let folder = tempfile::tempdir().unwrap();
        let scene = Scene::open(folder.path()).recovered();
        for (version, language) in [(1, "en"), (2, "de"), (3, "fr")] {
            assert!(scene.disk.put(&scene.object(5, version, 1000, Some(language))));
        }
        scene.flush();
        let check = |scene: &Scene| {
            assert_eq!(scene.get(5, Some("en")), Some((1, 1000)));
            assert_eq!(scene.get(5, Some("de")), Some((2, 1000)));
            assert_eq!(scene.get(5, Some("fr")), Some((3, 1000)));
            assert_eq!(scene.get(5, Some("it")), None);
        };
        check(&scene);
        scene.close();
        let scene = Scene::open(folder.path()).recovered();
        check(&scene);
        // Without the list nobody finds the variants, nor by a later list.
        assert!(scene.disk.remove(scene.key(5).0));
        assert!(!scene.disk.remove(scene.key(5).0));
        assert_eq!(scene.get(5, Some("en")), None);
        assert!(scene.disk.put(&scene.object(5, 4, 1000, Some("it"))));
        scene.flush();
        assert_eq!(scene.get(5, Some("en")), None);
        assert!(scene.get(5, Some("it")).is_some());
        scene.close();
    });
}

#[test]
fn two_processes_do_not_share_a_folder() {
    by_each_engine(|| {
        let folder = tempfile::tempdir().unwrap();
        let scene = Scene::open(folder.path());
        let second = Scene::with(vec![directory(folder.path(), SIZE)]);
        let error = second.err().expect("a second user of the folder");
        assert!(matches!(error.reason, Reason::Locked), "{error}");
        assert!(error.to_string().contains("another process uses the cache folder"), "{error}");
        scene.close();
        Scene::open(folder.path()).close();
    });
}

#[test]
fn folders_that_cannot_be_used_are_refused() {
    by_each_engine(|| {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let error = Scene::with(vec![directory(&missing, SIZE)]).err().unwrap();
        assert!(error.to_string().contains("does not exist"), "{error}");
        std::fs::write(folder.path().join("file"), "").unwrap();
        let error = Scene::with(vec![directory(folder.path().join("file"), SIZE)]).err().unwrap();
        assert!(error.to_string().contains("cannot be opened"), "{error}");
        let error = Scene::with(vec![directory(folder.path(), 1 << 20)]).err().unwrap();
        assert!(matches!(error.reason, Reason::Small));
    });
}

#[test]
fn contents_of_another_version_are_put_aside() {
    by_each_engine(|| {
        let folder = tempfile::tempdir().unwrap();
        let scene = Scene::open(folder.path()).recovered();
        scene.put(1, 1, 1000);
        scene.close();
        let store = folder.path().join("store");
        let mut bytes = std::fs::read(&store).unwrap();
        bytes[8] = 3;
        // A newer version may have a longer file.
        bytes.push(0);
        std::fs::write(&store, bytes).unwrap();
        let scene = Scene::open(folder.path()).recovered();
        assert_eq!(scene.get(1, None), None);
        scene.put(1, 2, 1000);
        scene.close();
        let aside = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.file_name().unwrap().to_str().unwrap().starts_with("version-3-"))
            .expect("a folder for the other version");
        assert_eq!(std::fs::read_dir(aside.join("seg")).unwrap().count(), 1);
        assert!(aside.join("store").exists() && aside.join("purges").exists());
        let scene = Scene::open(folder.path()).recovered();
        assert_eq!(scene.get(1, None), Some((2, 1000)));
        scene.close();
    });
}

#[test]
fn several_folders_share_the_objects_and_lose_only_their_own() {
    by_each_engine(|| {
        let folders: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        let settings = || folders.iter().map(|folder| directory(folder.path(), SIZE)).collect::<Vec<_>>();
        let scene = Scene::with(settings()).unwrap().recovered();
        for number in 0..300 {
            assert!(scene.put(number, 1, 1000));
        }
        scene.flush();
        let entries: Vec<_> = scene.disk.stat().iter().map(|(_, stat)| stat.entries).collect();
        assert!(entries.iter().all(|&entries| (60..150).contains(&entries)), "{entries:?}");
        scene.close();
        // In another order, and one of them is new.
        std::fs::remove_dir_all(folders[1].path()).unwrap();
        std::fs::create_dir(folders[1].path()).unwrap();
        let mut reordered = settings();
        reordered.swap(0, 2);
        let scene = Scene::with(reordered).unwrap().recovered();
        let found = (0..300).filter(|&number| scene.get(number, None).is_some()).count();
        let kept = entries[0] + entries[2];
        // The new folder takes some addresses of the others.
        assert!(found > kept / 2 && found <= kept, "{found} of {kept}");
        scene.close();
    });
}

#[test]
fn lookups_are_answered_while_others_write() {
    by_each_engine(|| {
        let folder = tempfile::tempdir().unwrap();
        let scene = Scene::open(folder.path()).recovered();
        let found = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (scene, found) = (&scene, &found);
                scope.spawn(move || {
                    let mut random = crate::scene::Random(thread);
                    for version in 0..400 {
                        let number = random.below(300);
                        match random.below(20) {
                            0 => drop(scene.fill(number, version, 70_000 + random.below(100_000) as usize)),
                            1..10 => drop(scene.put(number, version, 30 + random.below(50_000) as usize)),
                            _ => drop(found.fetch_add(
                                usize::from(scene.get(number, None).is_some()),
                                Ordering::Relaxed,
                            )),
                        }
                    }
                });
            }
        });
        assert!(found.load(Ordering::Relaxed) > 100);
        scene.flush();
        let stat = scene.stat();
        assert!(stat.bytes <= SIZE && stat.written > SIZE, "{stat:?}");
        assert_eq!((stat.errors, stat.corrupt), (0, 0), "{stat:?}");
        let _ = Arc::clone(&scene.floors);
        scene.close();
    });
}

/// Names and lengths of all files in a folder and below.
fn files(folder: &std::path::Path) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push((entry.file_name().to_string_lossy().into_owned(), entry.metadata().unwrap().len()));
        }
    }
    found
}

#[test]
fn a_damaged_store_file_leaves_no_old_files_behind() {
    by_each_engine(|| {
        let damage: [fn(&std::path::Path); 3] = [
            |store| std::fs::write(store, "").unwrap(),
            |store| std::fs::remove_file(store).unwrap(),
            |store| {
                let mut bytes = std::fs::read(store).unwrap();
                bytes[8] ^= 1;
                std::fs::write(store, bytes).unwrap();
            },
        ];
        for damage in damage {
            let folder = tempfile::tempdir().unwrap();
            // Several starts, so that the old numbers are beyond those of a first process.
            for version in 1..=3 {
                let scene = Scene::open(folder.path()).recovered();
                for number in 0..20 {
                    scene.put(number, version, 10_000);
                }
                assert!(scene.fill(100 + version, version, 1_500_000));
                scene.close();
            }
            damage(&folder.path().join("store"));
            let scene = Scene::open(folder.path()).recovered();
            assert_eq!((scene.get(1, None), scene.get(101, None)), (None, None));
            let stat = scene.stat();
            assert!(stat.foreign >= 4 && stat.bytes < 1000 && stat.errors == 0, "{stat:?}");
            let rest: u64 = files(folder.path()).iter().map(|(_, length)| length).sum();
            assert!(rest < 10_000, "{:?}", files(folder.path()));
            for number in 0..20 {
                assert!(scene.put(number, 9, 10_000));
            }
            assert!(scene.fill(101, 9, 1_500_000));
            scene.flush();
            assert_eq!((scene.get(1, None), scene.get(101, None)), (Some((9, 10_000)), Some((9, 1_500_000))));
            assert_eq!(scene.stat().errors, 0, "{:?}", scene.stat());
            scene.close();
            let scene = Scene::open(folder.path()).recovered();
            assert_eq!(scene.get(1, None), Some((9, 10_000)));
            scene.close();
        }
    });
}
