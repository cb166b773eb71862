//! Counters of the process. They know nothing of the code that counts; [`crate::telemetry`] exposes them.

pub mod cache;
pub mod certificates;
pub mod comparisons;
pub mod fallbacks;
pub mod metrics;
pub mod steps;
