#![no_main]

#[path = "../targets/waf_engine.rs"]
mod waf_engine;

libfuzzer_sys::fuzz_target!(|data: &[u8]| waf_engine::waf_engine(data));
