//! Bounds on rule files. If one is exceeded, loading fails with an error that tells which one.

/// Bytes in a file of rules.
pub const MAX_FILE: usize = 8 << 20;

/// Bytes in a file of phrases or addresses.
pub const MAX_DATA_FILE: usize = 16 << 20;

/// Bytes in all files together. A file counts each time that it is read.
pub const MAX_BYTES: usize = 64 << 20;

/// Files of rules. A file counts each time that it is included.
pub const MAX_FILES: usize = 4096;

/// The nesting depth of files that include each other.
pub const MAX_INCLUDE_DEPTH: usize = 16;

/// Bytes in a directive, with the lines that continue it.
pub const MAX_DIRECTIVE: usize = 1 << 20;

/// Rules, including removed ones; a chain counts as one.
pub const MAX_RULES: usize = 32_768;

/// Rules in a chain.
pub const MAX_CHAIN: usize = 64;

/// Targets of a rule, including excluded ones and those that updates add.
pub const MAX_TARGETS: usize = 1024;

/// Actions in a list.
pub const MAX_ACTIONS: usize = 1024;

/// The size of a pattern: the number of bytes that it can match in sequence, with all alternatives added up.
pub const MAX_PATTERN_COST: u64 = 200_000;

/// A pattern larger than this causes a warning.
pub const COSTLY_PATTERN: u64 = 20_000;

/// Directives that update or remove rules.
pub const MAX_UPDATES: usize = 16_384;

/// Targets that directives add to other rules, counted over all rules.
pub const MAX_UPDATED_TARGETS: usize = 4 << 20;

/// Markers in all files.
pub const MAX_MARKERS: usize = 16_384;

/// The most errors that are reported. Loading ends at the last of them.
pub const MAX_ERRORS: usize = 100;

/// The most reported warnings.
pub const MAX_WARNINGS: usize = 1000;
