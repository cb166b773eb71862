//! Numbers for objects that have a name in the configuration.

/// An upstream of the configuration, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UpstreamId(pub u32);

/// A log file of the configuration, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LogId(pub u32);
