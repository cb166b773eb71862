#![no_main]

#[path = "../targets/waf_values.rs"]
mod waf_values;

libfuzzer_sys::fuzz_target!(|data: &[u8]| waf_values::injections(data));
