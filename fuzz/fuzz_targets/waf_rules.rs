#![no_main]

#[allow(dead_code, reason = "each target uses one function of the module")]
#[path = "../targets/waf_engine.rs"]
mod engine;

libfuzzer_sys::fuzz_target!(|data: &[u8]| engine::waf_rules(data));
