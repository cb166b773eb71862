//! The worst-case cost of a regular expression.
//!
//! Matching takes time in proportion to the length of the text for any expression, but with a factor: the number of active
//! positions, which wait for the next byte, since an automaton with one step for all of them may be
//! too large to keep. `a[ab]{5000}c` has thousands, and takes 39 us for each byte.

use std::collections::{BTreeMap, HashMap, VecDeque};

use regex_syntax::hir::{Class, Hir, HirKind, Look, Repetition};

use crate::limits::MAX_POSITIONS;

/// Returns true if each byte of any text takes little time.
pub(crate) fn is_bounded(hir: &Hir) -> bool {
    active(hir) <= MAX_POSITIONS
}

/// At most this many positions of an expression are active at once, wherever in a text a match begins.
fn active(hir: &Hir) -> usize {
    if let Some(word) = word(hir) {
        return active_of_word(word);
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

/// How often a repetition is written out.
fn times(repetition: &Repetition) -> usize {
    repetition.max.unwrap_or(repetition.min.max(1)) as usize
}

fn is_start(hir: &Hir) -> bool {
    matches!(hir.kind(), HirKind::Look(Look::Start))
}

/// Returns true for a repetition of one byte: if it can begin at one place only, the number of bytes so far determines the
/// active position.
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
            length => (active_of_word(words.concat()), rest.get(length..).unwrap_or_default()),
        };
        (sum, rest) = (sum.saturating_add(count), left);
    }
    sum
}

fn active_in_any(parts: &[Hir]) -> usize {
    // These are compiled to a tree, which has one position for each length of the preceding match.
    if parts.iter().all(|part| matches!(part.kind(), HirKind::Literal(_))) {
        return parts.iter().filter_map(word).map(|word| word.len()).max().unwrap_or(0);
    }
    let (mut fixed, mut sum) = (Vec::new(), 0_usize);
    for part in parts {
        match FixedLength::of(part) {
            Some(part) => fixed.push(part),
            None => sum = sum.saturating_add(active(part)),
        }
    }
    // All alternatives wait for their first byte.
    sum.saturating_add(fixed.len()).saturating_add(active_within(&fixed))
}

/// An expression of which each match has the same length.
struct FixedLength {
    /// How it begins, but for the case of letters, up to the first byte that may be several.
    word: Vec<u8>,
    length: usize,
}

impl FixedLength {
    fn of(hir: &Hir) -> Option<Self> {
        if let Some(word) = word(hir) {
            return Some(Self { length: word.len(), word });
        }
        match hir.kind() {
            HirKind::Class(Class::Bytes(_)) => Some(Self { word: Vec::new(), length: 1 }),
            HirKind::Look(_) => Some(Self { word: Vec::new(), length: 0 }),
            HirKind::Capture(capture) => Self::of(&capture.sub),
            HirKind::Concat(parts) => {
                let mut all = Self { word: Vec::new(), length: 0 };
                for part in parts {
                    let part = Self::of(part)?;
                    if all.word.len() == all.length {
                        all.word.extend(part.word);
                    }
                    all.length += part.length;
                }
                Some(all)
            }
            _ => None,
        }
    }
}

/// Of one word: the position before its first byte, and those after beginnings of it.
fn active_of_word(word: Vec<u8>) -> usize {
    let length = word.len();
    if length == 0 { 0 } else { 1 + active_within(&[FixedLength { word, length }]) }
}

/// The positions after the first byte of any of these that can be active at once.
fn active_within(all: &[FixedLength]) -> usize {
    let words =
        all.iter().map(|fixed| fixed.word.get(..fixed.length.saturating_sub(1)).unwrap_or(&fixed.word));
    let longest = all.iter().map(|fixed| fixed.length).max().unwrap_or(0);
    // For each length, the alternatives after words that are equal as far as both go.
    let behind = |length: usize| {
        let mut counts: HashMap<&[u8], usize> = HashMap::new();
        for fixed in all.iter().filter(|fixed| fixed.word.len() < length && length < fixed.length) {
            *counts.entry(&fixed.word).or_default() += 1;
        }
        let compatible = |word: &&[u8]| -> usize {
            (0..=word.len()).filter_map(|length| counts.get(word.get(..length)?)).sum()
        };
        counts.keys().map(compatible).max().unwrap_or(0)
    };
    (1..longest).map(behind).fold(most_at_an_end(words), usize::saturating_add)
}

/// The most prefixes of these words with which one text can end; a prefix counts for each word that has it.
///
/// The longest of them is a node of the tree of all words, and the shorter ones are those that end it (Aho and Corasick's
/// failure links).
fn most_at_an_end<'w>(words: impl Iterator<Item = &'w [u8]>) -> usize {
    #[derive(Default)]
    struct CostNode {
        children: BTreeMap<u8, usize>,
        shorter: usize,
        count: usize,
    }
    let mut nodes = vec![CostNode::default()];
    for word in words {
        let mut at = 0;
        for byte in word {
            let new = nodes.len();
            let next = *nodes[at].children.entry(*byte).or_insert(new);
            if next == new {
                nodes.push(CostNode::default());
            }
            nodes[next].count += 1;
            at = next;
        }
    }
    let mut most = 0;
    let mut queue = VecDeque::from([0]);
    while let Some(at) = queue.pop_front() {
        for (byte, child) in nodes[at].children.clone() {
            let mut shorter = nodes[at].shorter;
            while at != 0 && shorter != 0 && !nodes[shorter].children.contains_key(&byte) {
                shorter = nodes[shorter].shorter;
            }
            let shorter = nodes[shorter].children.get(&byte).copied().filter(|_| at != 0).unwrap_or(0);
            nodes[child].shorter = shorter;
            nodes[child].count += nodes[shorter].count;
            most = most.max(nodes[child].count);
            queue.push_back(child);
        }
    }
    most
}

/// The text that an expression matches, regardless of case.
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
