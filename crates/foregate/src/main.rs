//! The `foregate` binary: the modules that ship, and nothing else.
#![forbid(unsafe_code)]

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    foregate::main(foregate::shipped())
}
