//! The cost of reads that miss the page cache, by engine: processor time, rate and latency.
//!
//! `cold FOLDER [MIB] [READS] [DEPTH] [ROUNDS]` makes a file in the folder and reads it at random
//! places, after the kernel has dropped its pages. Rounds of both engines alternate.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement stops at what it does not expect"
)]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use foregate_io::{Directory, EngineChoice, File, Limits, OpenHow};
use parking_lot::Mutex;
use rustix::fs::{Advice, fadvise};
use rustix::time::{ClockId, clock_gettime};

const NAME: &str = "cold.bytes";
const MIB: u64 = 1 << 20;
/// A step that visits all places of a file in a random-looking order: it is prime.
const STEP: u64 = 7_368_787;

/// The work of one round.
#[derive(Clone, Copy)]
struct Work {
    bytes: u64,
    reads: usize,
    depth: usize,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize, otherwise: usize| {
        arguments.get(place).map_or(otherwise, |text| text.parse().expect("a number"))
    };
    let folder = arguments.first().expect("a folder").clone();
    let work = Work { bytes: number(1, 2048) as u64 * MIB, reads: number(2, 20_000), depth: number(3, 64) };
    make(&Path::new(&folder).join(NAME), work.bytes);
    println!("bytes  engine    round  cpu us/read  reads/s  p50 us  p99 us  max us");
    for length in [4096, 65_536] {
        for round in 0..number(4, 3) {
            for engine in [EngineChoice::Threads, EngineChoice::IoUring] {
                let result = measure(Path::new(&folder), engine, length, work, round as u64);
                let name = engine.engine().unwrap().name();
                println!("{length:<6} {name:<9} {round:<6} {result}");
            }
        }
    }
    fs::remove_file(Path::new(&folder).join(NAME)).unwrap();
}

fn make(path: &Path, bytes: u64) {
    let mut file = fs::File::create(path).unwrap();
    let piece: Vec<u8> = (0..MIB).map(|place| ((place * STEP) >> 7) as u8).collect();
    for _ in 0..bytes / MIB {
        file.write_all(&piece).unwrap();
    }
    file.sync_all().unwrap();
}

fn measure(folder: &Path, engine: EngineChoice, length: usize, work: Work, round: u64) -> String {
    let limits = Limits { patience: Duration::from_secs(10), ..Limits::default() };
    let directory = Directory::open_root(folder, limits, engine).unwrap();
    let file = foregate_io::wait(directory.open(Path::new(NAME), OpenHow::read())).unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (cpu, start) = (processor_time(), Instant::now());
    let mut times = runtime.block_on(read(&file, length, work, round));
    let (took, cpu) = (start.elapsed(), processor_time() - cpu);
    assert!(directory.counters().performed as usize >= work.reads * 9 / 10, "the file was in memory");
    times.sort_unstable();
    let at = |share: usize| times[(times.len() - 1) * share / 100].as_micros();
    format!(
        "{:<12.1} {:<8.0} {:<7} {:<7} {}",
        cpu.as_secs_f64() * 1e6 / work.reads as f64,
        work.reads as f64 / took.as_secs_f64(),
        at(50),
        at(99),
        at(100)
    )
}

/// Reads with `depth` tasks on one thread, as a worker does. The result has the times.
async fn read(file: &File, length: usize, work: Work, round: u64) -> Vec<Duration> {
    let (next, times) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let places = work.bytes / length as u64;
    let tasks: Vec<_> = (0..work.depth)
        .map(|_| {
            let (file, next, times) = (file.clone(), Arc::clone(&next), Arc::clone(&times));
            let read = async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= work.reads {
                        return;
                    }
                    let place = (number as u64 * STEP + round * 977) % places;
                    let start = Instant::now();
                    let bytes = file.read(place * length as u64, length).await.unwrap();
                    assert_eq!(bytes.len(), length);
                    times.lock().push(start.elapsed());
                }
            };
            tokio::task::spawn(read)
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    Arc::into_inner(times).unwrap().into_inner()
}

/// The processor time of the process, with all of its threads and those that the kernel runs for
/// its ring.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
