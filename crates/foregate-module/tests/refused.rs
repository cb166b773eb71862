//! What the compiler refuses about steps and lists of steps, and what it says: tests/refused/NAME.stderr.
//!
//! `TRYBUILD=overwrite cargo test -p foregate-module --test refused` writes the messages anew.

#[test]
fn steps_that_cannot_work_are_refused() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
