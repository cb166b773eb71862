//! Random numbers from the cryptographic library, which seeds itself from the system.

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher};

use aws_lc_rs::rand::{SecureRandom, SystemRandom};

/// Seeds the generator of this thread in advance. The first seed of a process takes tens of
/// milliseconds, for which no request should wait.
pub fn seed() {
    // If this fails, it is repeated when a number is needed.
    let _ = SystemRandom::new().fill(&mut [0]);
}

/// Returns true for `share` of `whole` calls, at random.
pub fn hits(share: u32, whole: u32) -> bool {
    number() % u64::from(whole) < u64::from(share)
}

/// A random number from the system. Each thread reads from the system only once for several calls.
pub fn number() -> u64 {
    const TAKEN: usize = 32;
    thread_local! {
        static KEPT: Cell<([u64; TAKEN], usize)> = const { Cell::new(([0; TAKEN], 0)) };
    }
    let (mut kept, mut left) = KEPT.get();
    if left == 0 {
        let mut bytes = [0; TAKEN * 8];
        if SystemRandom::new().fill(&mut bytes).is_err() {
            // The system's source is not available. The standard library has hash keys that it took from
            // this source earlier.
            return std::hash::RandomState::new().build_hasher().finish();
        }
        for (number, bytes) in kept.iter_mut().zip(bytes.chunks_exact(8)) {
            *number = bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        }
        left = TAKEN;
    }
    left -= 1;
    KEPT.set((kept, left));
    kept[left]
}
