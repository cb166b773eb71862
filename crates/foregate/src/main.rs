//! The `foregate` binary: the modules that ship, and nothing else.
#![forbid(unsafe_code)]

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[cfg(feature = "faults")]
mod faults;

#[cfg(not(feature = "faults"))]
fn main() -> ExitCode {
    foregate::main(foregate::shipped())
}

#[cfg(feature = "faults")]
fn main() -> ExitCode {
    faults::begin();
    foregate::main(faults::steps())
}
