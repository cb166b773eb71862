//! What filters of bodies, buffered starts of bodies and bodies kept for another attempt hold together.
//!
//! Each of them has a bound of its own, but a thousand requests at the bound are a thousand times that. All of the process
//! share one [`Budget`], and each takes its [`Share`] of it as it grows. The more is held, the smaller the largest share
//! that is given out: whoever asks for much is refused long before those who ask for little notice anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::telemetry::metrics::Counter;

/// A share may be at most this part of what nobody else holds.
const LARGEST_SHARE: usize = 4;
/// Shares grow and shrink by this much, bytes; less than that is not counted.
const GRAIN: usize = 4096;

/// Memory that all share, and how much of it is held.
#[derive(Debug)]
pub struct Budget {
    limit: AtomicUsize,
    held: AtomicUsize,
    /// Shares that could not grow.
    pub refused: Counter,
}

/// What one body holds of it. Given back when it is dropped.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    held: usize,
}

impl Budget {
    /// So many bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit: AtomicUsize::new(limit), held: AtomicUsize::new(0), refused: Counter::default() }
    }

    /// Changes how much there is. What is held stays held.
    pub fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Bytes that are held now.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Whether more than half is held: whoever can do without more should.
    pub fn is_short(&self) -> bool {
        self.held() > self.limit.load(Ordering::Relaxed) / 2
    }

    /// A share of nothing yet.
    pub fn share(self: &Arc<Self>) -> Share {
        Share { budget: Arc::clone(self), held: 0 }
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(crate::settings::FILTER_MEMORY)
    }
}

impl Share {
    /// Makes this the size of the share, bytes. False: there is not enough, and the share is what it was. To hold less is
    /// always granted.
    #[must_use]
    pub fn hold(&mut self, bytes: usize) -> bool {
        let wanted = bytes - bytes % GRAIN;
        if wanted <= self.held {
            self.budget.held.fetch_sub(self.held - wanted, Ordering::Relaxed);
            self.held = wanted;
            return true;
        }
        let limit = self.budget.limit.load(Ordering::Relaxed);
        let grow = |held: usize| {
            let others = held.saturating_sub(self.held);
            let largest = limit.saturating_sub(others) / LARGEST_SHARE;
            (wanted <= largest).then(|| others.saturating_add(wanted))
        };
        if self.budget.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grow).is_err() {
            self.budget.refused.inc();
            return false;
        }
        self.held = wanted;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.held, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn shares_shrink_as_memory_gets_short_and_come_back() {
        let budget = Arc::new(Budget::new(64 * MIB));
        let mut large = Vec::new();
        loop {
            let mut share = budget.share();
            if !share.hold(8 * MIB) {
                break;
            }
            large.push(share);
        }
        // The fifth leaves 24 MiB, of which no share may take 8.
        assert_eq!((large.len(), budget.held(), budget.is_short()), (5, 40 * MIB, true));
        let mut small = budget.share();
        assert!(small.hold(MIB), "who needs little still gets it");
        assert_eq!(budget.refused.get(), 1);
        assert!(!small.hold(32 * MIB) && small.held == MIB, "a refused share is what it was");
        drop(large);
        assert!(small.hold(8 * MIB) && small.hold(MIB));
        assert_eq!((budget.held(), budget.is_short()), (MIB, false));
        drop(small);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn nothing_is_ever_held_beyond_the_limit() {
        let budget = Arc::new(Budget::new(MIB));
        let mut shares: Vec<Share> = (0..1000).map(|_| budget.share()).collect();
        for size in [64 * 1024, GRAIN, 1000] {
            for share in &mut shares {
                let _ = share.hold(size);
                assert!(budget.held() <= MIB);
            }
        }
        budget.set_limit(0);
        assert!(!shares[0].hold(MIB) && shares[0].hold(0));
        drop(shares);
        assert_eq!(budget.held(), 0);
    }
}
