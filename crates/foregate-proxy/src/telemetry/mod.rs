//! The proxy's reports on itself: access log, log files of modules, and the exposition of the metrics.

pub mod access_log;
pub mod audit;
mod disks;
pub mod exposition;
pub mod live;
pub mod loads;
pub mod log_file;
pub mod process;
