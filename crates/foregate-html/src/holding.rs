//! What the rewriter holds of a document, as far as it can be told from outside.
//!
//! It counts its buffer for a tag or comment that has not ended and its list of open elements, and stops at a limit; but
//! it does not say how much that is, and it does not count the names of open elements.

/// What a rewriter needs for any document, about: its buffers, selectors and handlers, bytes.
const FIXED: usize = 16 * 1024;
/// Names are looked at in steps of so many bytes. Those that are longer than two of them are counted.
const STEP: usize = 64;
/// How often the rewriter has the name of an open element.
const COPIES: usize = 2;

/// The account.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    /// What the rewriter has got since it last wrote or told something, bytes.
    begun: usize,
    /// The most that this has been: the rewriter keeps its buffer.
    buffer: usize,
    /// Bytes of long names.
    names: usize,
    /// What was read of the present step, bytes.
    read: usize,
    /// The last byte of it that ends or begins a name is the one that begins one; `None` if it has no such byte.
    begins: Option<bool>,
    /// The present step began within a name.
    within: bool,
    /// The last byte was `<`: the next one tells whether a name begins.
    opens: bool,
}

impl Holding {
    /// What is held now at most, bytes, by a rewriter that may hold as much as `limit`; open elements are not counted.
    pub fn held(&self, limit: usize) -> usize {
        FIXED.saturating_add(self.buffer.min(limit)).saturating_add(COPIES.saturating_mul(self.names))
    }

    /// The rewriter has got so many bytes. `silent` says that it has not written or told anything since.
    pub fn got(&mut self, bytes: usize, silent: bool) {
        self.begun = if silent { self.begun.saturating_add(bytes) } else { bytes };
        self.buffer = self.buffer.max(self.begun);
    }

    /// Looks for the names of elements in what the rewriter is going to get. If long names are more than `limit` bytes
    /// altogether, gives how much it may still get. What only looks like a name is taken for one, since text has a blank
    /// now and then; and none is ever taken for closed.
    pub fn names(&mut self, bytes: &[u8], limit: usize) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() {
            let end = bytes.len().min(at + STEP - self.read);
            let part = bytes.get(at..end).unwrap_or_default();
            if std::mem::take(&mut self.opens) && !part.first().is_some_and(u8::is_ascii_alphabetic) {
                (self.begins, self.within) =
                    (self.begins.map(|_| false), self.begins.is_some() && self.within);
            }
            self.mark(part);
            self.read += part.len();
            at = end;
            if self.read < STEP {
                break;
            }
            self.read = 0;
            match self.begins.take() {
                Some(begins) => self.within = begins,
                None if self.within => self.names += STEP,
                None => {}
            }
            if self.names > limit {
                return Some(at);
            }
        }
        None
    }

    /// Looks for the last byte of a part that ends or begins a name.
    fn mark(&mut self, part: &[u8]) {
        let rare = |byte: &u8| matches!(byte, b'/' | b'\t'..=b'\r');
        let Some(mark) = memchr::memrchr3(b'<', b'>', b' ', part) else {
            if (self.within || self.begins == Some(true)) && part.iter().any(rare) {
                self.begins = Some(false);
            }
            return;
        };
        let (next, rest) = (part.get(mark + 1), part.get(mark + 1..).unwrap_or_default());
        let opens = part.get(mark) == Some(&b'<') && !rest.iter().any(rare);
        self.opens = opens && next.is_none();
        self.begins = Some(opens && next.is_none_or(u8::is_ascii_alphabetic));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(html: &str, piece: usize, limit: usize) -> (usize, usize) {
        let (mut holding, mut allowed) = (Holding::default(), 0);
        for piece in html.as_bytes().chunks(piece) {
            let fits = holding.names(piece, limit);
            allowed += fits.unwrap_or(piece.len());
            if fits.is_some() {
                break;
            }
        }
        (holding.names, allowed)
    }

    #[test]
    fn long_names_are_counted_wherever_they_are_split() {
        let long = format!("<p class=x>text<{}>{}</p>", "n".repeat(1000), "<custom-element>".repeat(99));
        let (names, all) = counted(&long, usize::MAX, usize::MAX);
        assert!((1000 - 2 * STEP..=1000).contains(&names), "{names}");
        assert_eq!(all, long.len());
        let stopped = counted(&long, usize::MAX, 500);
        assert!(stopped.1 < 640, "{stopped:?}");
        for piece in [1, 2, 63, 64, 65, 1000] {
            assert_eq!(counted(&long, piece, usize::MAX), (names, all));
            assert_eq!(counted(&long, piece, 500), stopped);
        }
        for other in
            ["<some-element-of-ones-own/>word ".repeat(99), format!("<!--{0}-->1<{0}", "2".repeat(999))]
        {
            for piece in [1, 2, 7, 63, 64, 1000] {
                assert_eq!(counted(&other, piece, 9).0, 0);
            }
        }
    }

    #[test]
    fn what_has_not_ended_is_held_and_the_buffer_stays() {
        let mut holding = Holding::default();
        holding.got(4096, false);
        holding.got(4096, true);
        holding.got(4096, true);
        assert_eq!(holding.held(1 << 20), FIXED + 3 * 4096);
        holding.got(100, false);
        assert_eq!(holding.held(1 << 20), FIXED + 3 * 4096);
        assert_eq!(holding.held(1000), FIXED + 1000);
    }
}
