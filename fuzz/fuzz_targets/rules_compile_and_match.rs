#![no_main]

#[allow(dead_code, reason = "each target uses one function of the module")]
#[path = "../targets/rules.rs"]
mod rules;

libfuzzer_sys::fuzz_target!(|data: &[u8]| rules::rules_compile_and_match(data));
