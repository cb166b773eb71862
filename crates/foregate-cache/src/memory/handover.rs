//! Moving objects from the tier of one process to that of the next.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::shard::Slot;
use super::{Memory, place};
use crate::key::Key;
use crate::moment::CacheTime;
use crate::object::Object;
use crate::purge::Effect;

/// The use of an object since it was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usefulness {
    /// The object was requested again after it had been stored.
    Used,
    /// Only the request that fetched the object has used it.
    Unused,
}

/// The fate of an object that comes from another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// The object is stored.
    Stored,
    /// The object was purged or is too large, or this process already has its own response for the same requests.
    Refused,
    /// There is no room.
    Full,
}

impl Memory {
    /// Stores no new objects from here on. Stored objects are still found.
    pub fn stop(&self) {
        self.limit.store(0, Ordering::Relaxed);
    }

    /// The places of the objects in one part of the tier; `None` if there is no such part. It holds the lock of that part meanwhile.
    pub fn places(&self, part: usize, usefulness: Usefulness) -> Option<Vec<Key>> {
        Some(self.shards.get(part)?.lock().places(usefulness == Usefulness::Used))
    }

    /// Takes the object at a place out of the tier. `None` if there is no object any more, or if it was purged or
    /// is of no use any more.
    pub fn take_out(&self, place: Key, now: CacheTime) -> Option<Arc<Object>> {
        let mut shard = self.shard(place).lock();
        let slot = shard.peek(place).cloned()?;
        shard.remove(place);
        drop(shard);
        let object = slot.object().filter(|_| !self.is_useless(&slot, now))?;
        (self.floors.judge(object) != Effect::Dead).then(|| Arc::clone(object))
    }

    /// Stores an object of another process, unless this process has no room for the object or already has its own
    /// response for the same requests.
    pub fn adopt(&self, object: Arc<Object>, usefulness: Usefulness, now: CacheTime) -> Adoption {
        if object.memory() > self.largest() || !self.floors.admits(&object) {
            return Adoption::Refused;
        }
        let key = object.key();
        let place = match &object.head.vary {
            None => key,
            Some(vary) => {
                // The stored object says that the address does not vary any more.
                if matches!(self.shard(key).lock().peek(key), Some(Slot::Object(_))) {
                    return Adoption::Refused;
                }
                place(key.variant(vary.variant, &self.secret), self.varies(key, vary, now))
            }
        };
        {
            let mut shard = self.shard(place).lock();
            if shard.peek(place).is_some() {
                return Adoption::Refused;
            }
            if !shard.adopt(place, Arc::clone(&object), usefulness == Usefulness::Used) {
                return Adoption::Full;
            }
        }
        // Check again, as `insert` does: a purge may have come and been forgotten meanwhile.
        if self.floors.admits(&object) {
            return Adoption::Stored;
        }
        self.remove_at(place, &object);
        Adoption::Refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryLookup;
    use crate::body::Body;
    use crate::key::{KeyParts, KeyText};
    use crate::purge::{Floors, Purge, Sequence, Strength};
    use crate::secret::Secret;
    use crate::stored::{Life, StoredHead};
    use crate::uri::Uri;
    use bytes::Bytes;
    use foregate_wire::{HeaderList, Scheme};

    const SECRET: Secret = Secret::new([7; 16]);
    const NOW: CacheTime = CacheTime(1000);

    fn uri(path: &str) -> Uri<'_> {
        Uri { scheme: Scheme::Http, host: "a", port: None, path: path.as_bytes(), query: None }
    }

    fn key(path: &str) -> (Key, KeyText) {
        let mut text = KeyText::new();
        text.write(&uri(path), &KeyParts { raw_target: None, additions: &[] });
        (text.key(&SECRET), text)
    }

    fn memory(limit: usize) -> Memory {
        Memory::new(limit, SECRET, Arc::new(Floors::default()))
    }

    fn object(memory: &Memory, path: &str, length: usize) -> Arc<Object> {
        let life = Life { received: NOW, lifetime: 60_000, ..Life::default() };
        let (headers, tags) = (HeaderList::new(), Box::default());
        let head = StoredHead { status: 200, headers, life, vary: None, tags, last_modified: None, date: 0 };
        let body = Body::new(vec![Bytes::from(vec![b'x'; length])]);
        let (key, text) = key(path);
        Arc::new(Object::new(head, body, key, &text, memory.floors().begin()))
    }

    fn has(memory: &Memory, path: &str) -> bool {
        let (key, text) = key(path);
        matches!(memory.get(key, &text, &HeaderList::new()), MemoryLookup::Object { .. })
    }

    /// As it goes from process to process.
    fn carried(object: &Object, sequence: Sequence) -> Arc<Object> {
        let mut head = Vec::new();
        object.write_head(&mut head);
        let read = Object::read(&head, object.body.clone()).unwrap();
        assert!(read.is_of(&SECRET) && !read.is_of(&Secret::new([8; 16])));
        Arc::new(read.current_from(sequence))
    }

    #[test]
    fn objects_move_and_the_used_ones_come_first() {
        let (old, new) = (memory(1 << 20), memory(1 << 20));
        for path in ["/a", "/b", "/c"] {
            assert!(old.insert(object(&old, path, 100), NOW));
        }
        assert!(has(&old, "/b"));
        assert_eq!(old.places(0, Usefulness::Used), Some(vec![key("/b").0]));
        assert_eq!(old.places(0, Usefulness::Unused).map(|places| places.len()), Some(2));
        assert_eq!(old.places(1, Usefulness::Used), None);
        let taken = old.take_out(key("/b").0, NOW).unwrap();
        assert!(!has(&old, "/b") && old.take_out(key("/b").0, NOW).is_none());
        let carried = carried(&taken, new.floors().begin());
        assert_eq!(new.adopt(Arc::clone(&carried), Usefulness::Used, NOW), Adoption::Stored);
        assert!(has(&new, "/b"));
        assert_eq!(new.adopt(carried, Usefulness::Used, NOW), Adoption::Refused, "it is there");
    }

    #[test]
    fn purges_on_either_side_count() {
        let (old, new) = (memory(1 << 20), memory(1 << 20));
        for path in ["/a", "/b", "/c"] {
            assert!(old.insert(object(&old, path, 100), NOW));
        }
        old.floors().purge(&Purge::Address(&uri("/a")), Strength::Hard);
        assert!(old.take_out(key("/a").0, NOW).is_none());
        let began = new.floors().begin();
        let taken = ["/b", "/c"].map(|path| old.take_out(key(path).0, NOW).unwrap());
        new.floors().purge(&Purge::Address(&uri("/b")), Strength::Hard);
        let adopted = taken.map(|taken| new.adopt(carried(&taken, began), Usefulness::Used, NOW));
        assert_eq!(adopted, [Adoption::Refused, Adoption::Stored]);
        // While responses are on their way, a sweep keeps the floors that judge them. Later, an old response is refused: nothing is known
        // of its purges any more.
        let sweep = || {
            let mut sweep = new.begin_sweep();
            while new.sweep(&mut sweep) {}
        };
        new.floors().keep_above(began);
        sweep();
        assert_eq!(
            new.adopt(carried(&object(&old, "/e", 100), began), Usefulness::Used, NOW),
            Adoption::Stored
        );
        new.floors().keep_none();
        let mut sweep = new.begin_sweep();
        while new.sweep(&mut sweep) {}
        let late = object(&old, "/d", 100);
        assert_eq!(new.adopt(carried(&late, began), Usefulness::Used, NOW), Adoption::Refused);
        assert_eq!(new.adopt(carried(&late, new.floors().begin()), Usefulness::Used, NOW), Adoption::Stored);
    }

    #[test]
    fn a_tier_that_is_full_or_closed_takes_none() {
        let new = memory(100_000);
        let others = memory(1 << 20);
        let adopt = |number: usize| {
            let object = object(&others, &format!("/{number}"), 5000);
            new.adopt(carried(&object, new.floors().begin()), Usefulness::Unused, NOW)
        };
        let stored = (0..100).take_while(|number| adopt(*number) == Adoption::Stored).count();
        assert!((12..20).contains(&stored) && adopt(200) == Adoption::Full, "{stored}");
        assert_eq!(new.stat().evicted, 0);
        new.stop();
        assert!(has(&new, "/0") && adopt(201) == Adoption::Refused);
        assert!(!new.insert(object(&new, "/x", 10), NOW));
        new.close();
        assert_eq!((new.stat().bytes, new.stat().entries, new.stat().held), (0, 0, 0));
        assert!(!new.insert(object(&new, "/x", 10), NOW));
    }
}
