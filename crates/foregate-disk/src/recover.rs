//! Indexes the contents that the previous process has left. Lookups are answered meanwhile: an
//! object that is not indexed yet is a miss.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use foregate_io::BlockingDirectory;
use parking_lot::Mutex;

use crate::big::{self, open_blocking};
use crate::index::Fingerprint;
use crate::inner::Inner;
use crate::place::Place;
use crate::segment::{self, ContentsEntry, Log, Segment};
use crate::stat::{add, get};
use crate::writer::{BigFile, Container, Writer, first_number};

/// The number of threads that read segments.
const THREADS: usize = 4;
/// The most names in a folder: no store has more.
const MOST: usize = 1 << 24;

/// The segments and files that were found, in no order.
#[derive(Default)]
struct FolderContents {
    segments: Vec<FoundSegment>,
    files: Vec<(u64, BigFile)>,
}

struct FoundSegment {
    number: u64,
    slot: u16,
    log: Log,
    /// For a segment that was not sealed: the end of its last record, and its records.
    open: Option<(u64, Vec<ContentsEntry>)>,
}

/// Indexes all undamaged contents.
pub(crate) fn recover(inner: &Arc<Inner>) {
    let found = Mutex::new(FolderContents::default());
    let numbers = segments(inner);
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS.min(numbers.len()) {
            scope.spawn(|| {
                while let Some(&number) = numbers.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Some(segment) = read_segment(inner, number) {
                        found.lock().segments.push(segment);
                    }
                }
            });
        }
    });
    let mut found = found.into_inner();
    let writer = &mut *inner.writer.lock();
    order_segments(inner, writer, &mut found.segments);
    read_files(inner, &mut found.files);
    found.files.sort_unstable_by_key(|(number, _)| *number);
    for (number, file) in found.files {
        enter_file(inner, writer, number, file);
    }
    inner.recovering.store(false, Ordering::Relaxed);
    inner.raise(writer);
    writer.make_room(inner, 0);
}

/// The highest number in the name of a segment or file, or 0 if there is none. Numbers above those that a
/// process can give are ignored.
pub(crate) fn highest_number(directory: &BlockingDirectory) -> io::Result<u64> {
    let list = |folder: &Path| match directory.list(folder, MOST) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed,
    };
    let mut names = list(Path::new(segment::FOLDER))?;
    for folder in list(Path::new(big::FOLDER))?.iter().filter(|folder| big::is_folder(&folder.name)) {
        names.extend(list(&Path::new(big::FOLDER).join(&folder.name))?);
    }
    let last = first_number(u32::MAX);
    let numbers = names.iter().filter_map(|entry| segment::number_of(&entry.name));
    Ok(numbers.filter(|&number| number < last).max().unwrap_or(0))
}

/// The numbers of the segments of earlier processes. Files with other names are ignored.
fn segments(inner: &Inner) -> Vec<u64> {
    let entries = inner.check(inner.directory.blocking().list(Path::new(segment::FOLDER), MOST));
    let numbers = entries.unwrap_or_default().into_iter().filter_map(|entry| segment::number_of(&entry.name));
    // The newest first: objects that clients ask for are found sooner.
    let mut numbers: Vec<_> = numbers.filter(|&number| number < inner.first_number).collect();
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    numbers
}

fn read_segment(inner: &Inner, number: u64) -> Option<FoundSegment> {
    let contents = match Segment::open(&inner.directory, &inner.id, number) {
        Ok(Some(contents)) => contents,
        Ok(None) => {
            add(&inner.counters.foreign, 1);
            inner.check(Segment::remove(&inner.directory, number));
            return None;
        }
        Err(error) => {
            inner.failed(&error);
            return None;
        }
    };
    let (log, segment) = (contents.segment.log, Arc::new(contents.segment));
    add(&inner.counters.bytes, get(&segment.bytes));
    let slot = inner.slots.write().add(segment)?;
    for entry in &contents.entries {
        enter(inner, entry, slot);
    }
    let open = contents.open_at.map(|end| (end, contents.entries));
    Some(FoundSegment { number, slot, log, open })
}

/// Enters a record into the index, unless the index has a newer record with the same key.
fn enter(inner: &Inner, entry: &ContentsEntry, slot: u16) {
    let Some(place) = entry.place(slot) else { return };
    let fingerprint = Fingerprint::of(entry.key);
    while let Err(other) = inner.index.set_first(fingerprint, place) {
        let newer =
            other.slot().and_then(|slot| inner.slots.read().get(slot).cloned()).is_some_and(|segment| {
                let serial = segment.serial_at(other.offset());
                segment.number >= inner.first_number || serial.is_none_or(|serial| serial > entry.serial)
            });
        // Files of earlier processes are entered after all records. So a file that is in the index already was
        // written by this process, and is newer than the record.
        if newer || other.as_big().is_some() || inner.index.replace(fingerprint, other, Some(place)) {
            return;
        }
    }
}

fn order_segments(inner: &Inner, writer: &mut Writer, segments: &mut Vec<FoundSegment>) {
    segments.sort_unstable_by_key(|segment| segment.number);
    // The newest open segment of each log is continued.
    for segment in segments.drain(..).rev().collect::<Vec<_>>() {
        match segment.open {
            Some((end, entries)) => writer.resume(inner, segment.slot, entries, end),
            None => writer.push_old(inner, segment.log, Container::Segment(segment.slot)),
        }
    }
}

fn read_files(inner: &Inner, files: &mut Vec<(u64, BigFile)>) {
    let directory = inner.directory.blocking();
    let folders = match directory.list(Path::new(big::FOLDER), MOST) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        folders => inner.check(folders).unwrap_or_default(),
    };
    for folder in folders.iter().filter(|folder| big::is_folder(&folder.name)) {
        let path = Path::new(big::FOLDER).join(&folder.name);
        for entry in inner.check(directory.list(&path, MOST)).unwrap_or_default() {
            let name = path.join(&entry.name);
            let Some(number) = segment::number_of(&entry.name) else {
                // A `.part` file is an unfinished fill, on a file system without nameless files.
                if name.extension().is_some_and(|extension| extension == "part") {
                    inner.check(directory.unlink(&name));
                }
                continue;
            };
            if number < inner.first_number
                && let Some(file) = read_file(inner, number)
            {
                files.push((number, file));
            }
        }
    }
}

fn read_file(inner: &Inner, number: u64) -> Option<BigFile> {
    let directory = inner.directory.blocking();
    let raw = inner.check(directory.open(&big::path(number), foregate_io::OpenHow::read()))?;
    let Some(opened) = inner.check(open_blocking(&raw, big::seed(&inner.id, number)))? else {
        add(&inner.counters.foreign, 1);
        inner.check(directory.unlink(&big::path(number)));
        return None;
    };
    add(&inner.counters.bytes, opened.length);
    Some(BigFile {
        fingerprint: Fingerprint::of(opened.tail.key),
        bytes: opened.length,
        log: Log::Probation,
        serial: opened.tail.serial,
        lowest: opened.tail.sequence.get(),
    })
}

fn enter_file(inner: &Inner, writer: &mut Writer, number: u64, file: BigFile) {
    writer.queue_file(inner, number, file);
    let place = Place::big(number);
    while let Err(other) = inner.index.set_first(file.fingerprint, place) {
        let newer = match other.as_big() {
            Some(other) => writer.files.get(&other).is_some_and(|other| other.serial > file.serial),
            None => {
                let segment = other.slot().and_then(|slot| inner.slots.read().get(slot).cloned());
                segment.is_some_and(|segment| {
                    segment.number >= inner.first_number
                        || segment.serial_at(other.offset()).is_none_or(|serial| serial > file.serial)
                })
            }
        };
        if newer {
            writer.remove_file(inner, number);
            return;
        }
        if inner.index.replace(file.fingerprint, other, Some(place)) {
            if let Some(other) = other.as_big() {
                writer.remove_file(inner, other);
            }
            return;
        }
    }
}
