//! The memory budget of a worker's body filters.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The most memory of all filters together, bytes: the same as foregate's default (`limits { filter-memory }`).
const LIMIT: usize = 96 << 20;

/// The memory of all filters at present, bytes.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// The part of the budget that one body uses. Dropping it gives the memory back.
#[derive(Debug)]
pub(crate) struct Share {
    held: usize,
    of: &'static AtomicUsize,
}

impl Share {
    /// A part of no bytes.
    pub(crate) fn new() -> Self {
        Self { held: 0, of: &HELD }
    }

    /// Sets the memory of a body. Returns false if the increase is more than a quarter of the rest of the budget.
    pub(crate) fn hold(&mut self, bytes: usize) -> bool {
        let before = self.of.load(Ordering::Relaxed);
        let left = LIMIT.saturating_sub(before.saturating_sub(self.held));
        let may = bytes <= self.held || bytes <= left / 4;
        self.of.fetch_add(bytes.wrapping_sub(self.held), Ordering::Relaxed);
        self.held = bytes;
        may
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.fetch_sub(self.held, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_hold_no_more_than_there_is_together() {
        static OF: AtomicUsize = AtomicUsize::new(0);
        let share = || Share { held: 0, of: &OF };
        let mut one = share();
        assert!(one.hold(LIMIT / 4) && !one.hold(LIMIT / 4 + 1) && one.hold(LIMIT / 4));
        let mut others: Vec<_> = (0..1000).map(|_| share()).collect();
        let fit = others.iter_mut().map(|other| other.hold(1 << 20)).take_while(|held| *held).count();
        assert!((67..70).contains(&fit), "{fit}: until a quarter of what is left is less");
        drop(others);
        assert!(one.hold(1 << 20));
        drop(one);
        assert_eq!(OF.load(Ordering::Relaxed), 0);
    }
}
