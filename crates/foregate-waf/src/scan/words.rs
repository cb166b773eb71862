//! A search for a list of words, as for `@pm`.

use std::ops::Range;

use aho_corasick::{AhoCorasick, BuildError, MatchKind};

/// A search for any of many words. The case of ASCII letters is ignored.
#[derive(Debug)]
pub struct Words {
    automaton: AhoCorasick,
    words: Box<[Box<[u8]>]>,
}

impl Words {
    /// Builds the search. Empty words are ignored.
    pub fn new<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, BuildError> {
        let words: Box<[Box<[u8]>]> =
            words.into_iter().filter(|word| !word.is_empty()).map(Box::from).collect();
        let automaton = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::Standard)
            .build(words.iter())?;
        Ok(Self { automaton, words })
    }

    /// The position of the first word in the value: the one that ends first.
    pub fn find(&self, value: &[u8]) -> Option<Range<usize>> {
        self.automaton.find(value).map(|found| found.range())
    }

    /// Returns true if the value contains a word.
    pub fn is_match(&self, value: &[u8]) -> bool {
        self.automaton.is_match(value)
    }

    /// The words.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.words.iter().map(|word| &**word)
    }

    /// The memory of the search, bytes.
    pub fn memory(&self) -> usize {
        self.automaton.memory_usage() + self.words.iter().map(|word| word.len()).sum::<usize>()
    }
}
