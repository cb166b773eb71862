//! Path patterns, and the matcher that a site's patterns are compiled into.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use foregate_wire::{Slashes, TargetError, normalize_path};

use super::trie::{Node, ROOT, Trie};

/// The most segments of a pattern.
const SEGMENTS_LIMIT: usize = 64;

/// The label of `*` in the trie: a slash, which no segment of a path contains.
const STAR: &[u8] = b"/";

/// No route.
const NONE: u32 = u32::MAX;

/// A pattern for the paths of a route.
///
/// - `/a/b` matches exactly that path;
/// - `*` in place of a segment matches any one segment that is not empty: `/users/*/posts`;
/// - `/**` at the end matches the rest, however deep: `/static/**` matches `/static`, `/static/` and
///   everything below.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathPattern(Arc<str>);

/// A text that is not a path pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathPatternError {
    /// The pattern does not begin with a slash.
    #[error("a pattern starts with `/`")]
    NoSlash,
    /// The pattern has `**` before its end.
    #[error("`**` stands at the end, after a slash: `/static/**`")]
    InnerRest,
    /// The pattern has `*` as a part of a segment.
    #[error("`*` stands for one whole segment: `/users/*/posts`")]
    PartialStar,
    /// The pattern has a query or fragment.
    #[error("a path is matched without its query and fragment")]
    Query,
    /// The pattern is not in the normal form into which the paths of requests are brought.
    #[error("a path is matched in its normal form, which is `{0}` here")]
    NotNormal(String),
    /// The text is not a valid path, also not after normalisation.
    #[error("this is not a path: {0}")]
    NotAPath(TargetError),
    /// The pattern has too many segments.
    #[error("a pattern has at most 64 segments")]
    TooLong,
}

impl FromStr for PathPattern {
    type Err = PathPatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rest = text.strip_prefix('/').ok_or(PathPatternError::NoSlash)?;
        if rest.split('/').count() > SEGMENTS_LIMIT {
            return Err(PathPatternError::TooLong);
        }
        let mut segments = rest.split('/').peekable();
        while let Some(segment) = segments.next() {
            match segment {
                "**" if segments.peek().is_none() => {}
                "*" => {}
                _ if segment.contains("**") => return Err(PathPatternError::InnerRest),
                _ if segment.contains('*') => return Err(PathPatternError::PartialStar),
                _ if segment.contains(['?', '#']) => return Err(PathPatternError::Query),
                _ => {}
            }
        }
        let mut normal = Vec::with_capacity(text.len());
        normalize_path(text.as_bytes(), Slashes::Keep, &mut normal).map_err(PathPatternError::NotAPath)?;
        if normal != text.as_bytes() {
            return Err(PathPatternError::NotNormal(String::from_utf8_lossy(&normal).into_owned()));
        }
        Ok(Self(text.into()))
    }
}

impl PathPattern {
    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The shared text of the pattern.
    pub fn text(&self) -> &Arc<str> {
        &self.0
    }

    /// Returns true if the pattern has an empty segment before its end. No path matches it after duplicate
    /// slashes were merged.
    pub fn has_duplicate_slash(&self) -> bool {
        self.0.contains("//")
    }

    /// Returns true if some path matches both this pattern and `other`. `other` may have `*` for segments
    /// and `/**` at its end.
    pub fn meets(&self, other: &str) -> bool {
        let rest_of = |text: &str| text.ends_with("/**");
        let (rest, other_rest) = (rest_of(&self.0), rest_of(other));
        let segments = |text: &str| -> Vec<String> {
            let text = text.strip_suffix("/**").unwrap_or(text);
            text.split('/').skip(1).map(str::to_owned).collect()
        };
        let (ours, theirs) = (segments(&self.0), segments(other));
        let same =
            |(a, b): (&String, &String)| a == b || (a == "*" && !b.is_empty()) || (b == "*" && !a.is_empty());
        ours.iter().zip(&theirs).all(same)
            && (ours.len() == theirs.len()
                || (ours.len() < theirs.len() && rest)
                || (theirs.len() < ours.len() && other_rest))
    }

    /// The text without `/**` at its end, and true if it had this end.
    pub(super) fn parts(&self) -> (&str, bool) {
        match self.0.strip_suffix("/**") {
            Some(text) => (text, true),
            None => (&*self.0, false),
        }
    }

    /// The segments, and true if any further ones may follow.
    fn segments(&self) -> (impl Iterator<Item = &str>, bool) {
        let (text, rest) = self.parts();
        // `/**` has no segment; `/` has one, which is empty.
        (text.split('/').skip(1), rest)
    }

    /// Returns true if it has no wildcards.
    pub(super) fn is_literal(&self) -> bool {
        !self.0.contains('*')
    }
}

impl Borrow<str> for PathPattern {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The patterns that end at a node, as indices into the list of patterns.
#[derive(Debug, Clone, Copy)]
struct Ends {
    /// The pattern without wildcards that ends here.
    literal: u32,
    /// The first pattern with `*` that ends here.
    whole: u32,
    /// The first pattern with `/**` after this node.
    rest: u32,
    /// The node that `*` leads to.
    star: Node,
    /// The least index in `whole` and `rest` of this node and of all nodes below it.
    least: u32,
}

const NOTHING: Ends = Ends { literal: NONE, whole: NONE, rest: NONE, star: NONE, least: NONE };

/// The compiled patterns of a large set. A matching pattern without wildcards has precedence, then the
/// first matching pattern of the list.
///
/// A lookup takes one step per segment of the path. If a segment matches both a name and `*`, both
/// branches are tried. So the cost rises with the number of such segments, but never above the number of
/// nodes.
#[derive(Debug, Default)]
pub(super) struct PathMatcher {
    trie: Trie,
    ends: Vec<Ends>,
}

/// The report of a pattern that no request can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreachable {
    /// The index of the pattern.
    pub index: usize,
    /// The index of the earlier pattern that matches all its requests.
    pub by: usize,
}

impl PathMatcher {
    /// Compiles `patterns`. Reports unreachable ones in `unreachable`.
    pub(super) fn compile(patterns: &[PathPattern], unreachable: &mut Vec<Unreachable>) -> Self {
        let mut matcher = Self { trie: Trie::default(), ends: vec![NOTHING] };
        for (index, pattern) in patterns.iter().enumerate() {
            let segments: Vec<&[u8]> = pattern.segments().0.map(str::as_bytes).collect();
            let by = if pattern.is_literal() {
                NONE
            } else {
                matcher.covering(ROOT, &segments, pattern.segments().1)
            };
            if by != NONE {
                unreachable.push(Unreachable { index, by: by as usize });
            } else if let Err(by) = matcher.add(index as u32, pattern, &segments) {
                unreachable.push(Unreachable { index, by: by as usize });
            }
        }
        matcher.trie.shrink();
        matcher.ends.shrink_to_fit();
        matcher
    }

    /// The index of the pattern for `path`. A path that does not start with a slash (`*`, or the
    /// empty one of CONNECT) is matched only by `/**`.
    #[inline]
    pub(super) fn find(&self, path: &[u8]) -> Option<usize> {
        let mut best = self.ends.first()?.rest;
        if let Some(path) = path.strip_prefix(b"/") {
            let mut node = Some(ROOT);
            let mut stars = false;
            for segment in path.split(|byte| *byte == b'/') {
                let Some(here) = node else { break };
                stars |= self.ends[here as usize].star != NONE;
                node = self.trie.child(here, segment);
                best = best.min(node.map_or(NONE, |node| self.ends[node as usize].rest));
            }
            if let Some(ends) = node.map(|node| &self.ends[node as usize])
                && ends.literal != NONE
            {
                return Some(ends.literal as usize);
            }
            if stars {
                best = self.search(ROOT, Some(path), best);
            }
        }
        (best != NONE).then_some(best as usize)
    }

    /// The least index of a matching pattern with wildcards, or `best` if that is less. The recursion is at
    /// most as deep as the pattern with the most segments.
    fn search(&self, node: Node, rest: Option<&[u8]>, mut best: u32) -> u32 {
        let ends = &self.ends[node as usize];
        if ends.least >= best {
            return best;
        }
        best = best.min(ends.rest);
        let Some(path) = rest else { return best.min(ends.whole) };
        let (segment, rest) = match memchr::memchr(b'/', path) {
            Some(at) => (&path[..at], Some(&path[at + 1..])),
            None => (path, None),
        };
        if let Some(child) = self.trie.child(node, segment) {
            best = self.search(child, rest, best);
        }
        if ends.star != NONE && !segment.is_empty() {
            best = self.search(ends.star, rest, best);
        }
        best
    }

    /// The least index of a pattern that matches every path of the pattern with these `segments`. `open` is
    /// true if that pattern ends with `/**`.
    fn covering(&self, node: Node, segments: &[&[u8]], open: bool) -> u32 {
        let ends = &self.ends[node as usize];
        let Some((segment, rest)) = segments.split_first() else {
            return ends.rest.min(if open { NONE } else { ends.whole });
        };
        let mut by = ends.rest;
        if *segment != b"*"
            && let Some(child) = self.trie.child(node, segment)
        {
            by = by.min(self.covering(child, rest, open));
        }
        if ends.star != NONE && !segment.is_empty() {
            by = by.min(self.covering(ends.star, rest, open));
        }
        by
    }

    /// Adds a pattern. Returns the index of the existing pattern as an error if it is the same.
    fn add(&mut self, index: u32, pattern: &PathPattern, segments: &[&[u8]]) -> Result<(), u32> {
        let literal = pattern.is_literal();
        let mut node = ROOT;
        for segment in segments {
            if !literal {
                let ends = &mut self.ends[node as usize];
                ends.least = ends.least.min(index);
            }
            let star = *segment == b"*";
            let child = self.trie.child_or_add(node, if star { STAR } else { segment });
            self.ends.resize(self.trie.nodes(), NOTHING);
            if star {
                self.ends[node as usize].star = child;
            }
            node = child;
        }
        let ends = &mut self.ends[node as usize];
        if literal {
            if ends.literal != NONE {
                return Err(ends.literal);
            }
            ends.literal = index;
            return Ok(());
        }
        ends.least = ends.least.min(index);
        let end = if pattern.segments().1 { &mut ends.rest } else { &mut ends.whole };
        *end = (*end).min(index);
        Ok(())
    }
}
