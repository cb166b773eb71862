//! What the proxy says about itself: access log, metrics, and how long its workers were kept busy.

pub mod access_log;
pub mod blocked;
pub mod clock;
mod exposition;
pub mod log_file;
pub mod metrics;
mod process;
pub mod steps;
