//! An estimate of the rewriter's memory, from outside.
//!
//! The rewriter limits the memory for its buffer for an unfinished tag or comment and for its list of open elements.
//! But it does not report the amount, and its limit does not include the names of open elements.

/// The approximate memory of a rewriter for any document: buffers, selectors and handlers, bytes.
const FIXED: usize = 16 * 1024;
/// The number of copies that the rewriter keeps of the name of an open element.
const COPIES: usize = 2;

/// The estimate for one rewriter.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    /// The input since the rewriter's last output or call, bytes.
    begun: usize,
    /// The largest value of `begun` so far: the rewriter does not shrink its buffer.
    buffer: usize,
}

impl Holding {
    /// The upper bound of the held memory, bytes, for a rewriter with this `limit` and this many bytes of
    /// [names](crate::guard::Guard::names); open elements are not counted.
    pub fn held(&self, limit: usize, names: usize) -> usize {
        FIXED.saturating_add(self.buffer.min(limit)).saturating_add(COPIES.saturating_mul(names))
    }

    /// Records that the rewriter received this many bytes. `silent` is true if it wrote nothing and called no handler.
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
