#![no_main]

#[allow(dead_code, reason = "each target uses one function of the module")]
#[path = "../targets/waf_values.rs"]
mod waf_values;

libfuzzer_sys::fuzz_target!(|data: &[u8]| waf_values::transformations(data));
