//! Patterns over bytes, the literals that they require, and one pass over a value that finds which of many patterns may
//! match it.
//!
//! A [`Pattern`] matches in linear time. Most patterns cannot match without certain texts: [`Pattern::required`] finds
//! them, and a [`Scan`] looks for those of all patterns at once, so that of hundreds only a few are tried. All that a
//! scan may say is that a pattern cannot match.

mod automaton;
mod class;
mod pattern;
mod required;
mod translate;
mod words;

pub use automaton::{Scan, ScanHits, TooLarge};
pub(crate) use pattern::parse;
pub use pattern::{Groups, MAX_GROUPS, Pattern, PatternError, PatternOptions};
pub use required::{Literals, required};
pub use words::Words;
