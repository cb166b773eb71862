//! A cache of recently verified credentials, so that only the first request with them pays for the slow hash.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::hmac;
use portable_atomic::AtomicU128;

use super::Credentials;

/// The number of entries, a power of two. They take 16 KiB.
const ENTRIES: usize = 1024;
/// The number of entries that are possible places for the same credentials.
const WAYS: usize = 4;

/// A set of verified credentials, of fixed size. It holds no passwords, only 128 bits of an HMAC of each; the key of
/// the HMAC is a random number of 64 bits. Only verified credentials are added, so a client without a password cannot
/// evict others. The set lives as long as the settings: a change of users or hashes starts with an empty set.
pub struct Cache {
    entries: Box<[AtomicU128]>,
    /// The random key of the HMAC; 0 until the first use.
    seed: AtomicU64,
}

impl Default for Cache {
    fn default() -> Self {
        Self { entries: (0..ENTRIES).map(|_| AtomicU128::new(0)).collect(), seed: AtomicU64::new(0) }
    }
}

impl Cache {
    /// Returns true if these credentials were verified.
    pub fn holds(&self, credentials: &Credentials, random: u64) -> bool {
        let tag = self.tag(credentials, random);
        self.places(tag).any(|place| self.entries[place].load(Ordering::Relaxed) == tag)
    }

    /// Notes that these credentials fit.
    pub fn insert(&self, credentials: &Credentials, random: u64) {
        let tag = self.tag(credentials, random);
        let empty = self.places(tag).find(|place| self.entries[*place].load(Ordering::Relaxed) == 0);
        // If all entries for this tag are in use, some bits of the tag choose the entry to replace, as good as at random.
        let taken = self.places(tag).nth((tag >> 64) as usize % WAYS);
        if let Some(place) = empty.or(taken) {
            self.entries[place].store(tag, Ordering::Relaxed);
        }
    }

    fn places(&self, tag: u128) -> impl Iterator<Item = usize> {
        let first = tag as usize & (ENTRIES - 1) & !(WAYS - 1);
        first..first + WAYS
    }

    fn tag(&self, credentials: &Credentials, random: u64) -> u128 {
        let random = random.max(1);
        let seed = match self.seed.compare_exchange(0, random, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => random,
            Err(seed) => seed,
        };
        let key = hmac::Key::new(hmac::HMAC_SHA256, &seed.to_be_bytes());
        // User, colon and password: unambiguous, because no user name has a colon.
        let tag = hmac::sign(&key, &credentials.text);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&tag.as_ref()[..16]);
        // Never 0, because 0 marks an empty entry.
        u128::from_be_bytes(bytes).max(1)
    }
}
