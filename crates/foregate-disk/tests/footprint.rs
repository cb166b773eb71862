//! The memory of the index, and the time of a start. The only test of its process, so that nothing
//! else allocates meanwhile.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test, which reports and waits"
)]
#![allow(dead_code, reason = "the scene serves other tests too")]

#[path = "disk/scene.rs"]
mod scene;

use std::time::{Duration, Instant};

use foregate_disk::DirectorySettings;
use scene::Scene;

/// Bytes of memory for an object at most.
const MOST: usize = 80;

/// Bytes of resident memory of this process.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

#[test]
fn objects_need_little_memory_and_a_start_little_time() {
    let objects: u64 =
        std::env::var("FOREGATE_OBJECTS").ok().and_then(|text| text.parse().ok()).unwrap_or(60_000);
    // Bodies of 4 KiB in the long run alone: in the short one they would measure the disk.
    let length = if objects > 100_000 { 4096 } else { 100 };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let settings = || vec![DirectorySettings::new(folder.path(), 64 << 30)];
    let scene = Scene::with(settings()).unwrap().recovered();
    let start = Instant::now();
    for number in 0..objects {
        while !scene.put(number, 1, length) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    scene.flush();
    println!("{objects} objects of {length} bytes written in {:?}", start.elapsed());
    assert_eq!(scene.stat().entries as u64, objects);
    scene.close();

    let before = resident();
    let start = Instant::now();
    let scene = Scene::with(settings()).unwrap();
    let opened = start.elapsed();
    let scene = scene.recovered();
    let recovered = start.elapsed();
    let taken = (resident() - before) / objects as usize;
    let counted = scene.stat().memory / objects as usize;
    println!(
        "open after {opened:?}, all found after {recovered:?}; {taken} bytes of memory an object, {counted} counted"
    );
    assert_eq!(scene.stat().entries as u64, objects);
    assert!(counted <= MOST, "{counted} bytes counted for an object");
    // With few objects, buffers of the recovery are most of it.
    assert!(taken <= MOST || objects < 500_000, "{taken} bytes of memory an object");
    let step = usize::try_from(objects / 1000).unwrap();
    assert!((0..objects).step_by(step).all(|number| scene.get(number, None) == Some((1, length))));
    scene.close();
}
