#![no_main]

#[path = "../targets/rules.rs"]
mod rules;

libfuzzer_sys::fuzz_target!(|data: &[u8]| rules::rules_compile_and_match(data));
