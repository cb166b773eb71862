//! Foregate with one module more: everything that ships stays, and `office-hours` comes with it.
#![forbid(unsafe_code)]

mod office_hours;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

foregate_module::pipeline! {
    /// All that ships, and ours. Steps are merged phase by phase; the compiler checks the result.
    pub fn steps { use foregate::shipped; office_hours::OfficeHours }
}

fn main() -> ExitCode {
    foregate::main(steps())
}
