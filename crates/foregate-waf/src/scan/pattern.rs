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
/// The largest memory for the states found so far, bytes for each thread and direction. A full cache
/// is cleared, or a slower automaton takes over.
const MAX_CACHE: usize = 512 * 1024;
/// Groups within groups; deeper ones are an error.
const MAX_DEPTH: u32 = 250;

/// The number of groups that are reported: the whole match and nine groups, as `TX.0` to `TX.9`.
pub const MAX_GROUPS: usize = 10;

/// Where the groups of a match are, the whole match first. A group without part in it is `None`.
pub type Groups = [Option<Range<usize>>; MAX_GROUPS];

/// The flags of a pattern, in addition to its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PatternOptions {
    /// Matches ASCII letters in either case. Default: false.
    pub ignore_case: bool,
    /// Lets `^` and `$` match at line feeds too. Default: true, as in ModSecurity 3.
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
    /// The position in bytes of its text; `None` if the error is about all of it.
    pub at: Option<usize>,
    /// A sentence without full stop.
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

/// A pattern in PCRE's syntax over bytes: `.` matches every byte, classes and case are those of ASCII. It finds the matches of
/// PCRE, in time linear in the value.
///
/// Constructs without linear time (look-around, references back, atomic groups, possessive quantifiers, recursion) are errors.
/// `^` matches after a line feed that ends the value, where PCRE does not.
#[derive(Debug)]
pub struct Pattern {
    regex: Regex,
    required: Option<Literals>,
}

impl Pattern {
    /// Compiles a pattern. It need not be UTF-8.
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

    /// Returns true if it matches anywhere in the value.
    pub fn is_match(&self, value: &[u8]) -> bool {
        self.regex.is_match(value)
    }

    /// The start of the first match.
    pub fn find(&self, value: &[u8]) -> Option<Range<usize>> {
        self.regex.find(value).map(|found| found.range())
    }

    /// The groups of its first match at or after `from`; those beyond [`MAX_GROUPS`] are left out, and all but the whole match
    /// if it was not made with `captures`.
    pub fn captures(&self, value: &[u8], from: usize) -> Option<Groups> {
        let mut slots = [None::<NonMaxUsize>; 2 * MAX_GROUPS];
        let input = Input::new(value).range(from.min(value.len())..);
        let len = slots.len().min(2 * self.regex.captures_len());
        let found: Option<PatternID> = self.regex.search_slots(&input, &mut slots[..len]);
        found?;
        let group = |at: usize| Some(slots[2 * at]?.get()..slots[2 * at + 1]?.get());
        Some(std::array::from_fn(group))
    }

    /// The number of its groups, the whole match among them.
    pub fn groups(&self) -> usize {
        self.regex.captures_len()
    }

    /// Literals of which every match contains at least one; `None` if there are no useful ones.
    pub fn required(&self) -> Option<&Literals> {
        self.required.as_ref()
    }

    /// Its memory, bytes, without the caches of each thread.
    pub fn memory(&self) -> usize {
        self.regex.memory_usage()
    }
}

/// A parsed pattern, not compiled.
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
