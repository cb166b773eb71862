//! Foregate as a library: for binaries with modules of their own, for tests and for fuzz targets.
//!
//! A binary is its list of modules:
//!
//! ```no_run
//! foregate_module::pipeline! { pub fn steps { use foregate::shipped; } }
//!
//! fn main() -> std::process::ExitCode {
//!     foregate::main(steps())
//! }
//! ```
#![forbid(unsafe_code)]

mod cli;
pub mod config;
mod demo;
mod modules;

use std::process::ExitCode;

use foregate_module::Pipeline;

pub use crate::modules::shipped;

/// The whole program: reads the command line and runs the command, with the modules of `pipeline`. `main` must call it
/// once.
///
/// A binary chooses its own allocator. The `foregate` binary uses `mimalloc`; this library does not set an allocator.
pub fn main(pipeline: Pipeline) -> ExitCode {
    cli::main(pipeline)
}
