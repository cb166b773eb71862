//! Bounds on rule files. Exceeding one refuses the load with an error that names it.

/// Bytes in a file of rules.
pub const MAX_FILE: usize = 8 << 20;

/// Bytes in a file of phrases or addresses.
pub const MAX_DATA_FILE: usize = 16 << 20;

/// Bytes in all files together, each as often as it is read.
pub const MAX_BYTES: usize = 64 << 20;

/// Files of rules, each as often as it is included.
pub const MAX_FILES: usize = 4096;

/// The depth of files that include one another.
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

/// How large a pattern may be, counted in bytes it can look at in a row, alternatives added up.
pub const MAX_PATTERN_COST: u64 = 200_000;

/// A pattern larger than this is warned of.
pub const COSTLY_PATTERN: u64 = 20_000;

/// Directives that update or remove rules.
pub const MAX_UPDATES: usize = 16_384;

/// Targets that such directives add, at all rules together.
pub const MAX_UPDATED_TARGETS: usize = 4 << 20;

/// Markers.
pub const MAX_MARKERS: usize = 16_384;

/// The most reported errors; the last of them ends the load.
pub const MAX_ERRORS: usize = 100;

/// The most reported warnings.
pub const MAX_WARNINGS: usize = 1000;
