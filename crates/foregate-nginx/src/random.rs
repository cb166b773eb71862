//! Numbers that cannot be guessed.

use std::cell::Cell;

use aws_lc_rs::rand::{SecureRandom, SystemRandom};

/// The number of random numbers that are read from the system at once.
const TAKEN: usize = 32;

thread_local! {
    static KEPT: Cell<([u64; TAKEN], usize)> = const { Cell::new(([0; TAKEN], 0)) };
}

/// A number from the system's random source. One read from the system serves several calls.
pub(crate) fn random() -> u64 {
    let (mut kept, mut left) = KEPT.get();
    if left == 0 {
        let mut bytes = [0; TAKEN * 8];
        if SystemRandom::new().fill(&mut bytes).is_err() {
            use std::hash::{BuildHasher, Hasher};
            // The keys of the standard library's hashes are random numbers from the system, too.
            return std::hash::RandomState::new().build_hasher().finish();
        }
        for (number, bytes) in kept.iter_mut().zip(bytes.chunks_exact(8)) {
            *number = bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        }
        left = TAKEN;
    }
    left -= 1;
    KEPT.set((kept, left));
    kept.get(left).copied().unwrap_or_default()
}

/// Drops the buffer: a forked process must not repeat the numbers of its parent.
pub(crate) fn forget() {
    KEPT.set(([0; TAKEN], 0));
}
