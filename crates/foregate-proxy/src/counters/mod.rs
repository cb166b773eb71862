//! Counters of the process. They are below everything that counts; [`crate::telemetry`] shows them.

pub mod cache;
pub mod certificates;
pub mod comparisons;
pub mod fallbacks;
pub mod metrics;
pub mod steps;
