//! What the rewriter holds of a document, as far as it can be told from outside.
//!
//! It counts its buffer for a tag or comment that has not ended and its list of open elements, and stops at a limit; but
//! it does not say how much that is, and it does not count the names of open elements.

/// What a rewriter needs for any document, about: its buffers, selectors and handlers, bytes.
const FIXED: usize = 16 * 1024;
/// How often the rewriter has the name of an open element.
const COPIES: usize = 2;

/// The account.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    /// What the rewriter has got since it last wrote or told something, bytes.
    begun: usize,
    /// The most that this has been: the rewriter keeps its buffer.
    buffer: usize,
}

impl Holding {
    /// What is held now at most, bytes, by a rewriter that may hold as much as `limit`, with so many bytes of
    /// [names](crate::guard::Guard::names); open elements are not counted.
    pub fn held(&self, limit: usize, names: usize) -> usize {
        FIXED.saturating_add(self.buffer.min(limit)).saturating_add(COPIES.saturating_mul(names))
    }

    /// The rewriter has got so many bytes. `silent` says that it has not written or told anything since.
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
