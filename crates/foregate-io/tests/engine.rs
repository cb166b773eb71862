//! The engine over real folders, with faults where a disk would have to fail.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at what they do not expect")]
#![allow(clippy::disallowed_methods, reason = "threads of tests may sleep")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use foregate_io::{
    Call, Directory, Engine, EngineChoice, Error, Fault, Faults, Kind, Limits, Links, OpenHow, wait,
};

/// Both engines. A kernel that refuses the ring fails the tests.
const ENGINES: [EngineChoice; 2] = [EngineChoice::Threads, EngineChoice::IoUring];

fn root(engine: EngineChoice) -> (tempfile::TempDir, Directory) {
    let folder = tempfile::tempdir().unwrap();
    let root = Directory::open_root(folder.path(), Limits::default(), engine).unwrap();
    (folder, root)
}

/// A fault for each n-th call of a kind, counted from 1.
struct Nth(Call, fn(usize) -> Option<Fault>, AtomicUsize);

impl Nth {
    fn each(call: Call, fault: fn(usize) -> Option<Fault>) -> Option<Arc<dyn Faults>> {
        Some(Arc::new(Self(call, fault, AtomicUsize::new(0))))
    }
}

impl Faults for Nth {
    fn fault(&self, call: Call) -> Option<Fault> {
        (call == self.0).then(|| (self.1)(self.2.fetch_add(1, Ordering::Relaxed) + 1)).flatten()
    }
}

#[test]
fn files_are_written_read_renamed_and_removed() {
    for engine in ENGINES {
        let (folder, root) = root(engine);
        wait(async {
            let file = root.open(Path::new("a"), OpenHow::create()).await.unwrap();
            file.write(vec![b'x'; 100_000], 0).await.unwrap();
            file.write(&b"end"[..], 100_000).await.unwrap();
            file.sync().await.unwrap();
            assert_eq!(file.stat().unwrap().length, 100_003);
            assert_eq!(file.read(99_999, 100).await.unwrap(), b"xend");
            root.rename(Path::new("a"), Path::new("b")).await.unwrap();
            assert!(root.open(Path::new("a"), OpenHow::read()).await.unwrap_err().is_not_found());
            let stat = root.stat(Path::new("b")).await.unwrap();
            assert_eq!((stat.kind, stat.length), (Kind::File, 100_003));
            let names: Vec<_> =
                root.list(Path::new(""), 10).await.unwrap().into_iter().map(|entry| entry.name).collect();
            assert_eq!(names, ["b"]);
            root.unlink(Path::new("b")).await.unwrap();
            // An open file outlives its name.
            assert_eq!(file.read(0, 1).await.unwrap(), b"x");
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_nameless_file_gets_its_name_when_it_is_complete() {
    for engine in ENGINES {
        let (folder, root) = root(engine);
        wait(async {
            let file = root.create_nameless(Path::new("")).await.unwrap();
            file.write(&b"whole"[..], 0).await.unwrap();
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
            file.link(Path::new("name")).await.unwrap();
            let Err(Error::Io(error)) = file.link(Path::new("name")).await else { panic!("a name twice") };
            assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
            drop(root.create_nameless(Path::new("")).await.unwrap());
        });
        assert_eq!(fs::read_to_string(folder.path().join("name")).unwrap(), "whole");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

#[test]
fn no_path_leads_out_of_the_directory() {
    for engine in ENGINES {
        let (folder, root) = root(engine);
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "s").unwrap();
        fs::create_dir(folder.path().join("in")).unwrap();
        fs::write(folder.path().join("in/a"), "a").unwrap();
        symlink(outside.path(), folder.path().join("out")).unwrap();
        symlink("in/a", folder.path().join("link")).unwrap();
        symlink("../../..", folder.path().join("in/up")).unwrap();
        let open = |path: &str, how: OpenHow| wait(root.open(Path::new(path), how));
        for path in ["../x", "/etc/passwd", "out/secret", "in/up/etc/passwd", "in/../../x"] {
            let error = open(path, OpenHow::read()).unwrap_err();
            assert!(error.is_escape(), "{path}: {error}");
        }
        assert!(open("link", OpenHow::read()).is_ok());
        assert!(open("in/../in/a", OpenHow::read()).is_ok());
        assert!(open("link", OpenHow::read().links(Links::Never)).unwrap_err().is_escape());
        let file = open("out/secret", OpenHow::read().links(Links::Anywhere)).unwrap();
        assert_eq!(wait(file.read(0, 9)).unwrap(), b"s");
        assert_eq!(open("in", OpenHow::read()).unwrap().metadata().kind, Kind::Folder);
        assert_eq!(open("", OpenHow::read()).unwrap().metadata().kind, Kind::Folder);
    }
}

#[test]
fn a_swapped_directory_is_followed_when_told() {
    for engine in ENGINES {
        let folder = tempfile::tempdir().unwrap();
        for version in ["1", "2"] {
            fs::create_dir(folder.path().join(version)).unwrap();
            fs::write(folder.path().join(version).join("a"), version).unwrap();
        }
        let current = folder.path().join("current");
        symlink("1", &current).unwrap();
        let root = Directory::open_root(&current, Limits::default(), engine).unwrap();
        fs::remove_file(&current).unwrap();
        symlink("2", &current).unwrap();
        let content = || wait(async { root.open(Path::new("a"), OpenHow::read()).await?.read(0, 9).await });
        assert_eq!(content().unwrap(), b"1");
        wait(root.reopen()).unwrap();
        assert_eq!(content().unwrap(), b"2");
    }
}

/// Where the file system tells which pages are in memory, neither a thread nor a queue is used for
/// them.
#[test]
fn cached_files_need_no_thread() {
    for engine in ENGINES {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let root = Directory::open_root(folder.path(), Limits::default(), engine).unwrap();
        let file = fs::File::create(folder.path().join("a")).unwrap();
        rustix::io::write(&file, &[7; 10_000]).unwrap();
        let mut byte = [0];
        let mut parts = [std::io::IoSliceMut::new(&mut byte)];
        let flags = rustix::io::ReadWriteFlags::NOWAIT;
        let supported = fs::File::open(folder.path().join("a"))
            .is_ok_and(|file| rustix::io::preadv2(&file, &mut parts, 0, flags).is_ok());
        let opened = root.open(Path::new("a"), OpenHow::read()).now();
        if !supported {
            assert!(opened.is_err(), "a file system that may wait was asked on the calling thread");
            return;
        }
        let file = opened.expect("an answer at once").unwrap();
        for (offset, length) in [(0, 10_000), (4095, 2), (4096, 1), (9_999, 1)] {
            assert_eq!(file.read(offset, length).now().expect("at once").unwrap(), vec![7; length]);
        }
        // A read beyond the end is left to a thread, since a short result is no end.
        assert_eq!(wait(file.read(9_990, 100)).unwrap().len(), 10);
        assert_eq!(root.counters().inline, 5);
        assert_eq!(root.counters().performed, 1);
    }
}

#[test]
fn short_calls_go_on_and_errors_arrive() {
    for engine in ENGINES {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), vec![b'a'; 10_000]).unwrap();
        let short = Nth::each(Call::Read, |_| Some(Fault::Short(7)));
        let root = Directory::with_faults(folder.path(), Limits::default(), engine, short).unwrap();
        let file = wait(root.open(Path::new("a"), OpenHow::write())).unwrap();
        assert_eq!(wait(file.read(0, 10_000)).unwrap(), vec![b'a'; 10_000]);

        let io = Nth::each(Call::Write, |number| match number {
            1..3 => Some(Fault::Short(3)),
            3 => Some(Fault::Error(rustix::io::Errno::IO.raw_os_error())),
            _ => None,
        });
        let root = Directory::with_faults(folder.path(), Limits::default(), engine, io).unwrap();
        let file = wait(root.open(Path::new("a"), OpenHow::write())).unwrap();
        let Err(Error::Io(error)) = wait(file.write(vec![b'b'; 100], 0)) else { panic!("no error") };
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
        assert_eq!(root.counters().errors, 1);
        assert_eq!(&fs::read(folder.path().join("a")).unwrap()[..8], b"bbbbbbaa");
    }
}

/// Two threads that hang: later work is given back in time, and at once when they are known to
/// hang.
#[test]
fn nobody_waits_behind_operations_that_hang() {
    for engine in ENGINES {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "a").unwrap();
        let hang =
            Nth::each(Call::Stat, |number| (number <= 2).then_some(Fault::Slow(Duration::from_millis(700))));
        let limits =
            Limits { threads: 2, slow: 0, queue: 3, stuck: Duration::from_millis(200), ..Limits::default() };
        let root = Directory::with_faults(folder.path(), limits, engine, hang).unwrap();
        let stat = || root.stat(Path::new("a"));
        let hanging = [stat(), stat()];
        while root.counters().running < 2 {
            std::thread::yield_now();
        }
        let start = Instant::now();
        let queued = [stat(), stat(), stat()];
        // The queue is full.
        assert!(stat().now().expect("at once").unwrap_err().is_busy());
        for operation in queued {
            assert!(wait(operation).unwrap_err().is_busy());
        }
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(20) && took < Duration::from_millis(200), "{took:?}");
        std::thread::sleep(Duration::from_millis(250));
        assert!(stat().now().expect("at once").unwrap_err().is_busy());
        for operation in hanging {
            assert_eq!(wait(operation).unwrap().length, 1);
        }
        assert_eq!(wait(stat()).unwrap().length, 1);
        assert_eq!(root.counters().busy, 5);
    }
}

#[test]
fn a_dropped_operation_is_completed() {
    for engine in ENGINES {
        let (folder, root) = root(engine);
        let file = wait(root.open(Path::new("a"), OpenHow::create())).unwrap();
        for number in 0..100_u64 {
            drop(file.write(vec![1; 10], number * 10));
        }
        drop((file, root));
        let start = Instant::now();
        while fs::metadata(folder.path().join("a")).unwrap().len() < 1000 {
            assert!(start.elapsed() < Duration::from_secs(10), "operations were lost");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_lock_keeps_others_out() {
    for engine in ENGINES {
        let (folder, root) = root(engine);
        let open = || root.blocking().open(Path::new("lock"), OpenHow::replace()).unwrap();
        let first = open();
        assert!(first.lock().unwrap());
        assert!(!open().lock().unwrap());
        drop(first);
        assert!(open().lock().unwrap());
        drop(folder);
    }
}

const INTERRUPTED: i32 = rustix::io::Errno::INTR.raw_os_error();
const AGAIN: i32 = rustix::io::Errno::AGAIN.raw_os_error();

#[test]
fn the_engine_is_the_chosen_one() {
    let engine = |choice| root(choice).1.counters().engine;
    assert_eq!(engine(EngineChoice::Threads), Engine::Threads);
    assert_eq!(engine(EngineChoice::IoUring), Engine::IoUring);
    assert_eq!(engine(EngineChoice::Auto), EngineChoice::Auto.engine().unwrap());
}

#[test]
fn calls_without_a_result_are_repeated() {
    for (engine, code) in [
        (EngineChoice::Threads, INTERRUPTED),
        (EngineChoice::IoUring, INTERRUPTED),
        (EngineChoice::IoUring, AGAIN),
    ] {
        for call in [Call::Read, Call::Write] {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("a"), "a").unwrap();
            let fault: fn(usize) -> Option<Fault> = match code {
                INTERRUPTED => |number| (number % 4 != 0).then_some(Fault::Error(INTERRUPTED)),
                _ => |number| (number % 4 != 0).then_some(Fault::Error(AGAIN)),
            };
            let faults = Nth::each(call, fault);
            let root = Directory::with_faults(folder.path(), Limits::default(), engine, faults).unwrap();
            let file = wait(root.open(Path::new("a"), OpenHow::write())).unwrap();
            wait(file.write(&b"text"[..], 0)).unwrap();
            assert_eq!(wait(file.read(0, 10)).unwrap(), b"text", "{engine:?} {call:?}");
            assert_eq!(root.counters().errors, 0);
        }
    }
}

/// Reads without an end are given up.
#[test]
fn a_call_that_never_has_a_result_fails() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), "a").unwrap();
    let faults = Nth::each(Call::Read, |_| Some(Fault::Error(AGAIN)));
    for engine in ENGINES {
        let root = Directory::with_faults(folder.path(), Limits::default(), engine, faults.clone()).unwrap();
        let file = wait(root.open(Path::new("a"), OpenHow::read())).unwrap();
        let Err(Error::Io(error)) = wait(file.read(0, 1)) else { panic!("no error") };
        assert_eq!(error.raw_os_error(), Some(AGAIN));
    }
}

#[test]
fn long_files_are_written_and_read_in_one_operation() {
    for engine in ENGINES {
        let (folder, root) = root(engine);
        let bytes: Vec<u8> = (0..5_000_000_u32).map(|place| (place / 7) as u8).collect();
        let file = wait(root.open(Path::new("a"), OpenHow::create())).unwrap();
        wait(file.write(bytes.clone(), 3)).unwrap();
        assert!(fs::read(folder.path().join("a")).unwrap()[3..] == bytes);
        rustix::fs::fsync(&file).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        assert!(wait(file.read(3, 6_000_000)).unwrap() == bytes);
        assert_eq!(wait(file.read(6_000_000, 10)).unwrap(), b"");
        assert_eq!(wait(file.read(0, 0)).unwrap(), b"");
        wait(file.write(&b""[..], 0)).unwrap();
        assert_eq!(root.counters().errors, 0);
    }
}

/// One read that hangs delays no other, and all that are under way are completed after the directory
/// is gone.
#[test]
fn a_read_that_hangs_delays_no_other() {
    for engine in ENGINES {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "text").unwrap();
        let hang =
            Nth::each(Call::Read, |number| (number == 1).then_some(Fault::Slow(Duration::from_secs(2))));
        let root = Directory::with_faults(folder.path(), Limits::default(), engine, hang).unwrap();
        let file = wait(root.open(Path::new("a"), OpenHow::read())).unwrap();
        let start = Instant::now();
        let hanging = file.read(0, 4);
        while root.counters().running < 1 {
            std::thread::yield_now();
        }
        for _ in 0..100 {
            assert_eq!(wait(file.read(1, 2)).unwrap(), b"ex");
        }
        assert!(start.elapsed() < Duration::from_secs(2), "{engine:?}");
        let hanging = hanging.now().expect_err("it hangs");
        drop((file, root));
        assert_eq!(wait(hanging).unwrap(), b"text");
        assert!(start.elapsed() >= Duration::from_secs(2), "{engine:?}");
    }
}

/// As for other operations: later reads are given back in time, and at once when the ones before
/// are known to hang.
#[test]
fn nobody_waits_behind_reads_that_hang() {
    for engine in ENGINES {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "text").unwrap();
        let hang =
            Nth::each(Call::Read, |number| (number <= 2).then_some(Fault::Slow(Duration::from_millis(700))));
        let limits =
            Limits { threads: 2, slow: 0, queue: 3, stuck: Duration::from_millis(200), ..Limits::default() };
        let root = Directory::with_faults(folder.path(), limits, engine, hang).unwrap();
        let file = wait(root.open(Path::new("a"), OpenHow::read())).unwrap();
        let read = || file.read(0, 4);
        let hanging = [read(), read()];
        while root.counters().running < 2 {
            std::thread::yield_now();
        }
        let start = Instant::now();
        let queued = [read(), read(), read()];
        assert!(read().now().expect("at once").unwrap_err().is_busy(), "the queue is full");
        for operation in queued {
            assert!(wait(operation).unwrap_err().is_busy());
        }
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(20) && took < Duration::from_millis(200), "{took:?}");
        std::thread::sleep(Duration::from_millis(250));
        assert!(read().now().expect("at once").unwrap_err().is_busy());
        for operation in hanging {
            assert_eq!(wait(operation).unwrap(), b"text");
        }
        assert_eq!(wait(read()).unwrap(), b"text");
        assert_eq!(root.counters().busy, 5, "{engine:?}");
    }
}

/// Slow operations take threads of their own, and places of their own in the ring, up to a bound.
#[test]
fn slow_operations_leave_room_for_others() {
    for engine in ENGINES {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "text").unwrap();
        let slow = |number: usize| (number <= 6).then_some(Fault::Slow(Duration::from_millis(900)));
        let limits = Limits { threads: 2, slow: 4, ..Limits::default() };
        for call in [Call::Read, Call::Stat] {
            let root = Directory::with_faults(folder.path(), limits, engine, Nth::each(call, slow)).unwrap();
            let file = wait(root.open(Path::new("a"), OpenHow::read())).unwrap();
            let begin = |most: usize| match call {
                Call::Read => drop(file.read(0, most)),
                _ => drop(root.stat(Path::new("a"))),
            };
            let other = || match call {
                Call::Read => wait(file.read(0, 4)).map(drop),
                _ => wait(root.stat(Path::new("a"))).map(drop),
            };
            let start = Instant::now();
            for count in 1..=6 {
                begin(4);
                while root.counters().running < count {
                    assert!(
                        start.elapsed() < Duration::from_millis(600),
                        "{engine:?}: the {count}th does not begin"
                    );
                    std::thread::yield_now();
                }
                if count < 6 {
                    // Slow by now, all of them.
                    std::thread::sleep(Duration::from_millis(12));
                }
            }
            assert!(other().unwrap_err().is_busy(), "{engine:?}: all places are taken");
            std::thread::sleep(Duration::from_secs(1).saturating_sub(start.elapsed()));
            for _ in 0..20 {
                other().unwrap();
            }
            while root.counters().threads > 3 {
                assert!(
                    start.elapsed() < Duration::from_secs(5),
                    "{engine:?}: {} threads",
                    root.counters().threads
                );
                other().unwrap();
            }
        }
    }
}
