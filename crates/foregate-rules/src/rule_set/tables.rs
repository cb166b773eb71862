//! Tables that find all entries that enclose a value: beginnings of a text, ranges around an address.
//!
//! Two prefixes are either nested or disjoint, so the prefixes of a text are its longest one and those that it contains.
//! Ranges may overlap in part, and form a tree.

use std::cmp::Ordering;

use smallvec::SmallVec;

use super::Candidates;

/// The rules that one entry names.
pub(super) type Rules = SmallVec<[u32; 2]>;

/// No entry encloses this one.
const NONE: u32 = u32::MAX;

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(NONE)
}

/// For each entry, the entry that encloses it.
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

/// Beginnings of texts, or ends, read backwards.
#[derive(Debug)]
pub(super) struct Affixes {
    texts: Vec<Box<[u8]>>,
    nested: Enclosures,
    backwards: bool,
    /// A position that all texts have, and the bytes that any of them has there: most other texts have another byte.
    at: usize,
    bytes: [bool; 256],
}

impl Affixes {
    /// Each text once.
    pub(super) fn new(entries: impl IntoIterator<Item = (Box<[u8]>, Rules)>, backwards: bool) -> Self {
        let mut entries: Vec<_> = entries.into_iter().collect();
        if backwards {
            entries.iter_mut().for_each(|(text, _)| text.reverse());
        }
        entries.sort_unstable();
        let mut affixes =
            Self { texts: Vec::new(), nested: Enclosures::default(), backwards, at: 0, bytes: [false; 256] };
        // The last that all have: beginnings are often the same.
        affixes.at = entries.iter().map(|(text, _)| text.len()).min().unwrap_or(0).saturating_sub(1);
        for (text, _) in &entries {
            // An empty prefix begins every text.
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

    /// How many bytes the two share, from the beginning or from the end.
    fn shared(&self, affix: &[u8], text: &[u8]) -> usize {
        let same = |(left, right): &(&u8, &u8)| left == right;
        match self.backwards {
            true => affix.iter().zip(text.iter().rev()).take_while(same).count(),
            false => affix.iter().zip(text).take_while(same).count(),
        }
    }

    /// Returns true if a text may begin or end with one of them.
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
        // The longest prefix of the text is the last entry up to it in order, or a prefix of that entry: those are nested,
        // so that their length decides if they are prefixes of the text.
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

/// Ranges of addresses of one family, which may overlap as they like.
///
/// A tree over the ranges in order: the one in the middle of a slice is the root of it, the halves beside it are below.
#[derive(Debug)]
pub(super) struct Ranges<N>(Vec<Range<N>>);

#[derive(Debug)]
struct Range<N> {
    first: N,
    last: N,
    /// The last address of this range and of those below it.
    reach: N,
    rule: u32,
}

impl<N: Ord + Copy> Ranges<N> {
    /// From first address, last address, and the rule.
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

/// The halves beside the root of a slice. No deeper than there are bits in its length.
fn halves<T>(slice: &[T]) -> Option<(&[T], &T, &[T])> {
    let (below, rest) = slice.split_at(slice.len() / 2);
    rest.split_first().map(|(root, above)| (below, root, above))
}

/// Fills in how far each root reaches, and says so of the topmost.
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
