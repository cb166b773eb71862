//! The limit holds, and the useful objects stay.

use crate::scene::{Random, SIZE, Scene, by_each_engine};

#[test]
fn the_limit_holds_and_objects_that_were_hit_stay() {
    by_each_engine(|| {
        let folder = tempfile::tempdir().unwrap();
        let scene = Scene::open(folder.path()).recovered();
        // 20 objects that are asked for again and again, in a scan of 2,500 that are not: 25 times the
        // limit in all.
        for number in 0..2500_u64 {
            while !scene.put(1000 + number, 1, 30_000) {
                scene.flush();
            }
            if number < 20 {
                assert!(scene.put(number, 1, 30_000));
            }
            if number % 50 == 0 {
                scene.flush();
                for hot in 0..number.min(20) {
                    scene.get(hot, None);
                }
            }
        }
        scene.flush();
        let stat = scene.stat();
        assert!(stat.bytes <= SIZE, "{stat:?}");
        assert!(stat.evicted > 1500 && stat.moved > 0, "{stat:?}");
        let kept = (0..20).filter(|&number| scene.get(number, None).is_some()).count();
        assert!(kept >= 18, "{kept} of 20 objects that were hit stay");
        let old = (1000..2000).filter(|&number| scene.get(number, None).is_some()).count();
        assert!(old < 50, "{old} objects of a scan stay");
        assert_eq!((stat.errors, stat.corrupt, stat.dropped), (0, 0, stat.dropped));
        // A restart with a lower limit evicts, too.
        scene.close();
        let scene = Scene::open(folder.path()).recovered();
        assert!(scene.stat().bytes <= SIZE);
        let kept = (0..20).filter(|&number| scene.get(number, None).is_some()).count();
        assert!(kept >= 18, "{kept} of 20 objects that were hit stay after a restart");
        scene.close();
    });
}

#[test]
fn files_take_part_in_eviction() {
    by_each_engine(|| {
        let folder = tempfile::tempdir().unwrap();
        let scene = Scene::open(folder.path()).recovered();
        let mut random = Random(1);
        for number in 0..100 {
            assert!(
                scene.fill(number, 1, 500_000 + random.below(1_000_000) as usize),
                "{number}: {:?}",
                scene.stat()
            );
            scene.get(0, None);
        }
        let stat = scene.stat();
        assert!(stat.bytes <= SIZE && stat.files < 34 && stat.evicted > 60, "{stat:?}");
        assert!(scene.get(0, None).is_some(), "the file that was hit stays");
        let on_disk: u64 = walk(folder.path());
        assert!(on_disk <= SIZE + (1 << 20), "{on_disk} bytes on the disk");
        // A body that is longer than half of the store is refused, and leaves nothing.
        assert!(!scene.fill(999, 1, 12 << 20));
        // If its length is known, nothing is written, and nothing has to make room for it.
        assert!(scene.disk.fill(scene.key(999).0, Some(12 << 20)).is_none());
        assert_eq!(scene.stat().bytes, walk(folder.path()) - small_files(folder.path()));
        scene.close();
    });
}

fn small_files(path: &std::path::Path) -> u64 {
    ["store", "purges", "lock"].iter().map(|name| std::fs::metadata(path.join(name)).unwrap().len()).sum()
}

fn walk(path: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| match entry.metadata().unwrap() {
            metadata if metadata.is_dir() => walk(&entry.path()),
            metadata => metadata.len(),
        })
        .sum()
}
