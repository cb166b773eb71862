//! What a regular expression may cost where a text is made to be slow.
//!
//! Matching takes time in proportion to the length of the text, whatever the expression, but with a factor: how many of its
//! positions are active at once, that is, how many beginnings of it the text before a byte may be. `a[ab]{5000}c` has
//! thousands, and takes 39 us for each byte; five hundred words have a dozen. An automaton that is small takes one step for a
//! byte all the same.

use regex_automata::dfa::dense;
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_syntax::hir::{Class, Hir, HirKind};

use crate::limits::MAX_POSITIONS;

/// How large the automaton of an expression with more positions may be, in bytes.
const MAX_AUTOMATON: usize = 4 * 1024 * 1024;

/// How much memory there is for the sets of positions that are its states, in bytes. That bounds how many are in one, too: of
/// those in a row, all sets up to the largest are there.
const MAX_STATES: usize = 1024 * 1024;

/// Whether each byte of any text takes little time.
pub(crate) fn is_bounded(hir: &Hir) -> bool {
    active(hir) <= MAX_POSITIONS || has_automaton(hir)
}

/// At most so many positions of an expression are active at once, wherever in a text it may begin.
fn active(hir: &Hir) -> usize {
    if let Some(word) = word(hir) {
        return beginnings(&word);
    }
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 0,
        HirKind::Literal(_) | HirKind::Class(_) => 1,
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min.max(1));
            // Even of nothing, each repetition is a position.
            active(&repetition.sub).max(1).saturating_mul(times as usize)
        }
        HirKind::Capture(capture) => active(&capture.sub),
        HirKind::Concat(parts) => {
            let mut sum = 0_usize;
            let mut rest = &**parts;
            while let Some((first, behind)) = rest.split_first() {
                let words: Vec<_> = rest.iter().map_while(word).collect();
                (sum, rest) = match words.len() {
                    0 => (sum.saturating_add(active(first)), behind),
                    count => (sum.saturating_add(beginnings(&words.concat())), &rest[count..]),
                };
            }
            sum
        }
        HirKind::Alternation(parts) => {
            let (mut words, mut sum) = (Vec::new(), 0_usize);
            for part in parts {
                match word(part) {
                    Some(word) => words.push(word),
                    None => sum = sum.saturating_add(active(part)),
                }
            }
            sum.saturating_add(beginnings_of_any(&mut words))
        }
    }
}

/// The text that an expression stands for, but for the case of its letters.
fn word(hir: &Hir) -> Option<Vec<u8>> {
    match hir.kind() {
        HirKind::Empty => Some(Vec::new()),
        HirKind::Literal(literal) => Some(literal.0.to_ascii_lowercase()),
        HirKind::Class(Class::Bytes(class)) => match class.ranges() {
            [one] if one.start() == one.end() => Some(vec![one.start().to_ascii_lowercase()]),
            [upper, lower]
                if upper.start() == upper.end()
                    && lower.start() == lower.end()
                    && upper.start().eq_ignore_ascii_case(&lower.start()) =>
            {
                Some(vec![lower.start()])
            }
            _ => None,
        },
        HirKind::Capture(capture) => word(&capture.sub),
        HirKind::Concat(parts) => {
            parts.iter().map(word).collect::<Option<Vec<_>>>().map(|words| words.concat())
        }
        _ => None,
    }
}

/// How many beginnings of a word a text may end with at once: the longest, and those that end that one.
fn beginnings(word: &[u8]) -> usize {
    // For each beginning, the longest shorter one that it ends with, and how many there are with itself.
    let mut shorter = vec![0_usize];
    let mut counts = vec![0_usize];
    let mut at = 0;
    for (index, byte) in word.iter().enumerate() {
        if index > 0 {
            while at > 0 && word[at] != *byte {
                at = shorter[at];
            }
            at += usize::from(word[at] == *byte);
        }
        let before = if index == 0 { 0 } else { at };
        shorter.push(before);
        counts.push(counts[before] + 1);
    }
    counts.into_iter().max().unwrap_or(0)
}

/// The same for several words: those of one length are equal, or only one of them ends the text.
fn beginnings_of_any(words: &mut [Vec<u8>]) -> usize {
    words.sort_unstable();
    let longest = words.iter().map(Vec::len).max().unwrap_or(0);
    let of_length = |length: usize| {
        let mut beginnings = words.iter().filter_map(|word| word.get(..length)).peekable();
        let mut most = 0;
        while let Some(beginning) = beginnings.next() {
            let mut count = 1;
            while beginnings.next_if_eq(&beginning).is_some() {
                count += 1;
            }
            most = most.max(count);
        }
        most
    };
    (1..=longest).map(of_length).fold(0, usize::saturating_add)
}

fn has_automaton(hir: &Hir) -> bool {
    let config = thompson::Config::new().utf8(false).which_captures(WhichCaptures::None);
    let Ok(nfa) = thompson::NFA::compiler().configure(config).build_from_hir(hir) else {
        return false;
    };
    let config = dense::Config::new()
        .dfa_size_limit(Some(MAX_AUTOMATON))
        .determinize_size_limit(Some(MAX_STATES))
        .unicode_word_boundary(true);
    dense::Builder::new().configure(config).build_from_nfa(&nfa).is_ok()
}
