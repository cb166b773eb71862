#![no_main]

#[path = "../targets/waf.rs"]
mod waf;

libfuzzer_sys::fuzz_target!(|data: &[u8]| waf::seclang(data));
