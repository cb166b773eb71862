//! Eviction: S3-FIFO over segments.
//!
//! New objects go to the probation log, which has a tenth of the room. When its oldest segment is
//! reclaimed, objects that were hit are written to the main log. The keys of the others are
//! remembered for a while: if such an object comes back, it goes to the main log at once. When a
//! segment of the main log is reclaimed, objects that were hit are written to the log again.

use foregate_cache::{Effect, Object};

use crate::big::path;
use crate::index::Fingerprint;
use crate::inner::Inner;
use crate::place::Place;
use crate::record::Content;
use crate::segment::{ContentsEntry, Log, Segment};
use crate::stat::{add, get};
use crate::writer::{Container, Writer};

/// New objects get the limit divided by this number.
const PROBATION: u64 = 10;

impl Writer {
    /// Makes room for bytes before they are written. Returns false if there is nothing left to reclaim.
    pub(crate) fn make_room(&mut self, inner: &Inner, bytes: u64) -> bool {
        while get(&inner.counters.bytes) + self.open_room(inner) + bytes > inner.limit() {
            if !self.reclaim(inner) {
                return false;
            }
        }
        true
    }

    /// Reclaims the next container. Returns false if there is none.
    pub(crate) fn reclaim(&mut self, inner: &Inner) -> bool {
        let small = self.bytes[Log::Probation] > inner.limit() / PROBATION;
        let probation = small || self.queues[Log::Main].is_empty();
        let order = if probation { [Log::Probation, Log::Main] } else { [Log::Main, Log::Probation] };
        for log in order {
            while let Some(container) = self.queues[log].pop_front() {
                let bytes = self.bytes_of(inner, container);
                self.bytes[log] = self.bytes[log].saturating_sub(bytes);
                let reclaimed = match container {
                    Container::Segment(slot) => self.reclaim_segment(inner, slot, log),
                    Container::File(number) => self.reclaim_file(inner, number, log),
                };
                if reclaimed {
                    return true;
                }
            }
        }
        false
    }

    fn reclaim_segment(&mut self, inner: &Inner, slot: u16, log: Log) -> bool {
        let Some(segment) = inner.slots.read().get(slot).cloned() else { return false };
        match inner.check(segment.entries()) {
            Some(entries) => {
                for entry in &entries {
                    self.reclaim_entry(inner, slot, &segment, entry, log);
                }
                // The index has to point to the moved objects before their old segment is removed.
                // Objects that could not be moved are removed with the segment.
                self.flush_main(inner);
                for entry in &entries {
                    if let Some(place) = entry.place(slot) {
                        inner.index.replace(Fingerprint::of(entry.key), place, None);
                    }
                }
            }
            // The contents of the segment cannot be read.
            None => inner.index.remove_slot(slot),
        }
        inner.slots.write().remove(slot);
        inner.counters.bytes.fetch_sub(get(&segment.bytes), std::sync::atomic::Ordering::Relaxed);
        inner.check(Segment::remove(&inner.directory, segment.number));
        inner.raise(self);
        true
    }

    fn reclaim_entry(
        &mut self,
        inner: &Inner,
        slot: u16,
        segment: &Segment,
        entry: &ContentsEntry,
        log: Log,
    ) {
        let fingerprint = Fingerprint::of(entry.key);
        let (Some(place), Some(current)) = (entry.place(slot), inner.index.get(fingerprint)) else { return };
        if !current.is(place) {
            return;
        }
        if current.hits() > 0 && self.move_entry(inner, segment, current, log) {
            return;
        }
        inner.index.replace(fingerprint, current, None);
        add(&inner.counters.evicted, 1);
        if log == Log::Probation && current.hits() == 0 {
            self.ghosts.add(fingerprint, inner.index.len());
        }
    }

    /// Moves an object to the main log. Returns false if the object is useless or cannot be moved.
    fn move_entry(&mut self, inner: &Inner, segment: &Segment, place: Place, log: Log) -> bool {
        let Some((record, bytes)) = inner.read_from(segment, place) else { return false };
        let key = record.header.key;
        // An object from the probation log begins without hits in the main log.
        let from = if log == Log::Probation { place.with_hits(1) } else { place };
        let moved = if record.header.list {
            let list = record.head(&bytes);
            self.append(inner, Log::Main, key, &Content::List(list), Some(from), false)
        } else {
            let head = record.head(&bytes).to_vec();
            let body = foregate_cache::Body::new(record.body(bytes));
            let Some(object) = Object::read(&head, body) else { return false };
            if is_useless(inner, &object) {
                return false;
            }
            self.append(inner, Log::Main, key, &Content::Object(&object), Some(from), false)
        };
        if moved.is_ok() {
            add(&inner.counters.moved, 1);
        }
        moved.is_ok()
    }

    fn reclaim_file(&mut self, inner: &Inner, number: u64, log: Log) -> bool {
        let Some(file) = self.files.get(&number).copied() else { return false };
        let place = Place::big(number);
        let current = inner.index.get(file.fingerprint).filter(|current| current.is(place));
        let hits = current.map_or(0, Place::hits);
        if hits > 0 && !self.is_useless_file(inner, number) {
            // The file is not moved: only its queue changes.
            let hits = if log == Log::Probation { 0 } else { hits - 1 };
            inner.index.replace(file.fingerprint, place, Some(place.with_hits(hits)));
            if let Some(file) = self.files.get_mut(&number) {
                file.log = Log::Main;
            }
            self.push(inner, Log::Main, Container::File(number));
            add(&inner.counters.moved, 1);
            return true;
        }
        if current.is_some() {
            inner.index.replace(file.fingerprint, place, None);
            add(&inner.counters.evicted, 1);
            if log == Log::Probation {
                self.ghosts.add(file.fingerprint, inner.index.len());
            }
        }
        // `remove_file` subtracts the bytes of the file, but `reclaim` has done so already.
        self.bytes[file.log] += file.bytes;
        self.remove_file(inner, number);
        true
    }

    fn is_useless_file(&self, inner: &Inner, number: u64) -> bool {
        let raw = inner.directory.blocking().open(&path(number), foregate_io::OpenHow::read());
        let Some(raw) = inner.check(raw) else { return true };
        let opened =
            inner.check(crate::big::open_blocking(&raw, crate::big::seed(&inner.id, number))).flatten();
        opened.is_none_or(|opened| is_useless(inner, &opened.object))
    }
}

/// Returns whether an object is purged, or too old for every use.
fn is_useless(inner: &Inner, object: &Object) -> bool {
    let over = object.head.life.end() < inner.now() && !object.head.can_validate();
    over || inner.floors.judge(object) == Effect::Dead
}
