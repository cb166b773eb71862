//! Routes, and the sets of them that sites have.
//!
//! A small set is a sequence of bytes: its patterns, which are compared one after the other, and their
//! routes. It takes one or two cache lines, while the nodes of a tree would take five or more. A large
//! set has a tree.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::conditional::{Conditional, ConditionalRoute, RouteOrder};
use super::path::{PathMatcher, PathPattern, Unreachable};
use super::store::CompactTable;
use crate::settings::Route;

/// The most patterns of a small set.
const SMALL: usize = 8;
/// The longest pattern of a small set, bytes: the range of its length field.
const SMALL_PATTERN: usize = LENGTH as usize;
/// Marks a large set, in place of the number of patterns; the index of the set follows.
const IS_LARGE: u8 = u8::MAX;

/// The size of a cache line, bytes.
const CACHE_LINE: usize = 64;

/// The bytes that a small set has for each pattern in addition to its text: length and kind, and the
/// route.
const HEAD: usize = 6;
/// The bits for the length of a pattern's text, without `/**` at its end.
const LENGTH: u16 = 0x3fff;
/// The pattern ends with `/**`.
const REST: u16 = 0x4000;
/// The pattern has `*` for a segment.
const STARS: u16 = 0x8000;

/// The routes of a site, as a position in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteSet(u32);

/// A route, as an index into the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RouteId(u32);

impl RouteSet {
    /// The set without routes, which every table has.
    pub(super) const EMPTY: Self = Self(0);
}

/// All routes of a configuration, and the sets of routes that its sites have.
#[derive(Debug)]
pub(super) struct RouteTable {
    routes: Vec<Arc<Route>>,
    sets: CompactTable<u8>,
    large: Vec<LargeSet>,
}

#[derive(Debug)]
struct LargeSet {
    matcher: Arc<PathMatcher>,
    routes: Box<[RouteId]>,
}

impl Default for RouteTable {
    fn default() -> Self {
        Self { routes: Vec::new(), sets: vec![0].into(), large: Vec::new() }
    }
}

impl RouteTable {
    /// All routes, each once.
    pub(super) fn routes(&self) -> &[Arc<Route>] {
        &self.routes
    }

    /// The route of a set for a normalised path.
    #[inline]
    pub(super) fn find(&self, set: RouteSet, path: &[u8]) -> Option<&Arc<Route>> {
        let found = match self.set(set) {
            Set::Small(small) => small.find(path)?,
            Set::Large(large) => large.routes[large.matcher.find(path)?],
        };
        self.routes.get(found.0 as usize)
    }

    /// The route of a set for a normalised path, and its position in the order of trial.
    pub(super) fn find_at(&self, set: RouteSet, path: &[u8]) -> Option<(RouteOrder, &Arc<Route>)> {
        let route = self.find(set, path)?;
        let is_it = |id: RouteId| self.get(id).is_some_and(|other| Arc::ptr_eq(other, route));
        let before = self.all(set).position(is_it)?;
        Some((RouteOrder { is_wild: route.pattern.contains('*'), before }, route))
    }

    /// A route.
    pub(super) fn get(&self, route: RouteId) -> Option<&Arc<Route>> {
        self.routes.get(route.0 as usize)
    }

    /// Makes the processor fetch a set that will be needed, without waiting for it.
    #[inline]
    pub(super) fn fetch(&self, set: RouteSet) {
        // Safe code has no prefetch, but a load with an unused value delays nothing.
        let at = set.0 as usize;
        for at in [at, at + CACHE_LINE] {
            std::hint::black_box(self.sets.get(at).copied());
        }
    }

    /// The routes of a set, in the order of the file.
    pub(super) fn all(&self, set: RouteSet) -> impl Iterator<Item = RouteId> {
        let (heads, large) = match self.set(set) {
            Set::Small(small) => (small.heads, &[][..]),
            Set::Large(large) => (&[][..], &*large.routes),
        };
        heads.iter().map(|head| head_of(head).1).chain(large.iter().copied())
    }

    #[inline]
    fn set(&self, set: RouteSet) -> Set<'_> {
        let (count, rest) =
            self.sets[set.0 as usize..].split_first().expect("a set begins with the number of its patterns");
        if *count == IS_LARGE {
            let index = rest.first_chunk().expect("a large set has an index");
            return Set::Large(&self.large[u32::from_le_bytes(*index) as usize]);
        }
        let (heads, texts) = rest.split_at(usize::from(*count) * HEAD);
        Set::Small(SmallSet { heads: heads.as_chunks().0, texts })
    }
}

enum Set<'t> {
    Small(SmallSet<'t>),
    Large(&'t LargeSet),
}

/// A set of patterns that are compared in turn.
struct SmallSet<'t> {
    heads: &'t [[u8; HEAD]],
    /// The concatenated texts of the patterns, without `/**`.
    texts: &'t [u8],
}

#[inline]
fn head_of(head: &[u8; HEAD]) -> (u16, RouteId) {
    let [a, b, route @ ..] = *head;
    (u16::from_le_bytes([a, b]), RouteId(u32::from_le_bytes(route)))
}

impl SmallSet<'_> {
    #[inline]
    fn find(&self, path: &[u8]) -> Option<RouteId> {
        let mut best = None;
        let mut texts = self.texts;
        for head in self.heads {
            let (bits, route) = head_of(head);
            let (text, rest) = texts.split_at(usize::from(bits & LENGTH));
            texts = rest;
            if bits & (REST | STARS) == 0 {
                if text == path {
                    return Some(route);
                }
            } else if best.is_none() && takes(text, bits, path) {
                best = Some(route);
            }
        }
        best
    }
}

/// Returns true if a pattern with wildcards matches a path.
#[inline]
fn takes(text: &[u8], bits: u16, path: &[u8]) -> bool {
    if path.first() != Some(&b'/') {
        return bits & REST != 0 && text.is_empty();
    }
    if bits & STARS != 0 {
        return covers(text, bits & REST != 0, path, false);
    }
    path.strip_prefix(text).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

impl PathPattern {
    /// Returns true if this pattern matches a normalised path.
    pub(super) fn takes(&self, path: &[u8]) -> bool {
        if self.is_literal() {
            return self.as_str().as_bytes() == path;
        }
        let (text, rest) = self.parts();
        let stars = text.split('/').any(|segment| segment == "*");
        let bits = if rest { REST } else { 0 } | if stars { STARS } else { 0 };
        takes(text.as_bytes(), bits, path)
    }
}

/// Returns true if `earlier` makes `later` unreachable, because `earlier` matches all paths of `later`.
/// Patterns without wildcards are tried before all others.
pub(super) fn hides(earlier: &PathPattern, later: &PathPattern) -> bool {
    if later.is_literal() || earlier.is_literal() {
        return later == earlier;
    }
    let ((earlier, open), (text, rest)) = (earlier.parts(), later.parts());
    covers(earlier.as_bytes(), open, text.as_bytes(), rest)
}

/// Returns true if the pattern `text` matches every path that `other` matches; `other` may also be a path.
/// `open` and `other_open` are true for a pattern that ended with `/**`.
fn covers(text: &[u8], open: bool, other: &[u8], other_open: bool) -> bool {
    let mut segments = text.split(|byte| *byte == b'/').skip(1);
    let mut others = other.split(|byte| *byte == b'/').skip(1);
    loop {
        match (segments.next(), others.next()) {
            (Some(b"*"), Some(other)) if !other.is_empty() => {}
            (Some(segment), Some(other)) if segment == other && segment != b"*" => {}
            (None, None) => return open || !other_open,
            (None, Some(_)) => return open,
            _ => return false,
        }
    }
}

/// Builds a [`RouteTable`]. Equal routes, sets and matchers are stored once.
#[derive(Debug, Default)]
pub(super) struct RouteTableBuilder {
    table: RouteTable,
    hash: RandomState,
    /// The routes by their hashes. If two different routes have the same hash, the second is not
    /// shared.
    routes: HashMap<u64, RouteId, RandomState>,
    sets: HashMap<u64, RouteSet, RandomState>,
    matchers: HashMap<Box<[PathPattern]>, Arc<PathMatcher>, RandomState>,
}

impl RouteTableBuilder {
    /// Adds a route, or returns an equal one that exists already.
    pub(super) fn route(&mut self, route: Route) -> RouteId {
        let hash = self.hash.hash_one(&route);
        if let Some(known) = self.routes.get(&hash)
            && *self.table.routes[known.0 as usize] == route
        {
            return *known;
        }
        let id = RouteId(super::narrow(self.table.routes.len()));
        self.table.routes.push(Arc::new(route));
        self.routes.entry(hash).or_insert(id);
        id
    }

    /// Compiles routes, each with its pattern: those without conditions into a set, the others into a
    /// list.
    pub(super) fn all_of(
        &mut self,
        routes: Vec<(PathPattern, RouteId)>,
    ) -> Result<(RouteSet, Conditional), Vec<Unreachable>> {
        let conditions = |id: RouteId| self.table.get(id).and_then(|route| route.conditions.clone());
        let all: Vec<_> = routes.into_iter().map(|(pattern, id)| (pattern, id, conditions(id))).collect();
        let is_plain =
            |number: &usize| all.get(*number).is_some_and(|(_, _, conditions)| conditions.is_none());
        let plain: Vec<usize> = (0..all.len()).filter(is_plain).collect();
        let conditional = ConditionalRoute::order(&all);
        let patterns: Vec<_> = plain.iter().map(|number| all[*number].0.clone()).collect();
        let ids: Vec<_> = plain.iter().map(|number| all[*number].1).collect();
        // Translates indices among the routes without conditions into indices among all routes.
        let among_all = |found: Unreachable| Unreachable { index: plain[found.index], by: plain[found.by] };
        match (self.set(&patterns, &ids), conditional) {
            (Ok(set), Ok(conditional)) => Ok((set, conditional)),
            (set, conditional) => {
                let of_plain = set.err().into_iter().flatten().map(among_all);
                let mut unreachable: Vec<_> =
                    of_plain.chain(conditional.err().into_iter().flatten()).collect();
                unreachable.sort_unstable_by_key(|found| found.index);
                Err(unreachable)
            }
        }
    }

    /// Compiles routes, each with its pattern.
    fn set(&mut self, patterns: &[PathPattern], routes: &[RouteId]) -> Result<RouteSet, Vec<Unreachable>> {
        if routes.is_empty() {
            return Ok(RouteSet::EMPTY);
        }
        let hash = self.hash.hash_one(routes);
        if let Some(known) = self.sets.get(&hash)
            && self.table.all(*known).eq(routes.iter().copied())
        {
            return Ok(*known);
        }
        let set = RouteSet(super::narrow(self.table.sets.len()));
        let small = patterns.len() <= SMALL && patterns.iter().all(|p| p.as_str().len() <= SMALL_PATTERN);
        if small {
            self.push_small(patterns, routes)?;
        } else {
            self.push_large(patterns, routes)?;
        }
        self.sets.entry(hash).or_insert(set);
        Ok(set)
    }

    /// The finished table.
    pub(super) fn build(mut self) -> RouteTable {
        self.table.routes.shrink_to_fit();
        self.table.sets.settle();
        self.table
    }

    fn push_small(&mut self, patterns: &[PathPattern], routes: &[RouteId]) -> Result<(), Vec<Unreachable>> {
        let unreachable = unreachable(patterns);
        if !unreachable.is_empty() {
            return Err(unreachable);
        }
        let sets = self.table.sets.growing();
        sets.push(patterns.len() as u8);
        for (pattern, route) in patterns.iter().zip(routes) {
            let (text, rest) = pattern.parts();
            let stars = text.split('/').any(|segment| segment == "*");
            let bits = text.len() as u16 | if rest { REST } else { 0 } | if stars { STARS } else { 0 };
            sets.extend_from_slice(&bits.to_le_bytes());
            sets.extend_from_slice(&route.0.to_le_bytes());
        }
        for pattern in patterns {
            sets.extend_from_slice(pattern.parts().0.as_bytes());
        }
        Ok(())
    }

    fn push_large(&mut self, patterns: &[PathPattern], routes: &[RouteId]) -> Result<(), Vec<Unreachable>> {
        let matcher = match self.matchers.get(patterns) {
            Some(matcher) => matcher.clone(),
            None => {
                let mut unreachable = Vec::new();
                let matcher = Arc::new(PathMatcher::compile(patterns, &mut unreachable));
                if !unreachable.is_empty() {
                    return Err(unreachable);
                }
                self.matchers.insert(patterns.into(), matcher.clone());
                matcher
            }
        };
        let sets = self.table.sets.growing();
        sets.push(IS_LARGE);
        sets.extend_from_slice(&super::narrow(self.table.large.len()).to_le_bytes());
        self.table.large.push(LargeSet { matcher, routes: routes.into() });
        Ok(())
    }
}

/// The unreachable patterns of a small set, as [`PathMatcher::compile`] would report them.
fn unreachable(patterns: &[PathPattern]) -> Vec<Unreachable> {
    let mut unreachable = Vec::new();
    for (index, later) in patterns.iter().enumerate() {
        let by = patterns[..index].iter().position(|earlier| hides(earlier, later));
        unreachable.extend(by.map(|by| Unreachable { index, by }));
    }
    unreachable
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn small_and_large_sets_agree(
            texts in prop::collection::vec("(/(a|b|\\*|)){0,4}(/\\*\\*|/|/c)", 0..=SMALL),
            paths in prop::collection::vec("(/(a|b|c|\\*|)){0,5}", 1..20),
        ) {
            let patterns: Vec<PathPattern> = texts.iter().map(|text| text.parse().unwrap()).collect();
            let mut by_tree = Vec::new();
            let tree = PathMatcher::compile(&patterns, &mut by_tree);
            prop_assert_eq!(unreachable(&patterns), by_tree.clone());
            let mut builder = RouteTableBuilder::default();
            let routes: Vec<RouteId> = (0..patterns.len() as u32).map(RouteId).collect();
            if by_tree.is_empty() && builder.push_small(&patterns, &routes).is_ok() {
                let Set::Small(small) = builder.table.set(RouteSet(1)) else { unreachable!() };
                for path in &paths {
                    let expected = tree.find(path.as_bytes()).map(|index| RouteId(index as u32));
                    prop_assert_eq!(small.find(path.as_bytes()), expected, "{} in {:?}", path, texts);
                }
            }
        }
    }
}
