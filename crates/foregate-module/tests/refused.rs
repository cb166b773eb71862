//! Steps and lists of steps that the compiler refuses, with its messages: tests/refused/NAME.stderr.
//!
//! `TRYBUILD=overwrite cargo test -p foregate-module --test refused` writes the messages anew.

#[test]
fn steps_that_cannot_work_are_refused() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
