//! The bounds of the language. Input that exceeds one is refused when it is loaded, and the error tells the place.

/// The longest text of an expression, in bytes.
pub const MAX_EXPRESSION: usize = 256 * 1024;

/// The nesting depth of parentheses, `not` and calls, which bounds all recursion over an expression.
pub const MAX_DEPTH: usize = 64;

/// The most values in one `{...}`.
pub const MAX_SET: usize = 16 * 1024;

/// The most arguments of one call.
pub const MAX_ARGUMENTS: usize = 64;

/// The longest text of one regular expression or wildcard pattern, in bytes.
pub const MAX_PATTERN: usize = 64 * 1024;

/// The most memory that one compiled regular expression may take, in bytes.
pub const MAX_COMPILED_PATTERN: usize = 1024 * 1024;

/// The most positions of one regular expression that may be active at once during a match. At this limit, each byte
/// of a worst-case text takes about 15 us.
pub const MAX_POSITIONS: usize = 1000;

/// The nesting depth of groups in a regular expression.
pub const MAX_PATTERN_DEPTH: u32 = 100;

/// The most memory that one regular expression may use on each thread for its lazily built states, in bytes. When it
/// is used up, the states are dropped and built again; matching stays linear in the length of the text.
pub const MAX_PATTERN_CACHE: usize = 256 * 1024;

/// The most memory that the regular expressions of one expression, or of all rules of a [`RuleSet`](crate::RuleSet)
/// together, may take, in bytes.
pub const MAX_COMPILED_PATTERNS: usize = 64 * 1024 * 1024;

/// The most references such as `${1}` in one replacement.
pub const MAX_REFERENCES: usize = 8;

/// The longest result of a replacement, in bytes. A result that would be longer is absent.
pub const MAX_REPLACED: usize = 1024 * 1024;

/// The most parts that `split` may be asked for.
pub const MAX_SPLIT: usize = 128;

/// The most times that `url_decode` with the option `r` decodes a text. Deeper encodings stay.
pub const MAX_DECODINGS: usize = 8;

/// The most rules of a [`RuleSet`](crate::RuleSet).
pub const MAX_RULES: usize = 1_000_000;

/// The most entries of a named list.
pub const MAX_LIST: usize = 4_000_000;

/// The longest entry of a named list, in bytes.
pub const MAX_LIST_ENTRY: usize = 4096;
