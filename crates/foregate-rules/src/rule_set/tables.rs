//! Tables that find all entries that enclose a value: the prefixes of a text, or the ranges around an address.
//!
//! Of two entries that are prefixes of the same text, one is a prefix of the other. If the longest such entry is found,
//! the others are therefore known too: they are its prefixes. Ranges of addresses may overlap in part, and form a tree.

use std::cmp::Ordering;

use smallvec::SmallVec;

use super::Candidates;

/// The rules that one entry names.
pub(super) type Rules = SmallVec<[u32; 2]>;

/// Marks an entry that is enclosed by no other entry.
const NONE: u32 = u32::MAX;

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(NONE)
}

/// The rules of each entry, and the entry that directly encloses it.
#[derive(Debug, Default)]
struct Enclosures {
    rules: Vec<Rules>,
    parents: Vec<u32>,
}

impl Enclosures {
    /// Adds all rules of an entry and of the entries around it.
    fn collect(&self, innermost: u32, found: &mut Candidates) {
        let mut at = innermost;
        while let Some(rules) = self.rules.get(at as usize) {
            found.extend_from_slice(rules);
            at = self.parents.get(at as usize).copied().unwrap_or(NONE);
        }
    }
}

/// A table of prefixes, or of suffixes, which are stored backwards.
#[derive(Debug)]
pub(super) struct Affixes {
    texts: Vec<Box<[u8]>>,
    nested: Enclosures,
    backwards: bool,
    /// A position that lies within every entry; `bytes` marks the bytes that the entries have at it. A text with
    /// another byte there, as most texts have, matches no entry and is not looked up.
    at: usize,
    bytes: [bool; 256],
}

impl Affixes {
    /// Makes a table. Each text may occur only once among the entries.
    pub(super) fn new(entries: impl IntoIterator<Item = (Box<[u8]>, Rules)>, backwards: bool) -> Self {
        let mut entries: Vec<_> = entries.into_iter().collect();
        if backwards {
            entries.iter_mut().for_each(|(text, _)| text.reverse());
        }
        entries.sort_unstable();
        let mut affixes =
            Self { texts: Vec::new(), nested: Enclosures::default(), backwards, at: 0, bytes: [false; 256] };
        // The last position that all entries have, because their beginnings are often equal.
        affixes.at = entries.iter().map(|(text, _)| text.len()).min().unwrap_or(0).saturating_sub(1);
        for (text, _) in &entries {
            // An entry without this position is empty, and every text begins with it.
            match text.get(affixes.at) {
                Some(byte) => affixes.bytes[usize::from(*byte)] = true,
                None => affixes.bytes = [true; 256],
            }
        }
        let mut around: Vec<u32> = Vec::new();
        for (text, rules) in entries {
            while around.last().is_some_and(|&last| !text.starts_with(&affixes.texts[last as usize])) {
                around.pop();
            }
            affixes.nested.parents.push(around.last().copied().unwrap_or(NONE));
            around.push(number(affixes.texts.len()));
            affixes.texts.push(text);
            affixes.nested.rules.push(rules);
        }
        affixes
    }

    fn order(&self, affix: &[u8], text: &[u8]) -> Ordering {
        if self.backwards { affix.iter().cmp(text.iter().rev()) } else { affix.cmp(text) }
    }

    /// The number of equal bytes of an entry and a text, from the beginning or, for suffixes, from the end.
    fn shared(&self, affix: &[u8], text: &[u8]) -> usize {
        let same = |(left, right): &(&u8, &u8)| left == right;
        match self.backwards {
            true => affix.iter().zip(text.iter().rev()).take_while(same).count(),
            false => affix.iter().zip(text).take_while(same).count(),
        }
    }

    /// Returns true if a text may begin (or end) with one of the entries.
    #[inline]
    fn may_fit(&self, text: &[u8]) -> bool {
        let at = if self.backwards { text.len().checked_sub(self.at + 1) } else { Some(self.at) };
        let byte = at.and_then(|at| text.get(at));
        byte.map_or(self.at == 0, |byte| self.bytes[usize::from(*byte)])
    }

    pub(super) fn find(&self, text: &[u8], found: &mut Candidates) {
        if !self.may_fit(text) {
            return;
        }
        // Let E be the last entry that is not greater than the text. The longest prefix of the text is E or a prefix
        // of E. A prefix of E is a prefix of the text if it is no longer than the part that E shares with the text.
        let after = self.texts.partition_point(|affix| self.order(affix, text) != Ordering::Greater);
        let mut at = after.checked_sub(1).map_or(NONE, number);
        let Some(shared) = self.texts.get(at as usize).map(|affix| self.shared(affix, text)) else {
            return;
        };
        while let Some(affix) = self.texts.get(at as usize) {
            if affix.len() <= shared {
                return self.nested.collect(at, found);
            }
            at = self.nested.parents.get(at as usize).copied().unwrap_or(NONE);
        }
    }
}

/// Ranges of addresses of one family, which may overlap in any way.
///
/// The sorted slice of ranges is a tree: the range in the middle is the root, and the halves on both sides are its
/// subtrees.
#[derive(Debug)]
pub(super) struct Ranges<N>(Vec<Range<N>>);

#[derive(Debug)]
struct Range<N> {
    first: N,
    last: N,
    /// The greatest last address of this range and the ranges in its subtrees.
    reach: N,
    rule: u32,
}

impl<N: Ord + Copy> Ranges<N> {
    /// Makes a tree of ranges. Each has a first address, a last address and a rule.
    pub(super) fn new(ranges: impl IntoIterator<Item = (N, N, u32)>) -> Self {
        let ranges = ranges.into_iter().map(|(first, last, rule)| Range { first, last, reach: last, rule });
        let mut ranges: Vec<_> = ranges.collect();
        ranges.sort_unstable_by_key(|range| range.first);
        reach(&mut ranges);
        Self(ranges)
    }

    pub(super) fn find(&self, address: N, found: &mut Candidates) {
        around(&self.0, address, found);
    }
}

/// The root of a slice, and the halves on both sides of it. The tree's depth is the number of binary digits in the
/// slice's length.
fn halves<T>(slice: &[T]) -> Option<(&[T], &T, &[T])> {
    let (below, rest) = slice.split_at(slice.len() / 2);
    rest.split_first().map(|(root, above)| (below, root, above))
}

/// Fills in `reach` for all ranges of a slice, and returns that of the root.
fn reach<N: Ord + Copy>(ranges: &mut [Range<N>]) -> Option<N> {
    let (below, rest) = ranges.split_at_mut(ranges.len() / 2);
    let (root, above) = rest.split_first_mut()?;
    let halves = [reach(below), reach(above)];
    root.reach = halves.into_iter().flatten().fold(root.last, N::max);
    Some(root.reach)
}

fn around<N: Ord + Copy>(ranges: &[Range<N>], address: N, found: &mut Candidates) {
    let mut rest = ranges;
    while let Some((below, root, above)) = halves(rest) {
        if root.reach < address {
            return;
        }
        if root.first > address {
            rest = below;
            continue;
        }
        around(below, address, found);
        if address <= root.last {
            found.push(root.rule);
        }
        rest = above;
    }
}
