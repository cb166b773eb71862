//! Calls that fail, are short or hang: nothing wrong comes out, and the tier works again
//! afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use foregate_cache::{Purge, Strength, Tag};
use foregate_disk::{DirectorySettings, DiskLookup};
use foregate_io::{Call, Fault, Faults, Limits, wait};
use foregate_wire::HeaderList;

use crate::scene::{SIZE, Scene, by_each_engine, directory};

/// A fault at the n-th call of a kind, or at all from there on.
struct At {
    call: Call,
    number: usize,
    lasts: bool,
    fault: Fault,
    seen: AtomicUsize,
}

impl Faults for At {
    fn fault(&self, call: Call) -> Option<Fault> {
        if call != self.call {
            return None;
        }
        let seen = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        (seen == self.number || self.lasts && seen > self.number).then_some(self.fault)
    }
}

/// Reads take 400 ms while it is set.
struct Hangs(AtomicBool);

impl Faults for Hangs {
    fn fault(&self, call: Call) -> Option<Fault> {
        let hangs = call == Call::Read && self.0.load(Ordering::Relaxed);
        hangs.then_some(Fault::Slow(Duration::from_millis(400)))
    }
}

const CALLS: [Call; 8] =
    [Call::Open, Call::Create, Call::Read, Call::Write, Call::Sync, Call::Rename, Call::Unlink, Call::List];

/// Everything that a store does, with a fault in it. `false` if the store did not even open.
fn scenario(path: &std::path::Path, faults: Option<Arc<dyn Faults>>) -> bool {
    let settings = DirectorySettings { faults, ..directory(path, SIZE) };
    let Ok(scene) = Scene::with(vec![settings]) else { return false };
    let scene = scene.recovered();
    for number in 0..40 {
        scene.put(number, 1, 10_000);
        scene.get(number, None);
    }
    scene.flush();
    scene.fill(100, 1, 1_500_000);
    wait(async {
        // The result is for the caller; the purge counts in any case.
        let _ = scene.disk.purge(&Purge::Tag(Tag::new(b"t3")), Strength::Hard).await;
    });
    for number in 0..101 {
        assert!(scene.get(number, None).is_none() || number % 10 != 3, "{number} was purged");
    }
    scene.disk.put(&scene.object(200, 1, 500, Some("en")));
    scene.flush();
    scene.get(200, Some("en"));
    scene.close();
    true
}

#[test]
fn each_call_may_fail_once() {
    by_each_engine(|| {
        let errors = [rustix::io::Errno::IO, rustix::io::Errno::NOSPC, rustix::io::Errno::ROFS];
        for call in CALLS {
            for number in 1..=6 {
                let error = Fault::Error(errors[number % 3].raw_os_error());
                for fault in [error, Fault::Short(1 + number * 100)] {
                    let folder = tempfile::tempdir().unwrap();
                    let at = At { call, number, lasts: false, fault, seen: AtomicUsize::new(0) };
                    scenario(folder.path(), Some(Arc::new(at)));
                    // The next process finds right objects only, and works.
                    let scene = Scene::open(folder.path()).recovered();
                    for number in 0..101 {
                        assert!(
                            scene.get(number, None).is_none() || number % 10 != 3,
                            "{call:?} {number} {fault:?}: a purge was lost"
                        );
                    }
                    assert!(scene.put(300, 1, 100));
                    scene.flush();
                    assert_eq!(scene.get(300, None), Some((1, 100)), "{call:?} {fault:?}");
                    scene.close();
                }
            }
        }
    });
}

#[test]
fn short_calls_are_no_faults() {
    by_each_engine(|| {
        for call in [Call::Read, Call::Write] {
            let folder = tempfile::tempdir().unwrap();
            let fault = Fault::Short(4093);
            let at = At { call, number: 1, lasts: true, fault, seen: AtomicUsize::new(0) };
            let settings = DirectorySettings { faults: Some(Arc::new(at)), ..directory(folder.path(), SIZE) };
            let scene = Scene::with(vec![settings]).unwrap().recovered();
            assert!(scene.put(1, 1, 50_000) && scene.fill(2, 1, 300_000));
            scene.flush();
            assert_eq!(scene.get(1, None), Some((1, 50_000)));
            assert_eq!(scene.get(2, None), Some((1, 300_000)));
            let stat = scene.stat();
            assert_eq!((stat.errors, stat.corrupt, stat.dropped), (0, 0, 0), "{stat:?}");
            scene.close();
        }
    });
}

#[test]
fn a_full_file_system_is_counted_and_pauses_writing() {
    by_each_engine(|| {
        let folder = tempfile::tempdir().unwrap();
        let fault = Fault::Error(rustix::io::Errno::NOSPC.raw_os_error());
        // The writes before are those of the store, the journal and the first segment.
        let at = At { call: Call::Write, number: 5, lasts: true, fault, seen: AtomicUsize::new(0) };
        let settings = DirectorySettings { faults: Some(Arc::new(at)), ..directory(folder.path(), SIZE) };
        let scene = Scene::with(vec![settings]).unwrap().recovered();
        for number in 0..20 {
            scene.put(number, 1, 10_000);
            scene.flush();
        }
        let stat = scene.stat();
        assert!(stat.errors > 0 && stat.errors < 5 && stat.dropped > 10, "{stat:?}");
        assert!(!scene.put(99, 1, 100), "nothing is taken for some time");
        assert!(scene.disk.fill(scene.key(99).0, None).is_none());
        assert!(!stat.off, "reads go on");
    });
}

#[test]
fn a_disk_that_goes_on_failing_is_off_for_some_time() {
    by_each_engine(|| {
        let folder = tempfile::tempdir().unwrap();
        let scene = Scene::open(folder.path()).recovered();
        for number in 0..20 {
            scene.put(number, 1, 10_000);
        }
        scene.close();
        let fault = Fault::Error(rustix::io::Errno::IO.raw_os_error());
        let at = At { call: Call::Read, number: 30, lasts: true, fault, seen: AtomicUsize::new(0) };
        let settings = DirectorySettings { faults: Some(Arc::new(at)), ..directory(folder.path(), SIZE) };
        let scene = Scene::with(vec![settings]).unwrap().recovered();
        let found = (0..200).filter(|&number| scene.get(number % 20, None).is_some()).count();
        let stat = scene.stat();
        assert!(stat.off && (5..=6).contains(&stat.errors), "{found} found, {stat:?}");
        let (key, text) = scene.key(1);
        assert!(matches!(wait(scene.disk.get(key, &text, &HeaderList::new())), DiskLookup::Unavailable));
        assert!(!scene.disk.may_have(key));
    });
}

#[test]
fn a_disk_that_hangs_delays_nobody() {
    by_each_engine(|| {
        let folder = tempfile::tempdir().unwrap();
        let scene = Scene::open(folder.path()).recovered();
        for number in 0..20 {
            scene.put(number, 1, 10_000);
        }
        scene.close();
        let hangs = Arc::new(Hangs(AtomicBool::new(false)));
        let settings = DirectorySettings {
            faults: Some(Arc::clone(&hangs) as Arc<dyn Faults>),
            io: Limits { threads: 2, slow: 0, ..Limits::default() },
            ..directory(folder.path(), SIZE)
        };
        let scene = &Scene::with(vec![settings]).unwrap().recovered();
        assert!((0..20).all(|number| scene.get(number, None).is_some()));
        hangs.0.store(true, Ordering::Relaxed);
        let fast = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for number in 0..10 {
                let fast = &fast;
                scope.spawn(move || {
                    let (key, text) = scene.key(number);
                    let start = Instant::now();
                    let found = wait(scene.disk.get(key, &text, &HeaderList::new()));
                    if matches!(found, DiskLookup::Unavailable)
                        && start.elapsed() < Duration::from_millis(200)
                    {
                        fast.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert!(fast.load(Ordering::Relaxed) >= 6, "{fast:?} of 10 passed in time");
        assert!(scene.stat().busy >= 6, "{:?}", scene.stat());
    });
}

/// The first list of a folder takes 20 seconds, so that its contents are found late.
struct Late(AtomicBool);

impl Faults for Late {
    fn fault(&self, call: Call) -> Option<Fault> {
        let is_first = call == Call::List && !self.0.swap(true, Ordering::Relaxed);
        is_first.then_some(Fault::Slow(Duration::from_secs(20)))
    }
}

#[test]
fn a_folder_that_is_not_ready_does_not_keep_others_from_writing() {
    by_each_engine(|| {
        let (slow, good) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        Scene::open(slow.path()).recovered().close();
        let faults: Option<Arc<dyn Faults>> = Some(Arc::new(Late(AtomicBool::new(false))));
        let slow = DirectorySettings { faults, ..directory(slow.path(), SIZE) };
        let scene = Scene::with(vec![slow, directory(good.path(), SIZE)]).unwrap();
        let start = Instant::now();
        while scene.disk.stat()[1].1.recovering {
            assert!(start.elapsed() < Duration::from_secs(15), "the empty folder is not ready");
            std::thread::sleep(Duration::from_millis(1));
        }
        let put = (0..20).filter(|number| scene.put(*number, 1, 100)).count();
        scene.flush();
        let stat = scene.disk.stat();
        assert!(stat[0].1.recovering && stat[1].1.written > 0, "{put}: {stat:?}");
    });
}

/// Calls of a kind fail while it is set.
struct Fails(Call, rustix::io::Errno, AtomicBool);

impl Faults for Fails {
    fn fault(&self, call: Call) -> Option<Fault> {
        let fails = call == self.0 && self.2.load(Ordering::Relaxed);
        fails.then_some(Fault::Error(self.1.raw_os_error()))
    }
}

#[test]
fn a_disk_that_fails_at_the_start_is_off_until_it_works() {
    by_each_engine(|| {
        use rustix::io::Errno;
        let faults = [
            (Call::Write, Errno::NOSPC),
            (Call::Create, Errno::ROFS),
            (Call::Create, Errno::NOSPC),
            (Call::Rename, Errno::IO),
            (Call::Sync, Errno::IO),
        ];
        for (call, errno) in faults {
            let folder = tempfile::tempdir().unwrap();
            let scene = Scene::open(folder.path()).recovered();
            for number in 0..20 {
                scene.put(number, 1, 10_000);
            }
            scene.close();
            let fails = Arc::new(Fails(call, errno, AtomicBool::new(true)));
            let settings = DirectorySettings {
                faults: Some(Arc::clone(&fails) as Arc<dyn Faults>),
                retry: Duration::from_millis(20),
                ..directory(folder.path(), SIZE)
            };
            let scene = Scene::with(vec![settings]).unwrap();
            assert!(scene.stat().off && scene.stat().errors > 0, "{call:?} {:?}", scene.stat());
            let (key, text) = scene.key(1);
            assert!(matches!(wait(scene.disk.get(key, &text, &HeaderList::new())), DiskLookup::Unavailable));
            assert!(!scene.put(50, 1, 100) && scene.disk.fill(key, None).is_none());
            scene.flush();
            wait(async {
                let purge = Purge::Tag(Tag::new(b"t3"));
                assert!(
                    scene.disk.purge(&purge, Strength::Hard).await.is_err(),
                    "{call:?}: nothing was written"
                );
            });
            assert!(
                Scene::with(vec![directory(folder.path(), SIZE)]).is_err(),
                "the folder is locked all the same"
            );
            fails.2.store(false, Ordering::Relaxed);
            let start = Instant::now();
            while scene.stat().off {
                assert!(start.elapsed() < Duration::from_secs(30), "{call:?}: it stays off");
                std::thread::sleep(Duration::from_millis(5));
            }
            let scene = scene.recovered();
            for number in 0..20 {
                let expected = (number % 10 != 3).then_some((1, 10_000));
                assert_eq!(scene.get(number, None), expected, "{call:?} {errno:?}: {number}");
            }
            assert!(scene.put(50, 1, 100));
            scene.close();
            // The purge has reached the journal.
            let scene = Scene::open(folder.path()).recovered();
            assert_eq!((scene.get(3, None), scene.get(50, None)), (None, Some((1, 100))), "{call:?}");
            scene.close();
        }
    });
}

#[test]
fn a_purge_on_a_disk_that_is_off_since_the_start_survives_a_kill() {
    by_each_engine(|| {
        let folder = tempfile::tempdir().unwrap();
        let scene = Scene::open(folder.path()).recovered();
        scene.put(3, 1, 10_000);
        scene.close();
        let fails = Fails(Call::Write, rustix::io::Errno::NOSPC, AtomicBool::new(true));
        let settings = DirectorySettings { faults: Some(Arc::new(fails)), ..directory(folder.path(), SIZE) };
        let scene = Scene::with(vec![settings]).unwrap();
        wait(async {
            let _ = scene.disk.purge(&Purge::Tag(Tag::new(b"t3")), Strength::Hard).await;
        });
        scene.close();
        let scene = Scene::open(folder.path()).recovered();
        assert_eq!(scene.get(3, None), None);
        scene.close();
    });
}
