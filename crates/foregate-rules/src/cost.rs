//! The worst-case cost of a regular expression.
//!
//! The time of a match is proportional to the length of the text for any expression. But it is also proportional to the
//! number of active positions in the expression: those that may match the next byte. (An automaton that handles all of
//! them in one step may be too large to keep.) `a[ab]{5000}c` has thousands, and takes 39 us for each byte.

use std::collections::{BTreeMap, HashMap, VecDeque};

use regex_syntax::hir::{Class, Hir, HirKind, Look, Repetition};

use crate::limits::MAX_POSITIONS;

/// Returns true if matching takes little time for each byte of any text.
pub(crate) fn is_bounded(hir: &Hir) -> bool {
    active(hir) <= MAX_POSITIONS
}

/// An upper bound for the number of positions of an expression that are active at once, if a match may begin anywhere
/// in the text.
fn active(hir: &Hir) -> usize {
    if let Some(word) = word(hir) {
        return active_of_word(word);
    }
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 0,
        HirKind::Literal(_) | HirKind::Class(_) => 1,
        HirKind::Repetition(repetition) => {
            // Even if the repeated part is empty, each repetition has a position.
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

/// The number of copies of a repeated part in the compiled expression.
fn times(repetition: &Repetition) -> usize {
    repetition.max.unwrap_or(repetition.min.max(1)) as usize
}

fn is_start(hir: &Hir) -> bool {
    matches!(hir.kind(), HirKind::Look(Look::Start))
}

/// Returns true for a repetition of a single byte. If such a repetition can begin at only one place in the text, it
/// has only one active position, which is given by the number of bytes so far.
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
    // Literal alternatives are compiled to a tree of prefixes. At most one position for each prefix length is active.
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
    // `fixed.len()` counts the first position of each alternative, which is always active.
    sum.saturating_add(fixed.len()).saturating_add(active_within(&fixed))
}

/// An expression with matches that all have the same length.
struct FixedLength {
    /// The fixed beginning of each match in lower case, up to the first byte that may vary.
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

/// The active positions of one word: the one before its first byte, and those within the word.
fn active_of_word(word: Vec<u8>) -> usize {
    let length = word.len();
    if length == 0 { 0 } else { 1 + active_within(&[FixedLength { word, length }]) }
}

/// The number of positions that can be active at once within these expressions, after their first bytes.
fn active_within(all: &[FixedLength]) -> usize {
    let words =
        all.iter().map(|fixed| fixed.word.get(..fixed.length.saturating_sub(1)).unwrap_or(&fixed.word));
    let longest = all.iter().map(|fixed| fixed.length).max().unwrap_or(0);
    // The most expressions that can be active together after `length` bytes, and are past their words by then. Of
    // any two of them, the word of one is a prefix of the word of the other.
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

/// The greatest number of prefixes of these words that can all be at the end of one text. A prefix of several words
/// counts once for each.
///
/// The longest such prefix is a node in the tree of all words. The shorter ones are the suffixes of it that are
/// nodes, too, and follow from Aho and Corasick's failure links.
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

/// The text that an expression matches, in lower case; `None` if it matches other texts, too, apart from case.
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
