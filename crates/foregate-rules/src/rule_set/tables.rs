//! Tables that find all entries that enclose a value: beginnings of a text, networks of an address.
//!
//! Both have the property that two entries either lie one within the other or apart, so that the entries around a value
//! are the innermost one and those around that.

use std::cmp::Ordering;

use smallvec::SmallVec;

use super::Candidates;
use crate::sets::IpRange;

/// The rules that one entry names.
pub(super) type Rules = SmallVec<[u32; 2]>;

/// No entry encloses this one.
const NONE: u32 = u32::MAX;

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(NONE)
}

/// Which entries enclose which.
#[derive(Debug, Default)]
struct Nested {
    rules: Vec<Rules>,
    parents: Vec<u32>,
}

impl Nested {
    /// All rules of an entry and of those around it.
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
    nested: Nested,
    backwards: bool,
    /// A position that all texts have, and the bytes that stand there in any of them: what most others lack.
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
            Self { texts: Vec::new(), nested: Nested::default(), backwards, at: 0, bytes: [false; 256] };
        // The last that all have: beginnings are often the same.
        affixes.at = entries.iter().map(|(text, _)| text.len()).min().unwrap_or(0).saturating_sub(1);
        for (text, _) in &entries {
            // An empty one begins every text.
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

    /// Whether a text may begin or end with one of them.
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
        // The longest that begins the text is the last one up to it in order, or one around that: those are beginnings of
        // it, so that how long they are says whether they are beginnings of the text.
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

/// Networks of addresses of one family.
#[derive(Debug)]
pub(super) struct Networks<N> {
    /// Where another network becomes the innermost one, in order.
    starts: Vec<N>,
    /// Which one that is from there on.
    innermost: Vec<u32>,
    nested: Nested,
}

impl<N: Ord + Copy> Networks<N> {
    /// The ranges are taken apart into networks.
    pub(super) fn new(ranges: &[(IpRange, u32)], width: u32, narrow: impl Fn(u128) -> N) -> Self {
        let mut networks: Vec<(u128, u128, u32)> = Vec::new();
        for (range, rule) in ranges {
            networks.extend(split(*range, width).map(|(first, last)| (first, last, *rule)));
        }
        networks.sort_unstable_by_key(|&(first, last, rule)| (first, u128::MAX - last, rule));
        let mut table = Self { starts: Vec::new(), innermost: Vec::new(), nested: Nested::default() };
        // Those around the place at hand: where they end, and their entry.
        let mut around: Vec<(u128, u32)> = Vec::new();
        let mut before = None;
        for (first, last, rule) in networks {
            if before == Some((first, last)) {
                if let Some(rules) = table.nested.rules.last_mut() {
                    rules.push(rule);
                }
                continue;
            }
            before = Some((first, last));
            table.leave(&mut around, Some(first), &narrow);
            let entry = number(table.nested.rules.len());
            table.nested.parents.push(around.last().map_or(NONE, |(_, entry)| *entry));
            table.nested.rules.push(Rules::from_slice(&[rule]));
            around.push((last, entry));
            table.begin(narrow(first), entry);
        }
        table.leave(&mut around, None, &narrow);
        table
    }

    /// Ends the networks that end before `next`, or all.
    fn leave(&mut self, around: &mut Vec<(u128, u32)>, next: Option<u128>, narrow: &impl Fn(u128) -> N) {
        while let Some((last, _)) = around.pop_if(|(last, _)| next.is_none_or(|next| *last < next)) {
            let outer = around.last().map_or(NONE, |(_, entry)| *entry);
            // Behind the last address of the family nothing begins.
            if let Some(behind) = last.checked_add(1)
                && narrow(behind) > narrow(last)
            {
                self.begin(narrow(behind), outer);
            }
        }
    }

    fn begin(&mut self, start: N, entry: u32) {
        if self.starts.last() == Some(&start) {
            self.innermost.pop();
        } else {
            self.starts.push(start);
        }
        self.innermost.push(entry);
    }

    pub(super) fn find(&self, address: N, found: &mut Candidates) {
        let after = self.starts.partition_point(|start| *start <= address);
        if let Some(entry) = after.checked_sub(1).and_then(|at| self.innermost.get(at)) {
            self.nested.collect(*entry, found);
        }
    }
}

/// The fewest networks that make up a range, as first and last address.
fn split(range: IpRange, width: u32) -> impl Iterator<Item = (u128, u128)> {
    let mut next = Some(range.first);
    std::iter::from_fn(move || {
        let first = next.filter(|first| *first <= range.last)?;
        let mut bits = first.trailing_zeros().min(width);
        let end = |bits: u32| first | u128::MAX.checked_shr(128 - bits).unwrap_or(0);
        while end(bits) > range.last {
            bits -= 1;
        }
        let last = end(bits);
        next = last.checked_add(1);
        Some((first, last))
    })
}
