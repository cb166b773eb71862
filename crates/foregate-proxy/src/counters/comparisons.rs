//! Counters of comparisons with the proxy that this one replaces.

use super::metrics::Counter;

/// The classes of outcomes, as their labels.
const CLASSES: [&str; 10] =
    ["only-old", "only-new", "status", "request", "body", "header", "error", "noise", "same", "not-compared"];

/// The counters.
#[derive(Debug, Default)]
pub struct ComparisonCounters {
    classes: [Counter; CLASSES.len()],
    /// Comparisons that were dropped because too many were waiting.
    pub dropped: Counter,
    /// Samples that could not be written.
    pub samples_failed: Counter,
    /// Requests at a tap with an id that belongs to no comparison.
    pub ids_refused: Counter,
}

impl ComparisonCounters {
    /// Counts an outcome by the name of its class.
    pub fn count(&self, class: &str) {
        let found = CLASSES.iter().zip(&self.classes).find(|(name, _)| **name == class);
        if let Some((_, counter)) = found {
            counter.inc();
        }
    }

    /// All classes with their counts.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        CLASSES.iter().zip(&self.classes).map(|(name, counter)| (*name, counter.get()))
    }
}
