//! Searches a value in one pass for the literals of many patterns.

use std::collections::BTreeMap;

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::{Anchored, MatchKind, StartKind, dfa, nfa};

/// The most bytes of texts in one automaton; more are [`TooLarge`]. The automaton takes several times as much
/// memory.
const MAX_TEXTS: usize = 1024 * 1024;
/// Up to this many bytes of texts, the automaton is a table with a row for each state. This form is the
/// fastest, but needs some hundred bytes of memory for each byte of text. The form for more text needs a
/// tenth of the memory, and twice the time.
const MAX_TABLE: usize = 16 * 1024;
/// The number of entries in a small cache of states with matches that have already been recorded in a pass; a
/// power of two.
const REMEMBERED: usize = 64;

/// The texts together are too large for an automaton.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

impl std::fmt::Display for TooLarge {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "the literals of these patterns have more than {MAX_TEXTS} bytes")
    }
}

impl std::error::Error for TooLarge {}

/// Finds the candidates among many patterns for a value, by the literals that they require, in one pass.
///
/// The time is linear in the value and independent of its content, except for at most one lookup for each distinct literal
/// that ends at a byte.
#[derive(Debug)]
pub struct Scan {
    automaton: Kind,
    /// For each literal, the numbers of the patterns that require it.
    wanted: Box<[Box<[u32]>]>,
    /// The largest number that can be found, plus one.
    bound: usize,
    /// The count of distinct numbers that can be found.
    numbers: usize,
}

#[derive(Debug)]
enum Kind {
    Table(dfa::DFA),
    List(nfa::contiguous::NFA),
}

/// The numbers of the patterns that a scan has found possible.
#[derive(Clone, Debug, Default)]
pub struct ScanHits {
    bits: Vec<u64>,
    count: usize,
    /// The literals that the scan has already seen, as a set of bits.
    texts: Vec<u64>,
}

impl Scan {
    /// Builds an automaton. Each entry is the number of a pattern with the literals that the pattern requires.
    /// Memory grows with the largest number. Literals have to be in small letters and are found in any case;
    /// empty ones are ignored.
    pub fn new<'a, T>(entries: impl IntoIterator<Item = (u32, T)>) -> Result<Self, TooLarge>
    where
        T: IntoIterator<Item = &'a Vec<u8>>,
    {
        let mut texts: BTreeMap<&[u8], Vec<u32>> = BTreeMap::new();
        let (mut bound, mut numbers) = (0, 0);
        for (number, of_number) in entries {
            bound = bound.max(number as usize + 1);
            numbers += 1;
            for text in of_number.into_iter().filter(|text| !text.is_empty()) {
                let wanted = texts.entry(text).or_default();
                if wanted.last() != Some(&number) {
                    wanted.push(number);
                }
            }
        }
        let size: usize = texts.keys().map(|text| text.len()).sum();
        if size > MAX_TEXTS {
            return Err(TooLarge);
        }
        let automaton = Kind::new(texts.keys().copied(), size).ok_or(TooLarge)?;
        let wanted = texts.into_values().map(Vec::into_boxed_slice).collect();
        Ok(Self { automaton, wanted, bound, numbers })
    }

    /// Adds the numbers of all patterns of which the value contains a literal. The other patterns cannot match
    /// the value.
    pub fn scan(&self, value: &[u8], found: &mut ScanHits) {
        found.fit(self);
        match &self.automaton {
            Kind::Table(automaton) => self.pass(automaton, value, found),
            Kind::List(automaton) => self.pass(automaton, value, found),
        }
    }

    fn pass<A: Automaton>(&self, automaton: &A, value: &[u8], found: &mut ScanHits) {
        // This does not fail, because the automata are built for unanchored searches.
        let Ok(mut state) = automaton.start_state(Anchored::No) else { return };
        let mut remembered = [StateID::ZERO; REMEMBERED];
        let mut left = self.numbers;
        for &byte in value {
            state = automaton.next_state(Anchored::No, state, byte);
            if !automaton.is_special(state) || !automaton.is_match(state) {
                continue;
            }
            // If a value repeats itself, the same states occur again, and their matches are already recorded.
            let place = &mut remembered[(state.as_usize() ^ state.as_usize() >> 6) % REMEMBERED];
            if *place == state {
                continue;
            }
            *place = state;
            for at in 0..automaton.match_len(state) {
                let text = automaton.match_pattern(state, at).as_usize();
                if found.is_new_text(text) {
                    let new = self.wanted[text].iter().filter(|number| found.insert(**number)).count();
                    left = left.saturating_sub(new);
                }
            }
            if left == 0 {
                return;
            }
        }
    }

    /// The memory of the automaton, bytes.
    pub fn memory(&self) -> usize {
        let automaton = match &self.automaton {
            Kind::Table(automaton) => automaton.memory_usage(),
            Kind::List(automaton) => automaton.memory_usage(),
        };
        automaton
            + self.wanted.iter().map(|wanted| size_of_val(wanted) + size_of_val(&**wanted)).sum::<usize>()
    }
}

impl Kind {
    fn new<'a>(texts: impl Iterator<Item = &'a [u8]>, size: usize) -> Option<Self> {
        if size <= MAX_TABLE {
            let mut builder = dfa::Builder::new();
            builder.match_kind(MatchKind::Standard).start_kind(StartKind::Unanchored);
            builder.ascii_case_insensitive(true).prefilter(false);
            return builder.build(texts).ok().map(Self::Table);
        }
        let mut builder = nfa::contiguous::Builder::new();
        builder.match_kind(MatchKind::Standard).ascii_case_insensitive(true).prefilter(false);
        builder.build(texts).ok().map(Self::List)
    }
}

impl ScanHits {
    /// Empty results.
    pub fn new() -> Self {
        Self::default()
    }

    /// Clears the results and keeps the memory.
    pub fn clear(&mut self) {
        self.bits.fill(0);
        self.texts.fill(0);
        self.count = 0;
    }

    /// Returns true if a number was found.
    pub fn has(&self, number: u32) -> bool {
        self.bits.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// The results, as words of 64 numbers, lowest first.
    pub fn words(&self) -> &[u64] {
        &self.bits
    }

    /// The number of numbers that were found.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if there are no results.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The results, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0u32..).zip(&self.bits).flat_map(|(at, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(at * 64 + bit)
            })
        })
    }

    /// Makes room for the results of a scan, and forgets the literals that were seen in the previous scan.
    fn fit(&mut self, scan: &Scan) {
        let (bits, texts) = (scan.bound.div_ceil(64), scan.wanted.len().div_ceil(64));
        if self.bits.len() < bits {
            self.bits.resize(bits, 0);
        }
        self.texts.clear();
        self.texts.resize(texts, 0);
    }

    /// Inserts a number; returns true if it is new.
    fn insert(&mut self, number: u32) -> bool {
        let word = &mut self.bits[number as usize / 64];
        let bit = 1 << (number % 64);
        let is_new = *word & bit == 0;
        self.count += usize::from(is_new);
        *word |= bit;
        is_new
    }

    fn is_new_text(&mut self, text: usize) -> bool {
        let word = &mut self.texts[text / 64];
        let is_new = *word >> (text % 64) & 1 == 0;
        *word |= 1 << (text % 64);
        is_new
    }
}
