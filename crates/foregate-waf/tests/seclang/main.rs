//! SecLang from outside: accepted and refused input, and all of the Core Rule Set.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests stop at what they do not expect"
)]

mod corpus;
mod crs;
mod files;
mod limits;
mod meaning;
mod problems;
mod properties;

use foregate_waf::model::{Problem, RuleSet};
use foregate_waf::seclang::{NoFiles, Source, load};

/// The rules in a text.
fn set(text: &str) -> RuleSet {
    match load(&[Source::text("t", text)], &mut NoFiles) {
        Ok(set) => set,
        Err(problems) => panic!("{}", shown(&problems)),
    }
}

fn shown(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}
