//! Patterns over bytes, the literals that they require, and a scan that finds in one pass which of many
//! patterns may match a value.
//!
//! A [`Pattern`] matches in linear time. Most patterns require certain literals in a value:
//! [`Pattern::required`] finds them. A [`Scan`] searches for the literals of all patterns at once, so that
//! only a few of hundreds of patterns have to be tried. The scan only excludes patterns; a pattern that it
//! finds may still not match.

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
