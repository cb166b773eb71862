//! An estimate of the rewriter's memory, from outside.
//!
//! It counts its buffer for an unfinished tag or comment and its list of open elements, and stops at a limit; but
//! it does not report the amount, and it does not count the names of open elements.

/// The approximate memory of a rewriter for any document: buffers, selectors and handlers, bytes.
const FIXED: usize = 16 * 1024;
/// How often the rewriter has the name of an open element.
const COPIES: usize = 2;

/// The account.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    /// The input since the rewriter's last output or call, bytes.
    begun: usize,
    /// The most that this has been: the rewriter keeps its buffer.
    buffer: usize,
}

impl Holding {
    /// The upper bound of the held memory, bytes, for a rewriter with this `limit` and this many bytes of
    /// [names](crate::guard::Guard::names); open elements are not counted.
    pub fn held(&self, limit: usize, names: usize) -> usize {
        FIXED.saturating_add(self.buffer.min(limit)).saturating_add(COPIES.saturating_mul(names))
    }

    /// The rewriter got this many bytes. `silent` is set if it has written nothing and called no handler since.
    pub fn got(&mut self, bytes: usize, silent: bool) {
        self.begun = if silent { self.begun.saturating_add(bytes) } else { bytes };
        self.buffer = self.buffer.max(self.begun);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_not_ended_is_held_and_the_buffer_stays() {
        let mut holding = Holding::default();
        holding.got(4096, false);
        holding.got(4096, true);
        holding.got(4096, true);
        assert_eq!(holding.held(1 << 20, 0), FIXED + 3 * 4096);
        holding.got(100, false);
        assert_eq!(holding.held(1 << 20, 0), FIXED + 3 * 4096);
        assert_eq!(holding.held(1000, 0), FIXED + 1000);
        assert_eq!(holding.held(1000, 7), FIXED + 1014);
    }
}
