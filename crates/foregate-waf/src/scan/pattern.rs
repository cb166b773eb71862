//! One pattern.

use std::ops::Range;

use regex_automata::meta::{BuildError, Config, Regex};
use regex_automata::nfa::thompson::WhichCaptures;
use regex_automata::util::primitives::NonMaxUsize;
use regex_automata::{Input, PatternID};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::Hir;

use super::required::{Literals, required};
use super::translate::translate;

/// The longest pattern, bytes of text; a longer one is an error.
const MAX_PATTERN: usize = 64 * 1024;
/// The most memory that one automaton of a pattern may take, bytes; a pattern that needs more is an error.
const MAX_COMPILED: usize = 8 * 1024 * 1024;
/// The largest cache for the states of an automaton that is built during a search, bytes for each thread and
/// direction. If the cache is full, it is cleared, or a slower automaton is used.
const MAX_CACHE: usize = 512 * 1024;
/// The deepest nesting of groups; a deeper one is an error.
const MAX_DEPTH: u32 = 250;

/// The number of groups that are reported: the whole match and nine groups, as `TX.0` to `TX.9`.
pub const MAX_GROUPS: usize = 10;

/// The positions of the groups of a match; the first is the whole match. A group that did not take part in
/// the match is `None`.
pub type Groups = [Option<Range<usize>>; MAX_GROUPS];

/// The options of a pattern, in addition to the flags in the pattern itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PatternOptions {
    /// If true, ASCII letters match in either case. Default: false.
    pub ignore_case: bool,
    /// If true, `^` and `$` match at line feeds too. Default: true, as in ModSecurity 3.
    pub multi_line: bool,
    /// Set if [`Pattern::captures`] will be called. Default: false.
    pub captures: bool,
}

impl Default for PatternOptions {
    fn default() -> Self {
        Self { ignore_case: false, multi_line: true, captures: false }
    }
}

/// An error in a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError {
    /// The position in the pattern, bytes; `None` if the error concerns the whole pattern.
    pub at: Option<usize>,
    /// The message: a sentence without a full stop.
    pub what: String,
}

impl PatternError {
    pub(super) fn new(at: usize, what: impl Into<String>) -> Self {
        Self { at: Some(at), what: what.into() }
    }

    fn whole(what: impl Into<String>) -> Self {
        Self { at: None, what: what.into() }
    }
}

impl std::fmt::Display for PatternError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.at {
            Some(at) => write!(formatter, "{} (byte {at} of the pattern)", self.what),
            None => formatter.write_str(&self.what),
        }
    }
}

impl std::error::Error for PatternError {}

/// A pattern in PCRE's syntax over bytes: `.` matches every byte, and classes and case are those of ASCII. It
/// finds the same matches as PCRE, in time linear in the value's length.
///
/// Constructs that cannot be matched in linear time (look-around, back-references, atomic groups, possessive
/// quantifiers, recursion) are errors. One difference remains: `^` matches after a line feed at the end of
/// the value, but not in PCRE.
#[derive(Debug)]
pub struct Pattern {
    regex: Regex,
    required: Option<Literals>,
}

impl Pattern {
    /// Compiles a pattern, which need not be UTF-8.
    pub fn new(pattern: &[u8], options: PatternOptions) -> Result<Self, PatternError> {
        let hir = parse(pattern, options)?;
        let captures = if options.captures { WhichCaptures::All } else { WhichCaptures::Implicit };
        let config = Config::new()
            .utf8_empty(false)
            .which_captures(captures)
            .nfa_size_limit(Some(MAX_COMPILED))
            .hybrid_cache_capacity(MAX_CACHE);
        let regex =
            Regex::builder().configure(config).build_from_hir(&hir).map_err(|error| explain(&error))?;
        Ok(Self { required: required(&hir), regex })
    }

    /// Returns true if the pattern matches anywhere in the value.
    pub fn is_match(&self, value: &[u8]) -> bool {
        self.regex.is_match(value)
    }

    /// The position of the first match.
    pub fn find(&self, value: &[u8]) -> Option<Range<usize>> {
        self.regex.find(value).map(|found| found.range())
    }

    /// The groups of the first match at or after `from`. Groups beyond [`MAX_GROUPS`] are left out. Without the
    /// option `captures`, only the whole match is returned.
    pub fn captures(&self, value: &[u8], from: usize) -> Option<Groups> {
        let mut slots = [None::<NonMaxUsize>; 2 * MAX_GROUPS];
        let input = Input::new(value).range(from.min(value.len())..);
        let len = slots.len().min(2 * self.regex.captures_len());
        let found: Option<PatternID> = self.regex.search_slots(&input, &mut slots[..len]);
        found?;
        let group = |at: usize| Some(slots[2 * at]?.get()..slots[2 * at + 1]?.get());
        Some(std::array::from_fn(group))
    }

    /// The number of groups, including the whole match.
    pub fn groups(&self) -> usize {
        self.regex.captures_len()
    }

    /// Literals of which every match contains at least one; `None` if there are no useful ones.
    pub fn required(&self) -> Option<&Literals> {
        self.required.as_ref()
    }

    /// The memory of the pattern, bytes, without the caches of each thread.
    pub fn memory(&self) -> usize {
        self.regex.memory_usage()
    }
}

/// Parses a pattern without compiling it.
pub(crate) fn parse(pattern: &[u8], options: PatternOptions) -> Result<Hir, PatternError> {
    if pattern.len() > MAX_PATTERN {
        return Err(PatternError::whole(format!("the pattern is longer than {MAX_PATTERN} bytes")));
    }
    let text = translate(pattern)?;
    let mut parser = ParserBuilder::new()
        .unicode(false)
        .utf8(false)
        .dot_matches_new_line(true)
        .multi_line(options.multi_line)
        .case_insensitive(options.ignore_case)
        .nest_limit(MAX_DEPTH)
        .build();
    parser.parse(&text).map_err(|error| {
        let text = error.to_string();
        let what = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
        PatternError::whole(format!("this is no pattern: {what}"))
    })
}

fn explain(error: &BuildError) -> PatternError {
    PatternError::whole(match error.size_limit() {
        Some(limit) => format!("the pattern takes more than {limit} bytes when it is compiled"),
        None => format!("this pattern cannot be used: {error}"),
    })
}
