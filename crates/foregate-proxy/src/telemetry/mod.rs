//! The proxy's reports on itself: access log, log files of modules, and the exposition of the metrics.

pub mod access_log;
pub mod exposition;
pub mod log_file;
mod process;
