//! What a regular expression may cost where a text is made to be slow.
//!
//! Matching takes time in proportion to the length of the text, whatever the expression, but with a factor: how many of its
//! positions are active, that is, wait for the next byte, since an automaton that would take one step for all of them may be
//! too large to keep. `a[ab]{5000}c` has thousands, and takes 39 us for each byte.

use regex_syntax::hir::{Class, Hir, HirKind, Look, Repetition};

use crate::limits::MAX_POSITIONS;

/// Whether each byte of any text takes little time.
pub(crate) fn is_bounded(hir: &Hir) -> bool {
    active(hir) <= MAX_POSITIONS
}

/// At most so many positions of an expression are active at once, wherever in a text it may begin.
fn active(hir: &Hir) -> usize {
    if let Some(word) = word(hir) {
        return active_in_word(&word);
    }
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 0,
        HirKind::Literal(_) | HirKind::Class(_) => 1,
        HirKind::Repetition(repetition) => {
            // Even of nothing, each repetition is a position.
            active(&repetition.sub).max(1).saturating_mul(times(repetition))
        }
        HirKind::Capture(capture) => active(&capture.sub),
        HirKind::Concat(parts) => match &**parts {
            [first, second, rest @ ..] if is_start(first) && is_of_single_bytes(second) => {
                active_in_row(rest).saturating_add(1)
            }
            parts => active_in_row(parts),
        },
        HirKind::Alternation(parts) => active_in_any(parts),
    }
}

/// How often it is written out.
fn times(repetition: &Repetition) -> usize {
    repetition.max.unwrap_or(repetition.min.max(1)) as usize
}

fn is_start(hir: &Hir) -> bool {
    matches!(hir.kind(), HirKind::Look(Look::Start))
}

/// Whether it is a repetition of one byte: where it can begin at one place alone, as many bytes as there were say which position of
/// it is active.
fn is_of_single_bytes(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Capture(capture) => is_of_single_bytes(&capture.sub),
        HirKind::Repetition(repetition) => match repetition.sub.kind() {
            HirKind::Class(Class::Bytes(_)) => true,
            HirKind::Literal(literal) => literal.0.len() == 1,
            _ => false,
        },
        _ => false,
    }
}

fn active_in_row(parts: &[Hir]) -> usize {
    let mut sum = 0_usize;
    let mut rest = parts;
    while let Some((first, behind)) = rest.split_first() {
        let words: Vec<_> = rest.iter().map_while(word).collect();
        let (count, left) = match words.len() {
            0 => (active(first), behind),
            length => (active_in_word(&words.concat()), rest.get(length..).unwrap_or_default()),
        };
        (sum, rest) = (sum.saturating_add(count), left);
    }
    sum
}

fn active_in_any(parts: &[Hir]) -> usize {
    // These are compiled to a tree, which has one position for each length of what the text before ends with.
    if parts.iter().all(|part| matches!(part.kind(), HirKind::Literal(_))) {
        return parts.iter().filter_map(word).map(|word| word.len()).max().unwrap_or(0);
    }
    let (mut words, mut sum) = (Vec::new(), 0_usize);
    for part in parts {
        match word(part) {
            Some(word) => words.push(word),
            None => sum = sum.saturating_add(active(part)),
        }
    }
    // All of them wait for their first byte.
    sum.saturating_add(words.len()).saturating_add(beginnings_of_any(&mut words))
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

/// The position before the first byte, and those behind beginnings of the word: the longest that the text before ends with, and
/// those that end that one.
fn active_in_word(word: &[u8]) -> usize {
    let Some((_, beginning)) = word.split_last() else { return 0 };
    // By length: the longest shorter beginning that one ends with, and how many end it, with itself.
    let (mut shorter, mut counts) = (vec![0_usize; 2], vec![0_usize, 1]);
    let mut at = 0;
    for byte in beginning.iter().skip(1) {
        while at > 0 && beginning.get(at) != Some(byte) {
            at = shorter.get(at).copied().unwrap_or(0);
        }
        at += usize::from(beginning.get(at) == Some(byte));
        shorter.push(at);
        counts.push(counts.get(at).map_or(1, |count| count + 1));
    }
    let most = if beginning.is_empty() { 0 } else { counts.into_iter().max().unwrap_or(0) };
    most + 1
}

/// The beginnings of several words that a text may end with at once: of each length, the most that are equal.
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
    (1..longest).map(of_length).fold(0, usize::saturating_add)
}
