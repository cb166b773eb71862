//! Finds which texts of a set are contained in another text.

use std::collections::BTreeMap;

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, Span, packed};
use memchr::memmem::Finder;

use super::Candidates;
use super::scan::name;
use super::tables::Rules;
use crate::pattern::LONG_TEXT;

/// Duplicates among the found rules are removed whenever the number of found rules has doubled and exceeds this.
const COMPACT_FROM: usize = 4096;

/// After this many hits of the fast search, the automaton searches the rest of the text.
const HITS: usize = 4;

/// A search for a set of texts, with the rules that need each text.
#[derive(Debug)]
pub(super) struct Literals {
    shortest: usize,
    finder: Search,
}

#[derive(Debug)]
enum Search {
    One(Box<Finder<'static>>, Rules),
    Many {
        /// A fast search for the next occurrence of any of the texts. It is fast for an input that contains none of the
        /// texts, as most inputs do. It exists only for up to a few dozen texts.
        any: Option<Any>,
        automaton: AhoCorasick,
        rules: Vec<Rules>,
    },
}

/// Finds the first position at which any text occurs, and the longest text there.
#[derive(Debug)]
struct Any {
    searcher: packed::Searcher,
    /// For each text, the rules that need it or a prefix of it: wherever the text occurs, its prefixes occur, too.
    rules: Vec<Rules>,
}

impl Literals {
    /// A search for texts, none of them empty. `None` if the automaton would be too large.
    pub(super) fn new(texts: BTreeMap<Box<[u8]>, Rules>) -> Option<Self> {
        let shortest = texts.keys().map(|text| text.len()).min()?;
        if let (1, Some((text, rules))) = (texts.len(), texts.first_key_value()) {
            let finder = Finder::new(text).into_owned();
            return Some(Self { shortest, finder: Search::One(Box::new(finder), rules.clone()) });
        }
        // All texts that occur at one position must be found, so a match kind that returns only one of them cannot be
        // used.
        let is_large = texts.len() > 100 || texts.keys().any(|text| text.len() > LONG_TEXT);
        let kind = is_large.then_some(AhoCorasickKind::ContiguousNFA);
        let automaton = AhoCorasick::builder().kind(kind).build(texts.keys()).ok()?;
        let any = Any::new(&texts);
        let rules = texts.into_values().collect();
        Some(Self { shortest, finder: Search::Many { any, automaton, rules } })
    }

    pub(super) fn find(&self, text: &[u8], found: &mut Candidates) {
        if text.len() < self.shortest {
            return;
        }
        match &self.finder {
            Search::One(finder, rules) => {
                if finder.find(text).is_some() {
                    name(rules, found);
                }
            }
            Search::Many { any, automaton, rules } => {
                let mut start = 0;
                if let Some(any) = any {
                    let Some(rest) = any.find(text, self.shortest, found) else { return };
                    start = rest;
                }
                walk(automaton, rules, text, start, found);
            }
        }
    }
}

impl Any {
    fn new(texts: &BTreeMap<Box<[u8]>, Rules>) -> Option<Self> {
        let mut builder = packed::Config::new().match_kind(packed::MatchKind::LeftmostLongest).builder();
        let searcher = builder.extend(texts.keys()).build()?;
        let of = |text: &[u8]| {
            let beginnings = texts.iter().filter(|(other, _)| text.starts_with(other));
            beginnings.flat_map(|(_, rules)| rules.iter().copied()).collect()
        };
        Some(Self { searcher, rules: texts.keys().map(|text| of(text)).collect() })
    }

    /// Adds the rules of the first [`HITS`] hits. If there may be more, returns the position from which the automaton
    /// must search.
    fn find(&self, text: &[u8], shortest: usize, found: &mut Candidates) -> Option<usize> {
        let mut start = 0;
        for _ in 0..HITS {
            let hit = self.searcher.find_in(text, Span { start, end: text.len() })?;
            name(self.rules.get(hit.pattern().as_usize())?, found);
            start = hit.start() + 1;
            if text.len() - start < shortest {
                return None;
            }
        }
        Some(start)
    }
}

/// Adds the rules of all texts that the automaton finds from `start` on.
fn walk(automaton: &AhoCorasick, rules: &[Rules], text: &[u8], start: usize, found: &mut Candidates) {
    // A repetitive text names the same rules again and again, so duplicates are removed on the way.
    let mut compact_at = COMPACT_FROM.max(found.len() * 2);
    for hit in automaton.find_overlapping_iter(Input::new(text).range(start..)) {
        if let Some(rules) = rules.get(hit.pattern().as_usize()) {
            name(rules, found);
        }
        if found.len() > compact_at {
            found.sort_unstable();
            found.dedup();
            compact_at = COMPACT_FROM.max(found.len() * 2);
        }
    }
}
