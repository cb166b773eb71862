//! The state of keys: a table of fixed size, without locks.
//!
//! The table is set-associative: a key's hash selects a set of [`WAYS`] entries, and the key may be in any of them.
//! An entry is one word of 128 bits (fingerprint, state). It is changed by compare-and-swap, so that no reader sees
//! half of a change. The hash depends on a secret of the process, so an attacker cannot find out which keys share a
//! set.
//!
//! # Behaviour beyond its size
//!
//! If a new key finds its set full of live entries, it replaces the entry that has used the smallest part of its
//! limit. The new key starts with that part counted as used, but never with more than half. Hence
//!
//! - a new key always has at least half of its limit, regardless of the number of keys;
//! - a key that has used up its limit is forgotten early only if all other entries of its set have used up their
//!   limits as well. Then the key gets at most half of its limit again. Clients cannot find out which keys share a
//!   set. So to bring this about for one key, an attacker needs about `limit / 2 * N` admitted requests within one
//!   window, for a table of `N` entries.
//!
//! Two keys of the same set share an entry if they have the same fingerprint, which is the case for one pair in 2^32.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use portable_atomic::AtomicU128;

/// Entries of a set.
pub const WAYS: usize = 8;

/// Sets of a table: 262,144 entries, 4 MiB.
pub const SETS: usize = 1 << 15;

/// The largest used part of a limit that a new key takes over from a replaced entry, in 255ths.
const INHERITED_MOST: u8 = 127;

/// The length of an entry that is passed to another process, bytes: the number of its set, and its word.
const SAVED_ENTRY: usize = 4 + 16;

const UNTIL_BITS: u32 = 40;
const COUNT_BITS: u32 = 24;

/// The latest time that an entry can hold, milliseconds on the steady clock: 34 years.
pub const UNTIL_MOST: u64 = (1 << UNTIL_BITS) - 1;

/// The largest count that an entry holds.
pub const COUNT_MOST: u32 = (1 << COUNT_BITS) - 1;

/// The state of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct State {
    /// The time from which on the entry no longer matters: milliseconds on the steady clock, at most [`UNTIL_MOST`].
    pub until: u64,
    /// A count, at most [`COUNT_MOST`].
    pub first: u32,
    /// A second count, at most [`COUNT_MOST`].
    pub second: u32,
    /// How much of the limit is used up, in 255ths.
    pub used: u8,
}

impl State {
    fn pack(self, fingerprint: u32) -> u128 {
        let until = self.until.min(UNTIL_MOST);
        let mut word = u128::from(fingerprint);
        word = word << UNTIL_BITS | u128::from(until);
        word = word << COUNT_BITS | u128::from(self.first.min(COUNT_MOST));
        word = word << COUNT_BITS | u128::from(self.second.min(COUNT_MOST));
        word << 8 | u128::from(self.used)
    }

    fn unpack(word: u128) -> (u32, Self) {
        let bits = |from: u32, count: u32| (word >> from) as u64 & ((1 << count) - 1);
        let state = Self {
            used: bits(0, 8) as u8,
            second: bits(8, COUNT_BITS) as u32,
            first: bits(8 + COUNT_BITS, COUNT_BITS) as u32,
            until: bits(8 + 2 * COUNT_BITS, UNTIL_BITS),
        };
        (bits(8 + 2 * COUNT_BITS + UNTIL_BITS, 32) as u32, state)
    }
}

/// A set fills a pair of cache lines exactly, so that a lookup touches no other line.
#[repr(align(128))]
struct Set([AtomicU128; WAYS]);

/// See the [module](self).
pub struct KeyTable {
    sets: Box<[Set]>,
    seed: u64,
}

impl KeyTable {
    /// An empty table. `sets` is a power of two; `seed` is the secret.
    pub fn new(sets: usize, seed: u64) -> Self {
        let empty = |_| Set(core::array::from_fn(|_| AtomicU128::new(0)));
        Self { sets: (0..sets.next_power_of_two()).map(empty).collect(), seed }
    }

    /// The secret by which keys are hashed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Changes the state of a key, by its hash.
    ///
    /// `change` gets the state of the key, or for a new key the part of the limit that counts as used (in 255ths). It
    /// returns the new state (`None`: no change) and a result. It is called again if another thread has changed the entry
    /// meanwhile. If two threads insert the same key at the same instant, while entries of its set are being replaced,
    /// both may insert it; one of the two counts is then lost.
    pub fn update<T>(
        &self,
        hash: u64,
        now: u64,
        change: impl Fn(Result<State, u8>) -> (Option<State>, T),
    ) -> T {
        // Never 0, because 0 marks an empty entry.
        let fingerprint = ((hash >> 32) as u32).max(1);
        let set = &self.sets[hash as usize & (self.sets.len() - 1)].0;
        loop {
            let words: [u128; WAYS] = core::array::from_fn(|way| set[way].load(Ordering::Relaxed));
            let states = words.map(State::unpack);
            let found = states.iter().position(|(other, _)| *other == fingerprint);
            let (way, known) = match found {
                Some(way) => (way, Ok(states[way].1)),
                None => {
                    let way = least(&states, now);
                    let (other, state) = states[way];
                    let used = if is_live(other, state, now) { state.used.min(INHERITED_MOST) } else { 0 };
                    (way, Err(used))
                }
            };
            let (state, outcome) = change(known);
            let Some(state) = state else { return outcome };
            let new = state.pack(fingerprint);
            // Relaxed: the word is the whole state and publishes nothing else.
            if set[way].compare_exchange(words[way], new, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return outcome;
            }
        }
    }
}

impl KeyTable {
    /// Appends the entries that still matter, for the table of another process.
    pub fn save(&self, now: u64, out: &mut Vec<u8>) {
        for (number, set) in self.sets.iter().enumerate() {
            for word in &set.0 {
                let word = word.load(Ordering::Relaxed);
                let (fingerprint, state) = State::unpack(word);
                if is_live(fingerprint, state, now) {
                    out.extend_from_slice(&(number as u32).to_le_bytes());
                    out.extend_from_slice(&word.to_le_bytes());
                }
            }
        }
    }

    /// Adds the entries of another process. If both processes have an entry for a key, the entry that ends later is
    /// kept. If both end at the same time, the entry with the higher count is kept. Entries that end after `latest` are
    /// invalid, because no limit lasts so long.
    pub fn restore(&self, entries: &[u8], now: u64, latest: u64) {
        let most = self.sets.len() * WAYS;
        for entry in entries.chunks_exact(SAVED_ENTRY).take(most) {
            let Some((number, word)) = entry.split_first_chunk() else { return };
            let Ok(word) = word.try_into() else { return };
            let (number, word) = (u32::from_le_bytes(*number), u128::from_le_bytes(word));
            let (fingerprint, theirs) = State::unpack(word);
            if !is_live(fingerprint, theirs, now) || theirs.until > latest {
                continue;
            }
            let hash = u64::from(fingerprint) << 32 | u64::from(number);
            let count = |state: State| (state.until, state.first, state.second);
            self.update(hash, now, |known| match known {
                Ok(own) if count(own) >= count(theirs) => (None, ()),
                _ => (Some(theirs), ()),
            });
        }
    }
}

fn is_live(fingerprint: u32, state: State, now: u64) -> bool {
    fingerprint != 0 && state.until >= now
}

/// The entry to replace: an entry that no longer matters. If there is none, it is the entry that has used the smallest
/// part of its limit; if several have used equally much, it is the one that ends first.
fn least(states: &[(u32, State); WAYS], now: u64) -> usize {
    let rank = |way: &usize| match states[*way] {
        (fingerprint, state) if is_live(fingerprint, state, now) => (1, state.used, state.until),
        _ => (0, 0, 0),
    };
    (0..WAYS).min_by_key(rank).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn entries_lose_nothing(
            fingerprint in 1..=u32::MAX, until in 0_u64..1 << UNTIL_BITS,
            first in 0..=COUNT_MOST, second in 0..=COUNT_MOST, used: u8,
        ) {
            let state = State { until, first, second, used };
            prop_assert_eq!(State::unpack(state.pack(fingerprint)), (fingerprint, state));
        }
    }

    #[test]
    fn a_new_key_takes_the_place_that_matters_least() {
        let table = KeyTable::new(1, 0);
        let put = |key: u64, used: u8, until: u64| {
            table.update(key << 32, 10, |known| (Some(State { used, until, ..State::default() }), known))
        };
        for key in 1..=8 {
            assert_eq!(put(key, 10 + key as u8, 100), Err(0), "there was an empty entry for key {key}");
        }
        assert_eq!(put(9, 255, 100), Err(11), "the first had used the least");
        assert_eq!(put(2, 255, 9).map(|state| state.used), Ok(12));
        assert_eq!(put(10, 255, 100), Err(0), "the second no longer matters");
        for key in 3..=8 {
            assert!(put(key, 255, 100).is_ok(), "key {key} is still there");
        }
        assert_eq!(put(11, 255, 100), Err(INHERITED_MOST), "never more than half is handed on");
    }

    /// The state of a key.
    fn state_of(table: &KeyTable, hash: u64) -> Option<State> {
        table.update(hash, 0, |known| (None, known.ok()))
    }

    #[test]
    fn entries_go_to_another_table_and_the_larger_count_stays() {
        let (old, new) = (KeyTable::new(4, 1), KeyTable::new(4, 1));
        let entry = |until, first| State { until, first, second: 2, used: 9 };
        let put = |table: &KeyTable, hash, state| table.update(hash, 0, |_| (Some(state), ()));
        put(&old, 1 << 32 | 3, entry(100, 5));
        put(&old, 2 << 32 | 1, entry(100, 7));
        put(&old, 3 << 32, entry(9, 1));
        put(&old, 4 << 32, entry(5000, 1));
        put(&new, 2 << 32 | 1, entry(100, 8));
        let mut saved = Vec::new();
        old.save(10, &mut saved);
        assert_eq!(saved.len(), 3 * SAVED_ENTRY, "what no longer matters stays");
        new.restore(&saved, 10, 1000);
        assert_eq!(state_of(&new, 1 << 32 | 3), Some(entry(100, 5)));
        assert_eq!(state_of(&new, 2 << 32 | 1), Some(entry(100, 8)), "it counts more here");
        assert_eq!(state_of(&new, 4 << 32), None, "no limit lasts so long");
        new.restore(&saved, 10, 1000);
        assert_eq!(state_of(&new, 1 << 32 | 3), Some(entry(100, 5)), "again changes nothing");
    }

    proptest! {
        #[test]
        fn any_bytes_are_restored_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..500)) {
            let table = KeyTable::new(2, 0);
            table.restore(&bytes, 5, u64::MAX);
            let mut saved = Vec::new();
            table.save(5, &mut saved);
            prop_assert!(saved.len() <= 2 * WAYS * SAVED_ENTRY);
        }
    }

    #[test]
    fn what_changes_nothing_is_not_written() {
        let table = KeyTable::new(1, 0);
        table.update(1 << 32, 0, |_| (None, ()));
        assert_eq!(table.update(1 << 32, 0, |known| (None, known)), Err(0));
    }
}
