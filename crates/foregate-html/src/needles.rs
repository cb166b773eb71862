//! A search for several texts in a stream, for replacing them.

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, MatchKind};

/// Finds texts in a stream: the leftmost match first, and the longest of the matches that begin at the same position.
/// The result does not depend on how the stream is split.
#[derive(Debug, Clone)]
pub(crate) struct Needles {
    search: AhoCorasick,
    /// The length of the longest text, bytes.
    longest: usize,
}

impl Needles {
    /// The largest total length of all texts, bytes.
    pub const LIMIT: usize = 64 * 1024;

    /// Creates a search for these texts; `None` if they are too many or too long.
    pub fn new<T: AsRef<[u8]>>(texts: &[T], ignore_case: bool) -> Option<Self> {
        let search = AhoCorasickBuilder::new()
            .match_kind(MatchKind::LeftmostLongest)
            .ascii_case_insensitive(ignore_case)
            .build(texts)
            .ok()?;
        let longest = texts.iter().map(|text| text.as_ref().len()).max().unwrap_or_default();
        Some(Self { search, longest })
    }

    /// Searches the input. Calls `tell` with each match and the number of its text, and with the input between matches,
    /// until `tell` asks to stop. Returns the number of processed bytes; the rest has to be passed again with the next
    /// input. `last` is set at the end of the stream.
    pub fn search(
        &self,
        bytes: &[u8],
        last: bool,
        tell: &mut dyn FnMut(&[u8], Option<usize>) -> bool,
    ) -> usize {
        // A match that begins at or after this position may continue beyond the input.
        let safe = if last { bytes.len() } else { (bytes.len() + 1).saturating_sub(self.longest) };
        let mut at = 0;
        for found in self.search.find_iter(bytes) {
            if found.start() >= safe {
                break;
            }
            if let Some(between) = bytes.get(at..found.start()).filter(|between| !between.is_empty()) {
                tell(between, None);
            }
            at = found.end();
            if !tell(bytes.get(found.range()).unwrap_or_default(), Some(found.pattern().as_usize())) {
                return at;
            }
        }
        if let Some(between) = bytes.get(at..safe).filter(|between| !between.is_empty()) {
            tell(between, None);
            at = safe;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leftmost_and_longest_is_found_wherever_the_stream_is_split() {
        let needles = Needles::new(&["ab", "abcd", "bcx", "d"], false).unwrap();
        let whole = b"xabcxabcdabcabd".repeat(3);
        let run = |splits: &[usize]| {
            let (mut held, mut out, mut from) = (Vec::new(), String::new(), 0);
            for (number, to) in splits.iter().enumerate() {
                held.extend(&whole[from..*to]);
                from = *to;
                let told = needles.search(&held, number + 1 == splits.len(), &mut |bytes, found| {
                    let text = String::from_utf8_lossy(bytes);
                    out.push_str(&found.map_or(text.to_string(), |_| format!("({text})")));
                    true
                });
                held.drain(..told);
            }
            assert!(held.is_empty());
            out
        };
        let expected = run(&[whole.len()]);
        assert!(expected.starts_with("x(ab)cx(abcd)(ab)c(ab)(d)"), "{expected}");
        for one in 0..whole.len() {
            for other in one..whole.len() {
                assert_eq!(run(&[one, other, whole.len()]), expected, "{one} {other}");
            }
        }
    }
}
