//! Foregate with two modules more: everything that ships stays, and `office-hours` and `quote` come with it.
#![forbid(unsafe_code)]

mod office_hours;
mod quote;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

foregate_module::pipeline! {
    /// All that ships, and ours. Steps are merged phase by phase; the compiler checks the result.
    pub fn steps {
        use foregate::shipped;
        office_hours::OfficeHours, quote::Ask, quote::Take, quote::Write,
    }
}

fn main() -> ExitCode {
    foregate::main(steps())
}
